//! Records exchanges: writes an observed exchange as one line of JSON, a HAR 1.2 entry with redacted values.
//!
//! It writes bytes directly, and caches the output of each value, so most of an entry is copied. The rules
//! for values are those of [`Obfuscator`](crate::Obfuscator), as for any HAR file. A recorder belongs to one
//! thread.

mod body;
mod characters;
mod coding;
mod completeness;
mod mask;
mod pieces;
mod url;

use std::borrow::Cow;
use std::cell::RefCell;

use body::KeptBody;
use characters::utf8_or_latin1;
use coding::is_coded;
use egret_clock::{cookie_date, rfc3339};
use egret_items::opaque;
use egret_json::write_escaped;
use pieces::{address, millis, number, text};
use serde::Serialize;
use zeroize::Zeroize as _;

use crate::detect::{holds_secret, is_uuid};
use crate::har::{Cookie, NameValue};
use crate::key::Key;
use crate::memo::{LastFields, Memo, MemoKey, MemoKind};
use crate::obfuscate::{MARK, MessageKind, is_same_site};
use crate::observed::{
    Captured, HttpVersion, Notes, Observed, ObservedField, ObservedRequest, ObservedResponse, Phases,
};
use crate::recording::{Bodies, Recording};
use crate::redact::Redact;

pub use completeness::Completeness;
pub use mask::Mask;

/// Media type written for messages without one.
const NO_MEDIA_TYPE: &[u8] = b"x-unknown";

/// Returns a body without its content codings. Returns `None` if the body was not kept as a whole, a coding
/// is unknown, or it is longer than `bytes_max`.
pub fn whole_body<'a>(body: &Captured<'a>, codings: &[u8], bytes_max: usize) -> Option<Cow<'a, [u8]>> {
    if !body.is_whole || body.bytes.len() > bytes_max {
        return None;
    }
    let decoded = coding::decode(body.bytes, true, codings, bytes_max);
    (decoded.completeness == Completeness::Whole).then_some(decoded.bytes)
}

/// Returns a body without its content codings as far as it can be decoded, up to `bytes_max`. Returns `None`
/// if it has none, or if one is unknown.
pub fn decoded_body(body: &Captured<'_>, codings: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    if !is_coded(codings) {
        return None;
    }
    let decoded = coding::decode(body.bytes, body.is_whole, codings, bytes_max);
    (decoded.completeness != Completeness::Coded).then(|| decoded.bytes.into_owned())
}

/// Writes exchanges as HAR entries.
#[derive(Debug)]
pub struct Recorder {
    redaction: Box<dyn Redact>,
    memo: RefCell<Memo>,
    /// The last fields of requests, and of responses.
    last_fields: [LastFields; 2],
    started: rfc3339::SecondWriter,
    recording: Recording,
    /// The [`MARK`] field with its value and the comma before it.
    mark: Vec<u8>,
    /// Number of bodies written, for each of [`Completeness::ALL`].
    bodies: [u64; Completeness::ALL.len()],
    buffers: Buffers,
}

/// Reused buffers.
#[derive(Default)]
struct Buffers {
    text: String,
    parameter: Vec<u8>,
    parameters: Vec<u8>,
}

opaque!(Buffers);

impl Drop for Buffers {
    fn drop(&mut self) {
        self.text.zeroize();
        self.parameter.zeroize();
        self.parameters.zeroize();
    }
}

/// Header fields whose values are needed elsewhere in the entry. The last field of each name counts.
#[derive(Default)]
struct HeaderSummary<'a> {
    media_type: Option<&'a [u8]>,
    location: Option<&'a [u8]>,
    codings: Option<&'a [u8]>,
    has_cookies: bool,
}

impl Recorder {
    /// Returns a recorder for this recording. It caches values until it is dropped, so each key needs a
    /// recorder of its own.
    pub fn new(key: Key, recording: &Recording) -> Self {
        let redaction = recording.redaction(key);
        let mark = redaction.as_obfuscator().map_or_else(Vec::new, |obfuscator| {
            format!(",\"{MARK}\":\"hmac-sha256:{}\"", obfuscator.key_id()).into_bytes()
        });
        Self {
            redaction,
            memo: RefCell::new(Memo::new()),
            last_fields: Default::default(),
            started: rfc3339::SecondWriter::default(),
            recording: recording.clone(),
            mark,
            bodies: Default::default(),
            buffers: Buffers::default(),
        }
    }

