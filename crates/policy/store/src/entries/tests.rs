//! Tests of bodies, limits, eviction and purges, and of a model that forgets nothing.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Note(Vec<u8>);

impl StoredValue for Note {
    type Context = ();

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.len()
    }

    fn label(&self) -> &[u8] {
        &self.0
    }

    fn save(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn load(saved: &[u8], (): &()) -> Option<Self> {
        Some(Self(saved.to_vec()))
    }
}

const NOW: Timestamp = Timestamp::from_secs(1);

fn key(id: u128) -> EntryKey {
    EntryKey { id, group: id / 4 }
}

fn store(bytes: u64, body_bytes: u64) -> Arc<Entries<Note>> {
    Entries::new(EntryLimits { bytes, body_bytes, variants: 3 })
}

fn begin(entries: &Arc<Entries<Note>>, id: u128, expected: Option<u64>) -> Result<BodyWriter<Note>, Full> {
    let tags: Arc<[Box<str>]> = [Box::from(format!("t{}", id % 2))].into();
    entries.begin(key(id), Note(format!("/{id}/").into()), &tags, expected, NOW)
}

fn put(entries: &Arc<Entries<Note>>, id: u128, body: &[u8]) -> Arc<StoredEntry<Note>> {
    let mut filling = begin(entries, id, Some(body.len() as u64)).unwrap();
    filling.push(body).unwrap();
    filling.finish()
}

fn find(entries: &Entries<Note>, id: u128) -> Vec<Arc<StoredEntry<Note>>> {
    let mut found = Vec::new();
    entries.find(key(id), &mut found);
    found
}

fn whole(entry: &StoredEntry<Note>) -> Vec<u8> {
    entry.body.blocks().unwrap().concat()
}

