//! Tasks: which there are, which of them are due, and how they are woken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::CURRENT;

/// How often a task may receive, or accept, before others have their turn.
const RECEIVES_IN_RUN: u32 = 64;

type Future = Pin<Box<dyn std::future::Future<Output = ()>>>;

/// A task, or one that there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskId {
    index: u32,
    generation: u32,
}

/// The future that the loop runs for: the first one, and never gone.
const MAIN: TaskId = TaskId { index: 0, generation: 0 };

/// What is to be run next.
pub(super) enum Next {
    Main,
    Task(TaskId),
}

/// Who waits for an event.
pub(super) enum Waiter {
    /// A task of this loop.
    Task(TaskId),
    /// Something inside of a task, or of another thread.
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

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Task")
    }
}

/// The tasks of a loop.
#[derive(Debug)]
pub(super) struct Tasks {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    due: RefCell<VecDeque<TaskId>>,
    /// The task that runs, and where its waker points to.
    running: Cell<(TaskId, *const ())>,
    /// How often it may still receive.
    receives_left: Cell<u32>,
    remote: Arc<Remote>,
}

impl Tasks {
    pub fn new(remote: Arc<Remote>) -> Self {
        Self {
            slots: RefCell::new(vec![Slot::default()]),
            free: RefCell::default(),
            due: RefCell::default(),
            running: Cell::new((MAIN, ptr::null())),
            receives_left: Cell::new(RECEIVES_IN_RUN),
            remote,
        }
    }

    /// Makes the loop's own future due, and says how it is woken.
    pub fn wake_main(&self) -> Waker {
        self.wake(MAIN);
        self.waker(MAIN)
    }

    fn waker(&self, task: TaskId) -> Waker {
        Arc::new(TaskWaker { task, remote: Arc::clone(&self.remote) }).into()
    }

    /// Adds a task, which is due at once.
    pub fn spawn(&self, future: Future) {
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut slots = self.slots.borrow_mut();
            slots.push(Slot::default());
            // A connection each, or a few: the process runs out of descriptors long before this does.
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

    /// Makes a task due, if it still is one.
    pub fn wake(&self, task: TaskId) {
        if self.mark_due(task) {
            self.due.borrow_mut().push_back(task);
        }
    }

    /// Says whether the task was not due before.
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

    /// Wakes who has waited.
    pub fn wake_waiter(&self, waiter: Waiter) {
        match waiter {
            Waiter::Task(task) => self.wake(task),
            Waiter::Other(waker) => waker.wake(),
        }
    }

    /// Whoever polls now, to be woken later.
    pub fn waiter(&self, cx: &Context<'_>) -> Waiter {
        match self.running.get() {
            (task, waker) if ptr::eq(waker, cx.waker().data()) => Waiter::Task(task),
            _ => Waiter::Other(cx.waker().clone()),
        }
    }

    /// Whether there is somebody to run.
    pub fn is_any_due(&self) -> bool {
        !self.due.borrow().is_empty()
    }

    /// What is due first.
    pub fn next(&self) -> Option<Next> {
        let task = self.due.borrow_mut().pop_front()?;
        if let Some(slot) = self.slots.borrow_mut().get_mut(task.index as usize)
            && slot.generation == task.generation
        {
            slot.is_due = false;
        }
        Some(if task == MAIN { Next::Main } else { Next::Task(task) })
    }

    /// Whether the running task may receive once more in this run. One whose socket always has more would otherwise keep the others waiting.
    pub fn has_receives_left(&self) -> bool {
        self.receives_left.get() > 0
    }

    /// The running task receives.
    pub fn count_receive(&self) {
        self.receives_left.set(self.receives_left.get().saturating_sub(1));
    }

    /// Runs `poll` as the loop's own future.
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
            // Of a panic, its hook has told.
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
        if let Some(slot) = self.slots.borrow_mut().get_mut(task.index as usize) {
            slot.generation = slot.generation.wrapping_add(1);
            slot.is_due = false;
        }
        self.free.borrow_mut().push(task.index);
        drop_quietly(taken);
    }

    /// For how many tasks there is a place, the loop's own future among them.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Drops all tasks, and those that are spawned by that.
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

/// Drops something that may panic at that: the task that it is of has ended, the others have not.
fn drop_quietly<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

/// What is told from other threads.
#[derive(Debug)]
pub(super) struct Remote {
    woken: Mutex<Vec<TaskId>>,
    /// Whether the loop has been told to look, and has not yet.
    is_told: AtomicBool,
    waker: mio::Waker,
}

impl Remote {
    pub fn new(waker: mio::Waker) -> Self {
        Self { woken: Mutex::default(), is_told: AtomicBool::new(false), waker }
    }

    fn push(&self, task: TaskId) {
        self.lock().push(task);
        if !self.is_told.swap(true, AcqRel) {
            // Fails only where the counter behind it is full, and then the loop wakes anyway.
            let _ = self.waker.wake();
        }
    }

    /// Gives all that have been woken to `wake`.
    pub fn drain(&self, wake: impl FnMut(TaskId)) {
        // Before the look, so that whoever comes after it tells again.
        self.is_told.swap(false, AcqRel);
        let woken = std::mem::take(&mut *self.lock());
        woken.into_iter().for_each(wake);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TaskId>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a task is woken by whoever knows nothing of loops.
struct TaskWaker {
    task: TaskId,
    remote: Arc<Remote>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_here = CURRENT.try_with(|current| match current.try_borrow().as_deref() {
            Ok(Some(current)) if Arc::ptr_eq(&current.remote, &self.remote) => {
                current.tasks.wake(self.task);
                true
            }
            _ => false,
        });
        if is_here != Ok(true) {
            self.remote.push(self.task);
        }
    }
}
