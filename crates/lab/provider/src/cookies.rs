//! Endpoints that show, set and delete cookies (RFC 6265).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::routing::any;
use egret_clock::http_date;
use serde_json::json;

use crate::call::ProviderCall;
use crate::endpoint::Endpoint;
use crate::redirect;
use crate::respond::{self, field_value};

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("any", "/cookies", || any(cookies)).about("The request's cookies."),
    Endpoint::new("any", "/cookies/set", || any(set))
        .about("302 to `/cookies` that sets these cookies.")
        .parameters(
            "any: each becomes a cookie; `attr[Domain]`, `attr[HttpOnly]` (true), `attr[Path]` (/), `attr[SameSite]`, `attr[Secure]` (true over TLS) for all of them",
        )
        .example("/cookies/set?name=value"),
    Endpoint::new("any", "/cookies/delete", || any(delete))
        .about("302 to `/cookies` that deletes these cookies.")
        .parameters("as `/cookies/set`; values are ignored")
        .example("/cookies/delete?name"),
];

/// Distance of a deleted cookie's expiry date in the past.
const YEAR: Duration = Duration::from_hours(365 * 24);

async fn cookies(call: ProviderCall) -> Response {
    let lines = call.headers().get_all(header::COOKIE);
    let lines: Vec<_> = lines.iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
    let pairs = lines.iter().flat_map(|line| line.split(';'));
    let cookies: BTreeMap<&str, &str> = pairs.filter_map(cookie).collect();
    respond::json(StatusCode::OK, &json!({ "cookies": cookies }))
}

/// Parses a cookie's name and its value without quotes.
fn cookie(pair: &str) -> Option<(&str, &str)> {
    let (name, value) = pair.trim().split_once('=').unwrap_or((pair.trim(), ""));
    let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let valid =
        unquoted.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b';' | b'\\'));
    (is_token(name) && valid).then_some((name, unquoted))
}

fn is_token(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed)
}

async fn set(call: ProviderCall) -> Response {
    set_all(&call, "")
}

async fn delete(call: ProviderCall) -> Response {
    let expired = SystemTime::now().checked_sub(YEAR).unwrap_or(SystemTime::UNIX_EPOCH);
    set_all(&call, &format!("; Expires={}; Max-Age=0", http_date::write_system_time(expired)))
}

fn set_all(call: &ProviderCall, lifetime: &str) -> Response {
    let attributes = Attributes::of(call);
    let mut response = redirect::to(StatusCode::FOUND, &format!("{}/cookies", call.state.options().prefix));
    let mut named = std::collections::BTreeSet::new();
    for (name, value) in call.query.pairs() {
        if attribute(name).is_none() && is_token(name) && named.insert(name) {
            let line = format!("{name}={}{}", quoted(value), attributes.written(lifetime));
            response.headers_mut().append(header::SET_COOKIE, field_value(&line));
        }
    }
    response
}

/// Makes a value safe for Set-Cookie: removes characters that would end it, and quotes it if it has a space
/// or a comma.
fn quoted(value: &str) -> String {
    let value: String = value
        .chars()
        .filter(|letter| matches!(letter, ' '..='~') && !matches!(letter, '"' | ';' | '\\'))
        .collect();
    if value.contains([' ', ',']) { format!("\"{value}\"") } else { value }
}

/// The attribute's name in `attr[Name]`.
fn attribute(parameter: &str) -> Option<&str> {
    parameter.strip_prefix("attr[")?.strip_suffix(']')
}

struct Attributes {
    domain: Option<String>,
    http_only: bool,
    path: String,
    same_site: Option<&'static str>,
    secure: bool,
}

impl Attributes {
    fn of(call: &ProviderCall) -> Self {
        let mut attributes = Self {
            domain: None,
            http_only: true,
            path: "/".to_owned(),
            same_site: None,
            secure: call.scheme() == "https",
        };
        for (name, value) in call.query.pairs() {
            let is_true = value == "1" || value.eq_ignore_ascii_case("true");
            match attribute(name).map(str::to_ascii_lowercase).as_deref() {
                Some("domain") => attributes.domain = Some(value.trim_start_matches('.').to_owned()),
                Some("httponly") => attributes.http_only = is_true,
                Some("path") => attributes.path = value.replace(';', ""),
                Some("samesite") => attributes.same_site = same_site(value),
                Some("secure") => attributes.secure = is_true,
                _ => {}
            }
        }
        attributes
    }

