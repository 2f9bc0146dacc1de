//! Obfuscates URLs (RFC 3986). Scheme, host and port are kept, because they identify the API; everything else
//! is replaced.

use crate::exclusions::MessageExclusions;
use crate::key::Key;
use crate::parameters::{self, Encodings};
use crate::pseudonym::Pseudonym;

/// Schemes that may be shown.
const SCHEMES: [&str; 9] = ["http:", "https:", "ws:", "wss:", "data:", "blob:", "about:", "file:", "ftp:"];

/// Obfuscates a URL, or a reference such as `/path?query`. Adds its parameters to `spellings`.
pub(crate) fn obfuscate(
    key: &Key,
    side: &MessageExclusions,
    whole: &str,
    encodings: &mut Encodings,
) -> String {
    let pseudonym = |text: &str| key.text(text.as_bytes()).to_string();
    let (url, fragment) =
        whole.split_once('#').map_or((whole, None), |(url, fragment)| (url, Some(fragment)));
    let (url, query) = url.split_once('?').map_or((url, None), |(url, query)| (url, Some(query)));
    let (scheme, rest) = scheme(url);
    if !scheme.is_empty() && !SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        // It may be any text with a colon. The result only has to be an absolute URL.
        return format!("urn:{}", pseudonym(whole));
    }
    let mut obfuscated = scheme.to_owned();
    match rest.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            obfuscated.push_str("//");
            obfuscated.push_str(&obfuscate_authority(key, authority));
            obfuscated.push_str(&obfuscate_path(key, side, path));
        }
        // The rest of `data:` and similar URLs has no known structure.
        None if !scheme.is_empty() => obfuscated.push_str(&pseudonym(rest)),
        None => obfuscated.push_str(&obfuscate_path(key, side, rest)),
    }
    if let Some(query) = query {
        obfuscated.push('?');
        obfuscated.push_str(&parameters::obfuscate(key, query, |name| side.query(name), encodings));
    }
    if let Some(fragment) = fragment {
        obfuscated.push('#');
        obfuscated.push_str(&pseudonym(fragment));
    }
    obfuscated
}

/// Splits off the scheme with its colon.
fn scheme(url: &str) -> (&str, &str) {
    let end = url.find([':', '/']).filter(|at| url.as_bytes()[*at] == b':');
    url.split_at(end.map_or(0, |end| end + 1))
}

/// Obfuscates user and password. Host and port are kept.
fn obfuscate_authority(key: &Key, authority: &str) -> String {
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let mut obfuscated = String::new();
    if let Some(user) = user {
        // The password begins after the first colon and may contain others (RFC 3986 §3.2.1).
        let parts = user.splitn(2, ':').map(|part| key.text(&parameters::decode(part, false)).to_string());
        obfuscated = parts.collect::<Vec<_>>().join(":") + "@";
    }
    if is_host(host) {
        obfuscated.push_str(host);
    } else {
        obfuscated.push_str(key.text(host.as_bytes()).as_str());
    }
    obfuscated
}

/// Returns `true` if a text can be a host with an optional port.
pub(crate) fn is_host(text: &str) -> bool {
    text.len() <= 261 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte))
}

/// Obfuscates each segment separately. Empty segments, `.` and `..` are structure and kept. Only segments of
/// an absolute path can be excluded by position.
pub(crate) fn obfuscate_path(key: &Key, side: &MessageExclusions, path: &str) -> String {
    let none = MessageExclusions::default();
    let (root, path, side) = path.strip_prefix('/').map_or(("", path, &none), |path| ("/", path, side));
    let mut obfuscated = root.to_owned();
    for (index, segment) in path.split('/').enumerate() {
        if index > 0 {
            obfuscated.push('/');
        }
        match obfuscate_segment(key, side, index, segment) {
            Some(hidden) => obfuscated.push_str(hidden.as_str()),
            None => obfuscated.push_str(segment),
        }
    }
    obfuscated
}

/// Returns the pseudonym of a path segment, or `None` if it is kept.
pub(crate) fn obfuscate_segment(
    key: &Key,
    side: &MessageExclusions,
    index: usize,
    segment: &str,
) -> Option<Pseudonym> {
    let is_kept = matches!(segment, "" | "." | "..") || side.segment(index);
    (!is_kept).then(|| key.text(&parameters::decode(segment, false)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exclusions::Exclusions;

    #[test]
    fn the_host_stays_and_the_rest_does_not() {
        let key = Key::new(&[1; 32]);
        let pseudonym = |text: &str| key.text(text.as_bytes());
        let exclusions = Exclusions::compile(["request.path[0]", "request.query.page"]).unwrap();
        for (url, expected) in [
            ("https://api.example.com", "https://api.example.com".to_owned()),
            ("https://[::1]:8443/", "https://[::1]:8443/".to_owned()),
            ("http://a.com/v1/x%79/", format!("http://a.com/v1/{}/", pseudonym("xy"))),
            (
                "http://u:p@a.com//b?page=1&b=c#f",
                format!(
                    "http://{}:{}@a.com//{}?page=1&b={}#{}",
                    pseudonym("u"),
                    pseudonym("p"),
                    pseudonym("b"),
                    pseudonym("c"),
                    pseudonym("f")
                ),
            ),
            ("http://u:p:q@a.com/", format!("http://{}:{}@a.com/", pseudonym("u"), pseudonym("p:q"))),
            ("/v1/b?c", format!("/v1/{}?{}", pseudonym("b"), pseudonym("c"))),
            ("v1/b", format!("{}/{}", pseudonym("v1"), pseudonym("b"))),
            ("//a.com/b/c:d", format!("//a.com/b/{}", pseudonym("c:d"))),
            ("data:text/plain,secret", format!("data:{}", pseudonym("text/plain,secret"))),
            ("secret:text?a#b", format!("urn:{}", pseudonym("secret:text?a#b"))),
            ("http://my secret/", format!("http://{}/", pseudonym("my secret"))),
            ("../..", "../..".to_owned()),
        ] {
            assert_eq!(
                obfuscate(&key, &exclusions.request, url, &mut Encodings::default()),
                expected,
                "{url}"
            );
        }
    }
}
