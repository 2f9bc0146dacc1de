//! The machines on which the parts of an experiment run.

use std::net::IpAddr;
use std::path::Path;

use egret_config::{Problem, Report};
use serde::{Deserialize, Serialize};

use crate::text_file::read_text;

/// Directory on another machine, relative to the user's home.
const DIRECTORY: &str = "egret-lab";

/// Maximum number of options for ssh.
const SSH_OPTIONS_MAX: usize = 32;

/// Maximum length of a text, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;

/// Options of ssh that would change the connection so that the lab cannot use it.
const OWN_OPTIONS: [&str; 3] = ["BatchMode", "RemoteCommand", "RequestTTY"];

/// The machine of each part. A part that is left out runs on the machine of the lab.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachinesConfig {
    /// The machine of the load client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<MachineConfig>,
    /// The machine of the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<MachineConfig>,
    /// The machine of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<MachineConfig>,
}

/// A machine, as the lab and the other parts reach it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineConfig {
    /// Destination for OpenSSH's client, `user@host` or a name from its configuration; without it the part
    /// runs on the machine of the lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh: Option<String>,
    /// Options for ssh, as in its configuration file: `Port=2222`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ssh_options: Vec<String>,
    /// Directory on the other machine for Egret's program and for the files of a turn (`egret-lab` in the
    /// user's home).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Egret's program on the other machine. By default the lab copies its own into `directory`, unless the
    /// same is already there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egret: Option<String>,
    /// Name or address under which the other parts reach this one (`127.0.0.1`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Address on which this part listens; by default `address`, if that is no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<IpAddr>,
}

impl MachineConfig {
    /// Directory on the other machine.
    pub(crate) fn directory(&self) -> &str {
        self.directory.as_deref().unwrap_or(DIRECTORY)
    }

    /// Name or address under which the other parts reach this one.
    pub(crate) fn address(&self) -> &str {
        self.address.as_deref().unwrap_or("127.0.0.1")
    }

    /// Address on which this part listens.
    pub(crate) fn listen(&self) -> IpAddr {
        let same = || self.address().parse().ok();
        self.listen.or_else(same).unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST))
    }

    fn problems(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |key: &str, message: String| {
            problems.push(Problem::new(format!("{path}{key}"), message));
        };
        let texts = [("ssh", &self.ssh), ("directory", &self.directory), ("egret", &self.egret)];
        for (key, text) in texts.into_iter().filter_map(|(key, text)| Some((key, text.as_ref()?))) {
            if let Some(message) = unusable(text) {
                add(key, message);
            }
        }
        if self.ssh.as_ref().is_some_and(|ssh| ssh.contains(' ')) {
            add("ssh", "a destination contains no spaces: put options into `ssh_options`".into());
        }
        if self.ssh.is_none() {
            let keys = [
                ("directory", self.directory.is_some()),
                ("egret", self.egret.is_some()),
                ("ssh_options", !self.ssh_options.is_empty()),
            ];
            for (key, _) in keys.into_iter().filter(|(_, is_set)| *is_set) {
                add(key, "requires the key `ssh`: it is about another machine".into());
            }
        }
        if self.ssh_options.len() > SSH_OPTIONS_MAX {
            add("ssh_options", format!("more than {SSH_OPTIONS_MAX} entries"));
        }
        for (index, option) in self.ssh_options.iter().enumerate() {
            if let Some(message) = unusable_option(option) {
                add(&format!("ssh_options[{index}]"), message);
            }
        }
        if let Some(address) = &self.address {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
            let is_address = address.parse::<IpAddr>().is_ok();
            if address.is_empty()
                || address.len() > 253
                || !address.chars().all(plain)
                || (address.contains(':') && !is_address)
            {
                add(
                    "address",
                    format!("expected a host name or an IP address without a port, found `{address}`"),
                );
            } else if !is_address && self.listen.is_none() {
                add(
                    "address",
                    "a name requires the key `listen`: the IP address on which this part listens".into(),
                );
            }
        }
        problems
    }
}

/// Explains why a text cannot be used as a destination or path on another machine.
fn unusable(text: &str) -> Option<String> {
    if text.is_empty() || text.len() > TEXT_BYTES_MAX {
        Some(format!("expected a text of 1 to {TEXT_BYTES_MAX} bytes"))
    } else if text.contains(char::is_control) {
        Some("must not contain control characters".into())
    } else if text.starts_with('-') {
        Some("must not start with `-`, which would make it an option".into())
    } else if text.starts_with('~') {
        Some("`~` is not expanded: a relative path starts at the user's home".into())
    } else {
        None
    }
}

/// Explains why an option cannot be passed to ssh.
fn unusable_option(option: &str) -> Option<String> {
    let Some((name, _)) = option.split_once('=') else {
        return Some(format!("expected `Name=value`, such as `Port=2222`, found `{option}`"));
    };
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Some(format!("`{name}` is not the name of an option"));
    }
    if OWN_OPTIONS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        return Some(format!("`{name}` is set by the lab"));
    }
    (option.contains(char::is_control) || option.len() > TEXT_BYTES_MAX)
        .then(|| format!("an option has at most {TEXT_BYTES_MAX} bytes and no control characters"))
}

impl MachinesConfig {
    /// Reads a file with these keys.
    pub fn read(file: &Path) -> Result<Self, Report> {
        let name = file.display().to_string();
        let text = read_text(file).map_err(|error| Report::whole(&name, error.to_string()))?;
        Self::parse(&name, &text)
    }

