//! Asking a part on this machine: whether it is ready, which it is once it answers rather than after some time, and what it counted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

/// How long one probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Ports that are given out lie below the range from which the system takes ports for connections, so that nothing else takes
/// one between the look and its use.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Ports between the first ones of two runs that were started one after the other, so that they do not take each other's between look
/// and use: enough for three in each of sixty turns. A prime, so that the runs go round through all ports.
const PORTS_APART: u32 = 199;

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Nobody answers, or not with HTTP.
    Silent,
    /// An HTTP answer with this status.
    Status(u16),
}

/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Asks for `path` on a loopback port.
pub fn probe(port: u16, path: &str) -> Probe {
    ask(port, "GET", path).map_or(Probe::Silent, |(status, _)| Probe::Status(status))
}

/// Whether somebody listens on a loopback port: as much as a TLS port tells without a handshake.
pub fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&local(port), PROBE_TIMEOUT).is_ok()
}

/// A port that is free now, a different one each time.
pub fn free_port() -> Option<u16> {
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

/// Sends a request without content to a loopback port: the status of the answer, and its content where that has its length or ends
/// with the connection. `None` where nobody answers, or not with HTTP.
pub fn ask(port: u16, method: &str, path: &str) -> Option<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&local(port), PROBE_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT)).ok()?;
    // In one piece: who answers and closes after the first would reset the connection under the rest.
    let request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut line = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut line).ok()?;
    let line = std::str::from_utf8(&line).ok()?;
    let status = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "))?.parse().ok()?;
    // Read to the end, so that the part never sees a connection cut off.
    let mut rest = Vec::new();
    let _ = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut rest);
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
        let answers = std::thread::spawn(move || {
            let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
            for answer in ["", "HTTP/1.1 503 No\r\n\r\n", "SSH-2.0-OpenSSH_9\r\n", good] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let _ = stream.read(&mut request);
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        // The first connection was the look whether somebody listens.
        assert_eq!(probe(port, "/"), Probe::Status(503));
        assert_eq!(probe(port, "/"), Probe::Silent);
        assert_eq!(ask(port, "DELETE", "/"), Some((200, b"hi".to_vec())));
        answers.join().unwrap();
        assert!(!listens(port));
    }

    #[test]
    fn ports_are_free_and_differ() {
        let (one, two) = (free_port().unwrap(), free_port().unwrap());
        assert_ne!(one, two);
        assert!(PORTS.contains(&one) && TcpListener::bind(local(one)).is_ok());
    }
}
