//! A loop that the simulation turns, step by step, instead of a thread of its own.

use std::pin::Pin;
use std::task::{Poll, Waker};

use egret_items::opaque;

use super::EventLoop;
use super::current::Entered;

/// The state of a loop after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopState {
    /// Tasks are due.
    Busy,
    /// It waits for events.
    Waiting,
    /// Its main future has completed. Other tasks may remain.
    Ended,
}

/// A loop with its main future.
pub struct SteppedLoop {
    main: Option<Pin<Box<dyn Future<Output = ()>>>>,
    waker: Waker,
    event_loop: EventLoop,
}

opaque!(SteppedLoop);

impl SteppedLoop {
    /// Creates a loop that runs for `main`.
    ///
    /// # Errors
    ///
    /// None.
    pub fn new(main: impl Future<Output = ()> + 'static) -> std::io::Result<Self> {
        let event_loop = EventLoop::new()?;
        let waker = event_loop.0.tasks.wake_main();
        Ok(Self { main: Some(Box::pin(main)), waker, event_loop })
    }

    /// Runs the tasks that are due, and takes the events that there are. It never waits.
    pub fn turn(&mut self) -> LoopState {
        let _entered = Entered::new(&self.event_loop.0);
        let Some(main) = &mut self.main else { return LoopState::Ended };
        if self.event_loop.run_due(main.as_mut(), &self.waker) == Poll::Ready(()) {
            self.main = None;
            return LoopState::Ended;
        }
        self.event_loop.await_events();
        if self.event_loop.0.tasks.is_any_due() || self.event_loop.0.poller.has_events() {
            return LoopState::Busy;
        }
        LoopState::Waiting
    }

    /// The number of its wait in the kernel.
    pub fn poller(&self) -> usize {
        self.event_loop.0.poller.number()
    }

    /// Number of tasks that have not ended, beside the main future.
    pub fn tasks(&self) -> usize {
        self.event_loop.0.tasks.count()
    }
}

impl Drop for SteppedLoop {
    fn drop(&mut self) {
        let _entered = Entered::new(&self.event_loop.0);
        self.main = None;
        self.event_loop.0.tasks.drop_all();
    }
}
