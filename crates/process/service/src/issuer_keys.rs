//! Fetches the keys of the issuers whose tokens prove clients (`gateway.listen[].clients.jwt`).
//!
//! A thread of its own does it, so no worker waits for an issuer. While an issuer is down, its last keys stay
//! in use.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use egret_clients::{Issuer, KeySetError, KeySource};
use egret_clock::{Clock, Moment};
use egret_export::fetch::{FetchError, Fetched, fetch};
use egret_net::config::ProxyConfig;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Maximum time for which a start waits for keys. Without them, clients are refused.
const START_MAX: Duration = Duration::from_secs(5);
/// Time after which keys are fetched again, if the response does not say when.
const FRESH_DEFAULT: Duration = Duration::from_hours(1);
/// Bounds of what it may say. An issuer takes keys back, and must not be called all the time.
const FRESH_MIN: Duration = Duration::from_mins(5);
const FRESH_MAX: Duration = Duration::from_hours(24);
/// Waits after failures: doubled each time, up to the longest.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);
/// Minimum time between two fetches that unknown keys in tokens cause. Anybody can send such tokens.
const ASKED_INTERVAL: Duration = Duration::from_secs(30);

/// The thread that fetches keys.
#[derive(Debug)]
pub struct KeyFetcher(UnboundedSender<Round>);

/// The issuers of a config.
#[derive(Debug)]
struct Round {
    issuers: Vec<Arc<Issuer>>,
    proxy: Option<ProxyConfig>,
    /// Dropped once each issuer was tried.
    first: mpsc::Sender<Infallible>,
}

impl KeyFetcher {
    /// Starts the thread. It ends when this is dropped.
    pub fn start() -> io::Result<Self> {
        let (sender, rounds) = unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let run = move || runtime.block_on(run(rounds));
        std::thread::Builder::new().name("egret-keys".into()).spawn(run)?;
        Ok(Self(sender))
    }

    /// Fetches the keys of these issuers now and from time to time, and of no others any more. Servers are
    /// called through `proxy`, if that is for them.
    pub fn fetch(&self, issuers: Vec<Arc<Issuer>>, proxy: Option<&ProxyConfig>) -> FirstFetch {
        let (first, ended) = mpsc::channel();
        // The thread runs as long as this.
        let _ = self.0.send(Round { issuers, proxy: proxy.cloned(), first });
        FirstFetch(ended)
    }
}

/// The end of the first attempt with each issuer.
#[derive(Debug)]
pub struct FirstFetch(mpsc::Receiver<Infallible>);

impl FirstFetch {
    /// Waits for it, at most for a few seconds.
    pub fn wait(&self) {
        // Nothing is ever sent, so each error ends the wait.
        let _ = self.0.recv_timeout(START_MAX);
    }
}

async fn run(mut rounds: UnboundedReceiver<Round>) {
    let mut tasks = JoinSet::new();
    while let Some(Round { issuers, proxy, first }) = rounds.recv().await {
        tasks.shutdown().await;
        for issuer in issuers {
            tasks.spawn(keep_fetching(issuer, proxy.clone(), first.clone()));
        }
    }
}

/// Fetches the keys of an issuer from time to time, and when they are asked for.
async fn keep_fetching(issuer: Arc<Issuer>, proxy: Option<ProxyConfig>, first: mpsc::Sender<Infallible>) {
    if let KeySource::File(_) = issuer.source() {
        return;
    }
    let (mut first, mut schedule) = (Some(first), Schedule::default());
    loop {
        let fetched = fetch_keys(&issuer, proxy.as_ref()).await;
        drop(first.take());
        let error = fetched.as_ref().err().map(ToString::to_string);
        issuer.keys_answered(error, Clock::new().timestamp(Moment::now()));
        report(&issuer, fetched.as_ref().err(), schedule.is_failing());
        let due = Instant::now() + schedule.wait_after(fetched.ok());
        tokio::select! {
            () = sleep_until(due) => {}
            () = issuer.keys_asked() => sleep_until(due.min(schedule.asked(Instant::now()))).await,
        }
    }
}

