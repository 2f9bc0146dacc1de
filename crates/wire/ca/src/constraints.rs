//! The hosts that an authority may speak for (RFC 5280 §4.2.1.10).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use egret_message::authority::Host;
use rcgen::{CidrSubnet, GeneralSubtree, NameConstraints};
use x509_parser::extensions::{GeneralName, NameConstraints as ParsedConstraints};

use egret_message::host_pattern::HostPattern;

/// Maximum number of hosts. They are part of the issuing certificate, which is sent in every full handshake.
const HOSTS_MAX: usize = 512;

/// The only permitted DNS name of an authority for addresses. No host has a name in this domain (RFC 6761
/// §6.4). The JDK does not understand that the excluded empty name stands for every name.
const NO_NAME: &str = "invalid";

/// The hosts that an authority may speak for: DNS names with all names below them, and single addresses.
///
/// A verifier refuses every other host, whatever the authority's key has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraints {
    /// `None` if there are no constraints.
    subtrees: Option<Subtrees>,
}

/// The lists are sorted, and none of the names of a list is below another one of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Subtrees {
    names: Vec<Box<str>>,
    addresses: Vec<IpAddr>,
    /// Names below those in `names`, which are not admitted.
    excluded: Vec<Box<str>>,
}

/// The reason why there are no constraints for some hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintsError {
    /// There is no host.
    #[error("there is no host that the authority could speak for")]
    Empty,
    /// There are more hosts than an authority can have.
    #[error(
        "{0} hosts are too many for one authority, which can have {HOSTS_MAX}: write `*.example.com` for those \
                 below one name"
    )]
    TooMany(usize),
    /// A certificate cannot name this host.
    #[error("a certificate cannot name the host `{0}`: labels have letters, digits and inner hyphens only")]
    Name(Box<str>),
    /// The certificate has constraints that Egret does not write.
    #[error("the certificate has name constraints that were not made by Egret")]
    Unknown,
}

impl Constraints {
    /// An authority for every host. A thief of its key can impersonate everything.
    pub const NONE: Self = Self { subtrees: None };

    /// Returns the narrowest constraints for the hosts. Certificates cannot tell `*.example.com` from
    /// `example.com`, so each name admits all names below it. With [`HostPattern::Any`] there are none.
    pub fn new(hosts: impl IntoIterator<Item = HostPattern>) -> Result<Self, ConstraintsError> {
        let mut subtrees = Subtrees::default();
        for host in hosts {
            match host {
                HostPattern::Any => return Ok(Self::NONE),
                HostPattern::Below(name) | HostPattern::Host(Host::Name(name)) => {
                    if !is_certifiable(&name) {
                        return Err(ConstraintsError::Name(name));
                    }
                    subtrees.names.push(name);
                }
                HostPattern::Host(Host::Ip(ip)) => subtrees.addresses.push(ip.to_canonical()),
            }
        }
        subtrees.narrow();
        match subtrees.names.len() + subtrees.addresses.len() {
            0 => Err(ConstraintsError::Empty),
            1..=HOSTS_MAX => Ok(Self { subtrees: Some(subtrees) }),
            count => Err(ConstraintsError::TooMany(count)),
        }
    }

    /// Excludes the names that are tunnelled, with all names below them. A name is not excluded if it is not
    /// admitted anyway, or if one of the hosts is among what would be excluded.
    #[must_use]
    pub fn without(mut self, tunnelled: &[HostPattern], hosts: &[HostPattern]) -> Self {
        let Some(subtrees) = &mut self.subtrees else { return self };
        let name_of = |pattern: &HostPattern| match pattern {
            HostPattern::Below(name) | HostPattern::Host(Host::Name(name)) => Some(name.clone()),
            HostPattern::Host(Host::Ip(_)) | HostPattern::Any => None,
        };
        let hosts: Vec<Box<str>> = hosts.iter().filter_map(name_of).collect();
        let room = HOSTS_MAX.saturating_sub(subtrees.names.len() + subtrees.addresses.len());
        let is_admitted = |name: &str| subtrees.names.iter().any(|subtree| is_within(name, subtree));
        let excluded = tunnelled.iter().filter_map(name_of).filter(|name| {
            is_certifiable(name) && is_admitted(name) && !hosts.iter().any(|host| is_within(host, name))
        });
        subtrees.excluded = narrowed(excluded.take(room).collect());
        self
    }

    /// Returns `true` if a wildcard for the names directly below this one would stand for an excluded name.
    /// Some verifiers refuse such a certificate.
    pub(crate) fn excludes_below(&self, parent: &str) -> bool {
        self.subtrees.iter().flat_map(|subtrees| &subtrees.excluded).any(|name| is_within(name, parent))
    }

    /// Returns `true` if every host is allowed.
    pub fn is_unconstrained(&self) -> bool {
        self.subtrees.is_none()
    }

    /// Returns `true` if a certificate for the host would be valid.
    pub fn covers(&self, host: &Host) -> bool {
        let Some(subtrees) = &self.subtrees else { return true };
        match host {
            Host::Name(name) => {
                let is_in = |list: &[Box<str>]| list.iter().any(|subtree| is_within(name, subtree));
                is_in(&subtrees.names) && !is_in(&subtrees.excluded)
            }
            Host::Ip(ip) => subtrees.addresses.binary_search(&ip.to_canonical()).is_ok(),
        }
    }

