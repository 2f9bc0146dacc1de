//! Findings about calls that Egret itself refuses, and about clients that cannot use it.

use egret_observe::failure::ErrorKind;
use egret_observe::stats::ErrorCount;

use super::sample::{CountersSample, grown, is_refusal};
use super::trouble::{FindingKind, Severity, Trouble, WINDOW_S, number_of, percent};

/// From this percentage of a provider's calls on, refusals are an error and not only a warning.
const ERROR_PERCENT: u64 = 10;

/// Returns the troubles of calls and clients.
pub(super) fn troubles(current: &CountersSample, before: &CountersSample) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    for (name, provider) in current.providers() {
        let known = before.provider(name);
        let exchanges = provider.exchanges_since(known);
        // Open circuits are findings of their own.
        let is_meant = |error: &ErrorCount| is_refusal(error) && error.name != ErrorKind::CircuitOpen.slug();
        let refused = provider.errors_since(known).into_iter().filter(is_meant);
        troubles.extend(refused.map(|error| refusal(name, &error, exchanges)));
    }
    troubles.extend(clients(current, before));
    troubles
}

fn refusal(provider: &str, error: &ErrorCount, exchanges: u64) -> Trouble {
    let ErrorCount { name, count, cause } = error;
    let (reason, advice) = explained(name);
    // The table names hosts without a provider of their own by a dash.
    let (subject, place) = match provider {
        "-" => ((*name).to_owned(), String::new()),
        provider => (format!("{provider}: {name}"), format!(" to {provider}")),
    };
    Trouble {
        kind: FindingKind::CallsRefused,
        severity: if percent(*count, exchanges) >= ERROR_PERCENT {
            Severity::Error
        } else {
            Severity::Warning
        },
        subject,
        summary: format!("Egret refuses calls{place}: {reason}"),
        evidence: format!(
            "`{name}` for {count} of {} in the last {WINDOW_S} s; the last one: {cause}",
            number_of(exchanges.max(*count), "call")
        ),
        advice: advice.to_owned(),
        since: None,
    }
}

/// Returns the reason of a refusal in words, and what to do.
fn explained(slug: &str) -> (&'static str, &'static str) {
    match slug {
        "quota-exceeded" => (
            "a quota is used up",
            "see the quota's groups under `/api/v1/quotas`; `queue` lets calls wait instead of refusing them",
        ),
        "budget-exceeded" => (
            "a budget is spent, or calls cannot be paid from it",
            "raise the quota's limit, or see the cause: a model without a price, or a call without a bound",
        ),
        "queue-full" => ("the queue is full", "raise `queue.size`, or call less"),
        "queue-timeout" => ("calls wait too long in the queue", "raise `queue.max_wait`, or call less"),
        "too-many-in-flight" => {
            ("too many calls are under way", "raise the limit of `concurrency`, or put a `queue` before it")
        }
        "provider-throttled" => {
            ("the provider has asked for a pause", "wait for its end, or use other accounts with `accounts`")
        }
        "store-unavailable" => (
            "the store of a quota does not respond",
            "check the store; `on_store_error` decides how calls go on meanwhile",
        ),
        "account-unavailable" => (
            "no account can be used",
            "see `/api/v1/accounts`: the accounts cool down, or their tokens cannot be fetched",
        ),
        "egress-denied" => (
            "the egress policy denies the host",
            "if the call is meant, allow the host under `gateway.egress`; `egret explain` names the rule",
        ),
        "unknown-provider" => (
            "no provider of that name exists",
            "check the first part of the path: `/NAME/rest` needs a provider `NAME`",
        ),
        "client-unproven" => (
            "clients do not prove who they are",
            "check their tokens or certificates against `clients` of the listener",
        ),
        "bad-request" | "head-too-large" | "uri-too-long" | "not-implemented" | "version-not-supported" => (
            "clients send requests that break a rule of HTTP/1.1 or a limit",
            "the cause says which rule; `gateway.limits` has the limits",
        ),
        "request-timeout" => ("clients send their requests too slowly", "check the network of the clients"),
        "loop-detected" | "no-forwards-left" => {
            ("calls come back to Egret", "a provider's `url` or a proxy setting leads to Egret itself")
        }
        "too-many-connections" => ("too many clients are connected", "raise `gateway.limits.connections`"),
        "pool-full" => ("all connections to the provider are in use", "raise `providers.*.pool.connections`"),
        "bodies-full" => (
            "the memory for buffered bodies is used up",
            "raise `gateway.limits.gathered`, or buffer smaller bodies in flows",
        ),
        "remedy-failed" => {
            ("a remedy failed, and is configured to fail closed", "see the log for the reason")
        }
        "script-refused" => ("a script refuses them", "see the script of the flow"),
        _ => ("see the name of the error", "the page *Errors* of the reference explains it"),
    }
}

fn clients(current: &CountersSample, before: &CountersSample) -> Vec<Trouble> {
    let certificates = grown(current.certificates_refused, before.certificates_refused);
    let handshakes = grown(current.client_tls_failures, before.client_tls_failures);
    let tunnels = grown(current.provider_tunnels, before.provider_tunnels);
    let time = format!("in the last {WINDOW_S} s");
    let mut troubles = Vec::new();
    let host = current
        .refused_host
        .as_ref()
        .map(|last| format!(", the last one to {} by {} ({})", last.host, last.client, last.refusal.slug()));
    let host = host.unwrap_or_default();
    if certificates > 0 {
        troubles.push(Trouble {
            kind: FindingKind::ClientsFailing,
            severity: Severity::Error,
            subject: "interception".to_owned(),
            summary: "a client refuses the certificates of Egret's authority".to_owned(),
            evidence: format!("{} refused {time}{host}", number_of(certificates, "connection")),
            advice: "give the client the authority's certificate (`egret ca path`); the log names the client and the variable"
                .to_owned(),
            since: None,
        });
    } else if handshakes > 0 {
        troubles.push(Trouble {
            kind: FindingKind::ClientsFailing,
            severity: Severity::Warning,
            subject: "tls".to_owned(),
            summary: "TLS handshakes of clients fail".to_owned(),
            evidence: format!("{} failed {time}", number_of(handshakes, "handshake")),
            advice: "check that clients use `https://` for listeners with `tls`, and trust their certificate"
                .to_owned(),
            since: None,
        });
    }
    if tunnels > 0 {
        troubles.push(Trouble {
            kind: FindingKind::FlowsBypassed,
            severity: Severity::Warning,
            subject: "tunnels".to_owned(),
            summary: "tunnels to a configured provider pass by its flows".to_owned(),
            evidence: format!("{} opened {time}", number_of(tunnels, "tunnel")),
            advice: "change the API's base URL to Egret's, or intercept the host (`interception.hosts`)"
                .to_owned(),
            since: None,
        });
    }
    troubles
}
