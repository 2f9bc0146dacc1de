//! A provider that takes its time, and notes when each call came and when it was answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::provider::{Provider, ok};
use crate::wait::Watched;

/// A call. Times in microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// When it had come.
    pub came: u64,
    /// When its answer was about to be sent; none while it is being worked on.
    pub answered: Option<u64>,
}

/// A provider with a note of each call.
#[derive(Debug)]
pub struct Metered {
    provider: Provider,
    calls: Arc<Watched<Vec<Call>>>,
}

impl Metered {
    /// One that answers each call after `response`.
    pub fn start(response: Duration) -> Self {
        let calls = Arc::new(Watched::<Vec<Call>>::default());
        let noted = Arc::clone(&calls);
        let provider = Provider::with_answers(move |_| {
            let mut number = 0;
            noted.change(|calls| {
                number = calls.len();
                calls.push(Call { came: now_us(), answered: None });
            });
            take(response);
            noted.change(|calls| calls[number].answered = Some(now_us()));
            ok("done")
        });
        Self { provider, calls }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.provider.url()
    }

    /// The calls so far, in the order in which they came.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.read(Clone::clone)
    }

    /// Waits until it has got `count` calls.
    pub fn until_called(&self, count: usize) {
        let what = format!("the provider has got {count} calls");
        self.calls.until(&what, |calls| (calls.len() >= count).then_some(()));
    }
}

/// Lets so much time pass.
fn take(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}

/// Now, in microseconds since the epoch.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

/// How many times lie in each window of that length, by the clock.
pub fn by_window(times: impl IntoIterator<Item = u64>, window: Duration) -> BTreeMap<u64, usize> {
    let window = u64::try_from(window.as_micros()).unwrap();
    let mut windows = BTreeMap::new();
    for time in times {
        *windows.entry(time / window).or_insert(0) += 1;
    }
    windows
}
