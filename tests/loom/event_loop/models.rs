//! Models of the wake-ups by other threads.

use loom::sync::Arc;
use loom::thread;

use super::remote::Remote;
use crate::sync::Waker;

/// A loop that waits for tasks, as `EventLoop::block_on` does, until it has run this many.
fn run_until(waker: &Waker, remote: &Remote, count: usize) -> Vec<u32> {
    let mut run = Vec::new();
    while run.len() < count {
        waker.wait();
        remote.drain(|task| run.push(task));
    }
    run.sort_unstable();
    run
}

/// A wake-up that is lost is a deadlock, which loom reports.
pub fn no_wake_up_is_lost() {
    let waker = Waker::default();
    let remote = Arc::new(Remote::new(waker.clone()));
    let threads = [1, 2].map(|task| {
        let remote = Arc::clone(&remote);
        thread::spawn(move || remote.push(task))
    });
    assert_eq!(run_until(&waker, &remote, 2), [1, 2]);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The second wake-up of a thread may come at any time relative to the wait that the first one ends.
pub fn a_later_wake_up_is_a_new_one() {
    let waker = Waker::default();
    let remote = Arc::new(Remote::new(waker.clone()));
    let waking = Arc::clone(&remote);
    let thread = thread::spawn(move || {
        waking.push(1);
        waking.push(2);
        waking.push(3);
    });
    assert_eq!(run_until(&waker, &remote, 3), [1, 2, 3]);
    thread.join().unwrap();
}
