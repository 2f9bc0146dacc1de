//! Invalidation of stored responses by changes (RFC 9111 §4.4).

use std::borrow::Cow;

use egret_http1::Method;
use egret_match::target::{normal_path, resolve};
use egret_message::{Request, Response};

use super::key::{KeyContext, KeySecret, Url};
use super::policy::Policy;

/// Maximum length of a reference that is followed.
const REFERENCE_BYTES_MAX: usize = 8 << 10;

impl Policy {
    /// Returns the groups of stored responses that a successful response to an unsafe method invalidates:
    /// those of its URL, and of the URLs on the same origin that it names. A group includes the responses for
    /// all queries.
    pub fn invalidated(
        &self,
        request: &Request<'_>,
        context: &KeyContext<'_>,
        response: &Response<'_>,
    ) -> Vec<u128> {
        let urls = self.changed(request, context, response);
        let mut groups: Vec<_> = urls.iter().map(|url| url.group(&self.secret)).collect();
        groups.dedup();
        groups
    }

    /// Returns the URLs whose stored responses a response [invalidates](Self::invalidated), in the form that
    /// [`group_of`] reads in another gateway.
    pub fn changed_urls(
        &self,
        request: &Request<'_>,
        context: &KeyContext<'_>,
        response: &Response<'_>,
    ) -> Vec<Vec<u8>> {
        self.changed(request, context, response).iter().map(Url::save).collect()
    }

    fn changed<'a>(
        &self,
        request: &Request<'a>,
        context: &KeyContext<'a>,
        response: &Response<'_>,
    ) -> Vec<Url<'a>> {
        let method = Method::of(request.method);
        let changes_nothing = method.is_safe() || self.config.methods.contains(method.name());
        if changes_nothing || !(200..400).contains(&response.status) {
            return Vec::new();
        }
        let url = Url::of(request, context);
        let mut named = Vec::new();
        for name in [&b"location"[..], b"content-location"] {
            let Some(reference) = response.fields.get(name) else { continue };
            if let Some(path) = path_of(reference, &url) {
                let path = [Cow::default(), Cow::Owned(normal_path(&path).into_owned())];
                named.push(Url { path, query: None, ..url.clone() });
            }
        }
        named.insert(0, url);
        named
    }
}

/// Returns the group of a URL that [`Policy::changed_urls`] returned, under the secret of this cache; `None`
/// if it is invalid.
pub fn group_of(changed: &[u8], secret: &KeySecret) -> Option<u128> {
    Some(Url::load(changed)?.group(secret))
}

/// Returns the path that a reference names, if it is on the same origin as `base` (RFC 3986 §5.2).
fn path_of(reference: &[u8], base: &Url<'_>) -> Option<Vec<u8>> {
    let end = reference.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(reference.len());
    let reference = &reference.get(..end).filter(|reference| reference.len() <= REFERENCE_BYTES_MAX)?;
    let scheme =
        reference.iter().position(|byte| *byte == b':').filter(|at| !reference[..*at].contains(&b'/'));
    let (is_tls, rest) = match scheme {
        Some(at) if reference[..at].eq_ignore_ascii_case(b"https") => (true, &reference[at + 1..]),
        Some(at) if reference[..at].eq_ignore_ascii_case(b"http") => (false, &reference[at + 1..]),
        Some(_) => return None,
        None => (base.tls, *reference),
    };
    let Some(after) = rest.strip_prefix(b"//") else {
        let is_relative = scheme.is_none();
        return is_relative.then(|| resolve(rest, &base.path.concat()));
    };
    let (authority, path) =
        after.split_at(after.iter().position(|byte| *byte == b'/').unwrap_or(after.len()));
    let parsed = egret_http1::AuthoritySpan::parse(authority)?;
    let is_host = parsed.host.of(authority).eq_ignore_ascii_case(base.host.as_bytes());
    let port = parsed.port.unwrap_or(if is_tls { 443 } else { 80 });
    let is_same = is_host && is_tls == base.tls && port == base.port;
    is_same.then(|| if path.is_empty() { b"/".to_vec() } else { resolve(path, b"/") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_on_the_same_origin_are_resolved_and_others_are_not_followed() {
        let path = [Cow::Borrowed(&b"/v1"[..]), Cow::Borrowed(&b"/a/b"[..])];
        let base = Url { tls: true, host: "h.example", port: 443, kept_host: None, path, query: None };
        for (reference, path) in [
            ("/x", Some("/x")),
            ("/x?q#f", Some("/x")),
            ("c", Some("/v1/a/c")),
            ("../c/./d/..", Some("/v1/c/")),
            ("/../..", Some("/")),
            ("", Some("/v1/a/b")),
            ("?q", Some("/v1/a/b")),
            ("https://h.example", Some("/")),
            ("HTTPS://H.example:443/x/y", Some("/x/y")),
            ("//h.example/x", Some("/x")),
            ("http://h.example/x", None),
            ("https://h.example:8443/x", None),
            ("https://other.example/x", None),
            ("https://h.example.evil/x", None),
            ("https://u@h.example/x", None),
            ("mailto:x", None),
            ("https:x", None),
        ] {
            assert_eq!(
                path_of(reference.as_bytes(), &base).as_deref(),
                path.map(str::as_bytes),
                "{reference}"
            );
        }
    }
}
