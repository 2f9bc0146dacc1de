//! The calls that wait for a place on a connection that many calls share.
//!
//! These hold at all times:
//!
//! - Calls are in the order of their numbers, which is that in which they began to wait. One that has to wait
//!   again is where it was.
//! - A call gets one answer, unless it has left.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::rc::Rc;

use egret_observe::failure::Failure;
use tokio::sync::oneshot;

/// Begins to open a connection, or says why there is no place for one.
pub(super) type Dial = Rc<dyn Fn() -> Result<(), Failure>>;

/// The place of a call, or the reason why it gets none.
pub(super) type Answer<T> = Result<T, Failure>;

/// A call that waits.
struct Waiting<T> {
    number: u64,
    dial: Dial,
    answer: oneshot::Sender<Answer<T>>,
}

/// The calls that wait.
pub(super) struct WaitingCalls<T> {
    /// Bounded by the number of exchanges. Some may have left.
    calls: VecDeque<Waiting<T>>,
    /// The number that was given out last.
    last_number: u64,
    /// The last call whose time is over, and its failure.
    overdue: Option<(u64, Failure)>,
}

impl<T> Default for WaitingCalls<T> {
    fn default() -> Self {
        Self { calls: VecDeque::new(), last_number: 0, overdue: None }
    }
}

impl<T> fmt::Debug for WaitingCalls<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingCalls").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl<T> WaitingCalls<T> {
    /// Returns a number for a call, which is above those before.
    pub fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Lets a call wait, before all with higher numbers.
    pub fn join(&mut self, number: u64, dial: Dial) -> oneshot::Receiver<Answer<T>> {
        let (answer, receiver) = oneshot::channel();
        let at = self.calls.partition_point(|call| call.number < number);
        self.calls.insert(at, Waiting { number, dial, answer });
        receiver
    }

    /// Returns `true` if no call waits. Otherwise the first one has not left.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        while self.calls.front().is_some_and(|call| call.answer.is_closed()) {
            self.calls.pop_front();
        }
        self.calls.is_empty()
    }

    /// Number of calls that wait.
    pub fn len(&mut self) -> usize {
        self.calls.retain(|call| !call.answer.is_closed());
        self.calls.len()
    }

    /// Returns the means by which the first call opens a connection.
    pub fn dial(&self) -> Option<Dial> {
        self.calls.front().map(|call| Rc::clone(&call.dial))
    }

    /// Gives a place to the first call. Returns it if no call waits.
    pub fn give(&mut self, place: T) -> Option<T> {
        let mut place = Ok(place);
        while let Some(first) = self.calls.pop_front() {
            match first.answer.send(place) {
                Ok(()) => return None,
                Err(unsent) => place = unsent,
            }
        }
        place.ok()
    }

    /// Gives every call that waits the same answer, which holds no place.
    pub fn give_all(&mut self, answer: impl Fn() -> Answer<T>) {
        Self::give_each(mem::take(&mut self.calls), answer);
    }

    /// Fails the calls behind the first `count`.
    pub fn fail_behind(&mut self, count: usize, failure: &Failure) {
        let kept = count.min(self.len());
        Self::give_each(self.calls.split_off(kept), || Err(failure.clone()));
    }

    /// Notes that the time of a call, and of those before it, is over.
    pub fn note_overdue(&mut self, number: u64, failure: Failure) {
        if self.overdue.as_ref().is_none_or(|(last, _)| *last < number) {
            self.overdue = Some((number, failure));
        }
    }

    /// Fails the calls whose time is over.
    pub fn fail_overdue(&mut self) {
        if let Some((number, failure)) = self.overdue.take() {
            let others = self.calls.split_off(self.calls.partition_point(|call| call.number <= number));
            Self::give_each(mem::replace(&mut self.calls, others), || Err(failure.clone()));
        }
    }

    /// Fails the calls whose time is over, because no connection could be opened.
    pub fn fail_overdue_by(&mut self, failure: &Failure) {
        if let Some((_, overdue)) = &mut self.overdue {
            *overdue = failure.clone();
        }
        self.fail_overdue();
    }

    fn give_each(calls: VecDeque<Waiting<T>>, answer: impl Fn() -> Answer<T>) {
        for call in calls {
            // It may have left.
            let _ = call.answer.send(answer());
        }
    }
}

#[cfg(test)]
mod tests {
    use egret_observe::failure::ErrorKind;

    use super::*;

    type Receiver = oneshot::Receiver<Answer<u32>>;

    fn wait(line: &mut WaitingCalls<u32>, number: u64) -> Receiver {
        line.join(number, Rc::new(|| Ok(())))
    }

    /// Lets calls wait that have the numbers from 1 on.
    fn line<const N: usize>() -> (WaitingCalls<u32>, [Receiver; N]) {
        let mut line = WaitingCalls::default();
        let calls = [(); N].map(|()| {
            let number = line.next_number();
            wait(&mut line, number)
        });
        (line, calls)
    }

    fn failure(kind: ErrorKind) -> Failure {
        Failure::new(kind, "no place")
    }

    /// The place that a call has got, its error, or `None` if it waits.
    fn answer(call: &mut Receiver) -> Option<Result<u32, ErrorKind>> {
        call.try_recv().ok().map(|answer| answer.map_err(|failure| failure.kind))
    }

    #[test]
    fn places_are_given_in_the_order_of_waiting() {
        let (mut line, [mut first, second, mut third]) = line();
        drop(second);
        assert_eq!((line.give(10), answer(&mut first), answer(&mut third)), (None, Some(Ok(10)), None));
        // The first has lost its place again, and another one comes.
        let mut again = wait(&mut line, 1);
        let number = line.next_number();
        let mut fourth = wait(&mut line, number);
        assert_eq!(line.len(), 3);
        for (place, call) in [(11, &mut again), (12, &mut third), (13, &mut fourth)] {
            assert_eq!((line.give(place), answer(call)), (None, Some(Ok(place))));
        }
        assert_eq!((line.is_empty(), line.give(14)), (true, Some(14)));
    }

    #[test]
    fn calls_that_have_left_do_not_count() {
        let (mut line, calls) = line::<3>();
        let [first, mut second, third] = calls;
        drop((first, third));
        assert!(!line.is_empty() && line.len() == 1 && line.dial().is_some());
        assert_eq!((line.give(1), answer(&mut second)), (None, Some(Ok(1))));
        assert!(line.is_empty() && line.dial().is_none());
    }

    #[test]
    fn calls_whose_time_is_over_fail_with_those_before() {
        let (mut line, mut calls) = line::<3>();
        line.fail_overdue();
        line.note_overdue(2, failure(ErrorKind::ConnectTimeout));
        line.note_overdue(1, failure(ErrorKind::PoolFull));
        assert_eq!(line.give(1), None);
        line.fail_overdue();
        let answers = calls.each_mut().map(answer);
        assert_eq!(answers, [Some(Ok(1)), Some(Err(ErrorKind::ConnectTimeout)), None]);
        line.fail_overdue();
        assert_eq!(line.len(), 1);
    }

    #[test]
    fn a_failed_dial_fails_the_last_calls() {
        let (mut line, mut calls) = line::<3>();
        line.fail_behind(1, &failure(ErrorKind::ConnectFailed));
        line.fail_behind(5, &failure(ErrorKind::TlsFailed));
        let failed = Some(Err(ErrorKind::ConnectFailed));
        assert_eq!(calls.each_mut().map(answer), [None, failed, failed]);
        line.give_all(|| Ok(7));
        assert_eq!((answer(&mut calls[0]), line.is_empty()), (Some(Ok(7)), true));
    }
}
