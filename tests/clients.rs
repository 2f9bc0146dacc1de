//! The lab's load client beside others: ab, wrk, and oha, which takes minutes to build. A suite of its own, `make test-clients`, which
//! runs one test at a time, since they compare times.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so and stops")]

mod clients {
    mod bodies;
    mod percentiles;
}
