//! Egress policy: the hosts that may be requested and the addresses that may be connected to.
//!
//! There are three checks. The *host* is checked before the DNS look-up, so a denied name is never sent to a
//! name server. Each *address* is checked before it is dialled, and exactly that address is dialled, so a
//! name that resolves differently the second time gains nothing. The *connection* is checked before a byte is
//! sent, because only then it is known that an address belongs to this machine.
//!
//! Rules in `deny` take precedence. A rule in `allow` then lifts a built-in denial, but only if it names it
//! explicitly. A host or a port alone does not lift the denial of metadata services, because the owner of the
//! host's DNS chooses the address.
//!
//! The command of `egret exec --isolate` is [isolated](EgressPolicy::isolated): it reaches public hosts at
//! the ports of HTTP and HTTPS, and what the config names. That holds in every mode.

pub(crate) mod net;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use egret_config::{Case, Problem, WholeRegex};
use egret_items::words;
use egret_message::authority::{Authority, Host};
use egret_message::host_pattern::{HostPattern, HostPatternError};
pub use net::Net;
use net::{AddressKind, METADATA_NAMES, NetError};

use crate::config::{EgressConfig, EgressDefault, EgressMode, EgressRule};

/// The ports that an isolated client reaches on every public host: those of HTTP and HTTPS.
const OPEN_PORTS: [u16; 2] = [80, 443];

/// The target of a connection.
#[derive(Debug, Clone, Copy)]
pub struct EgressTarget<'a> {
    /// The requested host and port.
    pub authority: &'a Authority,
    /// `true` if this is a configured provider's own URL, `false` if it comes from a request.
    pub configured: bool,
}

/// The verdict of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed.
    Allow,
    /// Allowed, but counted and logged, because `enforce` would have denied it.
    Report(Reason),
    /// Denied.
    Deny(Reason),
}

words! {
    /// The reason for a denial. It explains the denial to the client, and names the setting that would change
    /// it. Its slug is a short name for metrics, logs and `Proxy-Status`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
    pub enum Reason: slug {
        /// A rule in `deny` names the target.
        #[error("a rule in `gateway.egress.deny` names this target")]
        Rule => "rule",
        /// `default` is `deny`, and no rule in `allow` names the target.
        #[error("`gateway.egress.default` is `deny` and no rule in `allow` names this target")]
        NotAllowed => "not-allowed",
        /// A listener is not on loopback, `open_proxy` is off, and the host is neither configured nor named
        /// by a rule.
        #[error("this gateway is not an open proxy: configure a provider, name the host in `gateway.egress.allow`, or set `gateway.open_proxy`")]
        ClosedProxy => "closed-proxy",
        /// The metadata service of a cloud, which hands out credentials.
        #[error("this is a cloud metadata service; to allow it, add a rule to `gateway.egress.allow` with exactly this address in `net`")]
        Metadata => "metadata",
        /// A link-local address.
        #[error("this is a link-local address; to allow it, add a rule to `gateway.egress.allow` with a link-local `net`")]
        LinkLocal => "link-local",
        /// One of the gateway's own ports: proxy, control or provider.
        #[error("this is a port of the gateway itself; to allow it, add a rule to `gateway.egress.allow` with `net` and `ports`")]
        OwnPort => "own-port",
        /// A private or otherwise special address, while a listener is not on loopback or the client is
        /// isolated.
        #[error("this address is not public, and a listener is not on loopback or the command is isolated; to allow it, add a rule to `gateway.egress.allow` with `host` or `net`")]
        Private => "private",
        /// Neither port 80 nor 443, while the client is isolated.
        #[error("an isolated command reaches the ports 80 and 443 only; to allow another one, configure a provider or add a rule to `gateway.egress.allow`")]
        Port => "port",
    }
}

/// The place of a rule in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RulePlace {
    /// `allow` or `deny`.
    list: &'static str,
    number: usize,
}

impl fmt::Display for RulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gateway.egress.{}[{}]", self.list, self.number)
    }
}

/// The grounds of the verdict about a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grounds {
    /// `true` if the policy is off.
    pub is_off: bool,
    /// The rule that decides. `None` if the default decides, or a built-in denial.
    pub rule: Option<RulePlace>,
    /// Rules in `deny` that may name an address of the host, once it is looked up.
    pub later: Vec<RulePlace>,
}

