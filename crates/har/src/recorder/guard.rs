//! Takes out of what is not obfuscated what looks like a secret: its pseudonym comes in its place, and the rest stays.

use crate::base64;
use crate::detect::detect;
use crate::har::{Content, Cookie, NameValue, Param, PostData};
use crate::json::{Sink, Tokenizer, write_escaped};
use crate::key::Key;
use crate::media::{self, Syntax};
use crate::parameters::{decode, encode, is_unreserved};

/// How often what is left is looked at again: taking one thing out may bring another together.
const ROUNDS: usize = 3;

/// Takes out secrets, by the pseudonyms of a key.
#[derive(Debug, Clone)]
pub(super) struct Guard(Key);

impl Guard {
    pub(super) fn new(key: Key) -> Self {
        Self(key)
    }

    /// What is left of a text. It may be a URL, or have one in it.
    pub(super) fn text(&self, text: &mut String) {
        if text.contains('%') {
            self.reference(text);
        } else if let Some(left) = self.left(text, 0) {
            *text = left;
        }
    }

    /// What is left of bytes that are no text.
    fn bytes(&self, bytes: &mut Vec<u8>) {
        // Letter by letter the same bytes, and none of them in ASCII that was not.
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        if let Some(left) = self.left(&text, 0) {
            *bytes = left.chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect();
        }
    }

    pub(super) fn field(&self, field: &mut NameValue) {
        self.text(&mut field.name);
        self.text(&mut field.value);
    }

    pub(super) fn cookie(&self, cookie: &mut Cookie) {
        let Cookie { name, value, path, domain, .. } = cookie;
        for text in [name, value].into_iter().chain(path).chain(domain) {
            self.text(text);
        }
    }

    pub(super) fn post_data(&self, post_data: &mut PostData) -> bool {
        let (extra, mut is_json) = (&post_data.extra, false);
        if let Some(text) = &mut post_data.text {
            is_json = self.body(
                &post_data.mime_type,
                extra.contains_key("_encoding"),
                extra.contains_key("_coded"),
                text,
            );
        }
        for param in post_data.params.iter_mut().flatten() {
            self.param(param);
        }
        self.text(&mut post_data.mime_type);
        is_json
    }

    pub(super) fn content(&self, content: &mut Content) -> bool {
        let mut is_json = false;
        if let Some(text) = &mut content.text {
            let is_coded = content.extra.contains_key("_coded");
            is_json = self.body(&content.mime_type, content.encoding.is_some(), is_coded, text);
        }
        self.text(&mut content.mime_type);
        is_json
    }

    /// Says whether it has been read as JSON.
    fn body(&self, media_type: &str, is_base64: bool, is_coded: bool, text: &mut String) -> bool {
        if is_base64 {
            let mut bytes = base64::decode(text.as_bytes()).unwrap_or_default();
            if is_coded {
                // What nobody can look into may hold anything.
                bytes = self.0.text(&bytes).as_bytes().to_vec();
            }
            self.bytes(&mut bytes);
            let mut told = Vec::with_capacity(text.len());
            base64::encode(&bytes, &mut told);
            *text = String::from_utf8(told).unwrap_or_default();
            return false;
        }
        match media::syntax(media_type) {
            Syntax::Json => return self.json(text),
            Syntax::Form => self.reference(text),
            Syntax::Multipart(_) | Syntax::Opaque => self.text(text),
        }
        false
    }

    fn param(&self, param: &mut Param) {
        let Param { name, value, file_name, content_type, .. } = param;
        for text in std::iter::once(name).chain(value).chain(file_name).chain(content_type) {
            self.text(text);
        }
    }

