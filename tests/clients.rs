//! Compares the lab's load client with ab, wrk, and oha, which takes minutes to build. A part of `make
//! truth`, which runs one test at a time because the tests compare times.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

mod clients {
    mod bodies;
    mod percentiles;
}
