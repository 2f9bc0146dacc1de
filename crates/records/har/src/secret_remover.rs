//! Removes secrets from parts of an exchange that are not obfuscated. A text that looks like a secret, or is
//! one by its name, is replaced by its pseudonym; so is what masks name. The rest stays. The result is not
//! changed by a second pass.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use egret_json::tokenizer::{Sink, Tokenizer};
use egret_json::write_escaped;

use crate::charset::{self, Charset};
use crate::detect::{detect_with, is_short_word};
use crate::har::{Content, Cookie, NameValue, Param, PostData};
use crate::key::Key;
use crate::masks::Masks;
use crate::media::{self, Syntax};
use crate::memo::Memory;
use crate::named::{self, Beside, Meaning};
use crate::obfuscate::is_same_site;
use crate::parameters::{decode, encode, is_unreserved};
use crate::pseudonym::is_number_pseudonym;
use crate::redact::{MessageKind, Redact};
use crate::{base64, names, personal};

/// Maximum number of further passes over a text: a replacement may join the text around it to another
/// finding.
const ROUNDS: usize = 3;

/// Maximum depth of JSON in the texts of JSON. Deeper texts are searched like any other.
const NESTED_TEXTS_MAX: usize = 4;

/// Replaces secrets by their pseudonyms.
#[derive(Debug, Clone)]
pub(crate) struct SecretRemover {
    key: Key,
    /// Names and kinds from the config, in addition to the built-in rules.
    masks: Arc<Masks>,
}

impl SecretRemover {
    pub(crate) fn new(key: Key, masks: Arc<Masks>) -> Self {
        Self { key, masks }
    }

    /// Returns the meaning of a name, with that beside it, for its value.
    fn meaning(&self, beside: impl FnOnce() -> Beside, name: &str) -> Meaning {
        self.or_own(name, named::meaning_beside(beside, name))
    }

    /// Returns the meaning of the name of a header field.
    fn meaning_of_field(&self, name: &str) -> Meaning {
        self.or_own(name, named::meaning_of_field(name))
    }

    /// Returns the meaning of a name by the built-in rules, or of one from the config, whose value is hidden
    /// with everything in it.
    fn or_own(&self, name: &str, meaning: Meaning) -> Meaning {
        if meaning != Meaning::AllSecret && self.masks.has(name) { Meaning::AllSecret } else { meaning }
    }

    /// Returns `true` if a text is too short a word for any finding.
    fn is_harmless(&self, text: &str) -> bool {
        self.masks.kinds.is_empty() && is_short_word(text)
    }

    /// Returns the places of secrets and of masked kinds, in order and without overlaps.
    fn findings(&self, text: &str) -> Vec<Range<usize>> {
        let secrets = detect_with(text, &self.masks).into_iter().map(|secret| secret.span);
        let mut spans: Vec<_> = secrets.chain(personal::find(text, &self.masks.kinds)).collect();
        spans.sort_by_key(|span| span.start);
        spans.dedup_by(|next, last| {
            let overlaps = next.start < last.end;
            if overlaps {
                last.end = last.end.max(next.end);
            }
            overlaps
        });
        spans
    }

    /// Returns the pseudonym of a value whose name means a secret, or `None` if the value reveals nothing.
    fn pseudonym_of(&self, value: &str) -> Option<String> {
        (!named::reveals_nothing(value)).then(|| self.key.text(value.as_bytes()).to_string())
    }

    /// Returns the replacement of credentials, or `None` if they reveal nothing. The scheme is kept.
    fn credentials_pseudonym(&self, value: &str) -> Option<String> {
        match named::scheme(value) {
            Some((scheme, rest)) => self.pseudonym_of(rest).map(|pseudonym| format!("{scheme} {pseudonym}")),
            None => self.pseudonym_of(value),
        }
    }

    /// Replaces the value in the `name=value` of a cookie and keeps the blanks around it. If the name is
    /// missing or not a valid cookie name, the whole text is a value.
    fn cookie_pair(&self, pair: &str) -> String {
        let is_name = |name: &str| media::is_token(name) && !names::is_unusual_name(name);
        let name = pair.split_once('=').map_or("", |(name, _)| name);
        let start = if is_name(name.trim()) { name.len() + 1 } else { 0 };
        let value = pair[start..].trim();
        let (before, after) = pair[start..].split_once(value).unwrap_or_default();
        format!("{}{before}{}{after}", &pair[..start], self.cookie_value(value))
    }

