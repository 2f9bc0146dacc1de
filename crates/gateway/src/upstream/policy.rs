//! Egress policy: which hosts may be asked for and which addresses may be connected to.
//!
//! Three questions at three moments. The *host* is judged before DNS is asked, so that a denied name tells nothing to a
//! name server. Each *address* is judged before it is dialled, and it is that very address that is dialled, so that a name
//! that resolves differently the second time gains nothing. The *connection* is judged before a byte is sent, since only
//! then is it known that an address was one of this machine's own.
//!
//! Rules of `deny` come first. A rule of `allow` then lifts what is built in, but only as far as it speaks of it: a host
//! or a port alone says nothing about metadata services, since whoever controls the host's DNS chooses the address.

mod net;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use egret_config::Problem;

use crate::config::{EgressConfig, EgressDefault, EgressMode, EgressRule};
use crate::upstream::authority::{Authority, Host};
use net::{Kind, METADATA_NAMES, Net, NetError};

/// What somebody wants to reach.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The host and port asked for.
    pub authority: &'a Authority,
    /// Whether this is a configured provider's own URL and not something that a request brought.
    pub configured: bool,
}

/// What the policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Allow,
    /// Go on, but count and log that `enforce` would have denied it.
    Report(Reason),
    /// Do not go on.
    Deny(Reason),
}

/// Why a target is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A rule of `deny` names it.
    Rule,
    /// `default: deny`, and no rule of `allow` names it.
    NotAllowed,
    /// A listener is not on loopback, `open_proxy` is off, and the host is neither configured nor named by a rule.
    ClosedProxy,
    /// A cloud's metadata service, which hands out credentials.
    Metadata,
    /// A link-local address.
    LinkLocal,
    /// One of the gateway's own ports: proxy, control or provider.
    OwnPort,
    /// A private or otherwise special address while a listener is not on loopback.
    Private,
}

impl Reason {
    /// Every reason, in the order of the enum: `ALL[reason as usize] == reason`.
    pub const ALL: [Self; 7] = [
        Self::Rule,
        Self::NotAllowed,
        Self::ClosedProxy,
        Self::Metadata,
        Self::LinkLocal,
        Self::OwnPort,
        Self::Private,
    ];

    /// A short name for metrics, logs and `Proxy-Status`.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::NotAllowed => "not-allowed",
            Self::ClosedProxy => "closed-proxy",
            Self::Metadata => "metadata",
            Self::LinkLocal => "link-local",
            Self::OwnPort => "own-port",
            Self::Private => "private",
        }
    }
}

/// A sentence for the one who is denied, with what would change it.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rule => "a rule of `gateway.egress.deny` names this target",
            Self::NotAllowed => "`gateway.egress.default` is `deny` and no rule of `allow` names this target",
            Self::ClosedProxy => {
                "this gateway is not an open proxy: configure a provider, name the host in `gateway.egress.allow`, or set `gateway.open_proxy`"
            }
            Self::Metadata => "this is a cloud metadata service; a rule of `gateway.egress.allow` with this very address in `net` opens it",
            Self::LinkLocal => "this is a link-local address; a rule of `gateway.egress.allow` with a link-local `net` opens it",
            Self::OwnPort => "this is a port of the gateway itself; a rule of `gateway.egress.allow` with `net` and `ports` opens it",
            Self::Private => {
                "this address is not public and a listener is not on loopback; a rule of `gateway.egress.allow` with a `host` or `net` opens it"
            }
        })
    }
}

/// The compiled policy. Cheap to ask; made anew at every reload.
#[derive(Debug)]
pub struct EgressPolicy {
    mode: EgressMode,
    deny: Vec<Rule>,
    allow: Vec<Rule>,
    /// Why a target that nothing names is denied, where it is.
    unnamed: Option<Reason>,
    /// Whether a listener is reachable from other machines.
    exposed: bool,
    own: Vec<SocketAddr>,
}

