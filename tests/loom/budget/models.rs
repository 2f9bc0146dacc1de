//! Models of the budget.

use std::sync::Arc;

use loom::thread;

use super::budget::{Budget, Share};

const MAX: usize = 10;

fn budget() -> Arc<Budget> {
    let budget = Arc::new(Budget::default());
    budget.set_max(MAX);
    budget
}

/// Another one, which is far too large, may ask at the same time.
pub fn a_body_that_fits_gets_its_memory() {
    let budget = budget();
    let other = Arc::clone(&budget);
    let thread = thread::spawn(move || assert!(Share::default().cover(&other, usize::MAX).is_err()));
    let mut share = Share::default();
    assert!(share.cover(&budget, MAX).is_ok(), "refused, although nothing is taken");
    thread.join().unwrap();
}

pub fn a_budget_is_not_exceeded() {
    let budget = budget();
    let threads = [7, 6].map(|bytes| {
        let budget = Arc::clone(&budget);
        thread::spawn(move || {
            let mut share = Share::default();
            let is_granted = share.cover(&budget, bytes).is_ok();
            assert!(!is_granted || budget.taken() <= MAX, "both of them have it");
            drop(share);
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(budget.taken(), 0);
}
