//! The two changes that a new network namespace needs: its loopback interface is up, and every address is its
//! own. Messages of rtnetlink(7).

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// The index of the loopback interface, the first one of every namespace.
const LOOPBACK: u32 = 1;

// Kinds of messages.
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWROUTE: u16 = 24;

// Flags of messages: a request, whose outcome is reported, and which may create something.
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;

/// Length of the header of a message.
const HEADER_BYTES: usize = 16;

/// The state of an interface: up.
const IFF_UP: u32 = 1;

// Fields of a route: in the table of local addresses, made by an administrator, on this host, to itself.
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
/// The attribute with the interface of a route.
const RTA_OIF: u16 = 4;

/// A connection to the network namespace of this process.
#[derive(Debug)]
pub struct Netlink(OwnedFd);

impl Netlink {
    /// Opens the connection.
    pub fn open() -> io::Result<Self> {
        // The protocol for routes and interfaces is number 0, the default (`NETLINK_ROUTE`).
        let protocol = None;
        Ok(Self(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?))
    }

    /// Starts the loopback interface.
    pub fn start_loopback(&self) -> io::Result<()> {
        self.request(RTM_NEWLINK, &link(IFF_UP))
    }

    /// Makes every address of a family one of this machine's own.
    pub fn make_every_address_local(&self, family: AddressFamily) -> io::Result<()> {
        self.request(RTM_NEWROUTE, &local_route(family))
    }

    /// Sends a request, and waits for its outcome.
    fn request(&self, kind: u16, body: &[u8]) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.0, &message(kind, body), SendFlags::empty(), &kernel)?;
        let mut reply = [0; 4096];
        let (_, length) = retry_on_intr(|| recv(&self.0, &mut reply[..], RecvFlags::empty()))?;
        outcome(reply.get(..length).unwrap_or_default())
    }
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
    let (number, sender) = ([0; 4], [0; 4]);
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &number, &sender, body].concat()
}

/// The body of a message about the loopback interface: family, kind of hardware, index, and flags to set.
fn link(flags: u32) -> Vec<u8> {
    let unspecified = [0; 4];
    [&unspecified[..], &LOOPBACK.to_ne_bytes(), &flags.to_ne_bytes(), &flags.to_ne_bytes()].concat()
}

/// The body of a message about the route for all addresses of a family.
fn local_route(family: AddressFamily) -> Vec<u8> {
    let family = u8::try_from(family.as_raw()).unwrap_or_default();
    let (destination_bits, source_bits, service) = (0, 0, 0);
    let fields = [
        family,
        destination_bits,
        source_bits,
        service,
        RT_TABLE_LOCAL,
        RTPROT_BOOT,
        RT_SCOPE_HOST,
        RTN_LOCAL,
    ];
    let (flags, attribute_length) = ([0; 4], 8u16);
    let attribute =
        [&attribute_length.to_ne_bytes()[..], &RTA_OIF.to_ne_bytes(), &LOOPBACK.to_ne_bytes()].concat();
    [&fields[..], &flags, &attribute].concat()
}

/// Returns the outcome that the kernel reports.
fn outcome(reply: &[u8]) -> io::Result<()> {
    let kind = reply.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = reply.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|bytes| bytes.try_into().ok());
    match (kind, code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(Errno::from_raw_os_error(code.saturating_neg()).into()),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_length() {
        let link = message(RTM_NEWLINK, &link(IFF_UP));
        assert_eq!((link.len(), link[..4].to_vec()), (32, 32u32.to_ne_bytes().to_vec()));
        let route = message(RTM_NEWROUTE, &local_route(AddressFamily::INET6));
        assert_eq!((route.len(), route[..4].to_vec()), (36, 36u32.to_ne_bytes().to_vec()));
        assert_eq!(route[HEADER_BYTES..HEADER_BYTES + 8], [10, 0, 0, 0, 255, 3, 254, 2]);
    }

    #[test]
    fn the_kernel_reports_errors_as_negative_numbers() {
        let reply = |code: i32| {
            let mut reply = message(NLMSG_ERROR, &code.to_ne_bytes());
            reply.extend([0; 16]);
            reply
        };
        outcome(&reply(0)).unwrap();
        assert_eq!(outcome(&reply(-1)).unwrap_err().raw_os_error(), Some(1));
        for bad in [&[][..], &[0; 20], &reply(0)[..18]] {
            assert_eq!(outcome(bad).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        // Nobody may change the interfaces of this namespace without a privilege; with it, nothing changes.
        let netlink = Netlink::open().unwrap();
        let started = netlink.start_loopback();
        assert!(started.is_ok() || started.unwrap_err().kind() == ErrorKind::PermissionDenied);
    }
}
