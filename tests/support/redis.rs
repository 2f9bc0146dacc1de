//! Redis and Valkey servers: single ones, and a client for their commands.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::peers::{free_port, located};
use crate::pki::Authority;
use crate::process::{Directory, Process};
use crate::wait::{self, DEADLINE};

/// The program of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// Redis 7, as Debian has it.
    Redis7,
    /// Valkey 9, without TLS.
    Valkey9,
}

impl Flavor {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Redis7, Self::Valkey9];

    /// The program.
    pub fn program(self) -> PathBuf {
        match self {
            Self::Redis7 => located("redis-server", ".peers/bin/redis-server"),
            Self::Valkey9 => located("valkey-server", ".peers/bin/valkey-server"),
        }
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    flavor: Flavor,
    port: u16,
    arguments: Vec<String>,
    prefix: Vec<String>,
    directory: Directory,
}

/// The commands that a server receives, as its `MONITOR` shows them.
#[derive(Debug)]
pub struct Monitor(Arc<Mutex<String>>);

impl Monitor {
    /// The commands so far.
    pub fn seen(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

/// A reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A text: a simple or a bulk string.
    Text(String),
    /// An error.
    Error(String),
    /// A number.
    Number(i64),
    /// Several replies.
    List(Vec<Reply>),
    /// Nothing.
    Nothing,
}

impl RedisServer {
    /// Starts an empty server that writes nothing to the disk.
    pub fn start(flavor: Flavor) -> Self {
        Self::start_with(flavor, &[])
    }

    /// Does the same with more settings, as arguments: `["--maxmemory", "10mb"]`.
    pub fn start_with(flavor: Flavor, arguments: &[&str]) -> Self {
        Self::start_behind(flavor, &[], arguments)
    }

    /// Does the same with a program before the server's, such as `["faketime", "-f", "+30s"]`.
    pub fn start_behind(flavor: Flavor, prefix: &[&str], arguments: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (directory, port) = (Directory::default(), free_port());
        let (prefix, arguments) = (owned(prefix), owned(arguments));
        let process = launch(flavor, port, &prefix, &arguments, &directory);
        Self { process, flavor, port, arguments, prefix, directory }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The value of `cluster.redis` in a config.
    pub fn config(&self) -> String {
        format!("{{ url: 'redis://{}' }}", self.address())
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends a command on a new connection, and returns the reply.
    pub fn command<T: Display>(&self, words: &[T]) -> Reply {
        RedisClient::connect(self.address()).command(words)
    }

    /// Sends `INFO` with this section, and returns the figure at the beginning of a line: `used_memory`.
    pub fn figure(&self, section: &str, name: &str) -> Option<String> {
        let Reply::Text(info) = self.command(&["INFO", section]) else { return None };
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(|value| value.trim().to_owned())
    }

    /// Number of calls of a command so far: `evalsha`.
    pub fn calls_of(&self, command: &str) -> u64 {
        let figures = self.figure("commandstats", &format!("cmdstat_{command}"));
        let calls = figures.as_deref().and_then(|figures| figures.strip_prefix("calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    }

    /// Records all commands that it receives from now on.
    pub fn monitor(&self) -> Monitor {
        let mut client = RedisClient::connect(self.address());
        assert_eq!(client.command(&["MONITOR"]), Reply::Text("OK".to_owned()));
        client.stream.get_ref().set_read_timeout(None).unwrap();
        let seen = Arc::<Mutex<String>>::default();
        let noted = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut line = String::new();
            while client.stream.read_line(&mut line).is_ok_and(|count| count > 0) {
                noted.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
        });
        Monitor(seen)
    }

    /// The keys, their types and all that they contain.
    pub fn dump(&self) -> String {
        let mut client = RedisClient::connect(self.address());
        let mut text = String::new();
        for key in client.command(&["KEYS", "*"]).words() {
            let kind = client.command(&["TYPE", &key]).text().to_owned();
            let content = match kind.as_str() {
                "string" => client.command(&["GET", &key]),
                "hash" => client.command(&["HGETALL", &key]),
                "list" => client.command(&["LRANGE", &key, "0", "-1"]),
                "set" => client.command(&["SMEMBERS", &key]),
                "zset" => client.command(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
                "stream" => client.command(&["XRANGE", &key, "-", "+"]),
                other => panic!("{key} is a {other}"),
            };
            text.extend([&*key, " ", &*kind, " ", &content.words().join(" "), "\n"]);
        }
        text
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.process.signal("KILL");
        self.process.until_ended();
    }

    /// Starts it again, on its port and empty, after it was killed.
    pub fn restart(&mut self) {
        self.process = launch(self.flavor, self.port, &self.prefix, &self.arguments, &self.directory);
    }

    /// Its directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}

/// Starts a server and waits until it answers.
fn launch(
    flavor: Flavor,
    port: u16,
    prefix: &[String],
    arguments: &[String],
    directory: &Directory,
) -> Process {
    let program = flavor.program().display().to_string();
    let mut words = prefix.iter().chain([&program]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(directory.path()).args(arguments);
    let process = Process::start(command.stdout(Stdio::null()));
    wait::until_true("the store accepts connections", || {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
    });
    process
}

/// Settings of a server that speaks only TLS on its port, with a certificate of `authority` for `localhost`
/// and `127.0.0.1`, and asks for one. The files are in `directory`.
pub fn tls_settings(authority: &Authority, directory: &Directory) -> Vec<String> {
    let leaf = authority.leaf(&["localhost", "127.0.0.1"]);
    let file = |name: &str, content: &str| directory.write_secret(name, content).display().to_string();
    vec![
        "--tls-cert-file".to_owned(),
        file("redis.pem", &leaf.certificate),
        "--tls-key-file".to_owned(),
        file("redis.key", &leaf.key),
        "--tls-ca-cert-file".to_owned(),
        file("ca.pem", &authority.certificate()),
    ]
}

/// A connection to a server.
#[derive(Debug)]
pub struct RedisClient {
    stream: BufReader<TcpStream>,
}

impl RedisClient {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Sends a command, and returns the reply.
    pub fn command<T: Display>(&mut self, words: &[T]) -> Reply {
        let mut text = format!("*{}\r\n", words.len());
        for word in words.iter().map(ToString::to_string) {
            text.extend(["$", &word.len().to_string(), "\r\n", &word, "\r\n"]);
        }
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
        self.reply()
    }

    fn reply(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(rest.parse().unwrap()),
            "$" if rest != "-1" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            "*" if rest != "-1" => {
                Reply::List((0..rest.parse::<usize>().unwrap()).map(|_| self.reply()).collect())
            }
            _ => Reply::Nothing,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "the store closed the connection after {line:?}");
        line.trim_end().to_owned()
    }
}

impl Reply {
    /// The text.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("{other:?} is no text"),
        }
    }

    /// The replies in it.
    pub fn list(&self) -> &[Self] {
        match self {
            Self::List(list) => list,
            other => panic!("{other:?} is no list"),
        }
    }

    /// All texts and numbers in it, one after the other.
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Text(text) | Self::Error(text) => vec![text.clone()],
            Self::Number(number) => vec![number.to_string()],
            Self::List(list) => list.iter().flat_map(Self::words).collect(),
            Self::Nothing => Vec::new(),
        }
    }
}