    fn written(&self, lifetime: &str) -> String {
        let mut text = if self.path.is_empty() { String::new() } else { format!("; Path={}", self.path) };
        if let Some(domain) = self.domain.as_deref().filter(|domain| is_domain(domain)) {
            text.extend(["; Domain=", domain]);
        }
        text.push_str(lifetime);
        text.push_str(if self.http_only { "; HttpOnly" } else { "" });
        text.push_str(if self.secure { "; Secure" } else { "" });
        text.extend(self.same_site.into_iter().flat_map(|site| ["; SameSite=", site]));
        text
    }
}

fn same_site(value: &str) -> Option<&'static str> {
    ["Strict", "Lax", "None"].into_iter().find(|site| site.eq_ignore_ascii_case(value))
}

fn is_domain(domain: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    !domain.is_empty() && domain.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::get_with;

    #[test]
    fn cookies_are_read_as_pairs_without_their_quotes() {
        assert_eq!(cookie(" a=1"), Some(("a", "1")));
        assert_eq!(cookie("b=\"2 3\""), Some(("b", "2 3")));
        assert_eq!(cookie("c"), Some(("c", "")));
        assert_eq!((cookie("d e=1"), cookie("=1"), cookie("f=\\")), (None, None, None));
    }

    #[test]
    fn a_value_cannot_end_its_cookie() {
        assert_eq!(quoted("a; Domain=evil"), "\"a Domain=evil\"");
        assert_eq!(quoted("plain\r\n"), "plain");
    }

    /// The `Set-Cookie` lines of a response.
    async fn lines(target: &str, fields: &[(&str, &str)]) -> Vec<String> {
        let response = get_with(target, fields).await;
        assert_eq!((response.status, response.field("location")), (302, "/cookies"));
        response.fields.get_all("set-cookie").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    #[tokio::test]
    async fn cookies_are_set_with_the_attributes_asked_for() {
        assert_eq!(
            lines("/cookies/set?a=1&b=x%20y", &[]).await,
            ["a=1; Path=/; HttpOnly", "b=\"x y\"; Path=/; HttpOnly"]
        );
        let attributes =
            "attr[Path]=/p&attr[Domain]=.a.test&attr[HttpOnly]=0&attr[Secure]=1&attr[SameSite]=lax";
        let target = format!("/cookies/set?a=1&{attributes}").replace('[', "%5B").replace(']', "%5D");
        assert_eq!(lines(&target, &[]).await, ["a=1; Path=/p; Domain=a.test; Secure; SameSite=Lax"]);
        let over_tls = [("x-forwarded-proto", "https")];
        assert_eq!(lines("/cookies/set?a=1", &over_tls).await, ["a=1; Path=/; HttpOnly; Secure"]);
        let invalid = "/cookies/set?a=1&attr%5BDomain%5D=a;b&attr%5BSameSite%5D=no&b%20c=1";
        assert_eq!(
            lines(invalid, &[]).await,
            ["a=1; Path=/; HttpOnly"],
            "what would end the line is left out"
        );
    }

    #[tokio::test]
    async fn a_cookie_is_deleted_by_a_date_in_the_past() {
        let lines = lines("/cookies/delete?a", &[]).await;
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(
            line.starts_with("a=; Path=/; Expires=") && line.ends_with(" GMT; Max-Age=0; HttpOnly"),
            "{line}"
        );
    }

    #[tokio::test]
    async fn the_cookies_of_all_lines_are_shown() {
        let sent = [("cookie", "a=1; b=\"2\""), ("cookie", "c=3; d e=4")];
        assert_eq!(
            get_with("/cookies", &sent).await.json()["cookies"],
            serde_json::json!({"a": "1", "b": "2", "c": "3"})
        );
    }
}
