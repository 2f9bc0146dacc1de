//! Rewrites a provider's redirects and cookies for a client that named the provider by base URL.
//!
//! Such a client knows the provider as a path of the gateway. A `Location` or `Content-Location` at the
//! provider, and the path of a cookie, would lead past the gateway or to another provider. They are rewritten
//! only in the bytes sent to this client: caches and recordings keep the provider's bytes.

use egret_http1::{Edits, Field, RequestHead, Span};
use egret_message::Origin;
use egret_message::request_target::split_query;

use crate::providers::{Belongs, ProviderTable, ProviderUrl};
use crate::target::{BasePath, resolve};

/// A provider named by base URL in the received target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseUrl {
    /// The provider's number.
    pub provider: usize,
    /// The part of the target behind the provider's name.
    pub rest: Span,
}

impl BaseUrl {
    /// Returns the provider that the first segment of `path` names, or `None` if no provider has that name.
    pub fn of(table: &ProviderTable, path: Span, bytes: &[u8]) -> Option<Self> {
        let text = path.of(bytes);
        let name = text.strip_prefix(b"/").unwrap_or(text);
        let name_len = name.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(name.len());
        let provider = table.by_name(&name[..name_len])?;
        let skipped = text.len() - name.len() + name_len;
        Some(Self { provider, rest: Span::new(path.range().start + skipped, path.range().end) })
    }
}

/// The upstream that sent a response.
#[derive(Debug, Clone, Copy)]
pub struct Responder<'a> {
    /// Its origin.
    pub origin: &'a Origin,
    /// The value of `Host` in requests to it.
    pub host_field: &'a [u8],
    /// The base path of every request to it, without a slash at its end.
    pub path_prefix: &'a [u8],
}

/// The context in which the references of one response are rewritten.
#[derive(Debug, Clone, Copy)]
pub struct Rewriter<'a> {
    table: &'a ProviderTable,
    /// The provider, or the other host, that sent the response.
    responder: Responder<'a>,
    /// The provider that the client has named.
    named: usize,
    /// The requested path below the provider's name. Empty if the client requested the provider's name alone.
    path: &'a [u8],
}

impl<'a> Rewriter<'a> {
    /// Creates a rewriter for a response of `responder` to a `request` that named the provider by base URL.
    pub fn new(
        table: &'a ProviderTable,
        responder: Responder<'a>,
        request: &RequestHead,
        bytes: &'a [u8],
    ) -> Option<Self> {
        let start = request.authority.map_or(request.target.start, |authority| authority.end);
        let path = Span { start, end: request.target.end };
        let BaseUrl { provider, rest } = BaseUrl::of(table, path, bytes)?;
        let (path, _) = split_query(rest.of(bytes));
        Some(Self { table, responder, named: provider, path })
    }

    /// Rewrites the fields of a received head, except those that `edits` already change.
    pub fn edit(&self, fields: &[Field], bytes: &[u8], edits: &mut Edits) {
        for (index, field) in fields.iter().enumerate() {
            if edits.changes_field(index) {
                continue;
            }
            if let Some(value) = self.value(field.name.of(bytes), field.value.of(bytes)) {
                edits.replace_value(index, &value);
            }
        }
    }

    /// Returns the head to send instead of `head`, or `None` if nothing changes. `head` may have a body
    /// behind it.
    pub fn head(&self, head: &[u8]) -> Option<Vec<u8>> {
        let end = memchr::memmem::find(head, b"\r\n\r\n")? + 2;
        let mut written = Vec::new();
        let (mut copied, mut start) = (0, 0);
        for line_end in memchr::memmem::find_iter(&head[..end], b"\r\n") {
            let line = &head[start..line_end];
            if let Some(colon) = memchr::memchr(b':', line)
                && let Some(value) = self.value(&line[..colon], line[colon + 1..].trim_ascii())
            {
                written.extend_from_slice(&head[copied..=start + colon]);
                written.push(b' ');
                written.extend_from_slice(&value);
                copied = line_end;
            }
            start = line_end + 2;
        }
        if copied == 0 {
            return None;
        }
        written.extend_from_slice(&head[copied..]);
        Some(written)
    }

    /// Returns the value to send instead of the provider's, or `None` if it stays.
    fn value(&self, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        match name.len() {
            8 if name.eq_ignore_ascii_case(b"location") => self.reference(value),
            16 if name.eq_ignore_ascii_case(b"content-location") => self.reference(value),
            10 if name.eq_ignore_ascii_case(b"set-cookie") => Some(self.cookie(value)),
            _ => None,
        }
    }

