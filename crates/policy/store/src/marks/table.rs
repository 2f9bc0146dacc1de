//! The marks that a gateway knows: its own and those of others, merged. Two tables that were told the same,
//! in whatever order, have the same marks.

use std::collections::{HashMap, VecDeque};

use super::{Mark, MarkKey, MarkNews};

/// Maximum number of marks, here and in the store. Without room, a mark is neither told to others nor to
/// parts that begin later.
const MARKS_MAX: usize = 2_000;
/// A later end is only told if it is later by more than this. Otherwise each way to another gateway and back,
/// which takes time, would move the end.
const SLACK_MS: u64 = 100;
/// Time for which a mark is remembered after its end, so that late news of it change nothing.
const AFTER_MS: u64 = 60_000;

/// A change to tell to the others.
pub type MarkChange = (MarkKey, MarkNews);

/// The marks that a gateway knows. Times are in milliseconds by a clock that does not stop while the machine
/// is suspended.
#[derive(Debug, Default)]
pub struct MarkTable {
    facts: HashMap<MarkKey, Fact>,
    /// The marks that others have not been told about, in order.
    changed: VecDeque<MarkKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fact {
    until_ms: u64,
    /// A success ends the mark if its call began after this. Of a mark that was ended, the begin of that
    /// call.
    proof_ms: i64,
    note: u64,
    is_ended: bool,
    is_changed: bool,
}

impl MarkTable {
    /// Merges a mark. Returns `false` if nobody need be told.
    pub fn mark(&mut self, key: MarkKey, mark: Mark, now_ms: u64) -> bool {
        let Mark { left_ms, proof_ms, note } = mark.bounded();
        let until_ms = now_ms.saturating_add(left_ms);
        let proof_ms = now_ms.cast_signed().saturating_add(proof_ms);
        let new = Fact { until_ms, proof_ms, note, is_ended: false, is_changed: false };
        let Some(old) = self.facts.get_mut(&key) else {
            self.insert(key, new, now_ms);
            return true;
        };
        if old.is_ended && proof_ms < old.proof_ms {
            return false;
        }
        let is_later = until_ms > old.until_ms.saturating_add(SLACK_MS);
        if !is_later && !old.is_ended {
            old.proof_ms = proof_ms.max(old.proof_ms);
            return false;
        }
        *old = Fact { proof_ms: proof_ms.max(old.proof_ms), is_changed: old.is_changed, ..new };
        true
    }

    /// Ends a mark by the success of a call that began so long ago. Returns `false` if that proves nothing,
    /// or is known.
    pub fn end(&mut self, key: MarkKey, began_ago_ms: u64, now_ms: u64) -> bool {
        let began_ms = now_ms.cast_signed().saturating_sub_unsigned(began_ago_ms);
        let new = Fact { until_ms: now_ms, proof_ms: began_ms, note: 0, is_ended: true, is_changed: false };
        let Some(old) = self.facts.get_mut(&key) else {
            self.insert(key, new, now_ms);
            return true;
        };
        if began_ms <= old.proof_ms {
            return false;
        }
        let is_news = !old.is_ended;
        *old = Fact { until_ms: old.until_ms, is_changed: old.is_changed, ..new };
        is_news
    }

    /// Merges news from another gateway. Returns `false` if the holders need not be told.
    pub fn told(&mut self, key: MarkKey, news: MarkNews, now_ms: u64) -> bool {
        match news {
            MarkNews::Marked(mark) => self.mark(key, mark, now_ms),
            MarkNews::Ended(began_ago_ms) => self.end(key, began_ago_ms, now_ms),
            MarkNews::Freed => true,
        }
    }

    /// Notes that the others are to be told about a mark.
    pub fn tell(&mut self, key: MarkKey) {
        let Some(fact) = self.facts.get_mut(&key) else { return };
        if !std::mem::replace(&mut fact.is_changed, true) {
            self.changed.push_back(key);
        }
    }

    /// Notes that the others are to be told about all marks: the store may have lost them.
    pub fn tell_all(&mut self, now_ms: u64) {
        self.sweep(now_ms);
        let keys: Vec<MarkKey> = self.facts.keys().copied().collect();
        for key in keys {
            self.tell(key);
        }
    }

    /// Returns at most so many of the changes that others are to be told about, which they then count as.
    pub fn take_changes(&mut self, max: usize, now_ms: u64) -> Vec<MarkChange> {
        let mut changes = Vec::new();
        while changes.len() < max
            && let Some(key) = self.changed.pop_front()
        {
            let Some(fact) = self.facts.get_mut(&key) else { continue };
            fact.is_changed = false;
            changes.extend(fact.news(now_ms).map(|news| (key, news)));
        }
        changes
    }

    /// The marks of a scope that hold.
    pub fn of_scope(&self, scope: u128, now_ms: u64) -> impl Iterator<Item = (u128, Mark)> {
        self.facts.iter().filter(move |(key, _)| key.scope == scope).filter_map(move |(key, fact)| match fact
            .news(now_ms)?
        {
            MarkNews::Marked(mark) => Some((key.name, mark)),
            MarkNews::Ended(_) | MarkNews::Freed => None,
        })
    }

    fn insert(&mut self, key: MarkKey, fact: Fact, now_ms: u64) {
        if self.facts.len() >= MARKS_MAX {
            self.sweep(now_ms);
        }
        if self.facts.len() < MARKS_MAX {
            self.facts.insert(key, fact);
        }
    }

