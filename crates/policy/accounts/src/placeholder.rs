//! Placeholders: the client sends a worthless word wherever its API expects a secret, and the gateway
//! replaces the word with the secret. So a program that must not know the secret can use any client library.

use std::collections::BTreeSet;
use std::ops::Range;

use egret_config::Size;
use egret_har::base64;
use egret_http1::{KnownField, is_token};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::credential::percent_encode;
use super::find::{Coding, Words, find_all};
use super::{Applied, Outgoing};
use egret_json::pointer::{Pointers, pointer_problem};
use egret_match::form::decode_form;
use egret_message::{BODY_BYTES_MAX, Fault, Fields};

/// Minimum length of the word. Shorter words might occur in a request by chance.
const TEXT_BYTES_MIN: usize = 8;
const TEXT_BYTES_MAX: usize = 256;

/// Maximum number of replacements in one request. No API needs more, and the limit bounds the growth of the
/// request.
const OCCURRENCES_MAX: usize = 64;

/// A word that the client sends in place of the account's secret. Egret replaces the word with the secret; a
/// request without the word is sent unchanged. Unless you name places, only a word that is a complete value
/// is replaced. Otherwise a client could make the provider pass the secret on, for example in a URL that the
/// provider calls.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceholderConfig {
    /// The word: 8 to 256 visible ASCII characters. It must not occur anywhere else in requests.
    pub text: String,
    /// Parts of the request in which the word is replaced. In the header it is also found inside the Base64
    /// of `Authorization: Basic`. A body is searched only if it is JSON, a form or text.
    #[serde(default = "parts_default", rename = "in")]
    pub parts: BTreeSet<RequestPart>,
    /// The only header fields in which the word is replaced, anywhere in their values. If the list is empty,
    /// it is replaced in most fields, but only as the whole value, after a scheme (`Bearer WORD`), as user or
    /// password of `Basic`, as a cookie, or as a parameter of `Authorization`. It is never replaced in
    /// `Referer`, `Origin`, `Forwarded`, `X-Forwarded-Host` and other fields that name the origin or the
    /// target of a request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// The only parameters, of the query and of a form, in which the word is replaced, anywhere in their
    /// values. If the list is empty, it is replaced in all parameters, but only as the whole value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
    /// JSON pointers (RFC 6901) to the only places of a JSON body in which the word is replaced: `/auth/key`.
    /// If the list is empty, it is replaced in all values, but only as a whole string.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pointers: Vec<String>,
    /// Maximum size of a body to search, up to `16MiB`. The body is buffered for the search; a larger one is
    /// sent unchanged.
    #[serde(default = "body_default")]
    pub body: Size,
}

/// A part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestPart {
    /// The values of its header fields.
    Header,
    /// Its query.
    Query,
    /// Its body.
    Body,
}

fn parts_default() -> BTreeSet<RequestPart> {
    [RequestPart::Header, RequestPart::Query].into()
}

fn body_default() -> Size {
    Size::from_kib(1024)
}

/// A compiled placeholder: replaces a word with a secret.
pub struct Placeholder {
    word: Words,
    parts: BTreeSet<RequestPart>,
    body_bytes_max: usize,
    places: Places,
}

/// The places in which the word may be replaced. An empty list allows all places, but only as a complete
/// value.
#[derive(Debug, Default)]
struct Places {
    headers: Vec<String>,
    parameters: Vec<String>,
    pointers: Pointers,
}

impl std::fmt::Debug for Placeholder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placeholder")
            .field("in", &self.parts)
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl Placeholder {
    /// Compiles `config`. An error holds the wrong key of the config, and the reason.
    pub fn compile(config: &PlaceholderConfig) -> Result<Self, (&'static str, String)> {
        let PlaceholderConfig { text, parts, body, headers, parameters, pointers } = config;
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_visible || !(TEXT_BYTES_MIN..=TEXT_BYTES_MAX).contains(&text.len()) {
            let message = format!(
                "must consist of {TEXT_BYTES_MIN} to {TEXT_BYTES_MAX} visible ASCII characters, without spaces"
            );
            return Err(("text", message));
        }
        if parts.is_empty() {
            return Err(("in", "must not be empty: name `header`, `query` or `body`".to_owned()));
        }
        if body.bytes() > BODY_BYTES_MAX {
            return Err((
                "body",
                "at most `16MiB`: the body is buffered in memory for each exchange".to_owned(),
            ));
        }
        check_parts(config)?;
        Ok(Self {
            word: Words::new([text]),
            parts: parts.clone(),
            body_bytes_max: usize::try_from(body.bytes()).unwrap_or(usize::MAX),
            places: Places {
                headers: headers.clone(),
                parameters: parameters.clone(),
                pointers: Pointers::new(pointers.iter().map(String::as_str)),
            },
        })
    }

    /// Maximum size of a body to search, in bytes; 0 if bodies are not searched.
    pub fn body_bytes_max(&self) -> usize {
        if self.parts.contains(&RequestPart::Body) { self.body_bytes_max } else { 0 }
    }

    /// Replaces the word with `secret` at every allowed place of a request. Returns `true` if there was one.
    /// Fails if the secret cannot be sent in a request, or if the word occurs too often.
    pub fn swap(&self, secret: &str, outgoing: &Outgoing<'_>, applied: &mut Applied) -> Result<bool, Fault> {
        if let Some(problem) = secret_problem(secret) {
            return Err(Fault(problem.into()));
        }
        let mut swap = Swap { word: &self.word, places: &self.places, secret, left: OCCURRENCES_MAX };
        let mut is_there = false;
        if self.parts.contains(&RequestPart::Header) {
            is_there |= swap.fields(outgoing.fields, applied)?;
        }
        if self.parts.contains(&RequestPart::Query)
            && let Some(query) = outgoing.query
            && let Some(query) = swap.form(query)?
        {
            applied.target = Some([outgoing.path, b"?", &query].concat());
            is_there = true;
        }
        if self.parts.contains(&RequestPart::Body)
            && let Some(body) = outgoing.body.filter(|body| body.len() <= self.body_bytes_max)
            && let Some(coding) = coding_of(outgoing.fields)
            && let Some(body) = swap.body(coding, body)?
        {
            applied.fields.remove_digests();
            applied.body = Some(body);
            is_there = true;
        }
        Ok(is_there)
    }
}

