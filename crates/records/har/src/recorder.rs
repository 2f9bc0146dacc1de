//! Records exchanges: writes an observed exchange as one line of JSON, a HAR 1.2 entry with redacted values.
//!
//! It writes bytes directly, and caches the output of each value, so most of an entry is copied. The rules
//! for values are those of [`Obfuscator`](crate::Obfuscator), as for any HAR file. A recorder belongs to one
//! thread.

mod body;
mod coding;
mod mask;
mod pieces;
mod redaction;
mod url;

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use serde::Serialize;
use zeroize::Zeroize as _;

use crate::har::{Cookie, NameValue};
use crate::key::Key;
use crate::memo::{Kind, Memo};
use crate::obfuscate::{MARK, Message, is_same_site};
use crate::observed::{
    Captured, HttpVersion, Notes, Observed, ObservedField, ObservedRequest, ObservedResponse, Phases,
};
use crate::recording::{Bodies, Recording};
pub use body::End;
use body::Kept;
use coding::is_coded;
use egret_clock::{cookie_date, rfc3339};
use egret_json::write_escaped;
use pieces::{address, millis, number, text};
use redaction::Redaction;

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
    (decoded.end == End::Whole).then_some(decoded.bytes)
}

/// Writes exchanges as HAR entries.
#[derive(Debug)]
pub struct Recorder {
    redaction: Redaction,
    memo: RefCell<Memo>,
    recording: Recording,
    /// The [`MARK`] field with its value and the comma before it.
    mark: Vec<u8>,
    /// Number of bodies written, for each of [`End::ALL`].
    bodies: [u64; End::ALL.len()],
    room: Room,
}

/// Reused buffers.
#[derive(Default)]
struct Room {
    text: String,
    parameter: Vec<u8>,
    parameters: Vec<u8>,
}

/// Shows nothing of the content.
impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Room")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.text.zeroize();
        self.parameter.zeroize();
        self.parameters.zeroize();
    }
}

/// Header fields whose values are needed elsewhere in the entry. The last field of each name counts.
#[derive(Default)]
struct Noted<'a> {
    media_type: Option<&'a [u8]>,
    location: Option<&'a [u8]>,
    codings: Option<&'a [u8]>,
    has_cookies: bool,
}

impl Recorder {
    /// Returns a recorder for this recording. It caches values until it is dropped, so each key needs a
    /// recorder of its own.
    pub fn new(key: Key, recording: &Recording) -> Self {
        let redaction = Redaction::new(key, recording);
        let mark = match &redaction {
            Redaction::Obfuscated(obfuscator) => {
                format!(",\"{MARK}\":\"hmac-sha256:{}\"", obfuscator.key_id()).into_bytes()
            }
            Redaction::Guarded(_) | Redaction::None => Vec::new(),
        };
        Self {
            redaction,
            memo: RefCell::new(Memo::new()),
            recording: recording.clone(),
            mark,
            bodies: Default::default(),
            room: Room::default(),
        }
    }

    /// Number of bodies written, by the way they ended, for each of [`End::ALL`].
    pub fn bodies(&self) -> &[u64; End::ALL.len()] {
        &self.bodies
    }

    /// Appends the entry of an exchange: one object, without a line end.
    pub fn write(&mut self, exchange: &Observed<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"startedDateTime\":\"");
        rfc3339::write_unix_us(exchange.started_unix_us, out);
        out.extend_from_slice(b"\",\"time\":");
        millis(total_us(&exchange.phases), out);
        self.request(&exchange.request, out);
        match &exchange.response {
            Some(response) => self.response(response, out),
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
        self.notes(&exchange.notes, out);
        out.extend_from_slice(&self.mark);
        out.push(b'}');
    }

    fn request(&mut self, request: &ObservedRequest<'_>, out: &mut Vec<u8>) {
        match request.method {
            b"GET" => out.extend_from_slice(b",\"request\":{\"method\":\"GET\""),
            method => {
                out.extend_from_slice(b",\"request\":{\"method\":");
                self.told(Kind::Word, method, out, Redaction::word);
            }
        }
        self.url(request, out);
        version(request.version, out);
        let noted = self.fields(Message::Request, &request.fields, out);
        let media_type = noted.media_type.unwrap_or(NO_MEDIA_TYPE);
        if let Some(captured) = self.wanted(request.body, request.body_bytes, media_type) {
            let media_type = &decoded(media_type);
            let codings = noted.codings.unwrap_or_default();
            let kept = Kept { captured, media_type, codings, body_bytes: request.body_bytes };
            let (mut post_data, end) = body::post_data(&kept);
            let is_json = self.redaction.post_data(&mut post_data, &self.memo);
            let end = body::judge(end, &kept, post_data.text.as_ref(), is_json, &mut post_data.extra);
            self.bodies[end as usize] += 1;
            out.extend_from_slice(b",\"postData\":");
            json(&post_data, out);
        }
        out.extend_from_slice(b",\"headersSize\":");
        number(request.head_bytes, out);
        self.body_size(request.body_bytes, out);
        out.push(b'}');
    }

