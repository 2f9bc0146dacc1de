//! The clock of a serving thread, accurate to some tens of microseconds.
//!
//! tokio's timer counts in milliseconds and is up to two milliseconds late, and the provider's delays are the
//! reference for other measurements.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer as HyperTimer};
use hyper_util::rt::TokioTimer;

thread_local! {
    /// This thread's clock, if it has one.
    static CLOCK: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// The pending waits of a thread, and the timer that wakes them.
struct Clock {
    #[cfg(target_os = "linux")]
    timer: std::rc::Rc<egret_measure::timer::Timer>,
    /// Pending waits by due time and number.
    waiting: BTreeMap<(Instant, u64), Waker>,
    /// Number of the next wait.
    number: u64,
    /// The time for which the timer is set.
    #[cfg(target_os = "linux")]
    set_to: Option<Instant>,
}

/// Creates the clock of this thread, which runs a local runtime. If the system cannot provide a timer, waits
/// use tokio's timer.
#[cfg(target_os = "linux")]
pub(crate) fn start() {
    use std::rc::Rc;

    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    #[expect(
        deprecated,
        reason = "its successor requires `unsafe`; the timer owns its descriptor, as that requires"
    )]
    let watched = |timer| AsyncFd::with_interest(timer, Interest::READABLE);
    let made = egret_measure::timer::Timer::new().map(Rc::new);
    let made = made.and_then(|timer| Ok((Rc::clone(&timer), watched(timer)?)));
    match made {
        Ok((timer, watched)) => {
            CLOCK.set(Some(Clock { timer, waiting: BTreeMap::new(), number: 0, set_to: None }));
            tokio::task::spawn_local(async move {
                // Fails when the runtime is shut down.
                while let Ok(mut ready) = watched.readable().await {
                    ready.clear_ready();
                    wake();
                }
            });
        }
        Err(error) => {
            tracing::warn!(%error, "no high-resolution timer: the provider's delays end up to 2 ms late");
        }
    }
}

/// Does nothing: there is no such timer on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn start() {}

/// Wakes all waits that are due.
#[cfg(target_os = "linux")]
fn wake() {
    let due = CLOCK.with_borrow_mut(|clock| clock.as_mut().map(Clock::due).unwrap_or_default());
    for waker in due.into_values() {
        waker.wake();
    }
}

impl Clock {
    /// Removes and returns all waits that are due, and sets the timer for the next.
    #[cfg(target_os = "linux")]
    fn due(&mut self) -> BTreeMap<(Instant, u64), Waker> {
        let later = self.waiting.split_off(&(Instant::now(), u64::MAX));
        let due = std::mem::replace(&mut self.waiting, later);
        self.set_to = None;
        self.set();
        due
    }

    /// Sets the timer to the earliest due time, unless it is already set to fire before that.
    #[cfg(target_os = "linux")]
    fn set(&mut self) {
        let Some(((first, _), _)) = self.waiting.first_key_value() else { return };
        if self.set_to.is_some_and(|set_to| set_to <= *first) {
            return;
        }
        self.set_to = Some(*first);
        if let Err(error) = self.timer.set(first.saturating_duration_since(Instant::now())) {
            tracing::error!(%error, "the timer cannot be set: pending waits do not end");
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn set(&mut self) {}
}

/// A wait until a due time, by this thread's clock.
struct Wait {
    due: Instant,
    /// Number of the wait, once it is registered.
    number: Option<u64>,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.due {
            return Poll::Ready(());
        }
        CLOCK.with_borrow_mut(|clock| {
            let Some(clock) = clock else { return };
            let number = *self.number.get_or_insert_with(|| {
                clock.number += 1;
                clock.number
            });
            clock.waiting.insert((self.due, number), context.waker().clone());
            clock.set();
        });
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        // When a thread ends, its clock may be gone already.
        let _ = CLOCK.try_with(|clock| {
            if let Some(clock) = &mut *clock.borrow_mut() {
                clock.waiting.remove(&(self.due, number));
            }
        });
    }
}

impl Sleep for Wait {}

fn is_running() -> bool {
    CLOCK.with_borrow(Option::is_some)
}

/// Waits for this duration.
pub(crate) async fn sleep(duration: Duration) {
    sleep_until(tokio::time::Instant::now() + duration).await;
}

/// Waits until this time.
pub(crate) async fn sleep_until(due: tokio::time::Instant) {
    if is_running() {
        Wait { due: due.into_std(), number: None }.await;
    } else {
        tokio::time::sleep_until(due).await;
    }
}

/// The same clock for hyper.
pub(crate) struct OwnTimer;

impl HyperTimer for OwnTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, due: Instant) -> Pin<Box<dyn Sleep>> {
        if is_running() { Box::pin(Wait { due, number: None }) } else { TokioTimer::new().sleep_until(due) }
    }
}
