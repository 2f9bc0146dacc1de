//! Checks every request before it is routed: an allowed host, a method that fits the path, no body, and the
//! right to read or to change.
//!
//! The host is checked because a browser on this machine runs pages of other sites. If such a page makes its
//! name resolve to 127.0.0.1 (DNS rebinding), the browser considers it the same origin as the control port;
//! only the name gives it away.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use egret_config::Secret;

use crate::config::ControlConfig;
use crate::connection::Trust;
use crate::identity::{Identity, NONCE_FIELD, PROOF_FIELD};
use crate::paths::{self, Access};
use crate::problem::Problem;
use crate::trusted_proxy::{Misnamed, TrustedProxy, User};

/// Maximum bytes of field names and values in a request.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Allows the page to load its own files only.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Allows the page of one response to add styles too: those of the editor.
#[derive(Debug, Clone)]
pub(crate) struct StyleNonce(pub String);

impl StyleNonce {
    fn policy(&self) -> Option<HeaderValue> {
        let styles = format!("style-src 'self' 'nonce-{}'", self.0);
        HeaderValue::from_str(&CONTENT_SECURITY_POLICY.replace("style-src 'self'", &styles)).ok()
    }
}

/// The rights of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// May read everything.
    Reader,
    /// May also change everything that `control.config_changes` leaves.
    Writer,
}

/// The access rules of the control port.
#[derive(Debug)]
pub struct Guard {
    listen: IpAddr,
    /// The token for changes: that of the config, or else the one created at start.
    token: Option<Secret>,
    /// The token that only reads.
    read_token: Option<Secret>,
    proxy: Option<TrustedProxy>,
    /// `true` if the config has no rule about who may read.
    is_open: bool,
    identity: Option<Identity>,
    allowed_hosts: Vec<String>,
}

impl Guard {
    /// Creates the rules of the config, for the actual listening address. Without `control.token`,
    /// `created_token` takes its place. What `identity` gives to those with its key gives access in any case.
    pub fn new(
        config: &ControlConfig,
        address: SocketAddr,
        created_token: Option<Secret>,
        identity: Option<Identity>,
    ) -> Self {
        Self {
            listen: address.ip().to_canonical(),
            token: config.token.clone().or(created_token),
            read_token: config.read_token.clone(),
            proxy: config.trusted_proxy.as_ref().and_then(TrustedProxy::new),
            is_open: config.is_open(),
            identity,
            allowed_hosts: config.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        }
    }

    /// Returns the user whom the trusted proxy names.
    fn user(&self, request: &Request) -> Result<Option<User>, Misnamed> {
        let Some(proxy) = &self.proxy else { return Ok(None) };
        let trust = request.extensions().get::<ConnectInfo<Trust>>();
        let Some(ends) = trust.and_then(|ConnectInfo(trust)| trust.ends()) else { return Ok(None) };
        proxy.user(ends.client.ip(), request.headers())
    }