    fn response(&mut self, response: &ObservedResponse<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"response\":{\"status\":");
        number(u64::from(response.status), out);
        match response.reason {
            b"OK" => out.extend_from_slice(b",\"statusText\":\"OK\""),
            reason => {
                out.extend_from_slice(b",\"statusText\":");
                self.told(Kind::Phrase, reason, out, Redaction::phrase);
            }
        }
        version(response.version, out);
        let noted = self.fields(Message::Response, &response.fields, out);
        self.content(response, &noted, out);
        out.extend_from_slice(b",\"redirectURL\":");
        match noted.location {
            Some(location) => self.told(Kind::RedirectUrl, location, out, Redaction::redirect_url),
            None => out.extend_from_slice(b"\"\""),
        }
        out.extend_from_slice(b",\"headersSize\":");
        number(response.head_bytes, out);
        self.body_size(response.body_bytes, out);
        out.push(b'}');
    }

    fn content(&mut self, response: &ObservedResponse<'_>, noted: &Noted<'_>, out: &mut Vec<u8>) {
        let media_type = noted.media_type.unwrap_or(NO_MEDIA_TYPE);
        let (codings, body_bytes) = (noted.codings.unwrap_or_default(), response.body_bytes);
        if let Some(captured) = self.wanted(response.body, body_bytes, media_type) {
            let media_type = &decoded(media_type);
            let kept = Kept { captured, media_type, codings, body_bytes };
            let (mut content, end) = body::content(&kept);
            let is_json = self.redaction.content(&mut content, &self.memo);
            let end = body::judge(end, &kept, content.text.as_ref(), is_json, &mut content.extra);
            self.bodies[end as usize] += 1;
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
        self.told(Kind::MediaType, media_type, out, Redaction::media_type);
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

    /// Writes the header fields and their cookies.
    fn fields<'a>(&mut self, message: Message, fields: &[ObservedField<'a>], out: &mut Vec<u8>) -> Noted<'a> {
        let (kind, cookies) = match message {
            Message::Request => (Kind::RequestField, &b"cookie"[..]),
            Message::Response => (Kind::ResponseField, &b"set-cookie"[..]),
        };
        let mut noted = Noted::default();
        out.extend_from_slice(b",\"headers\":[");
        for ObservedField { name, value } in fields {
            let Self { redaction, memo, .. } = self;
            memo.get_mut().write(kind, name, value, out, |out| {
                let mut field = NameValue::new(decoded(name), decoded(value));
                redaction.field(message, &mut field);
                out.extend_from_slice(b"{\"name\":");
                text(field.name.as_bytes(), out);
                out.extend_from_slice(b",\"value\":");
                text(field.value.as_bytes(), out);
                out.extend_from_slice(b"},");
            });
            match name.len() {
                6 | 10 if name.eq_ignore_ascii_case(cookies) => noted.has_cookies = true,
                8 if name.eq_ignore_ascii_case(b"location") => noted.location = Some(value),
                12 if name.eq_ignore_ascii_case(b"content-type") => noted.media_type = Some(value),
                // Several fields form one list, which is not used in practice. `several` is not a known
                // coding, so the body stays coded.
                16 if name.eq_ignore_ascii_case(b"content-encoding") => {
                    noted.codings = Some(if noted.codings.is_some() { b"several" } else { value });
                }
                _ => {}
            }
        }
        if !fields.is_empty() {
            // Remove the last comma.
            out.pop();
        }
        out.extend_from_slice(b"],\"cookies\":[");
        if noted.has_cookies {
            self.cookies(message, fields, out);
        }
        out.push(b']');
        noted
    }

    /// Writes the cookies of the fields, without the brackets.
    fn cookies(&mut self, message: Message, fields: &[ObservedField<'_>], out: &mut Vec<u8>) {
        let (header, kind, parse) = match message {
            Message::Request => (&b"cookie"[..], Kind::Cookies, request_cookies as fn(&str) -> Vec<Cookie>),
            Message::Response => {
                (&b"set-cookie"[..], Kind::SetCookie, response_cookie as fn(&str) -> Vec<Cookie>)
            }
        };
        let start = out.len();
        for field in fields.iter().filter(|field| field.name.eq_ignore_ascii_case(header)) {
            if out.len() > start && out.last() != Some(&b',') {
                out.push(b',');
            }
            let Self { redaction, memo, .. } = self;
            memo.get_mut().write(kind, b"", field.value, out, |out| {
                for (index, mut cookie) in parse(&decoded(field.value)).into_iter().enumerate() {
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
    fn told(&mut self, kind: Kind, value: &[u8], out: &mut Vec<u8>, redact: fn(&Redaction, &mut String)) {
        let Self { redaction, memo, .. } = self;
        memo.get_mut().write(kind, b"", value, out, |out| {
            let mut value = decoded(value).into_owned();
            redact(redaction, &mut value);
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

    fn notes(&mut self, notes: &Notes<'_>, out: &mut Vec<u8>) {
        for (name, value) in [
            (&b",\"_provider\":\""[..], notes.provider),
            (b",\"_flow\":\"", notes.flow),
            (b",\"_remedies\":\"", notes.remedies),
            (b",\"_account\":\"", notes.account),
            (b",\"_error\":\"", notes.error),
        ] {
            if !value.is_empty() {
                out.extend_from_slice(name);
                write_escaped(value.as_bytes(), out);
                out.push(b'"');
            }
        }
        if notes.attempts > 0 {
            out.extend_from_slice(b",\"_attempts\":");
            number(u64::from(notes.attempts), out);
        }
        if !notes.consumer.is_empty() {
            out.extend_from_slice(b",\"_consumer\":");
            self.told(Kind::Value, notes.consumer, out, Redaction::value);
        }
        if notes.is_generated {
            out.extend_from_slice(b",\"_generated\":true");
        }
        if notes.is_cut_short {
            out.extend_from_slice(b",\"_cutShort\":true");
        }
    }
}

/// Decodes bytes as UTF-8, or else as Latin-1, in which every byte is a character.
fn decoded(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
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
