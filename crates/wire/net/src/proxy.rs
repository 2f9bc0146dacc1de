//! Proxies between Egret and providers, such as a company's only way out: the choice of one for a host, and
//! the tunnel through it.
//!
//! Everything goes through a tunnel, plain HTTP too, so the provider's TLS is verified end to end, and the
//! framing of messages is between Egret and the provider alone. The egress policy judges the provider's host
//! before its proxy is asked. The proxy looks the name up, unless the policy judges addresses: then Egret
//! does, and the proxy is asked for exactly an address that was judged.

mod bypass;
pub mod handshake;

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use egret_config::Problem;
use egret_message::authority::{Authority, Host};

use crate::config::{ProviderTlsConfig, ProxyConfig};
use crate::dial::{self, DialError, DialOptions, Dialed, admit};
use crate::dns::{DnsError, Resolver};
use crate::event_loop::{self, now};
use crate::policy::{EgressPolicy, EgressTarget, Reason};
use crate::stream::Stream;
use crate::tls::{self, ClientTls, TlsError};

use self::bypass::Bypass;
use self::handshake::{Credentials, Handshake, HandshakeError, SOCKS_TEXT_BYTES_MAX, Step};

/// The value of `url` that takes the proxies from the environment.
pub const FROM_ENVIRONMENT: &str = "from_environment";
/// The value of `url` for no proxy.
pub const NONE: &str = "none";

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// CONNECT.
    Http,
    /// CONNECT, over TLS.
    Https,
    /// SOCKS 5, to an address that Egret looks up.
    Socks5,
    /// SOCKS 5, to the name.
    Socks5h,
}

impl Protocol {
    /// Every protocol with its scheme.
    const ALL: [(&'static str, Self); 4] =
        [("http", Self::Http), ("https", Self::Https), ("socks5", Self::Socks5), ("socks5h", Self::Socks5h)];

    fn of(scheme: &str) -> Option<Self> {
        Self::ALL.iter().find(|(own, _)| scheme.eq_ignore_ascii_case(own)).map(|(_, protocol)| *protocol)
    }

    fn scheme(self) -> &'static str {
        Self::ALL.iter().find(|(_, own)| *own == self).map_or("", |(scheme, _)| *scheme)
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Socks5 | Self::Socks5h => 1080,
        }
    }
}

/// A proxy. Printed as its URL without credentials.
#[derive(Debug)]
pub struct Proxy {
    protocol: Protocol,
    authority: Authority,
    credentials: Option<Credentials>,
    tls: Option<ClientTls>,
    /// Judges the proxy's own address: everything but the gateway's ports.
    policy: Arc<EgressPolicy>,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.protocol.scheme(), self.authority)
    }
}

/// The proxies of a provider, or of all hosts that are not configured.
#[derive(Debug, Default)]
pub struct ProxyRules {
    http: Option<Arc<Proxy>>,
    https: Option<Arc<Proxy>>,
    bypass: Bypass,
}

impl ProxyRules {
    /// Compiles the keys at `path` (`gateway.upstream_proxy` or `providers.NAME.proxy`). `policy` judges the
    /// addresses of proxies, see [`EgressPolicy::for_proxies`], and `variable` returns a variable of the
    /// environment. Reports all problems at once; none of them shows credentials.
    pub fn compile(
        config: &ProxyConfig,
        path: &str,
        policy: &Arc<EgressPolicy>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let rules = match &*config.url {
            NONE => {
                without_effect(config, path, true, &mut problems);
                Self::default()
            }
            FROM_ENVIRONMENT => {
                without_effect(config, path, false, &mut problems);
                from_environment(config, path, policy, variable, &mut problems)
            }
            _ => {
                let proxy = configured(config, path, policy, &mut problems).map(Arc::new);
                Self { http: proxy.clone(), https: proxy, bypass: Bypass::default() }
            }
        };
        let own = Bypass::compile(config.no_proxy.iter().map(String::as_str));
        let own =
            own.map_err(|error| problems.push(Problem::new(format!("{path}.no_proxy"), error.to_string())));
        if !problems.is_empty() {
            return Err(problems);
        }
        let bypass = if config.url == FROM_ENVIRONMENT { rules.bypass } else { own.unwrap_or_default() };
        Ok(Self { bypass, ..rules })
    }

    /// Returns the proxy for a host, if it is called through one. `tls` is true if it is called over TLS, or
    /// by a client through a tunnel.
    pub fn choose(&self, tls: bool, target: &Authority) -> Option<Arc<Proxy>> {
        let proxy = if tls { &self.https } else { &self.http };
        proxy.as_ref().filter(|_| !self.bypass.matches(target)).cloned()
    }
}

