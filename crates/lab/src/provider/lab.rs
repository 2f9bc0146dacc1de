//! What all calls share: the options, what is random, and what is counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::http::StatusCode;
use axum::response::Response;
use serde::{Serialize, Serializer};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::StartError;
use super::answer;
use super::fault::Fault;
use super::options::{Options, RateLimit};
use super::playback::Recording;
use super::random::Sequences;

/// Keys that are remembered at most, of each kind.
const KEYS_MAX: usize = 10_000;

/// See the file's first line.
#[derive(Debug, Default)]
pub(super) struct Lab {
    options: Options,
    /// Where everything random comes from that has no seed of its own.
    pub sequences: Sequences,
    /// What is played back.
    pub recording: Option<Recording>,
    /// Of which each call holds one while it is served, where there are only so many.
    places: Option<Semaphore>,
    requests: AtomicU64,
    faults: [AtomicU64; Fault::ALL.len()],
    window: Mutex<Option<Window>>,
    windows: Mutex<BTreeMap<String, Window>>,
    failures: Mutex<BTreeMap<String, Failures>>,
}

/// More keys than are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManyKeys;

impl std::fmt::Display for TooManyKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "more than {KEYS_MAX} keys: DELETE /counters forgets them")
    }
}

/// A window of a rate limit, and all before it.
#[derive(Debug, Serialize)]
struct Window {
    limit: u64,
    #[serde(rename = "window_ms", serialize_with = "as_millis")]
    length: Duration,
    admitted: u64,
    refused: u64,
    #[serde(skip)]
    started: Instant,
    #[serde(skip)]
    taken: u64,
}

/// What a rate limit says to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admission {
    /// Whether the call may pass.
    pub admitted: bool,
    /// How many more may pass in this window.
    pub remaining: u64,
    /// When the next window starts, from now.
    pub reset: Duration,
}

/// How often a key has failed and succeeded.
#[derive(Debug, Default, Serialize)]
struct Failures {
    failed: u64,
    succeeded: u64,
}

/// What is counted, as `/counters` shows it.
#[derive(Serialize)]
struct Counted<'a> {
    requests: u64,
    faults: BTreeMap<&'static str, u64>,
    rate_limit: &'a Option<Window>,
    rate_limits: &'a BTreeMap<String, Window>,
    failures: &'a BTreeMap<String, Failures>,
}

impl Lab {
    /// A fresh one. Reads the recording where there is one.
    pub fn new(options: Options) -> Result<Self, StartError> {
        let recording = options.playback.as_ref().map(Recording::read).transpose()?;
        let sequences = Sequences::new(options.seed);
        let places = options.parallel.map(Semaphore::new);
        Ok(Self { options, sequences, recording, places, ..Self::default() })
    }

    /// What the provider was told at its start.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Waits until the call may be served; it may as long as what is returned lives.
    pub async fn place(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.places.as_ref()?.acquire().await.ok()
    }

    /// Counts a call.
    pub fn count_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Counts an answer that was spoiled.
    pub fn count_fault(&self, fault: Fault) {
        self.faults[fault.index()].fetch_add(1, Relaxed);
    }

    /// Asks the rate limit that holds for all calls; `None` where there is none.
    pub fn admit(&self) -> Option<(RateLimit, Admission)> {
        let limit = self.options.rate_limit?;
        let now = Instant::now();
        let admission = locked(&self.window).get_or_insert_with(|| Window::new(limit, now)).admit(now);
        Some((limit, admission))
    }

    /// Asks the rate limit of a key. Another limit or window for a known key starts it anew.
    pub fn admit_key(&self, key: &str, limit: RateLimit) -> Result<Admission, TooManyKeys> {
        let now = Instant::now();
        let mut windows = locked(&self.windows);
        let window = entry(&mut windows, key, || Window::new(limit, now))?;
        if window.limit != limit.limit || window.length != limit.window {
            *window = Window::new(limit, now);
        }
        Ok(window.admit(now))
    }