    fn check(&self, request: &Request, user: &Result<Option<User>, Misnamed>) -> Result<(), Problem> {
        self.check_hosts(request)?;
        let (path, method) = (request.uri().path(), request.method());
        if !paths::accepts(path, method) {
            return Err(Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path does not accept the method; `Allow` names those that it accepts",
            ));
        }
        let access = Access::of(path);
        if access == Access::Private || !paths::reads(method) {
            check_origin(request.headers(), matches!(user, Ok(Some(_))))?;
        }
        let head_bytes: usize =
            request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if head_bytes > HEAD_BYTES_MAX {
            return Err(Problem::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the header fields are larger than the control port accepts",
            ));
        }
        if !request.body().is_end_stream() && !paths::has_content(path, method) {
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "this path accepts no content"));
        }
        self.check_role(request, access, user)
    }

    /// Requires exactly one Host field (RFC 9112 §3.2). It and an absolute-form target must both name the
    /// control port.
    fn check_hosts(&self, request: &Request) -> Result<(), Problem> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "the request must have exactly one Host field",
            ));
        };
        let named = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let ours = named.is_some_and(|named| self.is_ours(&named));
        if ours && request.uri().authority().is_none_or(|target| self.is_ours(target)) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host does not name this control port: use its address, or add the name to control.allowed_hosts",
        ))
    }

    /// Returns `true` if the authority names the control port. An address is accepted if the port may listen
    /// on it, because a page loaded from there belongs to the control port. A name is accepted only if it is
    /// `localhost` or configured.
    fn is_ours(&self, authority: &Authority) -> bool {
        if authority.as_str().contains('@') {
            return false;
        }
        let host = authority.host();
        let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = literal.parse::<IpAddr>() {
            let address = address.to_canonical();
            return address == self.listen || address.is_loopback() || self.listen.is_unspecified();
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        name == "localhost" || self.allowed_hosts.contains(&name)
    }

    fn check_role(
        &self,
        request: &Request,
        access: Access,
        user: &Result<Option<User>, Misnamed>,
    ) -> Result<(), Problem> {
        if access == Access::Public || (access == Access::Token && self.is_open) {
            return Ok(());
        }
        if let Err(misnamed) = user {
            return Err(Problem::new(StatusCode::UNAUTHORIZED, misnamed.to_string()));
        }
        let reads = paths::reads(request.method());
        let (status, detail) = match self.caller(request, user) {
            Some(Role::Writer) => return Ok(()),
            Some(Role::Reader) if reads => return Ok(()),
            Some(Role::Reader) if matches!(user, Ok(Some(_))) => (
                StatusCode::FORBIDDEN,
                "this user only reads: `control.trusted_proxy.writers` has those who may change something",
            ),
            Some(Role::Reader) => (
                StatusCode::FORBIDDEN,
                "this token only reads: changes need `control.token`, or without it the token in the file `control-token` in `data_dir`",
            ),
            None if self.token.is_none() && self.is_open => (
                StatusCode::FORBIDDEN,
                "the config's files and live traffic need a token, and there is none: set `control.token`, or make `data_dir` writable for Egret",
            ),
            None if self.is_open => (
                StatusCode::UNAUTHORIZED,
                "send the token in the file `control-token` in `data_dir` as `Authorization: Bearer TOKEN`",
            ),
            None => (StatusCode::UNAUTHORIZED, "send the control token as `Authorization: Bearer TOKEN`"),
        };
        Err(Problem::new(status, detail))
    }

    /// Returns the rights of a caller, who may be a user of the trusted proxy; `None` if it has none.
    fn caller(&self, request: &Request, user: &Result<Option<User>, Misnamed>) -> Option<Role> {
        match user {
            Ok(None) => self.role(request.headers()),
            Ok(Some(user)) => Some(if user.is_writer { Role::Writer } else { Role::Reader }),
            Err(_) => None,
        }
    }

    /// Returns the rights of the caller; `None` without a token, and with a wrong one.
    fn role(&self, headers: &HeaderMap) -> Option<Role> {
        let given = bearer(headers)?;
        let is_given = |token: Option<&Secret>| token.is_some_and(|token| same(given, token));
        if is_given(self.identity.as_ref().map(Identity::access)) || is_given(self.token.as_ref()) {
            return Some(Role::Writer);
        }
        is_given(self.read_token.as_ref()).then_some(Role::Reader)
    }

    /// Returns the proof that a request asks for.
    fn proof(&self, request: &Request) -> Option<HeaderValue> {
        let nonce = request.headers().get(NONCE_FIELD)?.to_str().ok()?;
        let ConnectInfo(trust) = request.extensions().get::<ConnectInfo<Trust>>()?;
        let proof = self.identity.as_ref()?.proof(nonce, trust.ends()?)?;
        HeaderValue::from_str(&proof).ok()
    }
}

/// The field of responses to callers who may only read, for the page.
const ACCESS_FIELD: &str = "x-egret-access";

/// Schemes of origins, and their ports.
const HTTP: (&str, u16) = ("http://", 80);
const HTTPS: (&str, u16) = ("https://", 443);

