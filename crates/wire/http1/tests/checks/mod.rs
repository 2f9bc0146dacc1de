//! Checks that hold for arbitrary bytes, shared by the property tests, the replay of the corpus and the fuzz
//! targets. Each check panics if a rule is broken. The reference implementations here are deliberately slow
//! and simple.
#![expect(clippy::expect_used, clippy::panic, reason = "a check fails by panicking")]

use egret_http1::{
    BodyDecoder, BodyError, Edits, Field, HeadError, HeadLimits, KnownField, LAST_CHUNK, MAX_FIELDS, Method,
    Progress, RequestFraming, RequestHead, ResponseFraming, ResponseHead, Span, chunk_head,
};

/// Limits on received heads.
const LIMITS: HeadLimits = HeadLimits { start_line: 8 * 1024, head: 32 * 1024, fields: 128 };
/// Limits on forwarded heads, which may be slightly longer.
const FORWARDED_LIMITS: HeadLimits = HeadLimits { start_line: 9 * 1024, head: 64 * 1024, fields: 200 };

/// Checks `bytes` as a request head and as a response head. Returns `true` if either was accepted.
pub fn head(bytes: &[u8]) -> bool {
    let request = request_head(bytes, &LIMITS);
    let responses = [Method::Get, Method::Head, Method::Connect].map(|method| response_head(bytes, method));
    request.is_some() || responses.iter().any(Option::is_some)
}

/// Checks `bytes` as a chunked body. Returns `true` if it was accepted.
pub fn chunk(bytes: &[u8]) -> bool {
    let whole = decode(BodyDecoder::chunked(), bytes, bytes.len());
    for step in [1, 2, 3, 7, 64] {
        assert_eq!(decode(BodyDecoder::chunked(), bytes, step), whole, "split by {step}");
    }
    let reference = reference_chunked(bytes);
    match &whole {
        Ok(body) if body.done => {
            assert_eq!(reference.as_ref(), Some(&(body.data.clone(), body.trailers.clone(), body.consumed)));
            let again = decode(BodyDecoder::chunked(), &encode(body, 5), usize::MAX);
            let again = again.expect("an encoded body decodes");
            assert_eq!((&again.data, &again.trailers, again.done), (&body.data, &body.trailers, true));
            true
        }
        _ => {
            assert_eq!(
                reference, None,
                "the reference sees a whole body where the decoder does not: {whole:?}"
            );
            false
        }
    }
}

/// Checks `bytes` as a sequence of messages, requests and responses. Returns `true` if the first one was
/// accepted.
pub fn message(bytes: &[u8]) -> bool {
    let requests = messages(bytes, request_message);
    let responses = messages(bytes, response_message);
    requests > 0 || responses > 0
}

/// Walks through up to eight messages and returns their number.
fn messages(mut bytes: &[u8], one: impl Fn(&[u8]) -> Option<usize>) -> usize {
    for count in 0..8 {
        match one(bytes) {
            Some(len) => bytes = &bytes[len..],
            None => return count,
        }
    }
    8
}

fn request_message(bytes: &[u8]) -> Option<usize> {
    let head = request_head(bytes, &LIMITS)?;
    let rest = &bytes[head.len..];
    let body = body(|| BodyDecoder::from(head.framing), rest)?;
    // The forwarded bytes must parse as the same message.
    let mut sent = forwarded_request(&head, bytes);
    let sent_head = sent.len();
    sent.extend_from_slice(&rewritten(&body, head.framing == RequestFraming::Chunked));
    let again = request_head(&sent, &FORWARDED_LIMITS).expect("a forwarded request is accepted");
    assert_eq!(again.len, sent_head);
    let received =
        self::body(|| BodyDecoder::from(again.framing), &sent[sent_head..]).expect("its body is accepted");
    assert_eq!((received.data, received.consumed), (body.data, sent.len() - sent_head));
    Some(head.len + body.consumed)
}

fn response_message(bytes: &[u8]) -> Option<usize> {
    let head = response_head(bytes, Method::Get)?;
    let body = body(|| BodyDecoder::from(head.framing), &bytes[head.len..])?;
    Some(head.len + body.consumed)
}

/// Decodes a complete body, and checks that every split of the input gives the same result.
fn body(decoder: impl Fn() -> BodyDecoder, bytes: &[u8]) -> Option<Body> {
    let whole = decode(decoder(), bytes, usize::MAX);
    assert_eq!(decode(decoder(), bytes, 1), whole);
    assert_eq!(decode(decoder(), bytes, 5), whole);
    whole.ok().filter(|body| body.done)
}

fn rewritten(body: &Body, chunked: bool) -> Vec<u8> {
    if chunked { encode(body, 1000) } else { body.data.clone() }
}