/// Reports keys beside a `url` for which they mean nothing.
fn without_effect(config: &ProxyConfig, path: &str, is_none: bool, problems: &mut Vec<Problem>) {
    let keys = [
        ("username", config.username.is_some()),
        ("password", config.password.is_some()),
        ("ca", config.ca.is_some() && is_none),
        ("no_proxy", !config.no_proxy.is_empty()),
    ];
    for (key, _) in keys.iter().filter(|(_, is_given)| *is_given) {
        let message = if is_none {
            "there is no proxy: remove this key or `url: none`".to_owned()
        } else {
            format!(
                "not allowed with `{FROM_ENVIRONMENT}`: the environment says it, in the proxy's URL or in `NO_PROXY`"
            )
        };
        problems.push(Problem::new(format!("{path}.{key}"), message));
    }
}

/// The parts of a proxy's URL.
struct ProxyUrl {
    protocol: Protocol,
    authority: Authority,
    credentials: Option<Credentials>,
}

/// Parses a proxy's URL. `default` is its protocol if it has no scheme. The message does not repeat the URL,
/// which may hold a password.
fn parse_url(text: &str, default: Option<Protocol>) -> Result<ProxyUrl, String> {
    let example = "write one like `http://proxy.example.com:3128`, with `https://`, `socks5h://` or `socks5://`; \
                   `${env:HTTPS_PROXY}` takes it from the environment";
    let (protocol, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Protocol::of(scheme), rest),
        None => (default, text),
    };
    let protocol = protocol.ok_or_else(|| format!("this is not the URL of a proxy: {example}"))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (userinfo, host) = match rest.rsplit_once('@') {
        Some((userinfo, host)) => (Some(userinfo), host),
        None => (None, rest),
    };
    let authority = Authority::parse(host.as_bytes(), Some(protocol.default_port()))
        .map_err(|error| format!("this is not the URL of a proxy ({error}): {example}"))?;
    let credentials = match userinfo.map(|userinfo| userinfo.split_once(':').unwrap_or((userinfo, ""))) {
        Some((username, password)) => {
            Some(Credentials { username: decoded(username)?, password: decoded(password)? })
        }
        None => None,
    };
    Ok(ProxyUrl { protocol, authority, credentials })
}

/// Decodes percent-encoding (RFC 3986 §2.1).
fn decoded(text: &str) -> Result<String, String> {
    let bad = || "its user name or password is not percent-encoded UTF-8".to_owned();
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(bad);
        let value = (digit()? << 4) | digit()?;
        out.push(u8::try_from(value).map_err(|_| bad())?);
    }
    String::from_utf8(out).map_err(|_| bad())
}

/// Returns the reason why credentials cannot be sent.
fn check_credentials(protocol: Protocol, credentials: &Credentials) -> Result<(), &'static str> {
    let Credentials { username, password } = credentials;
    let is_socks = matches!(protocol, Protocol::Socks5 | Protocol::Socks5h);
    if [username, password].iter().any(|text| text.chars().any(char::is_control)) {
        return Err("must have no control characters");
    }
    if !is_socks && username.contains(':') {
        return Err("a user name of HTTP cannot have a colon");
    }
    if username.is_empty() {
        return Err("the user name is empty");
    }
    if is_socks && (username.len() > SOCKS_TEXT_BYTES_MAX || password.len() > SOCKS_TEXT_BYTES_MAX) {
        return Err("user name and password of SOCKS have at most 255 bytes each");
    }
    Ok(())
}

fn configured(
    config: &ProxyConfig,
    path: &str,
    policy: &Arc<EgressPolicy>,
    problems: &mut Vec<Problem>,
) -> Option<Proxy> {
    let at_url = format!("{path}.url");
    let mut parsed = parse_url(&config.url, None)
        .map_err(|message| problems.push(Problem::new(at_url.as_str(), message)))
        .ok()?;
    if parsed.credentials.is_some() {
        let message = "credentials do not belong in the URL: use `username` and `password: ${file:PATH}`";
        problems.push(Problem::new(at_url, message));
        return None;
    }
    parsed.credentials = match (&config.username, &config.password) {
        (None, None) => None,
        (Some(username), Some(password)) => {
            Some(Credentials { username: username.clone(), password: password.expose().to_owned() })
        }
        (Some(_), None) => {
            problems.push(Problem::new(path, "`username` requires `password`"));
            None
        }
        (None, Some(_)) => {
            problems.push(Problem::new(path, "`password` requires `username`"));
            None
        }
    };
    if config.ca.is_some() && parsed.protocol != Protocol::Https {
        let message = "only a proxy at `https://` shows a certificate";
        problems.push(Problem::new(format!("{path}.ca"), message));
    }
    if let Some(credentials) = &parsed.credentials
        && let Err(message) = check_credentials(parsed.protocol, credentials)
    {
        problems.push(Problem::new(format!("{path}.username"), message));
    }
    proxy(parsed, config, path, policy, problems)
}

