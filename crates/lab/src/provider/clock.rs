//! The clock of a serving thread. What waits by it goes on within some tens of microseconds of its moment; tokio's timer, which
//! counts in milliseconds, would be up to two of them late, and a provider's delay is what others are measured against.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer as HyperTimer};
use hyper_util::rt::TokioTimer;

thread_local! {
    /// This thread's clock, where it has one.
    static CLOCK: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// What waits on a thread, and what wakes it.
struct Clock {
    #[cfg(target_os = "linux")]
    timer: std::rc::Rc<crate::timer::Timer>,
    /// By moment, and number of the wait.
    waiting: BTreeMap<(Instant, u64), Waker>,
    /// Number of the next wait.
    number: u64,
    /// What the timer is set to.
    set_to: Option<Instant>,
}

/// Gives this thread, on which a local runtime runs, its clock. Where the system has no such timer, or has none to spare, waits end
/// when tokio's do.
#[cfg(target_os = "linux")]
pub(super) fn start() {
    use std::rc::Rc;

    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    #[expect(
        deprecated,
        reason = "its successor takes `unsafe`; our timer owns its descriptor, as that asks for"
    )]
    let watched = |timer| AsyncFd::with_interest(timer, Interest::READABLE);
    let made = crate::timer::Timer::new().map(Rc::new);
    let made = made.and_then(|timer| Ok((Rc::clone(&timer), watched(timer)?)));
    match made {
        Ok((timer, watched)) => {
            CLOCK.set(Some(Clock { timer, waiting: BTreeMap::new(), number: 0, set_to: None }));
            tokio::task::spawn_local(async move {
                // It fails when the loop is shut down.
                while let Ok(mut ready) = watched.readable().await {
                    ready.clear_ready();
                    wake();
                }
            });
        }
        Err(error) => tracing::warn!(%error, "no fine timer: the provider's delays end up to 2 ms late"),
    }
}

/// See above.
#[cfg(not(target_os = "linux"))]
pub(super) fn start() {}

/// Wakes what has waited long enough.
#[cfg(target_os = "linux")]
fn wake() {
    let due = CLOCK.with_borrow_mut(|clock| clock.as_mut().map(Clock::due).unwrap_or_default());
    for waker in due.into_values() {
        waker.wake();
    }
}

impl Clock {
    /// Takes what has waited long enough, and sets the timer for the next.
    #[cfg(target_os = "linux")]
    fn due(&mut self) -> BTreeMap<(Instant, u64), Waker> {
        let later = self.waiting.split_off(&(Instant::now(), u64::MAX));
        let due = std::mem::replace(&mut self.waiting, later);
        self.set_to = None;
        self.set();
        due
    }

    /// Sets the timer to the first moment that is waited for, unless it goes off before.
    #[cfg(target_os = "linux")]
    fn set(&mut self) {
        let Some(((first, _), _)) = self.waiting.first_key_value() else { return };
        if self.set_to.is_some_and(|set_to| set_to <= *first) {
            return;
        }
        self.set_to = Some(*first);
        if let Err(error) = self.timer.set(first.saturating_duration_since(Instant::now())) {
            tracing::error!(%error, "the timer cannot be set: waits do not end");
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn set(&mut self) {}
}

/// A wait for a moment, by this thread's clock.
struct Wait {
    due: Instant,
    /// Once it is known to the clock.
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
        // A thread that ends may have lost its clock before.
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

/// Waits so long.
pub(super) async fn sleep(duration: Duration) {
    sleep_until(tokio::time::Instant::now() + duration).await;
}

/// Waits until then.
pub(super) async fn sleep_until(due: tokio::time::Instant) {
    if is_running() {
        Wait { due: due.into_std(), number: None }.await;
    } else {
        tokio::time::sleep_until(due).await;
    }
}

/// The same clock for hyper.
pub(super) struct OwnTimer;

impl HyperTimer for OwnTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, due: Instant) -> Pin<Box<dyn Sleep>> {
        if is_running() { Box::pin(Wait { due, number: None }) } else { TokioTimer::new().sleep_until(due) }
    }
}