/// Returns an error with the first config key whose places cannot be used, and the reason.
fn check_parts(config: &PlaceholderConfig) -> Result<(), (&'static str, String)> {
    let PlaceholderConfig { parts, headers, parameters, pointers, .. } = config;
    let (header, query, body) = (RequestPart::Header, RequestPart::Query, RequestPart::Body);
    if !headers.is_empty() && !parts.contains(&header) {
        return Err(("headers", "`in` excludes the header: add `header`".to_owned()));
    }
    if !parameters.is_empty() && !parts.contains(&query) && !parts.contains(&body) {
        return Err(("parameters", "`in` excludes query and body: add one of them".to_owned()));
    }
    if !pointers.is_empty() && !parts.contains(&body) {
        return Err(("pointers", "`in` excludes the body: add `body`".to_owned()));
    }
    for name in headers {
        if !is_token(name.as_bytes()) {
            return Err(("headers", format!("`{name}` is not a valid header field name")));
        }
        if is_left_alone(name.as_bytes()) {
            let message = format!("a secret is never put into `{name}`, because other parties read it");
            return Err(("headers", message));
        }
    }
    match pointers.iter().find_map(|pointer| pointer_problem(pointer)) {
        Some(message) => Err(("pointers", message)),
        None => Ok(()),
    }
}

/// Returns the reason why `secret` must not be put into requests, if there is one: a line end would add a
/// line to the header.
pub fn secret_problem(secret: &str) -> Option<&'static str> {
    let is_control = secret.chars().any(char::is_control);
    is_control
        .then_some("contains a control character, perhaps a line end, which is not allowed in a header field")
}

/// Returns the encoding of the body in which the word is searched for; `None` if it is unknown.
fn coding_of(fields: Fields<'_>) -> Option<Coding> {
    if fields.is_encoded() {
        return None;
    }
    let media_type = fields.get(b"content-type")?;
    let essence =
        media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    if egret_message::is_json(media_type) {
        Some(Coding::Json)
    } else if essence == b"application/x-www-form-urlencoded" {
        Some(Coding::Percent)
    } else {
        essence.starts_with(b"text/").then_some(Coding::Plain)
    }
}

/// Returns `true` for a field that names the origin or the target of a message, frames it, or is written by
/// the gateway. Providers log such fields, pass them on, and call the hosts they name.
fn is_left_alone(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 8] = [
        b"referer",
        b"origin",
        b"forwarded",
        b"x-real-ip",
        b"x-original-host",
        b"x-original-url",
        b"x-rewrite-url",
        b"x-host",
    ];
    let known = KnownField::of(name);
    known.is_hop_by_hop()
        || matches!(
            known,
            KnownField::Host
                | KnownField::ContentLength
                | KnownField::Trailer
                | KnownField::Expect
                | KnownField::MaxForwards
                | KnownField::Via
                | KnownField::XForwardedFor
        )
        || NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
        || name.get(..12).is_some_and(|start| start.eq_ignore_ascii_case(b"x-forwarded-"))
}

impl Places {
    /// Returns `true` if the word may be replaced in the value of a field, between `before` and `after`.
    fn allows_in_field(&self, name: &[u8], before: &[u8], after: &[u8]) -> bool {
        if !self.headers.is_empty() {
            return self.headers.iter().any(|header| header.as_bytes().eq_ignore_ascii_case(name));
        }
        if after.is_empty() && (before.is_empty() || is_scheme(before)) {
            return true;
        }
        if name.eq_ignore_ascii_case(b"cookie") {
            is_parameter(before, after, b';')
        } else {
            name.eq_ignore_ascii_case(b"authorization") && is_parameter(before, after, b',')
        }
    }

