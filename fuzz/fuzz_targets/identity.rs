//! Fuzzes the ways to address and spell a call.
#![no_main]

use std::cell::RefCell;

#[path = "../../crates/gateway/gateway/tests/checks/mod.rs"]
mod checks;

thread_local! {
    static SUBJECT: RefCell<checks::Subject> = RefCell::default();
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    SUBJECT.with_borrow_mut(|subject| checks::identity(subject, bytes));
});
