//! Three gateways that share quotas, their store, providers and clients, on machines of their own, through
//! faults of every kind that a seed draws. A separate suite, `make chaos`, because it needs root for its
//! network namespaces, and lasts as long as it is told.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

mod chaos {
    mod callers;
    mod faults;
    mod gateways;
    mod judge;
    mod lateness;
    mod ledger;
    mod network;
    mod plan;
    mod providers;
    mod run;
    mod store;
    mod world;
}
