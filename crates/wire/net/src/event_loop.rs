//! The event loop of a worker's thread: its tasks, the sockets and alarms that they wait for, and one call
//! that waits for events of all of them.
//!
//! A general-purpose runtime lets any thread wake any task or socket, and pays for that with atomic
//! operations and locks in each exchange. Here nearly every event belongs to a task of the same thread, so
//! waking a task pushes its index onto a list. Events from other threads (messages, resolved names) use
//! ordinary wakers. Anything built on `std::task` works here: channels and `select!` are tokio's.

mod ahead;
mod alarm;
mod alarms;
mod current;
pub mod now;
mod poller;
mod remote;
#[cfg(feature = "simulated")]
pub mod simulated;
mod socket;
mod source;
mod tasks;
mod waker;

use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use alarms::Alarms;
use current::{Entered, Inner, with_current};
use poller::Poller;
use remote::Remote;
use tasks::{Next, Tasks};

pub use alarm::{Alarm, sleep, sleep_until, timeout};
pub use socket::{Listener, Socket};

/// Maximum number of tasks that run before the kernel is asked for new events.
const TASKS_IN_TURN: usize = 256;

/// An event loop, run by the thread that created it.
#[derive(Debug)]
pub struct EventLoop(Rc<Inner>);

impl EventLoop {
    /// Creates an event loop without tasks. Fails if the process has no file descriptors left.
    pub fn new() -> io::Result<Self> {
        let (poller, waker) = Poller::new()?;
        let remote = Arc::new(Remote::new(waker));
        let tasks = Tasks::new(Arc::clone(&remote), waker::waker);
        Ok(Self(Rc::new(Inner { tasks, poller, alarms: Alarms::default(), remote })))
    }

    /// Runs until `main` completes. Unfinished tasks continue at the next call, or are dropped with the loop.
    pub fn block_on<F: Future>(&self, main: F) -> F::Output {
        let _entered = Entered::new(&self.0);
        let mut main = pin!(main);
        let waker = self.0.tasks.wake_main();
        now::exact();
        loop {
            if let Poll::Ready(output) = self.run_due(main.as_mut(), &waker) {
                return output;
            }
            self.await_events();
        }
    }

    /// Runs the tasks that are due, up to a number of them. Ready if `main` is among them and completes.
    #[inline]
    fn run_due<F: Future + ?Sized>(&self, mut main: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
        let tasks = &self.0.tasks;
        for _ in 0..TASKS_IN_TURN {
            match tasks.next() {
                None => break,
                Some(Next::Task(task)) => tasks.run(task),
                Some(Next::Main) => {
                    let polled =
                        tasks.enter_main(waker, || main.as_mut().poll(&mut Context::from_waker(waker)));
                    if polled.is_ready() {
                        return polled;
                    }
                }
            }
        }
        Poll::Pending
    }

    /// Waits for events, unless tasks are due, and wakes the tasks that they are for.
    #[inline]
    fn await_events(&self) {
        let Inner { tasks, poller, alarms, remote } = &*self.0;
        let has_waited = !poller.has_events();
        if has_waited {
            poller.wait(if tasks.is_any_due() { Some(now::turned()) } else { alarms.first() });
            now::exact();
        }
        if poller.deliver(tasks) {
            remote.drain(|task| tasks.wake(task));
        }
        if has_waited {
            alarms.expire(now::turned(), tasks);
        }
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        // Values owned by tasks may spawn, wake or close while they are dropped.
        let _entered = Entered::new(&self.0);
        self.0.tasks.drop_all();
    }
}

/// Runs `future` as a task of this thread's loop. A panicking task does not affect others. If the thread runs
/// no loop, the future is dropped.
pub fn spawn(future: impl Future<Output = ()> + 'static) {
    with_current(move |current| current.tasks.spawn(Box::pin(future)));
}

/// Lets other tasks run.
#[cfg(test)]
pub(crate) async fn turn() {
    let mut has_waited = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Returns the two ends of a connection on this thread's loop.
#[cfg(test)]
pub(crate) fn ends() -> (Socket, Socket) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = |stream: std::net::TcpStream| {
        stream.set_nonblocking(true).unwrap();
        Socket::new(stream).unwrap()
    };
    (socket(near), socket(listener.accept().unwrap().0))
}

/// Runs `main` on a new loop.
#[cfg(test)]
pub(crate) fn run<F: Future>(main: F) -> F::Output {
    EventLoop::new().unwrap().block_on(main)
}

/// Does the same with a clock that advances only while the loop waits.
#[cfg(test)]
pub(crate) fn paused<F: Future>(main: F) -> F::Output {
    now::pause();
    run(main)
}

#[cfg(test)]
mod tests;
