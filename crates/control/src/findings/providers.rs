//! Findings about providers: they fail, throttle, reject credentials, or are slower than usual.

use egret_observe::stats::ErrorCount;

use super::sample::{CountersSample, ProviderSample};
use super::trouble::{FindingKind, Severity, Trouble, WINDOW_S, number_of, percent};
use crate::history::UsualWait;

/// A provider fails if so many calls of the window do, and this percentage of them.
const FAILED_MIN: u64 = 3;
const FAILED_PERCENT_MIN: u64 = 10;
/// With few calls, it fails if so many calls of the last minute do, and this percentage of them.
const FEW_FAILED_MIN: u64 = 2;
const FEW_FAILED_PERCENT_MIN: u64 = 50;
/// From this percentage on, most calls fail.
const MOST_PERCENT: u64 = 50;
/// Number of responses in the window that show how fast a provider is.
const ANSWERED_MIN: u64 = 10;
/// A provider is slow if it takes so many times as long as usual, and at least so much longer.
const SLOW_FACTOR: u64 = 3;
const SLOW_MIN_US: u64 = 50_000;

/// Returns the troubles of all providers. `minute` is the oldest sample.
pub(super) fn troubles(
    current: &CountersSample,
    before: &CountersSample,
    minute: &CountersSample,
    usual: &dyn Fn(&str) -> Option<UsualWait>,
) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    for (name, provider) in current.providers() {
        let calls = Calls::of(provider, before.provider(name));
        let of_minute = Calls::of(provider, minute.provider(name));
        let failing = failing(name, &calls).or_else(|| rarely_failing(name, &calls, &of_minute));
        let is_failing = failing.is_some();
        troubles.extend(failing);
        troubles.extend(throttling(name, &calls));
        troubles.extend(rejecting(name, &calls));
        if !is_failing {
            troubles.extend(slow(name, &calls, usual));
        }
    }
    troubles
}

/// The calls of a provider in some time.
struct Calls {
    count: u64,
    answered: u64,
    waited_us: u64,
    errors: Vec<ErrorCount>,
}

impl Calls {
    fn of(provider: &ProviderSample, before: Option<&ProviderSample>) -> Self {
        let (answered, waited_us) = provider.waits_since(before);
        let errors = provider.call_errors_since(before);
        Self { count: provider.calls_since(before), answered, waited_us, errors }
    }

    fn count_of(&self, name: &str) -> u64 {
        self.errors.iter().find(|error| error.name == name).map_or(0, |error| error.count)
    }

    /// Returns the errors that are the provider's failures.
    fn failures(&self) -> Vec<&ErrorCount> {
        self.errors.iter().filter(|error| !matches!(error.name, "401" | "403" | "429")).collect()
    }

    fn failed(&self) -> u64 {
        self.failures().iter().map(|error| error.count).sum::<u64>().min(self.count)
    }
}

fn failing(name: &str, calls: &Calls) -> Option<Trouble> {
    let failed = calls.failed();
    let is_failing = failed >= FAILED_MIN && percent(failed, calls.count) >= FAILED_PERCENT_MIN;
    is_failing.then(|| failure(name, calls, &format!("the last {WINDOW_S} s")))
}

/// Judges a provider with few calls by the last minute.
fn rarely_failing(name: &str, calls: &Calls, minute: &Calls) -> Option<Trouble> {
    let (failed, failed_now) = (minute.failed(), calls.failed());
    let is_failing = failed >= FEW_FAILED_MIN
        && percent(failed, minute.count) >= FEW_FAILED_PERCENT_MIN
        && percent(failed_now, calls.count) >= FEW_FAILED_PERCENT_MIN;
    is_failing.then(|| failure(name, minute, "the last minute"))
}

fn failure(name: &str, calls: &Calls, time: &str) -> Trouble {
    let (failed, failures) = (calls.failed(), calls.failures());
    let parts = failures.iter().map(|error| format!("{} × {}", error.count, error.name));
    let first = failures.first();
    let cause = first.map_or("", |error| &*error.cause);
    let most = percent(failed, calls.count) >= MOST_PERCENT;
    Trouble {
        kind: FindingKind::ProviderFailing,
        severity: if most { Severity::Error } else { Severity::Warning },
        subject: name.to_owned(),
        summary: format!("calls to {name} fail: {}", first.map_or("", |error| meaning(error.name))),
        evidence: format!(
            "{failed} of {} in {time}: {}; the last one: {cause}",
            number_of(calls.count, "call"),
            parts.collect::<Vec<_>>().join(", ")
        ),
        advice: first.map_or("", |error| advice(error.name)).to_owned(),
        since: None,
    }
}