    /// Replaces the value of a cookie. Any cookie may be the one that identifies a session, so the name does
    /// not matter. Quotes are not part of the value.
    fn cookie_value(&self, value: &str) -> String {
        let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        self.pseudonym_of(inner).unwrap_or_else(|| value.to_owned())
    }

    /// Replaces the cookie values in `Set-Cookie`. Recorders join several fields with a line end, and some
    /// with a comma.
    fn set_cookies(&self, value: &str) -> String {
        let mut redacted = String::with_capacity(value.len());
        for line in value.split_inclusive('\n') {
            let mut is_pair = true;
            for part in line.split_inclusive(';') {
                let (text, end) = part.split_at(part.trim_end_matches([';', '\n']).len());
                if is_pair {
                    redacted.push_str(&self.cookie_pair(text));
                } else {
                    let (attribute, next) = joined(text);
                    redacted.push_str(&self.attribute(attribute));
                    if let Some(next) = next {
                        redacted.push(',');
                        redacted.push_str(&self.cookie_pair(next));
                    }
                }
                redacted.push_str(end);
                is_pair = false;
            }
        }
        redacted
    }

    /// Removes secrets from a cookie attribute. Unknown attributes are handled like cookies.
    fn attribute(&self, attribute: &str) -> String {
        let name = attribute.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        match &*name {
            "path" | "domain" | "expires" | "max-age" | "secure" | "httponly" | "partitioned"
            | "priority" => {
                let mut attribute = attribute.to_owned();
                self.plain(&mut attribute);
                attribute
            }
            "samesite" if is_same_site(attribute.split_once('=').map_or("", |(_, value)| value.trim())) => {
                attribute.to_owned()
            }
            _ => self.cookie_pair(attribute),
        }
    }

    /// Removes secrets from a parameter, given decoded, which has that beside it.
    pub(crate) fn pair(&self, beside: Beside, name: &mut String, value: &mut String) {
        if self.meaning(|| beside, name) == Meaning::Plain {
            self.text(value);
            // The blank that it begins with may be the plus of a phone number.
            let with_plus = value.strip_prefix(' ').map(|rest| format!("+{rest}"));
            if let Some(redacted) = with_plus.and_then(|value| self.redact(&value, 0)) {
                *value = redacted;
            }
        } else if let Some(pseudonym) = self.pseudonym_of(value) {
            *value = pseudonym;
        }
        self.text(name);
    }

    /// Removes secrets from a recorded body. Returns `true` if it was valid JSON.
    fn recorded(&self, media_type: &str, is_base64: bool, is_coded: bool, text: &mut String) -> bool {
        if !is_base64 {
            return self.body(media_type, text);
        }
        let mut bytes = base64::decode(text.as_bytes()).unwrap_or_default();
        if is_coded || charset::of(media_type) == Charset::Other {
            // The content cannot be inspected, so it may hold anything.
            bytes = self.key.text(&bytes).as_bytes().to_vec();
        }
        self.bytes(media_type, &mut bytes);
        let mut redacted = Vec::with_capacity(text.len());
        base64::encode(&bytes, &mut redacted);
        *text = String::from_utf8(redacted).unwrap_or_default();
        false
    }

    /// Removes secrets from a body of this media type that is given as bytes.
    pub(crate) fn bytes(&self, media_type: &str, bytes: &mut Vec<u8>) {
        if let Some(mut text) = charset::utf_16(bytes, media_type, true) {
            let before = text.clone();
            self.body(media_type, &mut text);
            if text != before {
                *bytes = self.key.text(bytes).as_bytes().to_vec();
            }
            return;
        }
        // Each byte is mapped to one character, so ASCII characters correspond to ASCII bytes.
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        if let Some(redacted) = self.redact(&text, 0) {
            *bytes = redacted.chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect();
        }
    }

