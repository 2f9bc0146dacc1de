//! Tests of the control port over real sockets: access rules and responses.
#![expect(clippy::unwrap_used, reason = "a test that cannot talk to the control port has failed")]

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use egret_accounts::token::{TokenError, TokenSnapshot, TokenState};
use egret_accounts::{AccountSnapshot, CoolingSnapshot};
use egret_cache::CacheSnapshot;
use egret_clock::Timestamp;
use egret_cluster::{ClusterStatus, ShardStatus};
use egret_config::Secret;
use egret_control::{
    Applied, CALLS_MAX, ChangeRefusal, Checked, ConfigAccess, ConfigCall, ConfigChanges, ConfigFile,
    ConfigFiles, ConfigReply, ConfigRequest, Control, ControlConfig, ControlError, ControlKey, Ends,
    GatewayInfo, Identity, NONCE_FIELD, PROOF_FIELD, Source,
};
use egret_diagnosis::{Discovered, Pin, Traffic, TrafficConfig};
use egret_flow::{FlowStats, FlowsSnapshot, RemedyStats, UnknownFault, UnknownFlow};
use egret_message::ListenAddress;
use egret_observe::stats::{Histogram, ProviderSnapshot, StatsSnapshot};
use egret_quota::{GroupSnapshot, OnStoreError, QuotaKind, QuotaSnapshot};
use egret_remedy::{
    CallOutcome, CircuitState, CircuitsSnapshot, DecisionSums, FaultSnapshot, FaultSwitch, HedgesSnapshot,
    Mode, QueueSnapshot, RemedyState, Transition, TransitionReason,
};
use egret_store::entries::{DiskStats, EntryStats, Purge};
use egret_store::shared::{NotTold, Purged};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// Every path that returns data.
const GUARDED: [&str; 14] = [
    "/metrics",
    "/api/v1/gateway",
    "/api/v1/config",
    "/api/v1/schema",
    "/api/v1/stats",
    "/api/v1/flows",
    "/api/v1/history",
    "/api/v1/quotas",
    "/api/v1/spend",
    "/api/v1/cluster",
    "/api/v1/accounts",
    "/api/v1/exporters",
    "/api/v1/discovery",
    "/api/v1/discovery/flows",
];

/// Every path that needs no token.
const PUBLIC: [&str; 6] = ["/healthz", "/readyz", "/", "/page.css", "/page.js", "/editor.js"];

/// A gateway with fixed statistics.
struct Fixed {
    draining: AtomicBool,
    cluster: Option<ClusterStatus>,
    traffic: Arc<Traffic>,
}

impl Default for Fixed {
    fn default() -> Self {
        let traffic = Arc::new(Traffic::new(TrafficConfig::default(), 1));
        Self { draining: AtomicBool::default(), cluster: None, traffic }
    }
}

fn transition(
    at_s: u64,
    to: CircuitState,
    reason: TransitionReason,
    outcome: Option<CallOutcome>,
) -> Transition {
    Transition { at: Timestamp::from_secs(at_s), provider: "stripe".into(), to, reason, outcome }
}

impl Source for Fixed {
    fn stats(&self) -> StatsSnapshot {
        let histogram = Histogram::default();
        (0..99).for_each(|_| histogram.record(90));
        histogram.record(2_000);
        let mut provider = ProviderSnapshot { name: "stripe".into(), ..ProviderSnapshot::default() };
        histogram.add_to(&mut provider.latency);
        StatsSnapshot { uptime_s: 5, providers: vec![provider], ..StatsSnapshot::default() }
    }

    fn flows(&self, groups_max: usize) -> FlowsSnapshot {
        let remedy = RemedyStats {
            remedy: "limit".into(),
            description: "at most 5 requests per second".into(),
            mode: Mode::Report,
            decisions: DecisionSums { counts: [7, 0, 1, 0, 0], ..DecisionSums::default() },
            cache: Some(CacheSnapshot {
                counts: [5, 1, 0, 2, 0, 0, 2, 0],
                ages: [6, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                ages_s: 3,
                entries: EntryStats { entries: 2, bytes: 900, evicted: 1, ..EntryStats::default() },
                disk: Some(DiskStats { is_open: true, entries: 7, bytes: 8_192, ..DiskStats::default() }),
            }),
            script: None,
            state: RemedyState {
                quota: Some("live".into()),
                queue: Some(QueueSnapshot { waiting: 3, size: 10, oldest: Duration::from_millis(1_500) }),
                circuits: Some(CircuitsSnapshot {
                    circuits: 2,
                    open: 1,
                    half_open: 0,
                    until: Some(Timestamp::from_secs(9)),
                    transitions_count: 51,
                    transitions: vec![
                        transition(3, CircuitState::HalfOpen, TransitionReason::Due, None),
                        transition(
                            4,
                            CircuitState::Open(Timestamp::from_secs(9)),
                            TransitionReason::InARow(5),
                            Some(CallOutcome::Status(503)),
                        ),
                    ],
                }),
                fault: Some(FaultSnapshot {
                    is_active: true,
                    is_on: true,
                    end: Some(Timestamp::from_secs(9)),
                    counts: [5, 4, 3, 2, 1],
                }),
                hedges: Some(HedgesSnapshot { slow: 4, made: 3, used: 2, over_budget: 1 }),
            },
        };
        let group = |number: u64| GroupSnapshot {
            name: format!("group {number}"),
            used: number,
            reserved: 0,
            limit: 5,
            remaining: 5 - number,
            reset: Timestamp::from_micros(1_000_000),
            has_store_failed: false,
            latencies_us: (number == 1).then_some([20_000, 30_000]),
            shared: None,
        };
        let quota = QuotaSnapshot {
            unit: egret_quota::QuotaUnit::Units,
            name: "live".into(),
            kind: QuotaKind::Sliding,
            on_store_error: OnStoreError::Keep,
            groups: (0..3).map(group).take(groups_max).collect(),
            groups_count: 3,
        };
        let flow = FlowStats {
            name: "charges".into(),
            match_failures: 2,
            remedies: vec![remedy],
            diagnoses: Vec::new(),
        };
        let account = AccountSnapshot {
            name: "live-1".into(),
            kind: "bearer",
            providers: vec!["stripe".into()],
            cooling: Some(CoolingSnapshot { until: Timestamp::from_secs(9), status: Some(401) }),
            in_flight: 1,
            endings: [7, 1, 0, 2, 1],
            remaining: Some(40),
            reset: Some(Timestamp::from_secs(60)),
            token: Some(TokenSnapshot {
                state: TokenState::Good,
                expires_at: Some(Timestamp::from_secs(90)),
                error: Some(TokenError::Status(500)),
                retry_at: Some(Timestamp::from_secs(10)),
                fetched: 2,
                failed: 1,
            }),
        };
        FlowsSnapshot {
            flows: vec![flow],
            quotas: vec![quota],
            accounts: vec![account],
            accounts_count: 1,
            ..FlowsSnapshot::default()
        }
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
        Err(io::Error::other("nothing is recorded in these tests"))
    }

    fn switch_faults(
        &self,
        flow: Option<&str>,
        remedy: Option<&str>,
        switch: FaultSwitch,
    ) -> Result<usize, UnknownFault> {
        let known = vec!["charges/fault".to_owned()];
        match (flow, remedy, switch) {
            (None, None, FaultSwitch::Off) => Ok(3),
            (Some("charges"), None, FaultSwitch::On(Some(time))) if time == Duration::from_mins(1) => Ok(2),
            (Some("charges"), Some("fault"), _) => Ok(1),
            _ => Err(UnknownFault { known }),
        }
    }

    fn purge(&self, flow: Option<&str>, purge: Purge<'_>) -> Result<Purged, UnknownFlow> {
        if flow == Some("unknown") {
            return Err(UnknownFlow { known: vec!["charges".to_owned(), "shared".to_owned()] });
        }
        let removed = match (flow, purge) {
            (None, Purge::All) => 4,
            (Some("charges"), Purge::Tag("t")) => 3,
            (None, Purge::Prefix(b"https://h.example:443/v1")) => 2,
            (None, Purge::Label(b"http://h.example:80/a?b")) => 1,
            _ => 0,
        };
        // In these tests the flow `shared` is also in other gateways, and `cut-off` in some that are not
        // told.
        let told = match flow {
            Some("shared") => vec![Ok(())],
            Some("cut-off") => vec![Ok(()), Err(NotTold::Away)],
            _ => Vec::new(),
        };
        let answered = |result| {
            let (answer, told) = oneshot::channel();
            answer.send(result).unwrap();
            told
        };
        Ok(Purged { removed, told: told.into_iter().map(answered).collect() })
    }

    fn ready(&self) -> bool {
        !self.draining.load(Ordering::Relaxed)
    }

    fn cluster(&self) -> Option<ClusterStatus> {
        self.cluster.clone()
    }

    fn gateway(&self) -> GatewayInfo {
        GatewayInfo { version: "1.2.3".into(), ..GatewayInfo::default() }
    }

    fn config(&self) -> Value {
        json!({ "control": { "token": "${env:TOKEN}" } })
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
        r#"{"title":"Egret config"}"#
    }

    fn version(&self) -> &'static str {
        "1.2.3"
    }
}