    fn sweep(&mut self, now_ms: u64) {
        self.facts.retain(|_, fact| fact.until_ms.saturating_add(AFTER_MS) > now_ms);
    }
}

impl Fact {
    /// The fact as seen now; `None` if it is a mark that is over.
    fn news(&self, now_ms: u64) -> Option<MarkNews> {
        let proof_ms = self.proof_ms.saturating_sub_unsigned(now_ms);
        if self.is_ended {
            return Some(MarkNews::Ended(proof_ms.min(0).unsigned_abs()));
        }
        let left_ms = self.until_ms.saturating_sub(now_ms);
        (left_ms > 0).then_some(MarkNews::Marked(Mark { left_ms, proof_ms, note: self.note }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: MarkKey = MarkKey { scope: 7, name: 1 };
    const NOW: u64 = 1_000_000;

    fn throttle(left_ms: u64) -> Mark {
        Mark { left_ms, proof_ms: left_ms.cast_signed(), note: 0 }
    }

    fn known(table: &MarkTable, now_ms: u64) -> Option<Mark> {
        table.of_scope(KEY.scope, now_ms).next().map(|(_, mark)| mark)
    }

    #[test]
    fn an_end_only_moves_later_and_by_more_than_the_way_takes() {
        let mut table = MarkTable::default();
        assert!(table.mark(KEY, throttle(5_000), NOW));
        for (left_ms, is_later) in [(1_000, false), (5_000, false), (5_100, false), (5_101, true)] {
            assert_eq!(table.mark(KEY, throttle(left_ms), NOW), is_later, "{left_ms}");
        }
        assert_eq!(known(&table, NOW + 101), Some(throttle(5_000)));
        assert_eq!(known(&table, NOW + 5_101), None);
    }

    #[test]
    fn only_a_call_that_began_after_the_pause_ends_it() {
        let mut table = MarkTable::default();
        table.mark(KEY, throttle(5_000), NOW);
        assert!(!table.end(KEY, 10, NOW + 4_000));
        assert!(!table.end(KEY, 2_000, NOW + 6_000));
        assert!(table.end(KEY, 500, NOW + 6_000));
        assert!(!table.end(KEY, 400, NOW + 6_000), "it is known");
    }

    #[test]
    fn news_of_a_mark_that_was_ended_come_too_late() {
        let mut table = MarkTable::default();
        let refused = Mark { left_ms: 30_000, proof_ms: 0, note: 401 };
        table.mark(KEY, refused, NOW);
        assert!(table.end(KEY, 100, NOW + 2_000));
        assert_eq!(known(&table, NOW + 2_000), None);
        let same = Mark { left_ms: 28_000, proof_ms: -2_000, ..refused };
        assert!(!table.mark(KEY, same, NOW + 2_000));
        assert!(table.mark(KEY, refused, NOW + 3_000), "it was refused again");
        assert_eq!(known(&table, NOW + 3_000), Some(refused));
    }

    #[test]
    fn others_get_each_state_once_and_all_after_loss() {
        let mut table = MarkTable::default();
        for left_ms in [1_000, 5_000, 9_000] {
            table.mark(KEY, throttle(left_ms), NOW);
            table.tell(KEY);
        }
        let told = |left_ms| vec![(KEY, MarkNews::Marked(throttle(left_ms)))];
        assert_eq!(table.take_changes(10, NOW), told(9_000));
        assert_eq!(table.take_changes(10, NOW), []);
        table.tell_all(NOW + 1_000);
        assert_eq!(table.take_changes(10, NOW + 1_000), told(8_000));
        table.tell_all(NOW + 9_500);
        assert_eq!(table.take_changes(10, NOW + 9_500), [], "it is over");
        table.end(KEY, 20, NOW + 9_600);
        table.tell_all(NOW + 9_700);
        assert_eq!(table.take_changes(10, NOW + 9_700), [(KEY, MarkNews::Ended(120))]);
        table.tell_all(NOW + 80_000);
        assert_eq!(table.take_changes(10, NOW + 80_000), []);
    }

    #[test]
    fn a_full_table_keeps_what_it_has_until_that_is_over() {
        let mut table = MarkTable::default();
        let key = |name| MarkKey { name, ..KEY };
        for name in 0..MARKS_MAX as u128 {
            assert!(table.mark(key(name), throttle(1_000), NOW));
        }
        let other = key(u128::MAX);
        assert!(table.mark(other, throttle(1_000), NOW), "the holders act on it");
        assert_eq!(table.of_scope(KEY.scope, NOW).count(), MARKS_MAX);
        assert!(table.mark(other, throttle(1_000), NOW + 70_000));
        assert_eq!(table.of_scope(KEY.scope, NOW + 70_000).count(), 1);
    }

    proptest! {
        #[test]
        fn the_order_of_news_does_not_matter(
            refusals in prop::collection::vec((1_u64..600, -500_i64..0), 1..5),
            successes in prop::collection::vec(1_u64..500, 0..3),
        ) {
            let refusals = refusals.into_iter().map(|(seconds, proof_ms)| {
                MarkNews::Marked(Mark { left_ms: seconds * 1_000, proof_ms, note: seconds })
            });
            let mut news: Vec<MarkNews> = refusals.chain(successes.into_iter().map(MarkNews::Ended)).collect();
            let merged = |news: &[MarkNews]| {
                let mut table = MarkTable::default();
                for each in news {
                    table.told(KEY, *each, NOW);
                }
                known(&table, NOW).is_some()
            };
            let forwards = merged(&news);
            news.reverse();
            prop_assert_eq!(merged(&news), forwards);
        }
    }
}