    /// Parses the text of such a file; problems are reported under `name`.
    fn parse(name: &str, text: &str) -> Result<Self, Report> {
        egret_config::load(name, text, |machines: &Self| machines.problems("", true))
    }

    /// Returns the problems; `path` is the prefix of the keys. `has_proxy` is `false` if no scenario starts a
    /// proxy.
    pub(super) fn problems(&self, path: &str, has_proxy: bool) -> Vec<Problem> {
        let named = [("client", &self.client), ("proxy", &self.proxy), ("provider", &self.provider)];
        let mut problems = Vec::new();
        for (name, machine) in named.into_iter().filter_map(|(name, machine)| Some((name, machine.as_ref()?)))
        {
            problems.extend(machine.problems(&format!("{path}{name}.")));
        }
        if self.client.as_ref().is_some_and(|client| client.address.is_some() || client.listen.is_some()) {
            let message = "has no `address` and no `listen`: nothing connects to the client";
            problems.push(Problem::new(format!("{path}client"), message));
        }
        let [client, proxy, provider] =
            named.map(|(_, machine)| machine.as_ref().and_then(|it| it.ssh.as_deref()));
        let mut required = |name: &str, machine: &Option<MachineConfig>, by: &str| {
            if machine.as_ref().is_none_or(|machine| machine.address.is_none()) {
                let key = if machine.is_some() {
                    format!("{path}{name}")
                } else {
                    path.trim_end_matches('.').to_owned()
                };
                let message =
                    format!("`{name}.address` is required: {by} runs on another machine and connects to it");
                problems.push(Problem::new(key, message));
            }
        };
        if provider != client {
            required("provider", &self.provider, "the client");
        } else if has_proxy && provider != proxy {
            required("provider", &self.provider, "the proxy");
        }
        if has_proxy && proxy != client {
            required("proxy", &self.proxy, "the client");
        }
        problems
    }

    /// Returns `true` if every part runs on the machine of the lab.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "client: { ssh: me@c }\nproxy: { ssh: me@x, address: 10.0.0.2 }\n\
        provider: { ssh: me@p, address: p.internal, listen: 0.0.0.0, ssh_options: [Port=2222], directory: lab }\n";

    fn refusal(text: &str) -> String {
        MachinesConfig::parse("on.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn three_machines_have_their_addresses() {
        let machines = MachinesConfig::parse("on.yaml", THREE).unwrap();
        let [proxy, provider] = [machines.proxy.unwrap(), machines.provider.unwrap()];
        assert_eq!((proxy.address(), proxy.listen().to_string()), ("10.0.0.2", "10.0.0.2".into()));
        assert_eq!((provider.address(), provider.listen().to_string()), ("p.internal", "0.0.0.0".into()));
        assert_eq!((proxy.directory(), provider.directory()), ("egret-lab", "lab"));
        let here = MachineConfig::default();
        assert_eq!((here.address(), here.listen().to_string()), ("127.0.0.1", "127.0.0.1".into()));
    }

    #[test]
    fn text_that_could_become_an_option_is_refused() {
        for (text, expected) in [
            ("client: { ssh: -oProxyCommand=x }", "on.yaml:1:16: client.ssh: must not start with `-`"),
            ("client: { ssh: \"a\\nb\" }", "on.yaml:1:16: client.ssh: must not contain control characters"),
            ("client: { ssh: \"a b\" }", "client.ssh: a destination contains no spaces"),
            ("client: { ssh: '' }", "client.ssh: expected a text of 1 to"),
            ("client: { ssh: a, directory: ~/lab }", "client.directory: `~` is not expanded"),
            ("client: { ssh: a, egret: -x }", "client.egret: must not start with `-`"),
            ("client: { ssh: a, ssh_options: [Port] }", "client.ssh_options[0]: expected `Name=value`"),
            ("client: { ssh: a, ssh_options: ['-i x=y'] }", "client.ssh_options[0]: `-i x` is not the name"),
            ("client: { ssh: a, ssh_options: [batchmode=no] }", "`batchmode` is set by the lab"),
            ("client: { directory: lab }", "client.directory: requires the key `ssh`"),
            ("proxy: { address: 'http://h' }", "proxy.address: expected a host name or an IP address"),
            ("proxy: { address: '10.0.0.1:80' }", "proxy.address: expected a host name or an IP address"),
            ("proxy: { address: name }", "proxy.address: a name requires the key `listen`"),
            ("client: { shh: a }", "did you mean `ssh`?"),
        ] {
            let received = refusal(&format!("{text}\n"));
            assert!(received.contains(expected), "{expected}\nis not in\n{received}");
        }
    }

    #[test]
    fn a_part_that_is_reached_from_another_machine_needs_an_address() {
        let received = refusal("client: { ssh: me@c }\n");
        assert!(
            received.contains("`provider.address` is required: the client runs on another machine"),
            "{received}"
        );
        assert!(
            received.contains("`proxy.address` is required: the client runs on another machine"),
            "{received}"
        );
        let received = refusal("proxy: { ssh: me@x, address: 10.0.0.2 }\n");
        assert!(
            received.contains("`provider.address` is required: the proxy runs on another machine"),
            "{received}"
        );
        let received = refusal("client: { ssh: me@c, address: 10.0.0.9 }\n");
        assert!(received.contains("nothing connects to the client"), "{received}");
        // All on one other machine.
        let one = "client: { ssh: me@a }\nproxy: { ssh: me@a }\nprovider: { ssh: me@a }\n";
        assert!(MachinesConfig::parse("on.yaml", one).is_ok());
        assert!(MachinesConfig::default().problems("on.", false).is_empty());
    }
}