fn proxy(
    url: ProxyUrl,
    config: &ProxyConfig,
    path: &str,
    policy: &Arc<EgressPolicy>,
    problems: &mut Vec<Problem>,
) -> Option<Proxy> {
    let tls = if url.protocol == Protocol::Https {
        let config = ProviderTlsConfig { ca: config.ca.clone(), ..ProviderTlsConfig::default() };
        Some(ClientTls::compile(&config, path).map_err(|found| problems.extend(found)).ok()?)
    } else {
        None
    };
    let ProxyUrl { protocol, authority, credentials } = url;
    Some(Proxy { protocol, authority, credentials, tls, policy: Arc::clone(policy) })
}

/// Reads the variables as curl and Go do: the name in lower case goes first, `ALL_PROXY` is for the schemes
/// without a variable of their own, and a URL without a scheme is one of HTTP.
fn from_environment(
    config: &ProxyConfig,
    path: &str,
    policy: &Arc<EgressPolicy>,
    variable: impl Fn(&str) -> Option<String>,
    problems: &mut Vec<Problem>,
) -> ProxyRules {
    let find = |names: &[&'static str]| {
        let mut found = names.iter().filter_map(|name| Some((*name, variable(name)?)));
        found.find(|(_, value)| !value.trim().is_empty())
    };
    let mut proxy_of = |names: &[&'static str]| {
        let (name, value) = find(names)?;
        let parsed = parse_url(value.trim(), Some(Protocol::Http)).and_then(|url| {
            let checked = url.credentials.as_ref().map_or(Ok(()), |own| check_credentials(url.protocol, own));
            checked.map(|()| url).map_err(str::to_owned)
        });
        match parsed {
            Ok(url) => proxy(url, config, path, policy, problems).map(Arc::new),
            Err(message) => {
                problems.push(Problem::new(path, format!("the variable {name} is wrong: {message}")));
                None
            }
        }
    };
    let http = proxy_of(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]);
    let https = proxy_of(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]);
    let list = find(&["no_proxy", "NO_PROXY"]).map(|(_, list)| list).unwrap_or_default();
    let entries = list.split([',', ' ']).filter(|entry| !entry.is_empty());
    // Other programs skip what they do not understand, and so the variable may hold it.
    let bypass = Bypass::compile(entries.filter(|entry| Bypass::compile([*entry].into_iter()).is_ok()));
    let bypass = bypass.map_err(|error| problems.push(Problem::new(path, format!("NO_PROXY: {error}"))));
    ProxyRules { http, https, bypass: bypass.unwrap_or_default() }
}

/// A tunnel through a proxy. No byte of it has been sent or received yet.
#[derive(Debug)]
pub struct Tunnel {
    /// The connection.
    pub stream: Stream,
    /// The proxy's address.
    pub peer: SocketAddr,
    /// Duration of the look-up of the host. Zero if the proxy does it.
    pub dns: Duration,
    /// Time from the first attempt to connect to the proxy to its consent.
    pub connect: Duration,
    /// The reason for which the policy would have denied the target, if its mode is `report`.
    pub reported: Option<Reason>,
}

/// The reason why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The host may not be called, or Egret cannot look it up.
    #[error("{0}")]
    Target(DialError),
    /// The proxy cannot be connected to.
    #[error("{0}")]
    Unreachable(DialError),
    /// The proxy's own certificate or TLS is wrong.
    #[error("its TLS handshake failed: {0}")]
    Tls(TlsError),
    /// The proxy did not open the tunnel within `timeouts.connect`.
    #[error("it opened no tunnel in time")]
    Timeout,
    /// The proxy closed the connection.
    #[error("it closed the connection before the tunnel was open")]
    Closed,
    /// The proxy refused, or sent something else.
    #[error("{0}")]
    Handshake(HandshakeError),
}

/// Opens a tunnel to `target`, which `policy` judges. The timeout of `options` covers all of it but the
/// look-up of the target.
pub async fn open(
    proxy: &Proxy,
    target: &EgressTarget<'_>,
    resolver: &Resolver,
    policy: &EgressPolicy,
    options: &DialOptions,
) -> Result<Tunnel, ProxyError> {
    let mut reported = None;
    admit(policy.check_host(target), &mut reported).map_err(ProxyError::Target)?;
    let start = now::exact();
    let address = proxy.address_of(target, resolver, policy, &mut reported).await;
    let address = address.map_err(ProxyError::Target)?;
    let connecting = now::exact();
    let dns = if address.is_some() { connecting.since(start) } else { Duration::ZERO };
    let port = target.authority.port;
    let asked = address.map_or_else(|| target.authority.clone(), |ip| Authority { host: Host::Ip(ip), port });
    let work = proxy.tunnel(&asked, resolver, options);
    let (stream, peer) = if options.connect_timeout.is_zero() {
        work.await?
    } else {
        event_loop::timeout(options.connect_timeout, work).await.unwrap_or(Err(ProxyError::Timeout))?
    };
    Ok(Tunnel { stream, peer, dns, connect: now::exact().since(connecting), reported })
}

