//! Test helpers: connections on an event loop of the test's own thread.

#![expect(clippy::unwrap_used, reason = "for tests alone")]

use std::task::Poll;

use egret_net::event_loop::{EventLoop, Socket};
use egret_net::os::kernel::{TcpListener, TcpStream};

/// Lets the other tasks run once.
pub async fn turn() {
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
pub fn ends() -> (Socket, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = |stream: TcpStream| {
        stream.set_nonblocking(true).unwrap();
        Socket::new(stream).unwrap()
    };
    (socket(near), socket(listener.accept().unwrap().0))
}

/// Runs `main` on a new loop.
pub fn run<F: Future>(main: F) -> F::Output {
    EventLoop::new().unwrap().block_on(main)
}
