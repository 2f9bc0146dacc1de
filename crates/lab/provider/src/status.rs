//! Endpoints that respond with a requested status code, one of several, or occasional failures.

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::any;

use crate::call::ProviderCall;
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::parameters::Parameters;
use crate::random::Draw as _;
use crate::respond::{self, field_value};

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("any", "/status/{code}", || any(status))
        .about("This status code. 301, 302, 303, 305 and 307 redirect to `/redirect/1`, 300 and 308 to `/image/jpeg`; 401 and 407 carry a challenge; 300, 308, 402, 406 and 418 have content. An informational status code precedes a 200.")
        .parameters("`code` 100 to 599, or several with weights: `200:9,503:1`; `seed`")
        .example("/status/418"),
    Endpoint::new("any", "/unstable", || any(unstable))
        .about("500 at this rate, otherwise 200.")
        .parameters("`failure_rate` 0 to 1 (0.5); `seed`")
        .example("/unstable?failure_rate=0.1"),
];

async fn status(Path(text): Path<String>, call: ProviderCall) -> EndpointResult {
    let code = if text.contains(',') { weighted(&text, &call)? } else { parse(&text)? };
    Ok(of(code, &call.state.options().prefix))
}

/// Parses a status code from 100 to 599.
pub(crate) fn parse(text: &str) -> Result<StatusCode, ProviderError> {
    within(text, 100, 599)
}

/// Parses a status code within bounds.
pub(crate) fn within(text: &str, min: u16, max: u16) -> Result<StatusCode, ProviderError> {
    let code = text.parse().ok().filter(|code| (min..=max).contains(code));
    code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or_else(|| {
        ProviderError::bad_request(format!(
            "invalid status code: {text:?} is not a number from {min} to {max}"
        ))
    })
}

/// Draws one of several status codes by weight. The default weight is 1.
fn weighted(text: &str, call: &ProviderCall) -> Result<StatusCode, ProviderError> {
    let mut choices = Vec::new();
    let mut total = 0.0;
    for choice in text.split(',') {
        let (code, weight) = choice.split_once(':').unwrap_or((choice, "1"));
        let weight: Option<f64> =
            weight.parse().ok().filter(|weight: &f64| weight.is_finite() && *weight >= 0.0);
        let weight =
            weight.ok_or_else(|| ProviderError::bad_request(format!("invalid weight value: {choice:?}")))?;
        let code =
            parse(code).map_err(|_| ProviderError::bad_request(format!("invalid choice value: {code:?}")))?;
        total += weight;
        choices.push((code, total));
    }
    let drawn = Parameters::of(call).random()?.unit() * total;
    let chosen = choices.iter().find(|(_, up_to)| drawn < *up_to).map(|(code, _)| *code);
    chosen.ok_or_else(|| ProviderError::bad_request("invalid weights: all are zero"))
}

fn of(code: StatusCode, prefix: &str) -> Response {
    let with_text = |content: String| respond::text(code, content);
    let located = |response, target: &str| {
        respond::with(response, header::LOCATION, field_value(&format!("{prefix}{target}")))
    };
    let challenge = HeaderValue::from_static("Basic realm=\"Fake Realm\"");
    let more_info = header::HeaderName::from_static("x-more-info");
    match code.as_u16() {
        300 => located(with_text(choices_page(prefix)), "/image/jpeg"),
        301 | 302 | 303 | 305 | 307 => located(with_text(String::new()), "/redirect/1"),
        308 => located(with_text(moved_page(prefix)), "/image/jpeg"),
        // RFC 9110 §15.4.5: a 304 has no content, and no field that describes content.
        304 => respond::empty(code),
        401 => respond::with(with_text(String::new()), header::WWW_AUTHENTICATE, challenge),
        402 => respond::with(
            with_text("Pay first, please.".into()),
            more_info,
            HeaderValue::from_static("https://www.rfc-editor.org/rfc/rfc9110#section-15.5.3"),
        ),
        406 => respond::of(code, respond::JSON, NOT_ACCEPTABLE),
        407 => respond::with(with_text(String::new()), header::PROXY_AUTHENTICATE, challenge),
        418 => respond::with(
            with_text("I'm a teapot!".into()),
            more_info,
            HeaderValue::from_static("https://www.rfc-editor.org/rfc/rfc2324"),
        ),
        _ => with_text(String::new()),
    }
}