/// Renders the head as it is forwarded: without hop-by-hop fields, with new framing.
fn forwarded_request(head: &RequestHead, bytes: &[u8]) -> Vec<u8> {
    let mut edits = Edits::new();
    edits.remove_hop_by_hop(&head.fields);
    edits.start_line(&[head.method_text.of(bytes), b" ", head.target.of(bytes), b" HTTP/1.1"]);
    for (index, _) in head.fields.iter().enumerate().filter(|(_, field)| field.known == KnownField::Host) {
        edits.replace_value(index, b"[::1]:8000");
    }
    if head.host.is_none() {
        edits.insert("host", b"provider");
    }
    if head.framing == RequestFraming::Chunked {
        edits.insert("transfer-encoding", b"chunked");
    }
    head.render(bytes, &edits).to_vec()
}

// === heads ===

fn request_head(bytes: &[u8], limits: &HeadLimits) -> Option<RequestHead> {
    let parse = |head: &mut RequestHead, bytes: &[u8]| head.parse(bytes, limits);
    let whole = parse_in_steps(bytes, bytes.len(), parse);
    for step in [1, 13] {
        check_same_outcome(&whole, &parse_in_steps(bytes, step, parse), |head| format!("{head:?}"));
    }
    let mut used = RequestHead::new();
    check_reused(bytes, |bytes| {
        let mut fresh = RequestHead::new();
        used.reset();
        [&mut used, &mut fresh].map(|head| {
            let parsed = head.parse(bytes, limits);
            let RequestHead { fields, host, framing, len, persistent, upgrade, .. } = &*head;
            let rest = (head.te_trailers, head.expect_continue);
            let shown = || format!("{:?}", (fields, host, framing, len, persistent, upgrade, rest));
            (parsed, (parsed == Ok(Progress::Complete)).then(shown))
        })
    });
    let head = whole.ok().flatten()?;
    let lines =
        check_lines(&bytes[..head.len], head.fields.iter().map(|field| (field.name, field.value)), bytes);
    assert_eq!(head.framing, reference_framing(&lines));
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Request::new(&mut headers);
    assert_eq!(
        other.parse(bytes),
        Ok(httparse::Status::Complete(head.len)),
        "another parser sees the same head"
    );
    assert_eq!(other.method.map(str::as_bytes), Some(head.method_text.of(bytes)));
    assert_eq!(other.path.map(str::as_bytes), Some(head.target.of(bytes)));
    check_same_fields(other.headers, &head.fields, bytes);
    let hosts = lines.iter().filter(|(name, _)| name == b"host").count();
    assert!(hosts == 1 || (hosts == 0 && head.version == egret_http1::Version::Http10));

    let edits = Edits::new();
    let skipped = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    assert_eq!(
        head.render(bytes, &edits).to_vec(),
        &bytes[skipped..head.len],
        "without edits the head is as received"
    );

    let sent = forwarded_request(&head, bytes);
    let mut again = RequestHead::new();
    assert_eq!(again.parse(&sent, &FORWARDED_LIMITS), Ok(Progress::Complete));
    assert_eq!((again.framing, again.len), (head.framing, sent.len()));
    assert_eq!((again.method, again.target.of(&sent)), (head.method, head.target.of(bytes)));
    Some(head)
}

fn response_head(bytes: &[u8], method: Method) -> Option<ResponseHead> {
    let parse = |head: &mut ResponseHead, bytes: &[u8]| head.parse(bytes, &LIMITS, method);
    let whole = parse_in_steps(bytes, bytes.len(), parse);
    for step in [1, 13] {
        check_same_outcome(&whole, &parse_in_steps(bytes, step, parse), |head| format!("{head:?}"));
    }
    let mut used = ResponseHead::new();
    check_reused(bytes, |bytes| {
        let mut fresh = ResponseHead::new();
        used.reset();
        [&mut used, &mut fresh].map(|head| {
            let parsed = head.parse(bytes, &LIMITS, method);
            let ResponseHead { fields, framing, len, persistent, upgrade, .. } = &*head;
            let rest = (head.keep_alive_timeout_s, head.keep_alive_max);
            let shown = || format!("{:?}", (fields, framing, len, persistent, upgrade, rest));
            (parsed, (parsed == Ok(Progress::Complete)).then(shown))
        })
    });
    let head = whole.ok().flatten()?;
    let lines =
        check_lines(&bytes[..head.len], head.fields.iter().map(|field| (field.name, field.value)), bytes);
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Response::new(&mut headers);
    assert_eq!(
        other.parse(bytes),
        Ok(httparse::Status::Complete(head.len)),
        "another parser sees the same head"
    );
    assert_eq!(other.code, Some(head.status));
    check_same_fields(other.headers, &head.fields, bytes);
    assert!((100..1000).contains(&head.status));
    let expected = match reference_framing(&lines) {
        _ if head.status < 200 || matches!(head.status, 204 | 304) || method == Method::Head => {
            ResponseFraming::None
        }
        _ if method == Method::Connect && head.status < 300 => ResponseFraming::None,
        RequestFraming::Chunked => ResponseFraming::Chunked,
        RequestFraming::Length(length) => ResponseFraming::Length(length),
        RequestFraming::None => ResponseFraming::UntilClose,
    };
    assert_eq!(head.framing, expected);

    let edits = Edits::new();
    assert_eq!(
        head.render(bytes, &edits).to_vec(),
        &bytes[..head.len],
        "without edits the head is as received"
    );
    Some(head)
}

