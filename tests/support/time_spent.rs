//! Calls that spend their time in all ways, with the clocks of their clients and of their provider.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::arrival;
use crate::egret::{Config, Egret};
use crate::provider::{Peer, Provider, ok};
use crate::recorded::{content, entries, files, until_recorded};

/// The ways: each is the name of a provider, and of a flow if it needs one. A call is `retried` after a 503,
/// `hedged` because its first try gets no response, `queued`, repeated because its kept connection is reset
/// (`dead`, and `dead-in-flow`), or opens a new connection (`cold`).
pub const WAYS: [&str; 7] = ["plain", "retried", "hedged", "queued", "dead", "dead-in-flow", "cold"];

/// Time that the provider lets pass before it fails a call, at least.
pub const PAUSE: Duration = Duration::from_millis(2);

const FLOWS: &str = "\
quotas: { pace: { limit: 1, window: 30ms } }
exporters: { lines: { type: lines, directory: ./lines }, archive: { type: har, directory: ./har } }
flows:
  - name: all
    diagnoses:
      - access-log: { export: lines, obfuscate: false, detect_secrets: false, fields: [target, attempts, duration_us, blocked_us, provider_us, footprint_us] }
      - har: { export: archive, obfuscate: false, detect_secrets: false }
  - name: retried
    match: { provider: retried }
    remedies: [retry: { attempts: 2, on: [5xx], backoff: { base: 1ms, max: 1ms }, budget: { ratio: 10 } }]
  - { name: hedged, match: { provider: hedged }, remedies: [hedge: { after: 5ms, budget: { ratio: 1, min_per_second: 1000 } }] }
  - { name: queued, match: { provider: queued }, remedies: [queue: { quota: pace, max_wait: 1h }] }
  - { name: dead-in-flow, match: { provider: dead-in-flow }, remedies: [timeout: 1h] }
";

/// An exchange. Times are in microseconds.
#[derive(Debug)]
pub struct SpentTime {
    /// One of [`WAYS`].
    pub way: &'static str,
    /// Time from the request until the response arrived at the client's socket.
    pub client_us: u64,
    /// Time from the arrival of each request at the provider's socket to just before its response, or the
    /// reset. A first call that is hedged counts until the response to the second one.
    pub provider_us: u64,
    /// The same of the first request alone.
    pub first_us: u64,
    /// Time for which Egret's workers were ready to run, and waited for a processor.
    pub queued_us: u64,
    /// Its line of the diagnosis `access-log`.
    pub line: Value,
    /// Its entry of the HAR archive.
    pub entry: Value,
}

impl SpentTime {
    /// A time of its line.
    pub fn line_us(&self, field: &str) -> u64 {
        self.line[field].as_u64().unwrap_or_default()
    }

    /// A timing of its entry; those that did not happen are 0.
    pub fn timing_us(&self, name: &str) -> u64 {
        micros_of_ms(self.entry["timings"][name].as_f64().unwrap_or_default().max(0.0))
    }
}

/// Returns a time in microseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are short")]
pub fn micros_of_ms(ms: f64) -> u64 {
    (ms * 1_000.0).round() as u64
}

/// The calls by target: when each arrived at the provider since the epoch, and its end.
type Clock = Arc<Mutex<BTreeMap<String, BTreeMap<Duration, CallEnd>>>>;

/// The time at which a call was answered, or reset, in nanoseconds since the epoch. It is noted without a
/// lock, just before the bytes are sent.
#[derive(Debug, Clone)]
struct CallEnd(Arc<AtomicU64>);

impl CallEnd {
    fn now() -> Self {
        let end = Self(Arc::default());
        end.note();
        end
    }

