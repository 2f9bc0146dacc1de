//! Models of the hand-over of records.

use loom::sync::Arc;
use loom::thread;

use super::state::{RingState, StopFlag};
use crate::queue::{Consumer, Producer, queue};

const PLACES: u64 = 2;

/// A worker that hands over records, as `RecordSender` does. Returns the number of those that found a place.
fn hand_over(ring: &RingState, records: &mut Producer, count: u64) -> u64 {
    let mut handed_over = 0;
    for number in 0..count {
        if handed_over - ring.seen() < PLACES {
            assert!(records.push(number), "a record that was counted found no place in the queue");
            handed_over += 1;
        } else {
            ring.note_drop();
        }
    }
    handed_over
}

/// A look of the thread at the ring, as in `DiagnosisThread`. Returns the number of records found.
fn look(ring: &RingState, records: &mut Consumer) -> u64 {
    ring.begin_look();
    let mut found = 0;
    while records.pop().is_some() {
        found += 1;
    }
    ring.saw(found, found);
    found
}

pub fn a_record_with_a_place_is_pushed() {
    let (ring, (mut sender, mut receiver)) = (Arc::new(RingState::default()), queue(PLACES as usize));
    let seen = Arc::clone(&ring);
    let thread = thread::spawn(move || {
        look(&seen, &mut receiver);
        look(&seen, &mut receiver);
        receiver
    });
    let handed_over = hand_over(&ring, &mut sender, PLACES + 2);
    let mut receiver = thread.join().unwrap();
    look(&ring, &mut receiver);
    assert_eq!(ring.seen(), handed_over);
    assert_eq!(ring.seen_bytes(), handed_over);
}

pub fn records_before_a_stop_are_processed() {
    let (ring, stops) = (Arc::new(RingState::default()), Arc::new(StopFlag::default()));
    let (mut sender, mut receiver) = queue(PLACES as usize);
    let (seen, told) = (Arc::clone(&ring), Arc::clone(&stops));
    let diagnoses = thread::spawn(move || {
        loop {
            let stops = told.is_set();
            if look(&seen, &mut receiver) == 0 && stops {
                return;
            }
            thread::yield_now();
        }
    });
    let handing = Arc::clone(&ring);
    let worker = thread::spawn(move || hand_over(&handing, &mut sender, 1));
    // The workers have ended before the diagnoses are stopped.
    let handed_over = worker.join().unwrap();
    stops.set();
    diagnoses.join().unwrap();
    assert_eq!(ring.seen(), handed_over, "a record was lost");
}

/// The thread sleeps until it is woken. A worker wakes it for the first record since its last look.
pub fn an_urgent_ring_is_looked_at() {
    let (ring, (mut sender, mut receiver)) = (Arc::new(RingState::default()), queue(PLACES as usize));
    let seen = Arc::clone(&ring);
    let thread = thread::spawn(move || {
        let mut found = look(&seen, &mut receiver);
        while found < PLACES {
            thread::park();
            found += look(&seen, &mut receiver);
        }
    });
    for number in 0..PLACES {
        assert!(sender.push(number));
        if ring.becomes_urgent() {
            thread.thread().unpark();
        }
    }
    thread.join().unwrap();
}
