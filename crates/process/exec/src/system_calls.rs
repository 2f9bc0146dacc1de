//! The system calls that an isolated command cannot make, because they lead out of its network namespace.
//!
//! A network namespace separates the Internet's protocols and a few others. Sockets of some families, such as
//! those between a virtual machine and its host (vsock(7)), know no namespaces. So only families remain that
//! do, or that name files. `io_uring` makes sockets without a call that a filter could judge.

use std::collections::BTreeMap;
use std::io;

use nix::libc::{
    SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup, SYS_socket, SYS_socketpair, c_long,
};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// The families of sockets that remain.
const FAMILIES: [AddressFamily; 4] =
    [AddressFamily::UNIX, AddressFamily::INET, AddressFamily::INET6, AddressFamily::NETLINK];

/// The calls that make sockets of a family, which is their first argument.
const SOCKETS: [c_long; 2] = [SYS_socket, SYS_socketpair];

/// The calls of `io_uring(7)`. Programs that use it do without it where it is missing.
const URING: [c_long; 3] = [SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register];

/// The bit in the number of a call of the ABI x32, which the kernel does not tell from that of `x86_64`.
const X32: c_long = 0x4000_0000;

/// Forbids the calls to this process, which must have one thread, and to the command that it becomes. A
/// program of another architecture, 32 bits on a system of 64 for instance, is ended at its first call.
pub fn forbid() -> io::Result<()> {
    let family = |family: AddressFamily| {
        let other = SeccompCmpOp::Ne;
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, other, u64::from(family.as_raw()))
    };
    let conditions = FAMILIES.into_iter().map(family).collect::<Result<_, _>>().map_err(io::Error::other)?;
    let other_family = SeccompRule::new(conditions).map_err(io::Error::other)?;
    for (calls, rules, error) in [
        (&SOCKETS[..], vec![other_family], Errno::AFNOSUPPORT),
        // Without a rule, the call is refused whatever its arguments are.
        (&URING[..], Vec::new(), Errno::NOSYS),
    ] {
        let filter = filter(calls, &rules, error).map_err(io::Error::other)?;
        apply_filter(&filter).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Returns the program of a filter that refuses these calls with an error.
fn filter(calls: &[c_long], rules: &[SeccompRule], error: Errno) -> Result<BpfProgram, BackendError> {
    let numbers = calls.iter().flat_map(|call| {
        let x32 = cfg!(target_arch = "x86_64").then_some(call | X32);
        [*call].into_iter().chain(x32)
    });
    let rules: BTreeMap<i64, Vec<SeccompRule>> = numbers.map(|call| (call, rules.to_vec())).collect();
    let refuse = SeccompAction::Errno(error.raw_os_error().unsigned_abs());
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()
}

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::*;

    /// Returns the errors of these calls on a thread of its own, once they are forbidden.
    fn errors(calls: impl FnOnce() -> Vec<Option<i32>> + Send + 'static) -> Vec<Option<i32>> {
        let forbidden = move || {
            forbid().unwrap();
            calls()
        };
        std::thread::spawn(forbidden).join().unwrap()
    }

    #[test]
    fn sockets_of_other_families_are_refused() {
        let family = |family: u16| {
            let (family, kind) = (AddressFamily::from_raw(family), rustix::net::SocketType::DGRAM);
            rustix::net::socket(family, kind, None).err().map(Errno::raw_os_error)
        };
        let seen = errors(move || [1, 2, 10, 16, 17, 38, 40].map(family).to_vec());
        assert_eq!(seen[..2], [None, None], "UNIX and INET");
        assert_ne!(seen[3], Some(libc::EAFNOSUPPORT), "NETLINK");
        assert_eq!(seen[4..], [Some(libc::EAFNOSUPPORT); 3], "PACKET, ALG and VSOCK");
    }
}
