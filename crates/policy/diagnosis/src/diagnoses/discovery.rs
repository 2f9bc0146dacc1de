//! `discovery`: an inventory of the endpoints that are called, with ids merged into parameters, and a
//! proposal of flows for them.

pub(crate) mod inventory;
mod proposal;
pub(crate) mod times;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use egret_clock::{Timestamp, rfc3339};
use egret_har::Key;
use egret_http1::{Method, is_token};
use egret_match::target::normal_path;
use egret_message::request_target::split_target;
use inventory::{Bounds, FoundEndpoint, Inventory, Origin, SeenCalls};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use times::TimeHistogram;

use crate::context::{CompileContext, StateStore};
use crate::diagnosis::{Diagnosis, Tick};
use crate::discovered::{Discovered, DiscoveredEndpoint};
use crate::finished::{Finished, exportable};

pub use proposal::propose;

/// Maximum of `endpoints_max`.
const ENDPOINTS_MAX: u32 = 10_000;
/// Maximum number of consumers listed per endpoint, and of client programs.
const NAMES_MAX: usize = 32;
/// Maximum of `variety`.
const VARIETY_MAX: u32 = 1_000;
/// Interval between writes of a changed inventory to storage.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);

egret_config::keys! {
    /// Keeps an inventory of the endpoints that are called.
    #[derive(Eq)]
    pub struct DiscoveryConfig {
        /// Number of different words at one position of a path beyond which all of them become values of one
        /// parameter. Numbers, UUIDs, hexadecimal strings and the like are values from the start.
        #[schemars(range(min = 2, max = 1_000))]
        pub variety: u32 = 30,
        /// Maximum number of endpoints, up to 10000. Exchanges of further endpoints are only counted.
        #[schemars(range(min = 1, max = 10_000))]
        pub endpoints_max: u32 = 1_000,
        /// Keeps the inventory in `data_dir` across restarts.
        pub keep: bool,
        /// Request field whose values are listed as the client programs of an endpoint, such as `user-agent`,
        /// or `x-lunar-interceptor`. Without it none are listed.
        #[schemars(length(max = 64))]
        pub client_field: Option<String> = None,
    }
}

impl DiscoveryConfig {
    fn bounds(&self) -> Bounds {
        let (variety, endpoints) = (self.variety as usize, self.endpoints_max as usize);
        Bounds { variety, endpoints, names: NAMES_MAX, bytes: usize::MAX }
    }
}

/// Keeps an inventory of the endpoints that are called.
#[derive(Debug)]
pub struct Discovery {
    config: DiscoveryConfig,
    /// `client_field` in lower case.
    client_field: Option<Vec<u8>>,
    key: Option<Arc<Key>>,
    state_store: Option<Arc<dyn StateStore>>,
    /// File name of the stored inventory.
    name: String,
    state: Arc<Mutex<DiscoveryState>>,
}

/// The inventory so far. It outlives a reload.
#[derive(Debug, Default)]
struct DiscoveryState {
    inventory: Inventory,
    has_changed: bool,
    saved: Option<Timestamp>,
}

/// The stored form of an inventory.
#[derive(Debug, Default, Deserialize, Serialize)]
struct SavedInventory {
    unlisted: u64,
    endpoints: Vec<FoundEndpoint>,
}

impl Diagnosis for Discovery {
    type Config = DiscoveryConfig;

    fn compile(config: &DiscoveryConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        let problems = context.problems.len();
        if context.is_another() {
            context.problem("", "a flow can have only one `discovery`");
        }
        if !(2..=VARIETY_MAX).contains(&config.variety) {
            context.problem("variety", format!("must be from 2 to {VARIETY_MAX}"));
        }
        if !(1..=ENDPOINTS_MAX).contains(&config.endpoints_max) {
            context.problem("endpoints_max", format!("must be from 1 to {ENDPOINTS_MAX}"));
        }
        if config.client_field.as_ref().is_some_and(|name| !is_token(name.as_bytes())) {
            context.problem("client_field", "must be the name of a header field");
        }
        if context.problems.len() > problems {
            return None;
        }
        let state_store = context.exports.state_store.as_ref().filter(|_| config.keep).map(Arc::clone);
        let name = format!("discovery-{}.json", context.flow());
        let state = context.states.keep(
            |_: &Mutex<DiscoveryState>| true,
            || Mutex::new(DiscoveryState::restored(config, state_store.as_deref(), &name)),
        );
        let key = context.exports.key.as_ref().map(Arc::clone);
        let client_field = config.client_field.as_ref().map(|name| name.to_ascii_lowercase().into_bytes());
        Some(Self { config: config.clone(), client_field, key, state_store, name, state })
    }