    /// Returns `true` if certificates for all hosts of the pattern would be valid.
    pub fn covers_pattern(&self, pattern: &HostPattern) -> bool {
        match pattern {
            HostPattern::Any => self.is_unconstrained(),
            HostPattern::Below(name) => self.covers(&Host::Name(name.clone())),
            HostPattern::Host(host) => self.covers(host),
        }
    }

    /// The hosts, each name standing for all names below it too. Empty if there are no constraints.
    pub fn hosts(&self) -> impl Iterator<Item = Host> {
        let subtrees = self.subtrees.iter();
        subtrees.flat_map(|subtrees| {
            let names = subtrees.names.iter().map(|name| Host::Name(name.clone()));
            names.chain(subtrees.addresses.iter().map(|ip| Host::Ip(*ip)))
        })
    }

    /// Returns the certificate extension.
    ///
    /// A kind of name without a permitted subtree is not constrained at all. So a kind that is not configured
    /// is excluded. With an address of one family those of the other are not permitted either, and excluding
    /// them as well would be wrong: the JDK compares addresses of both families with each other.
    pub(crate) fn extension(&self) -> Option<NameConstraints> {
        let Subtrees { names, addresses, excluded } = self.subtrees.as_ref()?;
        let mut permitted_subtrees: Vec<GeneralSubtree> =
            names.iter().map(|name| GeneralSubtree::DnsName(name.to_string())).collect();
        permitted_subtrees.extend(addresses.iter().map(|ip| {
            let prefix = if ip.is_ipv4() { 32 } else { 128 };
            GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*ip, prefix))
        }));
        let mut excluded_subtrees: Vec<GeneralSubtree> =
            excluded.iter().map(|name| GeneralSubtree::DnsName(name.to_string())).collect();
        if names.is_empty() {
            // The empty name has every name below it.
            excluded_subtrees.push(GeneralSubtree::DnsName(String::new()));
            permitted_subtrees.push(GeneralSubtree::DnsName(NO_NAME.to_owned()));
        }
        if addresses.is_empty() {
            let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            let all = all.map(|any| GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(any, 0)));
            excluded_subtrees.extend(all);
        }
        Some(NameConstraints { permitted_subtrees, excluded_subtrees })
    }

    /// Reads the constraints of a certificate back. Those that Egret does not write are refused rather than
    /// misread.
    pub(crate) fn read(extension: Option<&ParsedConstraints<'_>>) -> Result<Self, ConstraintsError> {
        let Some(extension) = extension else { return Ok(Self::NONE) };
        let excluded = extension.excluded_subtrees.iter().flatten();
        let excluded = excluded.filter_map(|subtree| match subtree.base {
            GeneralName::DNSName(name) => Some(name),
            _ => None,
        });
        let has_no_names = excluded.clone().any(str::is_empty);
        let excluded = excluded.filter(|name| !name.is_empty()).map(HostPattern::parse);
        let excluded: Vec<HostPattern> =
            excluded.collect::<Result<_, _>>().map_err(|_| ConstraintsError::Unknown)?;
        let mut hosts = Vec::new();
        for subtree in extension.permitted_subtrees.iter().flatten() {
            hosts.push(match &subtree.base {
                GeneralName::DNSName(NO_NAME) if has_no_names => continue,
                GeneralName::DNSName(name) => {
                    HostPattern::Host(Host::parse(name.as_bytes()).map_err(|_| ConstraintsError::Unknown)?)
                }
                GeneralName::IPAddress(bytes) => HostPattern::Host(Host::Ip(single_address(bytes)?)),
                _ => return Err(ConstraintsError::Unknown),
            });
        }
        Ok(Self::new(hosts)?.without(&excluded, &[]))
    }
}

/// Reads an address with a mask that covers all of it.
fn single_address(bytes: &[u8]) -> Result<IpAddr, ConstraintsError> {
    let (address, mask) = bytes.split_at(bytes.len() / 2);
    if mask.iter().any(|byte| *byte != 0xff) {
        return Err(ConstraintsError::Unknown);
    }
    let v4 = <[u8; 4]>::try_from(address).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(address).map(IpAddr::from)).map_err(|_| ConstraintsError::Unknown)
}

impl Subtrees {
    /// Sorts, and removes what is contained in another subtree.
    fn narrow(&mut self) {
        self.addresses.sort_unstable();
        self.addresses.dedup();
        self.names = narrowed(std::mem::take(&mut self.names));
    }
}

/// Sorts names, and removes those that are contained in another one.
fn narrowed(mut names: Vec<Box<str>>) -> Vec<Box<str>> {
    // Shorter names come first: only they can contain others.
    names.sort_by_key(|name| name.len());
    let mut kept: Vec<Box<str>> = Vec::new();
    for name in names {
        if !kept.iter().any(|subtree| is_within(&name, subtree)) {
            kept.push(name);
        }
    }
    kept.sort_unstable();
    kept
}

