//! What every request must pass before it is routed: a host that is ours, a method that fits the path, no body, and the token.
//!
//! The host is looked at because a browser on this machine runs other people's pages: a page whose name is made to resolve to
//! 127.0.0.1 (DNS rebinding) is of the same origin as the control port in the browser's eyes, and only the name gives it away.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use egret_config::Secret;

use crate::problem::Problem;
use crate::{ControlConfig, routes};

/// Bytes of field names and values in a request.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Allows the page its own files and nothing else.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Whom the control port answers.
#[derive(Debug)]
pub struct Guard {
    listen: IpAddr,
    token: Option<Secret>,
    allowed_hosts: Vec<String>,
}

impl Guard {
    /// As the config says, for the address actually listened on.
    pub fn new(config: &ControlConfig, address: SocketAddr) -> Self {
        Self {
            listen: address.ip().to_canonical(),
            token: config.token.clone(),
            allowed_hosts: config.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        }
    }

    fn check(&self, request: &Request) -> Result<(), Problem> {
        self.check_hosts(request)?;
        let changes = routes::changes(request.uri().path());
        let is_allowed = match *request.method() {
            Method::GET | Method::HEAD => !changes,
            Method::POST => changes,
            _ => false,
        };
        if !is_allowed {
            return Err(Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "the control port is read with GET, and caches are purged with POST",
            ));
        }
        if changes {
            check_origin(request.headers())?;
        }
        let head_bytes: usize =
            request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if head_bytes > HEAD_BYTES_MAX {
            return Err(Problem::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the header fields are larger than the control port takes",
            ));
        }
        if !request.body().is_end_stream() {
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the control port takes no content"));
        }
        self.check_token(request)
    }

    /// Exactly one Host field (RFC 9112 §3.2), and it and an absolute-form target must both name us.
    fn check_hosts(&self, request: &Request) -> Result<(), Problem> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "exactly one Host field is needed"));
        };
        let named = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let ours = named.is_some_and(|named| self.is_ours(&named));
        if ours && request.uri().authority().is_none_or(|target| self.is_ours(target)) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host is not this control port's: call it by its address, or add the name to control.allowed_hosts",
        ))
    }

    /// An address is believed where it could be the one listened on: a page that came from there is ours. A name is believed only
    /// where it is `localhost` or the config says so.
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

    fn check_token(&self, request: &Request) -> Result<(), Problem> {
        let Some(token) = &self.token else { return Ok(()) };
        if routes::is_public(request.uri().path())
            || bearer(request.headers()).is_some_and(|given| same(given, token))
        {
            return Ok(());
        }
        Err(Problem::new(StatusCode::UNAUTHORIZED, "send the control token as Authorization: Bearer"))
    }
}

/// Rejects changes that another site's page has caused. Browsers send `Origin` with every POST, and
/// `Sec-Fetch-Site` with every request; programs send neither.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(header::HOST).and_then(port_of_http);
    let is_ours = |origin: &HeaderValue| host.is_some() && origin_of_http(origin) == host;
    let is_same_site = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    if headers.get_all(header::ORIGIN).iter().all(is_ours)
        && headers.get_all("sec-fetch-site").iter().all(is_same_site)
    {
        return Ok(());
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "another site's page may not change anything here"))
}

/// The host, in lower case, and the port of an authority of `http`, without user information.
fn port_of_http(authority: &HeaderValue) -> Option<(String, u16)> {
    let authority: Authority = authority.to_str().ok()?.parse().ok()?;
    let port = match authority.as_str().strip_prefix(authority.host())? {
        "" => 80,
        port => port.strip_prefix(':')?.parse().ok()?,
    };
    Some((authority.host().to_ascii_lowercase(), port))
}

/// The same of an origin (RFC 6454 §7). The control port speaks `http`, so no other scheme's origin is its
/// own.
fn origin_of_http(origin: &HeaderValue) -> Option<(String, u16)> {
    let authority = origin.as_bytes().strip_prefix(b"http://")?;
    port_of_http(&HeaderValue::from_bytes(authority).ok()?)
}

/// The token in `Authorization: Bearer` (RFC 6750 §2.1).
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Compares in a time that depends on the length of what was given alone, so that no answer tells how much of it was right.
fn same(given: &[u8], token: &Secret) -> bool {
    let token = token.expose().as_bytes();
    let differing =
        given.iter().enumerate().fold(u8::from(given.len() != token.len()), |differing, (index, byte)| {
            let expected = token.get(index).copied().unwrap_or_default();
            black_box(differing | (byte ^ expected))
        });
    black_box(differing) == 0
}

/// Lets through what passes, answers the rest, and puts on every answer what keeps browsers from misusing it.
pub async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let changes = routes::changes(request.uri().path());
    let mut response = match guard.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"egret\""));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            headers
                .insert(header::ALLOW, HeaderValue::from_static(if changes { "POST" } else { "GET, HEAD" }));
        }
        // What follows is not a request.
        StatusCode::PAYLOAD_TOO_LARGE => {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        _ => {}
    }
    response
}