/// Returns what an error of a call means, in words.
fn meaning(error: &str) -> &'static str {
    match error {
        "5xx" => "it responds with server errors",
        "grpc-unavailable" => "its gRPC service is unavailable",
        "grpc-deadline-exceeded" => "its gRPC calls exceed their deadline",
        status if status.starts_with("grpc-") => "its gRPC service fails",
        "dns-failed" => "its name has no address",
        "dns-timeout" => "no name server responds",
        "connect-failed" => "it refuses connections or cannot be reached",
        "connect-timeout" => "connections take too long to open",
        "tls-failed" => "the TLS handshake fails",
        "tls-timeout" => "the TLS handshake takes too long",
        "provider-closed" => "it closes connections in the middle of a call",
        proxy if proxy.starts_with("proxy-") => "the proxy in front of it opens no tunnel",
        "first-byte-timeout" | "total-timeout" => "it does not respond in time",
        "idle-timeout" => "it stalls in the middle of a call",
        _ => "its responses cannot be used",
    }
}

/// Returns what to do about an error of a call.
fn advice(error: &str) -> &'static str {
    match error {
        "grpc-unavailable" => {
            "see the provider's status page; `retry: { on: [grpc-unavailable] }` repeats calls that may be repeated"
        }
        status if status.starts_with("grpc-") => "look at the calls with `egret tail --failed`",
        "5xx" => {
            "see the provider's status page; `retry`, `circuit-breaker` and `fallback` protect your users meanwhile"
        }
        "dns-failed" | "dns-timeout" => {
            "check the host name in the provider's `url` and this machine's name servers"
        }
        "connect-failed" | "connect-timeout" => {
            "check that the provider runs at the address in its `url`, and that no firewall is between"
        }
        "tls-failed" | "tls-timeout" => {
            "check the provider's certificate with `egret doctor --probe`; a private authority goes under `providers.*.tls.ca`"
        }
        "first-byte-timeout" | "total-timeout" | "idle-timeout" => {
            "see the provider's status page; if such times are normal, raise the limit under `timeouts`"
        }
        "provider-closed" => "see the provider's status page; `retry` repeats calls that may be repeated",
        "proxy-credentials" => "set `username` and `password` of the proxy, which asks for other ones",
        proxy if proxy.starts_with("proxy-") => {
            "check the proxy that the cause names; a provider that needs none has `proxy: none`"
        }
        _ => "look at a response with `egret tail --status 502`",
    }
}

fn throttling(name: &str, calls: &Calls) -> Option<Trouble> {
    let throttled = calls.count_of("429");
    let is_throttling = throttled >= FAILED_MIN && percent(throttled, calls.count) >= FAILED_PERCENT_MIN
        || throttled > 0 && percent(throttled, calls.count) >= MOST_PERCENT;
    is_throttling.then(|| Trouble {
        kind: FindingKind::ProviderThrottling,
        severity: Severity::Warning,
        subject: name.to_owned(),
        summary: format!("{name} throttles: it responds with 429"),
        evidence: format!("{throttled} of {} in the last {WINDOW_S} s", number_of(calls.count, "call")),
        advice:
            "stay within its limit with `limit` or `queue`, or respect its pauses with `provider-throttle`"
                .to_owned(),
        since: None,
    })
}

fn rejecting(name: &str, calls: &Calls) -> Option<Trouble> {
    let rejected = calls.count_of("401") + calls.count_of("403");
    let is_rejecting = rejected >= FEW_FAILED_MIN && percent(rejected, calls.count) >= FEW_FAILED_PERCENT_MIN;
    is_rejecting.then(|| Trouble {
        kind: FindingKind::CredentialsRejected,
        severity: Severity::Error,
        subject: name.to_owned(),
        summary: format!("{name} rejects the credentials: it responds with 401 or 403"),
        evidence: format!(
            "{rejected} of {} in the last {WINDOW_S} s",
            number_of(calls.count, "call")
        ),
        advice: "check the key that the application or the account sends: it may be wrong, expired, or without the permission"
            .to_owned(),
        since: None,
    })
}

fn slow(name: &str, calls: &Calls, usual: &dyn Fn(&str) -> Option<UsualWait>) -> Option<Trouble> {
    if calls.answered < ANSWERED_MIN {
        return None;
    }
    let UsualWait { hour_us: usual_us, yesterday_us } = usual(name)?;
    let yesterday = yesterday_us.map(|us| format!(", and after {} ms at this time yesterday", us / 1_000));
    let now_us = calls.waited_us / calls.answered;
    let is_slow = now_us >= SLOW_FACTOR * usual_us && now_us >= usual_us + SLOW_MIN_US;
    is_slow.then(|| Trouble {
        kind: FindingKind::ProviderSlow,
        severity: Severity::Warning,
        subject: name.to_owned(),
        summary: format!("{name} is {} times as slow as usual", now_us / usual_us.max(1)),
        evidence: format!(
            "its responses begin after {} ms on average in the last {WINDOW_S} s, after {} ms in the hour before{}",
            now_us / 1_000,
            usual_us / 1_000,
            yesterday.unwrap_or_default()
        ),
        advice: "see the provider's status page; `timeout`, `hedge` and `concurrency` bound what it costs you"
            .to_owned(),
        since: None,
    })
}