    /// Number of bodies written, by the way they ended, for each of [`Completeness::ALL`].
    pub fn bodies(&self) -> &[u64; Completeness::ALL.len()] {
        &self.bodies
    }

    /// Appends the members `url` and `queryString` of a request, each after a comma.
    pub fn write_url(&mut self, request: &ObservedRequest<'_>, out: &mut Vec<u8>) {
        self.url(request, out);
    }

    /// Appends the members `request` and `response` of an entry, each after a comma, as far as there are such
    /// messages.
    pub fn write_messages(
        &mut self,
        request: Option<&ObservedRequest<'_>>,
        response: Option<&ObservedResponse<'_>>,
        out: &mut Vec<u8>,
    ) {
        if let Some(request) = request {
            self.request(request, "", out);
        }
        if let Some(response) = response {
            self.response(response, "", out);
        }
    }

    /// Appends the entry of an exchange: one object, without a line end.
    pub fn write(&mut self, exchange: &Observed<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"startedDateTime\":\"");
        self.started.write_unix_us(exchange.started_unix_us, out);
        out.extend_from_slice(b"\",\"time\":");
        millis(total_us(&exchange.phases), out);
        let id = exchange.notes.request_id;
        let id = if is_uuid(id.as_bytes()) { id } else { "" };
        self.request(&exchange.request, id, out);
        match &exchange.response {
            Some(response) => self.response(response, id, out),
            None => out.extend_from_slice(
                b",\"response\":{\"status\":0,\"statusText\":\"\",\"httpVersion\":\"\",\"headers\":[],\"cookies\":[],\
                \"content\":{\"size\":0,\"mimeType\":\"x-unknown\"},\"redirectURL\":\"\",\"headersSize\":-1,\"bodySize\":-1}",
            ),
        }
        timings(&exchange.phases, out);
        if let Some(server) = exchange.server {
            out.extend_from_slice(b",\"serverIPAddress\":\"");
            address(server, out);
            out.push(b'"');
        }
        if let Some(connection) = exchange.connection {
            out.extend_from_slice(b",\"connection\":\"");
            number(connection, out);
            out.push(b'"');
        }
        self.notes(&exchange.notes, id, out);
        out.extend_from_slice(&self.mark);
        out.push(b'}');
    }

    fn request(&mut self, request: &ObservedRequest<'_>, id: &str, out: &mut Vec<u8>) {
        match request.method {
            b"GET" => out.extend_from_slice(b",\"request\":{\"method\":\"GET\""),
            method => {
                out.extend_from_slice(b",\"request\":{\"method\":");
                self.write_redacted(MemoKind::Word, method, out, <dyn Redact>::word);
            }
        }
        self.url(request, out);
        version(request.version, out);
        let summary = self.fields(MessageKind::Request, &request.fields, id, out);
        let media_type = summary.media_type.unwrap_or(NO_MEDIA_TYPE);
        if let Some(captured) = self.wanted(request.body, request.body_bytes, media_type) {
            let media_type = &utf8_or_latin1(media_type);
            let codings = summary.codings.unwrap_or_default();
            let kept = KeptBody { captured, media_type, codings, body_bytes: request.body_bytes };
            let (mut post_data, completeness) = body::post_data(&kept);
            let is_json = self.redaction.post_data(&mut post_data, Some(&self.memo));
            let completeness =
                body::judge(completeness, &kept, post_data.text.as_ref(), is_json, &mut post_data.extra);
            self.bodies[completeness as usize] += 1;
            out.extend_from_slice(b",\"postData\":");
            json(&post_data, out);
        }
        out.extend_from_slice(b",\"headersSize\":");
        number(request.head_bytes, out);
        self.body_size(request.body_bytes, out);
        out.push(b'}');
    }

    fn response(&mut self, response: &ObservedResponse<'_>, id: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"response\":{\"status\":");
        number(u64::from(response.status), out);
        match response.reason {
            b"OK" => out.extend_from_slice(b",\"statusText\":\"OK\""),
            reason => {
                out.extend_from_slice(b",\"statusText\":");
                self.write_redacted(MemoKind::Phrase, reason, out, <dyn Redact>::phrase);
            }
        }
        version(response.version, out);
        let summary = self.fields(MessageKind::Response, &response.fields, id, out);
        self.content(response, &summary, out);
        out.extend_from_slice(b",\"redirectURL\":");
        match summary.location {
            Some(location) => {
                self.write_redacted(MemoKind::RedirectUrl, location, out, <dyn Redact>::redirect_url);
            }
            None => out.extend_from_slice(b"\"\""),
        }
        out.extend_from_slice(b",\"headersSize\":");
        number(response.head_bytes, out);
        self.body_size(response.body_bytes, out);
        out.push(b'}');
    }

    fn content(&mut self, response: &ObservedResponse<'_>, summary: &HeaderSummary<'_>, out: &mut Vec<u8>) {
        let media_type = summary.media_type.unwrap_or(NO_MEDIA_TYPE);
        let (codings, body_bytes) = (summary.codings.unwrap_or_default(), response.body_bytes);
        if let Some(captured) = self.wanted(response.body, body_bytes, media_type) {
            let media_type = &utf8_or_latin1(media_type);
            let kept = KeptBody { captured, media_type, codings, body_bytes };
            let (mut content, completeness) = body::content(&kept);
            let is_json = self.redaction.content(&mut content, Some(&self.memo));
            let completeness =
                body::judge(completeness, &kept, content.text.as_ref(), is_json, &mut content.extra);
            self.bodies[completeness as usize] += 1;
            out.extend_from_slice(b",\"content\":");
            json(&content, out);
            return;
        }
        out.extend_from_slice(b",\"content\":{\"size\":");
        if body_bytes == 0 || !is_coded(codings) {
            self.size(body_bytes, out);
        } else {
            // The body was not decoded, so its decoded size is unknown.
            out.extend_from_slice(b"-1");
        }
        out.extend_from_slice(b",\"mimeType\":");
        self.write_redacted(MemoKind::MediaType, media_type, out, <dyn Redact>::media_type);
        out.push(b'}');
    }

    /// Returns the part of a body that is to be written, if any.
    fn wanted<'a>(&self, captured: Captured<'a>, body_bytes: u64, media_type: &[u8]) -> Option<Captured<'a>> {
        if !captured.is_wanted || body_bytes == 0 {
            return None;
        }
        let wanted = usize::try_from(self.recording.wanted_bytes(media_type)).unwrap_or(usize::MAX);
        let Captured { bytes, is_whole, is_wanted } = captured;
        let cut = bytes.get(..wanted);
        let captured =
            Captured { bytes: cut.unwrap_or(bytes), is_whole: is_whole && bytes.len() <= wanted, is_wanted };
        (wanted > 0).then_some(captured)
    }

    /// Writes the header fields and their cookies. Fields that repeat `id`, the request's, keep it readable,
    /// as the comment does: it is new in every exchange, so nobody could find a pseudonym of it twice.
    fn fields<'a>(
        &mut self,
        message: MessageKind,
        fields: &[ObservedField<'a>],
        id: &str,
        out: &mut Vec<u8>,
    ) -> HeaderSummary<'a> {
        let (kind, cookies) = match message {
            MessageKind::Request => (MemoKind::RequestField, &b"cookie"[..]),
            MessageKind::Response => (MemoKind::ResponseField, &b"set-cookie"[..]),
        };
        let mut summary = HeaderSummary::default();
        out.extend_from_slice(b",\"headers\":[");
        for (place, ObservedField { name, value }) in fields.iter().enumerate() {
            if *value == id.as_bytes() && is_id_field(name) {
                id_field(name, id, out);
                continue;
            }
            let Self { redaction, memo, last_fields, .. } = self;
            let last_fields = &mut last_fields[message as usize];
            last_fields.write(place, memo.get_mut(), MemoKey { kind, name, value }, out, |out| {
                let mut field = NameValue::new(utf8_or_latin1(name), utf8_or_latin1(value));
                redaction.field(message, &mut field);
                name_value(field.name.as_bytes(), field.value.as_bytes(), out);
            });
            match name.len() {
                6 | 10 if name.eq_ignore_ascii_case(cookies) => summary.has_cookies = true,
                8 if name.eq_ignore_ascii_case(b"location") => summary.location = Some(value),
                12 if name.eq_ignore_ascii_case(b"content-type") => summary.media_type = Some(value),
                // Several fields form one list, which is not used in practice. `several` is not a known
                // coding, so the body stays coded.
                16 if name.eq_ignore_ascii_case(b"content-encoding") => {
                    summary.codings = Some(if summary.codings.is_some() { b"several" } else { value });
                }
                _ => {}
            }
        }
        if !fields.is_empty() {
            // Remove the last comma.
            out.pop();
        }
        out.extend_from_slice(b"],\"cookies\":[");
        if summary.has_cookies {
            self.cookies(message, fields, out);
        }
        out.push(b']');
        summary
    }

    /// Writes the cookies of the fields, without the brackets.
    fn cookies(&mut self, message: MessageKind, fields: &[ObservedField<'_>], out: &mut Vec<u8>) {
        let (header, kind, parse) = match message {
            MessageKind::Request => {
                (&b"cookie"[..], MemoKind::Cookies, request_cookies as fn(&str) -> Vec<Cookie>)
            }
            MessageKind::Response => {
                (&b"set-cookie"[..], MemoKind::SetCookie, response_cookie as fn(&str) -> Vec<Cookie>)
            }
        };
        let start = out.len();
        for field in fields.iter().filter(|field| field.name.eq_ignore_ascii_case(header)) {
            if out.len() > start && out.last() != Some(&b',') {
                out.push(b',');
            }
            let Self { redaction, memo, .. } = self;
            memo.get_mut().write(MemoKey::unnamed(kind, field.value), out, |out| {
                for (index, mut cookie) in parse(&utf8_or_latin1(field.value)).into_iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    redaction.cookie(message, &mut cookie);
                    json(&cookie, out);
                }
            });
        }
        // A field without a cookie leaves a comma behind.
        if out.len() > start && out.last() == Some(&b',') {
            out.pop();
        }
    }

    /// Writes a value that occurs once in an entry, redacted by `redact`.
    fn write_redacted(
        &mut self,
        kind: MemoKind,
        value: &[u8],
        out: &mut Vec<u8>,
        redact: fn(&(dyn Redact + 'static), &mut String),
    ) {
        let Self { redaction, memo, .. } = self;
        memo.get_mut().write(MemoKey::unnamed(kind, value), out, |out| {
            let mut value = utf8_or_latin1(value).into_owned();
            redact(&**redaction, &mut value);
            text(value.as_bytes(), out);
        });
    }

    fn size(&self, bytes: u64, out: &mut Vec<u8>) {
        if self.recording.bodies == Bodies::None {
            out.extend_from_slice(b"-1");
        } else {
            number(bytes, out);
        }
    }

    fn body_size(&self, bytes: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"bodySize\":");
        self.size(bytes, out);
    }

    /// Writes the notes. `id` is the request's if it is a UUID; otherwise it is empty.
    fn notes(&mut self, notes: &Notes<'_>, id: &str, out: &mut Vec<u8>) {
        for (name, value) in [
            (&b",\"_provider\":\""[..], notes.provider),
            (b",\"_flow\":\"", notes.flow),
            (b",\"_remedies\":\"", notes.remedies),
            (b",\"_account\":\"", notes.account),
            (b",\"_error\":\"", notes.error),
            (b",\"_grpcStatus\":\"", notes.grpc_status),
        ] {
            if !value.is_empty() {
                out.extend_from_slice(name);
                write_escaped(value.as_bytes(), out);
                out.push(b'"');
            }
        }
        if !notes.request_id.is_empty() {
            out.extend_from_slice(b",\"comment\":\"request_id=");
            // Logs name the same id, so it stays readable, unless a client's id looks like a secret.
            if !id.is_empty() {
                out.extend_from_slice(id.as_bytes());
            } else if self.redaction.as_obfuscator().is_none() || holds_secret(notes.request_id) {
                let mut id = notes.request_id.to_owned();
                self.redaction.value(&mut id);
                write_escaped(id.as_bytes(), out);
            } else {
                write_escaped(notes.request_id.as_bytes(), out);
            }
            out.push(b'"');
        }
        if notes.attempts > 0 {
            out.extend_from_slice(b",\"_attempts\":");
            number(u64::from(notes.attempts), out);
        }
        if !notes.consumer.is_empty() {
            out.extend_from_slice(b",\"_consumer\":");
            self.write_redacted(MemoKind::Value, notes.consumer, out, <dyn Redact>::value);
        }
        if notes.is_generated {
            out.extend_from_slice(b",\"_generated\":true");
        }
        if notes.is_cut_short {
            out.extend_from_slice(b",\"_cutShort\":true");
        }
        if let Some(us) = notes.client_closed_us {
            out.extend_from_slice(b",\"_clientClosed\":");
            millis(us, out);
        }
        if notes.is_intercepted {
            out.extend_from_slice(b",\"_intercepted\":true");
        }
    }
}