impl EgressPolicy {
    /// Compiles `gateway.egress`.
    ///
    /// `exposed` says that some listener is not on loopback, `open_proxy` is the key of that name, `own` holds the
    /// addresses that this process listens on. All problems are reported at once, each with its path in the config.
    pub fn compile(
        config: &EgressConfig,
        exposed: bool,
        open_proxy: bool,
        own: Vec<SocketAddr>,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let deny = compile_rules(&config.deny, "deny", &mut problems);
        let allow = compile_rules(&config.allow, "allow", &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let unnamed = match config.default {
            EgressDefault::Deny => Some(Reason::NotAllowed),
            EgressDefault::Allow => (exposed && !open_proxy).then_some(Reason::ClosedProxy),
        };
        Ok(Self { mode: config.mode, deny, allow, unnamed, exposed, own })
    }

    /// Judges the host and port before any look-up. What depends on the address waits for [`Self::check_address`], unless
    /// the host is an address.
    pub fn check_host(&self, target: &Target<'_>) -> Verdict {
        match &target.authority.host {
            Host::Ip(ip) => self.check_address(target, SocketAddr::new(*ip, target.authority.port)),
            Host::Name(name) => self.verdict(|| self.judge_name(target, name)),
        }
    }

    /// Judges one address that the host resolved to, before it is dialled. Dial exactly this address.
    pub fn check_address(&self, target: &Target<'_>, address: SocketAddr) -> Verdict {
        self.verdict(|| self.judge_address(target, address))
    }

    /// Judges a connection before a byte is sent on it: one that ends on this machine must not end at the gateway itself,
    /// whichever of the machine's addresses was used.
    pub fn check_connected(&self, target: &Target<'_>, local: SocketAddr, peer: SocketAddr) -> Verdict {
        let (local, peer) = (canonical(local), canonical(peer));
        let is_own = || local.ip() == peer.ip() && self.own.iter().any(|own| takes(*own, peer, true));
        self.verdict(|| {
            (is_own() && !self.lifts(target, peer, Rule::names_port_at_address)).then_some(Reason::OwnPort)
        })
    }

    fn verdict(&self, judge: impl FnOnce() -> Option<Reason>) -> Verdict {
        match self.mode {
            EgressMode::Off => Verdict::Allow,
            EgressMode::Report => judge().map_or(Verdict::Allow, Verdict::Report),
            EgressMode::Enforce => judge().map_or(Verdict::Allow, Verdict::Deny),
        }
    }

    fn judge_name(&self, target: &Target<'_>, name: &str) -> Option<Reason> {
        if self.deny.iter().any(|rule| rule.net.is_none() && rule.matches_authority(target.authority)) {
            return Some(Reason::Rule);
        }
        let mut allow = self.allow.iter().filter(|rule| rule.matches_authority(target.authority));
        if METADATA_NAMES.contains(&name)
            && !allow.clone().any(|rule| rule.net.is_some() || rule.names_host(name))
        {
            return Some(Reason::Metadata);
        }
        match self.unnamed {
            // A rule with a range may yet match the address.
            Some(reason) if !target.configured && !allow.any(|rule| rule.lifts(reason)) => Some(reason),
            _ => None,
        }
    }

    fn judge_address(&self, target: &Target<'_>, address: SocketAddr) -> Option<Reason> {
        let address = canonical(address);
        let inner = net::embedded_v4(address.ip()).map(|ip| SocketAddr::new(ip.into(), address.port()));
        if self.deny.iter().any(|rule| {
            rule.matches(target.authority, address)
                || inner.is_some_and(|inner| rule.matches(target.authority, inner))
        }) {
            return Some(Reason::Rule);
        }
        // That an address which is not loopback is this machine's own shows once connected.
        let is_own = |to: SocketAddr| self.own.iter().any(|own| takes(*own, to, to.ip().is_loopback()));
        if (is_own(address) || inner.is_some_and(is_own))
            && !self.lifts(target, address, Rule::names_port_at_address)
        {
            return Some(Reason::OwnPort);
        }
        self.judge_kind(target, address).or_else(|| {
            let reason = self.unnamed?;
            (!target.configured && !self.lifts(target, address, |rule| rule.lifts(reason))).then_some(reason)
        })
    }

    /// What is built in for metadata services, link-local and private addresses.
    fn judge_kind(&self, target: &Target<'_>, address: SocketAddr) -> Option<Reason> {
        let kind = Kind::of(address.ip());
        // Whoever writes an address into the config means it; a name there may be resolved by somebody else.
        let is_literal = || {
            target.configured
                && target.authority.host.ip().is_some_and(|ip| ip.to_canonical() == address.ip())
        };
        let (reason, is_meant) = match kind {
            Kind::Metadata => (Reason::Metadata, is_literal()),
            Kind::LinkLocal => (Reason::LinkLocal, is_literal()),
            Kind::Private => (Reason::Private, target.configured || !self.exposed),
            Kind::Public => return None,
        };
        (!is_meant && !self.lifts(target, address, |rule| rule.names_kind(kind))).then_some(reason)
    }

    /// Whether a rule of `allow` matches and speaks of the thing in question.
    fn lifts(&self, target: &Target<'_>, address: SocketAddr, speaks_of_it: impl Fn(&Rule) -> bool) -> bool {
        self.allow.iter().any(|rule| rule.matches(target.authority, address) && speaks_of_it(rule))
    }
}

/// One compiled rule: every part that is given must match.
#[derive(Debug)]
struct Rule {
    name: Option<NamePattern>,
    net: Option<Net>,
    ports: Vec<u16>,
}

#[derive(Debug)]
enum NamePattern {
    Exact(Box<str>),
    /// `.example.com` for every name below `example.com`.
    Below(Box<str>),
}

impl NamePattern {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *name,
            // A name never starts with a dot, so something is before the suffix.
            Self::Below(suffix) => name.ends_with(&**suffix),
        }
    }
}

impl Rule {
    /// Whether name and port match; a range is left open.
    fn matches_authority(&self, authority: &Authority) -> bool {
        (self.ports.is_empty() || self.ports.contains(&authority.port))
            && self
                .name
                .as_ref()
                .is_none_or(|pattern| authority.host.name().is_some_and(|name| pattern.matches(name)))
    }