impl Proxy {
    /// Returns `true` if Egret looks up the addresses of `target`, and `false` if the proxy does.
    pub fn is_looked_up_here(&self, target: &EgressTarget<'_>, policy: &EgressPolicy) -> bool {
        let is_name = target.authority.host.name().is_some();
        is_name && (self.protocol == Protocol::Socks5 || policy.judges_addresses(target))
    }

    /// The proxy's own host and port.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The settings of TLS with the proxy itself. `None` if it is reached without TLS.
    pub fn tls_config(&self) -> Option<Arc<rustls::ClientConfig>> {
        self.tls.as_ref().map(ClientTls::config)
    }

    /// Returns `true` if the proxy looks up names.
    pub fn looks_names_up(&self) -> bool {
        self.protocol != Protocol::Socks5
    }

    /// Begins the handshake for a tunnel to `asked`.
    pub fn handshake(&self, asked: &Authority) -> Handshake {
        match self.protocol {
            Protocol::Http | Protocol::Https => Handshake::connect(asked, self.credentials.as_ref()),
            Protocol::Socks5 | Protocol::Socks5h => Handshake::socks5(asked, self.credentials.as_ref()),
        }
    }

    /// Returns the address to ask for, if it is Egret that looks the name up. An IPv4 address is preferred:
    /// it is not known whether the proxy has IPv6.
    async fn address_of(
        &self,
        target: &EgressTarget<'_>,
        resolver: &Resolver,
        policy: &EgressPolicy,
        reported: &mut Option<Reason>,
    ) -> Result<Option<IpAddr>, DialError> {
        let name = target.authority.host.name().filter(|_| self.is_looked_up_here(target, policy));
        let Some(name) = name else { return Ok(None) };
        let addresses = resolver.resolve(name).await.map_err(DialError::Dns)?;
        let mut denied = DialError::Dns(DnsError::NotFound);
        let mut allowed = None;
        for ip in addresses.iter().copied() {
            let verdict = policy.check_address(target, SocketAddr::new(ip, target.authority.port));
            match admit(verdict, reported) {
                Ok(()) if allowed.is_none() || ip.is_ipv4() => allowed = Some(ip),
                Ok(()) => {}
                Err(error) => denied = error,
            }
            if allowed.is_some_and(|ip| ip.is_ipv4()) {
                break;
            }
        }
        allowed.map(Some).ok_or(denied)
    }

    /// Connects to the proxy and asks it for a tunnel.
    async fn tunnel(
        &self,
        asked: &Authority,
        resolver: &Resolver,
        options: &DialOptions,
    ) -> Result<(Stream, SocketAddr), ProxyError> {
        let own = EgressTarget { authority: &self.authority, configured: true };
        let dialed = dial::dial(&own, resolver, &self.policy, options).await;
        let Dialed { socket, peer, .. } = dialed.map_err(|error| match error {
            DialError::Timeout => ProxyError::Timeout,
            error => ProxyError::Unreachable(error),
        })?;
        let mut stream = Stream::Plain(socket);
        if let Some(tls) = &self.tls {
            let handshake = tls::handshake(stream, tls, &self.authority.host).await;
            stream = Stream::Tls(handshake.map_err(ProxyError::Tls)?);
        }
        shake_hands(&mut stream, self.handshake(asked)).await?;
        Ok((stream, peer))
    }
}

/// Maximum number of bytes that are received at once. A handshake asks for a few.
const PIECE_BYTES: usize = 512;

async fn shake_hands(stream: &mut Stream, mut handshake: Handshake) -> Result<(), ProxyError> {
    let mut piece = [0; PIECE_BYTES];
    loop {
        match handshake.step() {
            Step::Send(bytes) => send(stream, &bytes).await.map_err(|_| ProxyError::Closed)?,
            Step::Receive(wanted) => {
                let room = &mut piece[..wanted.min(PIECE_BYTES)];
                let count = poll_fn(|cx| stream.poll_read(cx, room)).await.unwrap_or(0);
                if count == 0 {
                    return Err(ProxyError::Closed);
                }
                handshake.receive(&piece[..count]).map_err(ProxyError::Handshake)?;
            }
            Step::Done => return Ok(()),
        }
    }
}

async fn send(stream: &mut Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(bytes)])).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[count..];
    }
    poll_fn(|cx| stream.poll_flush(cx)).await
}

#[cfg(test)]
mod tests;
