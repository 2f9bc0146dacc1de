//! The hosts that are called without a proxy: `no_proxy` of the config, and the variable `NO_PROXY`.

use egret_message::authority::{Authority, Host};

use crate::policy::net::{Net, NetError};

/// Maximum number of entries.
const ENTRIES_MAX: usize = 1_024;

/// The reason why a text is not a list of hosts without a proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BypassError {
    /// An entry is no host, address or network.
    #[error("`{0}` is not a host, `.suffix`, address, network or `*`")]
    Entry(String),
    /// Bits beyond the prefix are set. Holds the network that was probably meant.
    #[error("`{0}` has bits set beyond its prefix length: write `{1}`")]
    HostBits(String, String),
    /// There are too many entries.
    #[error("at most 1,024 entries are possible")]
    TooMany,
}

/// The hosts that are called without a proxy.
#[derive(Debug, Clone, Default)]
pub struct Bypass {
    entries: Vec<Entry>,
}

/// One entry. With a port it is for that port alone.
#[derive(Debug, Clone)]
struct Entry {
    what: What,
    port: Option<u16>,
}

#[derive(Debug, Clone)]
enum What {
    Everything,
    /// A name and every name below it.
    Name(Box<str>),
    /// Every name below one: `.example.com`.
    Below(Box<str>),
    Net(Net),
}

impl Bypass {
    /// Compiles the entries. A name also stands for every name below it, as in curl and Go; `.name` and
    /// `*.name` only for those.
    pub fn compile<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Self, BypassError> {
        let mut bypass = Self::default();
        for text in entries {
            if bypass.entries.len() == ENTRIES_MAX {
                return Err(BypassError::TooMany);
            }
            bypass.entries.push(entry(text)?);
        }
        Ok(bypass)
    }

    /// Returns `true` if `target` is called without a proxy. This machine always is: a proxy would take
    /// `localhost` for itself.
    pub fn matches(&self, target: &Authority) -> bool {
        is_this_machine(&target.host) || self.entries.iter().any(|entry| entry.matches(target))
    }
}

impl Entry {
    fn matches(&self, target: &Authority) -> bool {
        let is_host = match (&self.what, &target.host) {
            (What::Everything, _) => true,
            (What::Name(own), Host::Name(name)) => **name == **own || is_below(name, own),
            (What::Below(own), Host::Name(name)) => is_below(name, own),
            (What::Net(net), Host::Ip(ip)) => net.contains(*ip),
            (What::Name(_) | What::Below(_), Host::Ip(_)) | (What::Net(_), Host::Name(_)) => false,
        };
        is_host && self.port.is_none_or(|port| port == target.port)
    }
}

fn is_below(name: &str, own: &str) -> bool {
    name.strip_suffix(own).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Name(name) => &**name == "localhost" || is_below(name, "localhost"),
        Host::Ip(ip) => {
            let ip = ip.to_canonical();
            ip.is_loopback() || ip.is_unspecified()
        }
    }
}

fn entry(text: &str) -> Result<Entry, BypassError> {
    let bad = || BypassError::Entry(text.to_owned());
    if text == "*" {
        return Ok(Entry { what: What::Everything, port: None });
    }
    match Net::parse(text) {
        Ok(net) => return Ok(Entry { what: What::Net(net), port: None }),
        Err(NetError::HostBits(net)) => {
            return Err(BypassError::HostBits(text.to_owned(), net.to_string()));
        }
        Err(NetError::Syntax) => {}
    }
    let is_below = text.starts_with('.') || text.starts_with("*.");
    let host = text.strip_prefix('*').unwrap_or(text);
    let host = host.strip_prefix('.').unwrap_or(host);
    // 1 stands for a port that is not given: every entry has some.
    let has_port = Authority::parse(host.as_bytes(), None).is_ok();
    let Authority { host, port } = Authority::parse(host.as_bytes(), Some(1)).map_err(|_| bad())?;
    let what = match host {
        Host::Ip(_) if is_below => return Err(bad()),
        Host::Ip(ip) => What::Net(Net::single(ip)),
        Host::Name(name) if is_below => What::Below(name),
        Host::Name(name) => What::Name(name),
    };
    Ok(Entry { what, port: has_port.then_some(port) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(entries: &[&str], target: &str) -> bool {
        let target = Authority::parse(target.as_bytes(), Some(443)).unwrap();
        Bypass::compile(entries.iter().copied()).unwrap().matches(&target)
    }

    #[test]
    fn a_name_stands_for_itself_and_those_below() {
        for (entry, target, expected) in [
            ("example.com", "example.com", true),
            ("Example.COM", "api.example.com", true),
            ("example.com", "notexample.com", false),
            (".example.com", "example.com", false),
            (".example.com", "api.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("example.com:8443", "example.com:8443", true),
            ("example.com:8443", "example.com", false),
            ("*", "anything.example", true),
        ] {
            assert_eq!(matches(&[entry], target), expected, "{entry} {target}");
        }
    }

    #[test]
    fn networks_match_literal_addresses_only() {
        for (entry, target, expected) in [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "[::ffff:10.1.2.3]", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("10.0.0.0/8", "ten.example", false),
            ("fd00::/8", "[fd00::1]", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1:80", "192.0.2.1", false),
            ("[2001:db8::1]:443", "[2001:db8::1]", true),
        ] {
            assert_eq!(matches(&[entry], target), expected, "{entry} {target}");
        }
    }

    #[test]
    fn this_machine_needs_no_entry() {
        for target in ["localhost", "a.localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.2]", "0.0.0.0"] {
            assert!(matches(&[], target), "{target}");
        }
        assert!(!matches(&[], "localhost.example"));
    }

    #[test]
    fn an_entry_that_is_no_host_is_refused() {
        for entry in ["", "a b", "http://a", "10.0.0.0/33", "*.10.0.0.1", "a*b"] {
            assert!(Bypass::compile([entry].into_iter()).is_err(), "{entry}");
        }
        let error = Bypass::compile(["10.0.0.1/8"].into_iter()).unwrap_err();
        assert_eq!(error, BypassError::HostBits("10.0.0.1/8".to_owned(), "10.0.0.0/8".to_owned()));
    }
}
