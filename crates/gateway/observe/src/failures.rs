//! Log lines about the errors that the gateway responds with: one a minute for each kind and provider.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_clock::Moment;
use egret_message::RequestId;
use tracing::warn;

use crate::failure::{ErrorKind, Failure};
use crate::notice::Notice;

/// Time between two lines.
const INTERVAL: Duration = Duration::from_mins(1);

/// The lines about the errors of one provider. A provider without errors has no memory for them.
#[derive(Debug, Default)]
pub struct FailureLines(OnceLock<Box<[FailureLine; ErrorKind::ALL.len()]>>);

#[derive(Debug, Default)]
struct FailureLine {
    notice: Notice,
    /// Number of errors since the last line.
    unlogged: AtomicU64,
}

impl FailureLines {
    /// Counts an error. Returns the number of those since the last line if another one is due.
    fn note(&self, kind: ErrorKind, now: Moment) -> Option<u64> {
        let lines = self.0.get_or_init(|| Box::new(std::array::from_fn(|_| FailureLine::default())));
        let FailureLine { notice, unlogged } = &lines[kind as usize];
        if notice.is_due_every(INTERVAL, now) {
            return Some(unlogged.swap(0, Relaxed));
        }
        unlogged.fetch_add(1, Relaxed);
        None
    }

    /// Logs that the gateway responds with `failure` in place of `provider`, which these lines are about, if
    /// the client can do nothing about it, or would not know what.
    pub fn warn(&self, provider: &str, failure: &Failure, status: u16, id: &RequestId) {
        let Failure { kind, detail, .. } = failure;
        if status < 500 && *kind != ErrorKind::BodyTooLargeToSign {
            return;
        }
        let Some(unlogged) = self.note(*kind, Moment::now()) else { return };
        // The words of a script may contain anything of the request.
        let cause = if *kind == ErrorKind::ScriptRefused { "the script refused it" } else { detail };
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_logs_one_line_a_minute() {
        let (lines, now) = (FailureLines::default(), Moment::now());
        assert_eq!(lines.note(ErrorKind::PoolFull, now), Some(0));
        for _ in 0..3 {
            assert_eq!(lines.note(ErrorKind::PoolFull, now + INTERVAL / 2), None);
        }
        assert_eq!(lines.note(ErrorKind::DnsFailed, now + INTERVAL / 2), Some(0));
        assert_eq!(lines.note(ErrorKind::PoolFull, now + INTERVAL), Some(3));
        assert_eq!(lines.note(ErrorKind::PoolFull, now + 2 * INTERVAL), Some(0));
    }
}