    /// Returns a reference as this client must see it (RFC 3986 §4.1).
    fn reference(&self, reference: &[u8]) -> Option<Vec<u8>> {
        let end = memchr::memchr(b'#', reference).unwrap_or(reference.len());
        let (reference, fragment) = reference.split_at(end);
        let own = self.responder.origin;
        let (is_whole, tls, rest) = match scheme(reference) {
            Some((tls, rest)) => (true, tls, rest),
            None if has_scheme(reference) => return None,
            None => (false, own.tls, reference),
        };
        if let Some(after) = rest.strip_prefix(b"//") {
            let split = after.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(after.len());
            let (authority, target) = after.split_at(split);
            return self.lead(&Origin::parse(tls, authority).ok()?, target, fragment);
        }
        if is_whole {
            return None;
        }
        let target = self.absolute(rest)?;
        let led = self.lead(own, &target, fragment);
        // A target outside of every configured provider's URL is still at that host, not at the gateway.
        led.or_else(|| {
            let scheme: &[u8] = if own.tls { b"https://" } else { b"http://" };
            Some([scheme, self.responder.host_field, &target, fragment].concat())
        })
    }

    /// Returns the path and query at the provider that a reference without a host resolves to. Returns `None`
    /// if it means the same to this client.
    fn absolute(&self, reference: &[u8]) -> Option<Vec<u8>> {
        if reference.starts_with(b"/") {
            return Some(reference.to_vec());
        }
        let (path, query) = split_query(reference);
        // The client knows the same segments below the provider's name, so only a reference that leaves them
        // needs a change.
        let leaves = self.path.is_empty() || path.split(|byte| *byte == b'/').any(|segment| segment == b"..");
        if path.is_empty() || !leaves {
            return None;
        }
        let slash: &[u8] = if self.path.is_empty() { b"/" } else { b"" };
        let asked = [self.base().text(), slash, self.path].concat();
        let mut target = resolve(path, &asked);
        if let Some(query) = query {
            target.push(b'?');
            target.extend_from_slice(query);
        }
        Some(target)
    }

    /// Returns the base path below which the client knows the responding provider.
    fn base(&self) -> BasePath {
        let named = &self.table.provider(self.named).url;
        let is_named = named.origin == *self.responder.origin && !self.is_endpoint();
        BasePath::new(if is_named { &named.path } else { self.responder.path_prefix })
    }

    /// Returns `true` if the response comes from another endpoint of the provider than the one at its URL.
    fn is_endpoint(&self) -> bool {
        let Responder { origin, path_prefix, .. } = self.responder;
        let mut endpoints = self.table.provider(self.named).endpoints.iter();
        endpoints.any(|url| url.origin == *origin && *url.path == *path_prefix)
    }

    /// Returns the gateway's path for `target` at `origin`, if a configured provider is there.
    fn lead(&self, origin: &Origin, target: &[u8], fragment: &[u8]) -> Option<Vec<u8>> {
        let (path, _) = split_query(target);
        let own = self.table.provider(self.named);
        let below = |url: &ProviderUrl| BasePath::new(&url.path).holds(path).ok().flatten();
        let mut endpoints = own.endpoints.iter().filter(|url| url.origin == *origin);
        if let Some(base_len) = endpoints.find_map(below) {
            return Some([b"/", own.name.as_bytes(), &target[base_len..], fragment].concat());
        }
        let owners = self.table.owners(self.table.origin_number(origin)?);
        let named = owners.below(self.named, path).map(|base_len| Belongs { provider: self.named, base_len });
        let Belongs { provider, base_len } = named.or_else(|| owners.of(path).ok().flatten())?;
        let name = &self.table.provider(provider).name;
        Some([b"/", name.as_bytes(), &target[base_len..], fragment].concat())
    }