    /// What is left of a URL, a reference or a form: what is found in a part is found however that is spelt. Scheme and host stay.
    pub(super) fn reference(&self, text: &mut String) {
        let is_delimiter = |letter: char| matches!(letter, '/' | '?' | '&' | '=' | '#' | ';');
        let mut told = String::with_capacity(text.len());
        for part in text.split_inclusive(is_delimiter) {
            let spelt = part.trim_end_matches(is_delimiter);
            let decoded =
                spelt.contains(['%', '+']).then(|| String::from_utf8(decode(spelt, true)).ok()).flatten();
            match decoded.and_then(|decoded| self.left(&decoded, 0)) {
                Some(left) => {
                    encode(left.as_bytes(), is_unreserved, &mut told);
                    told.push_str(&part[spelt.len()..]);
                }
                None => told.push_str(part),
            }
        }
        *text = told;
        let authority = text.find("://").map_or(0, |at| at + 3);
        let host_end = text[authority..].find(['/', '?', '#']).map_or(text.len(), |at| authority + at);
        // With the slash, since what is found may begin with the port.
        let path = host_end + usize::from(text[host_end..].starts_with('/'));
        let origin = if authority == 0 || text[..host_end].contains('@') { 0 } else { path };
        if let Some(left) = self.left(text, origin) {
            *text = left;
        }
    }

    /// What is left of JSON: names and leaves are looked at as what they stand for. Where nothing is found it stays as it is spelt, and
    /// so does where it is cut off. Says whether it is JSON.
    fn json(&self, text: &mut String) -> bool {
        let mut leaves =
            Leaves { guard: self, out: Vec::with_capacity(text.len()), held: None, has_found: false };
        let mut tokenizer = Tokenizer::new();
        if tokenizer.push(text.as_bytes(), &mut leaves).is_err() {
            self.text(text);
            return false;
        }
        // What was cut off ends as it does.
        let is_whole = tokenizer.finish(&mut leaves).is_ok();
        if !is_whole && let Some(held) = leaves.held.take() {
            leaves.leaf(&held);
        }
        if leaves.has_found {
            *text = String::from_utf8(leaves.out).unwrap_or_default();
        }
        is_whole
    }

    /// What is left of a text from there on; `None` where nothing was found.
    fn left(&self, text: &str, from: usize) -> Option<String> {
        let mut left = self.once(text, from)?;
        for _ in 0..ROUNDS {
            match self.once(&left, from) {
                Some(less) => left = less,
                None => return Some(left),
            }
        }
        Some(format!("{}{}", &text[..from], self.0.text(&text.as_bytes()[from..])))
    }

    fn once(&self, text: &str, from: usize) -> Option<String> {
        let (mut told, mut end) = (String::new(), 0);
        for finding in detect(text).into_iter().filter(|finding| finding.span.end > from) {
            let start = finding.span.start.max(from);
            told.push_str(&text[end..start]);
            end = finding.span.end;
            told.push_str(self.0.text(&text.as_bytes()[start..end]).as_str());
        }
        (end > 0).then(|| told + &text[end..])
    }
}

/// Writes JSON without its secrets.
struct Leaves<'a> {
    guard: &'a Guard,
    out: Vec<u8>,
    /// A text that is read.
    held: Option<Vec<u8>>,
    has_found: bool,
}

impl Leaves<'_> {
    /// What is left of a text, within its quotes.
    fn leaf(&mut self, leaf: &[u8]) {
        // It may be cut off within a character.
        let whole = std::str::from_utf8(leaf).map_or_else(|error| error.valid_up_to(), str::len);
        let text = std::str::from_utf8(&leaf[..whole]).unwrap_or_default();
        match self.guard.left(text, 0) {
            Some(left) => {
                self.has_found = true;
                write_escaped(left.as_bytes(), &mut self.out);
            }
            None => write_escaped(text.as_bytes(), &mut self.out),
        }
    }
}

impl Sink for Leaves<'_> {
    fn open(&mut self, is_object: bool) {
        self.out.push(if is_object { b'{' } else { b'[' });
    }

    fn close(&mut self, is_object: bool) {
        self.out.push(if is_object { b'}' } else { b']' });
    }

    fn comma(&mut self) {
        self.out.push(b',');
    }

    fn name(&mut self, name: &str) {
        self.out.push(b'"');
        self.leaf(name.as_bytes());
        self.out.extend_from_slice(b"\":");
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
        self.leaf(&held);
        self.out.push(b'"');
    }

    fn number(&mut self, number: &[u8]) {
        let text = String::from_utf8_lossy(number);
        if detect(&text).is_empty() {
            self.out.extend_from_slice(number);
        } else {
            self.has_found = true;
            self.out.extend_from_slice(self.guard.0.number(number).to_string().as_bytes());
        }
    }

    fn word(&mut self, word: &'static str) {
        self.out.extend_from_slice(word.as_bytes());
    }
}