    /// Removes secrets from a body of this media type. Returns `true` if it was valid JSON.
    pub(crate) fn body(&self, media_type: &str, text: &mut String) -> bool {
        match media::syntax(media_type) {
            Syntax::Json => return self.json(text),
            Syntax::Form => self.reference(text),
            Syntax::Multipart(_) => self.plain(text),
            Syntax::Opaque => self.text(text),
        }
        false
    }

    /// Removes secrets from a text of unknown syntax. It may be JSON or have JSON on its lines, as event
    /// streams and logs have.
    pub(crate) fn text(&self, text: &mut String) {
        if self.is_harmless(text) {
            return;
        }
        if begins_json(text) && self.json_alone(text).is_some() {
            return;
        }
        if text.lines().any(|line| !event(line).0.is_empty() || begins_json(line)) {
            let mut redacted = String::with_capacity(text.len());
            for line in text.split_inclusive('\n') {
                let (before, rest) = event(line);
                let (data, end) = rest.split_at(rest.trim_end().len());
                let mut data = data.to_owned();
                let is_json = begins_json(&data) && self.json_alone(&mut data).is_some();
                if !is_json && !before.is_empty() {
                    self.parameters(&mut data);
                }
                redacted.extend([before, &data, end]);
            }
            *text = redacted;
        }
        self.plain(text);
    }

    /// Removes secrets from a text that is not JSON. It may be a URL or contain one.
    fn plain(&self, text: &mut String) {
        if text.contains('%') {
            self.parts(text);
        } else if let Some(redacted) = self.redact(text, 0) {
            *text = redacted;
        }
    }

    fn param(&self, beside: Beside, param: &mut Param) {
        let Param { name, value, file_name, content_type, .. } = param;
        match value {
            Some(value) => self.pair(beside, name, value),
            None => self.text(name),
        }
        for text in file_name.iter_mut().chain(content_type) {
            self.text(text);
        }
    }

    /// Removes secrets from a URL, a reference or a form.
    pub(crate) fn reference(&self, text: &mut String) {
        self.parameters(text);
        self.parts(text);
    }

    /// Replaces the values of parameters whose name means a secret, in any encoding.
    fn parameters(&self, text: &mut String) {
        if !text.contains('=') {
            return;
        }
        let beside = OnceCell::new();
        let beside = || *beside.get_or_init(|| Beside::of_parameters(text));
        let (mut redacted, mut rest) = (String::with_capacity(text.len()), text.as_str());
        let (mut is_in_path, mut has_query) = (false, false);
        loop {
            let end = rest.find(['?', '&', '#', ';']).unwrap_or(rest.len());
            let name = rest[..end].split_once('=').map(|(name, _)| name);
            let is_secret = |name: &&str| {
                let name = if name.contains(['%', '+']) {
                    Cow::Owned(String::from_utf8_lossy(&decode(name, true)).into_owned())
                } else {
                    Cow::Borrowed(*name)
                };
                self.meaning(beside, &name) != Meaning::Plain
            };
            let name = name.filter(is_secret);
            let end = match name {
                None => {
                    redacted.push_str(&rest[..end]);
                    end
                }
                Some(name) => {
                    let start = name.len() + 1;
                    // A parameter of a path segment ends with the segment.
                    let ends: &[char] = if is_in_path { &['&', '#', '?', '/'] } else { &['&', '#'] };
                    let end = rest[start..].find(ends).map_or(rest.len(), |end| start + end);
                    redacted.push_str(&rest[..start]);
                    redacted.push_str(&self.encoded_pseudonym(&rest[start..end]));
                    end
                }
            };
            let Some(delimiter) = rest[end..].chars().next() else { break };
            redacted.push(delimiter);
            has_query |= delimiter == '?';
            is_in_path = delimiter == ';' && !has_query;
            rest = &rest[end + delimiter.len_utf8()..];
        }
        *text = redacted;
    }

    /// Returns the replacement of a percent-encoded value.
    fn encoded_pseudonym(&self, value: &str) -> String {
        match String::from_utf8(decode(value, true)) {
            Ok(decoded) => self.pseudonym_of(&decoded).unwrap_or_else(|| value.to_owned()),
            Err(error) => self.key.text(error.as_bytes()).to_string(),
        }
    }