/// The compiled policy. Checks are cheap. Every reload compiles a new one.
#[derive(Debug)]
pub struct EgressPolicy {
    mode: EgressMode,
    deny: Vec<Rule>,
    allow: Vec<Rule>,
    /// The reason for which targets without a matching rule are denied. `None` if they are allowed.
    unnamed: Option<Reason>,
    /// `true` if a listener is reachable from other machines.
    exposed: bool,
    own: Vec<SocketAddr>,
    /// `true` if the client is isolated.
    is_isolated: bool,
}

impl EgressPolicy {
    /// Compiles `gateway.egress`.
    ///
    /// `exposed` is true if a listener is not on loopback, `open_proxy` is the config key of that name, and
    /// `own` holds the addresses that this process listens on. Reports all problems at once, each with its
    /// path in the config.
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
        Ok(Self { mode: config.mode, deny, allow, unnamed, exposed, own, is_isolated: false })
    }

    /// Returns the policy for an isolated client. Unless a provider or a rule in `allow` names them, it
    /// denies everything that is not public, this machine by any of its addresses, and all ports but 80 and
    /// 443. It does so in every mode, because the mode is about the other rules.
    #[must_use]
    pub fn isolated(self) -> Self {
        Self { is_isolated: true, ..self }
    }

    /// Returns the policy for the proxies that the config or the environment names. It denies only what is
    /// never meant: the gateway's own ports, `own`, cloud metadata and link-local addresses.
    pub fn for_proxies(own: Vec<SocketAddr>) -> Self {
        Self {
            mode: EgressMode::Enforce,
            deny: Vec::new(),
            allow: Vec::new(),
            unnamed: None,
            exposed: false,
            own,
            is_isolated: false,
        }
    }

    /// Returns `true` if the verdict about a host whose name is allowed depends on its addresses, apart from
    /// metadata services and the gateway's own ports: a rule with `net` may match, or private addresses are
    /// denied to this target.
    pub fn judges_addresses(&self, target: &EgressTarget<'_>) -> bool {
        if self.mode == EgressMode::Off && !self.is_isolated {
            return false;
        }
        let has_net = |rule: &Rule| rule.net.is_some() && rule.matches_authority(target.authority);
        let names_host = |rule: &Rule| rule.net.is_none() && rule.names_kind(AddressKind::Private);
        self.deny.iter().chain(&self.allow).any(has_net)
            || ((self.exposed || self.is_isolated)
                && !target.configured
                && self.lifted_by(target, None, names_host).is_none())
    }

    /// Checks the host and port before any look-up. If the host is a name, rules about addresses are left to
    /// [`Self::check_address`].
    pub fn check_host(&self, target: &EgressTarget<'_>) -> Verdict {
        match &target.authority.host {
            Host::Ip(ip) => self.check_address(target, SocketAddr::new(*ip, target.authority.port)),
            Host::Name(name) => {
                self.verdict(|| self.isolate_name(target, name), || self.judge_name(target, name))
            }
        }
    }

    /// Returns the grounds of the verdict of [`Self::check_host`], for people.
    pub fn grounds(&self, target: &EgressTarget<'_>) -> Grounds {
        if self.mode == EgressMode::Off {
            return Grounds { is_off: true, ..Grounds::default() };
        }
        let Authority { host, port } = target.authority;
        let address = host.ip().map(|ip| canonical(SocketAddr::new(ip, *port)));
        let place = |list| move |number| RulePlace { list, number };
        let rule = match self.check_host(target) {
            Verdict::Report(Reason::Rule) | Verdict::Deny(Reason::Rule) => {
                self.denied_by(target, address).map(place("deny"))
            }
            Verdict::Report(_) | Verdict::Deny(_) => None,
            Verdict::Allow => self.allowed_by(target, address).map(place("allow")),
        };
        let may_match = |rule: &Rule| rule.net.is_some() && rule.matches_authority(target.authority);
        let later = self.deny.iter().enumerate().filter(|(_, rule)| address.is_none() && may_match(rule));
        Grounds { is_off: false, rule, later: later.map(|(number, _)| place("deny")(number)).collect() }
    }

    /// Checks one address that the host resolved to, before it is dialled. Dial exactly this address.
    pub fn check_address(&self, target: &EgressTarget<'_>, address: SocketAddr) -> Verdict {
        self.verdict(|| self.isolate_address(target, address), || self.judge_address(target, address))
    }

    /// Checks a connection before a byte is sent on it. It must not lead to the gateway itself through any of
    /// this machine's addresses.
    pub fn check_connected(&self, target: &EgressTarget<'_>, local: SocketAddr, peer: SocketAddr) -> Verdict {
        let (local, peer) = (canonical(local), canonical(peer));
        let is_local = local.ip() == peer.ip();
        let judge = || {
            let is_own = is_local && self.own.iter().any(|own| takes(*own, peer, true));
            (is_own && !self.lifts(target, peer, Rule::names_port_at_address)).then_some(Reason::OwnPort)
        };
        let isolate = || {
            let is_meant =
                target.configured || self.lifts(target, peer, |rule| rule.names_kind(AddressKind::Private));
            judge().or((is_local && !is_meant).then_some(Reason::Private))
        };
        self.verdict(isolate, judge)
    }

    /// Returns the verdict of `isolate` on an isolated client, and else that of `judge`, as far as the mode
    /// goes.
    fn verdict(
        &self,
        isolate: impl FnOnce() -> Option<Reason>,
        judge: impl FnOnce() -> Option<Reason>,
    ) -> Verdict {
        if self.is_isolated
            && let Some(reason) = isolate()
        {
            return Verdict::Deny(reason);
        }
        match self.mode {
            EgressMode::Off => Verdict::Allow,
            EgressMode::Report => judge().map_or(Verdict::Allow, Verdict::Report),
            EgressMode::Enforce => judge().map_or(Verdict::Allow, Verdict::Deny),
        }
    }

    /// Judges the name that an isolated client requests.
    fn isolate_name(&self, target: &EgressTarget<'_>, name: &str) -> Option<Reason> {
        // A rule with a range may still match the address.
        let is_named =
            target.configured || self.allow.iter().any(|rule| rule.matches_authority(target.authority));
        let is_open = is_named || OPEN_PORTS.contains(&target.authority.port);
        self.judge_metadata_name(target, name).or((!is_open).then_some(Reason::Port))
    }

    /// Judges an address to which the request of an isolated client leads.
    fn isolate_address(&self, target: &EgressTarget<'_>, address: SocketAddr) -> Option<Reason> {
        let address = canonical(address);
        let is_open = || {
            target.configured || OPEN_PORTS.contains(&address.port()) || self.lifts(target, address, |_| true)
        };
        self.judge_own(target, address)
            .or_else(|| self.judge_kind(target, address))
            .or_else(|| (!is_open()).then_some(Reason::Port))
    }

    fn judge_name(&self, target: &EgressTarget<'_>, name: &str) -> Option<Reason> {
        if self.denied_by(target, None).is_some() {
            return Some(Reason::Rule);
        }
        if let Some(reason) = self.judge_metadata_name(target, name) {
            return Some(reason);
        }
        match self.unnamed {
            // A rule with a range may still match the address.
            Some(reason)
                if !target.configured
                    && self.lifted_by(target, None, |rule| rule.lifts(reason)).is_none() =>
            {
                Some(reason)
            }
            _ => None,
        }
    }

    fn judge_metadata_name(&self, target: &EgressTarget<'_>, name: &str) -> Option<Reason> {
        let is_allowed = |rule: &Rule| rule.net.is_some() || rule.names_host(name);
        let is_denied = METADATA_NAMES.contains(&name) && self.lifted_by(target, None, is_allowed).is_none();
        is_denied.then_some(Reason::Metadata)
    }

    /// Returns the number of the rule in `deny` that names the target. Rules with a range need its `address`.
    fn denied_by(&self, target: &EgressTarget<'_>, address: Option<SocketAddr>) -> Option<usize> {
        let Some(address) = address else {
            let names = |rule: &Rule| rule.net.is_none() && rule.matches_authority(target.authority);
            return self.deny.iter().position(names);
        };
        self.deny.iter().position(|rule| {
            rule.matches(target.authority, address)
                || embedded(address).any(|inner| rule.matches(target.authority, inner))
        })
    }

    /// Returns the number of the rule in `allow` without which the target would be denied, or of the first
    /// one of several.
    fn allowed_by(&self, target: &EgressTarget<'_>, address: Option<SocketAddr>) -> Option<usize> {
        let by_kind = match address.map(|address| AddressKind::of(address.ip())) {
            Some(AddressKind::Public) | None => None,
            Some(kind) => self.lifted_by(target, address, |rule| rule.names_kind(kind)),
        };
        let unnamed = self.unnamed.filter(|_| !target.configured);
        by_kind.or_else(|| {
            let unnamed = unnamed?;
            self.lifted_by(target, address, |rule| rule.lifts(unnamed))
        })
    }

    fn judge_address(&self, target: &EgressTarget<'_>, address: SocketAddr) -> Option<Reason> {
        let address = canonical(address);
        if self.denied_by(target, Some(address)).is_some() {
            return Some(Reason::Rule);
        }
        self.judge_own(target, address).or_else(|| self.judge_kind(target, address)).or_else(|| {
            let reason = self.unnamed?;
            (!target.configured && !self.lifts(target, address, |rule| rule.lifts(reason))).then_some(reason)
        })
    }

    fn judge_own(&self, target: &EgressTarget<'_>, address: SocketAddr) -> Option<Reason> {
        // An address that is not loopback is recognized as this machine's own only once connected.
        let is_own = |to: SocketAddr| self.own.iter().any(|own| takes(*own, to, to.ip().is_loopback()));
        let is_denied = (is_own(address) || embedded(address).any(is_own))
            && !self.lifts(target, address, Rule::names_port_at_address);
        is_denied.then_some(Reason::OwnPort)
    }

    /// Applies the built-in rules for metadata services, link-local and private addresses.
    fn judge_kind(&self, target: &EgressTarget<'_>, address: SocketAddr) -> Option<Reason> {
        let kind = AddressKind::of(address.ip());
        // A literal address in the config is intended. A name may be resolved by somebody else.
        let is_literal = || {
            target.configured
                && target.authority.host.ip().is_some_and(|ip| ip.to_canonical() == address.ip())
        };
        let (reason, is_meant) = match kind {
            AddressKind::Metadata => (Reason::Metadata, is_literal()),
            AddressKind::LinkLocal => (Reason::LinkLocal, is_literal()),
            AddressKind::Private => {
                (Reason::Private, target.configured || !(self.exposed || self.is_isolated))
            }
            AddressKind::Public => return None,
        };
        (!is_meant && !self.lifts(target, address, |rule| rule.names_kind(kind))).then_some(reason)
    }

    /// Returns `true` if a rule in `allow` matches and names the case explicitly.
    fn lifts(
        &self,
        target: &EgressTarget<'_>,
        address: SocketAddr,
        speaks_of_it: impl Fn(&Rule) -> bool,
    ) -> bool {
        self.lifted_by(target, Some(address), speaks_of_it).is_some()
    }

    /// Returns the number of that rule. Without an `address`, a rule with a range may match.
    fn lifted_by(
        &self,
        target: &EgressTarget<'_>,
        address: Option<SocketAddr>,
        speaks_of_it: impl Fn(&Rule) -> bool,
    ) -> Option<usize> {
        self.allow.iter().position(|rule| {
            let matches = match address {
                Some(address) => rule.matches(target.authority, address),
                None => rule.matches_authority(target.authority),
            };
            matches && speaks_of_it(rule)
        })
    }
}

