//! Fuzzes JSON Web Tokens of clients, and the documents of their issuer.
#![no_main]

use std::cell::RefCell;

#[path = "../../crates/policy/clients/tests/checks/mod.rs"]
mod checks;

thread_local! {
    static SUBJECT: RefCell<checks::Subject> = RefCell::default();
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    SUBJECT.with_borrow_mut(|subject| {
        checks::jwt(subject, bytes);
    });
});