/// The bytes received on a connection that is closed after the response.
struct Answer {
    status: u16,
    head: String,
    content: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.content).unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Checks that the body is a valid problem document (RFC 9457) and returns its status code.
    fn problem(&self) -> u16 {
        let problem = self.json();
        assert_eq!(self.field("content-type"), Some("application/problem+json"));
        assert_eq!(problem["status"], json!(self.status));
        assert!(
            problem["title"].is_string() && problem["detail"].is_string() && problem["type"] == "about:blank"
        );
        self.status
    }
}

fn loopback() -> ControlConfig {
    ControlConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ControlConfig::default() }
}

/// Uses the package name as the token: cargo always sets that variable for tests.
fn with_token() -> (ControlConfig, String) {
    let token = Secret::resolve("${env:CARGO_PKG_NAME}").unwrap();
    let text = token.expose().to_owned();
    (ControlConfig { token: Some(token), ..loopback() }, text)
}

fn start(config: &ControlConfig) -> Control {
    Control::start(config, Arc::new(Fixed::default()), access(None)).unwrap()
}

/// The tag of the files of [`access`].
const ETAG: &str = "\"1\"";

/// Returns the access to made-up config files, with that created token. A text `wait` keeps the call waiting.
fn access(token: Option<&str>) -> ConfigAccess {
    access_with(token, None)
}

/// Returns the same for a gateway with this identity.
fn access_with(token: Option<&str>, identity: Option<Identity>) -> ConfigAccess {
    let (calls, mut received) = tokio::sync::mpsc::channel::<ConfigCall>(CALLS_MAX);
    std::thread::spawn(move || {
        let mut waiting = Vec::new();
        while let Some(ConfigCall { request, reply }) = received.blocking_recv() {
            match &request {
                ConfigRequest::Replace { text, .. } if text == "wait" => waiting.push(reply),
                _ => drop(reply.send(reply_to(request))),
            }
        }
    });
    let token = token.map(|token| Secret::from_value("created", token.to_owned()));
    ConfigAccess { identity, token, calls }
}

fn reply_to(request: ConfigRequest) -> Result<ConfigReply, ChangeRefusal> {
    let applied = || Applied {
        etag: "\"2\"".into(),
        version: Some(2),
        applied: vec!["quotas".into()],
        restart: Vec::new(),
        warnings: Vec::new(),
    };
    match request {
        ConfigRequest::Files => {
            let file = ConfigFile { name: "egret.yaml".into(), text: "log: {}\n".into() };
            Ok(ConfigReply::Files(ConfigFiles { etag: ETAG.into(), files: vec![file] }))
        }
        ConfigRequest::Validate { text } => Ok(ConfigReply::Checked(Checked {
            valid: text == "log: {}\n",
            problems: Vec::new(),
            warnings: Vec::new(),
        })),
        ConfigRequest::Replace { name, .. } if name != "egret.yaml" => Err(ChangeRefusal::UnknownFile),
        ConfigRequest::Replace { etag, .. } if !etag.contains(ETAG) => Err(ChangeRefusal::Stale),
        ConfigRequest::Versions => Ok(ConfigReply::Versions(Vec::new())),
        ConfigRequest::Version { number: 1, .. } => Ok(ConfigReply::Text("log: {}\n".into())),
        ConfigRequest::Replace { .. } | ConfigRequest::Rollback { number: 1, .. } | ConfigRequest::Reload => {
            Ok(ConfigReply::Applied(applied()))
        }
        ConfigRequest::Version { .. } | ConfigRequest::Rollback { .. } => Err(ChangeRefusal::UnknownVersion),
    }
}

fn connect(control: &Control) -> TcpStream {
    let address = SocketAddr::from(([127, 0, 0, 1], control.address().port()));
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(4))).unwrap();
    stream
}

/// Sends the bytes unchanged.
fn send(control: &Control, request: &str) -> Answer {
    let mut stream = connect(control);
    stream.write_all(request.as_bytes()).unwrap();
    read_answer(stream)
}

fn call(control: &Control, request_line: &str, fields: &str) -> Answer {
    send(control, &format!("{request_line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}\r\n"))
}

fn get(control: &Control, path: &str) -> Answer {
    call(control, &format!("GET {path}"), "")
}

fn read_answer(stream: TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "closed after {head:?}");
    }
    let mut content = String::new();
    reader.read_to_string(&mut content).unwrap();
    Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, content }
}