    fn note(&self) {
        self.0.store(u64::try_from(arrival::now().as_nanos()).unwrap(), Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }
}

/// The clock of a client.
#[derive(Debug)]
struct Client {
    /// Time until the response has arrived.
    took: Duration,
    /// Time that Egret's workers have waited for a processor.
    queued: Duration,
}

/// A gateway after calls of all ways.
#[derive(Debug)]
pub struct TimeSpent {
    /// The gateway, still running.
    pub egret: Egret,
    clients: BTreeMap<String, Client>,
    provider: Clock,
    _origin: Provider,
}

impl TimeSpent {
    /// Makes `calls` calls, one after the other by each of `clients` clients, and waits until all of them are
    /// recorded.
    pub fn by(clients: usize, calls: usize) -> Self {
        let provider = Clock::default();
        let clock = Arc::clone(&provider);
        let origin = Provider::scripted(move |peer| respond(peer, &clock));
        let config = WAYS
            .iter()
            .fold(Config::default(), |config, way| config.provider(way, format!("{}/{way}", origin.url())));
        let egret = config.flows(FLOWS).start();
        let call_all = |first: usize| {
            let (mut client, mut times) = (egret.client(), BTreeMap::new());
            let queued_time = || {
                egret
                    .process()
                    .threads_named("egret-worker")
                    .iter()
                    .map(|thread| thread.queued)
                    .sum::<Duration>()
            };
            arrival::watch(client.stream());
            for number in (first..calls).step_by(clients) {
                let path = format!("/{}/{number}", WAYS[number % WAYS.len()]);
                let queued = queued_time();
                let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", egret.address());
                let since = arrival::now();
                client.send(&request);
                let until = arrival::of(client.stream()).unwrap();
                client.response().assert_forwarded(200);
                let queued = queued_time().saturating_sub(queued);
                times.insert(path, Client { took: until.saturating_sub(since), queued });
            }
            times
        };
        let times = thread::scope(|scope| {
            let threads: Vec<_> = (0..clients).map(|first| scope.spawn(move || call_all(first))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        until_recorded(&egret, calls as u64);
        Self { egret, clients: times, provider, _origin: origin }
    }

    /// Stops the gateway, and returns all exchanges.
    pub fn exchanges(self) -> Vec<SpentTime> {
        let Self { mut egret, clients, provider, _origin } = self;
        egret.terminate();
        assert!(egret.until_ended().success());
        let written = |directory: &str| files(&egret.directory().join(directory));
        let text: Vec<u8> = written("lines").iter().flat_map(|file| content(file)).collect();
        let lines = String::from_utf8(text).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut lines: BTreeMap<String, Value> =
            lines.map(|line| (line["target"].as_str().unwrap().to_owned(), line)).collect();
        let path = |url: &str| url.splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap();
        let entries = entries(&written("har")).into_iter();
        let mut entries: BTreeMap<String, Value> =
            entries.map(|entry| (path(entry["request"]["url"].as_str().unwrap()), entry)).collect();
        let provider = provider.lock().unwrap();
        let exchange = |(path, client): (String, Client)| {
            let calls = &provider[&path];
            let way = WAYS.into_iter().find(|way| path.starts_with(&format!("/{way}/"))).unwrap();
            let ((first, end), (_, last)) =
                (calls.first_key_value().unwrap(), calls.last_key_value().unwrap());
            let length = |(from, end): (&Duration, &CallEnd)| micros(end.get().saturating_sub(*from));
            SpentTime {
                way,
                client_us: micros(client.took),
                provider_us: match way {
                    "hedged" => length((first, last)),
                    _ => calls.iter().map(length).sum(),
                },
                first_us: length((first, end)),
                queued_us: micros(client.queued),
                line: lines.remove(&path).unwrap_or_else(|| panic!("no line of {path}")),
                entry: entries.remove(&path).unwrap_or_else(|| panic!("no entry of {path}")),
            }
        };
        clients.into_iter().map(exchange).collect()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

fn respond(peer: &mut Peer, clock: &Clock) {
    let mut is_reused = false;
    peer.watch_arrivals();
    while let Some(arrived) = peer.arrival() {
        let Some(request) = peer.request() else { return };
        let target = request.target().to_owned();
        // One step: a call and its second one may arrive at the same time, and only one of them is the first.
        let (is_first, end) = {
            let mut clock = clock.lock().unwrap();
            let calls = clock.entry(target.clone()).or_default();
            let is_first = calls.is_empty();
            (is_first, calls.entry(arrived).or_insert_with(CallEnd::now).clone())
        };
        let way = target.split('/').nth(1).unwrap();
        let response = match way {
            "retried" if is_first => {
                peer.pause(PAUSE);
                b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec()
            }
            "hedged" if is_first => return peer.stall(),
            "dead" | "dead-in-flow" if is_reused => {
                peer.pause(PAUSE);
                end.note();
                return peer.reset();
            }
            "cold" => b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec(),
            _ => ok("hello"),
        };
        end.note();
        peer.send(&response);
        if way == "cold" {
            return;
        }
        is_reused = true;
    }
}
