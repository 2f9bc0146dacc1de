//! The list of recent exchanges, bounded in number and in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::record::RecordedExchange;

/// A recorded exchange.
#[derive(Debug)]
pub(crate) struct TrafficEntry {
    /// Its number, one more than that of the entry before it.
    pub id: u64,
    /// Its line for readers: a JSON object without secrets.
    pub line: Box<[u8]>,
    /// The status that the client received; 0 if it received none.
    pub status: u16,
    /// Time that the client waited.
    pub duration_us: u64,
    /// The exchange as it was recorded, without the secrets of accounts. It is shown only by the rules of the
    /// config.
    pub exchange: RecordedExchange,
    /// The exchange with those secrets, if it has any, to be sent again. It is never shown.
    pub received: Option<Box<RecordedExchange>>,
    /// The kind of the failure, if the list keeps the last one of each kind.
    pub kind: Option<Box<str>>,
}

impl TrafficEntry {
    /// Number of bytes that the entry occupies.
    pub(crate) fn bytes(&self) -> usize {
        let received = self
            .received
            .as_ref()
            .map_or(0, |received| size_of::<RecordedExchange>() + received.allocated_bytes());
        size_of::<Self>() + self.line.len() + self.exchange.allocated_bytes() + received
    }
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct List {
    entries: VecDeque<Arc<TrafficEntry>>,
    /// Entries that had to make room, and are the last of their kind. The oldest first.
    last_of_kind: VecDeque<Arc<TrafficEntry>>,
    bytes: usize,
    next_id: u64,
}

impl List {
    /// Number of the next entry. Numbers start with 1.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id + 1
    }

    /// Number of the oldest entry that is kept, or of the next one.
    pub(crate) fn first_id(&self) -> u64 {
        self.entries.front().map_or(self.next_id(), |entry| entry.id)
    }

    /// Number of entries, and the bytes that they occupy.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.entries.len() + self.last_of_kind.len(), self.bytes)
    }

    /// Adds an entry with the number [`next_id`](Self::next_id). The oldest ones make room for it, so there
    /// are at most `entries_max` with at most `bytes_max`. An entry that is larger than that is left out. The
    /// last entry of each kind stays as long as they all take at most half of `bytes_max`.
    pub(crate) fn add(&mut self, entry: TrafficEntry, entries_max: usize, bytes_max: usize) {
        self.next_id += 1;
        self.bytes += entry.bytes();
        self.entries.push_back(Arc::new(entry));
        while self.entries.len() > entries_max || self.bytes > bytes_max {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.keep_last_of_kind(oldest, entries_max, bytes_max);
        }
    }

    /// Keeps an entry that made room, if no later one is of its kind.
    fn keep_last_of_kind(&mut self, entry: Arc<TrafficEntry>, kinds_max: usize, bytes_max: usize) {
        if entry.kind.is_none() || self.entries.iter().any(|later| later.kind == entry.kind) {
            return;
        }
        self.last_of_kind.retain(|earlier| earlier.kind != entry.kind);
        self.last_of_kind.push_back(entry);
        let bytes =
            |kept: &VecDeque<Arc<TrafficEntry>>| kept.iter().map(|entry| entry.bytes()).sum::<usize>();
        while self.last_of_kind.len() > kinds_max || bytes(&self.last_of_kind) > bytes_max / 2 {
            self.last_of_kind.pop_front();
        }
    }

    /// Removes all entries. Numbers go on.
    pub(crate) fn clear(&mut self) {
        self.entries = VecDeque::new();
        self.last_of_kind = VecDeque::new();
        self.bytes = 0;
    }

    /// Returns the entry with this number.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<TrafficEntry>> {
        let Some(at) = id.checked_sub(self.first_id()) else {
            return self.last_of_kind.iter().find(|entry| entry.id == id).map(Arc::clone);
        };
        self.entries.get(usize::try_from(at).ok()?).map(Arc::clone)
    }

    /// Returns at most `max` entries from the number `from` on.
    pub(crate) fn from(&self, from: u64, max: usize) -> Vec<Arc<TrafficEntry>> {
        let skipped = usize::try_from(from.saturating_sub(self.first_id())).unwrap_or(usize::MAX);
        self.entries.iter().skip(skipped).take(max).map(Arc::clone).collect()
    }

    /// Returns at most `max` entries before the number `before`, the newest first.
    pub(crate) fn before(&self, before: u64, max: usize) -> Vec<Arc<TrafficEntry>> {
        let all = self.last_of_kind.iter().chain(&self.entries);
        let newest_first = all.rev().skip_while(|entry| entry.id >= before);
        newest_first.take(max).map(Arc::clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(list: &List, len: usize) -> TrafficEntry {
        let (id, line) = (list.next_id(), vec![b'x'; len].into());
        TrafficEntry {
            id,
            line,
            status: 200,
            duration_us: 1,
            exchange: RecordedExchange::default(),
            received: None,
            kind: None,
        }
    }

    fn ids(entries: &[Arc<TrafficEntry>]) -> Vec<u64> {
        entries.iter().map(|entry| entry.id).collect()
    }

    #[test]
    fn the_oldest_entries_make_room_by_number_and_by_memory() {
        let mut list = List::default();
        for _ in 0..5 {
            list.add(entry(&list, 10), 3, usize::MAX);
        }
        assert_eq!((ids(&list.from(0, 9)), list.first_id(), list.next_id()), (vec![3, 4, 5], 3, 6));
        let one = size_of::<TrafficEntry>() + 10;
        assert_eq!(list.size(), (3, 3 * one));
        list.add(entry(&list, 10), 9, 2 * one);
        assert_eq!((ids(&list.from(6, 9)), list.size()), (vec![6], (2, 2 * one)));
        list.add(entry(&list, 2 * one), 9, 2 * one);
        assert_eq!((list.size(), list.first_id(), list.next_id()), ((0, 0), 8, 8));
    }

    #[test]
    fn the_last_entry_of_each_kind_stays() {
        let filled = |bytes_max| {
            let mut list = List::default();
            for kind in ["a", "b", "a", "c", "c", "c", "c"] {
                let entry = TrafficEntry { kind: Some(kind.into()), ..entry(&list, 1) };
                list.add(entry, 2, bytes_max);
            }
            list
        };
        let list = filled(usize::MAX);
        assert_eq!(ids(&list.before(u64::MAX, 9)), [7, 6, 3, 2]);
        assert_eq!((list.size().0, list.get(2).unwrap().id, list.get(1).is_none()), (4, 2, true));
        let small = filled(3 * (size_of::<TrafficEntry>() + 1));
        assert_eq!(ids(&small.before(u64::MAX, 9)), [7, 6, 3], "they take at most half of the memory");
    }

    #[test]
    fn entries_are_found_by_their_numbers() {
        let mut list = List::default();
        for _ in 0..6 {
            list.add(entry(&list, 1), 4, usize::MAX);
        }
        assert_eq!((list.get(2).is_none(), list.get(3).unwrap().id, list.get(7).is_none()), (true, 3, true));
        assert_eq!((ids(&list.from(4, 2)), ids(&list.from(9, 2))), (vec![4, 5], vec![]));
        assert_eq!((ids(&list.before(6, 2)), ids(&list.before(99, 9))), (vec![5, 4], vec![6, 5, 4, 3]));
        list.clear();
        assert_eq!((list.size(), list.next_id(), list.get(6).is_none()), ((0, 0), 7, true));
    }
}
