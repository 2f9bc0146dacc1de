//! Invariants for arbitrary input: expressions, edited JSON bodies, caching fields, cache files, responses of
//! token endpoints, and signatures. Shared by the fuzz targets and the corpus.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use egret_accounts::token::{TokenResponse, TokenState, TokenTurn, TokenWaiter};
use egret_accounts::{Account, AccountConfig, Accounts, Applied, Outgoing, Sigv4Config};
use egret_cache::{
    CacheConfig, CallTimes, Candidate, Decision, KeySecret, Lookup, Policy, Stored, TimedResponse,
};
use egret_clock::Timestamp;
use egret_config::{Secret, Size};
use egret_http1::{HeadLimits, Method, Progress, RequestHead, ResponseHead};
use egret_json::JsonError;
use egret_json::edit::{Action, JsonEdits};
use egret_match::Parameters;
use egret_match::expression::{Expression, ExpressionValue, Inputs, Scope, Stage};
use egret_match::template::{Escape, Identifiers, Template};
use egret_message::{Changes, Fields, KnownProvider, Request, Response};
use egret_store::entries::{EntryFile, StoredValue as _};
use serde::de::IgnoredAny;

const SCOPE: Scope<'_> = Scope { stage: Stage::Response, parameters: &["id"] };

/// Checks an expression: nothing panics, nothing runs long, and its value does not change. The first line, up
/// to a NUL, is an expression and a template; the rest is a body. Returns `true` if the expression compiled.
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
        upgrade: false,
        body: Some(body),
    };
    let response = Response { status: 429, fields, body: Some(body) };
    let (parameters, now) = (Parameters::default(), Timestamp::from_secs(1_000_000));
    let inputs = Inputs {
        request: &request,
        response: Some(&response),
        parameters,
        attempt: 1,
        now,
        usage: None,
        ended: None,
    };
    template(source, &inputs);
    evaluate::<String>(source, &inputs);
    evaluate::<u64>(source, &inputs);
    evaluate::<bool>(source, &inputs)
}

fn evaluate<T: ExpressionValue + PartialEq + std::fmt::Debug>(source: &str, inputs: &Inputs<'_>) -> bool {
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
    for escape in [Escape::Text, Escape::Json, Escape::Field, Escape::Url] {
        if let Ok(template) = Template::compile(source, escape, SCOPE, "body") {
            let identifiers = Identifiers { request_id: b"id", new_uuid: || None };
            let _ = template.render(inputs, &identifiers, &mut Vec::new());
        }
    }
}

/// Checks edits of JSON. The input is a pointer, a NUL and a body, or a body alone. An edited body is JSON
/// for every parser and stays JSON; an inserted value is present once, and a removed one is gone for good.
/// Returns `true` if the body is JSON.
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
        // Reading stops early at a body that is nested too deeply, or that has no place for the inserted
        // value.
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

/// Checks the cache policy. The input is request fields, a NUL, and status and fields of the response.
/// Nothing panics, equal inputs give equal decisions, and no response with `no-store` is stored. Returns
/// `true` if the response is stored.
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
        upgrade: false,
        body: None,
    };
    let fields = Fields::received(&answered.fields, &answer);
    let response = Response { status: answered.status, fields, body: None };
    let policy = Policy::new(&CacheConfig::default(), "f", Arc::new(KeySecret::new(&[1; 32])));
    let context = egret_cache::KeyContext::default();
    let Lookup::Look(question) = policy.look_up(&request, &context) else { return false };
    let response = TimedResponse { response: &response, times: CallTimes { sent: NOW, received: NOW } };
    let receive = || policy.receive(&question, &request, &context, response, &[], None);
    let verdict = receive();
    assert_eq!(verdict, receive());
    let egret_cache::Action::Store(stored, ttl_s) = verdict.action else { return false };
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
                reply.freshness.age.as_secs() >= later
                    && (reply.freshness.is_fresh() || question.wants.max_stale.is_some())
            );
            assert!(reply.freshness.ttl_s() <= ttl_s);
            reply.write_fields(&stored, 9, &mut Vec::new());
            assert!(reply.content_length(&stored, 9).is_none_or(|len| len < 4_096));
        }
    }
    true
}

/// Number of bytes before the tags in an entry's file, and the offsets of the body's length, of the body's
/// checksum, and of the checksum of the rest.
const FILE_HEAD: usize = 76;
const FILE_BODY_LEN: usize = 60;
const FILE_BODY_SUM: usize = 68;
const FILE_SUM: usize = 72;