/// Checks that httparse, a more lenient parser, finds the same fields in an accepted head.
fn check_same_fields(headers: &[httparse::Header<'_>], fields: &[Field], bytes: &[u8]) {
    let theirs = headers.iter().map(|header| (header.name.as_bytes(), header.value));
    let ours = fields.iter().map(|field| (field.name.of(bytes), field.value.of(bytes)));
    assert!(theirs.eq(ours), "the fields are the same");
}

/// Feeds a parser ever more of `bytes`. Returns the head once it is complete, `None` if it never is.
fn parse_in_steps<Head: Default>(
    bytes: &[u8],
    step: usize,
    parse: impl Fn(&mut Head, &[u8]) -> Result<Progress, HeadError>,
) -> Result<Option<Head>, HeadError> {
    let mut head = Head::default();
    let mut end = 0;
    while end < bytes.len() {
        end = bytes.len().min(end + step.max(1));
        if parse(&mut head, &bytes[..end])? == Progress::Complete {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// Checks that the heads before a head make no difference to it: neither the same head nor one with a byte
/// changed. `parse` parses with a value that is kept, and with a fresh one.
fn check_reused(
    bytes: &[u8],
    mut parse: impl FnMut(&[u8]) -> [(Result<Progress, HeadError>, Option<String>); 2],
) {
    for quarter in 0..4 {
        let mut near = bytes.to_vec();
        if let Some(byte) = near.get_mut(bytes.len() * quarter / 4) {
            *byte ^= 1 << quarter;
        }
        for head in [bytes, &near, &near, &near, bytes, bytes] {
            let [used, fresh] = parse(head);
            assert_eq!(used, fresh, "{}", head.escape_ascii());
        }
    }
}

/// Checks that splitting the input changes neither acceptance nor the result. An error may occur later, or be
/// a different one.
fn check_same_outcome<Head>(
    whole: &Result<Option<Head>, HeadError>,
    split: &Result<Option<Head>, HeadError>,
    show: impl Fn(&Head) -> String,
) {
    match (whole, split) {
        (Ok(Some(whole)), Ok(Some(split))) => assert_eq!(show(whole), show(split)),
        (Ok(None), Ok(None)) | (Err(_), Err(_) | Ok(None)) => {}
        (whole, split) => {
            panic!("{:?} when whole, {:?} when split", whole.as_ref().err(), split.as_ref().err())
        }
    }
}

/// Parses an accepted head in the simplest way, compares it with the result, and returns the fields, names in
/// lower case.
fn check_lines(
    head: &[u8],
    fields: impl Iterator<Item = (Span, Span)>,
    buffer: &[u8],
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let text = head.strip_prefix(b"\r\n").unwrap_or(head);
    let text = text.strip_suffix(b"\r\n\r\n").expect("a head ends in an empty line");
    assert!(!text.contains(&0));
    let mut lines: Vec<&[u8]> = Vec::new();
    for line in text.split(|&byte| byte == b'\n') {
        lines.push(line.strip_suffix(b"\r").unwrap_or(line));
    }
    assert_eq!(lines.join(&b"\r\n"[..]), text, "every line ends in CRLF");
    assert!(lines.iter().all(|line| !line.is_empty() && !line.contains(&b'\r')));
    let read: Vec<_> = lines[1..]
        .iter()
        .map(|line| {
            let colon = line.iter().position(|&byte| byte == b':').expect("every field has a colon");
            (line[..colon].to_vec(), trimmed(&line[colon + 1..]).to_vec())
        })
        .collect();
    let found: Vec<_> =
        fields.map(|(name, value)| (name.of(buffer).to_vec(), value.of(buffer).to_vec())).collect();
    assert_eq!(read, found);
    read.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect()
}

fn trimmed(mut bytes: &[u8]) -> &[u8] {
    while let Some((b' ' | b'\t', rest)) = bytes.split_first() {
        bytes = rest;
    }
    while let Some((b' ' | b'\t', rest)) = bytes.split_last() {
        bytes = rest;
    }
    bytes
}

/// Returns the framing that the fields of an accepted head imply. Panics if they should have been rejected.
fn reference_framing(fields: &[(Vec<u8>, Vec<u8>)]) -> RequestFraming {
    let values = |wanted: &[u8]| -> Vec<&[u8]> {
        fields.iter().filter(|(name, _)| name == wanted).map(|(_, value)| &value[..]).collect()
    };
    match (&values(b"content-length")[..], &values(b"transfer-encoding")[..]) {
        ([], []) => RequestFraming::None,
        ([], [coding]) => {
            assert_eq!(coding.to_ascii_lowercase(), b"chunked");
            RequestFraming::Chunked
        }
        ([digits], []) => {
            assert!(digits.iter().all(u8::is_ascii_digit), "a length is plain digits");
            let digits = std::str::from_utf8(digits).expect("digits are text");
            RequestFraming::Length(digits.parse().expect("a length fits"))
        }
        (lengths, codings) => panic!("accepted with {} lengths and {} codings", lengths.len(), codings.len()),
    }
}

// === bodies ===

/// The output of a decoder.
#[derive(Debug, PartialEq, Eq)]
pub struct Body {
    /// The data, joined.
    pub data: Vec<u8>,
    /// The trailer lines.
    pub trailers: Vec<u8>,
    /// Bytes consumed.
    pub consumed: usize,
    /// `true` if the body ended.
    pub done: bool,
}

/// Runs `decoder` over `bytes`, `step` bytes at a time.
pub fn decode(mut decoder: BodyDecoder, bytes: &[u8], step: usize) -> Result<Body, BodyError> {
    let mut data = Vec::new();
    let mut consumed = 0;
    let mut spans = Vec::new();
    for piece in bytes.chunks(step.max(1)) {
        spans.clear();
        let taken = decoder.decode(piece, &mut spans)?;
        for span in &spans {
            assert!(!span.is_empty() && span.end as usize <= taken);
            data.extend_from_slice(span.of(piece));
        }
        consumed += taken;
        if decoder.is_done() {
            break;
        }
        assert_eq!(taken, piece.len(), "only the end of the body stops the decoder");
    }
    Ok(Body { data, trailers: decoder.trailers().to_vec(), consumed, done: decoder.is_done() })
}

/// Encodes a body in chunks of up to `size` bytes, with its trailers.
pub fn encode(body: &Body, size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in body.data.chunks(size) {
        out.extend_from_slice(chunk_head(chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(LAST_CHUNK);
    out.extend_from_slice(&body.trailers);
    out.extend_from_slice(b"\r\n");
    out
}

/// Returns data, trailers and length of a complete, well-formed chunked body.
fn reference_chunked(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>, usize)> {
    let mut data = Vec::new();
    let mut extensions = 0;
    let mut at = 0;
    loop {
        let line = reference_line(bytes, &mut at)?;
        let (digits, extension) = match line.iter().position(|&byte| byte == b';') {
            Some(semicolon) => (&line[..semicolon], &line[semicolon + 1..]),
            None => (line, &[][..]),
        };
        extensions += extension.len();
        let plain = (1..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        if !plain
            || extension.iter().any(u8::is_ascii_control)
            || extensions > egret_http1::MAX_CHUNK_EXTENSIONS
        {
            return None;
        }
        let size = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        let end = at.checked_add(usize::try_from(size).ok()?)?;
        data.extend_from_slice(bytes.get(at..end)?);
        at = end;
        if !reference_line(bytes, &mut at)?.is_empty() {
            return None;
        }
    }
    let start = at;
    let mut fields = 0;
    loop {
        let line_start = at;
        let line = reference_line(bytes, &mut at)?;
        if line.is_empty() {
            return Some((data, bytes[start..line_start].to_vec(), at));
        }
        let name = &line[..line.iter().position(|&byte| byte == b':')?];
        let token = |byte: &u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte);
        let text = line.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control());
        fields += 1;
        let short = fields <= egret_http1::MAX_TRAILER_FIELDS && at - start <= egret_http1::MAX_TRAILER_BYTES;
        if name.is_empty() || !name.iter().all(token) || !text || !short {
            return None;
        }
    }
}

/// Returns the line at `at` and moves `at` past its CRLF. A line that contains a CR or LF is invalid.
fn reference_line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = bytes.get(*at..)?;
    let len = rest.windows(2).position(|pair| pair == b"\r\n")?;
    *at += len + 2;
    let line = &rest[..len];
    (!line.contains(&b'\r') && !line.contains(&b'\n')).then_some(line)
}
