//! The errors of one provider: how its calls have failed, and the errors that the gateway responds with in
//! its place. Each kind has a count and the last cause, and logs one line a minute.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_clock::Moment;
use egret_message::RequestId;
use egret_message::grpc::GrpcStatus;
use parking_lot::Mutex;
use tracing::warn;

use crate::failure::{ErrorKind, Failure};
use crate::notice::Notice;
use crate::stats::ErrorCount;

/// Time between two lines.
const INTERVAL: Duration = Duration::from_mins(1);

/// Bytes of a cause that are kept.
const CAUSE_BYTES_MAX: usize = 256;

/// The errors of one provider. A provider without errors has no memory for them.
#[derive(Debug, Default)]
pub struct ProviderErrors {
    calls: OnceLock<Box<[Tally; CALL_KINDS]>>,
    responses: OnceLock<Box<[LoggedTally; ErrorKind::ALL.len()]>>,
}

/// The statuses by which a call counts as failed. The last stands for all of the class 5xx.
const FAILED_STATUSES: [(u16, &str); 4] = [(401, "401"), (403, "403"), (429, "429"), (500, "5xx")];
/// The statuses, the errors that leave a call without a response, and the statuses of gRPC.
const CALL_KINDS: usize = FAILED_STATUSES.len() + ErrorKind::ALL.len() + GrpcStatus::ALL.len();

/// The occurrences of one kind of error.
#[derive(Debug, Default)]
struct Tally {
    count: AtomicU64,
    /// The last occurrence, in words.
    cause: Mutex<String>,
}

/// The occurrences of an error that is logged.
#[derive(Debug, Default)]
struct LoggedTally {
    tally: Tally,
    notice: Notice,
    /// Number of errors since the last line.
    unlogged: AtomicU64,
}

impl Tally {
    fn add(&self, cause: &str) {
        self.count.fetch_add(1, Relaxed);
        // While another worker writes a cause, that one is as good.
        if let Some(mut last) = self.cause.try_lock() {
            last.clear();
            last.push_str(&cause[..cause.floor_char_boundary(CAUSE_BYTES_MAX)]);
        }
    }

    fn snapshot(&self, name: &'static str) -> Option<ErrorCount> {
        let count = self.count.load(Relaxed);
        let cause = || self.cause.lock().clone();
        (count > 0).then(|| ErrorCount { name, count, cause: cause() })
    }
}

impl ProviderErrors {
    /// Counts a call that got a response with this status, which
    /// [is a failure](crate::counters::is_failed_status).
    #[cold]
    pub fn failed_status(&self, status: u16) {
        let is_meant = |known: u16| known == status || (known == 500 && status >= 500);
        if let Some(number) = FAILED_STATUSES.iter().position(|(known, _)| is_meant(*known)) {
            self.calls()[number].add(&format!("status {status}"));
        }
    }

    /// Counts a gRPC call that ended with this status, which [is a failure](GrpcStatus::is_failure).
    #[cold]
    pub fn failed_grpc(&self, status: GrpcStatus) {
        let number = FAILED_STATUSES.len() + ErrorKind::ALL.len() + usize::from(status.code());
        self.calls()[number].add(&format!("status {} ({}) of gRPC", status.code(), status.name()));
    }

    /// Counts a call that ended with this error, if the provider failed and not the client.
    #[cold]
    pub fn failed_call(&self, failure: &Failure) {
        if failure.kind.is_of_provider() {
            self.calls()[FAILED_STATUSES.len() + failure.kind as usize].add(&failure.detail);
        }
    }

    /// Counts that the gateway responds with `failure` in place of `provider`, which these errors are about.
    /// Logs it if the client can do nothing about it, or would not know what.
    pub fn respond(&self, provider: &str, failure: &Failure, status: u16, id: &RequestId) {
        let Failure { kind, detail, .. } = failure;
        // The words of a script may contain anything of the request.
        let cause = if *kind == ErrorKind::ScriptRefused { "the script refused it" } else { detail };
        let unlogged = self.note(*kind, cause, Moment::now());
        if status < 500 && *kind != ErrorKind::BodyTooLargeToSign {
            return;
        }
        let Some(unlogged) = unlogged else { return };
        let (error, request_id) = (kind.slug(), id.text());
        warn!(
            error,
            provider,
            status,
            cause,
            request_id,
            unlogged,
            "Egret responds with an error, and logs the next of this kind in a minute"
        );
    }