/// Checks any bytes as the file of an entry on a cache's disk, both unchanged and with corrected checksums
/// and length. Nothing panics. A file is readable exactly if a simple reader can read it, with the same
/// result; a missing or extra byte makes it unreadable. A response that is read is saved unchanged and can be
/// served. Returns `true` if the unchanged file is that of a response.
pub fn cache_file(bytes: &[u8]) -> bool {
    if let Some(repaired) = repaired(bytes) {
        let simple = simple_file(&repaired);
        let read = EntryFile::read(&repaired);
        assert_eq!(read.is_some(), simple.is_some());
        if let (Some(file), Some((number, tags, kept, body))) = (read, simple) {
            assert_eq!((file.number, file.tags.len()), (number, tags));
            assert_eq!((&*file.value, &*file.body), (kept, body));
            assert!(EntryFile::read(&repaired[..repaired.len() - 1]).is_none());
            assert!(EntryFile::read(&[&repaired[..], b"x"].concat()).is_none());
            stored(&file.value);
        }
    }
    EntryFile::read(bytes).is_some_and(|file| stored(&file.value))
}

fn number_at(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the total length of tags and metadata.
fn middle_len(bytes: &[u8]) -> Option<usize> {
    let len = number_at(bytes, 52, 4) + number_at(bytes, 56, 4);
    usize::try_from(len).ok().filter(|len| *len <= 4 << 20 && FILE_HEAD + len <= bytes.len())
}

/// Returns the file with the correct body length and checksums.
fn repaired(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut repaired = bytes.to_vec();
    bytes.get(FILE_HEAD - 1)?;
    let body = bytes.get(FILE_HEAD + middle_len(bytes)?..)?;
    repaired[FILE_BODY_LEN..FILE_BODY_SUM].copy_from_slice(&(body.len() as u64).to_le_bytes());
    repaired[FILE_BODY_SUM..FILE_SUM].copy_from_slice(&crc32(body.iter()).to_le_bytes());
    let middle = &bytes[FILE_HEAD..bytes.len() - body.len()];
    let sum = crc32(repaired[..FILE_SUM].iter().chain(middle));
    repaired[FILE_SUM..FILE_HEAD].copy_from_slice(&sum.to_le_bytes());
    Some(repaired)
}

/// Reads a file with valid checksums. Returns its number, the number of tags, the metadata and the body.
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

/// Calculates the CRC-32 of Ethernet, bit by bit.
fn crc32<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    !bytes.fold(!0, |sum, byte| {
        (0..8)
            .fold(sum ^ u32::from(*byte), |sum: u32, _| sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// Returns `true` if `kept` is the metadata of a response.
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
        upgrade: false,
        body: None,
    };
    let Lookup::Look(question) = policy.look_up(&request, &egret_cache::KeyContext::default()) else {
        return true;
    };
    for now_s in [0, 1_795_307_476, u64::from(u32::MAX)] {
        let candidates = [Candidate { stored: &stored, len: Some(9) }];
        let decision = policy.decide(&question, &request, &candidates, Timestamp::from_secs(now_s));
        if let Decision::Serve(reply) | Decision::ServeStale(reply, _) = decision {
            let mut lines = Vec::new();
            reply.write_fields(&stored, 9, &mut lines);
            // Each field is on its own line.
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
const NOW: Timestamp = Timestamp::from_secs(1_440_938_160);
/// Maximum lifetime and maximum length of an accepted token.
const LIFE_MAX: Duration = Duration::from_hours(30 * 24);
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Creates one account of the provider `one`, with the number 0.
fn account(config: AccountConfig) -> Accounts {
    let provider = serde_json::from_value("one".into()).unwrap();
    let config = AccountConfig { provider, ..config };
    let (providers, mut problems) = ([KnownProvider { name: "one", host: None, tls: true }], Vec::new());
    let accounts = Accounts::compile(
        &[("a".to_owned(), config)].into(),
        &providers,
        egret_store::SharedState::default(),
        None,
        &mut problems,
    );
    assert!(problems.is_empty(), "{problems:?}");
    accounts
}

fn outgoing<'a>(path: &'a [u8], query: Option<&'a [u8]>, fields: Fields<'a>) -> Outgoing<'a> {
    let (method, host, base) = (&b"GET"[..], &b"example.amazonaws.com"[..], &b""[..]);
    Outgoing { now: NOW, tls: true, method, host, base, path, query, fields, body: Some(b"") }
}

/// Checks the response of a token endpoint. The input is a status, optionally a space and `Retry-After`, then
/// a NUL and the body. A token is accepted only if it is valid in a header field, another parser finds the
/// same one, and its lifetime is within the limits. Without a token nothing is sent. Returns `true` if a
/// token was accepted.
pub fn token(bytes: &[u8]) -> bool {
    let Some(end) = bytes.iter().position(|byte| *byte == 0) else { return false };
    let (head, body) = (&bytes[..end], &bytes[end + 1..]);
    let mut words = head.splitn(2, |byte| *byte == b' ');
    let status =
        words.next().and_then(|status| std::str::from_utf8(status).ok()?.parse().ok()).unwrap_or(200);
    let answered = TokenResponse { status, retry_after: words.next(), body };
    let (accounts, again) = (fetched(answered), fetched(answered));
    let (account, again) = (accounts.get(0).unwrap(), again.get(0).unwrap());
    let (seen, seen_again) = (account.token_snapshot(NOW).unwrap(), again.token_snapshot(NOW).unwrap());
    assert_eq!(
        (seen.state, seen.expires_at, seen.error),
        (seen_again.state, seen_again.expires_at, seen_again.error)
    );
    let mut applied = Applied::default();
    let is_sent = account.apply(&outgoing(b"/", None, Fields::received(&[], b"")), &mut applied).is_ok();
    let Some(expires_at) = seen.expires_at else {
        assert!(!is_sent && seen.state == TokenState::Missing && seen.error.is_some());
        assert!(seen.retry_at.is_some_and(|retry_at| retry_at > NOW));
        return false;
    };
    assert!(is_sent && seen.state == TokenState::Good && (200..300).contains(&status));
    assert!(expires_at > NOW && expires_at <= NOW + LIFE_MAX);
    assert_eq!(account.token_snapshot(expires_at).unwrap().state, TokenState::Expired);
    let (name, value) = applied.fields.added().next().unwrap();
    assert_eq!(name, b"authorization");
    let token = std::str::from_utf8(value.strip_prefix(b"Bearer ").unwrap()).unwrap();
    assert!(
        (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
    );
    match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(read) => assert_eq!(read["access_token"], token),
        // In a member that is not used: half a surrogate pair (RFC 8259 §8.2), or a number out of range (§6).
        Err(error) => {
            let has_surrogate = body.windows(3).any(|escape| escape.eq_ignore_ascii_case(b"\\ud"));
            assert!(has_surrogate || error.to_string().starts_with("number out of range"), "{error}");
        }
    }
    assert!(token.len() < 16 || !format!("{account:?}").contains(token), "the token is shown");
    true
}

/// Creates accounts whose first token request got this response.
fn fetched(answered: TokenResponse<'_>) -> Accounts {
    let oauth2 = serde_json::json!({ "token_url": "https://id.example/token", "client_id": "me" });
    let accounts = account(AccountConfig {
        oauth2: Some(serde_json::from_value(oauth2).unwrap()),
        ..AccountConfig::default()
    });
    let token = accounts.get(0).and_then(Account::token).unwrap();
    let cx = Context::from_waker(Waker::noop());
    let elected = match token.poll(&mut TokenWaiter::default(), NOW, &cx) {
        TokenTurn::Wait(fetch, _) => fetch,
        TokenTurn::Ready(_) | TokenTurn::Refused(_) => None,
    };
    elected.unwrap().end(NOW, Ok(answered));
    accounts
}

/// Checks signatures. The input is a request target, a NUL, and lines of fields. Equivalent spellings of path
/// and query, any order of parameters and any spacing of fields give the same canonical form and the same
/// signature; a different meaning gives a different signature. Returns `true` if the request can be signed.
pub fn signature(bytes: &[u8]) -> bool {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (target, lines) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (path, query) = match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    };
    // A slash is put before a path without one; an encoded slash would then mean something else.
    if decoded(path).starts_with(b"/") && !path.starts_with(b"/") {
        return false;
    }
    let mut is_signed = true;
    for service in ["s3", "execute-api"] {
        let accounts = account(AccountConfig { sigv4: Some(sigv4(service)), ..AccountConfig::default() });
        let signed = |path: &[u8], query: Option<&[u8]>, more: &[u8]| {
            sign(accounts.get(0).unwrap(), path, query, &[more, lines].concat())
        };
        let Some(first) = signed(path, query, b"") else {
            is_signed = false;
            continue;
        };
        assert_eq!(Some(&first), signed(path, query, b"").as_ref());
        let mut pairs: Vec<Vec<u8>> = pairs(query.unwrap_or_default());
        assert_eq!(
            Some(&first),
            signed(path, Some(&pairs.join(&b'&')), b"").as_ref(),
            "with another encoding"
        );
        pairs.reverse();
        assert_eq!(Some(&first), signed(path, Some(&pairs.join(&b'&')), b"").as_ref(), "in another order");
        pairs.push(b"%7A=1".to_vec());
        assert_ne!(
            Some(&first),
            signed(path, Some(&pairs.join(&b'&')), b"").as_ref(),
            "with another parameter"
        );
        let same = if service == "s3" { spelt(&decoded(path), b"/") } else { normalized(path) };
        assert_eq!(Some(&first), signed(&same, query, b"").as_ref(), "the path means the same");
        assert_ne!(
            Some(&first),
            signed(&[path, b"x"].concat(), query, b"").as_ref(),
            "the path means something else"
        );
        let spaced = signed(path, query, b"x-amz-zz:  a \t b \r\n");
        assert_eq!(spaced, signed(path, query, b"X-Amz-ZZ: a b\r\n"));
        assert!(spaced.is_none_or(|spaced| spaced != first));
    }
    is_signed
}

fn sigv4(service: &str) -> Sigv4Config {
    let secret = |value: &str| Secret::from_value("${env:TEST}", value.to_owned());
    Sigv4Config {
        access_key_id: Some(secret("AKIDEXAMPLE")),
        secret_access_key: Some(secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")),
        session_token: None,
        identity: None,
        region: "us-east-1".to_owned(),
        service: service.to_owned(),
        content_sha256: false,
        body: Size::from_kib(1),
    }
}

/// Returns the fields that sign a request, or `None` if the request is invalid or cannot be signed. Asserts
/// that they are valid in a head.
fn sign(
    account: &Account,
    path: &[u8],
    query: Option<&[u8]>,
    lines: &[u8],
) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let head = [b"GET / HTTP/1.1\r\nHost: h\r\n", lines, b"\r\n\r\n"].concat();
    let mut asked = RequestHead::new();
    if asked.parse(&head, &HeadLimits::default()) != Ok(Progress::Complete) {
        return None;
    }
    let (fields, mut applied) = (Fields::received(&asked.fields, &head), Applied::default());
    account.apply(&outgoing(path, query, fields), &mut applied).ok()?;
    let added: Vec<_> = applied.fields.added().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    assert!(added.iter().all(|(_, value)| value.iter().all(|byte| (0x20..0x7f).contains(byte))));
    let (_, authorization) = added.iter().find(|(name, _)| name == b"authorization").unwrap();
    let signature = authorization.rsplit(|byte| *byte == b'=').next().unwrap();
    assert!(signature.len() == 64 && signature.iter().all(u8::is_ascii_hexdigit));
    Some(added)
}

/// Returns the parameters of a query, with every byte percent-encoded.
fn pairs(query: &[u8]) -> Vec<Vec<u8>> {
    let plus =
        |part: &[u8]| part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect::<Vec<_>>();
    let pairs = query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let [name, value] = std::array::from_fn(|_| decoded(&plus(halves.next().unwrap_or_default())));
        [spelt(&name, b""), spelt(&value, b"")].join(&b'=')
    });
    pairs.collect()
}

/// Percent-encodes every byte except those in `kept`.
fn spelt(bytes: &[u8], kept: &[u8]) -> Vec<u8> {
    let spell =
        |byte: &u8| if kept.contains(byte) { vec![*byte] } else { format!("%{byte:02x}").into_bytes() };
    bytes.iter().flat_map(spell).collect()
}

/// Decodes percent-encoding. A `%` without two hexadecimal digits is kept.
fn decoded(bytes: &[u8]) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), bytes);
    while let [byte, after @ ..] = rest {
        let digit = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        let (octet, left) = match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => (u8::try_from(high << 4 | low).unwrap(), &after[2..]),
            _ => (*byte, after),
        };
        decoded.push(octet);
        rest = left;
    }
    decoded
}

/// Returns a path without empty and dot segments (RFC 3986 §5.2.4).
fn normalized(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let end: &[u8] = if path.ends_with(b"/") && !segments.is_empty() { b"/" } else { b"" };
    [b"/", &*segments.join(&b'/'), end].concat()
}
