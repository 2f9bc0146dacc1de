//! The sections of a scenario's config.

use serde_json::{Value, json};

use super::{FIRST_BYTE_S, IDLE_S, PROVIDERS, QuotaKind, Remedies, Scenario, TOTAL_S, WINDOW_MS};
use crate::certificates::{AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE};

impl Scenario {
    /// The section `gateway` of the config.
    pub fn gateway(&self) -> Value {
        let address = "127.0.0.1:8000";
        let tls = json!({ "certificate": CERTIFICATE_FILE, "key": format!("${{file:{KEY_FILE}}}") });
        let listener =
            if self.tls.clients { json!({ "address": address, "tls": tls }) } else { json!(address) };
        json!({
            "listen": [listener],
            "workers": self.workers,
            "timeouts": {
                "head": "5s", "keep_alive": "20s", "half_close": "2s", "drain": "10s", "connect": "2s",
                "first_byte": format!("{FIRST_BYTE_S}s"), "idle": "5s", "total": format!("{TOTAL_S}s"),
            },
            "limits": { "exchanges": self.exchanges },
            "dns": { "timeout": "1s", "ttl_min": "0s", "negative_ttl": "100ms" },
        })
    }

    /// The section `providers`.
    pub fn providers(&self) -> Value {
        let pool = json!({ "idle": 4, "idle_timeout": format!("{IDLE_S}s") });
        let of = |number: usize| {
            let version = if self.is_provider_http2[number] { 2 } else { 1 };
            let name = PROVIDERS[number];
            if self.tls.providers[number] {
                let (url, tls) = (format!("https://{name}.example"), json!({ "ca": AUTHORITY_FILE }));
                return json!({ "url": url, "pool": pool, "http": version, "tls": tls });
            }
            json!({ "url": format!("http://{name}.example"), "pool": pool, "http": version })
        };
        json!({ "one": of(0), "two": of(1) })
    }

    /// The section `quotas`.
    pub fn quotas(&self) -> Value {
        let Some((quota, _)) = self.remedies.quota else { return json!({}) };
        let window = format!("{WINDOW_MS}ms");
        json!({ "calls": match quota.kind {
            QuotaKind::Sliding => json!({ "kind": "sliding", "limit": quota.limit, "window": window }),
            QuotaKind::TokenBucket => json!({ "kind": "token-bucket", "limit": quota.limit, "window": window }),
            QuotaKind::Concurrency => json!({ "kind": "concurrency", "limit": quota.limit }),
            QuotaKind::Durable => {
                json!({ "kind": "fixed", "limit": quota.limit, "window": "1h", "store": "file" })
            }
        }})
    }

    /// The section `flows`.
    pub fn flows(&self) -> Value {
        let Remedies { attempts, hedges, caches, breaks, limits_time, concurrency, quota } = self.remedies;
        let mut list = Vec::new();
        if caches {
            let mut cache =
                json!({ "ttl": { "2xx": "3s" }, "override": true, "collapse": { "max_wait": "5s" } });
            if self.disk.as_ref().is_some_and(|disk| disk.caches) {
                // Hardly anything stays in memory.
                cache["memory"] = json!("4KiB");
                cache["max_entry"] = json!("4KiB");
                cache["disk"] = json!({ "size": "32KiB" });
            }
            list.push(json!({ "cache": cache }));
        }
        if attempts > 0 {
            let on = ["connect", "timeout", "reset", "429", "5xx"];
            let budget = json!({ "ratio": 1.0, "min_per_second": 100 });
            let backoff = json!({ "base": "20ms", "max": "1s" });
            list.push(
                json!({ "retry": { "attempts": attempts, "on": on, "backoff": backoff, "budget": budget } }),
            );
        }
        if breaks {
            list.push(json!({ "circuit-breaker": { "consecutive": 3, "open": "1s" } }));
        }
        if hedges {
            list.push(
                json!({ "hedge": { "after": "50ms", "budget": { "ratio": 1.0, "min_per_second": 100 } } }),
            );
        }
        if limits_time {
            list.push(json!({ "timeout": { "first_byte": "1s", "total": "4s" } }));
        }
        if concurrency > 0 {
            list.push(json!({ "concurrency": { "max": concurrency } }));
        }
        match quota {
            Some((_, true)) => list.push(json!({ "queue": { "quota": "calls", "max_wait": "6s" } })),
            Some((_, false)) => list.push(json!({ "limit": { "quota": "calls" } })),
            None => {}
        }
        let mut flows = Vec::new();
        if !list.is_empty() {
            flows.push(json!({ "name": "calls", "match": { "provider": "one" }, "remedies": list }));
        }
        if self.disk.as_ref().is_some_and(|disk| disk.exporter.is_some()) {
            let har = json!({ "har": { "export": "archive", "obfuscate": false } });
            flows.push(json!({ "name": "records", "match": {}, "diagnoses": [har] }));
        }
        json!(flows)
    }
}
