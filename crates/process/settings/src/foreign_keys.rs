//! Keys and words of other products' configs, and Egret's instead of them.

use egret_config::Hint;

/// The end of each advice.
macro_rules! lunar {
    ($word:literal, $instead:literal) => {
        Hint {
            word: $word,
            advice: concat!("is Lunar's: ", $instead, "; `egret import lunar DIR` translates whole configs"),
        }
    };
}

/// A word that several products and people use.
macro_rules! other {
    ($word:literal, $advice:literal) => {
        Hint { word: $word, advice: $advice }
    };
}

/// Words that people bring along. None of them is a word of Egret where it is looked up.
pub const HINTS: &[Hint] = &[
    lunar!("policies", "use `flows`"),
    lunar!("global", "use a flow without `match`"),
    lunar!("endpoints", "use `flows`, each with a `match`"),
    lunar!("diagnosis", "use `diagnoses`"),
    lunar!("allowed_domains", "use `gateway.egress` with `default: deny` and `allow`"),
    lunar!("blocked_domains", "use `gateway.egress.deny`"),
    lunar!("mTLS", "use `tls` of a provider, with `certificate` and `key`"),
    lunar!("caching", "use the remedy `cache`"),
    lunar!("request_payload_paths", "use `cache.key`; the path always belongs to the key"),
    lunar!("ttl_seconds", "use `ttl` in a `cache`, `max_wait` in a `queue`, with a unit as in `60s`"),
    lunar!("max_record_size_bytes", "use `max_entry`, with a unit as in `64KiB`"),
    lunar!("max_cache_size_megabytes", "use `memory`, with a unit as in `64MiB`"),
    lunar!("max_cache_size_mb", "use `memory`, with a unit as in `64MiB`"),
    lunar!("response_based_throttling", "use the remedy `provider-throttle`"),
    lunar!("retry_after_header", "use `header`"),
    lunar!("retry_after_type", "leave it out: Egret tells seconds and dates apart"),
    lunar!("relevant_statuses", "use `on`"),
    lunar!("strategy_based_throttling", "use the remedy `limit` and a quota"),
    lunar!("allowed_request_count", "use `limit` of a quota"),
    lunar!("window_size_in_seconds", "use `window` of a quota, with a unit as in `60s`"),
    lunar!("response_status_code", "use `status`"),
    lunar!("spillover_config", "use `spillover: { max: N }` of a quota"),
    lunar!("group_quota_allocation", "use `group_by` and `shares` of a quota"),
    lunar!("group_by_header", "use `group_by: header:NAME` of a quota"),
    lunar!("concurrency_based_throttling", "use the remedy `concurrency`"),
    lunar!("max_concurrent_requests", "use `max`"),
    lunar!("strategy_based_queue", "use the remedy `queue` and a quota"),
    lunar!("queue_size", "use `size`"),
    lunar!("prioritization", "use `priority: { by: header:NAME, classes: [...] }`"),
    lunar!("priority_group_by_header", "use `priority: { by: header:NAME, classes: [...] }`"),
    lunar!("priority_groups", "use `priority: { by: header:NAME, classes: [...] }`"),
    lunar!("account_orchestration", "use the remedy `accounts`"),
    lunar!("round_robin", "use `use`"),
    lunar!("authentication", "use the remedy `authenticate` and an account"),
    lunar!("o_auth", "use `oauth2`, which fetches tokens"),
    lunar!("fixed_response", "use the remedy `fixed-response`"),
    lunar!("status_code", "use `status`, or `on` in a `retry`"),
    lunar!("initial_cooldown_seconds", "use `backoff: { base: 1s }`"),
    lunar!("cooldown_multiplier", "use `backoff: { factor: 2 }`"),
    lunar!("cooldown_between_attempts_seconds", "use `backoff: { base: 1s, factor: 1, jitter: none }`"),
    lunar!("maximum_cooldown_seconds", "use `backoff: { max: 10s }`"),
    lunar!("har_exporter", "use the diagnosis `har`"),
    lunar!("transaction_max_size", "use `bodies`, with a unit as in `64KiB`"),
    lunar!("exclusions", "use `exclude`, with paths like `request.query.page`"),
    lunar!("metrics_collector", "use the diagnosis `metrics`"),
    lunar!("void", "leave it out"),
    lunar!("file_dir", "use `directory`"),
    lunar!("file_name", "leave it out: files are named after the exporter and the time"),
    lunar!("bucket_name", "use `bucket`"),
    lunar!("bucket_boundaries", "use `buckets` of the diagnosis `metrics`, as in `[100ms, 1s]`"),
    lunar!("processors", "use `remedies` and `diagnoses`"),
    lunar!("filter", "use `match`"),
    lunar!("urls", "use `host` and `path`"),
    lunar!("sample_percentage", "use `sample`"),
    lunar!("query_params", "use `query`"),
    lunar!("expressions", "use `when`, a CEL expression"),
    lunar!("internal_limits", "use a quota with `parent`"),
    lunar!("parent_id", "use `parent`"),
    lunar!("quota_id", "use `quota`, the name of a quota"),
    lunar!("strategy", "write its keys directly into the quota: `limit`, `kind`, `window`"),
    lunar!("fixed_window", "use `kind: fixed`, `limit` and `window`"),
    lunar!("fixed_window_custom_counter", "use `kind: fixed` and `cost`"),
    lunar!("counter_value_path", "use `cost: { request: \"0\", response: EXPRESSION }`"),
    lunar!("max_request_count", "use `kind: concurrency` and `limit`"),
    lunar!("header_based", "use the remedy `provider-throttle`, or `learn` of a quota"),
    lunar!("allocation_percentage", "use `shares`, or a quota with `parent`"),
    lunar!("interval", "use `window`, with a unit as in `60s`"),
    lunar!("interval_unit", "use `window`, with a unit as in `60s`"),
    lunar!("monthly_renewal", "use `kind: calendar`, `period: month` and `renews`"),
    lunar!("Limiter", "use the remedy `limit`"),
    lunar!("Queue", "use the remedy `queue`"),
    lunar!("GenerateResponse", "use the remedy `fixed-response`, or `fallback` for refused calls"),
    lunar!("TransformAPICall", "use the remedy `transform`"),
    lunar!("HARCollector", "use the diagnosis `har`"),
    lunar!("UserDefinedMetrics", "use the diagnosis `metrics`"),
    lunar!("UserDefinedTraces", "use the remedy `trace` and the diagnosis `traces`"),
    lunar!("ReadCache", "use the remedy `cache`"),
    lunar!("WriteCache", "use the remedy `cache`"),
    lunar!("CustomScript", "use the remedy `script`"),
    other!(
        "throttling",
        "means `limit` to refuse, `queue` to wait, or `provider-throttle` to obey the provider's `Retry-After`"
    ),
    other!(
        "throttle",
        "means `limit` to refuse, `queue` to wait, or `provider-throttle` to obey the provider's `Retry-After`"
    ),
    other!("rate_limit", "is called `limit`, or `queue` to wait; both draw from a quota"),
    other!("rate-limit", "is called `limit`, or `queue` to wait; both draw from a quota"),
    other!("ratelimit", "is called `limit`, or `queue` to wait; both draw from a quota"),
    other!("methods", "is called `method`"),
    other!("upstreams", "is called `providers`"),
    other!("backends", "is called `providers`"),
    other!("services", "is called `providers`"),
    other!("routes", "is called `flows`"),
    other!("middlewares", "is called `remedies`"),
    other!("listen", "belongs under `gateway`, or under `control`"),
    other!("listeners", "is called `gateway.listen`"),
    // Of a gateway, an open proxy is something else.
    other!("proxy", "is called `upstream_proxy`, under `gateway`"),
    other!("http_proxy", "is called `upstream_proxy`, under `gateway`"),
    other!("https_proxy", "is called `upstream_proxy`, under `gateway`"),
    other!("upstream_proxy", "belongs under `gateway`; a provider has its own under `proxy`"),
    other!("no_proxy", "belongs under `gateway.upstream_proxy`"),
    other!("retry_on", "is called `on`, as in `on: [429, 5xx]`"),
    other!("port", "is part of an address: `listen: [127.0.0.1:8000]`"),
    other!("apiVersion", "is Kubernetes': Egret reads the config inside of the manifest"),
    // Values where one of several words is expected.
    other!("otel", "is called `otlp`"),
    other!("opentelemetry", "is called `otlp`"),
    lunar!("file", "use `har`, or `ndjson` for an entry per line"),
    lunar!("s3_minio", "use `s3`, whose `endpoint` is any store"),
    lunar!("prometheus", "leave the exporter out: `/metrics` is always there"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::Config;

    #[test]
    fn each_word_has_one_advice() {
        let words: BTreeSet<&str> = HINTS.iter().map(|hint| hint.word).collect();
        assert_eq!(words.len(), HINTS.len());
    }

    #[test]
    fn check_knows_lunars_words() {
        for (text, expected) in [
            ("policies: {}", "policies: `policies` is Lunar's: use `flows`; `egret import lunar DIR`"),
            (
                "flows: [{ name: a, remedies: [{ caching: { ttl_seconds: 5 } }] }]",
                "flows[0].remedies[0].caching: `caching` is Lunar's: use the remedy `cache`",
            ),
            (
                "quotas: { a: { limit: 1, window: 1s, interval_unit: second } }",
                "`interval_unit` is Lunar's: use `window`, with a unit as in `60s`",
            ),
            ("exporters: { a: { type: file, directory: ./har } }", "`file` is Lunar's: use `har`"),
            ("exporters: { a: { type: otel } }", "exporters.a.type: `otel` is called `otlp`"),
            ("upstreams: {}", "upstreams: `upstreams` is called `providers`"),
            ("gateway: { proxy: 'http://p:3128' }", "gateway.proxy: `proxy` is called `upstream_proxy`"),
            ("upstream_proxy: 'http://p:3128'", "upstream_proxy: `upstream_proxy` belongs under `gateway`"),
            ("flows: [{ name: a, remedies: [{ retry: { retry_on: [503] } }] }]", "`retry_on` is called `on`"),
            ("quotas: { a: { limit: 1, window: 60 } }", "did you mean `60s`?"),
            ("flows: [{ name: a, remedies: [{ retry: { on: '5xx,429' } }] }]", "did you mean `[5xx, 429]`?"),
        ] {
            let report = Config::parse("egret.yaml", text).unwrap_err().to_string();
            assert!(report.contains(expected), "{report}");
        }
    }
}