/// Rejects changes that another site's page has caused. Browsers send `Origin` with every POST, and
/// `Sec-Fetch-Site` with every request; programs send neither. The page may be one of `https` only behind the
/// trusted proxy, which ends TLS.
fn check_origin(headers: &HeaderMap, is_behind_proxy: bool) -> Result<(), Problem> {
    let schemes: &[_] = if is_behind_proxy { &[HTTP, HTTPS] } else { &[HTTP] };
    let host = headers.get(header::HOST);
    let is_of = |(scheme, port): (&str, u16), origin: &HeaderValue| {
        let own = host.and_then(|host| host_and_port(host.as_bytes(), port));
        // An origin (RFC 6454 §7) is a scheme and an authority.
        let authority = origin.as_bytes().strip_prefix(scheme.as_bytes());
        own.is_some() && authority.and_then(|authority| host_and_port(authority, port)) == own
    };
    let is_ours = |origin: &HeaderValue| schemes.iter().any(|scheme| is_of(*scheme, origin));
    let is_same_site = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    if headers.get_all(header::ORIGIN).iter().all(is_ours)
        && headers.get_all("sec-fetch-site").iter().all(is_same_site)
    {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "requests from another site's page must not change anything here",
    ))
}

/// Returns the host, in lower case, and the port of an authority without user information.
fn host_and_port(authority: &[u8], default_port: u16) -> Option<(String, u16)> {
    let authority: Authority = str::from_utf8(authority).ok()?.parse().ok()?;
    let port = match authority.as_str().strip_prefix(authority.host())? {
        "" => default_port,
        port => port.strip_prefix(':')?.parse().ok()?,
    };
    Some((authority.host().to_ascii_lowercase(), port))
}

/// Returns the token in `Authorization: Bearer` (RFC 6750 §2.1).
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Compares in a time that depends only on the length of the given token, so timing does not reveal how much
/// of it was right.
fn same(given: &[u8], token: &Secret) -> bool {
    let token = token.expose().as_bytes();
    let differing =
        given.iter().enumerate().fold(u8::from(given.len() != token.len()), |differing, (index, byte)| {
            let expected = token.get(index).copied().unwrap_or_default();
            black_box(differing | (byte ^ expected))
        });
    black_box(differing) == 0
}

/// Passes valid requests on, rejects the others, and adds the security header fields for browsers to every
/// response.
pub async fn guard(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let methods = paths::methods(request.uri().path());
    let has_content = !request.body().is_end_stream();
    let proof = guard.proof(&request);
    let user = guard.user(&request);
    let checked = guard.check(&request, &user);
    let only_reads = guard.caller(&request, &user) == Some(Role::Reader);
    let user = user.ok().flatten();
    let change = user.clone().filter(|_| paths::changes(request.uri().path(), request.method()));
    let change = change.map(|user| (user.name, request.method().clone(), request.uri().path().to_owned()));
    let mut response = match checked {
        Ok(()) => {
            if let Some(user) = user {
                request.extensions_mut().insert(user);
            }
            if Access::of(request.uri().path()) == Access::Private
                && let Some(ConnectInfo(trust)) = request.extensions().get::<ConnectInfo<Trust>>()
            {
                trust.grant();
            }
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    };
    let status = response.status();
    if let Some((user, method, path)) = change {
        tracing::info!(%user, %method, path, status = status.as_u16(), "a user asked for a change over the API");
    }
    let nonce = response.extensions_mut().remove::<StyleNonce>();
    let policy = nonce.and_then(|nonce| nonce.policy());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let policy = policy.unwrap_or(HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    if only_reads {
        headers.insert(ACCESS_FIELD, HeaderValue::from_static("read"));
    }
    if let Some(proof) = proof {
        headers.insert(PROOF_FIELD, proof);
    }
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"egret\""));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        _ => {}
    }
    // Content may have been left unread, and the bytes that follow are then not a request.
    if has_content {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
