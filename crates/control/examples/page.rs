//! Serves the control port with made-up traffic, to work on its page:
//! `cargo run -p egret-control --example page [ADDRESS]`.
//!
//! If the variable `EGRET_CONTROL_TOKEN` is set, the page asks for the token.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a tool for developers may fail loudly")]

use std::f64::consts::TAU;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_accounts::{AccountSnapshot, CoolingSnapshot};
use egret_clock::{Clock, Moment, Timestamp};
use egret_config::Secret;
use egret_control::{ConfigAccess, Control, ControlConfig, GatewayInfo, Source};
use egret_diagnosis::{Discovered, Pin, Traffic, TrafficConfig};
use egret_flow::{FlowsSnapshot, UnknownFault, UnknownFlow};
use egret_message::ListenAddress;
use egret_net::counter::DnsSnapshot;
use egret_net::histogram::{BOUNDS_US, HistogramSnapshot};
use egret_observe::stats::{ClientsSnapshot, Count, ExchangeCount, ProviderSnapshot, StatsSnapshot};
use egret_remedy::FaultSwitch;
use egret_store::entries::Purge;
use egret_store::shared::Purged;

/// Simulated providers: name, requests per second, median latency in microseconds, share of 4xx and 5xx.
const PROVIDERS: [(&str, f64, f64, f64, f64); 5] = [
    ("stripe", 184.0, 92_000.0, 0.011, 0.001),
    ("openai", 23.0, 1_450_000.0, 0.034, 0.006),
    ("github", 61.0, 138_000.0, 0.002, 0.0),
    ("weather", 4.2, 31_000.0, 0.0, 0.084),
    ("-", 0.7, 64_000.0, 0.12, 0.0),
];

/// Seconds of traffic before the example started.
const HISTORY_S: f64 = 4_512.0;

/// Median footprint of the exchanges, in microseconds.
const FOOTPRINT_US: f64 = 46.0;

struct MadeUp {
    started: Instant,
    traffic: Arc<Traffic>,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "made-up figures fit")]
fn count(value: f64) -> u64 {
    value as u64
}

/// Returns the time half a minute from now.
fn soon() -> Timestamp {
    Clock::new().timestamp(Moment::now()) + Duration::from_secs(30)
}

/// Returns counts distributed log-normally around the median, like real response times.
fn histogram(total: f64, median_us: f64, spread: f64) -> HistogramSnapshot {
    #[expect(clippy::cast_precision_loss, reason = "bounds are small")]
    let below = |bound: u64| 1.0 / (1.0 + (-1.702 * (bound as f64 / median_us).ln() / spread).exp());
    let cumulated = BOUNDS_US.map(|bound| count(total * below(bound)));
    let mut buckets: Vec<u64> = cumulated.to_vec();
    for index in (1..buckets.len()).rev() {
        buckets[index] -= buckets[index - 1];
    }
    buckets.push(0);
    let mut seen = 0;
    let values_us = (30..300).map(|step| count(1.06_f64.powi(step))).map(|value_us| {
        let before = std::mem::replace(&mut seen, count(total * below(value_us)));
        (value_us, seen - before)
    });
    HistogramSnapshot { buckets, sum_us: count(total * median_us), values_us: values_us.collect() }
}

fn provider(
    time_s: f64,
    index: u32,
    (name, rate, median_us, client, server): (&str, f64, f64, f64, f64),
) -> ProviderSnapshot {
    // The rate oscillates with two periods; this is its integral.
    let phase = f64::from(index);
    let swing =
        |period_s: f64, depth: f64| depth * period_s / TAU * (1.0 - (TAU * time_s / period_s + phase).cos());
    let total = rate * (time_s + swing(37.0, 0.35) + swing(11.0, 0.18));
    let exchange = |method, status, share: f64| ExchangeCount { method, status, count: count(total * share) };
    ProviderSnapshot {
        name: name.to_owned(),
        exchanges: vec![
            exchange("GET", "2xx", 0.7 * (1.0 - client - server)),
            exchange("POST", "2xx", 0.3 * (1.0 - client - server)),
            exchange("GET", "4xx", client),
            exchange("POST", "5xx", server),
        ],
        latency: histogram(total, median_us, 0.55),
        footprint: histogram(total, FOOTPRINT_US + 4.0 * phase, 0.45),
        sent_bytes: count(total * 912.0),
        received_bytes: count(total * 6_400.0),
        connects: 40,
        pool_hits: count(total).saturating_sub(40),
        connections_open: count(rate * median_us / 4e5) + 2,
        connections_idle: 2,
        ..ProviderSnapshot::default()
    }
}

