//! HTTP requests to the processes of a turn: to detect readiness, and to read the provider's counters.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Timeout of one probe.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Range of ports that are handed out. It is below the system's range for outgoing connections, so no
/// connection takes a port between the check and its use.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Distance between the first ports of two runs started one after the other, so that they rarely try the same
/// ones. It is a prime, so successive runs cover all ports.
const PORTS_APART: u32 = 199;

/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

/// A server, and the field lines that each request to it carries.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Server {
    /// Name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Additional field lines, `name: value`.
    pub fields: Vec<String>,
}

impl Server {
    /// A server on this address.
    pub fn at(address: IpAddr, port: u16) -> Self {
        Self { host: address.to_string(), port, fields: Vec::new() }
    }

    /// Opens a connection to the first address that accepts one.
    pub fn connect(&self) -> Option<TcpStream> {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs().ok()?;
        let stream = addresses
            .take(ADDRESSES_MAX)
            .find_map(|address| TcpStream::connect_timeout(&address, PROBE_TIMEOUT).ok())?;
        stream.set_read_timeout(Some(PROBE_TIMEOUT)).ok()?;
        stream.set_write_timeout(Some(PROBE_TIMEOUT)).ok()?;
        Some(stream)
    }

    /// Returns `true` if the server accepts connections. For TLS, this is all that can be checked without a
    /// handshake.
    pub fn listens(&self) -> bool {
        self.connect().is_some()
    }

    /// Sends a request without content. Returns the status code and the content of the response. `None`
    /// without an HTTP response.
    pub fn request(&self, method: &str, path: &str) -> Option<(u16, Vec<u8>)> {
        let mut stream = self.connect()?;
        let host = authority(&self.host, self.port);
        let fields = self.fields.iter().fold(String::new(), |lines, field| lines + field + "\r\n");
        // Sent in one write: a peer that responds and closes after the first part would reset the connection.
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut line = [0; "HTTP/1.1 200".len()];
        stream.read_exact(&mut line).ok()?;
        let line = std::str::from_utf8(&line).ok()?;
        let status =
            line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "))?.parse().ok()?;
        // Reads to the end, so the process never sees a connection that is cut off.
        let mut rest = Vec::new();
        let _ = stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut rest);
        let content = rest.windows(4).position(|end| end == b"\r\n\r\n").map_or(rest.len(), |end| end + 4);
        Some((status, rest.split_off(content)))
    }
}

/// Writes a host as a URL has it: an IPv6 address in brackets.
pub(crate) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Writes host and port as a URL has them.
pub(crate) fn authority(host: &str, port: u16) -> String {
    format!("{}:{port}", bracketed(host))
}

/// Maximum size of a response that is read.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// Returns a port of this address that is free now, a different one on each call and in each lab.
pub(crate) fn free_port(address: IpAddr) -> Option<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    let start = std::process::id().wrapping_mul(PORTS_APART) % u32::from(count);
    let start = u16::try_from(start).unwrap_or(0);
    let next = || PORTS.start + start.wrapping_add(NEXT.fetch_add(1, Relaxed)) % count;
    let mut ports = std::iter::repeat_with(next).take(usize::from(count));
    let (port, reservation) = ports.find_map(|port| Some((port, reserve(address, port)?)))?;
    let mut reserved = RESERVED.lock();
    if reserved.len() == RESERVED_MAX {
        reserved.pop_front();
    }
    reserved.push_back(reservation);
    Some(port)
}

/// The last ports that were given out. Each is kept from the other labs of this machine by a socket of UDP,
/// to which nothing is sent: if they looked by TCP whether it is free, the program for which it is meant
/// might find it taken.
static RESERVED: Mutex<VecDeque<UdpSocket>> = Mutex::new(VecDeque::new());

/// Number of ports that stay reserved. No turn needs as many.
const RESERVED_MAX: usize = 128;

/// Reserves a port. Returns `None` if another lab has it, or it is not free.
fn reserve(address: IpAddr, port: u16) -> Option<UdpSocket> {
    let reservation = UdpSocket::bind((address, port)).ok()?;
    TcpListener::bind((address, port)).ok()?;
    Some(reservation)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_response_is_told_from_silence() {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let at = Server::at(LOOPBACK, listener.local_addr().unwrap().port());
        assert!(at.listens());
        let server = std::thread::spawn(move || {
            let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
            for response in ["", "HTTP/1.1 503 No\r\n\r\n", "SSH-2.0-OpenSSH_9\r\n", good] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let _ = stream.read(&mut request);
                stream.write_all(response.as_bytes()).unwrap();
            }
        });
        // The first connection was the check for a listener.
        assert_eq!(at.request("GET", "/").map(|(status, _)| status), Some(503));
        assert_eq!(at.request("GET", "/"), None);
        assert_eq!(at.request("DELETE", "/"), Some((200, b"hi".to_vec())));
        server.join().unwrap();
        // Nobody can listen there; the listener's own port may have been given to somebody else.
        assert!(!Server::at(LOOPBACK, 0).listens());
    }

    #[test]
    fn ports_are_free_and_differ() {
        let (one, two) = (free_port(LOOPBACK).unwrap(), free_port(LOOPBACK).unwrap());
        assert_ne!(one, two);
        assert!(PORTS.contains(&one) && PORTS.contains(&two));
        let taken = TcpListener::bind((LOOPBACK, 0)).unwrap();
        assert!(reserve(LOOPBACK, taken.local_addr().unwrap().port()).is_none());
        assert!(reserve(LOOPBACK, one).is_none(), "another lab would take it");
        assert_eq!((authority("::1", 80), authority("h", 80)), ("[::1]:80".into(), "h:80".into()));
    }
}