    /// Removes secrets from a text with percent-encoding: each part is also checked in decoded form. Scheme
    /// and host stay.
    fn parts(&self, text: &mut String) {
        if text.contains(['%', '+']) {
            *text = self.decoded_parts(text);
        }
        let authority = text.find("://").map_or(0, |at| at + 3);
        let host_end = text[authority..].find(['/', '?', '#']).map_or(text.len(), |at| authority + at);
        // The slash is included, because a finding may begin with the port.
        let path = host_end + usize::from(text[host_end..].starts_with('/'));
        let origin = if authority == 0 || text[..host_end].contains('@') { 0 } else { path };
        if let Some(redacted) = self.redact(text, origin) {
            *text = redacted;
        }
    }

    /// Checks each encoded part by itself, in decoded form.
    fn decoded_parts(&self, text: &str) -> String {
        let is_delimiter = |letter: char| matches!(letter, '/' | '?' | '&' | '=' | '#' | ';');
        let mut out = String::with_capacity(text.len());
        for part in text.split_inclusive(is_delimiter) {
            let encoded = part.trim_end_matches(is_delimiter);
            // A plus may be a blank, or itself.
            let redacted = |is_form| self.redact(&String::from_utf8(decode(encoded, is_form)).ok()?, 0);
            let is_encoded = encoded.contains(['%', '+']);
            match is_encoded.then(|| redacted(true).or_else(|| redacted(false))).flatten() {
                Some(redacted) => {
                    encode(redacted.as_bytes(), is_unreserved, &mut out);
                    out.push_str(&part[encoded.len()..]);
                }
                None => out.push_str(part),
            }
        }
        out
    }

    /// Removes secrets from JSON. Returns `true` if it is valid JSON.
    fn json(&self, text: &mut String) -> bool {
        if let Some(is_whole) = self.json_alone(text) {
            return is_whole;
        }
        // It may be several JSON texts, each on a line.
        self.text(text);
        false
    }

    /// Removes secrets from the names and leaves of JSON, which are checked unescaped. The text is rewritten
    /// only if something is found, and may be cut off. Returns `true` if it is complete, or `None`, without
    /// changes, if it is not JSON.
    fn json_alone(&self, text: &mut String) -> Option<bool> {
        self.json_within(text, 0)
    }

    /// Removes secrets from JSON that is in this number of other JSON texts. See
    /// [`json_alone`](Self::json_alone).
    fn json_within(&self, text: &mut String, depth: usize) -> Option<bool> {
        // A byte order mark is not part of the JSON.
        let json = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut leaves = Leaves::new(self, Beside::of_body(json), json.len(), depth);
        let mut tokenizer = Tokenizer::new();
        tokenizer.push(json.as_bytes(), &mut leaves).ok()?;
        // A text that is cut off stays without its closing quote.
        let is_whole = tokenizer.finish(&mut leaves).is_ok();
        if !is_whole && let Some(held) = leaves.held.take() {
            leaves.leaf(whole_characters(&held));
        }
        if leaves.has_found {
            *text = String::from_utf8(leaves.out).unwrap_or_default();
        }
        Some(is_whole)
    }

    /// Returns a text of JSON without its secrets, or `None` if there are none. It may be JSON itself.
    fn redact_leaf(&self, text: &str, depth: usize) -> Option<String> {
        if depth < NESTED_TEXTS_MAX && begins_json(text) {
            let mut nested = text.to_owned();
            if self.json_within(&mut nested, depth + 1).is_some() {
                return (nested != text).then_some(nested);
            }
        }
        self.redact(text, 0)
    }

    /// Returns the text with findings after `from` replaced, or `None` if there are none. Also finds secrets
    /// in characters of two and four bytes, whose zero bytes come between the letters.
    fn redact(&self, text: &str, from: usize) -> Option<String> {
        if self.is_harmless(text) {
            return None;
        }
        let redacted = self.redact_rounds(text, from);
        let rest = &redacted.as_deref().unwrap_or(text)[from..];
        if rest.contains('\0') && !self.findings(&rest.replace('\0', "")).is_empty() {
            return Some(self.redact_all(text, from));
        }
        redacted
    }

    fn redact_all(&self, text: &str, from: usize) -> String {
        format!("{}{}", &text[..from], self.key.text(&text.as_bytes()[from..]))
    }

