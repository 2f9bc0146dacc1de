//! The event loop of a worker's thread: its tasks, the sockets and alarms that they wait for, and one wait of the system's for all.
//!
//! A runtime for everybody lets every task and socket be woken from any thread, and pays for that with atomic operations and locks in each
//! exchange. Here an event belongs to a task of the same thread nearly always, so that waking it is a number in a list. What does come from other threads (messages, names that have been resolved) comes by ordinary wakers. What is built of
//! `std::task` runs here as it does anywhere: channels and `select!` are tokio's.

mod ahead;
mod alarms;
pub(crate) mod now;
mod poller;
mod socket;
mod source;
mod tasks;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use alarms::Alarms;
use poller::Poller;
use tasks::{Next, Remote, Tasks};

pub(crate) use alarms::{Alarm, sleep, sleep_until, timeout};
pub(crate) use socket::{Listener, Socket};

/// Tasks that are run before the system is asked for new events, if there are that many.
const TASKS_IN_TURN: usize = 256;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

/// An event loop, to be run by the thread that has made it.
#[derive(Debug)]
pub(crate) struct EventLoop(Rc<Inner>);

struct Inner {
    tasks: Tasks,
    poller: Poller,
    alarms: Alarms,
    remote: Arc<Remote>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inner")
    }
}

impl EventLoop {
    /// An event loop without tasks. Fails where the system has no descriptors to spare.
    pub fn new() -> io::Result<Self> {
        let (poller, waker) = Poller::new()?;
        let remote = Arc::new(Remote::new(waker));
        let tasks = Tasks::new(Arc::clone(&remote));
        Ok(Self(Rc::new(Inner { tasks, poller, alarms: Alarms::default(), remote })))
    }

    /// Runs until `main` has ended; tasks that have not are kept for the next time, or until the loop is dropped.
    pub fn block_on<F: Future>(&self, main: F) -> F::Output {
        let _entered = Entered::new(&self.0);
        let Inner { tasks, poller, alarms, remote } = &*self.0;
        let mut main = pin!(main);
        let waker = tasks.wake_main();
        now::exact();
        loop {
            for _ in 0..TASKS_IN_TURN {
                match tasks.next() {
                    None => break,
                    Some(Next::Task(task)) => tasks.run(task),
                    Some(Next::Main) => {
                        let polled =
                            tasks.enter_main(&waker, || main.as_mut().poll(&mut Context::from_waker(&waker)));
                        if let Poll::Ready(output) = polled {
                            return output;
                        }
                    }
                }
            }
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
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        // What tasks hold may spawn, wake or close while it is dropped.
        let _entered = Entered::new(&self.0);
        self.0.tasks.drop_all();
    }
}

/// While it lives, its loop is this thread's.
struct Entered(Option<Rc<Inner>>);

impl Entered {
    fn new(inner: &Rc<Inner>) -> Self {
        Self(CURRENT.replace(Some(Rc::clone(inner))))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.replace(self.0.take());
    }
}

/// Does something with this thread's loop; nothing on a thread that runs none.
fn with_current<T>(act: impl FnOnce(&Rc<Inner>) -> T) -> Option<T> {
    CURRENT.with_borrow(|current| current.as_ref().map(act))
}

/// Runs `future` as a task of this thread's loop. One that panics ends alone. On a thread that runs no loop it is dropped.
pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) {
    with_current(move |current| current.tasks.spawn(Box::pin(future)));
}

/// Lets others run.
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

/// Two ends of a connection on this thread's loop.
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

/// Runs `main` on a loop of its own.
#[cfg(test)]
pub(crate) fn run<F: Future>(main: F) -> F::Output {
    EventLoop::new().unwrap().block_on(main)
}

/// The same with a clock that goes on only where there is nothing to do but wait.
#[cfg(test)]
pub(crate) fn paused<F: Future>(main: F) -> F::Output {
    now::pause();
    run(main)
}

#[cfg(test)]
mod tests;
