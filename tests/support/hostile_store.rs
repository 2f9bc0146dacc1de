//! A server that speaks Redis's protocol until it attacks.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use crate::pki::Leaf;
use crate::timeline::pass;
use crate::wait::Watched;

/// The command of a gateway's regular calls.
const CALL: &str = "EVALSHA";

/// The bytes of an attack: what begins it, then pieces without end.
#[derive(Debug, Clone)]
pub struct StoreAttack {
    /// The name, for messages.
    pub name: &'static str,
    /// The first bytes.
    pub begin: Vec<u8>,
    /// The piece with this number. If it is empty, nothing more is sent.
    pub piece: fn(u64) -> Vec<u8>,
    /// Time before each piece.
    pub pause: Duration,
}

impl StoreAttack {
    /// Creates an attack.
    pub fn new(name: &'static str, begin: impl AsRef<[u8]>, piece: fn(u64) -> Vec<u8>) -> Self {
        Self { name, begin: begin.as_ref().to_vec(), piece, pause: Duration::ZERO }
    }
}

/// The server's behaviour.
#[derive(Debug, Clone, Default)]
struct Plan {
    /// The command that is answered with an attack.
    command: &'static str,
    attack: Option<StoreAttack>,
}

/// A running server. It ends with the test.
#[derive(Debug)]
pub struct HostileStore {
    address: SocketAddr,
    plan: Arc<Watched<Plan>>,
    seen: Arc<Watched<Seen>>,
}

/// The figures of a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Commands that were answered well.
    pub answered: u64,
    /// Attacks that the client ended by closing the connection.
    pub ended: u64,
    /// Bytes of attacks that the client's system took.
    pub bytes: u64,
}

impl HostileStore {
    /// Starts a server that answers well.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Does the same over TLS, with this certificate.
    pub fn start_with_tls(leaf: &Leaf) -> Self {
        Self::start_with(Some(leaf.server()))
    }

    fn start_with(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (plan, seen) = (Arc::<Watched<Plan>>::default(), Arc::<Watched<Seen>>::default());
        let served = (Arc::clone(&plan), Arc::clone(&seen));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let ((plan, seen), tls) = (served.clone(), tls.clone());
                std::thread::spawn(move || {
                    // The client may leave at any time.
                    let _ = match tls {
                        None => Session { plan, seen, address }.serve(stream),
                        Some(tls) => {
                            rustls::ServerConnection::new(tls).map_err(io::Error::other).and_then(|tls| {
                                Session { plan, seen, address }.serve(rustls::StreamOwned::new(tls, stream))
                            })
                        }
                    };
                });
            }
        });
        Self { address, plan, seen }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers this command with an attack from now on. If it is none of the regular calls, those close the
    /// connection, so that the client begins again.
    pub fn attack(&self, command: &'static str, attack: &StoreAttack) {
        self.plan.change(|plan| *plan = Plan { command, attack: Some(attack.clone()) });
    }

    /// Its figures.
    pub fn seen(&self) -> Seen {
        self.seen.read(|seen| *seen)
    }
}

struct Session {
    plan: Arc<Watched<Plan>>,
    seen: Arc<Watched<Seen>>,
    address: SocketAddr,
}

impl Session {
    fn serve(&self, stream: impl Read + Write) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let words = command(&mut stream)?;
            let name = words.first().map_or("", String::as_str);
            let plan = self.plan.read(Clone::clone);
            match plan.attack {
                Some(attack) if plan.command == name => {
                    let ended = self.attack(stream.get_mut(), &attack);
                    self.seen.change(|seen| seen.ended += 1);
                    return ended;
                }
                // The client is to connect again.
                Some(_) if name == CALL => return Ok(()),
                _ => {
                    stream.get_mut().write_all(self.reply(&words).as_bytes())?;
                    stream.get_mut().flush()?;
                    self.seen.change(|seen| seen.answered += 1);
                }
            }
        }
    }

    /// Attacks until the client closes the connection.
    fn attack(&self, stream: &mut (impl Read + Write), attack: &StoreAttack) -> io::Result<()> {
        stream.write_all(&attack.begin)?;
        stream.flush()?;
        for number in 0.. {
            if !attack.pause.is_zero() {
                pass(attack.pause);
            }
            let piece = (attack.piece)(number);
            if piece.is_empty() {
                break;
            }
            stream.write_all(&piece)?;
            stream.flush()?;
            self.seen.change(|seen| seen.bytes += piece.len() as u64);
        }
        let mut ignored = [0; 4_096];
        while stream.read(&mut ignored)? > 0 {}
        Ok(())
    }

    fn reply(&self, words: &[String]) -> String {
        let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        match words.first().map_or("", String::as_str) {
            "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
            "ROLE" => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned(),
            "INFO" => text("run_id:0123456789abcdef\r\nmaxmemory_policy:noeviction\r\n"),
            "SCRIPT" => text(&"a".repeat(40)),
            "SUBSCRIBE" => format!(">3\r\n$9\r\nsubscribe\r\n{}:1\r\n", text(&words[1])),
            CALL => text("stale"),
            "EXISTS" | "PEXPIRE" | "PUBLISH" => ":0\r\n".to_owned(),
            "EVAL" | "XRANGE" => "*0\r\n".to_owned(),
            "SENTINEL" => {
                let mut reply = "*2\r\n".to_owned();
                let port = self.address.port().to_string();
                let _ = write!(reply, "{}{}", text("127.0.0.1"), text(&port));
                reply
            }
            _ => "+OK\r\n".to_owned(),
        }
    }
}

/// Reads a command: a list of texts.
fn command(stream: &mut impl BufRead) -> io::Result<Vec<String>> {
    let count = length(stream)?;
    (0..count)
        .map(|_| {
            let mut bytes = vec![0; length(stream)? + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })
        .collect()
}

fn length(stream: &mut impl BufRead) -> io::Result<usize> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    line.get(1..).and_then(|number| number.trim_end().parse().ok()).ok_or(io::ErrorKind::UnexpectedEof.into())
}
