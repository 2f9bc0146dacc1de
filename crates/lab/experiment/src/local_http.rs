//! Local HTTP requests to the processes of a turn: to detect readiness, and to read the provider's counters.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

/// Timeout of one probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Range of ports that are handed out. It is below the system's range for outgoing connections, so no
/// connection takes a port between the check and its use.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Distance between the first ports of two runs started one after the other. It keeps the runs from taking
/// each other's ports between check and use: three ports in each of sixty turns fit in. It is a prime, so
/// successive runs cover all ports.
const PORTS_APART: u32 = 199;

/// The result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// No response, or not HTTP.
    Silent,
    /// An HTTP response with this status code.
    Status(u16),
}

/// Maximum size of a response that is read.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// Requests `path` on a loopback port.
pub(crate) fn probe(port: u16, path: &str) -> Probe {
    request(port, "GET", path).map_or(Probe::Silent, |(status, _)| Probe::Status(status))
}

/// Returns `true` if a loopback port accepts connections. For a TLS port, this is all that can be checked
/// without a handshake.
pub(crate) fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&local(port), PROBE_TIMEOUT).is_ok()
}

/// Returns a port that is free now, a different one on each call.
pub(crate) fn free_port() -> Option<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    let start = std::process::id().wrapping_mul(PORTS_APART) % u32::from(count);
    let start = u16::try_from(start).unwrap_or(0);
    (0..count)
        .map(|_| PORTS.start + start.wrapping_add(NEXT.fetch_add(1, Relaxed)) % count)
        .find(|port| TcpListener::bind(local(*port)).is_ok())
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Sends a request without content to a loopback port. Returns the status code and the content of the
/// response. `None` without an HTTP response.
pub(crate) fn request(port: u16, method: &str, path: &str) -> Option<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&local(port), PROBE_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT)).ok()?;
    // Sent in one write: a peer that responds and closes after the first part would reset the connection.
    let request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut line = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut line).ok()?;
    let line = std::str::from_utf8(&line).ok()?;
    let status = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "))?.parse().ok()?;
    // Reads to the end, so the process never sees a connection that is cut off.
    let mut rest = Vec::new();
    let _ = stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut rest);
    let content = rest.windows(4).position(|end| end == b"\r\n\r\n").map_or(rest.len(), |end| end + 4);
    Some((status, rest.split_off(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_tells_a_status_from_silence() {
        let listener = TcpListener::bind(local(0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(port));
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
        assert_eq!(probe(port, "/"), Probe::Status(503));
        assert_eq!(probe(port, "/"), Probe::Silent);
        assert_eq!(request(port, "DELETE", "/"), Some((200, b"hi".to_vec())));
        server.join().unwrap();
        assert!(!listens(port));
    }

    #[test]
    fn ports_are_free_and_differ() {
        let (one, two) = (free_port().unwrap(), free_port().unwrap());
        assert_ne!(one, two);
        assert!(PORTS.contains(&one) && TcpListener::bind(local(one)).is_ok());
    }
}
