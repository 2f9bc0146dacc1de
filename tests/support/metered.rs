//! A provider with a delay that records when each call arrived and when it was answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::provider::{Provider, ok};
use crate::wait::Watched;

/// A call. Times are in microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Arrival time.
    pub came: u64,
    /// Time just before its response was sent; `None` while it is in progress.
    pub responded: Option<u64>,
}

/// A provider that records each call.
#[derive(Debug)]
pub struct Metered {
    provider: Provider,
    calls: Arc<Watched<Vec<Call>>>,
}

impl Metered {
    /// Starts a provider that responds to each call after `response`.
    pub fn start(response: Duration) -> Self {
        let calls = Arc::new(Watched::<Vec<Call>>::default());
        let noted = Arc::clone(&calls);
        let provider = Provider::with_responses(move |_| {
            let mut number = 0;
            noted.change(|calls| {
                number = calls.len();
                calls.push(Call { came: now_us(), responded: None });
            });
            take(response);
            noted.change(|calls| calls[number].responded = Some(now_us()));
            ok("done")
        });
        Self { provider, calls }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.provider.url()
    }

    /// The calls so far, in order of arrival.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.read(Clone::clone)
    }

    /// Waits until it was called `count` times.
    pub fn until_called(&self, count: usize) {
        let what = format!("the provider has got {count} calls");
        self.calls.until(&what, |calls| (calls.len() >= count).then_some(()));
    }
}

/// Waits for `time`.
fn take(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}

/// The current time, in microseconds since the epoch.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

/// Counts the times in each window of that length, by the clock.
pub fn by_window(times: impl IntoIterator<Item = u64>, window: Duration) -> BTreeMap<u64, usize> {
    let window = u64::try_from(window.as_micros()).unwrap();
    let mut windows = BTreeMap::new();
    for time in times {
        *windows.entry(time / window).or_insert(0) += 1;
    }
    windows
}
