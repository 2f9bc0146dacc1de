//! Tests of tasks, of wakers on this thread and others, of alarms with a stopped clock, and of sockets over
//! real connections.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::io::IoSlice;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::*;

/// The order in which tasks ran.
type Log = Rc<RefCell<Vec<&'static str>>>;

#[test]
fn tasks_run_in_the_order_in_which_they_become_due() {
    run(async {
        let (log, done) = (Log::default(), Rc::new(Notify::new()));
        for name in ["first", "second", "third"] {
            let (log, done) = (Rc::clone(&log), Rc::clone(&done));
            spawn(async move {
                log.borrow_mut().push(name);
                turn().await;
                log.borrow_mut().push(name);
                if name == "third" {
                    done.notify_one();
                }
            });
        }
        done.notified().await;
        assert_eq!(*log.borrow(), ["first", "second", "third", "first", "second", "third"]);
    });
}

#[test]
fn a_task_that_panics_ends_alone() {
    struct Gone(Rc<Cell<bool>>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.set(true);
            panic!("its value panics on drop too");
        }
    }
    let gone = Rc::new(Cell::new(false));
    let held = Gone(Rc::clone(&gone));
    let outcome = run(async {
        // Dropped after the panic, not by it.
        spawn(poll_fn(move |_| {
            let _held = &held;
            panic!("the task fails");
        }));
        let (tell, told) = oneshot::channel();
        spawn(async move {
            for _ in 0..5 {
                turn().await;
            }
            tell.send("the others run on").unwrap();
        });
        told.await.unwrap()
    });
    assert_eq!(outcome, "the others run on");
    assert!(gone.get());
}

#[test]
fn a_task_is_woken_from_another_thread_while_the_loop_waits() {
    run(async {
        for _ in 0..100 {
            let (tell, told) = oneshot::channel();
            let (answer, answered) = oneshot::channel();
            spawn(async move { answer.send(told.await.unwrap()).unwrap() });
            let other = thread::spawn(move || tell.send(7).unwrap());
            assert_eq!(answered.await, Ok(7));
            other.join().unwrap();
        }
    });
}

#[test]
fn a_task_woken_twice_runs_once() {
    run(async {
        let (runs, kept) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None::<Waker>)));
        let (counted, keeping) = (Rc::clone(&runs), Rc::clone(&kept));
        spawn(poll_fn(move |cx| {
            counted.set(counted.get() + 1);
            keeping.replace(Some(cx.waker().clone()));
            if counted.get() == 3 { Poll::Ready(()) } else { Poll::Pending }
        }));
        turn().await;
        let waker = kept.take().unwrap();
        for expected in [2, 3, 3, 3] {
            waker.wake_by_ref();
            waker.wake_by_ref();
            turn().await;
            turn().await;
            assert_eq!(runs.get(), expected);
        }
        // The slot now belongs to another task, which must not be woken.
        let other = Rc::new(Cell::new(0));
        let counted = Rc::clone(&other);
        spawn(poll_fn(move |_| {
            counted.set(counted.get() + 1);
            Poll::Pending
        }));
        turn().await;
        waker.wake();
        turn().await;
        assert_eq!(other.get(), 1);
    });
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn an_inner_future_is_woken_by_its_own_waker() {
    run(async {
        let (near, far) = ends();
        // `FuturesUnordered`, `JoinSet` and similar types give each future its own waker.
        let inner = Arc::new(Counting::default());
        let waker = Arc::clone(&inner).into();
        let mut buffer = [0; 8];
        assert!(near.poll_receive(&Context::from_waker(&waker), &mut buffer).is_pending());
        far.send_all(b"x").await.unwrap();
        while inner.0.load(Relaxed) == 0 {
            turn().await;
        }
        assert_eq!(near.receive(&mut buffer).await.unwrap(), 1);
    });
}

