//! Alarms: points in time that tasks wait for, accurate to a millisecond. The deadlines of connections, which
//! move with every exchange, are in `deadline`.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Moment;

use super::alarms::AlarmKey;
use super::current::with_current;
use super::now;

/// A future that completes at a point in time. It works only inside an event loop; elsewhere it never
/// completes.
#[derive(Debug)]
pub struct Alarm {
    at: Moment,
    /// The key under which it is registered.
    set: Option<AlarmKey>,
}

/// Returns a future that completes at `at`.
pub fn sleep_until(at: Moment) -> Alarm {
    Alarm { at, set: None }
}

/// Returns a future that completes after `duration`.
pub fn sleep(duration: Duration) -> Alarm {
    sleep_until(now::exact() + duration)
}

impl Alarm {
    /// Moves the alarm to `at`.
    pub fn reset(&mut self, at: Moment) {
        self.clear();
        self.at = at;
    }

    fn clear(&mut self) {
        if let Some(key) = self.set.take() {
            with_current(|current| current.alarms.clear(key));
        }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.at <= now::exact() {
            self.clear();
            return Poll::Ready(());
        }
        let at = self.at;
        with_current(|current| {
            let key = *self.set.get_or_insert_with(|| current.alarms.key(at));
            current.alarms.set(key, current.tasks.waiter(cx));
        });
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Error: the time limit was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

/// Returns the output of `future`, or an error if it takes longer than `limit`.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    let (mut future, mut alarm) = (pin!(future), pin!(sleep(limit)));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        alarm.as_mut().poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
