//! Endpoints that redirect.

use std::fmt::Write as _;

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::any;

use crate::call::ProviderCall;
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::respond::{self, field_value};
use crate::status;

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("any", "/redirect/{n}", || any(redirect))
        .about("302, `n` times, ending at `/get`.")
        .parameters("`n` from 1; `absolute=true` for absolute locations")
        .example("/redirect/3"),
    Endpoint::new("any", "/relative-redirect/{n}", || any(relative))
        .about("As `/redirect`, with relative locations.")
        .parameters("`n` from 1")
        .example("/relative-redirect/3"),
    Endpoint::new("any", "/absolute-redirect/{n}", || any(absolute))
        .about("As `/redirect`, with absolute locations.")
        .parameters("`n` from 1")
        .example("/absolute-redirect/3"),
    Endpoint::new("any", "/redirect-to", || any(redirect_to))
        .about("A redirect to `url`. 403 for a host that is not allowed.")
        .parameters("`url`, required: absolute, or with a leading slash; `status_code` 300 to 399 (302)")
        .example("/redirect-to?url=/get&status_code=307"),
];

async fn redirect(Path(n): Path<String>, call: ProviderCall) -> EndpointResult {
    let is_absolute = call.query.get("absolute").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    chain(&n, &call, is_absolute)
}

async fn relative(Path(n): Path<String>, call: ProviderCall) -> EndpointResult {
    chain(&n, &call, false)
}

async fn absolute(Path(n): Path<String>, call: ProviderCall) -> EndpointResult {
    chain(&n, &call, true)
}

fn chain(n: &str, call: &ProviderCall, is_absolute: bool) -> EndpointResult {
    let n: i64 = n.parse().map_err(|_| ProviderError::parameter("redirect count", "not a whole number"))?;
    if n < 1 {
        return Err(ProviderError::bad_request("redirect count must be > 0"));
    }
    let kind = if is_absolute { "absolute" } else { "relative" };
    let path = if n == 1 { "/get".to_owned() } else { format!("/{kind}-redirect/{}", n - 1) };
    let site = if is_absolute { call.site() } else { String::new() };
    Ok(to(StatusCode::FOUND, &format!("{site}{}{path}", call.state.options().prefix)))
}

/// A redirect without content.
pub(crate) fn to(code: StatusCode, location: &str) -> Response {
    respond::with(respond::empty(code), header::LOCATION, field_value(location))
}

async fn redirect_to(call: ProviderCall) -> EndpointResult {
    let Some(url) = call.query.get("url") else {
        return Err(ProviderError::bad_request("missing required query parameter: url"));
    };
    let target = Target::parse(url).ok_or_else(|| ProviderError::parameter("url", "not a URL"))?;
    let options = call.state.options();
    if !target.is_allowed(&options.redirect_hosts) {
        let message = if options.redirect_hosts.is_empty() {
            "Neither an absolute URL nor a path with a leading slash.\n".to_owned()
        } else {
            format!("Redirects are allowed only to: {}\n", options.redirect_hosts.join(", "))
        };
        return Ok(respond::of(StatusCode::FORBIDDEN, HeaderValue::from_static("text/plain"), message));
    }
    let code = match call.query.get("status_code") {
        None => StatusCode::FOUND,
        Some(text) => status::within(text, 300, 399)?,
    };
    let is_rooted = url.starts_with('/') && !url.starts_with("//");
    let prefix = if is_rooted { options.prefix.as_str() } else { "" };
    Ok(to(code, &format!("{prefix}{}", escaped(url))))
}

/// The parts of a URL that decide whether a redirect to it is allowed.
struct Target<'a> {
    is_absolute: bool,
    host: &'a str,
    path: &'a str,
}