/// A compiled rule. Every part that is given must match.
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
    /// The whole of a name in lower case without a trailing dot, or of an address in its usual form.
    Regex(WholeRegex),
}

impl NamePattern {
    fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(exact), Host::Name(name)) => *exact == *name,
            // A name never starts with a dot, so at least one label precedes the suffix.
            (Self::Below(suffix), Host::Name(name)) => name.ends_with(&**suffix),
            (Self::Exact(_) | Self::Below(_), Host::Ip(_)) => false,
            (Self::Regex(regex), Host::Name(name)) => regex.is_match(name),
            (Self::Regex(regex), Host::Ip(ip)) => regex.is_match(&ip.to_canonical().to_string()),
        }
    }
}

impl Rule {
    /// Returns `true` if name and port match. The range is not checked.
    fn matches_authority(&self, authority: &Authority) -> bool {
        (self.ports.is_empty() || self.ports.contains(&authority.port))
            && self.name.as_ref().is_none_or(|pattern| pattern.matches(&authority.host))
    }

    fn matches(&self, authority: &Authority, address: SocketAddr) -> bool {
        self.matches_authority(authority) && self.net.is_none_or(|net| net.contains(address.ip()))
    }

    /// Returns `true` if a match of this rule lifts the denial of unnamed targets. A port alone suffices for
    /// `default: deny`, but not for a proxy that is not open, which requires a host.
    fn lifts(&self, unnamed: Reason) -> bool {
        unnamed == Reason::NotAllowed || self.name.is_some() || self.net.is_some()
    }

