//! Quotas that gateways share over Redis or Valkey, from end to end: eight gateways, real stores, and a
//! provider that counts. A separate suite, `make test-cluster`, because it takes minutes: leases, and what is
//! learnt after a loss, last for seconds. The scenarios print their figures.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

mod cluster {
    mod alerts;
    mod away;
    mod changing_demand;
    mod costs;
    mod failovers;
    mod long_windows;
    mod member_faults;
    mod money;
    mod page_card;
    mod purges;
    mod secrets;
    mod steady;
    mod steps_of_the_cluster;
    mod store_faults;
    mod streams;
    mod threads;
    mod throttles;
    mod tokens;
    mod topologies;
}