/// Logs the beginning and the end of failures.
fn report(issuer: &Issuer, error: Option<&KeyFetchError>, has_failed_before: bool) {
    let issuer = issuer.issuer();
    match error {
        Some(error) if !has_failed_before => {
            tracing::warn!(issuer, %error, "the keys of an issuer could not be fetched: those that it had before stay in use, if any");
        }
        Some(error) => tracing::debug!(issuer, %error, "the keys of an issuer could not be fetched again"),
        None if has_failed_before => tracing::info!(issuer, "the keys of an issuer have been fetched again"),
        None => tracing::debug!(issuer, "the keys of an issuer have been fetched"),
    }
}

/// The times at which the keys of an issuer are fetched.
#[derive(Debug, Default)]
struct Schedule {
    /// The wait after the last failure, if the last attempt has failed.
    retry_wait: Option<Duration>,
    /// The time at which the keys that were asked for last are fetched.
    asked_at: Option<Instant>,
}

impl Schedule {
    /// Returns `true` if the last attempt has failed.
    const fn is_failing(&self) -> bool {
        self.retry_wait.is_some()
    }

    /// Returns the wait after an attempt, which has found keys that are fresh for this time.
    fn wait_after(&mut self, fresh: Option<Duration>) -> Duration {
        let retry_wait = self.retry_wait.map_or(RETRY_MIN, |wait| (2 * wait).min(RETRY_MAX));
        self.retry_wait = if fresh.is_some() { None } else { Some(retry_wait) };
        fresh.unwrap_or(retry_wait)
    }

    /// Returns the time at which keys are fetched that a token asks for at `now`.
    fn asked(&mut self, now: Instant) -> Instant {
        let at = self.asked_at.map_or(now, |before| now.max(before + ASKED_INTERVAL));
        self.asked_at = Some(at);
        at
    }
}

/// Fetches the keys of an issuer. Returns the time for which they are fresh.
async fn fetch_keys(issuer: &Issuer, proxy: Option<&ProxyConfig>) -> Result<Duration, KeyFetchError> {
    let get = |url| fetch(url, issuer.ca(), proxy, issuer.token());
    let discovered;
    let url = match issuer.source() {
        KeySource::File(_) => return Ok(FRESH_MAX),
        KeySource::Keys(url) => url,
        KeySource::Metadata(url) => {
            discovered = issuer.key_url(&get(url).await?.body)?;
            &discovered
        }
    };
    let Fetched { body, max_age } = get(url).await?;
    issuer.put_keys(&body)?;
    Ok(fresh(max_age))
}

fn fresh(max_age: Option<Duration>) -> Duration {
    max_age.unwrap_or(FRESH_DEFAULT).clamp(FRESH_MIN, FRESH_MAX)
}

/// The reason why keys could not be fetched.
#[derive(Debug, thiserror::Error)]
enum KeyFetchError {
    /// There is no document.
    #[error("{0}")]
    Fetch(#[from] FetchError),
    /// The document does not have the keys.
    #[error("the document of the issuer: {0}")]
    Document(#[from] KeySetError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_after_failures_doubles_up_to_its_bound() {
        let mut schedule = Schedule::default();
        let mut waits =
            |count: usize| -> Vec<u64> { (0..count).map(|_| schedule.wait_after(None).as_secs()).collect() };
        assert_eq!(waits(8), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(schedule.is_failing());
        assert_eq!(schedule.wait_after(Some(FRESH_DEFAULT)), FRESH_DEFAULT);
        assert!(!schedule.is_failing());
        assert_eq!(schedule.wait_after(None), RETRY_MIN);
    }

    #[test]
    fn keys_that_are_asked_for_have_an_interval() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let after = |secs| now + Duration::from_secs(secs);
        for (asked, fetched) in [(0, 0), (0, 30), (31, 60), (200, 200), (229, 230)] {
            assert_eq!(schedule.asked(after(asked)), after(fetched), "{asked}");
        }
    }

    #[test]
    fn keys_stay_fresh_within_bounds() {
        for (max_age, expected) in [(None, 3_600), (Some(0), 300), (Some(900), 900), (Some(u64::MAX), 86_400)]
        {
            assert_eq!(fresh(max_age.map(Duration::from_secs)).as_secs(), expected);
        }
    }

    #[test]
    fn the_first_attempt_is_over_without_issuers() {
        KeyFetcher::start().unwrap().fetch(Vec::new(), None).0.recv().unwrap_err();
    }
}