/// Appends a field with its value, and a comma.
fn name_value(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"name\":");
    text(name, out);
    out.extend_from_slice(b",\"value\":");
    text(value, out);
    out.extend_from_slice(b"},");
}

/// Appends a field that holds the id of a request, a UUID, and a comma. Neither has characters to escape.
fn id_field(name: &[u8], id: &str, out: &mut Vec<u8>) {
    for part in [b"{\"name\":\"", name, b"\",\"value\":\"", id.as_bytes(), b"\"},"] {
        out.extend_from_slice(part);
    }
}

/// Returns `true` for the fields in which the gateway sends the id of a request.
fn is_id_field(name: &[u8]) -> bool {
    match name.len() {
        12 => name.eq_ignore_ascii_case(b"x-request-id"),
        18 => name.eq_ignore_ascii_case(b"x-egret-request-id"),
        _ => false,
    }
}

/// Parses the cookies of a `Cookie` field (RFC 6265 §4.2.1).
fn request_cookies(value: &str) -> Vec<Cookie> {
    let pairs = value.split(';').map(str::trim).filter(|pair| !pair.is_empty());
    pairs.map(cookie).collect()
}

fn cookie(pair: &str) -> Cookie {
    let (name, value) = pair.split_once('=').unwrap_or(("", pair));
    Cookie { name: name.to_owned(), value: value.to_owned(), ..Cookie::default() }
}

