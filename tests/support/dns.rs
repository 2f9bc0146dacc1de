//! A name server that responds as a scenario specifies.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::wait::Watched;

/// The server's response for a name.
#[derive(Debug, Clone)]
pub enum Answer {
    /// These IPv4 addresses with this TTL in seconds; no IPv6 address.
    Addresses(Vec<Ipv4Addr>, u32),
    /// The name does not exist.
    NoSuchName,
    /// No response.
    Silence,
}

/// A running name server; stopped when dropped.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    queried: Arc<Watched<Vec<String>>>,
    stopping: Arc<AtomicBool>,
}

/// The query type for IPv4 addresses (RFC 1035 §3.2.2).
const TYPE_A: u16 = 1;

impl NameServer {
    /// Starts a server. `response` gets a name.
    pub fn start(response: impl Fn(&str) -> Answer + Send + 'static) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let (queried, stopping) =
            (Arc::new(Watched::<Vec<String>>::default()), Arc::new(AtomicBool::new(false)));
        let (recorded, ends) = (Arc::clone(&queried), Arc::clone(&stopping));
        std::thread::spawn(move || {
            let mut packet = [0; 1500];
            let mut ids = HashSet::new();
            while let Ok((count, client)) = socket.recv_from(&mut packet) {
                if ends.load(SeqCst) {
                    return;
                }
                let Some((name, kind, end)) = question(&packet[..count]) else { continue };
                let found = response(&name);
                // A query without a response in time is sent again, with the same id.
                if kind == TYPE_A && ids.insert((packet[..2].to_vec(), name.clone())) {
                    recorded.change(|queried| queried.push(name));
                }
                if let Some(reply) = reply(&packet[..end], kind, &found) {
                    let _ = socket.send_to(&reply, client);
                }
            }
        });
        Self { address, queried, stopping }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a line for `gateway:` that makes it the only name server. Look-ups may take as long as they
    /// need, and failures are kept.
    pub fn config(&self) -> String {
        format!("dns: {{ servers: [\"{}\"], timeout: 1h, negative_ttl: 1h }}", self.address)
    }

    /// Does the same, with a maximum time of a look-up, for a server that is silent.
    pub fn config_within(&self, timeout: &str) -> String {
        format!("dns: {{ servers: [\"{}\"], timeout: {timeout} }}", self.address)
    }

    /// Number of queries for the IPv4 address of `name`.
    pub fn queries(&self, name: &str) -> usize {
        self.queried.read(|queried| queried.iter().filter(|known| *known == name).count())
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stopping.store(true, SeqCst);
        if let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
            let _ = socket.send_to(&[0], self.address);
        }
    }
}

/// Parses the only question of a packet. Returns its name, type and end.
fn question(packet: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(packet.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]);
    Some((labels.join("."), kind, at + 4))
}

fn reply(question: &[u8], kind: u16, response: &Answer) -> Option<Vec<u8>> {
    let (addresses, ttl, code) = match response {
        Answer::Addresses(addresses, ttl) if kind == TYPE_A => (addresses.as_slice(), *ttl, 0),
        Answer::Addresses(_, ttl) => (&[][..], *ttl, 0),
        Answer::NoSuchName => (&[][..], 0, 3),
        Answer::Silence => return None,
    };
    let mut reply = question.to_vec();
    // A response, recursion available, and the code; then one question and the answers.
    reply[2] = 0x80 | (question[2] & 1);
    reply[3] = 0x80 | code;
    reply[4..12].copy_from_slice(&[0, 1, 0, u8::try_from(addresses.len()).unwrap(), 0, 0, 0, 0]);
    for address in addresses {
        // The name at offset 12, type A, class IN.
        reply.extend([0xc0, 12, 0, 1, 0, 1]);
        reply.extend(ttl.to_be_bytes());
        reply.extend([0, 4]);
        reply.extend(address.octets());
    }
    Some(reply)
}