    fn matches(&self, authority: &Authority, address: SocketAddr) -> bool {
        self.matches_authority(authority) && self.net.is_none_or(|net| net.contains(address.ip()))
    }

    /// Whether a match takes a target out of those that nothing names. A port alone does for `default: deny`, but it names
    /// no host, which is what a proxy that is not open asks for.
    fn lifts(&self, unnamed: Reason) -> bool {
        unnamed == Reason::NotAllowed || self.name.is_some() || self.net.is_some()
    }

    fn names_host(&self, name: &str) -> bool {
        matches!(&self.name, Some(NamePattern::Exact(exact)) if **exact == *name)
    }

    fn names_port_at_address(&self) -> bool {
        self.net.is_some() && !self.ports.is_empty()
    }

    fn names_kind(&self, kind: Kind) -> bool {
        match self.net {
            Some(net) => kind.is_named_by(&net),
            None if kind == Kind::Private => self.name.is_some(),
            None => kind == Kind::Metadata && METADATA_NAMES.iter().any(|name| self.names_host(name)),
        }
    }
}

/// IPv4-mapped addresses are IPv4, and the unspecified address is, as a destination, this machine.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Whether the listener at `own` takes connections to `address`, given whether that is one of this machine's.
fn takes(own: SocketAddr, address: SocketAddr, is_local: bool) -> bool {
    // A listener on `[::]` takes IPv4 as well.
    let is_everywhere = own.ip().is_unspecified() && (own.is_ipv6() || address.is_ipv4());
    own.port() == address.port() && (own.ip().to_canonical() == address.ip() || is_local && is_everywhere)
}

fn compile_rules(rules: &[EgressRule], list: &str, problems: &mut Vec<Problem>) -> Vec<Rule> {
    let compiled = rules.iter().enumerate().map(|(index, rule)| {
        let path = format!("gateway.egress.{list}[{index}]");
        compile_rule(rule, &path).map_err(|problem| problems.push(problem)).ok()
    });
    compiled.collect::<Vec<_>>().into_iter().flatten().collect()
}

fn compile_rule(rule: &EgressRule, path: &str) -> Result<Rule, Problem> {
    if *rule == EgressRule::default() {
        return Err(Problem::new(
            path,
            "an empty rule would match everything: give `host`, `net` or `ports`",
        ));
    }
    if let Some(index) = rule.ports.iter().position(|port| *port == 0) {
        return Err(Problem::new(format!("{path}.ports[{index}]"), "0 is no port: write 1 to 65535"));
    }
    let host = rule.host.as_deref().map(|host| compile_host(host, path)).transpose()?;
    let net = rule.net.as_deref().map(|net| compile_net(net, path)).transpose()?;
    let (name, net) = match (host, net) {
        (Some(HostPattern::Ip(_)), Some(_)) => {
            return Err(Problem::new(
                format!("{path}.net"),
                "an address is in `host` already: give one of the two",
            ));
        }
        (Some(HostPattern::Ip(ip)), None) => (None, Some(Net::single(ip))),
        (Some(HostPattern::Name(name)), net) => (Some(name), net),
        (None, net) => (None, net),
    };
    Ok(Rule { name, net, ports: rule.ports.clone() })
}

enum HostPattern {
    Name(NamePattern),
    /// The same as `net` with this one address.
    Ip(IpAddr),
}

fn compile_host(text: &str, path: &str) -> Result<HostPattern, Problem> {
    let path = format!("{path}.host");
    if text == "*" {
        return Err(Problem::new(path, "`*` would match every host: leave `host` out"));
    }
    let problem = |error| {
        Problem::new(path.as_str(), format!("`{text}` is not a host name, `*.name` or address: {error}"))
    };
    if let Some(parent) = text.strip_prefix("*.") {
        return match Host::parse(parent.as_bytes()).map_err(problem)? {
            Host::Name(name) => Ok(HostPattern::Name(NamePattern::Below(format!(".{name}").into()))),
            Host::Ip(_) => Err(Problem::new(path, "no names are below an address: write a range in `net`")),
        };
    }
    // In a config, unlike in a URI, an IPv6 address needs no brackets.
    match text
        .parse::<IpAddr>()
        .map_or_else(|_| Host::parse(text.as_bytes()), |ip| Ok(Host::Ip(ip)))
        .map_err(problem)?
    {
        Host::Name(name) => Ok(HostPattern::Name(NamePattern::Exact(name))),
        Host::Ip(ip) => Ok(HostPattern::Ip(ip)),
    }
}

fn compile_net(text: &str, path: &str) -> Result<Net, Problem> {
    let path = format!("{path}.net");
    Net::parse(text).map_err(|error| match error {
        NetError::Syntax => Problem::new(
            path,
            format!("`{text}` is not an address or range: write one like `10.0.0.0/8` or `fd00::/8`"),
        ),
        NetError::HostBits(net) => Problem {
            suggestion: Some(net.to_string()),
            ..Problem::new(path, format!("`{text}` has bits set beyond its prefix length"))
        },
    })
}

#[cfg(test)]
mod tests;
