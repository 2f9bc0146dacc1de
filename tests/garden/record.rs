//! Reports of servers: the requests that they have understood.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use egret_tests::wait::Watched;

/// A request as a server has understood it, or a response as a client has: then its status is the method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    /// Names in lower case, and values, sorted by name.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body's length, its Adler-32, and its first bytes.
    pub(crate) length: u64,
    pub(crate) sum: u32,
    pub(crate) start: Vec<u8>,
}

/// Bytes of a body that a report has.
pub(crate) const START: usize = 512;

/// Fields that a gateway changes or takes away by the documentation ("Changes on the way"), that say how a
/// body is framed, or that servers add.
const OWN: [&str; 19] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "upgrade",
    "http2-settings",
    "transfer-encoding",
    "content-length",
    "host",
    "via",
    "expect",
    "max-forwards",
    "x-forwarded-for",
    "forwarded",
    "date",
    "proxy-status",
];

/// Beginnings of fields that Egret, and servers in front of the echo, add.
const ADDED: [&str; 5] = ["x-egret-", "x-forwarded-", "x-envoy-", "x-host", "x-request-id"];

impl Record {
    pub(crate) fn new(method: &[u8], target: &[u8], fields: Vec<(Vec<u8>, Vec<u8>)>, body: &[u8]) -> Self {
        let mut record = Self {
            method: method.into(),
            target: target.into(),
            fields,
            length: body.len() as u64,
            sum: adler32(body),
            start: body[..body.len().min(START)].to_vec(),
        };
        record.sort();
        record
    }

    fn sort(&mut self) {
        for (name, value) in &mut self.fields {
            name.make_ascii_lowercase();
            *value = value.trim_ascii().to_vec();
        }
        self.fields.sort_by(|a, b| a.0.cmp(&b.0));
    }

    /// Reads a line that a server has printed: `R METHOD TARGET LENGTH SUM START NAME:VALUE...`, in
    /// hexadecimal except for the two numbers. An empty part is `-`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.strip_prefix("R ")?.split(' ');
        let method = hex(parts.next()?)?;
        let target = hex(parts.next()?)?;
        let length = parts.next()?.parse().ok()?;
        let sum = parts.next()?.parse().ok()?;
        let start = hex(parts.next()?)?;
        let fields = parts.filter_map(|part| part.split_once(':'));
        let fields = fields.map(|(name, value)| Some((hex(name)?, hex(value)?))).collect::<Option<_>>()?;
        let mut record = Self { method, target, fields, length, sum, start };
        record.sort();
        Some(record)
    }

    /// Without what documented changes touch: the fields of a gateway's own, those that `Connection` names,
    /// and the form of the target.
    pub(crate) fn essence(&self, options: &BTreeSet<Vec<u8>>) -> Self {
        let mut essence = self.clone();
        essence.fields.retain(|(name, _)| {
            let is_own = OWN.iter().any(|own| own.as_bytes() == name);
            let is_added = ADDED.iter().any(|start| name.starts_with(start.as_bytes()));
            !is_own && !is_added && !options.contains(name)
        });
        essence.target = path(&essence.target);
        essence
    }

    /// The value of the first field of that name.
    pub(crate) fn value(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(of, _)| of == name.as_bytes()).map(|(_, value)| &value[..])
    }

    /// The mark of its message, by the first of target, fields and body that has one.
    fn mark(&self) -> Option<u64> {
        let case = self.fields.iter().filter(|(name, _)| name == b"x-case").map(|(_, value)| value);
        let all = self.fields.iter().flat_map(|(name, value)| [value, name]);
        [&self.target]
            .into_iter()
            .chain(case)
            .chain(all)
            .chain([&self.method, &self.start])
            .find_map(|text| mark(text))
    }

    /// `true` if it is the request that follows each message.
    pub(crate) fn is_end(&self) -> bool {
        self.method == b"GET" && self.length == 0 && self.target.ends_with(b"-end")
    }
}

impl fmt::Display for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.method.escape_ascii(), self.target.escape_ascii())?;
        for (name, value) in &self.fields {
            write!(formatter, " | {}: {}", name.escape_ascii(), value.escape_ascii())?;
        }
        write!(formatter, " | {} bytes: {}", self.length, self.start.escape_ascii())
    }
}

/// The path of a target in absolute form.
fn path(target: &[u8]) -> Vec<u8> {
    let lower = target.to_ascii_lowercase();
    let rest = [&b"http://"[..], b"https://"].iter().find_map(|scheme| lower.strip_prefix(*scheme));
    let Some(rest) = rest else { return target.to_vec() };
    let rest = &target[target.len() - rest.len()..];
    match rest.iter().position(|byte| matches!(byte, b'/' | b'?')) {
        Some(at) if rest[at] == b'/' => rest[at..].to_vec(),
        Some(at) => [b"/", &rest[at..]].concat(),
        None => b"/".to_vec(),
    }
}

/// The number in the first mark of a text: `q12-`.
pub(crate) fn mark(text: &[u8]) -> Option<u64> {
    text.iter().enumerate().filter(|(_, byte)| **byte == b'q').find_map(|(at, _)| {
        let rest = &text[at + 1..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let is_mark = rest.get(digits) == Some(&b'-');
        is_mark.then(|| std::str::from_utf8(&rest[..digits]).ok()?.parse().ok())?
    })
}

fn hex(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// The checksum of RFC 1950, which the libraries of all languages have.
pub(crate) fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    (b << 16) | a
}

/// The records so far, by number of their messages. Those without a mark have the number 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records(Arc<Watched<HashMap<u64, Vec<Record>>>>);

impl Records {
    pub(crate) fn add(&self, record: Record) {
        let number = record.mark().unwrap_or_default();
        self.0.change(|records| records.entry(number).or_default().push(record));
    }

    /// Reads what a server prints, on a thread, until it ends.
    pub(crate) fn read(&self, from: impl Read + Send + 'static) {
        let records = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if let Some(record) = Record::parse(&line) {
                    records.add(record);
                }
            }
        });
    }

    /// Takes out all.
    pub(crate) fn take(&self) -> HashMap<u64, Vec<Record>> {
        let mut taken = HashMap::new();
        self.0.change(|records| taken = std::mem::take(records));
        taken
    }

    /// Waits until there is one of this message.
    pub(crate) fn until(&self, number: u64) {
        self.0.until("a server reports", |records| records.contains_key(&number).then_some(()));
    }
}