    fn names_host(&self, name: &str) -> bool {
        matches!(&self.name, Some(NamePattern::Exact(exact)) if **exact == *name)
    }

    fn names_port_at_address(&self) -> bool {
        self.net.is_some() && !self.ports.is_empty()
    }

    fn names_kind(&self, kind: AddressKind) -> bool {
        match self.net {
            Some(net) => kind.is_named_by(&net),
            None if kind == AddressKind::Private => self.name.is_some(),
            None => kind == AddressKind::Metadata && METADATA_NAMES.iter().any(|name| self.names_host(name)),
        }
    }
}

/// Returns the addresses that packets to an IPv6 address may be sent to over IPv4.
fn embedded(address: SocketAddr) -> impl Iterator<Item = SocketAddr> {
    net::embedded_v4(address.ip()).map(move |ip| SocketAddr::new(ip.into(), address.port()))
}

/// Normalizes an address: IPv4-mapped addresses become IPv4, and the unspecified address, as a destination,
/// becomes loopback.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Returns `true` if the listener at `own` accepts connections to `address`. `is_local` is true if the
/// address is this machine's own.
fn takes(own: SocketAddr, address: SocketAddr, is_local: bool) -> bool {
    // A listener on `[::]` accepts IPv4 as well.
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
        return Err(Problem::new(format!("{path}.ports[{index}]"), "0 is not a port: write 1 to 65535"));
    }
    let host = rule.host.as_deref().map(|host| compile_host(host, path)).transpose()?;
    let net = rule.net.as_deref().map(|net| parse_net(net, format!("{path}.net"))).transpose()?;
    let (name, net) = match (host, net) {
        (Some(RuleHost::Ip(_)), Some(_)) => {
            return Err(Problem::new(
                format!("{path}.net"),
                "`host` is already an address: remove `host` or `net`",
            ));
        }
        (Some(RuleHost::Ip(ip)), None) => (None, Some(Net::single(ip))),
        (Some(RuleHost::Name(name)), net) => (Some(name), net),
        (None, net) => (None, net),
    };
    Ok(Rule { name, net, ports: rule.ports.clone() })
}

