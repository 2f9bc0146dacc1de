//! What holds for any expression, for any body that is edited, for whatever peers say of caching, and for the
//! files of a cache. Shared by the fuzz targets and the corpus.

use std::sync::Arc;
use std::time::Duration;

use egret_flow::Timestamp;
use egret_flow::cache::{
    self, Ask, CacheConfig, Candidate, Decision, EntryFile, Kept as _, KeySecret, Policy, Stored, Times,
};
use egret_flow::expression::{Expression, Inputs, Outcome, Scope};
use egret_flow::json::{Action, JsonEdits, JsonError};
use egret_flow::message::{Changes, Fields, Request, Response};
use egret_flow::router::Parameters;
use egret_flow::template::{Place, Template};
use egret_http1::{HeadLimits, Method, Progress, RequestHead, ResponseHead};
use serde::de::IgnoredAny;

const SCOPE: Scope<'_> = Scope { has_response: true, parameters: &["id"] };

/// The first line, up to a NUL, is an expression and a template; what follows is a body. Nothing panics, nothing runs long, and what
/// an expression comes to does not change. Says whether the expression was compiled.
pub fn expression(bytes: &[u8]) -> bool {
    let (source, body) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &b"{\"items\":[1,2,{\"a\":\"b\"}]}"[..]),
    };
    let Ok(source) = std::str::from_utf8(source) else { return false };
    let changes = Changes::default();
    let fields = Fields::new(&[], b"", &changes);
    let request = Request {
        provider: "stripe",
        tls: true,
        host: "api.stripe.com",
        port: 443,
        method: b"GET",
        path: b"/v1/charges",
        query: Some(b"a=1&b=%zz&c"),
        fields,
        consumer: None,
        body: Some(body),
    };
    let response = Response { status: 429, fields, body: Some(body) };
    let (parameters, now) = (Parameters::default(), Timestamp::from_secs(1_000_000));
    let inputs = Inputs { request: &request, response: Some(&response), parameters, attempt: 1, now };
    template(source, &inputs);
    evaluate::<String>(source, &inputs);
    evaluate::<u64>(source, &inputs);
    evaluate::<bool>(source, &inputs)
}

fn evaluate<T: Outcome + PartialEq + std::fmt::Debug>(source: &str, inputs: &Inputs<'_>) -> bool {
    match Expression::<T>::compile(source, SCOPE) {
        Ok(expression) => {
            assert_eq!(expression.evaluate(inputs), expression.evaluate(inputs));
            true
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            false
        }
    }
}

fn template(source: &str, inputs: &Inputs<'_>) {
    for place in [Place::Text, Place::Json, Place::Field, Place::Url] {
        if let Ok(template) = Template::compile(source, place, SCOPE, "body") {
            let _ = template.render(inputs, &mut Vec::new());
        }
    }
}

/// Up to a NUL a pointer, after it a body; without one, a body. What is edited is JSON for every reader, and stays JSON; what is put in
/// once is there, and what is taken out is gone for good. Says whether the body is JSON.
pub fn json(bytes: &[u8]) -> bool {
    let (pointer, body) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (std::str::from_utf8(&bytes[..end]).unwrap_or("/a"), &bytes[end + 1..]),
        None => ("/a", bytes),
    };
    let values = [&b"{\"x\":[1]}"[..]];
    let mut is_json = false;
    for action in [Action::Set(0), Action::Add(0), Action::Remove] {
        let mut edits = JsonEdits::default();
        if edits.insert(pointer, action).is_err() && edits.insert("/a", action).is_err() {
            continue;
        }
        let edited = edits.apply(body, &values);
        let is_too_deep = matches!(edited, Err(JsonError::TooDeep));
        let is_refused = matches!(edited, Err(JsonError::Malformed(_)));
        // Nothing more is read of a body that is nested too deeply, or has no place for what is put in.
        if matches!(edited, Ok(_) | Err(JsonError::Malformed(_))) {
            assert_eq!(is_refused, !is_read(body), "{action:?}");
        }
        is_json = !is_refused && !is_too_deep;
        let Ok(Some(edited)) = edited else { continue };
        assert!(is_read(&edited), "{action:?}");
        let again = edits.apply(&edited, &values);
        let appends = matches!(action, Action::Add(_)) || pointer.contains("/-");
        let moves = action == Action::Remove && pointer.contains(|digit: char| digit.is_ascii_digit());
        let is_done = matches!(again, Ok(None) | Err(JsonError::TooDeep));
        assert!(appends || moves || is_done, "{action:?} {again:?}");
    }
    is_json
}