    /// Whether the next call of a key fails, when the first `count` do.
    pub fn fails(&self, key: &str, count: u64) -> Result<bool, TooManyKeys> {
        let mut failures = locked(&self.failures);
        let failures = entry(&mut failures, key, Failures::default)?;
        let fails = failures.failed < count;
        *if fails { &mut failures.failed } else { &mut failures.succeeded } += 1;
        Ok(fails)
    }

    /// What was counted, as JSON.
    pub fn counted(&self) -> Response {
        let faults =
            Fault::ALL.into_iter().map(|fault| (fault.name(), self.faults[fault.index()].load(Relaxed)));
        let counted = Counted {
            requests: self.requests.load(Relaxed),
            faults: faults.filter(|(_, count)| *count > 0).collect(),
            rate_limit: &locked(&self.window),
            rate_limits: &locked(&self.windows),
            failures: &locked(&self.failures),
        };
        answer::json(StatusCode::OK, &counted)
    }

    /// Forgets what was counted, and with it every window and every key.
    pub fn forget(&self) {
        self.requests.store(0, Relaxed);
        self.faults.iter().for_each(|count| count.store(0, Relaxed));
        *locked(&self.window) = None;
        locked(&self.windows).clear();
        locked(&self.failures).clear();
    }
}

impl Window {
    fn new(limit: RateLimit, now: Instant) -> Self {
        // The clock is read after `now`: the window rather begins too early, which nobody notices who keeps
        // to it, than too late.
        let since_epoch = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let started = if limit.by_clock { begun(now, since_epoch(), limit.window) } else { now };
        Self { limit: limit.limit, length: limit.window, admitted: 0, refused: 0, started, taken: 0 }
    }

    fn admit(&mut self, now: Instant) -> Admission {
        let since = now.saturating_duration_since(self.started);
        if since >= self.length {
            // Windows follow each other without a gap, so that a steady caller does not move them.
            self.started = begun(now, since, self.length);
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

/// When the window began that `now` is in, where the first of them began `since` before.
fn begun(now: Instant, since: Duration, length: Duration) -> Instant {
    let into = since.as_nanos() % length.as_nanos();
    now.checked_sub(Duration::from_nanos(u64::try_from(into).unwrap_or(0))).unwrap_or(now)
}

fn as_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// What stands under the key, made where nothing does and there is room.
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

/// A panic elsewhere leaves counters that are at worst one off.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            let told = window.admit(start + Duration::from_millis(millis));
            (told.admitted, told.remaining, told.reset.as_millis())
        };
        assert_eq!(admit(0), (true, 1, 1_000));
        assert_eq!(admit(400), (true, 0, 600));
        assert_eq!(admit(999), (false, 0, 1));
        assert_eq!(admit(3_250), (true, 1, 750), "windows keep their pace");
        assert_eq!((window.admitted, window.refused), (3, 1));
    }

    #[test]
    fn by_the_clock_a_window_has_begun_before_the_first_call() {
        let day = Duration::from_hours(24);
        let now = Instant::now();
        let since = Duration::from_secs(10) + day * 20_000;
        assert_eq!(now - begun(now, since, day), Duration::from_secs(10));
        assert_eq!(begun(now, day, day), now);
    }

    #[test]
    fn a_key_fails_as_often_as_asked_and_then_succeeds() {
        let lab = Lab::default();
        let fails: Vec<bool> = (0..4).map(|_| lab.fails("a", 2).unwrap()).collect();
        assert_eq!(fails, [true, true, false, false]);
        assert_eq!(lab.fails("b", 1), Ok(true), "another key has its own count");
        lab.forget();
        assert_eq!(lab.fails("a", 2), Ok(true));
    }

    #[test]
    fn keys_are_bounded() {
        let lab = Lab::default();
        for key in 0..KEYS_MAX {
            assert!(lab.fails(&key.to_string(), 1).is_ok());
        }
        assert_eq!(lab.fails("one more", 1), Err(TooManyKeys));
        assert_eq!(lab.fails("0", 1), Ok(false), "a known key is still served");
    }
}
