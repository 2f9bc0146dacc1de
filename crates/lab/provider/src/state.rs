//! State shared by all calls: options, random sequences, and counters.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use axum::http::StatusCode;
use axum::response::Response;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::fault_kind::Fault;
use crate::llm::ledger::Ledger;
use crate::options::{Options, RateLimit};
use crate::playback::Recording;
use crate::random::Sequences;
use crate::respond;
use crate::start_error::StartError;

/// Maximum number of keys remembered, of each kind.
const KEYS_MAX: usize = 10_000;

/// Number of keys whose arrivals are recorded: those seen first.
const RECORDED_KEYS_MAX: usize = 16;

/// Maximum number of recorded arrivals of a rate limit, at 16 bytes each. A window with more counts as one
/// with this number.
const ARRIVALS_MAX: usize = 1 << 18;

/// The state shared by all calls to a provider.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    options: Options,
    /// The table of endpoints that the page at `/` shows, in HTML.
    endpoint_rows: String,
    /// Source of all random sequences without their own seed.
    pub sequences: Sequences,
    /// The recording to play back.
    pub recording: Option<Recording>,
    /// Limits the number of concurrent calls, if configured. Each call holds a permit while it is served.
    permits: Option<Semaphore>,
    /// The bills of language models. A stream holds it too, until it ends.
    pub ledger: Arc<Ledger>,
    requests: AtomicU64,
    faults: [AtomicU64; Fault::ALL.len()],
    window: Mutex<Option<Window>>,
    windows: Mutex<BTreeMap<String, Window>>,
    failures: Mutex<BTreeMap<String, Failures>>,
}

/// The error when there are more keys than are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {KEYS_MAX} keys: DELETE /counters removes them")]
pub(crate) struct TooManyKeys;

/// The current window of a rate limit, and the totals over all windows.
#[derive(Debug, Serialize)]
struct Window {
    limit: u64,
    #[serde(rename = "window_ms", serialize_with = "as_millis")]
    length: Duration,
    admitted: u64,
    refused: u64,
    #[serde(flatten)]
    arrivals: Option<Arrivals>,
    #[serde(skip)]
    started: Instant,
    #[serde(skip)]
    taken: u64,
}

/// The arrivals of calls within the last window, whether they were admitted or not.
#[derive(Debug, Default, Serialize)]
struct Arrivals {
    /// The most calls in any window of the limit's length, wherever it begins.
    busiest: usize,
    /// Arrivals in the window that ends now.
    #[serde(serialize_with = "as_count")]
    recent: VecDeque<Instant>,
}

/// The decision of a rate limit on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admission {
    /// `true` if the call is admitted.
    pub admitted: bool,
    /// Number of further calls admitted in this window.
    pub remaining: u64,
    /// Time until the next window starts.
    pub reset: Duration,
}

/// Number of failures and successes of a key.
#[derive(Debug, Default, Serialize)]
struct Failures {
    failed: u64,
    succeeded: u64,
}

/// The counters as `/counters` shows them.
#[derive(Serialize)]
struct CountersDocument<'a> {
    requests: u64,
    faults: BTreeMap<&'static str, u64>,
    rate_limit: &'a Option<Window>,
    rate_limits: &'a BTreeMap<String, Window>,
    failures: &'a BTreeMap<String, Failures>,
}

impl SharedState {
    /// Creates the state. Reads the recording, if there is one.
    pub fn new(options: Options, endpoint_rows: String) -> Result<Self, StartError> {
        let recording = options.playback.as_ref().map(Recording::read).transpose()?;
        let sequences = Sequences::new(options.seed);
        let permits = options.parallel.map(Semaphore::new);
        Ok(Self { options, endpoint_rows, sequences, recording, permits, ..Self::default() })
    }

    /// The options of the provider.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The table of endpoints, in HTML.
    pub fn endpoint_rows(&self) -> &str {
        &self.endpoint_rows
    }

