//! Endpoints with state: failures that end after some calls, rate limits, and counters of both.

use std::time::Duration;

use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};

use crate::call::ProviderCall;
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::fault_kind::Fault;
use crate::injected_fault::InjectedFault;
use crate::options::RateLimit;
use crate::parameters::Parameters;
use crate::respond::{self, field_value};
use crate::state::Admission;
use crate::{echo, status};

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("any", "/fail/{count}", || any(fail))
        .about("Fails the first `count` calls of a key, then responds as `/anything`.")
        .parameters(
            "`key` (the count); `status` 100 to 599 (503); `fault`, one of `/fault`'s, instead of a status; `retry_after` in seconds (none)",
        )
        .example("/fail/2?key=mine"),
    Endpoint::new("any", "/rate-limit/{limit}/{window}", || any(rate_limit))
        .about("The response of `/anything` for `limit` calls per window, then 429 with `Retry-After`. `RateLimit` and `RateLimit-Policy` state the remaining quota.")
        .parameters(
            "`limit` calls per `window`, as `1s` or `0.5`; `key` (limit and window); `by`, a header field whose value is the key",
        )
        .example("/rate-limit/5/10s"),
    Endpoint::new("GET, DELETE", COUNTERS, || get(counters).delete(reset))
        .about("Numbers of calls, of faults, of calls that rate limits admitted and rejected, and in the busiest window, and of failures by key; DELETE resets them. Exempt from delays, limits and faults, and not counted.")
        .example("/counters"),
];

/// Path of the counters, which are exempt from delays, limits and faults.
pub(crate) const COUNTERS: &str = "/counters";

/// Maximum of the `retry_after` parameter, in seconds.
const RETRY_AFTER_SECS_MAX: usize = 24 * 3_600;

async fn fail(Path(count): Path<String>, call: ProviderCall) -> EndpointResult {
    let failing: u64 = count.parse().map_err(|_| ProviderError::parameter("count", "not a whole number"))?;
    let parameters = Parameters::of(&call);
    let code = call.query.get("status").map_or(Ok(StatusCode::SERVICE_UNAVAILABLE), status::parse)?;
    let fault: Option<Fault> = parameters.parsed("fault")?;
    let retry_after = parameters.count("retry_after", 0, 0..=RETRY_AFTER_SECS_MAX)?;
    let key = call.query.get("key").unwrap_or(&count);
    if !call.state.fails(key, failing).map_err(|error| ProviderError::bad_request(error.to_string()))? {
        return echo::anything(call).await;
    }
    if let Some(fault) = fault {
        let mut response = echo::anything(call).await?;
        response.extensions_mut().insert(InjectedFault::new(fault));
        return Ok(response);
    }
    let detail = format!("one of the first {failing} calls of key {key:?}, which fail");
    let response = ProviderError::with_detail(code, detail).into_response();
    if retry_after == 0 {
        return Ok(response);
    }
    Ok(respond::with(response, header::RETRY_AFTER, retry_after.into()))
}

async fn rate_limit(Path((limit, window)): Path<(String, String)>, call: ProviderCall) -> EndpointResult {
    let rule =
        RateLimit::parse(&limit, &window).map_err(|error| ProviderError::parameter("rate limit", error))?;
    let of_path = format!("{limit}/{window}");
    let field: Option<HeaderName> = Parameters::of(&call).parsed("by")?;
    let key = match &field {
        Some(name) => call.field(name),
        None => call.query.get("key").unwrap_or(&of_path),
    };
    let admission =
        call.state.admit_key(key, rule).map_err(|error| ProviderError::bad_request(error.to_string()))?;
    let response = if admission.admitted { echo::anything(call).await? } else { rejection(rule) };
    Ok(with_quota_fields(response, rule, admission))
}