#[test]
fn the_probes_tell_living_from_ready() {
    let source = Arc::new(Fixed::default());
    let control = Control::start(&loopback(), Arc::clone(&source) as Arc<dyn Source>, access(None)).unwrap();
    assert_eq!((get(&control, "/healthz").status, get(&control, "/readyz").status), (200, 200));
    source.draining.store(true, Ordering::Relaxed);
    assert_eq!((get(&control, "/healthz").status, get(&control, "/readyz").problem()), (200, 503));
}

/// A membership of one segment.
fn membership(is_up: bool) -> ClusterStatus {
    let shard = ShardStatus {
        is_up,
        calls: u64::from(is_up),
        error: (!is_up).then(|| "redis.internal:6379: refused".to_owned()),
        members: 3,
        ..ShardStatus::default()
    };
    ClusterStatus {
        cluster: "payments".into(),
        member: "a".into(),
        age: Duration::from_secs(5),
        learn_for: Duration::from_secs(10),
        shards: vec![shard],
    }
}

#[test]
fn readiness_waits_for_the_clusters_store_for_a_while() {
    let ready = |draining: bool, cluster: ClusterStatus| {
        let source =
            Arc::new(Fixed { draining: draining.into(), cluster: Some(cluster), ..Fixed::default() });
        let control = Control::start(&loopback(), source as Arc<dyn Source>, access(None)).unwrap();
        let response = get(&control, "/readyz");
        assert!(!response.content.contains("redis.internal"), "the path needs no token");
        (response.status, response.content)
    };
    assert_eq!(ready(false, membership(true)), (200, "ready\n".to_owned()));
    let (status, text) = ready(true, membership(false));
    assert!(status == 503 && text.contains("cluster's store"), "{text}");
    let late = ClusterStatus { age: Duration::from_secs(10), ..membership(false) };
    let (status, text) = ready(false, late.clone());
    assert!(status == 200 && text.contains("`on_store_error`"), "{text}");
    let (status, text) = ready(true, late);
    assert!(status == 503 && text.contains("draining"), "{text}");
}

#[test]
fn the_membership_in_a_cluster_is_shown() {
    assert_eq!(get(&start(&loopback()), "/api/v1/cluster").json(), json!({ "cluster": null }));
    let source = Arc::new(Fixed { cluster: Some(membership(false)), ..Fixed::default() });
    let control = Control::start(&loopback(), source as Arc<dyn Source>, access(None)).unwrap();
    let cluster = &get(&control, "/api/v1/cluster").json()["cluster"];
    assert_eq!(
        (&cluster["name"], &cluster["members"], &cluster["up"]),
        (&json!("payments"), &json!(3), &json!(false))
    );
    assert_eq!(cluster["segments"][0]["error"], "redis.internal:6379: refused");
    assert_eq!(cluster["quotas"], json!([]), "its quota is not shared");
    let text = get(&control, "/metrics").content;
    for line in ["egret_cluster_up 0", "egret_cluster_members 3", "egret_cluster_renewal_seconds_count 0"] {
        assert!(text.contains(&format!("\n{line}\n")), "{text}");
    }
}

