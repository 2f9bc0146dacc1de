//! A real Redis or Valkey beside the book: each call goes to both, and the replies must be equal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use super::world::TERMS;
use crate::shared::{BookReply, CALL_SCRIPT, Call, Segment};

/// The server's address. Without it, the book is alone.
const ADDRESS: &str = "EGRET_MODEL_REDIS";
/// The place at which the script reads the server's clock; the model has its own.
const CLOCK: &str = "redis.call('TIME')";
const MODEL_CLOCK: &str = "{ARGV[#ARGV - 1], ARGV[#ARGV]}";

static SEGMENTS: AtomicU64 = AtomicU64::new(0);

/// The contents of keys, as the server writes them.
pub type Dump = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug)]
pub struct Mirror {
    connection: BufReader<TcpStream>,
    segment: Segment,
    script: String,
}

impl Mirror {
    /// Connects to the server, if there is one.
    pub fn from_env() -> Option<Self> {
        let address = std::env::var(ADDRESS).ok()?;
        let stream =
            TcpStream::connect(&address).unwrap_or_else(|error| panic!("{ADDRESS} {address}: {error}"));
        stream.set_nodelay(true).unwrap();
        let cluster = format!("model-{}", std::process::id());
        let segment = Segment::new(&cluster, SEGMENTS.fetch_add(1, Ordering::Relaxed));
        let mut mirror = Self { connection: BufReader::new(stream), segment, script: String::new() };
        assert!(CALL_SCRIPT.contains(CLOCK), "the script reads the clock in another way");
        let script = CALL_SCRIPT.replace(CLOCK, MODEL_CLOCK);
        let digest = mirror.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]).unwrap();
        mirror.script = String::from_utf8(digest).unwrap();
        Some(mirror)
    }

    /// Applies a call at `now_ms`.
    pub fn apply(&mut self, call: &Call, now_ms: u64) -> BookReply {
        let script = self.segment.call(call, &TERMS);
        let seconds = (now_ms / 1_000).to_string().into_bytes();
        let micros = (now_ms % 1_000 * 1_000).to_string().into_bytes();
        let count = script.keys.len().to_string().into_bytes();
        let digest = self.script.clone().into_bytes();
        let mut words = vec![b"EVALSHA".to_vec(), digest, count];
        words.extend(script.keys);
        words.extend(script.arguments);
        words.extend([seconds, micros]);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = self.command(&words).unwrap();
        BookReply::from_script(&reply, call.groups.len())
            .unwrap_or_else(|error| panic!("{error}: {}", reply.escape_ascii()))
    }

    fn keys(&self) -> [Vec<u8>; 2] {
        [self.segment.members(), self.segment.group(b"group")]
    }

    /// Writes down the state.
    pub fn dump(&mut self) -> Dump {
        let keys = self.keys();
        for key in &keys {
            let left = self.command(&[b"PTTL", key]).unwrap();
            assert_ne!(left, b"-1", "{} never expires", key.escape_ascii());
        }
        keys.into_iter()
            .filter_map(|key| self.command(&[b"DUMP", &key]).map(|content| (key, content)))
            .collect()
    }

    /// Forgets everything, and restores a state.
    pub fn restore(&mut self, dump: &Dump) {
        for key in self.keys() {
            self.command(&[b"DEL", &key]);
        }
        for (key, content) in dump {
            self.command(&[b"RESTORE", key, b"60000", content]);
        }
    }

    /// Sends a command. Returns the reply, if it is not null.
    fn command(&mut self, words: &[&[u8]]) -> Option<Vec<u8>> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.connection.get_mut().write_all(&request).unwrap();
        let mut line = String::new();
        self.connection.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "+" | ":" => Some(rest.as_bytes().to_vec()),
            "$" if rest == "-1" => None,
            "$" => {
                let length: usize = rest.parse().unwrap();
                let mut content = vec![0; length + 2];
                self.connection.read_exact(&mut content).unwrap();
                content.truncate(length);
                Some(content)
            }
            _ => panic!("{line}"),
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.restore(&Dump::new());
        }
    }
}