    /// Returns the cookie with the path below which this client knows the provider. `Domain` is removed, so
    /// only the gateway receives the cookie (RFC 6265 §5.2).
    fn cookie(&self, cookie: &[u8]) -> Vec<u8> {
        let mut parts = cookie.split(|byte| *byte == b';');
        let mut rewritten = parts.next().unwrap_or_default().to_vec();
        let mut path = None;
        for part in parts {
            let (name, value) = match memchr::memchr(b'=', part) {
                Some(at) => (&part[..at], part[at + 1..].trim_ascii()),
                None => (part, &b""[..]),
            };
            let name = name.trim_ascii();
            if name.eq_ignore_ascii_case(b"path") {
                path = value.starts_with(b"/").then_some(value);
            } else if !name.eq_ignore_ascii_case(b"domain") {
                rewritten.push(b';');
                rewritten.extend_from_slice(part);
            }
        }
        let name = self.table.provider(self.named).name.as_bytes();
        // Without a path, a client uses that of the request up to its last slash. For a request of the
        // provider's name alone that would be the root, which all providers share.
        if path.is_some() || !self.path.contains(&b'/') {
            let below = path.map_or(&b""[..], |path| self.below_base(path));
            rewritten.extend_from_slice(&[b"; Path=/", name, below].concat());
        }
        rewritten
    }

    /// Returns the part of a cookie's path below the base path. Empty if the cookie's path includes the whole
    /// base path.
    fn below_base<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let base = self.base();
        let prefix = path.strip_suffix(b"/").unwrap_or(path);
        if BasePath::new(prefix) == base || base.is_below(&BasePath::new(prefix)) {
            return b"";
        }
        match base.holds(path) {
            Ok(Some(len)) => &path[len..],
            _ => path,
        }
    }
}

/// Returns `true` for `https` and `false` for `http`, with the part behind the colon. Other schemes return
/// `None`.
fn scheme(reference: &[u8]) -> Option<(bool, &[u8])> {
    let colon = memchr::memchr(b':', reference)?;
    let (scheme, rest) = (&reference[..colon], &reference[colon + 1..]);
    if scheme.eq_ignore_ascii_case(b"https") {
        Some((true, rest))
    } else if scheme.eq_ignore_ascii_case(b"http") {
        Some((false, rest))
    } else {
        None
    }
}

/// Returns `true` if there is a colon before any slash or question mark (RFC 3986 §4.2).
fn has_scheme(reference: &[u8]) -> bool {
    reference.iter().find(|byte| b":/?".contains(byte)) == Some(&b':')
}

#[cfg(test)]
mod tests {
    use egret_http1::HeadLimits;

    use super::*;
    use crate::providers::NamedProvider;