fn next(entry: &StoredEntry<Note>, read: u64) -> Poll<Next> {
    entry.body.poll_next(read, &mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_body_is_read_while_it_comes_and_its_readers_are_woken() {
    use std::sync::atomic::AtomicUsize;
    struct Count(AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let entries = store(1 << 20, 1 << 10);
    let mut filling = begin(&entries, 1, None).unwrap();
    let entry = find(&entries, 1).pop().unwrap();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    assert_eq!(entry.body.poll_next(0, &mut Context::from_waker(&waker)), Poll::Pending);
    filling.push(b"abc").unwrap();
    assert_eq!(count.0.load(Relaxed), 1);
    assert_eq!(next(&entry, 0), Poll::Ready(Next::Block((*b"abc").into())));
    assert_eq!(next(&entry, 2), Poll::Ready(Next::Block((*b"c").into())));
    assert_eq!(entry.body.poll_next(3, &mut Context::from_waker(&waker)), Poll::Pending);
    filling.push(b"de").unwrap();
    filling.finish();
    assert_eq!(count.0.load(Relaxed), 2);
    // It consists of other blocks now; a reader continues after the part that it has read.
    assert_eq!(next(&entry, 3), Poll::Ready(Next::Block((*b"de").into())));
    assert_eq!(next(&entry, 5), Poll::Ready(Next::End));
    assert_eq!(entry.body.slices(1, 4).collect::<Vec<_>>().concat(), b"bcd");
    assert_eq!((entry.body.len(), entry.body.is_broken()), (Some(5), false));
}

#[test]
fn a_body_that_breaks_off_is_gone_and_its_readers_learn_it() {
    let entries = store(1 << 20, 1 << 10);
    let mut filling = begin(&entries, 1, None).unwrap();
    filling.push(b"abc").unwrap();
    let entry = find(&entries, 1).pop().unwrap();
    drop(filling);
    assert!(find(&entries, 1).is_empty());
    assert_eq!(next(&entry, 3), Poll::Ready(Next::Broken));
    assert!(entry.body.is_broken() && entry.body.len().is_none());
    assert_eq!((entries.stats().bytes, entries.stats().alive_bytes), (0, 3));
    drop(entry);
    assert_eq!(entries.stats().alive_bytes, 0);
}

#[test]
fn readers_of_a_body_too_large_get_the_rest() {
    let entries = store(1 << 20, 1 << 10);
    let mut filling = begin(&entries, 1, None).unwrap();
    filling.push(&[1; 1_000]).unwrap();
    let entry = find(&entries, 1).pop().unwrap();
    assert!(entry.body.poll_ended(&Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(filling.push(&[2; 100]), Err(Full::TooLarge));
    let mut relay = filling.give_up(&[2; 100]);
    assert!(find(&entries, 1).is_empty());
    assert_eq!(next(&entry, 1_000), Poll::Ready(Next::Block([2; 100].into())));
    assert_eq!(next(&entry, 1_100), Poll::Pending);
    assert!(entry.body.poll_ended(&Context::from_waker(Waker::noop())).is_ready());
    assert!(entry.body.lacks_room() && !entry.body.is_broken() && relay.has_readers(0));
    relay.push(&[3; 10]);
    assert_eq!(next(&entry, 1_100), Poll::Ready(Next::Block([3; 10].into())));
    drop(relay);
    assert_eq!(next(&entry, 1_110), Poll::Ready(Next::Broken));
    let entry = {
        let mut filling = begin(&entries, 1, None).unwrap();
        filling.push(&[1; 1_000]).unwrap();
        let entry = find(&entries, 1).pop().unwrap();
        drop(filling.give_up(&[2; 100]));
        entry
    };
    assert_eq!(entry.body.received(), 1_100);
    assert_eq!(next(&entry, 1_099), Poll::Ready(Next::Block([2].into())));
    assert_eq!(next(&entry, 1_100), Poll::Ready(Next::Broken));
    assert!(entry.body.is_broken() && entry.body.lacks_room() && entry.body.len().is_none());
    assert!(entry.body.poll_ended(&Context::from_waker(Waker::noop())).is_ready());
    drop(begin(&entries, 2, None).unwrap());
    assert_eq!(entries.stats().bytes, 0);
}

#[test]
fn a_body_without_room_is_forwarded_in_bounded_memory() {
    let entries = store(1 << 20, 1 << 10);
    let mut filling = begin(&entries, 1, None).unwrap();
    filling.push(&[0; 1_000]).unwrap();
    let entry = find(&entries, 1).pop().unwrap();
    let mut relay = filling.give_up(&[0; 1_000]);
    let mut read = 2_000;
    for number in 1..2_000_u64 {
        let block = [number.to_le_bytes()[0]; 1_000];
        relay.push(&block);
        assert_eq!(next(&entry, read), Poll::Ready(Next::Block(block.into())));
        read += 1_000;
        assert!(entries.stats().alive_bytes <= 1_400 << 10, "{}", entries.stats().alive_bytes);
    }
    relay.finish();
    assert_eq!(next(&entry, read), Poll::Ready(Next::End));
    assert_eq!(next(&entry, 0), Poll::Ready(Next::Broken), "it is too far behind");
    assert!(entry.body.is_broken());
    drop(entry);
    assert_eq!(entries.stats().alive_bytes, 0);
}

#[test]
fn evicted_entries_being_read_are_bounded() {
    const BODY: u64 = 1_000;
    let entries = store(20_000, BODY);
    let body = vec![1; 1_000];
    let mut readers = Vec::new();
    let refused = (0..1_000).find_map(|id| {
        let mut filling = begin(&entries, id, None).unwrap();
        let full = filling.push(&body).err();
        readers.push(Arc::clone(filling.entry()));
        if full.is_none() {
            filling.finish();
        }
        full
    });
    assert_eq!(refused, Some(Full::NoRoom));
    let alive = entries.stats().alive_bytes;
    assert!((39_000..=40_000).contains(&alive), "{alive}");
    assert_eq!(begin(&entries, 5_000, Some(BODY)).err(), Some(Full::NoRoom));
    readers.clear();
    put(&entries, 5_000, &body);
}

#[test]
fn a_reader_of_an_evicted_entry_continues() {
    let entries = store(8_000, 1_000);
    let first = put(&entries, 0, &[7; 1_000]);
    for id in 1..20 {
        put(&entries, id, &[1; 1_000]);
    }
    assert!(find(&entries, 0).is_empty() && entries.stats().evicted > 10);
    assert_eq!(whole(&first), [7; 1_000]);
    assert!(entries.stats().alive_bytes > 1_000);
}

#[test]
fn used_entries_stay_and_unused_ones_are_evicted() {
    let entries = store(64_000, 1_000);
    put(&entries, 0, &[0; 1_000]);
    for id in 1..1_000 {
        for entry in &find(&entries, 0) {
            entry.touch();
        }
        put(&entries, id, &[1; 1_000]);
    }
    assert_eq!(find(&entries, 0).len(), 1, "it was used each time");
    assert!(find(&entries, 500).is_empty());
}

#[test]
fn a_flood_of_keys_stays_within_its_bytes() {
    let entries = store(1 << 20, 1 << 10);
    for id in 0..100_000 {
        put(&entries, id, b"");
    }
    let stats = entries.stats();
    assert!(stats.bytes <= 1 << 20 && stats.entries > 1_000, "{stats:?}");
    assert_eq!(stats.evicted, 100_000 - stats.entries as u64);
}

#[test]
fn a_body_too_large_is_refused() {
    let entries = store(10_000, 1_000);
    assert_eq!(begin(&entries, 1, Some(1_001)).unwrap_err(), Full::TooLarge);
    let mut filling = begin(&entries, 1, None).unwrap();
    filling.push(&[0; 900]).unwrap();
    assert_eq!(filling.push(&[0; 101]), Err(Full::TooLarge));
    drop(filling);
    assert_eq!(entries.stats().bytes, 0);
    // Bodies that are still arriving are not evicted, so there may be no room.
    let coming: Vec<_> = (0..).map_while(|id| begin(&entries, id, Some(1_000)).ok()).collect();
    assert!(coming.len() > 3 && coming.len() < 10);
    assert_eq!(begin(&entries, 100, Some(1_000)).unwrap_err(), Full::NoRoom);
}

#[test]
fn entries_are_purged_by_group_prefix_and_tag() {
    let entries = store(1 << 24, 1 << 10);
    let fill = || (0..1_000).for_each(|id| drop(put(&entries, id, b"x")));
    fill();
    assert_eq!(entries.remove_group(5), 4);
    assert!(find(&entries, 21).is_empty() && !find(&entries, 24).is_empty());
    assert_eq!(entries.purge(Purge::Prefix(b"/99")), 11);
    assert_eq!(entries.purge(Purge::Tag("t1")), 492);
    assert!(find(&entries, 1).is_empty() && !find(&entries, 2).is_empty());
    assert!(entries.remove(&find(&entries, 2)[0]));
    entries.purge(Purge::All);
    assert_eq!((entries.stats().entries, entries.stats().bytes), (0, 0));
}

#[test]
fn an_update_keeps_the_body_of_a_present_entry() {
    let entries = store(1 << 20, 1 << 10);
    let entry = put(&entries, 1, b"body");
    let updated = entries.update(&entry, Note(b"/new".into()), NOW).unwrap();
    assert!(Arc::ptr_eq(&updated.body, &entry.body));
    assert_eq!(find(&entries, 1).iter().map(|entry| entry.value.0.clone()).collect::<Vec<_>>(), [b"/new"]);
    assert!(entries.update(&entry, Note(b"/late".into()), NOW).is_none());
    assert_eq!(entries.stats().bytes, bytes_of(&updated.value) + 4 + BLOCK_OVERHEAD as u64);
}

#[derive(Debug, Clone)]
enum Act {
    Put(u128, usize),
    Stream(u128, Vec<u8>, bool),
    Touch(u128),
    Update(u128),
    Remove(u128),
    Group(u128),
    Tag(u8),
}

fn act() -> impl Strategy<Value = Act> {
    let id = 0_u128..24;
    prop_oneof![
        4 => (id.clone(), 0_usize..1_200).prop_map(|(id, len)| Act::Put(id, len)),
        2 => (id.clone(), prop::collection::vec(0_u8..250, 0..6), any::<bool>()).prop_map(|(id, parts, ends)| Act::Stream(id, parts, ends)),
        2 => id.clone().prop_map(Act::Touch),
        1 => id.clone().prop_map(Act::Update),
        1 => id.clone().prop_map(Act::Remove),
        1 => (0_u128..6).prop_map(Act::Group),
        1 => (0_u8..2).prop_map(Act::Tag),
    ]
}

proptest! {
    /// Compared with a map that forgets nothing: the store may have less, never anything else, and never more
    /// than its limit.
    #[test]
    fn bounds_hold_and_no_key_finds_anothers_entry(acts in prop::collection::vec(act(), 1..120)) {
        let entries = store(12_000, 1_000);
        let mut model: HashMap<u128, Vec<Vec<u8>>> = HashMap::new();
        for (number, act) in acts.into_iter().enumerate() {
            let fill = u8::try_from(number).unwrap();
            match act {
                Act::Put(id, len) => match begin(&entries, id, Some(len as u64)) {
                    Ok(mut filling) => {
                        filling.push(&vec![fill; len]).unwrap();
                        filling.finish();
                        model.entry(id).or_default().push(vec![fill; len]);
                    }
                    Err(why) => prop_assert_eq!((why, len > 1_000), (Full::TooLarge, true)),
                },
                Act::Stream(id, parts, ends) => {
                    let mut filling = begin(&entries, id, None).unwrap();
                    let mut body = Vec::new();
                    let is_in = parts.iter().all(|len| {
                        body.extend(vec![fill; usize::from(*len)]);
                        filling.push(&vec![fill; usize::from(*len)]).is_ok()
                    });
                    if is_in && ends {
                        filling.finish();
                        model.entry(id).or_default().push(body);
                    }
                }
                Act::Touch(id) => {
                    for entry in &find(&entries, id) {
                        entry.touch();
                    }
                }
                Act::Update(id) => {
                    if let Some(entry) = find(&entries, id).first() {
                        entries.update(entry, Note(format!("/{id}/{number}").into()), NOW).unwrap();
                    }
                }
                Act::Remove(id) => {
                    assert!(find(&entries, id).iter().all(|entry| entries.remove(entry)));
                    model.remove(&id);
                }
                Act::Group(group) => {
                    entries.remove_group(group);
                    model.retain(|id, _| id / 4 != group);
                }
                Act::Tag(tag) => {
                    entries.purge(Purge::Tag(&format!("t{tag}")));
                    model.retain(|id, _| id % 2 != u128::from(tag));
                }
            }
            let stats = entries.stats();
            prop_assert!(stats.bytes <= 12_000, "{:?}", stats);
            let mut counted = (0, 0, 0);
            for id in 0..24 {
                let found = find(&entries, id);
                prop_assert!(found.len() <= 3);
                for entry in found {
                    prop_assert_eq!(entry.key, key(id));
                    let body = whole(&entry);
                    prop_assert!(model.get(&id).is_some_and(|bodies| bodies.contains(&body)));
                    let blocks = entry.body.blocks().unwrap().len();
                    let charge = charge_of(&entry, body.len() as u64, blocks);
                    counted = (counted.0 + 1, counted.1 + charge, counted.2 + body.len() as u64);
                }
            }
            prop_assert_eq!(counted, (stats.entries, stats.bytes, stats.alive_bytes));
        }
    }
}
