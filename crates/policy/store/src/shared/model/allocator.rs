//! The allocator of the model: the script that ships, run by a fake of Redis. With a server's address in the
//! environment, a real Redis or Valkey runs the script too, and must give the same replies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use egret_fake_redis::{FakeRedis, Keys};

use super::invariants;
use super::world::TERMS;
use crate::shared::{AllocatorReply, CALL_SCRIPT, Call, ScriptCall, Shard};

/// The server's address. Without it, the fake is alone.
const ADDRESS: &str = "EGRET_MODEL_REDIS";
/// The place at which the script reads the server's clock; the model has its own.
const CLOCK: &str = "redis.call('TIME')";
const MODEL_CLOCK: &str = "{ARGV[#ARGV - 1], ARGV[#ARGV]}";

static SHARDS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub struct Allocator {
    fake: FakeRedis,
    shard: Shard,
    server: Option<RealServer>,
}

impl Allocator {
    pub fn new() -> Self {
        let cluster = format!("model-{}", std::process::id());
        Self {
            fake: FakeRedis::new(CALL_SCRIPT),
            shard: Shard::new(&cluster, SHARDS.fetch_add(1, Ordering::Relaxed)),
            server: std::env::var(ADDRESS).ok().map(|address| RealServer::connect(&address)),
        }
    }

    /// Applies a call at `now_ms`. Returns the rule that was broken, if one was.
    pub fn apply(&mut self, call: &Call, now_ms: u64) -> Result<AllocatorReply, String> {
        let script = self.shard.call(call, &TERMS);
        if let Some(server) = &mut self.server {
            server.expire(&script, &self.fake, now_ms);
        }
        let reply = self.fake.run(&script.keys, &script.arguments, now_ms);
        if let Some(server) = &mut self.server {
            let other = server.run(&script, now_ms);
            if other != reply {
                let [reply, other] = [reply, other].map(|reply| reply.escape_ascii().to_string());
                return Err(format!(
                    "to {call:?} at {now_ms} ms the fake replies {reply}, the server {other}"
                ));
            }
        }
        let reply =
            AllocatorReply::from_script(&reply, call.groups.len()).map_err(|error| error.to_string())?;
        if let AllocatorReply::Applied(applied) = &reply {
            let broken =
                self.fake.inspect(|keys| invariants::check(keys, &script.keys, call, applied, &TERMS));
            broken.map_err(|rule| {
                format!("{rule}, after {applied:?} to {call:?}: {}", self.fake.inspect(described))
            })?;
        }
        Ok(reply)
    }

    /// A copy of the state.
    pub fn keys(&self) -> Keys {
        self.fake.keys()
    }

    /// Forgets everything, and restores a state.
    pub fn restore(&mut self, keys: Keys) {
        if let Some(server) = &mut self.server {
            server.restore([self.shard.members(), self.shard.group(b"group")], &keys);
        }
        self.fake.restore(keys);
    }
}

/// The content of the keys as text.
fn described(keys: &Keys) -> String {
    let fields = keys.values().flat_map(|hash| &hash.fields);
    let texts = fields.map(|(field, value)| format!("{}: {}", field.escape_ascii(), value.escape_ascii()));
    texts.collect::<Vec<_>>().join(", ")
}

impl Drop for Allocator {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.restore(Keys::new());
        }
    }
}

/// A connection to a server that runs the script on the model's clock.
#[derive(Debug)]
struct RealServer {
    connection: BufReader<TcpStream>,
    script: Vec<u8>,
}

impl RealServer {
    fn connect(address: &str) -> Self {
        let stream =
            TcpStream::connect(address).unwrap_or_else(|error| panic!("{ADDRESS} {address}: {error}"));
        stream.set_nodelay(true).unwrap();
        let mut server = Self { connection: BufReader::new(stream), script: Vec::new() };
        assert!(CALL_SCRIPT.contains(CLOCK), "the script reads the clock in another way");
        let script = CALL_SCRIPT.replace(CLOCK, MODEL_CLOCK);
        server.script = server.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
        server
    }

    /// Removes the keys whose time is over on the model's clock, which the server does not have.
    fn expire(&mut self, script: &ScriptCall, fake: &FakeRedis, now_ms: u64) {
        for key in &script.keys {
            let ends_ms = fake.inspect(|keys| keys.get(key).and_then(|hash| hash.ends_ms));
            if ends_ms.is_some_and(|ends_ms| ends_ms <= now_ms) {
                self.command(&[b"DEL", key]);
            }
        }
    }

    fn run(&mut self, script: &ScriptCall, now_ms: u64) -> Vec<u8> {
        let time = [now_ms / 1_000, now_ms % 1_000 * 1_000].map(|number| number.to_string().into_bytes());
        let count = script.keys.len().to_string().into_bytes();
        let head = [b"EVALSHA".to_vec(), self.script.clone(), count];
        let words = head.iter().chain(&script.keys).chain(&script.arguments).chain(&time);
        let words: Vec<&[u8]> = words.map(Vec::as_slice).collect();
        self.command(&words)
    }

    fn restore(&mut self, forgotten: [Vec<u8>; 2], keys: &Keys) {
        for key in forgotten {
            self.command(&[b"DEL", &key]);
        }
        for (key, hash) in keys {
            let fields = hash.fields.iter().flat_map(|(field, value)| [field.as_slice(), value]);
            let words: Vec<&[u8]> = [b"HSET".as_slice(), key].into_iter().chain(fields).collect();
            self.command(&words);
            self.command(&[b"PEXPIRE", key, b"60000"]);
        }
    }

    /// Sends a command. Returns the reply, a text or a number.
    fn command(&mut self, words: &[&[u8]]) -> Vec<u8> {
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
            "+" | ":" => rest.as_bytes().to_vec(),
            "$" => {
                let length: usize = rest.parse().unwrap();
                let mut content = vec![0; length + 2];
                self.connection.read_exact(&mut content).unwrap();
                content.truncate(length);
                content
            }
            _ => panic!("{line}"),
        }
    }
}