/// Returns `true` if the name is the subtree's own or below it.
fn is_within(name: &str, subtree: &str) -> bool {
    name.strip_suffix(subtree).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Returns `true` if all verifiers accept the name in a certificate (RFC 5280 §4.2.1.6): some of them reject
/// a whole authority for a constraint with another character.
fn is_certifiable(name: &str) -> bool {
    let is_good = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        label.bytes().all(is_inner) && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    name.split('.').all(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constraints(texts: &[&str]) -> Result<Constraints, ConstraintsError> {
        Constraints::new(texts.iter().map(|text| HostPattern::parse(text).unwrap()))
    }

    fn host(text: &str) -> Host {
        Host::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_covers_all_names_below_it_and_an_address_itself() {
        let made = constraints(&["api.x.com", "*.y.com", "10.0.0.1", "::1"]).unwrap();
        for good in
            ["api.x.com", "a.api.x.com", "y.com", "a.b.y.com", "10.0.0.1", "[::1]", "[::ffff:10.0.0.1]"]
        {
            assert!(made.covers(&host(good)), "{good}");
        }
        for bad in ["x.com", "b.x.com", "xapi.x.com", "com", "ay.com", "10.0.0.2", "[::2]"] {
            assert!(!made.covers(&host(bad)), "{bad}");
        }
        assert!(made.covers_pattern(&HostPattern::parse("*.a.y.com").unwrap()));
        assert!(!made.covers_pattern(&HostPattern::parse("*.x.com").unwrap()));
        assert!(!made.covers_pattern(&HostPattern::Any));
        assert!(Constraints::NONE.covers(&host("a")) && Constraints::NONE.covers_pattern(&HostPattern::Any));
    }

    #[test]
    fn a_subtree_within_another_is_left_out() {
        let made =
            constraints(&["a.x.com", "x.com", "*.x.com", "ax.com", "::ffff:10.0.0.1", "10.0.0.1"]).unwrap();
        let hosts: Vec<String> = made.hosts().map(|host| host.to_string()).collect();
        assert_eq!(hosts, ["ax.com", "x.com", "10.0.0.1"]);
        assert_eq!(constraints(&["x.com", "*"]).unwrap(), Constraints::NONE);
    }

    #[test]
    fn tunnelled_names_are_excluded_unless_a_host_is_below() {
        let patterns =
            |texts: &[&str]| texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect::<Vec<_>>();
        let without = |hosts: &[&str], tunnelled: &[&str]| {
            Constraints::new(patterns(hosts)).unwrap().without(&patterns(tunnelled), &patterns(hosts))
        };
        let made =
            without(&["*.x.com"], &["bank.x.com", "*.pay.x.com", "bank.y.com", "10.0.0.1", "a.bank.x.com"]);
        for bad in ["bank.x.com", "a.bank.x.com", "pay.x.com", "a.pay.x.com", "bank.y.com"] {
            assert!(!made.covers(&host(bad)), "{bad}");
        }
        assert!(made.covers(&host("api.x.com")) && made.covers(&host("xbank.x.com")));
        assert!(made.excludes_below("x.com") && !made.excludes_below("api.x.com"));
        let names: Vec<_> = made.extension().unwrap().excluded_subtrees;
        let is_excluded = |name: &str| names.contains(&GeneralSubtree::DnsName(name.to_owned()));
        assert_eq!(
            ["bank.x.com", "pay.x.com", "bank.y.com", "a.bank.x.com"].map(is_excluded),
            [true, true, false, false]
        );
        let kept = without(&["*.x.com", "api.pay.x.com"], &["*.pay.x.com", "*.x.com"]);
        assert!(kept.covers(&host("api.pay.x.com")) && kept.covers(&host("x.com")));
    }

    #[test]
    fn kinds_of_names_not_configured_are_excluded() {
        let excluded = |texts: &[&str]| {
            let extension = constraints(texts).unwrap().extension().unwrap();
            let has_no_names =
                extension.permitted_subtrees.contains(&GeneralSubtree::DnsName(NO_NAME.to_owned()));
            assert_eq!(has_no_names, !texts.contains(&"x.com"));
            extension.excluded_subtrees.len()
        };
        assert_eq!(excluded(&["x.com"]), 2);
        assert_eq!(excluded(&["x.com", "10.0.0.1"]), 0);
        assert_eq!(excluded(&["10.0.0.1"]), 1);
        assert_eq!(excluded(&["10.0.0.1", "::1", "x.com"]), 0);
        assert_eq!(Constraints::NONE.extension(), None);
    }

    #[test]
    fn hosts_that_no_certificate_can_name_are_refused() {
        assert_eq!(constraints(&[]), Err(ConstraintsError::Empty));
        for name in ["a_b.com", "-a.com", "a-.com", "*.a_.com"] {
            assert!(matches!(constraints(&[name]), Err(ConstraintsError::Name(_))), "{name}");
        }
        let many = (0..=HOSTS_MAX).map(|number| HostPattern::Host(host(&format!("h{number}.x.com"))));
        assert_eq!(Constraints::new(many), Err(ConstraintsError::TooMany(HOSTS_MAX + 1)));
    }
}
