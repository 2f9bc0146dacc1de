//! `NO_PROXY`: the hosts that programs call without the gateway.
//!
//! The variable has no standard. All programs understand names, addresses and commas without spaces; most
//! take a name for all names below it too, and some only with a dot before it.

use std::net::IpAddr;

use egret_message::authority::Host;

/// Loopback, which programs call for their own sake, and the metadata service of clouds, which refuses calls
/// through proxies.
const ALWAYS: [&str; 4] = ["localhost", "127.0.0.1", "::1", "169.254.169.254"];

/// The hosts that programs call without the gateway, in the form that most programs understand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoProxy(Vec<String>);

impl NoProxy {
    /// Merges the inherited lists. Entries are left out if one of the `called` hosts would go round the
    /// gateway by them.
    pub fn merged(inherited: &[String], called: &[Host]) -> Self {
        let separators = [',', ' ', '\t', '\n'];
        let inherited = inherited.iter().flat_map(|list| list.split(separators));
        let mut entries: Vec<String> = Vec::new();
        for entry in ALWAYS.into_iter().chain(inherited) {
            let entry = entry.trim();
            // `*.a.example` is `.a.example` elsewhere.
            let entry = entry.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(entry);
            let is_new = !entries.iter().any(|known| known.eq_ignore_ascii_case(entry));
            if !entry.is_empty() && is_new && !called.iter().any(|host| covers(entry, host)) {
                entries.push(entry.to_owned());
            }
        }
        Self(entries)
    }

    /// The value of the variable.
    pub fn value(&self) -> String {
        self.0.join(",")
    }

    /// The value of Java's property `http.nonProxyHosts`, whose names stand for themselves only.
    pub fn for_java(&self) -> String {
        let patterns = self.0.iter().flat_map(|entry| match entry.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) if ip.is_loopback() => vec!["127.*".to_owned()],
            Ok(IpAddr::V4(ip)) => vec![ip.to_string()],
            Ok(IpAddr::V6(ip)) => vec![format!("[{ip}]")],
            // Java knows no ranges of addresses.
            Err(_) if entry.contains('/') => Vec::new(),
            Err(_) => {
                let name = without_port(entry);
                let parent = name.trim_start_matches('.');
                let own = (parent == name).then(|| name.to_owned());
                own.into_iter().chain([format!("*.{parent}")]).collect()
            }
        });
        patterns.collect::<Vec<_>>().join("|")
    }
}

/// Returns `true` if a program may take the entry for the host.
fn covers(entry: &str, host: &Host) -> bool {
    if entry == "*" {
        return true;
    }
    match host {
        Host::Ip(ip) => covers_address(entry, ip.to_canonical()),
        Host::Name(name) => {
            let entry =
                without_port(entry).trim_start_matches('.').trim_end_matches('.').to_ascii_lowercase();
            name.strip_suffix(entry.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                && !entry.is_empty()
        }
    }
}

fn covers_address(entry: &str, ip: IpAddr) -> bool {
    if let Some((network, bits)) = entry.split_once('/') {
        let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
        return match (network.to_canonical(), ip) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                shares_bits(network.to_bits().into(), ip.to_bits().into(), 32, bits)
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => shares_bits(network.to_bits(), ip.to_bits(), 128, bits),
            _ => false,
        };
    }
    let literal = entry.trim_start_matches('[').trim_end_matches(']');
    let parsed = literal.parse().or_else(|_| without_port(entry).parse::<IpAddr>());
    parsed.is_ok_and(|entry| entry.to_canonical() == ip)
}

/// Returns `true` if the first `bits` of two numbers with `width` bits are equal.
fn shares_bits(one: u128, other: u128, width: u32, bits: u32) -> bool {
    let low = width.saturating_sub(bits);
    one.checked_shr(low).unwrap_or(0) == other.checked_shr(low).unwrap_or(0)
}

/// Returns an entry without its port: some programs accept `host:port`.
fn without_port(entry: &str) -> &str {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match entry.rsplit_once(':') {
        Some((host, port)) if is_port(port) && (!host.contains(':') || host.ends_with(']')) => {
            host.trim_start_matches('[').trim_end_matches(']')
        }
        _ => entry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(inherited: &[&str], called: &[&str]) -> NoProxy {
        let inherited: Vec<String> = inherited.iter().map(|list| (*list).to_owned()).collect();
        let called: Vec<Host> = called.iter().map(|host| Host::parse(host.as_bytes()).unwrap()).collect();
        NoProxy::merged(&inherited, &called)
    }

    #[test]
    fn inherited_entries_follow_once_and_in_the_common_form() {
        let merged = merged(&["db.internal, *.svc ,,LOCALHOST", "10.0.0.0/8 .svc"], &[]);
        let expected = "localhost,127.0.0.1,::1,169.254.169.254,db.internal,.svc,10.0.0.0/8";
        assert_eq!(merged.value(), expected);
    }

    #[test]
    fn no_provider_is_exempt() {
        for (entry, provider, is_left_out) in [
            ("*", "api.example.com", true),
            ("api.example.com", "api.example.com", true),
            (".EXAMPLE.com", "api.example.com", true),
            ("example.com", "api.example.com", true),
            ("example.com:443", "api.example.com", true),
            ("ample.com", "api.example.com", false),
            ("v1.api.example.com", "api.example.com", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3:80", "10.1.2.3", true),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.2.0.0/16", "10.1.2.3", false),
            ("0.0.0.0/0", "10.1.2.3", true),
            ("10.0.0.0/x", "10.1.2.3", false),
            ("fd00::/8", "[fd00::1]", true),
            ("[fd00::1]", "[fd00::1]", true),
            ("fd00::2", "[fd00::1]", false),
        ] {
            let value = merged(&[entry], &[provider]).value();
            let is_there = value.split(',').any(|kept| kept == entry);
            assert_eq!(is_there, !is_left_out, "{entry} and {provider}: {value}");
        }
    }

    #[test]
    fn a_provider_on_loopback_is_called_through_the_gateway() {
        assert_eq!(merged(&[], &["127.0.0.1"]).value(), "localhost,::1,169.254.169.254");
        assert_eq!(merged(&["localhost"], &["localhost"]).value(), "127.0.0.1,::1,169.254.169.254");
    }

    #[test]
    fn java_has_its_own_patterns() {
        let list = ["svc.local:80,.internal,10.1.2.3,10.0.0.0/8,fd00::1"];
        assert_eq!(
            merged(&list, &[]).for_java(),
            "localhost|*.localhost|127.*|[::1]|169.254.169.254|svc.local|*.svc.local|*.internal|10.1.2.3|[fd00::1]"
        );
    }
}