#[test]
fn alarms_go_off_in_the_order_of_their_times() {
    paused(async {
        let (log, begun) = (Log::default(), now::exact());
        let (tell, told) = oneshot::channel();
        let mut tell = Some(tell);
        for (name, millis) in [("late", 300), ("early", 100), ("middle", 200)] {
            let (log, tell) = (Rc::clone(&log), if millis == 300 { tell.take() } else { None });
            spawn(async move {
                sleep(Duration::from_millis(millis)).await;
                log.borrow_mut().push(name);
                if let Some(tell) = tell {
                    tell.send(()).unwrap();
                }
            });
        }
        told.await.unwrap();
        assert_eq!(*log.borrow(), ["early", "middle", "late"]);
        assert_eq!(now::exact().since(begun), Duration::from_millis(300));
    });
}

#[test]
fn an_alarm_that_is_reset_or_dropped_leaves_nothing_behind() {
    paused(async {
        let begun = now::exact();
        let mut alarm = sleep(Duration::from_millis(10));
        assert!(poll_fn(|cx| Poll::Ready(pin!(&mut alarm).poll(cx))).await.is_pending());
        alarm.reset(begun + Duration::from_millis(50));
        let gone = timeout(Duration::from_millis(20), pending::<()>()).await;
        assert!(gone.is_err());
        assert_eq!(now::exact().since(begun), Duration::from_millis(20));
        alarm.await;
        assert_eq!(now::exact().since(begun), Duration::from_millis(50));
        assert_eq!(
            timeout(Duration::ZERO, async { 1 }).await.ok(),
            Some(1),
            "a ready future never times out"
        );
        assert_eq!(with_current(|current| current.alarms.first()), Some(None));
    });
}

#[test]
fn a_long_message_arrives_through_full_sockets() {
    run(async {
        let (near, far) = ends();
        let (tell, told) = oneshot::channel();
        spawn(async move {
            let (mut received, mut buffer) = (0, vec![0; 1000]);
            while let count @ 1.. = far.receive(&mut buffer).await.unwrap() {
                received += count;
            }
            tell.send(received).unwrap();
        });
        near.send_all(&vec![b'x'; 10 << 20]).await.unwrap();
        near.shut().unwrap();
        assert_eq!(told.await, Ok(10 << 20));
    });
}

#[test]
fn more_slices_than_one_call_takes_are_sent_in_several() {
    run(async {
        let (near, far) = ends();
        let slices = vec![IoSlice::new(b"x"); 3_000];
        let (mut sent, mut calls) = (0, 0);
        while sent < slices.len() {
            sent += poll_fn(|cx| near.poll_send(cx, &slices[sent..])).await.unwrap();
            calls += 1;
        }
        near.shut().unwrap();
        assert!(calls > 1);
        let (mut received, mut buffer) = (0, [0; 4_096]);
        while let count @ 1.. = far.receive(&mut buffer).await.unwrap() {
            received += count;
        }
        assert_eq!(received, sent);
    });
}

#[test]
fn an_end_that_comes_with_the_last_bytes_is_not_missed() {
    run(async {
        for _ in 0..20 {
            let (near, far) = ends();
            far.send_all(b"all").await.unwrap();
            far.shut().unwrap();
            // The kernel reports both in one event or in two.
            let mut buffer = [0; 64];
            assert_eq!(near.receive(&mut buffer).await.unwrap(), 3);
            assert_eq!(near.receive(&mut buffer).await.unwrap(), 0);
        }
    });
}

#[test]
fn a_task_that_always_receives_lets_others_run() {
    run(async {
        let (near, far) = ends();
        let others = Rc::new(Cell::new(0));
        let counted = Rc::clone(&others);
        spawn(async move {
            loop {
                counted.set(counted.get() + 1);
                turn().await;
            }
        });
        far.send_all(&[b'x'; 10_000]).await.unwrap();
        let mut received = 0;
        // Reads one byte at a time; all bytes are available.
        while received < 10_000 {
            received += near.receive(&mut [0; 1]).await.unwrap();
        }
        assert!(others.get() > 100, "{}", others.get());
    });
}