    /// Returns the text with findings after `from` replaced, or `None` if there are none. Zero bytes are not
    /// skipped.
    fn redact_rounds(&self, text: &str, from: usize) -> Option<String> {
        let mut redacted = self.redact_once(text, from)?;
        for _ in 0..ROUNDS {
            match self.redact_once(&redacted, from) {
                Some(less) => redacted = less,
                None => return Some(redacted),
            }
        }
        Some(self.redact_all(text, from))
    }

    fn redact_once(&self, text: &str, from: usize) -> Option<String> {
        let (mut redacted, mut end) = (String::new(), 0);
        for span in self.findings(text).into_iter().filter(|span| span.end > from) {
            let start = span.start.max(from);
            redacted.push_str(&text[end..start]);
            end = span.end;
            redacted.push_str(self.key.text(&text.as_bytes()[start..end]).as_str());
        }
        (end > 0).then(|| redacted + &text[end..])
    }
}

impl Redact for SecretRemover {
    fn value(&self, value: &mut String) {
        self.text(value);
    }

    fn redirect_url(&self, url: &mut String) {
        self.reference(url);
    }

    fn url(&self, url: &mut String, parameters: &mut [NameValue]) {
        self.reference(url);
        let beside = Beside::of_names(parameters.iter().map(|parameter| &*parameter.name));
        for NameValue { name, value, .. } in parameters {
            self.pair(beside, name, value);
        }
    }

    fn field(&self, _: MessageKind, field: &mut NameValue) {
        let NameValue { name, value, .. } = field;
        if name.eq_ignore_ascii_case("cookie") {
            *value = value.split(';').map(|pair| self.cookie_pair(pair)).collect::<Vec<_>>().join(";");
        } else if name.eq_ignore_ascii_case("set-cookie") {
            *value = self.set_cookies(value);
        } else if self.meaning_of_field(name) != Meaning::Plain {
            if let Some(pseudonym) = self.credentials_pseudonym(value) {
                *value = pseudonym;
            }
        } else if ["location", "content-location", "referer", ":path"]
            .iter()
            .any(|reference| name.eq_ignore_ascii_case(reference))
        {
            self.reference(value);
        } else {
            self.text(value);
        }
        self.text(name);
    }

    fn cookie(&self, _: MessageKind, cookie: &mut Cookie) {
        cookie.value = self.cookie_value(&cookie.value);
        let Cookie { name, path, domain, .. } = cookie;
        for text in std::iter::once(name).chain(path).chain(domain) {
            self.text(text);
        }
    }

    fn post_data(&self, post_data: &mut PostData, _: Memory<'_>) -> bool {
        let (extra, mut is_json) = (&post_data.extra, false);
        if let Some(text) = &mut post_data.text {
            let is_coded = extra.contains_key("_coded");
            is_json = self.recorded(&post_data.mime_type, extra.contains_key("_encoding"), is_coded, text);
        }
        let params = post_data.params.as_deref_mut().unwrap_or_default();
        let beside = Beside::of_names(params.iter().map(|param| &*param.name));
        for param in params {
            self.param(beside, param);
        }
        self.text(&mut post_data.mime_type);
        is_json
    }

    fn content(&self, content: &mut Content, _: Memory<'_>) -> bool {
        let mut is_json = false;
        if let Some(text) = &mut content.text {
            let is_coded = content.extra.contains_key("_coded");
            is_json = self.recorded(&content.mime_type, content.encoding.is_some(), is_coded, text);
        }
        self.text(&mut content.mime_type);
        is_json
    }
}

/// Splits an attribute from the cookie that a comma joins to it: `Path=/, b=c` or `Secure, b=c`. The comma
/// within a date does not count.
fn joined(attribute: &str) -> (&str, Option<&str>) {
    // The name of a cookie comes right before its `=`.
    let next = attribute.match_indices('=').find_map(|(end, _)| {
        let comma = attribute[..end].rfind(',')?;
        media::is_token(attribute[comma + 1..end].trim()).then_some(comma)
    });
    next.map_or((attribute, None), |comma| (&attribute[..comma], Some(&attribute[comma + 1..])))
}

fn begins_json(text: &str) -> bool {
    match text.as_bytes() {
        [b'{' | b'[', ..] => true,
        // Most texts begin with a letter or a digit.
        [b'0'..=b'z', ..] => false,
        _ => begins_json_after_blanks(text),
    }
}