    /// Returns the result of `act` on a rewriter for a client that requested `/provider` and `rest`.
    fn with_rewriter<T>(provider: &str, rest: &str, act: impl FnOnce(Rewriter<'_>) -> T) -> T {
        let table = ProviderTable::new(
            [
                ("api", "https://api.example/v2"),
                ("root", "http://root.example:8080"),
                ("team", "http://root.example:8080/teams/b"),
            ]
            .map(|(name, url)| {
                let endpoints = if name == "api" { vec!["https://eu.example/v3"] } else { Vec::new() };
                let parse = |url| ProviderUrl::parse(url).unwrap();
                NamedProvider {
                    name: name.into(),
                    url: parse(url),
                    endpoints: endpoints.into_iter().map(parse).collect(),
                }
            })
            .into(),
        );
        let ProviderUrl { origin, path } = &table.provider(table.by_name(provider.as_bytes()).unwrap()).url;
        let host_field = origin.host_field();
        let responder = Responder { origin, host_field: &host_field, path_prefix: path };
        let bytes = format!("GET /{provider}{rest} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
        let mut request = RequestHead::new();
        request.parse(&bytes, &HeadLimits::default()).unwrap();
        act(Rewriter::new(&table, responder, &request, &bytes).unwrap())
    }

    /// Returns the rewritten `value` of `field` for such a client.
    fn rewritten(provider: &str, rest: &str, field: &str, value: &str) -> Option<String> {
        with_rewriter(provider, rest, |rewriter| {
            let value = rewriter.value(field.as_bytes(), value.as_bytes());
            value.map(|value| String::from_utf8(value).unwrap())
        })
    }

    #[test]
    fn references_at_providers_lead_back_through_the_gateway() {
        for (provider, rest, value, expected) in [
            ("api", "/a/b?q", "https://api.example/v2/x?y#z", Some("/api/x?y#z")),
            ("api", "/a/b", "HTTPS://API.example:443/v2", Some("/api")),
            ("api", "/a/b", "https://api.example/v2?q", Some("/api?q")),
            ("api", "/a/b", "//api.example/v2/x", Some("/api/x")),
            ("api", "/a/b", "/v2/x", Some("/api/x")),
            ("api", "/a/b", "https://api.example/v20", None),
            ("api", "/a/b", "/login?next=%2Fv2", Some("https://api.example/login?next=%2Fv2")),
            ("api", "/a/b", "http://api.example/v2/x", None),
            ("api", "/a/b", "https://other.example/v2/x", None),
            ("api", "/a/b", "https://eu.example/v3/x?y", Some("/api/x?y")),
            ("api", "/a/b", "https://eu.example/v2/x", None),
            ("root", "/a/b", "https://eu.example/v3/x", None),
            ("api", "/a/b", "http://root.example:8080/x", Some("/root/x")),
            ("api", "/a/b", "http://root.example:8080/teams/b/x", Some("/team/x")),
            ("root", "/a", "/teams/b/x", Some("/root/teams/b/x")),
            ("team", "/a", "/other", Some("/root/other")),
            ("api", "/a/b", "c?d#e", None),
            ("api", "/a/b", "./c", None),
            ("api", "/a/b", "../c", Some("/api/c")),
            ("api", "/a/b", "../../../c", Some("https://api.example/c")),
            ("api", "", "c?d", Some("/api/c?d")),
            ("api", "/a", "", None),
            ("api", "/a", "?q", None),
            ("api", "/a", "#f", None),
            ("api", "/a", "mailto:a@b.example", None),
            ("api", "/a", "https:x", None),
            ("api", "/a", "https://u@api.example/v2/x", None),
            ("api", "/a", "https://api.example/v2/../x", None),
            ("api", "/a", "/v2/../x", Some("https://api.example/v2/../x")),
        ] {
            for field in ["Location", "content-location"] {
                assert_eq!(rewritten(provider, rest, field, value).as_deref(), expected, "{rest} {value}");
            }
        }
        assert_eq!(rewritten("api", "/a", "Refresh", "0; url=/v2"), None);
    }

    #[test]
    fn cookies_are_for_the_gateway_and_for_the_path_of_their_provider() {
        for (provider, rest, value, expected) in [
            ("api", "/a", "s=1", "s=1"),
            ("api", "", "s=1", "s=1; Path=/api"),
            ("api", "?q", "s=1; Secure", "s=1; Secure; Path=/api"),
            ("api", "/a", "s=1; Path=/v2/x; HttpOnly", "s=1; HttpOnly; Path=/api/x"),
            ("api", "/a", "s=1; path=/; Domain=api.example", "s=1; Path=/api"),
            ("api", "/a", "s=1;PATH = /v2/ ;domain=.example;Max-Age=5", "s=1;Max-Age=5; Path=/api"),
            ("api", "/a", "s=1; Path=/other", "s=1; Path=/api/other"),
            ("api", "/a", "s=1; Path=/a; Path=/v2/b", "s=1; Path=/api/b"),
            ("api", "/a", "s=1; Path=/a; Path=relative", "s=1"),
            ("root", "/a", "s=1; Path=/", "s=1; Path=/root"),
            ("root", "/teams/b/x", "s=1; Path=/teams/b", "s=1; Path=/root/teams/b"),
            ("root", "/a", "s=\"a=b\"; Path=/x/", "s=\"a=b\"; Path=/root/x/"),
        ] {
            assert_eq!(rewritten(provider, rest, "Set-Cookie", value).as_deref(), Some(expected), "{value}");
        }
    }

    #[test]
    fn of_a_whole_head_only_these_lines_change() {
        let head = "HTTP/1.1 302 Found\r\nA: 1\r\nLocation:  /v2/x \r\nB: /v2\r\nSet-Cookie: a=b; Path=/v2\r\n\r\nLocation: /v2\r\n";
        let expected = "HTTP/1.1 302 Found\r\nA: 1\r\nLocation: /api/x\r\nB: /v2\r\nSet-Cookie: a=b; Path=/api\r\n\r\nLocation: /v2\r\n";
        with_rewriter("api", "/a", |rewriter| {
            assert_eq!(rewriter.head(head.as_bytes()).unwrap(), expected.as_bytes());
            assert_eq!(rewriter.head(b"HTTP/1.1 200 OK\r\nLocation: x\r\n\r\n"), None);
            assert_eq!(rewriter.head(b"HTTP/1.1 200 OK\r\n"), None);
        });
    }
}