    /// Returns the failed calls by kind: a status, or the slug of an error.
    pub fn calls_snapshot(&self) -> Vec<ErrorCount> {
        let slugs = ErrorKind::ALL.iter().map(|kind| kind.slug());
        let statuses = GrpcStatus::ALL.iter().map(|status| status.word());
        let names = FAILED_STATUSES.iter().map(|(_, name)| *name).chain(slugs).chain(statuses);
        let tallies = self.calls.get().map_or(&[][..], |tallies| &tallies[..]);
        tallies.iter().zip(names).filter_map(|(tally, name)| tally.snapshot(name)).collect()
    }

    /// Returns the errors that the gateway responded with, by slug.
    pub fn responses_snapshot(&self) -> Vec<ErrorCount> {
        let tallies = self.responses.get().map_or(&[][..], |tallies| &tallies[..]);
        let named = tallies.iter().zip(ErrorKind::ALL);
        named.filter_map(|(logged, kind)| logged.tally.snapshot(kind.slug())).collect()
    }

    fn calls(&self) -> &[Tally; CALL_KINDS] {
        self.calls.get_or_init(|| Box::new(std::array::from_fn(|_| Tally::default())))
    }

    /// Counts an error. Returns the number of those since the last line if another one is due.
    fn note(&self, kind: ErrorKind, cause: &str, now: Moment) -> Option<u64> {
        let tallies =
            self.responses.get_or_init(|| Box::new(std::array::from_fn(|_| LoggedTally::default())));
        let LoggedTally { tally, notice, unlogged } = &tallies[kind as usize];
        tally.add(cause);
        if notice.is_due_every(INTERVAL, now) {
            return Some(unlogged.swap(0, Relaxed));
        }
        unlogged.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_logs_one_line_a_minute() {
        let (errors, now) = (ProviderErrors::default(), Moment::now());
        assert_eq!(errors.note(ErrorKind::PoolFull, "", now), Some(0));
        for _ in 0..3 {
            assert_eq!(errors.note(ErrorKind::PoolFull, "", now + INTERVAL / 2), None);
        }
        assert_eq!(errors.note(ErrorKind::DnsFailed, "", now + INTERVAL / 2), Some(0));
        assert_eq!(errors.note(ErrorKind::PoolFull, "", now + INTERVAL), Some(3));
        assert_eq!(errors.note(ErrorKind::PoolFull, "", now + 2 * INTERVAL), Some(0));
    }

    #[test]
    fn failed_calls_are_counted_by_status_or_error_with_the_last_cause() {
        let errors = ProviderErrors::default();
        assert_eq!(errors.calls_snapshot(), []);
        for status in [200, 404, 401, 429, 500, 503, 599] {
            errors.failed_status(status);
        }
        errors.failed_call(&Failure::new(ErrorKind::ConnectFailed, "connection refused"));
        errors.failed_call(&Failure::new(ErrorKind::BadRequest, "the client's mistake"));
        let count = |name, count, cause: &str| ErrorCount { name, count, cause: cause.to_owned() };
        let expected = [
            count("401", 1, "status 401"),
            count("429", 1, "status 429"),
            count("5xx", 3, "status 599"),
            count("connect-failed", 1, "connection refused"),
        ];
        assert_eq!(errors.calls_snapshot(), expected);
    }

    #[test]
    fn a_long_cause_is_cut_between_characters() {
        let errors = ProviderErrors::default();
        errors.failed_call(&Failure::new(ErrorKind::DnsFailed, "é".repeat(CAUSE_BYTES_MAX)));
        assert_eq!(errors.calls_snapshot()[0].cause, "é".repeat(CAUSE_BYTES_MAX / 2));
    }
}