fn begins_json_after_blanks(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '['])
}

/// Splits a line of an event stream, or of a sequence of JSON (RFC 7464), into the part before the data and
/// the data.
fn event(line: &str) -> (&str, &str) {
    let data = line.strip_prefix("data:").or_else(|| line.strip_prefix('\u{1e}')).unwrap_or(line);
    let data = data.trim_start_matches(' ');
    line.split_at(line.len() - data.len())
}

/// Writes JSON without its secrets.
struct Leaves<'a> {
    remover: &'a SecretRemover,
    beside: Beside,
    /// Number of JSON texts that this one is in.
    depth: usize,
    out: Vec<u8>,
    /// The string that is being read.
    held: Option<Vec<u8>>,
    has_found: bool,
    /// The containers that are open.
    open: Vec<Container>,
    /// Meaning of the name of the value that comes next.
    next: Meaning,
    /// Role of the value that comes next in a name-value pair.
    role: PairRole,
}

/// An object or a list.
struct Container {
    /// Meaning of the names above it.
    meaning: Meaning,
    kind: ContainerKind,
    /// Meaning of the name of a name-value pair for its value.
    named: Meaning,
    /// The value of a pair whose name has not been read.
    unnamed: Option<Written>,
}

/// A container, as far as it may be a name-value pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContainerKind {
    /// An object, which may be `{"name": "password", "value": ...}`.
    Object,
    /// A list.
    List,
    /// A list in a list, which may be `["authorization", ...]`. It is at the element of this number.
    InnerList(usize),
}

/// A leaf that has been written as it is.
struct Written {
    /// Its place in the output.
    place: Range<usize>,
    text: String,
    is_number: bool,
}

/// Role of a value in a name-value pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PairRole {
    None,
    Name,
    Value,
}

impl PairRole {
    /// Returns the role of the member of this name.
    fn of(name: &str) -> Self {
        let is_in = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
        if is_in(&["name", "key", "field", "header"]) {
            Self::Name
        } else if is_in(&["value", "values", "val"]) {
            Self::Value
        } else {
            Self::None
        }
    }
}

/// Returns a text without the rest of a character at its end, where a string is cut off.
fn whole_characters(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes)
        .unwrap_or_else(|error| std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default())
}

impl<'a> Leaves<'a> {
    fn new(remover: &'a SecretRemover, beside: Beside, bytes: usize, depth: usize) -> Self {
        Self {
            remover,
            beside,
            depth,
            out: Vec::with_capacity(bytes),
            held: None,
            has_found: false,
            open: Vec::new(),
            next: Meaning::Plain,
            role: PairRole::None,
        }
    }

    /// Writes the content of a string, with its secrets replaced.
    fn leaf(&mut self, text: &str) {
        let redacted = match self.next {
            Meaning::Plain => self.remover.redact_leaf(text, self.depth),
            Meaning::Secret | Meaning::SecretScalar | Meaning::AllSecret => {
                self.remover.credentials_pseudonym(text)
            }
        };
        let start = self.out.len();
        match redacted {
            Some(redacted) => {
                self.has_found = true;
                write_escaped(redacted.as_bytes(), &mut self.out);
            }
            None => write_escaped(text.as_bytes(), &mut self.out),
        }
        match self.role {
            PairRole::Name => self.name_pair(text),
            PairRole::Value => {
                self.hold(Written { place: start..self.out.len(), text: text.to_owned(), is_number: false });
            }
            PairRole::None => {}
        }
    }

    /// Sets the name of a name-value pair. Its value may have been written already.
    fn name_pair(&mut self, name: &str) {
        let named = self.remover.meaning(|| self.beside, name);
        let Some(container) = self.open.last_mut() else { return };
        container.named = named;
        if named == Meaning::Plain {
            return;
        }
        let Some(Written { place, text, is_number }) = container.unnamed.take() else { return };
        let replacement = if is_number {
            (!is_number_pseudonym(text.as_bytes()))
                .then(|| self.remover.key.number(text.as_bytes()).to_string())
        } else {
            self.remover.credentials_pseudonym(&text)
        };
        if let Some(replacement) = replacement {
            self.has_found = true;
            let mut written = Vec::new();
            write_escaped(replacement.as_bytes(), &mut written);
            self.out.splice(place, written);
        }
    }