#[test]
fn metrics_are_prometheus_text() {
    let control = start(&loopback());
    let response = get(&control, "/metrics");
    assert_eq!(response.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(
        response.content.contains("\negret_exchange_latency_seconds_count{provider=\"stripe\"} 100\n"),
        "{}",
        response.content
    );
    assert!(response.content.contains("\negret_build_info{version=\"1.2.3\"} 1\n"));
}

#[test]
fn stats_hold_the_snapshot_and_quantiles_by_provider() {
    let control = start(&loopback());
    let stats = get(&control, "/api/v1/stats").json();
    assert_eq!(
        (&stats["uptime_s"], &stats["version"], &stats["ready"]),
        (&json!(5), &json!("1.2.3"), &json!(true))
    );
    assert_eq!(stats["providers"][0]["name"], "stripe");
    assert_eq!(stats["quantiles_us"]["stripe"]["latency"], json!({ "p50": 91, "p90": 91, "p99": 91 }));
    assert_eq!(
        stats["quantiles_us"]["stripe"]["footprint"],
        json!({ "p50": null, "p90": null, "p99": null })
    );
    assert_eq!(
        stats["bounds_us"].as_array().unwrap().len() + 1,
        stats["providers"][0]["latency"]["buckets"].as_array().unwrap().len()
    );
}

#[test]
fn flows_and_quotas_say_what_they_do_and_how_they_stand() {
    let control = start(&loopback());
    let flows = get(&control, "/api/v1/flows").json();
    let decisions = json!({ "next": 7, "wait": 0, "answer": 1, "repeat": 0, "fail": 0 });
    let remedy = json!({
        "remedy": "limit",
        "does": "at most 5 requests per second",
        "mode": "report",
        "decisions": decisions,
        "last_minute": { "next": 0, "wait": 0, "answer": 0, "repeat": 0, "fail": 0 },
        "shares": { "next": 0.875, "wait": 0.0, "answer": 0.125, "repeat": 0.0, "fail": 0.0 },
        "waits": 0,
        "waited_us": 0,
        "cache": {
            "counts": {
                "hit": 5, "stale": 1, "revalidated": 0, "miss": 2,
                "bypass": 0, "collapsed": 0, "stored": 2, "invalidated": 0,
            },
            "hit_ratio": 0.75,
            "entries": 2,
            "bytes": 900,
            "evicted": 1,
            "disk": {
                "is_open": true, "entries": 7, "bytes": 8192,
                "loads": 0, "writes": 0, "evicted": 0, "skipped": 0, "dropped": 0,
            },
        },
        "quota": "live",
        "queue": { "waiting": 3, "size": 10, "oldest_us": 1_500_000 },
        "circuits": {
            "state": "open", "circuits": 2, "open": 1, "half_open": 0, "until_us": 9_000_000,
            "transitions_count": 51,
            "transitions": [
                {
                    "at_us": 4_000_000, "provider": "stripe", "to": "open", "until_us": 9_000_000,
                    "reason": "5 calls in a row failed", "outcome": "503",
                },
                {
                    "at_us": 3_000_000, "provider": "stripe", "to": "half-open", "until_us": null,
                    "reason": "the pause was over, so a probe was sent", "outcome": null,
                },
            ],
        },
        "fault": {
            "state": "on",
            "until_us": 9_000_000,
            "injected": { "delay": 5, "abort": 4, "reset": 3, "cut": 2, "slow": 1 },
        },
        "hedges": { "slow": 4, "made": 3, "used": 2, "over_budget": 1 },
    });
    let flow = json!({ "name": "charges", "match_failures": 2, "remedies": [remedy], "diagnoses": [] });
    assert_eq!(flows, json!({ "flows": [flow] }));
    let quotas = get(&control, "/api/v1/quotas").json();
    let quota = &quotas["quotas"][0];
    assert_eq!(
        (&quota["name"], &quota["kind"], &quota["groups_count"]),
        (&json!("live"), &json!("sliding"), &json!(3))
    );
    let group = json!({
        "name": "group 1",
        "used": 1,
        "reserved": 0,
        "limit": 5,
        "remaining": 4,
        "reset_us": 1_000_000,
        "store_failed": false,
        "latency": { "baseline_us": 20_000, "latest_us": 30_000 },
    });
    assert_eq!(quota["groups"][1], group);
}

#[test]
fn costs_are_asked_for_by_name_and_range() {
    let control = start(&loopback());
    let spend = get(&control, "/api/v1/spend").json();
    let sum = json!({ "calls": 0, "cost_nanodollars": 0 });
    let expected = json!({
        "by": "consumer", "range": "day", "has_ledger": false, "since_us": null, "labels": [], "rows": [],
        "other": sum, "total": sum,
    });
    assert_eq!(spend, expected);
    let named = get(&control, "/api/v1/spend?by=model&range=month").json();
    assert_eq!((&named["by"], &named["range"]), (&json!("model"), &json!("month")));
    for (query, status) in [
        ("by=nothing", 400),
        ("by=label.", 404),
        ("by=label.team", 404),
        ("range=year", 400),
        ("from=1", 400),
    ] {
        assert_eq!(get(&control, &format!("/api/v1/spend?{query}")).problem(), status, "{query}");
    }
}

#[test]
fn accounts_say_how_they_stand_and_why_they_are_not_used() {
    let account = json!({
        "name": "live-1",
        "kind": "bearer",
        "providers": ["stripe"],
        "state": "cooling",
        "until_us": 9_000_000,
        "reason": "401",
        "in_flight": 1,
        "calls": 11,
        "refused": { "401": 1, "403": 0, "429": 2 },
        "failed": 1,
        "remaining": 40,
        "reset_us": 60_000_000,
        "token": {
            "state": "good",
            "expires_us": 90_000_000,
            "trouble": "the token endpoint responded with 500",
            "retry_us": 10_000_000,
            "fetched": 2,
            "failed": 1,
        },
    });
    let accounts = get(&start(&loopback()), "/api/v1/accounts").json();
    assert_eq!(accounts, json!({ "accounts": [account], "accounts_count": 1 }));
}

#[test]
fn the_running_config_is_shown_as_the_gateway_gives_it() {
    assert_eq!(
        get(&start(&loopback()), "/api/v1/config").json(),
        json!({ "control": { "token": "${env:TOKEN}" } })
    );
}

#[test]
fn the_page_needs_no_other_host_and_no_inline_code() {
    let control = start(&loopback());
    let page = get(&control, "/");
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    for forbidden in ["style=", "<style", "<script>", " onclick", "javascript:", "http:", "https:"] {
        let text = page.content.replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains(forbidden), "{forbidden}");
    }
    assert_eq!(get(&control, "/page.css").field("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(get(&control, "/page.js").field("content-type"), Some("text/javascript; charset=utf-8"));
    let policy = page.field("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'")
            && policy.contains("script-src 'self'")
            && !policy.contains("unsafe"),
        "{policy}"
    );
}

#[test]
fn every_response_is_kept_out_of_caches_and_away_from_other_origins() {
    let (config, _) = with_token();
    let control = start(&config);
    let requests = ["GET /", "GET /healthz", "GET /no/such", "POST /", "GET /metrics"];
    for response in
        requests.map(|request_line| call(&control, request_line, "origin: http://elsewhere.test\r\n"))
    {
        assert_eq!(response.field("cache-control"), Some("no-store"));
        assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
        assert!(response.field("content-security-policy").is_some());
        assert!(!response.head.contains("access-control-"), "{}", response.head);
    }
}

#[test]
fn only_a_host_that_is_ours_is_answered() {
    let config = ControlConfig { allowed_hosts: vec!["Egret.Internal".into()], ..loopback() };
    let control = start(&config);
    let port = control.address().port();
    let ours = [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1",
        "[::1]:8001",
        "127.0.0.2",
        "egret.internal:80",
        "egret.INTERNAL.",
    ];
    for host in
        ours.map(str::to_owned).into_iter().chain([format!("127.0.0.1:{port}"), format!("localhost:{port}")])
    {
        for path in GUARDED.into_iter().chain(PUBLIC) {
            let response =
                send(&control, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"));
            assert_eq!(response.status, 200, "{host} {path}");
        }
    }
    let others = [
        "evil.test",
        "evil.test:8001",
        "localhost.evil.test",
        "192.0.2.1",
        "0.0.0.0",
        "a@localhost",
        "localhost@evil.test",
        "[::2]",
        "",
        "127.1",
        "2130706433",
    ];
    for host in others {
        for path in GUARDED.into_iter().chain(PUBLIC) {
            let response =
                send(&control, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"));
            assert_eq!(response.problem(), 421, "{host} {path}");
            assert!(
                host.is_empty() || host == "0.0.0.0" || !response.content.contains(host),
                "nothing is repeated"
            );
        }
    }
}

#[test]
fn a_request_has_exactly_one_host_and_its_target_none_but_ours() {
    let control = start(&loopback());
    for fields in ["", "host: localhost\r\nhost: localhost\r\n"] {
        let response = send(&control, &format!("GET /healthz HTTP/1.1\r\n{fields}connection: close\r\n\r\n"));
        assert_eq!(response.problem(), 400);
    }
    assert_eq!(call(&control, "GET http://evil.test/metrics", "").problem(), 421);
    assert_eq!(call(&control, "GET http://localhost/metrics", "").status, 200);
    assert_eq!(call(&control, "CONNECT evil.test:443", "").problem(), 421);
}

#[test]
fn only_reading_is_answered() {
    let control = start(&loopback());
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PURGE"] {
        let response = call(&control, &format!("{method} /metrics"), "");
        assert_eq!((response.problem(), response.field("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let head = call(&control, "HEAD /healthz", "");
    assert_eq!((head.status, &*head.content), (200, ""));
}

#[test]
fn a_purge_says_if_the_other_gateways_of_a_cluster_were_told() {
    let control = start(&loopback());
    let purge =
        |flow: &str| call(&control, &format!("POST /api/v1/cache/purge?all=true&flow={flow}"), "").json();
    assert_eq!(purge("shared"), json!({ "purged": 0, "told": true }));
    let reason = "the store of the cluster cannot be used; the other gateways are told as soon as it can";
    assert_eq!(purge("cut-off"), json!({ "purged": 0, "told": false, "reason": reason }));
}

#[test]
fn faults_are_switched_by_the_owner_of_a_token_that_changes() {
    let (config, token) = with_token();
    let control = start(&config);
    let bearer = format!("authorization: Bearer {token}\r\n");
    let switch = |target: &str| call(&control, &format!("POST /api/v1/faults/{target}"), &bearer);
    for (target, switched) in
        [("off", 3), ("on?flow=charges&for=1m", 2), ("off?flow=charges&remedy=fault", 1)]
    {
        assert_eq!(switch(target).json(), json!({ "switched": switched }), "{target}");
    }
    for target in ["on", "on?flow=charges&for=soon", "on?flow=charges&for=0s", "off?for=1m", "off?every=true"]
    {
        assert_eq!(switch(target).problem(), 400, "{target}");
    }
    assert_eq!(switch("on?flow=other").problem(), 404);
    assert_eq!(call(&control, "POST /api/v1/faults/off", "").problem(), 401);
    let listed = call(&control, "GET /api/v1/faults", &bearer).json();
    assert_eq!(
        (&listed["faults"][0]["flow"], &listed["faults"][0]["state"]),
        (&json!("charges"), &json!("on"))
    );

    let control = start(&ControlConfig { config_changes: ConfigChanges::Off, ..config });
    assert_eq!(call(&control, "POST /api/v1/faults/off", &bearer).problem(), 403);
}

#[test]
fn caches_are_purged_with_post_alone_and_from_no_other_sites_page() {
    let control = start(&loopback());
    let purge =
        |query: &str, fields: &str| call(&control, &format!("POST /api/v1/cache/purge{query}"), fields);
    for (query, purged) in [
        ("?all=true", 4),
        ("?tag=t&flow=charges", 3),
        ("?prefix=https://h.example/v1", 2),
        ("?url=HTTP%3A%2F%2Fh.example%2Fa%3Fb", 1),
    ] {
        assert_eq!(purge(query, "").json(), json!({ "purged": purged }), "{query}");
    }
    for query in ["", "?all=false", "?all=true&tag=t", "?url=/a", "?every=true"] {
        assert_eq!(purge(query, "").problem(), 400, "{query}");
    }
    let unknown = purge("?all=true&flow=unknown", "");
    assert_eq!(unknown.problem(), 404);
    assert!(unknown.json()["detail"].as_str().unwrap().ends_with("those with one are `charges`, `shared`"));
    let read = get(&control, "/api/v1/cache/purge?all=true");
    assert_eq!((read.problem(), read.field("allow")), (405, Some("POST")));
    assert_eq!(purge("?all=true", "origin: http://localhost\r\n").status, 200);
    for origin in [
        "http://evil.test",
        "null",
        "",
        "http://127.0.0.1:1",
        "http://localhost:8001",
        "http://localhost/",
        "http://localhost:x",
        "http://a@localhost",
        "http://localhost@evil.test",
        "https://localhost",
        "ftp://localhost",
        "HTTP://localhost",
        "localhost",
    ] {
        assert_eq!(purge("?all=true", &format!("origin: {origin}\r\n")).problem(), 403, "{origin}");
    }
    for origin in ["http://localhost:80", "http://LOCALHOST"] {
        assert_eq!(purge("?all=true", &format!("origin: {origin}\r\n")).status, 200, "{origin}");
    }
    for site in ["cross-site", "same-site", "", "same-origin, none"] {
        assert_eq!(purge("?all=true", &format!("sec-fetch-site: {site}\r\n")).problem(), 403, "{site}");
    }
    let both = "sec-fetch-site: same-origin\r\nsec-fetch-site: cross-site\r\n";
    assert_eq!(purge("?all=true", both).problem(), 403);
    for site in ["same-origin", "none"] {
        assert_eq!(purge("?all=true", &format!("sec-fetch-site: {site}\r\n")).status, 200, "{site}");
    }
    assert_eq!(purge("?all=true", "content-length: 1\r\n\r\nx").problem(), 413);
    let (config, token) = with_token();
    let control = start(&config);
    assert_eq!(call(&control, "POST /api/v1/cache/purge?all=true", "").problem(), 401);
    let fields = format!("authorization: Bearer {token}\r\n");
    assert_eq!(call(&control, "POST /api/v1/cache/purge?all=true", &fields).status, 200);
}

#[test]
fn a_token_guards_everything_but_the_probes_and_the_page() {
    let (config, token) = with_token();
    let control = start(&config);
    for path in GUARDED.into_iter().chain(["/no/such", "/page.css/", "//", "/healthz/"]) {
        let wrong = [
            String::new(),
            format!("{token}x"),
            token[1..].to_owned(),
            token.to_uppercase(),
            format!("{token} {token}"),
        ];
        let fields = wrong.iter().map(|wrong| format!("authorization: Bearer {wrong}\r\n"));
        let others = [
            String::new(),
            format!("authorization: Basic {token}\r\n"),
            format!("authorization: {token}\r\n"),
        ];
        for fields in fields.chain(others) {
            let response = call(&control, &format!("GET {path}"), &fields);
            assert_eq!(
                (response.problem(), response.field("www-authenticate")),
                (401, Some("Bearer realm=\"egret\"")),
                "{path} {fields}"
            );
        }
    }
    for path in GUARDED {
        for scheme in ["Bearer", "bearer"] {
            assert_eq!(
                call(&control, &format!("GET {path}"), &format!("authorization: {scheme} {token}\r\n"))
                    .status,
                200,
                "{path}"
            );
        }
    }
    for path in PUBLIC {
        assert_eq!(get(&control, path).status, 200, "{path}");
    }
}

/// Returns every path that the port names, with values in place of `{...}`. The stream of live traffic has a
/// parameter that is wrong, because it would not end.
fn known_paths(control: &Control, fields: &str) -> Vec<String> {
    let unknown = call(control, "GET /no/such", fields).json();
    let named = unknown["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap());
    let filled =
        |path: &str| path.replace("{name}", "egret.yaml").replace("{id}", "1").replace("{number}", "1");
    named.map(|path| filled(path).replace("/stream", "/stream?sample=x")).collect()
}

/// Trusts a proxy at this address, which lets `alice` write.
fn with_proxy(from: &str) -> ControlConfig {
    let proxy = json!({ "from": [from], "writers": ["alice"] });
    ControlConfig { trusted_proxy: Some(serde_json::from_value(proxy).unwrap()), ..loopback() }
}

#[test]
fn every_path_is_read_by_a_reader_and_changed_by_no_reader() {
    let (changing, token) = with_token();
    let read_token = Some(Secret::from_value("test", "reader".to_owned()));
    let read_only = ControlConfig { read_token: read_token.clone(), ..loopback() };
    let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
    let named = |user: &str| format!("x-forwarded-user: {user}\r\n");
    let tokens = || [bearer(&token), bearer("reader"), bearer("readers"), bearer("")];
    // A user counts, whatever token comes along.
    let users = [named("alice"), named("bob") + &bearer(&token), named("alice,bob"), String::new()];
    for (config, [writer, reader, stranger, nobody]) in [
        (ControlConfig { read_token, ..changing.clone() }, tokens()),
        (read_only, tokens()),
        (ControlConfig { token: changing.token, ..with_proxy("127.0.0.0/8") }, users),
    ] {
        let created = config.token.is_none().then_some(&*token);
        let control = Control::start(&config, Arc::new(Fixed::default()), access(created)).unwrap();
        let marked = |fields: &str| {
            call(&control, "GET /api/v1/stats", fields).field("x-egret-access").map(str::to_owned)
        };
        assert_eq!((marked(&reader).as_deref(), marked(&writer)), (Some("read"), None));
        let mut changes = 0;
        for path in known_paths(&control, &reader) {
            let is_public = PUBLIC.contains(&&*path);
            for method in ["GET", "HEAD", "POST", "PUT"] {
                let status = |fields: &str| call(&control, &format!("{method} {path}"), fields).status;
                let (with_all, line) = (status(&writer), format!("{method} {path}"));
                assert!(![401, 403].contains(&with_all), "{line}");
                let is_change = !matches!(method, "GET" | "HEAD") && with_all != 405;
                let with_reader = if is_change { 403 } else { with_all };
                let with_none = if is_public || with_all == 405 { with_all } else { 401 };
                assert_eq!(status(&reader), with_reader, "{line}");
                assert_eq!([&stranger, &nobody].map(|fields| status(fields)), [with_none; 2], "{line}");
                changes += usize::from(is_change);
            }
        }
        assert!(changes >= 8, "{changes}");
        let refused = call(&control, "POST /api/v1/faults/off", &reader);
        assert!(refused.problem() == 403 && refused.content.contains("only reads"));
    }
}

#[test]
fn a_user_is_believed_from_the_proxys_address_alone() {
    let (elsewhere, here) = (start(&with_proxy("10.0.0.0/8")), start(&with_proxy("127.0.0.1")));
    let off = |control: &Control, fields: &str| call(control, "POST /api/v1/faults/off", fields).status;
    let alice = "x-forwarded-user: alice\r\n";
    assert_eq!((off(&here, alice), off(&elsewhere, alice)), (200, 401));
    assert_eq!(call(&elsewhere, "GET /metrics", alice).problem(), 401);
    for fields in [
        "x-forwarded-user:\r\n",
        "x-forwarded-user: alice\r\nx-forwarded-user: alice\r\n",
        "x-forwarded-user: bob\r\nX-Forwarded-User: alice\r\n",
        "x-forwarded-user: alice, bob\r\n",
        "x-forwarded-user: ali\u{7f}ce\r\n",
        "x-forwarded-user: alicé\r\n",
        "x_forwarded_user: alice\r\n",
        "x-forwarded-email: alice\r\n",
    ] {
        assert!(![200, 204].contains(&off(&here, fields)), "{fields}");
    }
    for fields in ["x-forwarded-user: mallory\r\n", "x-forwarded-user: Alice\r\n"] {
        assert_eq!(off(&here, fields), 403, "{fields}");
    }
    let origins = [
        ("https://localhost", 200),
        ("https://localhost:443", 200),
        ("http://localhost", 200),
        ("https://localhost:80", 403),
        ("http://localhost:443", 403),
        ("https://evil.example", 403),
        ("null", 403),
    ];
    for (origin, status) in origins {
        assert_eq!(off(&here, &format!("{alice}origin: {origin}\r\n")), status, "{origin}");
    }
    assert_eq!(off(&here, &format!("{alice}sec-fetch-site: same-site\r\n")), 403);
    let rebound = format!("GET /metrics HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n{alice}\r\n");
    assert_eq!(send(&here, &rebound).status, 421);
}

/// Sends a request that asks for the proof, and returns the answer and the token that the key gives.
fn prove(control: &Control, key: &ControlKey, path: &str, fields: &str) -> (Answer, Option<Secret>) {
    let mut stream = connect(control);
    let ends = Ends { gateway: stream.peer_addr().unwrap(), client: stream.local_addr().unwrap() };
    let nonce = ControlKey::nonce().unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    stream.write_all(format!("{request}{NONCE_FIELD}: {nonce}\r\n{fields}\r\n").as_bytes()).unwrap();
    let answer = read_answer(stream);
    let access = answer.field(PROOF_FIELD).and_then(|proof| key.verify(&nonce, ends, proof));
    (answer, access)
}

#[test]
fn a_gateway_proves_itself_on_every_path() {
    let (config, secret) = with_token();
    let key = ControlKey::new(&[7; 32]);
    let access = access_with(None, Identity::new(key.clone()));
    let control = Control::start(&config, Arc::new(Fixed::default()), access).unwrap();
    for (paths, status) in [(PUBLIC.as_slice(), 200), (GUARDED.as_slice(), 401), (&["/api/v1/traffic"], 401)]
    {
        for path in paths {
            let (answer, access) = prove(&control, &key, path, "");
            assert_eq!(answer.status, status, "{path}");
            let access = format!("authorization: Bearer {}\r\n", access.unwrap().expose());
            assert_eq!(call(&control, &format!("GET {path}"), &access).status, 200, "{path}");
            assert!(!answer.head.contains(&secret) && answer.content != secret);
        }
    }
    let (_, stranger) = prove(&control, &ControlKey::new(&[8; 32]), "/healthz", "");
    assert!(stranger.is_none());
    for nonce in ["", "x", &"A".repeat(64)] {
        let answer = call(&control, "GET /healthz", &format!("{NONCE_FIELD}: {nonce}\r\n"));
        assert_eq!((answer.status, answer.field(PROOF_FIELD)), (200, None), "{nonce}");
    }
    // A token of the config goes on to work, and a gateway without the key has no proof.
    assert_eq!(call(&control, "GET /metrics", &format!("authorization: Bearer {secret}\r\n")).status, 200);
    let (answer, access) = prove(&start(&loopback()), &key, "/healthz", "");
    assert!(answer.status == 200 && access.is_none());
}

#[test]
fn an_address_off_loopback_requires_a_token() {
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let open = ControlConfig { listen: everywhere, ..loopback() };
    assert!(matches!(
        Control::start(&open, Arc::new(Fixed::default()), access(None)),
        Err(ControlError::MissingToken { .. })
    ));

    let control = start(&ControlConfig { listen: everywhere, ..with_token().0 });
    let probe = |host: &str| {
        send(&control, &format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")).status
    };
    assert_eq!((probe("192.0.2.1:8001"), probe("egret.evil.test")), (200, 421));
}

const CREATED: &str = "0123456789abcdef";

/// Every method and path about the config's files, with field lines and content that are accepted.
const OF_CONFIG: [(&str, &str, &str); 9] = [
    ("GET /api/v1/config/files", "", ""),
    ("HEAD /api/v1/config/files", "", ""),
    ("GET /api/v1/config/files/egret.yaml", "", ""),
    ("PUT /api/v1/config/files/egret.yaml", "if-match: \"1\"\r\n", "log: {}\n"),
    ("POST /api/v1/config/validate", "", "log: {}\n"),
    ("GET /api/v1/config/versions", "", ""),
    ("GET /api/v1/config/versions/1", "", ""),
    ("POST /api/v1/config/rollback?version=1", "", ""),
    ("POST /api/v1/config/reload", "", ""),
];

fn send_config(control: &Control, of_config: (&str, &str, &str), host: &str, fields: &str) -> Answer {
    let (line, own_fields, content) = of_config;
    let length = content.len();
    send(
        control,
        &format!(
            "{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{own_fields}{fields}\r\n{content}"
        ),
    )
}

#[test]
fn attacks_are_refused_on_every_path_of_the_configs_files() {
    let created = || Control::start(&loopback(), Arc::new(Fixed::default()), access(Some(CREATED))).unwrap();
    let (configured, secret) = with_token();
    let configured = Control::start(&configured, Arc::new(Fixed::default()), access(None)).unwrap();
    for (control, token) in [(created(), CREATED), (configured, &secret)] {
        let right = format!("authorization: Bearer {token}\r\n");
        let attacks = [
            ("the owner", 200, "localhost", right.clone()),
            ("the page itself", 200, "localhost:80", format!("{right}origin: http://localhost:80\r\n")),
            ("without the token", 401, "localhost", String::new()),
            ("a guess", 401, "localhost", "authorization: Bearer 0123456789abcdee\r\n".to_owned()),
            ("the token cut short", 401, "localhost", right.replace(token, &token[..8])),
            ("the token as a password", 401, "localhost", right.replace("Bearer", "Basic")),
            (
                "the page of another site",
                403,
                "localhost",
                format!("{right}origin: https://evil.example\r\n"),
            ),
            ("a sandboxed page", 403, "localhost", format!("{right}origin: null\r\n")),
            ("another port's page", 403, "localhost", format!("{right}origin: http://localhost:9\r\n")),
            ("a link of another site", 403, "localhost", format!("{right}sec-fetch-site: cross-site\r\n")),
            ("a rebound name", 421, "evil.example", right.clone()),
            ("two hosts", 400, "localhost", format!("{right}host: localhost\r\n")),
        ];
        for of_config in OF_CONFIG {
            for (attack, status, host, fields) in &attacks {
                let answer = send_config(&control, of_config, host, fields);
                assert_eq!(answer.status, *status, "{attack}: {of_config:?}");
                assert!(!answer.content.contains(token), "{attack}: {of_config:?}");
            }
        }
    }
}

#[test]
fn without_any_token_the_configs_files_are_out_of_reach() {
    let control = start(&loopback());
    for of_config in OF_CONFIG {
        let answer = send_config(&control, of_config, "localhost", "authorization: Bearer x\r\n");
        assert_eq!(answer.status, 403, "{of_config:?}");
    }
    assert_eq!(get(&control, "/api/v1/config").status, 200, "what needs no token is read as before");
}

#[test]
fn live_traffic_requires_the_token() {
    let source = Arc::new(Fixed::default());
    let shared: Arc<dyn Source> = Arc::<Fixed>::clone(&source);
    let control = Control::start(&loopback(), shared, access(Some(CREATED))).unwrap();
    let authorized = format!("authorization: Bearer {CREATED}\r\n");
    for path in ["/api/v1/traffic", "/api/v1/traffic/1", "/api/v1/traffic/stream"] {
        assert_eq!(get(&control, path).problem(), 401, "{path}");
    }
    assert!(!source.traffic.is_open());
    let read = |path: &str| call(&control, &format!("GET {path}"), &authorized);
    let list = read("/api/v1/traffic?limit=5&status=5xx").json();
    assert_eq!((&list["exchanges"], &list["status"]["open"]), (&json!([]), &json!(true)));
    assert!(source.traffic.is_open());
    assert_eq!(read("/api/v1/traffic").json()["status"]["open"], json!(true));
    for wrong in ["?status=x", "?limit=-1", "?before=", "?color=red", "/stream?sample=x", "?slower_than=2"] {
        assert_eq!(read(&format!("/api/v1/traffic{wrong}")).problem(), 400, "{wrong}");
    }
    for missing in ["/7", "/x", "/1/2"] {
        assert_eq!(read(&format!("/api/v1/traffic{missing}")).problem(), 404, "{missing}");
    }
    let mut stream = connect(&control);
    let request = format!("GET /api/v1/traffic/stream HTTP/1.1\r\nhost: localhost\r\n{authorized}\r\n");
    // In one piece: a head has a second to arrive.
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let status = lines.find(|line| line.starts_with('{')).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["type"], &status["readers"]), (&json!("status"), &json!(1)));
    control.stop();
    assert!(lines.last().is_some_and(|line| line.is_empty()), "the stream ends with its last chunk");
}

#[test]
fn a_file_is_read_changed_and_rolled_back() {
    let control = Control::start(&loopback(), Arc::new(Fixed::default()), access(Some(CREATED))).unwrap();
    let authorized = format!("authorization: Bearer {CREATED}\r\n");
    let call = |line, fields: &str, content| {
        send_config(&control, (line, fields, content), "localhost", &authorized)
    };
    let files = call("GET /api/v1/config/files", "", "");
    assert_eq!(files.field("etag"), Some(ETAG));
    assert_eq!(files.json()["files"][0], json!({ "name": "egret.yaml", "text": "log: {}\n" }));
    let file = call("GET /api/v1/config/files/egret.yaml", "", "");
    assert_eq!((file.content.as_str(), file.field("content-type")), ("log: {}\n", Some("application/yaml")));
    let put = "PUT /api/v1/config/files/egret.yaml";
    for (line, fields, status) in [
        (put, "", 428),
        (put, "if-match: *\r\n", 428),
        (put, "if-match: \"0\"\r\n", 412),
        (put, "if-match: W/\"1\"\r\n", 412),
        ("PUT /api/v1/config/files/other.yaml", "if-match: \"1\"\r\n", 404),
        ("PUT /api/v1/config/files/..%2fegret.yaml", "if-match: \"1\"\r\n", 404),
        ("POST /api/v1/config/rollback", "", 400),
        ("POST /api/v1/config/rollback?version=7", "", 404),
        ("GET /api/v1/config/versions/x", "", 404),
    ] {
        let content = if line.starts_with("PUT") { "log: {}\n" } else { "" };
        assert_eq!(call(line, fields, content).problem(), status, "{line} {fields}");
    }
    let put = call(put, "if-match: \"0\", \"1\"\r\n", "log: {}\n");
    assert_eq!((put.field("etag"), put.json()["version"].as_u64()), (Some("\"2\""), Some(2)));
    assert_eq!(call("POST /api/v1/config/validate", "", "x").json()["valid"], false);
    assert_eq!(call("DELETE /api/v1/config/files/egret.yaml", "", "").field("allow"), Some("GET, HEAD, PUT"));
    assert_eq!(call("GET /api/v1/config/files", "", "x").problem(), 413);
}

#[test]
fn a_config_has_at_most_a_mebibyte_and_only_with_the_token() {
    let control = Control::start(&loopback(), Arc::new(Fixed::default()), access(Some(CREATED))).unwrap();
    let authorized = format!("authorization: Bearer {CREATED}\r\n");
    for (bytes, status) in [(1 << 20, 200), ((1 << 20) + 1, 413)] {
        let content = "#".repeat(bytes);
        let of_config = ("POST /api/v1/config/validate", "", content.as_str());
        assert_eq!(send_config(&control, of_config, "localhost", &authorized).status, status, "{bytes}");
    }
}

#[test]
fn one_change_is_made_at_a_time() {
    let control = Control::start(&loopback(), Arc::new(Fixed::default()), access(Some(CREATED))).unwrap();
    let mut first = connect(&control);
    let head = format!("host: localhost\r\nauthorization: Bearer {CREATED}\r\nif-match: \"1\"\r\n");
    let put = "PUT /api/v1/config/files/egret.yaml HTTP/1.1";
    first.write_all(format!("{put}\r\n{head}content-length: 4\r\n\r\nwait").as_bytes()).unwrap();
    // The first change has begun once a second one finds it there.
    let deadline = Instant::now() + Duration::from_secs(20);
    let second = || send(&control, &format!("{put}\r\n{head}content-length: 2\r\n\r\n{{}}"));
    while second().status != 409 {
        assert!(Instant::now() < deadline, "the changes were made at the same time");
    }
    drop(first);
}

#[test]
fn an_unknown_path_is_a_problem() {
    let control = start(&loopback());
    for path in ["/no/such", "/api/v1", "/api/v1/stats/", "/../etc/passwd", "/%2e%2e/page.js"] {
        assert_eq!(get(&control, path).problem(), 404, "{path}");
    }
}

#[test]
fn an_unknown_path_names_the_known_ones() {
    let control = start(&loopback());
    let unknown = get(&control, "/no/such").json();
    let named: Vec<&str> =
        unknown["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    let page = get(&control, "/").content;
    for path in &named {
        let method = if *path == "/api/v1/cache/purge" { "POST" } else { "GET" };
        assert_ne!(call(&control, &format!("{method} {path}"), "").status, 404, "{path}");
        let is_linked = page.contains(&format!("<a href=\"{path}\""));
        // A link cannot carry the token that the config's files and live traffic always need.
        let is_private =
            ["config/", "traffic", "failures"].iter().any(|of| path.starts_with(&format!("/api/v1/{of}")));
        let is_changing = matches!(*path, "/api/v1/cache/purge" | "/api/v1/faults/on" | "/api/v1/faults/off");
        assert_eq!(is_linked, !is_private && !is_changing && *path != "/", "{path}");
    }
    for path in GUARDED.into_iter().chain(["/", "/healthz", "/readyz", "/api/v1/cache/purge"]) {
        assert!(named.contains(&path), "{path}");
    }
}

#[test]
fn content_is_refused_and_the_connection_closed() {
    let control = start(&loopback());
    for fields in ["content-length: 5\r\n", "transfer-encoding: chunked\r\n"] {
        let response = send(&control, &format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n"));
        assert_eq!((response.problem(), response.field("connection")), (413, Some("close")));
    }
}

#[test]
fn a_large_head_is_refused() {
    let control = start(&loopback());
    assert_eq!(
        call(&control, "GET /healthz", &format!("x-large: {}\r\n", "x".repeat(17 << 10))).problem(),
        431
    );
    assert_eq!(call(&control, "GET /healthz", &"x-many: 1\r\n".repeat(200)).status, 431);
    assert_eq!(call(&control, "GET /healthz", &format!("x-fair: {}\r\n", "x".repeat(8 << 10))).status, 200);
}

#[test]
fn a_head_without_end_is_cut_off() {
    let control = start(&loopback());
    let mut stream = connect(&control);
    let cut = (0..1_000).any(|_| stream.write_all(&[b'x'; 1_024]).is_err());
    let mut response = Vec::new();
    // A reset is a valid end as well; only the test's own timeout is not.
    let read = stream.read_to_end(&mut response);
    assert!(cut || !read.as_ref().is_err_and(|error| error.kind() != ErrorKind::ConnectionReset), "{read:?}");
    assert!(!response.starts_with(b"HTTP/1.1 2"));
    assert_eq!(get(&control, "/healthz").status, 200);
}

#[test]
fn bad_bytes_end_their_own_connection_alone() {
    let control = start(&loopback());
    for bytes in [
        "\0\0\0\0\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let mut stream = connect(&control);
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut response = Vec::new();
        // A reset is a valid end as well.
        let _ = stream.read_to_end(&mut response);
        assert!(
            response.is_empty() || response.starts_with(b"HTTP/1.1 4"),
            "{:?}",
            String::from_utf8_lossy(&response)
        );
    }
    assert_eq!(get(&control, "/healthz").status, 200);
}

/// Repeats a round until nobody in it was kept waiting. On a busy machine, the port may give up a connection
/// of a round for another reason.
fn assert_prompt(mut round: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(4);
    while !round() {
        assert!(Instant::now() < deadline, "the port answers when it has given others up");
    }
}

#[test]
fn half_requests_keep_nobody_waiting() {
    let control = start(&loopback());
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_prompt(|| {
            let holding: Vec<_> = (0..400)
                .map(|_| {
                    let mut stream = connect(&control);
                    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: loc").unwrap();
                    stream
                })
                .collect();
            assert_eq!(get(&control, path).status, 200, "{path}");
            // In a queue, most of them would have been given up before: 64 have a place for a second.
            holding[400 - 32..].iter().all(|stream| {
                stream.set_nonblocking(true).unwrap();
                stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            })
        });
    }
}

/// Opens a connection whose client has a small receive buffer and reads no responses.
fn unread(control: &Control, request: &str) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let connected = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket.connect(control.address()).await
    });
    let stream = connected.unwrap().into_std().unwrap();
    // Sends as much as is accepted at once: the port stops reading when its responses are not read.
    let _ = (&stream).write(request.as_bytes());
    stream
}

#[test]
fn responses_that_are_not_taken_keep_nobody_waiting() {
    let control = start(&loopback());
    let request = "GET /page.js HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(200);
    assert_prompt(|| {
        let holding: Vec<_> = (0..80).map(|_| unread(&control, &request)).collect();
        assert_eq!(get(&control, "/healthz").status, 200);
        // In a queue, the first 64 would have been given up before. As it is, the first few are.
        holding[32..64].iter().all(|stream| stream.take_error().unwrap().is_none())
    });
}

#[test]
fn stopping_frees_the_port_and_waits_for_no_idle_connection() {
    // No other test listens at this address, and so gets the port that is freed.
    let own = SocketAddr::from(([127, 0, 0, 4], 0));
    let control = start(&ControlConfig { listen: own, ..loopback() });
    let address = control.address();
    let mut idle = TcpStream::connect(address).unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    idle.read_exact(&mut [0; 15]).unwrap();
    control.stop();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn an_address_in_use_is_named() {
    let control = start(&loopback());
    let again = ControlConfig { listen: control.address(), ..loopback() };
    let error = Control::start(&again, Arc::new(Fixed::default()), access(None)).unwrap_err();
    assert!(error.to_string().contains(&control.address().to_string()), "{error}");
}