fn is_read(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Fields of a request; after a NUL, status and fields of its answer. Nothing panics, what is decided twice is decided alike, and nothing that
/// says `no-store` is stored. Says whether the answer is stored.
pub fn cache(bytes: &[u8]) -> bool {
    const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);
    let Some(end) = bytes.iter().position(|byte| *byte == 0) else { return false };
    let request = [b"GET / HTTP/1.1\r\nhost: h\r\n", &bytes[..end], b"\r\n\r\n"].concat();
    let answer = [b"HTTP/1.1 ", &bytes[end + 1..], b"\r\n\r\n"].concat();
    let (mut asked, mut answered) = (RequestHead::new(), ResponseHead::new());
    let limits = HeadLimits::default();
    if asked.parse(&request, &limits) != Ok(Progress::Complete)
        || answered.parse(&answer, &limits, Method::Get) != Ok(Progress::Complete)
    {
        return false;
    }
    let request = Request {
        provider: "stripe",
        tls: true,
        host: "h",
        port: 443,
        method: b"GET",
        path: b"/",
        query: None,
        fields: Fields::received(&asked.fields, &request),
        consumer: None,
        body: None,
    };
    let fields = Fields::received(&answered.fields, &answer);
    let response = Response { status: answered.status, fields, body: None };
    let policy = Policy::new(&CacheConfig::default(), "f", Arc::new(KeySecret::new(&[1; 32])));
    let place = cache::Place::default();
    let Ask::Look(question) = policy.ask(&request, &place) else { return false };
    let times = Times { sent: NOW, received: NOW };
    let receive = || policy.receive(&question, (&request, &place), &response, times, (&[], None));
    let verdict = receive();
    assert_eq!(verdict, receive());
    let cache::Action::Store(stored, ttl_s) = verdict.action else { return false };
    let says =
        |word: &str| fields.all(b"cache-control").any(|line| line.to_ascii_lowercase() == word.as_bytes());
    let is_targeted = fields.get(b"egret-cache-control").is_some();
    assert!(is_targeted || (!says("no-store") && !says("private")));
    let loaded = Stored::load(&stored.save(), &policy.targets().into());
    assert_eq!(loaded.map(|loaded| loaded.save()), Some(stored.save()));
    for later in [0, 1, 60, 86_400, 1 << 40] {
        let now = NOW + Duration::from_secs(later);
        let candidates = [Candidate { stored: &stored, len: Some(9) }];
        let decision = policy.decide(&question, &request, &candidates, now);
        assert_eq!(decision, policy.decide(&question, &request, &candidates, now));
        if let Decision::Serve(reply) = decision {
            assert!(
                reply.standing.age.as_secs() >= later
                    && (reply.standing.is_fresh() || question.wants.max_stale.is_some())
            );
            assert!(reply.standing.ttl_s() <= ttl_s);
            reply.write_fields(&stored, 9, &mut Vec::new());
            assert!(reply.content_length(&stored, 9).is_none_or(|len| len < 4_096));
        }
    }
    true
}

/// Bytes before the tags in the file of an entry, and where in them the length of the body stands, its
/// checksum, and that of the rest.
const FILE_HEAD: usize = 76;
const FILE_BODY_LEN: usize = 60;
const FILE_BODY_SUM: usize = 68;
const FILE_SUM: usize = 72;

/// Any bytes as the file of an entry on a cache's disk, as they are and with the checksums and the length
/// that they should have. Nothing panics; a file is read if a simple reader can read it, to the same, and not
/// if a byte is missing or one follows; and a response that is read back is saved as it was, and can be
/// served. Says whether the file, as it is, is that of a response.
pub fn cache_file(bytes: &[u8]) -> bool {
    if let Some(mended) = mended(bytes) {
        let simple = simple_file(&mended);
        let read = EntryFile::read(&mended);
        assert_eq!(read.is_some(), simple.is_some());
        if let (Some(file), Some((number, tags, kept, body))) = (read, simple) {
            assert_eq!((file.number, file.tags.len()), (number, tags));
            assert_eq!((&*file.kept, &*file.body), (kept, body));
            assert!(EntryFile::read(&mended[..mended.len() - 1]).is_none());
            assert!(EntryFile::read(&[&mended[..], b"x"].concat()).is_none());
            stored(&file.kept);
        }
    }
    EntryFile::read(bytes).is_some_and(|file| stored(&file.kept))
}