    /// Keeps the value of a pair until its name is read.
    fn hold(&mut self, written: Written) {
        if let Some(container) = self.open.last_mut().filter(|container| container.named == Meaning::Plain) {
            container.unnamed = Some(written);
        }
    }

    /// Sets the meaning of the next value: elements of a list share the meaning of the list; in an object the
    /// name decides. Of a list in a list, the first element may be the name of the second one.
    fn between(&mut self) {
        (self.next, self.role) = match self.open.last() {
            None | Some(Container { kind: ContainerKind::Object, .. }) => (Meaning::Plain, PairRole::None),
            Some(Container { kind: ContainerKind::InnerList(0), meaning, .. }) => (*meaning, PairRole::Name),
            Some(Container { kind: ContainerKind::InnerList(1), named, .. }) if *named != Meaning::Plain => {
                (*named, PairRole::None)
            }
            Some(Container { meaning, .. }) => (*meaning, PairRole::None),
        };
    }

    /// Sets the meaning of the value of this member.
    fn named(&mut self, name: &str) {
        let Some(Container { meaning, named, .. }) = self.open.last() else { return };
        let (meaning, named) = (*meaning, *named);
        self.role = PairRole::of(name);
        self.next = if self.role == PairRole::Value && named != Meaning::Plain {
            named
        } else if self.beside == Beside::Grant && meaning == Meaning::Plain {
            self.remover.meaning(|| self.beside, name)
        } else {
            self.remover.or_own(name, named::meaning_within(meaning, name))
        };
    }
}

impl Sink for Leaves<'_> {
    fn open(&mut self, is_object: bool) {
        self.out.push(if is_object { b'{' } else { b'[' });
        let is_inner = self.open.last().is_some_and(|outer| outer.kind != ContainerKind::Object);
        let kind = match (is_object, is_inner) {
            (true, _) => ContainerKind::Object,
            (false, true) => ContainerKind::InnerList(0),
            (false, false) => ContainerKind::List,
        };
        self.open.push(Container { meaning: self.next, kind, named: Meaning::Plain, unnamed: None });
        if is_object {
            self.role = PairRole::None;
        } else {
            self.between();
        }
    }

    fn close(&mut self, is_object: bool) {
        self.out.push(if is_object { b'}' } else { b']' });
        self.open.pop();
        self.between();
    }

    fn comma(&mut self) {
        self.out.push(b',');
        if let Some(Container { kind: ContainerKind::InnerList(number), .. }) = self.open.last_mut() {
            *number += 1;
        }
        self.between();
    }

    fn name(&mut self, name: &str) {
        self.out.push(b'"');
        (self.next, self.role) = (Meaning::Plain, PairRole::None);
        self.leaf(name);
        self.out.extend_from_slice(b"\":");
        self.named(name);
    }

    fn begin_text(&mut self) {
        self.out.push(b'"');
        self.held = Some(Vec::new());
    }

    fn text(&mut self, piece: &[u8]) {
        if let Some(held) = &mut self.held {
            held.extend_from_slice(piece);
        }
    }

    fn end_text(&mut self) {
        let held = self.held.take().unwrap_or_default();
        self.leaf(whole_characters(&held));
        self.out.push(b'"');
    }

    fn number(&mut self, number: &[u8]) {
        let is_secret = match self.next {
            Meaning::Plain => !self.remover.findings(&String::from_utf8_lossy(number)).is_empty(),
            Meaning::Secret | Meaning::SecretScalar | Meaning::AllSecret => !is_number_pseudonym(number),
        };
        let start = self.out.len();
        if is_secret {
            self.has_found = true;
            self.out.extend_from_slice(self.remover.key.number(number).to_string().as_bytes());
        } else {
            self.out.extend_from_slice(number);
        }
        if self.role == PairRole::Value {
            let text = String::from_utf8_lossy(number).into_owned();
            self.hold(Written { place: start..self.out.len(), text, is_number: true });
        }
    }

    fn word(&mut self, word: &'static str) {
        self.out.extend_from_slice(word.as_bytes());
    }
}