const NOT_ACCEPTABLE: &str = r#"{
  "message": "The client accepts none of the available media types",
  "accept": [
    "image/webp",
    "image/svg+xml",
    "image/jpeg",
    "image/png",
    "image/*"
  ]
}
"#;

fn choices_page(prefix: &str) -> String {
    let link = |kind| format!("<li><a href=\"{prefix}/image/{kind}\">/image/{kind}</a></li>\n");
    let links: String = ["jpeg", "png", "svg"].into_iter().map(link).collect();
    format!("<!doctype html>\n<title>Multiple Choices</title>\n<ul>\n{links}</ul>\n")
}

fn moved_page(prefix: &str) -> String {
    format!(
        "<!doctype html>\n<title>Permanent Redirect</title>\n<p>Moved to <a href=\"{prefix}/image/jpeg\">/image/jpeg</a> for good.\n"
    )
}

async fn unstable(call: ProviderCall) -> EndpointResult {
    let parameters = Parameters::of(&call);
    let mut random = parameters.random()?;
    let rate = parameters.share("failure_rate", 0.5)?;
    let code = if random.unit() < rate { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    Ok(respond::text(code, ""))
}

#[cfg(test)]
mod tests {
    use crate::fixture::get;

    #[tokio::test]
    async fn each_status_has_the_fields_that_its_clients_need() {
        for (code, field, value) in [
            (200, "content-type", "text/plain; charset=utf-8"),
            (301, "location", "/redirect/1"),
            (307, "location", "/redirect/1"),
            (308, "location", "/image/jpeg"),
            (401, "www-authenticate", "Basic realm=\"Fake Realm\""),
            (407, "proxy-authenticate", "Basic realm=\"Fake Realm\""),
            (406, "content-type", "application/json; charset=utf-8"),
            (418, "x-more-info", "https://www.rfc-editor.org/rfc/rfc2324"),
        ] {
            let response = get(&format!("/status/{code}")).await;
            assert_eq!((response.status, response.field(field)), (code, value));
        }
        let not_modified = get("/status/304").await;
        assert_eq!((not_modified.content.len(), not_modified.field("content-type")), (0, ""));
        assert_eq!(get("/status/418").await.text(), "I'm a teapot!");
    }

    #[tokio::test]
    async fn a_status_is_drawn_by_weight_and_seed() {
        let mut failed = 0;
        for seed in 0..300 {
            let target = format!("/status/200:9,503:1?seed={seed}");
            let response = get(&target).await;
            assert_eq!(response.status, get(&target).await.status, "the same for the same seed");
            failed += u32::from(response.status == 503);
        }
        assert!((18..42).contains(&failed), "{failed} of 300");
        let mut failed = 0;
        for seed in 0..300 {
            failed += u32::from(get(&format!("/unstable?failure_rate=0.3&seed={seed}")).await.status == 500);
        }
        assert!((66..114).contains(&failed), "{failed} of 300");
    }

    #[tokio::test]
    async fn an_invalid_status_is_refused_with_its_limits() {
        for (target, detail) in [
            ("/status/99", "invalid status code: \"99\" is not a number from 100 to 599"),
            ("/status/600", "invalid status code: \"600\" is not a number from 100 to 599"),
            ("/status/200:1,x:2", "invalid choice value: \"x\""),
            ("/status/200:-1,503:1", "invalid weight value: \"200:-1\""),
            ("/status/200:NaN,503:1", "invalid weight value: \"200:NaN\""),
            ("/status/200:0,503:0", "invalid weights: all are zero"),
            ("/unstable?failure_rate=1.1", "invalid failure_rate: write a number from 0 to 1"),
        ] {
            let response = get(target).await;
            assert_eq!((response.status, &response.json()["detail"]), (400, &detail.into()), "{target}");
        }
    }
}