enum RuleHost {
    Name(NamePattern),
    /// Equivalent to `net` with this one address.
    Ip(IpAddr),
}

fn compile_host(text: &str, path: &str) -> Result<RuleHost, Problem> {
    let path = format!("{path}.host");
    if let Some(source) = WholeRegex::prefixed(text) {
        return compile_regex(source, path);
    }
    match HostPattern::parse(text) {
        Ok(HostPattern::Any) => Err(Problem::new(path, "`*` would match every host: leave `host` out")),
        Ok(HostPattern::Below(name)) => Ok(RuleHost::Name(NamePattern::Below(format!(".{name}").into()))),
        Ok(HostPattern::Host(Host::Name(name))) => Ok(RuleHost::Name(NamePattern::Exact(name))),
        Ok(HostPattern::Host(Host::Ip(ip))) => Ok(RuleHost::Ip(ip)),
        Err(HostPatternError::BelowAddress) => {
            Err(Problem::new(path, "an address has no names below it: write a range in `net`"))
        }
        Err(error) => Err(Problem::new(
            path,
            format!("`{text}` is not a host name, `*.name`, `regex:` or address: {error}"),
        )),
    }
}

fn compile_regex(source: &str, path: String) -> Result<RuleHost, Problem> {
    if source.contains('/') {
        return Err(Problem::new(
            path,
            format!("`{source}` matches no host: a host has no scheme and no slash"),
        ));
    }
    match WholeRegex::compile(source, Case::Ignored) {
        // Nobody means a host without letters, but `.*` is easily written.
        Ok(regex) if regex.is_match("") => Err(Problem::new(
            path,
            format!("`{source}` matches even an empty host: leave `host` out to match every one"),
        )),
        Ok(regex) => Ok(RuleHost::Name(NamePattern::Regex(regex))),
        Err(error) => Err(Problem::new(path, error.to_string())),
    }
}

/// Parses `10.0.0.0/8`, `fd00::/8` or a single address, the value at this path of the config.
///
/// # Errors
///
/// Fails if it is none, or if bits beyond the prefix are set.
pub fn parse_net(text: &str, path: String) -> Result<Net, Problem> {
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