    /// Returns `true` if the word may be replaced in the `user:password` of `Basic`.
    fn allows_in_credentials(&self, before: &[u8], after: &[u8]) -> bool {
        let is_user = before.is_empty() && after.first() == Some(&b':');
        let is_password =
            after.is_empty() && before.iter().position(|byte| *byte == b':') == before.len().checked_sub(1);
        !self.headers.is_empty() || is_user || is_password
    }

    /// Returns `true` if the word may be replaced in a query or form that consists of `before`, the word and
    /// `after`.
    fn allows_in_form(&self, before: &[u8], after: &[u8]) -> bool {
        let pair = before.rsplit(|byte| *byte == b'&').next().unwrap_or_default();
        let (name, value) = match memchr::memchr(b'=', pair) {
            Some(at) => (Some(&pair[..at]), &pair[at + 1..]),
            None => (None, pair),
        };
        if !self.parameters.is_empty() {
            let name = name.map(decode_form);
            return name.is_some_and(|name| self.parameters.iter().any(|wanted| wanted.as_bytes() == &*name));
        }
        value.is_empty() && matches!(after.first(), None | Some(b'&'))
    }

    /// Returns `true` if the word may be replaced in JSON. `places` are the ranges that the pointers select.
    fn allows_in_json(&self, places: &[Range<usize>], text: &[u8], (start, end): (usize, usize)) -> bool {
        if !self.pointers.is_empty() {
            return places.iter().any(|place| place.start <= start && end <= place.end);
        }
        let (before, after) = (&text[..start], &text[end..]);
        // A quotation mark after a backslash is a character of the string.
        let begins = before.ends_with(b"\"") && !before.ends_with(b"\\\"");
        let rest = after.strip_prefix(b"\"").map(<[u8]>::trim_ascii_start);
        begins && rest.is_some_and(|rest| rest.first() != Some(&b':'))
    }
}

/// Returns `true` if the word is delimited on both sides, so it cannot be part of a URL.
fn is_alone(before: &[u8], after: &[u8]) -> bool {
    let is_end = |byte: Option<&u8>| {
        byte.is_none_or(|byte| byte.is_ascii_whitespace() || matches!(byte, b'<' | b'>' | b'"' | b'\''))
    };
    is_end(before.last()) && is_end(after.first())
}

/// Returns `true` if `before` is an authentication scheme, as in `Bearer WORD`.
fn is_scheme(before: &[u8]) -> bool {
    let scheme = before.trim_ascii_end();
    scheme.len() < before.len() && is_token(scheme)
}

/// Returns `true` if the word is the value of a parameter, quoted or not, in a list with that `separator`:
/// `Token key="WORD", n=1`.
fn is_parameter(before: &[u8], after: &[u8], separator: u8) -> bool {
    let before =
        before.rsplit(|byte| *byte == separator || byte.is_ascii_whitespace()).next().unwrap_or_default();
    let after = after.split(|byte| *byte == separator).next().unwrap_or_default().trim_ascii_end();
    let (before, after) = match (before.strip_suffix(b"\""), after.strip_prefix(b"\"")) {
        (Some(before), Some(after)) => (before, after),
        (None, None) => (before, after),
        _ => return false,
    };
    after.is_empty() && before.strip_suffix(b"=").is_some_and(is_token)
}

/// The replacement of the word in one request.
struct Swap<'a> {
    word: &'a Words,
    places: &'a Places,
    secret: &'a str,
    /// Number of replacements that are still allowed.
    left: usize,
}

/// Start and end of each occurrence of the word in a text.
type Found = Vec<(usize, usize)>;