fn number_at(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// How long tags and kept bytes are together.
fn middle_len(bytes: &[u8]) -> Option<usize> {
    let len = number_at(bytes, 52, 4) + number_at(bytes, 56, 4);
    usize::try_from(len).ok().filter(|len| *len <= 4 << 20 && FILE_HEAD + len <= bytes.len())
}

/// The same with the length of the body and the checksums that belong to it.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut mended = bytes.to_vec();
    bytes.get(FILE_HEAD - 1)?;
    let body = bytes.get(FILE_HEAD + middle_len(bytes)?..)?;
    mended[FILE_BODY_LEN..FILE_BODY_SUM].copy_from_slice(&(body.len() as u64).to_le_bytes());
    mended[FILE_BODY_SUM..FILE_SUM].copy_from_slice(&crc32(body.iter()).to_le_bytes());
    let middle = &bytes[FILE_HEAD..bytes.len() - body.len()];
    let sum = crc32(mended[..FILE_SUM].iter().chain(middle));
    mended[FILE_SUM..FILE_HEAD].copy_from_slice(&sum.to_le_bytes());
    Some(mended)
}

/// The number, how many tags there are, what is kept, and the body of a file with good checksums.
fn simple_file(bytes: &[u8]) -> Option<(u64, usize, &[u8], &[u8])> {
    let tags_len = usize::try_from(number_at(bytes, 52, 4)).ok()?;
    let (middle, body) = bytes[FILE_HEAD..].split_at(middle_len(bytes)?);
    let (mut tags, kept) = middle.split_at(tags_len);
    let mut count = 0;
    while !tags.is_empty() {
        let len = usize::try_from(number_at(tags.get(..2)?, 0, 2)).ok()?;
        std::str::from_utf8(tags.get(2..2 + len)?).ok()?;
        tags = &tags[2 + len..];
        count += 1;
    }
    bytes.starts_with(b"ege1").then_some((number_at(bytes, 4, 8), count, kept, body))
}

/// CRC-32 as Ethernet has it, bit by bit.
fn crc32<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    !bytes.fold(!0, |sum, byte| {
        (0..8)
            .fold(sum ^ u32::from(*byte), |sum: u32, _| sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// Whether it is what was kept of a response.
fn stored(kept: &[u8]) -> bool {
    let targets: Box<[Box<str>]> = ["egret-cache-control".into()].into();
    let Some(stored) = Stored::load(kept, &targets) else { return false };
    let saved = stored.save();
    assert_eq!(Stored::load(&saved, &targets).map(|again| again.save()), Some(saved));
    let policy = Policy::new(&CacheConfig::default(), "f", Arc::new(KeySecret::new(&[1; 32])));
    let bytes = b"GET / HTTP/1.1\r\nhost: h\r\nrange: bytes=1-3\r\n\r\n";
    let mut head = RequestHead::new();
    assert_eq!(head.parse(bytes, &HeadLimits::default()), Ok(Progress::Complete));
    let request = Request {
        provider: "stripe",
        tls: true,
        host: "h",
        port: 443,
        method: b"GET",
        path: b"/",
        query: None,
        fields: Fields::received(&head.fields, bytes),
        consumer: None,
        body: None,
    };
    let Ask::Look(question) = policy.ask(&request, &cache::Place::default()) else { return true };
    for now_s in [0, 1_795_307_476, u64::from(u32::MAX)] {
        let candidates = [Candidate { stored: &stored, len: Some(9) }];
        let decision = policy.decide(&question, &request, &candidates, Timestamp::from_secs(now_s));
        if let Decision::Serve(reply) | Decision::ServeStale(reply, _) = decision {
            let mut lines = Vec::new();
            reply.write_fields(&stored, 9, &mut lines);
            // Each field is a line of its own.
            assert!(lines.is_empty() || lines.ends_with(b"\r\n"));
            assert!(
                lines
                    .split(|byte| *byte == b'\n')
                    .filter(|line| !line.is_empty())
                    .all(|line| line.contains(&b':'))
            );
        }
    }
    true
}