    fn describe(&self) -> String {
        let kept = if self.config.keep { ", kept across restarts" } else { "" };
        format!("lists up to {} endpoints{kept}", self.config.endpoints_max)
    }

    fn see(&self, exchange: &Finished<'_>) {
        let (record, facts) = (exchange.record(), exchange.facts());
        // A request that the gateway refused has reached no endpoint, and a tunnel has none.
        let is_refused = facts.attempts == 0 && facts.error.is_some();
        let (path, _) = split_target(record.relative_target());
        if is_refused || exchange.method() == Method::Connect || !path.starts_with(b"/") {
            return;
        }
        let base = record.target().len().saturating_sub(record.relative_target().len());
        let base = record.target()[..base].strip_suffix(b"/").unwrap_or(&record.target()[..base]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let origin = Origin {
            provider: record.provider().to_owned(),
            tls: facts.tls,
            host: record.host().to_owned(),
            port: facts.port,
            prefix: text(base),
        };
        let (mut times, started_us) = (TimeHistogram::default(), facts.started.as_micros());
        times.count(facts.times.total_us());
        let call = SeenCalls {
            method: exchange.method().name(),
            path: &text(&normal_path(path)),
            status: exchange.status(),
            has_retry_after: exchange.response_field(b"retry-after").is_some(),
            consumer: &exchange.exportable_consumer(self.key.as_deref()),
            client: &self.client(exchange),
            count: 1,
            times,
            first_us: started_us,
            last_us: started_us,
        };
        let mut state = self.state.lock();
        state.inventory.add(&origin, call, &self.config.bounds());
        state.has_changed = true;
    }

    fn tick(&self, tick: Tick) {
        let Some(state_store) = &self.state_store else { return };
        let mut state = self.state.lock();
        let since = state.saved.get_or_insert(tick.now);
        let is_due = tick.is_last || tick.now.since(*since) >= SAVE_INTERVAL;
        if !is_due || !state.has_changed {
            return;
        }
        state.saved = Some(tick.now);
        state.has_changed = false;
        let saved =
            SavedInventory { unlisted: state.inventory.unlisted, endpoints: state.inventory.endpoints() };
        // Requests for the inventory must not wait for the disk.
        drop(state);
        if let Ok(text) = serde_json::to_vec(&saved) {
            state_store.save(&self.name, &text);
        }
    }

    fn discovered(&self) -> Option<Discovered> {
        let state = self.state.lock();
        let endpoints = state.inventory.endpoints();
        let unlisted = state.inventory.unlisted;
        drop(state);
        let endpoints = endpoints.into_iter().map(DiscoveredEndpoint::from).collect();
        Some(Discovered { unlisted, endpoints, ..Discovered::default() })
    }
}

impl Discovery {
    /// Returns the name of the client program; empty if nobody asks for it, or the request has none.
    fn client<'a>(&self, exchange: &Finished<'a>) -> Cow<'a, str> {
        let value = self.client_field.as_ref().and_then(|name| exchange.request_field(name));
        exportable(value.unwrap_or_default(), self.key.as_deref())
    }
}

impl DiscoveryState {
    /// Loads the stored inventory. Returns an empty one if there is none or it cannot be read.
    fn restored(config: &DiscoveryConfig, state_store: Option<&dyn StateStore>, name: &str) -> Self {
        let mut state = Self::default();
        let Some(text) = state_store.and_then(|store| store.load(name)) else { return state };
        match serde_json::from_slice::<SavedInventory>(&text) {
            Ok(saved) => {
                state.inventory.unlisted = saved.unlisted;
                for endpoint in saved.endpoints {
                    state.inventory.restore(endpoint, &config.bounds());
                }
            }
            Err(error) => {
                tracing::warn!(file = name, "cannot read the stored inventory, so it starts empty: {error}");
            }
        }
        state
    }
}

