//! The lab with its parts on several machines: network namespaces with an sshd in each. A separate suite,
//! `make test-ssh`, because it needs root, for the namespaces, and OpenSSH's server.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

mod ssh {
    mod namespaces;
    mod several_machines;
}
