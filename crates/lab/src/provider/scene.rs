//! Endpoints with state: failures that end after some calls, rate limits, and counters of both.

use std::time::Duration;

use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};

use super::answer::{self, Answer, field_value};
use super::call::Call;
use super::echo;
use super::endpoint::Endpoint;
use super::error::ProviderError;
use super::fault::{Fault, Spoiled};
use super::lab::Admission;
use super::options::RateLimit;
use super::parameters::Parameters;
use super::status;

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        methods: "any",
        path: "/fail/{count}",
        parameters: "`key` (the count); `status` 100 to 599 (503); `fault`, one of `/fault`'s, instead of a status; `retry_after` in seconds (none)",
        about: "Fails the first `count` calls of a key, then responds as `/anything`.",
        example: "/fail/2?key=mine",
        route: || any(fail),
    },
    Endpoint {
        methods: "any",
        path: "/rate-limit/{limit}/{window}",
        parameters: "`limit` calls per `window`, as `1s` or `0.5`; `key` (limit and window); `by`, a header field whose value is the key",
        about: "The response of `/anything` for `limit` calls per window, then 429 with `Retry-After`. `RateLimit` and `RateLimit-Policy` state the remaining quota.",
        example: "/rate-limit/5/10s",
        route: || any(rate_limit),
    },
    Endpoint {
        methods: "GET, DELETE",
        path: COUNTERS,
        parameters: "",
        about: "Numbers of calls, of faults, of calls that rate limits admitted and rejected, and of failures by key; DELETE resets them. Exempt from delays, limits and faults, and not counted.",
        example: "/counters",
        route: || get(counters).delete(forget),
    },
];

/// Path of the counters, which are exempt from delays, limits and faults.
pub(super) const COUNTERS: &str = "/counters";

/// Maximum of the `retry_after` parameter, in seconds.
const RETRY_AFTER_SECS_MAX: usize = 24 * 3_600;

async fn fail(Path(count): Path<String>, call: Call) -> Answer {
    let failing: u64 = count.parse().map_err(|_| ProviderError::parameter("count", "not a whole number"))?;
    let parameters = Parameters::of(&call);
    let code = call.query.get("status").map_or(Ok(StatusCode::SERVICE_UNAVAILABLE), status::parse)?;
    let fault: Option<Fault> = parameters.parsed("fault")?;
    let retry_after = parameters.count("retry_after", 0, 0..=RETRY_AFTER_SECS_MAX)?;
    let key = call.query.get("key").unwrap_or(&count);
    if !call.lab.fails(key, failing).map_err(|error| ProviderError::bad_request(error.to_string()))? {
        return echo::anything(call).await;
    }
    if let Some(fault) = fault {
        let mut response = echo::anything(call).await?;
        response.extensions_mut().insert(Spoiled::by(fault));
        return Ok(response);
    }
    let detail = format!("one of the first {failing} calls of key {key:?}, which fail");
    let response = ProviderError::with_detail(code, detail).into_response();
    if retry_after == 0 {
        return Ok(response);
    }
    Ok(answer::with(response, header::RETRY_AFTER, retry_after.into()))
}

async fn rate_limit(Path((limit, window)): Path<(String, String)>, call: Call) -> Answer {
    let rule =
        RateLimit::parse(&limit, &window).map_err(|error| ProviderError::parameter("rate limit", error))?;
    let of_path = format!("{limit}/{window}");
    let field: Option<HeaderName> = Parameters::of(&call).parsed("by")?;
    let key = match &field {
        Some(name) => call.field(name),
        None => call.query.get("key").unwrap_or(&of_path),
    };
    let admission =
        call.lab.admit_key(key, rule).map_err(|error| ProviderError::bad_request(error.to_string()))?;
    let response = if admission.admitted { echo::anything(call).await? } else { refusal(rule) };
    Ok(limited(response, rule, admission))
}

/// A response with 429 for a call that the rate limit rejects.
pub(super) fn refusal(rule: RateLimit) -> Response {
    let detail = format!("more than {} calls in {:?}", rule.limit, rule.window);
    ProviderError::with_detail(StatusCode::TOO_MANY_REQUESTS, detail).into_response()
}

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Adds the remaining quota to a response, in the fields of draft-ietf-httpapi-ratelimit-headers. Adds
/// `Retry-After` if the call was rejected.
pub(super) fn limited(mut response: Response, rule: RateLimit, admission: Admission) -> Response {
    let reset = seconds(admission.reset);
    let fields = response.headers_mut();
    fields.insert(
        RATE_LIMIT_POLICY,
        field_value(&format!("\"default\";q={};w={}", rule.limit, seconds(rule.window))),
    );
    fields.insert(RATE_LIMIT, field_value(&format!("\"default\";r={};t={reset}", admission.remaining)));
    if !admission.admitted {
        fields.insert(header::RETRY_AFTER, HeaderValue::from(reset));
    }
    response
}

/// Converts to whole seconds, rounded up: an earlier retry would fail.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

async fn counters(call: Call) -> Response {
    call.lab.counted()
}

async fn forget(call: Call) -> Response {
    call.lab.forget();
    answer::empty(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_to_wait_until_the_window_is_surely_over() {
        assert_eq!(seconds(Duration::from_millis(1_001)), 2);
        assert_eq!(seconds(Duration::from_secs(1)), 1);
        assert_eq!(seconds(Duration::ZERO), 0);
    }
}