/// Returns sockets that all get data at once, so it is received ahead, and their other ends. All have waited
/// for it.
async fn many_with(bytes: &'static [u8]) -> Vec<(Socket, Socket)> {
    let pairs: Vec<_> = (0..40).map(|_| ends()).collect();
    let readable = |socket: &Socket, cx: &mut Context<'_>| socket.poll_readable(cx).is_ready();
    let is_any = poll_fn(|cx| Poll::Ready(pairs.iter().any(|(near, _)| readable(near, cx)))).await;
    assert!(!is_any);
    for (_, far) in &pairs {
        far.send_all(bytes).await.unwrap();
    }
    poll_fn(|cx| {
        let are_all = pairs.iter().filter(|(near, _)| readable(near, cx)).count() == pairs.len();
        if are_all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    pairs
}

#[test]
fn data_received_ahead_comes_first_and_once() {
    run(async {
        let pairs = many_with(b"one ").await;
        // Runs through all batches, so no socket still refers to the batch's memory.
        for _ in 0..4 {
            turn().await;
        }
        for (near, far) in &pairs {
            far.send_all(b"two").await.unwrap();
            far.shut().unwrap();
            let (mut all, mut buffer) = (Vec::new(), [0; 3]);
            while let count @ 1.. = near.receive(&mut buffer).await.unwrap() {
                all.extend_from_slice(&buffer[..count]);
            }
            assert_eq!(all, b"one two");
        }
    });
}

#[test]
fn data_beyond_a_batch_comes_in_one_piece() {
    static MUCH: [u8; 10_000] = [b'x'; 10_000];
    run(async {
        for (near, _far) in &many_with(&MUCH).await {
            assert_eq!(near.receive(&mut [0; 16 << 10]).await.unwrap(), MUCH.len());
        }
    });
}

#[test]
fn a_reset_is_told_after_what_has_come_before_it() {
    run(async {
        let mut told = 0;
        for (near, far) in many_with(b"all").await {
            socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
            drop(far);
            let mut buffer = [0; 8];
            match near.receive(&mut buffer).await {
                Ok(count) => assert_eq!(count, 3),
                // On a reset, the kernel discards data that has not been received.
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                    continue;
                }
            }
            let error = near.receive(&mut buffer).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            told += 1;
        }
        assert!(told >= 16, "received from {told} sockets");
    });
}

#[test]
fn a_socket_does_not_leave_what_has_come_for_it_behind() {
    run(async {
        for (near, _far) in many_with(b"x").await {
            let is_lost = near.into_std().is_ok_and(|stream| stream.peek(&mut [0; 1]).is_err());
            assert!(!is_lost);
        }
    });
}

/// Returns sockets that wait like those received from ahead, and one more. All can send.
async fn many_and_one() -> (Vec<(Socket, Socket)>, (Socket, Socket)) {
    let pairs: Vec<_> = (0..40).map(|_| ends()).collect();
    let one = ends();
    for (near, far) in pairs.iter().chain([&one]) {
        far.send_all(b"x").await.unwrap();
        assert_eq!(near.receive(&mut [0; 8]).await.unwrap(), 1);
    }
    let is_any =
        poll_fn(|cx| Poll::Ready(pairs.iter().any(|(near, _)| near.poll_readable(cx).is_ready()))).await;
    assert!(!is_any);
    (pairs, one)
}

#[test]
fn an_idle_connection_known_to_be_closed_is_unusable() {
    run(async {
        let (pairs, (idle, closing)) = many_and_one().await;
        for (_, far) in &pairs {
            far.send_all(b"x").await.unwrap();
        }
        drop(closing);
        // Woken by the first event. The same wait reported all of them.
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            let is_any = pairs.iter().any(|(near, _)| near.poll_readable(cx).is_ready());
            if is_any { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!(polls, 2);
        assert!(idle.try_receive(&mut [0; 1]).is_some(), "the EOF was reported but is not noticed");
    });
}

#[test]
fn data_in_time_is_not_late_behind_other_data() {
    paused(async {
        let (pairs, (near, far)) = many_and_one().await;
        let (tell, told) = oneshot::channel();
        spawn(async move {
            let received = timeout(Duration::from_millis(50), near.receive(&mut [0; 8])).await;
            tell.send(received.is_ok()).unwrap();
        });
        turn().await;
        for (_, far) in &pairs {
            far.send_all(b"x").await.unwrap();
        }
        far.send_all(b"x").await.unwrap();
        // The clock advances to the alarm as soon as the loop waits. The data arrived before that.
        assert!(told.await.unwrap(), "no data was reported");
    });
}

#[test]
fn a_task_at_its_receive_limit_is_not_readable() {
    run(async {
        let (near, far) = ends();
        far.send_all(&[b'x'; 1000]).await.unwrap();
        let (mut looks, mut received) = (0, 0);
        // Like a client's connection: receives if readable, and waits again if no data arrived.
        poll_fn(|cx| {
            while near.poll_readable(cx).is_ready() {
                looks += 1;
                assert!(looks < 10_000, "the loop never runs; {received} received");
                if let Poll::Ready(count) = near.poll_receive(cx, &mut [0; 1]) {
                    received += count.unwrap();
                }
                if received == 1000 {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
    });
}

#[test]
fn a_socket_moves_from_one_loop_to_another() {
    let (far, detached) = run(async {
        let (near, far) = ends();
        (far.into_std().unwrap(), near.into_std().unwrap())
    });
    run(async move {
        let (near, far) = (Socket::new(detached).unwrap(), Socket::new(far).unwrap());
        far.send_all(b"hello").await.unwrap();
        let mut buffer = [0; 16];
        assert_eq!(near.receive(&mut buffer).await.unwrap(), 5);
    });
}

#[test]
fn a_listener_accepts_what_connects_and_refusals_are_told() {
    run(async {
        let socket = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = Listener::new(listener).unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(Socket::connect(socket(), address), listener.accept());
        assert_eq!(near.unwrap().local_addr().unwrap(), far.unwrap().peer_addr().unwrap());
        drop(listener);
        let refused = Socket::connect(socket(), address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn places_of_closed_sockets_and_ended_tasks_are_used_again() {
    run(async {
        let places = || with_current(|current| (current.tasks.places(), current.poller.places())).unwrap();
        for round in 0..50 {
            let (near, far) = ends();
            spawn(async move { far.send_all(b"x").await.unwrap() });
            assert_eq!(near.receive(&mut [0; 8]).await.unwrap(), 1);
            // The slots of the previous round are free once the loop has waited again.
            let (tasks, sockets) = places();
            assert!(tasks == 2 && sockets <= 4, "round {round}: {sockets}");
        }
    });
}

#[test]
fn remaining_tasks_are_dropped_with_the_loop() {
    struct Gone(Rc<Cell<u32>>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            // A task spawned at the very end is dropped too.
            if self.0.get() == 1 {
                let held = Self(Rc::clone(&self.0));
                spawn(async move {
                    let _held = held;
                    pending::<()>().await;
                });
            }
        }
    }
    let gone = Rc::new(Cell::new(0));
    let held = Gone(Rc::clone(&gone));
    let event_loop = EventLoop::new().unwrap();
    event_loop.block_on(async {
        let (near, far) = ends();
        spawn(async move {
            let _held = held;
            let _ = near.receive(&mut [0; 8]).await;
        });
        turn().await;
        drop(far.into_std());
    });
    drop(event_loop);
    assert_eq!(gone.get(), 2);
}

#[test]
fn without_a_loop_there_are_no_sockets_and_no_tasks() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(Socket::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).is_err());
    spawn(async { unreachable!("nobody runs it") });
}
