//! Scenarios on several machines: network namespaces. A separate suite, `make test-machines`, because it
//! needs root for the namespaces, OpenSSH's server, and proxies of other projects.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

mod machines {
    mod behind_a_proxy;
    mod company;
    mod namespaces;
    mod several_machines;
}