impl From<FoundEndpoint> for DiscoveredEndpoint {
    fn from(endpoint: FoundEndpoint) -> Self {
        let FoundEndpoint { origin, path, method, stats } = endpoint;
        let quantile = |share| stats.times.quantile_us(share).unwrap_or_default();
        Self {
            url: url(&origin),
            host: origin.host,
            provider: origin.provider,
            path: pattern(&path),
            method,
            count: stats.count,
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            first_seen: date(stats.first_seen_us),
            last_seen: date(stats.last_seen_us),
            statuses: stats.statuses,
            consumers: stats.consumers.listed,
            other_consumers: stats.consumers.others,
            clients: stats.clients.listed,
            other_clients: stats.clients.others,
            retry_after: stats.retry_after,
        }
    }
}

/// Returns a time in microseconds since 1970 as RFC 3339 has it.
pub(crate) fn date(us: u64) -> String {
    let mut text = Vec::new();
    rfc3339::write_unix_us(us, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Returns a provider's URL without the default port.
fn url(origin: &Origin) -> String {
    let Origin { tls, host, port, prefix, .. } = origin;
    let scheme = if *tls { "https" } else { "http" };
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let port = if *port == if *tls { 443 } else { 80 } { String::new() } else { format!(":{port}") };
    format!("{scheme}://{host}{port}{prefix}")
}

/// Formats a path as a match. A parameter is named after the preceding word: `/users/{user_id}`.
fn pattern(path: &[Option<String>]) -> String {
    let mut pattern = String::new();
    let mut names: Vec<String> = Vec::new();
    let mut before = "";
    for segment in path {
        pattern.push('/');
        match segment.as_deref() {
            Some(word) if word != inventory::VARIED => {
                pattern.push_str(word);
                before = word;
            }
            _ => {
                let name = parameter(before, &names);
                pattern.extend(["{", &name, "}"]);
                names.push(name);
                before = "";
            }
        }
    }
    if pattern.is_empty() { "/".to_owned() } else { pattern }
}

/// Returns the name of a parameter: `user_id` after `users`, `id` without a usable word. A number is appended
/// if the name is taken.
fn parameter(before: &str, taken: &[String]) -> String {
    let word = singular(before);
    let plain = word.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' });
    let plain: String = plain.collect::<String>().to_ascii_lowercase();
    let starts_well = plain.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    let name = if starts_well { format!("{plain}_id") } else { "id".to_owned() };
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !taken.contains(name)).unwrap_or(name)
}

/// Returns the English singular of a collection's name, for regular plurals.
fn singular(word: &str) -> String {
    let is_singular = ["ss", "us", "is"].iter().any(|ending| word.ends_with(ending));
    match (word.strip_suffix("ies"), word.strip_suffix('s')) {
        (Some(stem), _) if !stem.is_empty() => format!("{stem}y"),
        (_, Some(stem)) if !stem.is_empty() && !is_singular => stem.to_owned(),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{Archive, hand_over};

    fn endpoints(archive: &Archive) -> Vec<DiscoveredEndpoint> {
        let [discovered] = &archive.diagnoses.discovered()[..] else { panic!("one") };
        assert_eq!(discovered.flow, "f");
        discovered.endpoints.clone()
    }

    fn see(archive: &Archive, line: &str, status: &str) {
        let mut record = archive.record(line, status);
        record.facts.attempts = 1;
        hand_over(&record);
    }

    #[test]
    fn endpoints_are_listed_with_what_was_seen_of_them() {
        let archive = Archive::with(&json!([{ "discovery": {} }]));
        for id in 1..=3 {
            see(&archive, &format!("GET https://one.example/users/{id}?a=b\nx-egret-consumer: web"), "200");
        }
        see(&archive, "DELETE https://one.example/users/9", "404");
        let found = endpoints(&archive);
        let told: Vec<(&str, &str, u64)> =
            found.iter().map(|found| (&*found.method, &*found.path, found.count)).collect();
        assert_eq!(told, [("DELETE", "/users/{user_id}", 1), ("GET", "/users/{user_id}", 3)]);
        let get = &found[1];
        assert_eq!((&*get.provider, &*get.url), ("one", "https://one.example"));
        assert_eq!(
            (get.statuses.clone(), get.consumers.clone()),
            ([(200, 3)].into(), [("web".to_owned(), 3)].into())
        );
        assert!((5_100..5_800).contains(&get.p50_us), "{}", get.p50_us);
        assert_eq!(get.first_seen, "1970-01-12T13:46:40.000000Z");
    }

    #[test]
    fn client_programs_are_listed_if_a_field_names_them() {
        let archive = Archive::with(&json!([{ "discovery": { "client_field": "x-lunar-interceptor" } }]));
        for version in ["py/1.2", "py/1.2", "ts/3.0"] {
            see(&archive, &format!("GET https://one.example/a\nX-Lunar-Interceptor: {version}"), "200");
        }
        see(&archive, "GET https://one.example/a", "200");
        let expected = [("py/1.2".to_owned(), 2), ("ts/3.0".to_owned(), 1)];
        assert_eq!(endpoints(&archive)[0].clients, expected.into());
    }

    #[test]
    fn requests_without_an_endpoint_are_left_out() {
        let archive = Archive::with(&json!([{ "discovery": {} }]));
        let mut refused = archive.record("GET https://one.example/nobody", "404");
        refused.facts.error = Some("unknown-provider");
        hand_over(&refused);
        assert!(endpoints(&archive).is_empty());
        // A response by a remedy counts like a provider's.
        hand_over(&archive.record("GET https://one.example/local", "200"));
        assert_eq!(endpoints(&archive).len(), 1);
    }

    #[test]
    fn parameters_are_named_after_what_they_are_of() {
        let path = |segments: &[&str]| {
            let segment = |segment: &&str| (*segment != "-").then(|| (*segment).to_owned());
            pattern(&segments.iter().map(segment).collect::<Vec<_>>())
        };
        for (segments, expected) in [
            (&[][..], "/"),
            (&["users", "-"], "/users/{user_id}"),
            (&["users", "{}", "users", "-"], "/users/{user_id}/users/{user_id_2}"),
            (&["-", "-", "s", "-"], "/{id}/{id_2}/s/{s_id}"),
            (&["3d-models", "-", "*"], "/3d-models/{id}/*"),
            (&["Charge-Sessions", "-"], "/Charge-Sessions/{charge_session_id}"),
            (&["companies", "-", "status", "-"], "/companies/{company_id}/status/{status_id}"),
        ] {
            assert_eq!(path(segments), expected);
        }
    }

    #[test]
    fn a_reload_keeps_the_inventory() {
        let mut archive = Archive::with(&json!([{ "discovery": {} }]));
        see(&archive, "GET https://one.example/a", "200");
        archive.reload(&json!([{ "discovery": { "variety": 5 } }]));
        assert_eq!(endpoints(&archive).len(), 1);
    }

    #[test]
    fn an_inventory_that_is_kept_outlives_the_process() {
        let diagnoses = json!([{ "discovery": { "keep": true } }]);
        let archive = Archive::with(&diagnoses);
        see(&archive, "GET https://one.example/users/1", "200");
        let at = |secs| Tick { now: Timestamp::from_secs(secs), is_last: false };
        archive.diagnoses.tick(at(1_000));
        assert!(archive.kept("discovery-f.json").is_none(), "not at once");
        archive.diagnoses.tick(at(1_030));
        let kept = archive.kept("discovery-f.json").unwrap();
        see(&archive, "GET https://one.example/users/2", "200");
        archive.diagnoses.tick(Tick { is_last: true, ..at(1_031) });
        assert_ne!(archive.kept("discovery-f.json").unwrap(), kept);
        let again = archive.restarted(&diagnoses);
        assert_eq!(endpoints(&again), endpoints(&archive));
        archive.keep("discovery-f.json", b"{}}");
        assert!(endpoints(&archive.restarted(&diagnoses)).is_empty());
        assert!(endpoints(&archive.restarted(&json!([{ "discovery": {} }]))).is_empty());
    }

    #[test]
    fn invalid_settings_are_reported_at_their_keys() {
        let problems = Archive::problems(
            &json!([{ "discovery": { "variety": 1, "endpoints_max": 0 } }, { "discovery": {} }]),
        );
        let places: Vec<&str> = problems.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
        let at = "flows[0].diagnoses";
        assert_eq!(
            places,
            [
                format!("{at}[0].discovery.variety"),
                format!("{at}[0].discovery.endpoints_max"),
                format!("{at}[1].discovery.")
            ]
        );
    }
}
