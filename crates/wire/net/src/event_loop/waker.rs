//! The wakers of tasks: they queue a task of the same thread directly, and others through its loop's list.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::current::CURRENT;
use super::remote::Remote;
use super::tasks::TaskId;

/// Returns the waker of a task of the loop that has `remote`.
pub(super) fn waker(task: TaskId, remote: Arc<Remote>) -> Waker {
    Arc::new(TaskWaker { task, remote }).into()
}

/// The waker of a task, for code that does not know the loop.
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
