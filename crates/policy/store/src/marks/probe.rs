//! The question for the only probe of a cluster, and its answer. One side waits for the answer, the other
//! gives it from another thread.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::MarkKey;

/// The answer to the question for a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// This gateway probes, and no other.
    Granted,
    /// Another gateway probes, or the mark holds again, for so long.
    Wait(Duration),
    /// The store cannot be asked: each gateway probes for itself.
    Alone,
}

/// The side that waits for the answer.
#[derive(Debug)]
pub struct ProbeTicket {
    owner: u64,
    cell: Arc<Mutex<Cell>>,
}

/// The side that answers. If it is dropped without an answer, the answer is [`ProbeAnswer::Alone`].
#[derive(Debug)]
pub struct ProbeQuestion {
    key: MarkKey,
    owner: u64,
    cell: Arc<Mutex<Cell>>,
}

#[derive(Debug, Default)]
struct Cell {
    answer: Option<ProbeAnswer>,
    waker: Option<Waker>,
}

impl ProbeQuestion {
    /// Creates a question and its ticket. `owner` must be unique in the cluster.
    pub fn new(key: MarkKey, owner: u64) -> (Self, ProbeTicket) {
        let cell = Arc::<Mutex<Cell>>::default();
        (Self { key, owner, cell: Arc::clone(&cell) }, ProbeTicket { owner, cell })
    }

    /// The mark that is probed.
    pub fn key(&self) -> MarkKey {
        self.key
    }

    /// A number for this question alone.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Answers, and wakes the task that waits. Only the first answer counts.
    pub fn answer(&self, answer: ProbeAnswer) {
        let waker = {
            let mut cell = self.cell.lock();
            cell.answer.get_or_insert(answer);
            cell.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for ProbeQuestion {
    fn drop(&mut self) {
        self.answer(ProbeAnswer::Alone);
    }
}

impl ProbeTicket {
    /// The number of the question.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Returns the answer, or stores the waker.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<ProbeAnswer> {
        let mut cell = self.cell.lock();
        if let Some(answer) = cell.answer {
            return Poll::Ready(answer);
        }
        cell.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_answer_wakes_who_waits_and_a_lost_question_is_answered_too() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        let key = MarkKey { scope: 1, name: 2 };
        let (question, ticket) = ProbeQuestion::new(key, 7);
        assert_eq!((question.owner(), ticket.owner()), (7, 7));
        assert_eq!(ticket.poll(&cx), Poll::Pending);
        question.answer(ProbeAnswer::Granted);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        drop(question);
        assert_eq!(ticket.poll(&cx), Poll::Ready(ProbeAnswer::Granted));
        let (question, ticket) = ProbeQuestion::new(key, 8);
        drop(question);
        assert_eq!(ticket.poll(&cx), Poll::Ready(ProbeAnswer::Alone));
    }
}