/// A response with 429 for a call that the rate limit rejects.
pub(crate) fn rejection(rule: RateLimit) -> Response {
    let detail = format!("more than {} calls in {:?}", rule.limit, rule.window);
    ProviderError::with_detail(StatusCode::TOO_MANY_REQUESTS, detail).into_response()
}

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Adds the remaining quota to a response, in the fields of draft-ietf-httpapi-ratelimit-headers. Adds
/// `Retry-After` if the call was rejected.
pub(crate) fn with_quota_fields(mut response: Response, rule: RateLimit, admission: Admission) -> Response {
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

async fn counters(call: ProviderCall) -> Response {
    call.state.counters()
}

async fn reset(call: ProviderCall) -> Response {
    call.state.reset_counters();
    respond::empty(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{TestProvider, request};
    use crate::options::Options;

    #[test]
    fn a_client_is_told_to_wait_until_the_window_is_surely_over() {
        assert_eq!(seconds(Duration::from_millis(1_001)), 2);
        assert_eq!(seconds(Duration::from_secs(1)), 1);
        assert_eq!(seconds(Duration::ZERO), 0);
    }

    #[tokio::test]
    async fn the_first_calls_of_a_key_fail_as_asked() {
        let provider = TestProvider::new(Options::default());
        let target = "/fail/2?key=k&status=502&retry_after=7";
        for _ in 0..2 {
            let failed = provider.get(target).await;
            assert_eq!((failed.status, failed.field("retry-after")), (502, "7"));
            assert_eq!(failed.json()["detail"], "one of the first 2 calls of key \"k\", which fail");
        }
        assert_eq!(provider.get(target).await.status, 200);
        assert_eq!(provider.get("/fail/1").await.status, 503, "its count is the default key");
        let counters = provider.get(COUNTERS).await.json();
        assert_eq!(counters["failures"]["k"], serde_json::json!({ "failed": 2, "succeeded": 1 }));
        assert_eq!(counters["requests"], 4, "the counters are not counted");
        assert_eq!(provider.send(request("DELETE", COUNTERS, &[], "")).await.status, 204);
        assert_eq!(provider.get(target).await.status, 502);
    }

    #[tokio::test]
    async fn a_rate_limit_states_what_is_left_and_refuses_beyond_it() {
        let provider = TestProvider::new(Options::default());
        let target = "/rate-limit/2/1h?key=k";
        for remaining in ["1", "0"] {
            let admitted = provider.get(target).await;
            assert_eq!(
                (admitted.status, admitted.field("ratelimit-policy")),
                (200, "\"default\";q=2;w=3600")
            );
            assert!(admitted.field("ratelimit").starts_with(&format!("\"default\";r={remaining};t=3")));
            assert_eq!(admitted.field("retry-after"), "");
        }
        let refused = provider.get(target).await;
        assert_eq!(refused.status, 429);
        assert!(
            (3_590..=3_600).contains(&refused.field("retry-after").parse::<u64>().unwrap()),
            "{refused:?}"
        );
        assert_eq!(refused.json()["detail"], "more than 2 calls in 3600s");
        let limits = &provider.get(COUNTERS).await.json()["rate_limits"]["k"];
        assert_eq!(
            limits,
            &serde_json::json!({ "limit": 2, "window_ms": 3_600_000, "admitted": 2, "refused": 1, "busiest": 3, "recent": 3 })
        );
        assert_eq!(provider.get("/rate-limit/3/1h?key=k").await.status, 200, "another limit begins again");
    }

    #[tokio::test]
    async fn each_value_of_a_field_has_a_limit_of_its_own() {
        let provider = TestProvider::new(Options::default());
        let call =
            |user| provider.send(request("GET", "/rate-limit/1/1h?by=x-user", &[("x-user", user)], ""));
        let statuses = [call("a").await.status, call("b").await.status, call("a").await.status];
        assert_eq!(statuses, [200, 200, 429]);
        for target in ["/rate-limit/x/1s", "/rate-limit/1/0", "/rate-limit/1/1s?by=a%20b"] {
            assert_eq!(provider.get(target).await.status, 400, "{target}");
        }
    }
}