impl Source for MadeUp {
    fn stats(&self) -> StatsSnapshot {
        let time_s = HISTORY_S + self.started.elapsed().as_secs_f64();
        let traffic = PROVIDERS.iter().zip(0..).map(|(traffic, index)| provider(time_s, index, *traffic));
        StatsSnapshot {
            uptime_s: count(time_s),
            providers: traffic.collect(),
            clients: ClientsSnapshot {
                accepted: 812,
                open: 48,
                idle: 31,
                tunnels: 3,
                received_bytes: count(time_s * 249_000.0),
                sent_bytes: count(time_s * 1_747_000.0),
                ..ClientsSnapshot::default()
            },
            generated: vec![
                Count { name: "first-byte-timeout", count: 41 },
                Count { name: "egress-denied", count: 6 },
            ],
            denials: vec![Count { name: "metadata", count: 4 }, Count { name: "private", count: 2 }],
            dns: DnsSnapshot { lookups: 4_310, hits: 4_188, coalesced: 17, failures: 3, entries: 9 },
            reloads: 2,
            ..StatsSnapshot::default()
        }
    }

    fn flows(&self, _groups_max: usize) -> FlowsSnapshot {
        let time_s = HISTORY_S + self.started.elapsed().as_secs_f64();
        let calls = count(time_s * 23.0 / 3.0);
        let accounts = [("openai-1", None), ("openai-2", Some(429)), ("openai-3", None)];
        let account = |(name, refused): (&str, Option<u16>)| AccountSnapshot {
            name: name.to_owned(),
            kind: "bearer",
            providers: vec!["openai".to_owned()],
            cooling: refused.map(|status| CoolingSnapshot { until: soon(), status: Some(status) }),
            in_flight: 11,
            endings: [calls, 0, 0, calls / 97, 1],
            remaining: Some(400 - calls % 400),
            ..AccountSnapshot::default()
        };
        let accounts: Vec<_> = accounts.into_iter().map(account).collect();
        FlowsSnapshot { accounts_count: accounts.len(), accounts, ..FlowsSnapshot::default() }
    }

    fn discovered(&self) -> Vec<Discovered> {
        Vec::new()
    }

    fn traffic(&self) -> Option<Arc<Traffic>> {
        Some(Arc::clone(&self.traffic))
    }

    fn watch_traffic(&self, is_open: bool) {
        self.traffic.set_open(is_open);
    }

    fn failures(&self) -> Option<Arc<Traffic>> {
        None
    }

    fn details(&self, list: &Traffic, id: u64) -> Option<Vec<u8>> {
        list.details(id, &|_, _| None)
    }

    fn alerts(&self) -> Vec<egret_quota::AlertCount> {
        Vec::new()
    }

    fn exporters(&self) -> Vec<egret_export::ExporterSnapshot> {
        Vec::new()
    }

    fn resend(&self, _listener: ListenAddress, _pin: Pin) -> io::Result<UnixStream> {
        Err(io::Error::other("nothing is recorded here"))
    }

    fn purge(&self, _flow: Option<&str>, _purge: Purge<'_>) -> Result<Purged, UnknownFlow> {
        Ok(Purged::default())
    }

    fn switch_faults(
        &self,
        _flow: Option<&str>,
        _remedy: Option<&str>,
        _switch: FaultSwitch,
    ) -> Result<usize, UnknownFault> {
        Ok(0)
    }

    fn ready(&self) -> bool {
        true
    }

    fn cluster(&self) -> Option<egret_cluster::ClusterStatus> {
        None
    }

    fn gateway(&self) -> GatewayInfo {
        GatewayInfo::default()
    }

    fn config(&self) -> serde_json::Value {
        serde_json::json!({})
    }

    fn config_refusal(&self) -> Option<egret_control::ConfigRefusal> {
        None
    }

    fn secret_commands(&self) -> Vec<egret_control::FetchStatus> {
        Vec::new()
    }

    fn managed_secrets(&self) -> Vec<egret_control::FetchStatus> {
        Vec::new()
    }

    fn issuers(&self) -> Vec<egret_control::FetchStatus> {
        Vec::new()
    }

    fn schema(&self) -> &'static str {
        "{}"
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}

fn main() {
    let mut config = ControlConfig::default();
    if let Some(address) = std::env::args().nth(1) {
        config.listen = address.parse().expect("the first argument is an address like 127.0.0.1:8001");
    }
    config.token = Secret::resolve("${env:EGRET_CONTROL_TOKEN}").ok();
    let (calls, _) = tokio::sync::mpsc::channel(1);
    let access = ConfigAccess { identity: None, token: None, calls };
    let control = Control::start(
        &config,
        Arc::new(MadeUp {
            started: Instant::now(),
            traffic: Arc::new(Traffic::new(TrafficConfig::default(), 1)),
        }),
        access,
    )
    .unwrap();
    println!("http://{}/", control.address());
    std::thread::park();
}