    /// Waits until the call may be served. It may be served until the returned permit is dropped.
    pub async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.permits.as_ref()?.acquire().await.ok()
    }

    /// Counts a call.
    pub fn count_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Counts a response with an injected fault.
    pub fn count_fault(&self, fault: Fault) {
        self.faults[fault.index()].fetch_add(1, Relaxed);
    }

    /// Applies the rate limit for all calls; `None` if there is none.
    pub fn admit(&self) -> Option<(RateLimit, Admission)> {
        let limit = self.options.rate_limit?;
        let now = Instant::now();
        let mut window = self.window.lock();
        let window = window.get_or_insert_with(|| Window::new(limit, now).recorded());
        let admission = window.admit(now);
        Some((limit, admission))
    }

    /// Applies the rate limit of a key. A different limit or window for a known key resets it.
    pub fn admit_key(&self, key: &str, limit: RateLimit) -> Result<Admission, TooManyKeys> {
        let now = Instant::now();
        let mut windows = self.windows.lock();
        let is_recorded = windows.len() < RECORDED_KEYS_MAX;
        let new = || {
            let window = Window::new(limit, now);
            if is_recorded { window.recorded() } else { window }
        };
        let window = entry(&mut windows, key, new)?;
        if window.limit != limit.limit || window.length != limit.window {
            *window = new();
        }
        Ok(window.admit(now))
    }

    /// Returns `true` if the next call of a key fails, given that its first `count` calls do.
    pub fn fails(&self, key: &str, count: u64) -> Result<bool, TooManyKeys> {
        let mut failures = self.failures.lock();
        let failures = entry(&mut failures, key, Failures::default)?;
        let fails = failures.failed < count;
        *if fails { &mut failures.failed } else { &mut failures.succeeded } += 1;
        Ok(fails)
    }

    /// The counters as JSON.
    pub fn counters(&self) -> Response {
        let faults =
            Fault::ALL.into_iter().map(|fault| (fault.name(), self.faults[fault.index()].load(Relaxed)));
        let now = Instant::now();
        let (mut window, mut windows) = (self.window.lock(), self.windows.lock());
        window.iter_mut().chain(windows.values_mut()).for_each(|window| window.forget(now));
        let document = CountersDocument {
            requests: self.requests.load(Relaxed),
            faults: faults.filter(|(_, count)| *count > 0).collect(),
            rate_limit: &window,
            rate_limits: &windows,
            failures: &self.failures.lock(),
        };
        respond::json(StatusCode::OK, &document)
    }

    /// Resets the counters, including all windows and keys.
    pub fn reset_counters(&self) {
        self.requests.store(0, Relaxed);
        self.faults.iter().for_each(|count| count.store(0, Relaxed));
        *self.window.lock() = None;
        self.windows.lock().clear();
        self.failures.lock().clear();
    }
}

impl Window {
    fn new(limit: RateLimit, now: Instant) -> Self {
        // The clock is read after `now`, so the window begins slightly too early rather than too late. A
        // client that keeps to the limit does not notice that.
        let since_epoch = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let started = if limit.by_clock { window_start(now, since_epoch(), limit.window) } else { now };
        let (limit, length) = (limit.limit, limit.window);
        Self { limit, length, admitted: 0, refused: 0, arrivals: None, started, taken: 0 }
    }

    /// The window with a record of the arrivals.
    fn recorded(self) -> Self {
        Self { arrivals: Some(Arrivals::default()), ..self }
    }

    /// Forgets the arrivals of earlier windows.
    fn forget(&mut self, now: Instant) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.forget(now, self.length);
        }
    }

    fn admit(&mut self, now: Instant) -> Admission {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.note(now, self.length);
        }
        let since = now.saturating_duration_since(self.started);
        if since >= self.length {
            // Windows follow each other without a gap, so a steady caller does not shift them.
            self.started = window_start(now, since, self.length);
            self.taken = 0;
        }
        let admitted = self.taken < self.limit;
        if admitted {
            self.taken += 1;
            self.admitted += 1;
        } else {
            self.refused += 1;
        }
        let reset = (self.started + self.length).saturating_duration_since(now);
        Admission { admitted, remaining: self.limit - self.taken, reset }
    }
}

impl Arrivals {
    fn note(&mut self, now: Instant, length: Duration) {
        self.forget(now, length);
        if self.recent.len() == ARRIVALS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        self.busiest = self.busiest.max(self.recent.len());
    }

    /// Forgets what no window that ends now contains.
    fn forget(&mut self, now: Instant, length: Duration) {
        let is_over = |start: &Instant| now.saturating_duration_since(*start) >= length;
        while self.recent.front().is_some_and(is_over) {
            self.recent.pop_front();
        }
    }
}