impl Swap<'_> {
    /// Replaces the word in the header fields. If one field of a name contains the word, all fields of that
    /// name are rewritten, in their order.
    fn fields(&mut self, fields: Fields<'_>, applied: &mut Applied) -> Result<bool, Fault> {
        let mut names: Vec<&[u8]> = Vec::new();
        let fields = fields.forwarded().filter(|(name, _)| !is_left_alone(name));
        for (name, value) in fields.clone() {
            let is_known = names.iter().any(|known| known.eq_ignore_ascii_case(name));
            if is_known || self.holds(name, value).is_none() {
                continue;
            }
            names.push(name);
            applied.fields.remove(name);
            for (same, value) in fields.clone().filter(|(other, _)| other.eq_ignore_ascii_case(name)) {
                match self.holds(same, value) {
                    Some(Holds::Plainly(found)) => {
                        applied.fields.add(same, &self.replace(Coding::Plain, value, &found)?);
                    }
                    Some(Holds::Credentials(credentials, found)) => {
                        let swapped = Zeroizing::new(self.replace(Coding::Plain, &credentials, &found)?);
                        let mut value = b"Basic ".to_vec();
                        base64::encode(&swapped, &mut value);
                        applied.fields.add(same, &value);
                    }
                    None => applied.fields.add(same, value),
                }
            }
        }
        Ok(!names.is_empty())
    }

    /// Returns the occurrences of the word in a field at which it may be replaced, if any.
    fn holds(&self, name: &[u8], value: &[u8]) -> Option<Holds> {
        let places = self.places;
        let found = self.find(Coding::Plain, value, |(start, end)| {
            places.allows_in_field(name, &value[..start], &value[end..])
        });
        if !found.is_empty() {
            return Some(Holds::Plainly(found));
        }
        let (scheme, credentials) = value.split_at_checked(b"Basic ".len())?;
        let is_basic =
            KnownField::of(name) == KnownField::Authorization && scheme.eq_ignore_ascii_case(b"Basic ");
        let is_wanted = places.headers.is_empty() || places.allows_in_field(name, b"", b"");
        let credentials =
            (is_basic && is_wanted).then(|| base64::decode(credentials.trim_ascii())).flatten()?;
        let found = self.find(Coding::Plain, &credentials, |(start, end)| {
            places.allows_in_credentials(&credentials[..start], &credentials[end..])
        });
        (!found.is_empty()).then(|| Holds::Credentials(Zeroizing::new(credentials), found))
    }

    /// Returns a query or form with the secret in place of the word; `None` if there is nothing to replace.
    fn form(&mut self, text: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let places = self.places;
        let found = self
            .find(Coding::Percent, text, |(start, end)| places.allows_in_form(&text[..start], &text[end..]));
        self.text(Coding::Percent, text, &found)
    }

    /// Returns a body, decoded as `coding`, with the secret in place of the word; `None` if there is nothing
    /// to replace.
    fn body(&mut self, coding: Coding, text: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let places = self.places;
        let found = match coding {
            Coding::Percent => return self.form(text),
            Coding::Json => {
                let led = places.pointers.places(text).unwrap_or_default();
                let led: Vec<_> = led.into_iter().flatten().collect();
                self.find(Coding::Json, text, |at| places.allows_in_json(&led, text, at))
            }
            Coding::Plain => {
                self.find(Coding::Plain, text, |(start, end)| is_alone(&text[..start], &text[end..]))
            }
        };
        self.text(coding, text, &found)
    }

    fn text(&mut self, coding: Coding, text: &[u8], found: &Found) -> Result<Option<Vec<u8>>, Fault> {
        if found.is_empty() { Ok(None) } else { self.replace(coding, text, found).map(Some) }
    }

    /// Returns the occurrences of the word in `text` that `may` accepts: at most one more than the limit.
    fn find(&self, coding: Coding, text: &[u8], may: impl Fn((usize, usize)) -> bool) -> Found {
        let mut all = Found::new();
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        find_all(self.word, coding, text, |start, end| {
            let found = (place(start), place(end));
            let overlaps = all.last().is_some_and(|(_, before)| found.0 < *before);
            if !overlaps && all.len() <= self.left && may(found) {
                all.push(found);
            }
        });
        all
    }

    /// Returns `text` with the secret, encoded as the text is, at the occurrences in `found`.
    fn replace(&mut self, coding: Coding, text: &[u8], found: &Found) -> Result<Vec<u8>, Fault> {
        self.left = self.left.checked_sub(found.len()).ok_or_else(|| {
            Fault(format!("the placeholder occurs more than {OCCURRENCES_MAX} times in the request").into())
        })?;
        let mut secret = Zeroizing::new(Vec::new());
        match coding {
            Coding::Plain => secret.extend_from_slice(self.secret.as_bytes()),
            Coding::Percent => percent_encode(self.secret.as_bytes(), &mut secret),
            Coding::Json => egret_json::write_escaped(self.secret.as_bytes(), &mut secret),
        }
        // Allocated at once: a reallocation would leave memory with parts of the secret behind.
        let mut swapped = Vec::with_capacity(text.len() + found.len() * secret.len());
        let mut at = 0;
        for (start, end) in found {
            swapped.extend_from_slice(&text[at..*start]);
            swapped.extend_from_slice(&secret);
            at = *end;
        }
        swapped.extend_from_slice(&text[at..]);
        Ok(swapped)
    }
}

/// The occurrences of the word in a field.
enum Holds {
    /// In the plain value.
    Plainly(Found),
    /// In the decoded user and password of `Basic`, which are the first part.
    Credentials(Zeroizing<Vec<u8>>, Found),
}

#[cfg(test)]
mod tests {
    use egret_clock::Timestamp;
    use egret_http1::{HeadLimits, Progress, RequestHead};
    use proptest::prelude::*;

    use super::*;
    use egret_message::Changes;

    const WORD: &str = "{{KEY/1}}";
    const SECRET: &str = "s\"e/c&r\\et=é";
    const ALL: [RequestPart; 3] = [RequestPart::Header, RequestPart::Query, RequestPart::Body];

