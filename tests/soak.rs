//! A gateway with everything armed, under mixed traffic for minutes or hours: its memory, descriptors,
//! threads and latency stay flat. A separate suite, `make soak`, because it takes long.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

mod soak {
    mod calls;
    mod chart;
    mod connections;
    mod descriptors;
    mod figures;
    mod gateway;
    mod load;
    mod readers;
    mod run;
    mod verdict;
}
