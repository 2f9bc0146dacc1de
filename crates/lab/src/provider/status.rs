//! Endpoints that respond with a requested status code, one of several, or occasional failures.

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::any;

use super::answer::{self, Answer, field_value};
use super::call::Call;
use super::endpoint::Endpoint;
use super::error::ProviderError;
use super::parameters::Parameters;

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        methods: "any",
        path: "/status/{code}",
        parameters: "`code` 100 to 599, or several with weights: `200:9,503:1`; `seed`",
        about: "This status code. 301, 302, 303, 305 and 307 redirect to `/redirect/1`, 300 and 308 to `/image/jpeg`; 401 and 407 carry a challenge; 300, 308, 402, 406 and 418 have content. An informational status code precedes a 200.",
        example: "/status/418",
        route: || any(status),
    },
    Endpoint {
        methods: "any",
        path: "/unstable",
        parameters: "`failure_rate` 0 to 1 (0.5); `seed`",
        about: "500 at this rate, otherwise 200.",
        example: "/unstable?failure_rate=0.1",
        route: || any(unstable),
    },
];

async fn status(Path(text): Path<String>, call: Call) -> Answer {
    let code = if text.contains(',') { weighted(&text, &call)? } else { parse(&text)? };
    Ok(of(code, &call.lab.options().prefix))
}

/// Parses a status code from 100 to 599.
pub(super) fn parse(text: &str) -> Result<StatusCode, ProviderError> {
    within(text, 100, 599)
}

/// Parses a status code within bounds.
pub(super) fn within(text: &str, min: u16, max: u16) -> Result<StatusCode, ProviderError> {
    let code = text.parse().ok().filter(|code| (min..=max).contains(code));
    code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or_else(|| {
        ProviderError::bad_request(format!(
            "invalid status code: {text:?} is not a number from {min} to {max}"
        ))
    })
}

/// Draws one of several status codes by weight. The default weight is 1.
fn weighted(text: &str, call: &Call) -> Result<StatusCode, ProviderError> {
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
    let answer = |content: String| answer::text(code, content);
    let located = |response, target: &str| {
        answer::with(response, header::LOCATION, field_value(&format!("{prefix}{target}")))
    };
    let challenge = HeaderValue::from_static("Basic realm=\"Fake Realm\"");
    let more_info = header::HeaderName::from_static("x-more-info");
    match code.as_u16() {
        300 => located(answer(choices_page(prefix)), "/image/jpeg"),
        301 | 302 | 303 | 305 | 307 => located(answer(String::new()), "/redirect/1"),
        308 => located(answer(moved_page(prefix)), "/image/jpeg"),
        // RFC 9110 §15.4.5: a 304 has no content, and no field that describes content.
        304 => answer::empty(code),
        401 => answer::with(answer(String::new()), header::WWW_AUTHENTICATE, challenge),
        402 => answer::with(
            answer("Pay first, please.".into()),
            more_info,
            HeaderValue::from_static("https://www.rfc-editor.org/rfc/rfc9110#section-15.5.3"),
        ),
        406 => answer::of(code, answer::JSON, NOT_ACCEPTABLE),
        407 => answer::with(answer(String::new()), header::PROXY_AUTHENTICATE, challenge),
        418 => answer::with(
            answer("I'm a teapot!".into()),
            more_info,
            HeaderValue::from_static("https://www.rfc-editor.org/rfc/rfc2324"),
        ),
        _ => answer(String::new()),
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

async fn unstable(call: Call) -> Answer {
    let parameters = Parameters::of(&call);
    let mut random = parameters.random()?;
    let rate = parameters.share("failure_rate", 0.5)?;
    let code = if random.unit() < rate { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    Ok(answer::text(code, ""))
}
