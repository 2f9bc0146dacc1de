//! The tasks of a loop: their list, and the queue of those to run.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use egret_clock::planted;
use egret_items::opaque;

use super::remote::Remote;

/// Number of times that a task may receive or accept before others run.
const RECEIVES_IN_RUN: u32 = 64;

type Future = Pin<Box<dyn std::future::Future<Output = ()>>>;

/// The identity of a task, which may have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskId {
    index: u32,
    generation: u32,
}

/// The future that the loop runs for. It has the first slot, which is never freed.
const MAIN: TaskId = TaskId { index: 0, generation: 0 };

/// The task to run next.
pub(super) enum Next {
    Main,
    Task(TaskId),
}

/// The receiver of a wake-up.
pub(super) enum Waiter {
    /// A task of this loop.
    Task(TaskId),
    /// A waker inside a task or of another thread.
    Other(Waker),
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    is_due: bool,
    task: Option<Task>,
}

struct Task {
    future: Future,
    waker: Waker,
}

opaque!(Task);

/// The tasks of a loop.
#[derive(Debug)]
pub(super) struct Tasks {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    due: RefCell<VecDeque<TaskId>>,
    /// The running task, and the data pointer of its waker.
    running: Cell<(TaskId, *const ())>,
    /// Number of receives left in this run.
    receives_left: Cell<u32>,
    /// Creates a task's waker.
    create_waker: fn(TaskId, Arc<Remote>) -> Waker,
    remote: Arc<Remote>,
}

impl Tasks {
    /// Creates an empty list, whose tasks are woken by wakers from `create_waker`.
    pub fn new(remote: Arc<Remote>, create_waker: fn(TaskId, Arc<Remote>) -> Waker) -> Self {
        Self {
            slots: RefCell::new(vec![Slot::default()]),
            free: RefCell::default(),
            due: RefCell::default(),
            running: Cell::new((MAIN, ptr::null())),
            receives_left: Cell::new(RECEIVES_IN_RUN),
            create_waker,
            remote,
        }
    }

    /// Queues the loop's main future. Returns its waker.
    pub fn wake_main(&self) -> Waker {
        self.wake(MAIN);
        self.waker(MAIN)
    }

    fn waker(&self, task: TaskId) -> Waker {
        (self.create_waker)(task, Arc::clone(&self.remote))
    }

    /// Adds a task and queues it.
    pub fn spawn(&self, future: Future) {
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut slots = self.slots.borrow_mut();
            slots.push(Slot::default());
            // Cannot overflow: a connection has a few tasks at most, and the process runs out of file
            // descriptors first.
            u32::try_from(slots.len() - 1).unwrap_or(u32::MAX)
        });
        let task = {
            let slot = &mut self.slots.borrow_mut()[index as usize];
            let task = TaskId { index, generation: slot.generation };
            slot.task = Some(Task { future, waker: self.waker(task) });
            task
        };
        self.wake(task);
    }

    /// Queues a task, if it still exists.
    pub fn wake(&self, task: TaskId) {
        if self.mark_due(task) {
            self.due.borrow_mut().push_back(task);
        }
    }

    /// Returns `true` if the task was not queued before.
    fn mark_due(&self, task: TaskId) -> bool {
        let mut slots = self.slots.borrow_mut();
        match slots.get_mut(task.index as usize) {
            Some(slot) if slot.generation == task.generation && !slot.is_due => {
                slot.is_due = true;
                true
            }
            _ => false,
        }
    }

    /// Wakes a waiter.
    pub fn wake_waiter(&self, waiter: Waiter) {
        match waiter {
            Waiter::Task(task) => self.wake(task),
            Waiter::Other(waker) => waker.wake(),
        }
    }

    /// Returns the waiter for the caller that polls now.
    pub fn waiter(&self, cx: &Context<'_>) -> Waiter {
        match self.running.get() {
            (task, waker) if ptr::eq(waker, cx.waker().data()) => Waiter::Task(task),
            _ => Waiter::Other(cx.waker().clone()),
        }
    }

    /// Returns `true` if any task is queued.
    pub fn is_any_due(&self) -> bool {
        !self.due.borrow().is_empty()
    }

    /// Takes the first task from the queue.
    pub fn next(&self) -> Option<Next> {
        let task = self.due.borrow_mut().pop_front()?;
        if let Some(slot) = self.slots.borrow_mut().get_mut(task.index as usize)
            && slot.generation == task.generation
        {
            slot.is_due = false;
        }
        Some(if task == MAIN { Next::Main } else { Next::Task(task) })
    }

    /// Returns `true` if the running task may receive again in this run. The limit keeps a task whose socket
    /// always has data from blocking the others.
    pub fn has_receives_left(&self) -> bool {
        self.receives_left.get() > 0
    }

    /// Counts a receive of the running task.
    pub fn count_receive(&self) {
        self.receives_left.set(self.receives_left.get().saturating_sub(1));
    }

    /// Runs `poll` as the loop's main future.
    pub fn enter_main<T>(&self, waker: &Waker, poll: impl FnOnce() -> T) -> T {
        self.running.set((MAIN, waker.data()));
        self.receives_left.set(RECEIVES_IN_RUN);
        let outcome = poll();
        self.running.set((MAIN, ptr::null()));
        outcome
    }

    /// Runs a task until it waits, ends or panics.
    pub fn run(&self, task: TaskId) {
        let Some(mut taken) = self.take(task) else { return };
        self.running.set((task, taken.waker.data()));
        self.receives_left.set(RECEIVES_IN_RUN);
        let cx = &mut Context::from_waker(&taken.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| taken.future.as_mut().poll(cx)));
        self.running.set((MAIN, ptr::null()));
        match polled {
            Ok(Poll::Pending) => self.put_back(task, taken),
            // The panic hook has already reported a panic.
            Ok(Poll::Ready(())) | Err(_) => self.end(task, taken),
        }
    }

    fn take(&self, task: TaskId) -> Option<Task> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(task.index as usize)?;
        if slot.generation == task.generation { slot.task.take() } else { None }
    }

    fn put_back(&self, task: TaskId, taken: Task) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(task.index as usize) {
            slot.task = Some(taken);
        }
    }

    fn end(&self, task: TaskId, taken: Task) {
        if planted!(TaskKept) {
            return self.put_back(task, taken);
        }
        if let Some(slot) = self.slots.borrow_mut().get_mut(task.index as usize) {
            slot.generation = slot.generation.wrapping_add(1);
            slot.is_due = false;
        }
        self.free.borrow_mut().push(task.index);
        drop_quietly(taken);
    }

    /// Returns the number of tasks that have not ended.
    #[cfg(feature = "simulated")]
    pub fn count(&self) -> usize {
        self.slots.borrow().iter().filter(|slot| slot.task.is_some()).count()
    }

    /// Returns the number of slots for tasks, including the main future's.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Drops all tasks, and those spawned by the drop.
    pub fn drop_all(&self) {
        loop {
            let taken: Vec<Task> =
                self.slots.borrow_mut().iter_mut().filter_map(|slot| slot.task.take()).collect();
            if taken.is_empty() {
                return;
            }
            taken.into_iter().for_each(drop_quietly);
        }
    }
}

/// Drops a value whose drop may panic. Its task has ended, but others have not.
fn drop_quietly<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}