impl<'a> Target<'a> {
    /// Parses a URL. Returns `None` for control bytes, broken escapes, or a colon without a scheme before it.
    fn parse(url: &'a str) -> Option<Self> {
        let broken_escape = url.split('%').skip(1).any(|rest| {
            !rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        });
        if broken_escape || url.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return None;
        }
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let (is_absolute, rest) = match url.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (true, rest),
            Some((before, _)) if !before.contains('/') => return None,
            _ => (false, url),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let host = authority.rsplit('@').next().unwrap_or_default();
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        Some(Self { is_absolute, host, path })
    }

    fn is_allowed(&self, hosts: &[String]) -> bool {
        if !hosts.is_empty() && !self.host.is_empty() {
            return hosts.iter().any(|host| host == self.host);
        }
        self.is_absolute || self.path.starts_with('/')
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'))
}

/// Percent-encodes the bytes that are not allowed in a URL.
fn escaped(url: &str) -> String {
    let mut text = String::with_capacity(url.len());
    for byte in url.bytes() {
        if byte.is_ascii_graphic()
            && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
        {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{TestProvider, get};
    use crate::options::Options;

    #[test]
    fn a_redirect_leads_to_an_absolute_url_or_a_rooted_path() {
        let allowed = |url: &str, hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            Target::parse(url).map(|target| target.is_allowed(&hosts))
        };
        for url in ["http://a.test/x", "/x", "//a.test/x", "mailto:a@b", "HTTP://u:p@a.test:80?x"] {
            assert_eq!(allowed(url, &[]), Some(true), "{url}");
        }
        assert_eq!(allowed("x/y", &[]), Some(false));
        for url in ["1:x", ":x", "a%zz", "a%2", "a\nb"] {
            assert_eq!(allowed(url, &[]), None, "{url:?}");
        }
        assert_eq!(allowed("http://a.test:8/", &["a.test"]), Some(true));
        assert_eq!(allowed("http://a.test@b.test/", &["a.test"]), Some(false));
        assert_eq!(allowed("/x", &["a.test"]), Some(true));
    }

    #[test]
    fn a_location_holds_only_what_may_stand_in_a_url() {
        assert_eq!(escaped("http://a/ä b%20?x=[1]"), "http://a/%C3%A4%20b%20?x=[1]");
    }

    #[tokio::test]
    async fn a_chain_of_redirects_ends_after_its_count() {
        for start in
            ["/redirect/4", "/relative-redirect/4", "/absolute-redirect/4", "/redirect/4?absolute=true"]
        {
            let mut target = start.to_owned();
            let mut count = 0;
            while let response = get(&target).await
                && response.status == 302
            {
                let location = response.field("location");
                let is_absolute = location.starts_with("http://a.test/");
                assert_eq!(is_absolute, start.contains("absolute"), "{location}");
                target = location.trim_start_matches("http://a.test").to_owned();
                count += 1;
            }
            assert_eq!((count, target.as_str()), (4, "/get"), "{start}");
        }
        for (target, detail) in [
            ("/redirect/0", "redirect count must be > 0"),
            ("/redirect/x", "invalid redirect count: not a whole number"),
        ] {
            assert_eq!(get(target).await.json()["detail"], detail);
        }
    }

    #[tokio::test]
    async fn a_redirect_goes_only_to_the_hosts_that_are_allowed() {
        let options =
            Options { redirect_hosts: vec!["b.test".into()], prefix: "/p".into(), ..Options::default() };
        let provider = TestProvider::new(options);
        let found = |target: &'static str| {
            let provider = &provider;
            async move {
                let response = provider.get(target).await;
                (response.status, response.field("location").to_owned())
            }
        };
        assert_eq!(found("/p/redirect-to?url=http://b.test/x").await, (302, "http://b.test/x".into()));
        assert_eq!(found("/p/redirect-to?url=/x&status_code=307").await, (307, "/p/x".into()));
        assert_eq!(found("/p/redirect-to?url=http://c.test/x").await, (403, String::new()));
        assert_eq!(found("/p/redirect-to?url=http://c.test@b.test/").await.0, 302, "the host is b.test");
        assert_eq!(found("/p/redirect-to?url=/x&status_code=200").await.0, 400);
        assert_eq!(found("/p/redirect-to").await.0, 400);
    }
}
