//! A bounded queue between two threads with the guarantees of `rtrb`, and no others: a push releases its
//! value, and a pop releases its place.

use loom::sync::Arc;
use loom::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

#[derive(Debug)]
struct Queue {
    places: Vec<AtomicU64>,
    /// Number of values popped, and pushed.
    head: AtomicU64,
    tail: AtomicU64,
}

/// The end that pushes.
#[derive(Debug)]
pub struct Producer(Arc<Queue>);

/// The end that pops.
#[derive(Debug)]
pub struct Consumer(Arc<Queue>);

/// Creates a queue with this number of places.
pub fn queue(places: usize) -> (Producer, Consumer) {
    let places = (0..places).map(|_| AtomicU64::new(0)).collect();
    let queue = Arc::new(Queue { places, head: AtomicU64::new(0), tail: AtomicU64::new(0) });
    (Producer(Arc::clone(&queue)), Consumer(queue))
}

impl Queue {
    fn place(&self, number: u64) -> &AtomicU64 {
        &self.places[number as usize % self.places.len()]
    }
}

impl Producer {
    /// Returns `false` if no place is known to be free.
    pub fn push(&mut self, value: u64) -> bool {
        let Queue { places, head, tail } = &*self.0;
        let end = tail.load(Relaxed);
        if end - head.load(Acquire) == places.len() as u64 {
            return false;
        }
        self.0.place(end).store(value, Relaxed);
        tail.store(end + 1, Release);
        true
    }
}

impl Consumer {
    pub fn pop(&mut self) -> Option<u64> {
        let Queue { head, tail, .. } = &*self.0;
        let first = head.load(Relaxed);
        if first == tail.load(Acquire) {
            return None;
        }
        let value = self.0.place(first).load(Relaxed);
        head.store(first + 1, Release);
        Some(value)
    }
}