    fn config(text: &str, parts: &[RequestPart]) -> PlaceholderConfig {
        PlaceholderConfig {
            text: text.to_owned(),
            parts: parts.iter().copied().collect(),
            body: body_default(),
            headers: Vec::new(),
            parameters: Vec::new(),
            pointers: Vec::new(),
        }
    }

    /// Returns a placeholder for all parts of a request, limited to these places.
    fn in_places(headers: &[&str], parameters: &[&str], pointers: &[&str]) -> Placeholder {
        let owned = |names: &[&str]| names.iter().copied().map(str::to_owned).collect();
        let (headers, parameters, pointers) = (owned(headers), owned(parameters), owned(pointers));
        Placeholder::compile(&PlaceholderConfig { headers, parameters, pointers, ..config(WORD, &ALL) })
            .unwrap()
    }

    fn placeholder(parts: &[RequestPart]) -> Placeholder {
        Placeholder::compile(&config(WORD, parts)).unwrap()
    }

    /// A request as it is sent: its target, its header lines except Host, its body.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Sent {
        target: String,
        lines: Vec<String>,
        body: String,
    }

    /// Sends a request with the header lines `lines` through `placeholder`.
    fn swapped(
        placeholder: &Placeholder,
        target: &str,
        lines: &str,
        body: &str,
    ) -> Result<(bool, Sent), Fault> {
        let bytes = format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n").into_bytes();
        let mut head = RequestHead::new();
        assert_eq!(head.parse(&bytes, &HeadLimits::default()).unwrap(), Progress::Complete);
        let (path, query) = egret_message::request_target::split_target(target.as_bytes());
        let fields = Fields::received(&head.fields, &bytes);
        let outgoing = Outgoing {
            now: Timestamp::from_secs(0),
            tls: true,
            method: b"POST",
            host: b"h",
            base: b"",
            path,
            query,
            fields,
            body: Some(body.as_bytes()),
        };
        let mut applied = Applied::default();
        let is_there = placeholder.swap(SECRET, &outgoing, &mut applied)?;
        if !is_there {
            assert!(applied.fields.is_empty() && applied.target.is_none() && applied.body.is_none());
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let Applied { fields: changes, target: new_target, body: new_body } = &applied;
        let line = |(name, value): (&[u8], &[u8])| format!("{}: {}", text(name), text(value));
        let sent = Sent {
            target: new_target.as_deref().map_or(target.to_owned(), text),
            lines: Fields::new(&head.fields, &bytes, changes).iter().skip(1).map(line).collect(),
            body: new_body.as_deref().map_or(body.to_owned(), text),
        };
        Ok((is_there, sent))
    }

    fn base64_of(text: &str) -> String {
        let mut out = Vec::new();
        base64::encode(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_get_the_secret_where_the_word_stands() {
        let lines = format!("X-A: 1\r\nCookie: a={WORD}; b={WORD}\r\nX-B: {WORD}\r\nCookie: c\r\nx-b: 2\r\n");
        let (is_there, sent) = swapped(&placeholder(&ALL), "/a?b", &lines, "").unwrap();
        assert!(is_there);
        let cookie = format!("Cookie: a={SECRET}; b={SECRET}");
        assert_eq!(sent.lines, ["X-A: 1", &*cookie, "Cookie: c", &*format!("X-B: {SECRET}"), "x-b: 2"]);
        assert_eq!((&*sent.target, &*sent.body), ("/a?b", ""));
    }

    #[test]
    fn credentials_of_basic_are_looked_into() {
        for (before, after) in [
            (format!("user:{WORD}"), format!("user:{SECRET}")),
            (format!("{WORD}:"), format!("{SECRET}:")),
            (format!("{WORD}:x{WORD}"), format!("{SECRET}:x{WORD}")),
        ] {
            for scheme in ["Basic", "basic"] {
                let lines = format!("Authorization: {scheme} {}\r\n", base64_of(&before));
                let (is_there, sent) = swapped(&placeholder(&ALL), "/", &lines, "").unwrap();
                assert!(is_there);
                assert_eq!(sent.lines, [format!("Authorization: Basic {}", base64_of(&after))]);
            }
        }
        let lines = format!("Authorization: Basic {}\r\n", base64_of(&format!("{WORD}:x{WORD}")));
        let (_, sent) = swapped(&in_places(&["authorization"], &[], &[]), "/", &lines, "").unwrap();
        assert_eq!(
            sent.lines,
            [format!("Authorization: Basic {}", base64_of(&format!("{SECRET}:x{SECRET}")))]
        );
        assert!(!swapped(&in_places(&["x-key"], &[], &[]), "/", &lines, "").unwrap().0);
        // No other field is decoded: that would be a guess.
        let lines = format!("X-Other: Basic {}\r\nAuthorization: Basic no-Base64!\r\n", base64_of(WORD));
        assert!(!swapped(&placeholder(&ALL), "/", &lines, "").unwrap().0);
    }

    #[test]
    fn a_query_gets_it_encoded_however_the_word_is() {
        for word in ["{{KEY/1}}", "%7B%7BKEY%2F1%7D%7D", "%7b{KEY/1}%7d"] {
            let (_, sent) =
                swapped(&placeholder(&ALL), &format!("/{WORD}?a=1&key={word}&b"), "", "").unwrap();
            assert_eq!(sent.target, format!("/{WORD}?a=1&key=s%22e%2Fc%26r%5Cet%3D%C3%A9&b"), "{word}");
        }
    }

    #[test]
    fn a_body_gets_it_as_its_media_type_has_it() {
        for (media_type, body, expected) in [
            (
                "application/json",
                r#"{"a":["{{KEY/1}}","\u007b{KEY\/1}}"]}"#,
                r#"{"a":["s\"e/c&r\\et=é","s\"e/c&r\\et=é"]}"#,
            ),
            ("application/vnd.api+json; charset=utf-8", r#""{{KEY/1}}""#, r#""s\"e/c&r\\et=é""#),
            (
                "application/x-www-form-urlencoded",
                "a={{KEY/1}}&b=%7B%7BKEY%2F1}}",
                "a=s%22e%2Fc%26r%5Cet%3D%C3%A9&b=s%22e%2Fc%26r%5Cet%3D%C3%A9",
            ),
            ("Text/Plain", "a {{KEY/1}}", "a s\"e/c&r\\et=é"),
        ] {
            let lines = format!("Content-Type: {media_type}\r\nContent-MD5: x\r\n");
            let (is_there, sent) = swapped(&placeholder(&ALL), "/", &lines, body).unwrap();
            assert_eq!((is_there, &*sent.body), (true, expected));
            // The digest of the old body is removed.
            assert_eq!(sent.lines, [format!("Content-Type: {media_type}")]);
            let (is_there, sent) = swapped(&placeholder(&ALL[..2]), "/", &lines, body).unwrap();
            assert_eq!((is_there, &*sent.body), (false, body));
        }
    }

    #[test]
    fn what_cannot_be_read_or_must_not_be_touched_stays() {
        for lines in [
            "Content-Type: application/octet-stream\r\n",
            "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
            "",
        ] {
            assert!(!swapped(&placeholder(&ALL), "/", lines, WORD).unwrap().0, "{lines}");
        }
        for name in [
            "Connection",
            "Keep-Alive",
            "Proxy-Authorization",
            "Via",
            "X-Forwarded-For",
            "Trailer",
            "TE",
            "Expect",
        ] {
            assert!(is_left_alone(name.as_bytes()), "{name}");
        }
        let lines = format!("Connection: x-once\r\nX-Once: {WORD}\r\nX-Forwarded-For: {WORD}\r\n");
        assert!(!swapped(&placeholder(&ALL), &format!("/{WORD}"), &lines, "").unwrap().0);
    }

    #[test]
    fn unless_told_otherwise_it_is_all_of_a_value_and_in_no_url() {
        let json = "Content-Type: application/json\r\n";
        let text = "Content-Type: text/xml\r\n";
        for (target, lines, body) in [
            ("/", "Referer: {{KEY/1}}\r\nOrigin: {{KEY/1}}\r\nForwarded: for={{KEY/1}}\r\n", ""),
            ("/", "X-Forwarded-Host: {{KEY/1}}\r\nX-Original-URL: {{KEY/1}}\r\n", ""),
            ("/", "X-Callback: https://evil.example/?k={{KEY/1}}\r\n", ""),
            ("/", "X-Callback: evil.example?k={{KEY/1}}\r\nX-A: {{KEY/1}}.evil.example\r\n", ""),
            ("/", "Cookie: u=https://evil.example/?k={{KEY/1}}\r\n", ""),
            ("/", "Authorization: Custom realm=\"https://evil.example/?k={{KEY/1}}\"\r\n", ""),
            ("/?callback=https://evil.example/?k={{KEY/1}}&b", "", ""),
            ("/?callback=https%3A%2F%2Fevil.example%2F%3Fk%3D%7B%7BKEY%2F1%7D%7D", "", ""),
            ("/?{{KEY/1}}=1&a={{KEY/1}}x", "", ""),
            (
                "/",
                json,
                r#"{"callback":"https://evil.example/?k={{KEY/1}}","a":"\"{{KEY/1}}","{{KEY/1}}":1}"#,
            ),
            ("/", text, "<callback>https://evil.example/?k={{KEY/1}}</callback>"),
        ] {
            let (is_there, sent) = swapped(&placeholder(&ALL), target, lines, body).unwrap();
            assert!(!is_there, "{target} {lines} {body} -> {sent:?}");
        }
        for line in [
            "Authorization: Bearer {{KEY/1}}",
            "Authorization: Token token=\"{{KEY/1}}\", n=\"1\"",
            "Authorization: Custom id=1,key={{KEY/1}}",
            "Cookie: a=1; sid=\"{{KEY/1}}\"; b=2",
            "X-Auth: Key {{KEY/1}}",
        ] {
            let (_, sent) = swapped(&placeholder(&ALL), "/", &format!("{line}\r\n"), "").unwrap();
            assert_eq!(sent.lines, [line.replace(WORD, SECRET)]);
        }
        let body = "<a key=\"{{KEY/1}}\">{{KEY/1}}</a>";
        let (_, sent) = swapped(&placeholder(&ALL), "/", text, body).unwrap();
        assert_eq!(sent.body, body.replace(WORD, SECRET));
    }

    #[test]
    fn where_places_are_named_it_stands_there_alone_and_anywhere() {
        let named = in_places(&["X-Key"], &["key"], &["/auth"]);
        let lines = "x-key: a {{KEY/1}}, b {{KEY/1}}\r\nAuthorization: {{KEY/1}}\r\nContent-Type: application/json\r\n";
        let body = r#"{"auth":{"a":["x {{KEY/1}}"]},"b":"{{KEY/1}}"}"#;
        let (_, sent) = swapped(&named, "/?k%65y=a{{KEY/1}}&keys={{KEY/1}}&key", lines, body).unwrap();
        assert_eq!(sent.target, "/?k%65y=as%22e%2Fc%26r%5Cet%3D%C3%A9&keys={{KEY/1}}&key");
        assert_eq!(sent.lines[2], format!("x-key: a {SECRET}, b {SECRET}"));
        assert_eq!(sent.lines[0], "Authorization: {{KEY/1}}");
        assert_eq!(sent.body, r#"{"auth":{"a":["x s\"e/c&r\\et=é"]},"b":"{{KEY/1}}"}"#);
        // A body that parsers may read differently has no such place.
        let twice = r#"{"auth":"{{KEY/1}}","auth":1}"#;
        assert_eq!(swapped(&named, "/", "Content-Type: application/json\r\n", twice).unwrap().1.body, twice);
        let form = "Content-Type: application/x-www-form-urlencoded\r\n";
        let (_, sent) = swapped(&named, "/", form, "a={{KEY/1}}&key={{KEY/1}}").unwrap();
        assert_eq!(sent.body, "a={{KEY/1}}&key=s%22e%2Fc%26r%5Cet%3D%C3%A9");
    }

    #[test]
    fn what_remedies_have_removed_does_not_come_back() {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\nX-A: {WORD}\r\n\r\n").into_bytes();
        let mut head = RequestHead::new();
        head.parse(&bytes, &HeadLimits::default()).unwrap();
        let mut changes = Changes::default();
        changes.remove(b"x-a");
        changes.add(b"x-b", WORD.as_bytes());
        let fields = Fields::new(&head.fields, &bytes, &changes);
        let mut applied = Applied::default();
        let placeholder = placeholder(&ALL);
        let Placeholder { word, places, .. } = &placeholder;
        let mut swap = Swap { word, places, secret: SECRET, left: OCCURRENCES_MAX };
        assert!(swap.fields(fields, &mut applied).unwrap());
        assert_eq!(applied.fields.added().collect::<Vec<_>>(), [(&b"x-b"[..], SECRET.as_bytes())]);
    }

    #[test]
    fn a_request_that_would_grow_without_bounds_is_refused() {
        let often = |times: usize| {
            let lines = format!("X-A: {WORD}\r\nContent-Type: text/plain\r\n");
            swapped(&placeholder(&ALL), "/", &lines, &format!("{WORD} ").repeat(times))
        };
        assert!(often(OCCURRENCES_MAX - 1).unwrap().0);
        assert!(often(OCCURRENCES_MAX).unwrap_err().0.contains("more than 64 times"));
    }

    #[test]
    fn configs_and_secrets_that_cannot_be_are_refused() {
        let wrong = |config: PlaceholderConfig| Placeholder::compile(&config).unwrap_err().0;
        for text in ["", "1234567", "with space", "12345678\n", "12345678é", &"x".repeat(257)] {
            assert_eq!(wrong(config(text, &ALL)), "text", "{text}");
        }
        assert_eq!(wrong(config(WORD, &[])), "in");
        assert_eq!(wrong(PlaceholderConfig { body: Size::from_kib(16 << 11), ..config(WORD, &ALL) }), "body");
        let names = |names: &[&str]| names.iter().copied().map(str::to_owned).collect::<Vec<_>>();
        for name in ["referer", "Host", "x-forwarded-proto", "Content-Length", "a b", ""] {
            assert_eq!(
                wrong(PlaceholderConfig { headers: names(&[name]), ..config(WORD, &ALL) }),
                "headers",
                "{name}"
            );
        }
        for pointer in ["auth", "/a~2"] {
            assert_eq!(
                wrong(PlaceholderConfig { pointers: names(&[pointer]), ..config(WORD, &ALL) }),
                "pointers"
            );
        }
        let (header, body) = ([RequestPart::Header], [RequestPart::Body]);
        assert_eq!(wrong(PlaceholderConfig { headers: names(&["a"]), ..config(WORD, &body) }), "headers");
        assert_eq!(
            wrong(PlaceholderConfig { parameters: names(&["a"]), ..config(WORD, &header) }),
            "parameters"
        );
        assert_eq!(
            wrong(PlaceholderConfig { pointers: names(&["/a"]), ..config(WORD, &header) }),
            "pointers"
        );
        for secret in ["a\r\nX-Evil: 1", "a\nb", "a\tb", "a\0b", "a\u{85}b"] {
            assert!(secret_problem(secret).is_some(), "{secret:?}");
        }
        assert_eq!(secret_problem(SECRET), None);
    }

    /// Pieces of real requests, some of which combine to the word.
    fn text(parts: &'static [&'static str]) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(parts), 0..20).prop_map(|parts| parts.concat())
    }

    const PLAIN: &[&str] = &["{{KEY/1}}", "{{KEY", "/1}}", "{{", "a", "=", ";", "%7B", "\\", "\"", " a"];
    const PERCENT: &[&str] =
        &["{{KEY/1}}", "%7B%7BKEY%2F1%7D%7D", "{{KEY", "/1}}", "%7b", "{", "%4B", "a", "=", "%25"];
    const JSON: &[&str] = &[
        "{{KEY/1}}",
        "\\u007B{KEY\\/1}}",
        "{{KEY",
        "/1}}",
        "\\/1}}",
        "{",
        "\\\\",
        "\\\"",
        "\\n",
        "\\u00e9",
        "a",
    ];

    proptest! {
        #[test]
        fn whatever_the_request_the_word_is_replaced_and_nothing_else(
            values in prop::collection::vec(text(PLAIN), 1..5),
            query in text(PERCENT),
            json in text(JSON),
        ) {
            let names = ["X-A", "X-B", "x-a", "X-C", "x-b"];
            let trimmed: Vec<_> = values.iter().map(|value| value.trim()).collect();
            let line = |(name, value): (&&str, &&str)| format!("{name}: {value}\r\n");
            let lines: String = names.iter().zip(&trimmed).map(line).collect();
            let lines = lines + "Content-Type: application/json\r\n";
            let target = format!("/p?k={query}");
            let body = format!("[\"{json}\"]");
            let named = in_places(&["x-a", "x-b", "x-c"], &["k"], &[""]);
            let (_, sent) = swapped(&named, &target, &lines, &body).unwrap();
            // Fields of one name stay in order; between different names, the order has no meaning (RFC 9110
            // §5.3).
            let mut expected: Vec<_> = names.iter().zip(&trimmed).map(|(name, value)| format!("{name}: {}", value.replace(WORD, SECRET))).collect();
            expected.push("Content-Type: application/json".to_owned());
            let of = |lines: &[String], name: &str| -> Vec<String> {
                lines.iter().filter(|line| line.to_ascii_lowercase().starts_with(name)).cloned().collect()
            };
            for name in ["x-a:", "x-b:", "x-c:", "content-type:"] {
                prop_assert_eq!(of(&sent.lines, name), of(&expected, name));
            }
            prop_assert_eq!(sent.lines.len(), expected.len());
            let decoded = |query: &str| {
                let mut bytes = Vec::new();
                egret_match::matching::decode(query.as_bytes(), |piece| bytes.extend_from_slice(piece));
                String::from_utf8_lossy(&bytes).into_owned()
            };
            let is_there = decoded(&query).contains(WORD);
            prop_assert_eq!(decoded(&sent.target), format!("/p?k={}", decoded(&query).replace(WORD, SECRET)));
            prop_assert_eq!(is_there, sent.target != target);
            let read = |body: &str| serde_json::from_str::<Vec<String>>(body).unwrap().concat();
            prop_assert_eq!(read(&sent.body), read(&body).replace(WORD, SECRET));
            prop_assert_eq!(read(&body).contains(WORD), sent.body != body);
        }

        #[test]
        fn unless_told_otherwise_what_is_replaced_is_a_whole_value(
            queries in prop::collection::vec(text(PERCENT), 1..4),
            json in text(JSON),
        ) {
            let decoded = |text: &str| String::from_utf8_lossy(&decode_form(text.as_bytes())).into_owned();
            let body = format!("{{\"a\":\"{json}\"}}");
            let target = format!("/p?{}", queries.join("&"));
            let (_, sent) = swapped(&placeholder(&ALL), &target, "Content-Type: application/json\r\n", &body).unwrap();
            for (before, after) in queries.iter().zip(sent.target[3..].split('&')) {
                let value = before.split_once('=').map_or(&**before, |(_, value)| value);
                prop_assert_eq!(decoded(value) == WORD, before != after, "{} {}", before, after);
            }
            let read = |body: &str| serde_json::from_str::<serde_json::Value>(body).unwrap()["a"].as_str().unwrap().to_owned();
            let expected = if read(&body) == WORD { SECRET.to_owned() } else { read(&body) };
            prop_assert_eq!(read(&sent.body), expected);
        }
    }
}