/// Parses the cookie of a `Set-Cookie` field (RFC 6265 §4.1.1).
fn response_cookie(value: &str) -> Vec<Cookie> {
    let mut parts = value.split(';').map(str::trim);
    let mut cookie = cookie(parts.next().unwrap_or_default());
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.to_ascii_lowercase().as_str() {
            "path" => cookie.path = Some(value.to_owned()),
            "domain" => cookie.domain = Some(value.to_owned()),
            "expires" => cookie.expires = cookie_date::read(value).map(rfc3339::write),
            "httponly" => cookie.http_only = Some(true),
            "secure" => cookie.secure = Some(true),
            "samesite" if is_same_site(value) => {
                cookie.extra.insert("sameSite".to_owned(), value.into());
            }
            _ => {}
        }
    }
    vec![cookie]
}

fn version(version: HttpVersion, out: &mut Vec<u8>) {
    out.extend_from_slice(match version {
        HttpVersion::Http10 => b",\"httpVersion\":\"HTTP/1.0\"",
        HttpVersion::Http11 => b",\"httpVersion\":\"HTTP/1.1\"",
        HttpVersion::Http2 => b",\"httpVersion\":\"HTTP/2.0\"",
    });
}

/// Appends a value as JSON. Serializing these types to memory cannot fail.
fn json(value: &impl Serialize, out: &mut Vec<u8>) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// Returns the time to connect, including the TLS handshake as HAR requires.
fn connect_us(phases: &Phases) -> Option<u64> {
    match (phases.connect_us, phases.tls_us) {
        (None, None) => None,
        (connect, tls) => Some(connect.unwrap_or(0).saturating_add(tls.unwrap_or(0))),
    }
}

fn total_us(phases: &Phases) -> u64 {
    let optional = [phases.blocked_us, phases.dns_us, connect_us(phases)].into_iter().flatten();
    optional.chain([phases.send_us, phases.wait_us, phases.receive_us]).fold(0, u64::saturating_add)
}

fn timings(phases: &Phases, out: &mut Vec<u8>) {
    for (name, us) in [
        (&b",\"cache\":{},\"timings\":{\"blocked\":"[..], phases.blocked_us),
        (b",\"dns\":", phases.dns_us),
        (b",\"connect\":", connect_us(phases)),
        (b",\"ssl\":", phases.tls_us),
        (b",\"send\":", Some(phases.send_us)),
        (b",\"wait\":", Some(phases.wait_us)),
        (b",\"receive\":", Some(phases.receive_us)),
    ] {
        out.extend_from_slice(name);
        match us {
            Some(us) => millis(us, out),
            None => out.extend_from_slice(b"-1"),
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