/// Start of the window that contains `now`, if the first window began `since` before `now`.
fn window_start(now: Instant, since: Duration, length: Duration) -> Instant {
    let into = since.as_nanos() % length.as_nanos();
    now.checked_sub(Duration::from_nanos(u64::try_from(into).unwrap_or(0))).unwrap_or(now)
}

fn as_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn as_count<S: Serializer>(arrivals: &VecDeque<Instant>, serializer: S) -> Result<S::Ok, S::Error> {
    arrivals.len().serialize(serializer)
}

/// The value of a key. Creates it if it is missing and there is room.
fn entry<'a, T>(
    map: &'a mut BTreeMap<String, T>,
    key: &str,
    make: impl FnOnce() -> T,
) -> Result<&'a mut T, TooManyKeys> {
    if map.len() >= KEYS_MAX && !map.contains_key(key) {
        return Err(TooManyKeys);
    }
    Ok(map.entry(key.to_owned()).or_insert_with(make))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_admits_its_limit_and_the_next_one_again() {
        let start = Instant::now();
        let limit = RateLimit { limit: 2, window: Duration::from_secs(1), by_clock: false };
        let mut window = Window::new(limit, start);
        let mut admit = |millis| {
            let admission = window.admit(start + Duration::from_millis(millis));
            (admission.admitted, admission.remaining, admission.reset.as_millis())
        };
        assert_eq!(admit(0), (true, 1, 1_000));
        assert_eq!(admit(400), (true, 0, 600));
        assert_eq!(admit(999), (false, 0, 1));
        assert_eq!(admit(3_250), (true, 1, 750), "windows keep their pace");
        assert_eq!((window.admitted, window.refused), (3, 1));
    }

    #[test]
    fn the_busiest_window_may_begin_at_any_call() {
        let start = Instant::now();
        let limit = RateLimit { limit: 2, window: Duration::from_secs(1), by_clock: false };
        let mut window = Window::new(limit, start).recorded();
        let mut busiest = |millis| {
            window.admit(start + Duration::from_millis(millis));
            window.arrivals.as_ref().unwrap().busiest
        };
        // Each window admits two calls, yet three arrive between 900 and 1,899 ms.
        assert_eq!([0, 900, 1_000, 1_899].map(&mut busiest), [1, 2, 2, 3]);
        assert_eq!([1_900, 1_950].map(&mut busiest), [3, 4], "the refused count as well");
        window.forget(start + Duration::from_millis(2_900));
        let document = serde_json::to_value(&window).unwrap();
        assert_eq!([&document["busiest"], &document["recent"]], [4, 1], "only the last is within a second");
    }

    #[test]
    fn arrivals_are_recorded_for_a_bounded_number_of_keys() {
        let state = SharedState::default();
        let limit = RateLimit { limit: 2, window: Duration::from_secs(1), by_clock: false };
        for key in 0..=RECORDED_KEYS_MAX {
            state.admit_key(&key.to_string(), limit).unwrap();
        }
        let windows = state.windows.lock();
        let recorded = windows.values().filter(|window| window.arrivals.is_some());
        assert_eq!(recorded.count(), RECORDED_KEYS_MAX);
    }

    #[test]
    fn by_the_clock_a_window_has_begun_before_the_first_call() {
        let day = Duration::from_hours(24);
        let now = Instant::now();
        let since = Duration::from_secs(10) + day * 20_000;
        assert_eq!(now - window_start(now, since, day), Duration::from_secs(10));
        assert_eq!(window_start(now, day, day), now);
    }

    #[test]
    fn a_key_fails_as_often_as_asked_and_then_succeeds() {
        let state = SharedState::default();
        let fails: Vec<bool> = (0..4).map(|_| state.fails("a", 2).unwrap()).collect();
        assert_eq!(fails, [true, true, false, false]);
        assert_eq!(state.fails("b", 1), Ok(true), "another key has its own count");
        state.reset_counters();
        assert_eq!(state.fails("a", 2), Ok(true));
    }

    #[test]
    fn keys_are_bounded() {
        let state = SharedState::default();
        for key in 0..KEYS_MAX {
            assert!(state.fails(&key.to_string(), 1).is_ok());
        }
        assert_eq!(state.fails("one more", 1), Err(TooManyKeys));
        assert_eq!(state.fails("0", 1), Ok(false), "a known key is still served");
    }
}
