//! Finds possible secrets in a text: known formats of keys and tokens, random texts, and values whose name in
//! the text suggests a secret.
//!
//! Every byte is read a bounded number of times. The detectors are written by hand instead of as regular
//! expressions, because most formats end at the end of a word, and some need a checksum or a decoder. Egret's
//! own pseudonyms are never findings.

use std::cell::OnceCell;
use std::ops::Range;

use egret_items::words;

use crate::masks::Masks;
use crate::named::{self, Beside, Meaning};
use crate::parameters::decode;
use crate::personal::is_boundary;
use crate::pseudonym::is_pseudonym;
use crate::{base64, media};

words! {
    /// The kind of a finding.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum SecretKind: Display {
        /// A JSON Web Token, signed or encrypted (RFC 7519).
        Jwt => "JSON Web Token",
        /// An access key id of Amazon Web Services.
        AwsKey => "AWS access key",
        /// An API key, token or client secret of Google.
        GoogleKey => "Google key",
        /// A storage key or client secret of Microsoft Azure.
        AzureKey => "Azure key",
        /// A token of GitHub.
        GithubToken => "GitHub token",
        /// A key of Stripe.
        StripeKey => "Stripe key",
        /// A token or webhook URL of Slack.
        SlackToken => "Slack token",
        /// A key of `OpenAI`, or of a provider with the same format.
        AiKey => "AI provider's key",
        /// A private key in PEM (RFC 7468).
        PrivateKey => "private key",
        /// A payment card number with a valid check digit.
        CardNumber => "card number",
        /// An e-mail address.
        Email => "e-mail address",
        /// Credentials after `Bearer` or `Basic`.
        Credentials => "credentials",
        /// A text that is too random to be a word or a name.
        HighEntropy => "random text",
        /// A value whose name suggests a secret.
        Named => "secret by name",
    }
}

/// A possible secret in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectedSecret {
    /// Kind of secret.
    pub kind: SecretKind,
    /// Byte range in the text.
    pub span: Range<usize>,
}

/// Formats that consist of a prefix and a minimum number of characters after it.
const PREFIXES: &[(&str, usize, SecretKind)] = &[
    ("AIza", 35, SecretKind::GoogleKey),
    ("GOCSPX-", 28, SecretKind::GoogleKey),
    ("ghp_", 36, SecretKind::GithubToken),
    ("gho_", 36, SecretKind::GithubToken),
    ("ghu_", 36, SecretKind::GithubToken),
    ("ghs_", 36, SecretKind::GithubToken),
    ("ghr_", 36, SecretKind::GithubToken),
    ("github_pat_", 40, SecretKind::GithubToken),
    ("sk_live_", 16, SecretKind::StripeKey),
    ("sk_test_", 16, SecretKind::StripeKey),
    ("rk_live_", 16, SecretKind::StripeKey),
    ("rk_test_", 16, SecretKind::StripeKey),
    ("whsec_", 24, SecretKind::StripeKey),
    ("xoxa-", 10, SecretKind::SlackToken),
    ("xoxb-", 10, SecretKind::SlackToken),
    ("xoxe-", 10, SecretKind::SlackToken),
    ("xoxp-", 10, SecretKind::SlackToken),
    ("xoxr-", 10, SecretKind::SlackToken),
    ("xoxs-", 10, SecretKind::SlackToken),
    ("xapp-", 10, SecretKind::SlackToken),
    ("sk-", 20, SecretKind::AiKey),
    ("hf_", 30, SecretKind::AiKey),
];

/// Length of the shortest of these formats.
const PREFIXED_BYTES_MIN: usize = 15;

/// Minimum length of a finding that is a word by itself. The shortest is a payment card number.
const WORD_BYTES_MIN: usize = 13;

/// Minimum length of a random text. Shorter texts cannot be distinguished from words.
const RANDOM_BYTES_MIN: usize = 20;

/// Minimum length of a random text whose letters are all of one case.
const RANDOM_ONE_CASE_BYTES_MIN: usize = 24;

/// Minimum length of a random hexadecimal text: four bits per digit make 128 bits.
const RANDOM_HEX_BYTES_MIN: usize = 32;

/// Maximum length of the local part of an e-mail address (RFC 5321 §4.5.3.1.1).
const LOCAL_BYTES_MAX: usize = 64;

/// Maximum length of the domain of an e-mail address (RFC 5321 §4.5.3.1.2).
const DOMAIN_BYTES_MAX: usize = 255;

/// Maximum length of a name in a text. Longer names are ignored.
const NAME_BYTES_MAX: usize = 64;

/// Maximum length of user and password in a URL. Longer ones are ignored.
const USER_BYTES_MAX: usize = 512;

/// Maximum length of a URL in a text, as far as its parameters have a meaning for each other.
const URL_BYTES_MAX: usize = 1024;

/// Maximum length of a value of an attribute. A longer one ends the tag.
const ATTRIBUTE_BYTES_MAX: usize = 4096;

/// Maximum length of the header fields of a form part. Longer heads are ignored.
const PART_HEAD_BYTES_MAX: usize = 2048;

/// Returns the possible secrets in `text`, in order and without overlaps.
pub fn detect(text: &str) -> Vec<DetectedSecret> {
    detect_with(text, &Masks::default())
}

/// Does the same. The values of masked names are secrets, too.
pub(crate) fn detect_with(text: &str, masks: &Masks) -> Vec<DetectedSecret> {
    if is_short_word(text) {
        return Vec::new();
    }
    let mut scan = SecretScan {
        text: text.as_bytes(),
        whole: text,
        masks,
        beside: OnceCell::new(),
        run_end: 0,
        url: (0, Beside::Nothing),
        markup: Markup::default(),
        found: Vec::new(),
    };
    let mut at = 0;
    while at < scan.text.len() {
        at = scan.step(at);
    }
    scan.found
}

/// Returns `true` if a text is a word too short for any finding, as most names and many values are.
pub(crate) fn is_short_word(text: &str) -> bool {
    text.len() < WORD_BYTES_MIN && text.bytes().all(is_word)
}

/// Returns `true` if anything in `text` looks like a secret.
pub fn holds_secret(text: &str) -> bool {
    !detect(text).is_empty()
}

struct SecretScan<'a> {
    text: &'a [u8],
    /// The same text.
    whole: &'a str,
    masks: &'a Masks,
    /// The meaning of the text for a name in it, once there is one that depends on it.
    beside: OnceCell<Beside>,
    /// End of the last run of Base64 characters that was checked.
    run_end: usize,
    /// End of the last URL whose parameters were checked, and what they mean for each other.
    url: (usize, Beside),
    markup: Markup,
    found: Vec<DetectedSecret>,
}

/// The meaning of the tags before a position for the text after it.
#[derive(Default)]
struct Markup {
    /// End of the last tag.
    tag_end: usize,
    /// `true` if an attribute of that tag is the name of a secret, which another attribute has.
    is_pair: bool,
    /// Position after the tag of an element whose content is a secret.
    content_at: Option<usize>,
    /// Position of a tag that is the first content of such an element.
    child_at: Option<usize>,
    /// `true` if the next element is the value of a pair whose name was the content of the last one.
    is_named: bool,
}

/// A tag of XML or HTML that begins an element.
struct Tag {
    end: usize,
    /// Its name, without a prefix.
    name: Range<usize>,
    /// `true` if it also ends the element.
    is_empty: bool,
    /// `true` if the attribute `name` or `key` is the name of a secret.
    names_secret: bool,
    /// `true` if it has an attribute for the value of such a name.
    has_value: bool,
}

/// The bytes of words: letters and digits of ASCII, `_` and `-`.
static WORD: [bool; 256] = {
    let mut is_in = [false; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        is_in[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        byte += 1;
    }
    is_in
};

fn is_word(byte: u8) -> bool {
    WORD[usize::from(byte)]
}

/// Returns `true` if a word is a pseudonym, also with underscores or hyphens around it, as in a multipart
/// boundary.
fn is_own(word: &[u8]) -> bool {
    if word.len() < RANDOM_BYTES_MIN {
        return false;
    }
    let start = word.iter().take_while(|byte| matches!(byte, b'-' | b'_')).count();
    let end = word.len() - word[start..].iter().rev().take_while(|byte| **byte == b'-').count();
    is_pseudonym(&word[start..end])
}

impl<'a> SecretScan<'a> {
    /// Checks the text at `at` and returns the position to continue at.
    fn step(&mut self, at: usize) -> usize {
        let (length, separator) = match &self.text[at..] {
            [b'@', ..] => (1, true),
            // A percent-encoded character is not part of the word after it.
            [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => (3, true),
            [byte, ..] => (1, !is_word(*byte)),
            [] => return at + 1,
        };
        if self.text[at] == b'@' || self.text[at..].starts_with(b"%40") {
            // The password before a host is not part of an e-mail address.
            let is_password = self.found.last().is_some_and(|last| last.span.end == at);
            let address = self.email(at, length).filter(|_| !is_password);
            return address.map_or(at + length, |span| self.find(SecretKind::Email, span));
        }
        if self.text[at] == b'<' {
            self.open_tag(at);
        }
        if matches!(self.text[at], b'=' | b':' | b'>')
            && let Some((kind, span)) = self.named(at)
        {
            return self.find(kind, span);
        }
        if separator {
            return at + length;
        }
        let end = self.end(at, is_word);
        if is_own(&self.text[at..end]) {
            return end;
        }
        match self.shape(at, end) {
            Some((kind, span)) => self.find(kind, span),
            None => match self.random(at, end) {
                Some(span) => self.find(SecretKind::HighEntropy, span),
                None => end,
            },
        }
    }

    /// Adds a finding. An e-mail address may reach back into earlier findings, which it then replaces.
    fn find(&mut self, kind: SecretKind, span: Range<usize>) -> usize {
        while self.found.last().is_some_and(|last| last.span.end > span.start) {
            self.found.pop();
        }
        let end = span.end;
        self.found.push(DetectedSecret { kind, span });
        end
    }

    /// Returns the end of a run of bytes that `is_in` accepts.
    fn end(&self, from: usize, is_in: impl Fn(u8) -> bool) -> usize {
        let run = self.text[from..].iter().take_while(|byte| is_in(**byte)).count();
        from + run
    }

    fn word(&self, from: usize) -> &'a [u8] {
        &self.text[from..self.end(from, is_word)]
    }

    /// Returns the value that the `=`, `:` or `>` at `at` assigns to the name of a secret.
    fn named(&mut self, at: usize) -> Option<(SecretKind, Range<usize>)> {
        let after = &self.text[at + 1..];
        let span = match self.text[at] {
            b'=' => self.attribute(at).or_else(|| self.parameter(at))?,
            b'>' => self.content(at + 1)?,
            _ if after.starts_with(b"//") => {
                return self.password(at + 3).map(|span| (SecretKind::Credentials, span));
            }
            _ => self.member(at).or_else(|| self.argument(at)).or_else(|| self.line(at))?,
        };
        let value = std::str::from_utf8(&self.text[span.clone()]).unwrap_or_default().trim_end();
        let credentials = named::scheme(value).map_or(value, |(_, credentials)| credentials);
        if named::reveals_nothing(credentials) {
            return None;
        }
        let end = span.start + value.len();
        let span = end - credentials.len()..end;
        // A known format is more specific, and may be longer.
        let shape = self.shape(span.start, self.end(span.start, is_word));
        let shape = shape.filter(|(_, found)| found.start == span.start && found.end >= span.end);
        Some(shape.unwrap_or((SecretKind::Named, span)))
    }

    /// Returns the run of bytes before `end` that may be a name.
    fn name_before(&self, end: usize, is_in: impl Fn(u8) -> bool) -> Option<Range<usize>> {
        let bytes = self.text[..end].iter().rev().take(NAME_BYTES_MAX + 1);
        let length = bytes.take_while(|byte| is_in(**byte)).count();
        (1..=NAME_BYTES_MAX).contains(&length).then(|| end - length..end)
    }

    fn is_secret(&self, name: &Range<usize>) -> bool {
        self.is_name_secret(&String::from_utf8_lossy(&self.text[name.clone()]))
    }

    fn is_name_secret(&self, name: &str) -> bool {
        self.masks.has(name) || named::meaning_beside(|| self.beside(), name) != Meaning::Plain
    }

    /// Returns what the text means for a name in it. It is read once.
    fn beside(&self) -> Beside {
        *self.beside.get_or_init(|| Beside::of_body(self.whole))
    }

    /// Returns `true` if the encoded name of a parameter of a URL is of a secret.
    fn is_secret_parameter(&mut self, name: &Range<usize>) -> bool {
        let (at, name) = (name.start, String::from_utf8_lossy(&self.text[name.clone()]));
        let decoded;
        let name = if name.contains('%') {
            decoded = decode(&name, true);
            String::from_utf8_lossy(&decoded)
        } else {
            name
        };
        self.masks.has(&name) || named::meaning_beside(|| self.beside_in_url(at), &name) != Meaning::Plain
    }

    /// Returns what the parameters of the URL around `at` mean for each other. Each URL is read once.
    fn beside_in_url(&mut self, at: usize) -> Beside {
        let (end, beside) = self.url;
        if at < end || self.beside() == Beside::Grant {
            return beside.max(self.beside());
        }
        let is_in = |byte: &u8| *byte > b' ' && !b"\"'<>`".contains(byte);
        let before = self.text[..at].iter().rev().take(URL_BYTES_MAX).take_while(|byte| is_in(byte)).count();
        let after = self.text[at..].iter().take(URL_BYTES_MAX).take_while(|byte| is_in(byte)).count();
        let url = String::from_utf8_lossy(&self.text[at - before..at + after]);
        self.url = (at + after, Beside::of_parameters(&url));
        self.url.1
    }

    /// Finds `name=value` in the form of queries, forms and environment files. It must begin a line or follow
    /// `?`, `#` or `&`: in other positions it is usually code.
    fn parameter(&mut self, at: usize) -> Option<Range<usize>> {
        let name = self.name_before(at, |byte| is_word(byte) || b".[]%".contains(&byte))?;
        let begins = match &self.text[..name.start] {
            // A dot in a name at the beginning of a line means code that assigns to a member.
            [] | [.., b'\n' | b'\r'] => !self.text[name.clone()].contains(&b'.'),
            [.., b'?' | b'#'] | [.., b'&', b'a', b'm', b'p', b';'] => true,
            [before @ .., b'&'] => !before.ends_with(b"&"),
            _ => false,
        };
        if !begins || !self.is_secret_parameter(&name) {
            return None;
        }
        let is_value = |byte: u8| byte > b' ' && byte != 0x7f && !b"&\"'<>#\\`".contains(&byte);
        let mut end = self.end(at + 1, is_value);
        if self.text.get(end) == Some(&b' ')
            && named::is_scheme(&String::from_utf8_lossy(&self.text[at + 1..end]))
        {
            end = self.end(end + 1, is_value);
        }
        // Punctuation at the end of a sentence or list is not part of the value.
        while end > at + 1 && matches!(self.text[end - 1], b';' | b',' | b'.' | b')') {
            end -= 1;
        }
        Some(at + 1..end)
    }

    /// Finds the password of the `user:password@` at `at`.
    fn password(&self, at: usize) -> Option<Range<usize>> {
        let bytes = self.text[at..].iter().take(USER_BYTES_MAX);
        let is_in = |byte: &&u8| **byte > b' ' && !b"/?#\"'<>\\".contains(*byte);
        let authority = &self.text[at..at + bytes.take_while(is_in).count()];
        let end = authority.iter().rposition(|byte| *byte == b'@')?;
        let start = authority[..end].iter().position(|byte| *byte == b':')? + 1;
        (start < end && !is_pseudonym(&authority[start..end])).then(|| at + start..at + end)
    }

    /// Finds `"name": "value"` in the form of JSON and code. The quotes may be escaped, and the value may be
    /// a number.
    fn member(&self, at: usize) -> Option<Range<usize>> {
        let blanks =
            self.text[..at].iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).take(8).count();
        let (quote, before) =
            self.text[..at - blanks].split_last().filter(|(byte, _)| matches!(byte, b'"' | b'\''))?;
        let end = if before.ends_with(b"\\") { before.len() - 1 } else { before.len() };
        let name = self.name_before(end, |byte| byte != *quote && byte >= b' ')?;
        let is_opened = self.text[..name.start].ends_with(&[*quote]);
        if !is_opened || !self.is_secret(&name) {
            return None;
        }
        let start = self.end(at + 1, |byte| byte.is_ascii_whitespace());
        let is_escaped = self.text[start..].starts_with(b"\\");
        let start = start + usize::from(is_escaped);
        match self.text.get(start) {
            Some(quote @ (b'"' | b'\'')) => {
                Some(start + 1..self.end_of_quoted(start + 1, *quote, is_escaped))
            }
            Some(b'-' | b'0'..=b'9') => {
                Some(start..self.end(start, |byte| is_word(byte) || matches!(byte, b'.' | b'+')))
            }
            _ => None,
        }
    }

    /// Finds `name: "value"` in the form of GraphQL and code. The quotes may be escaped, and three of them
    /// may enclose the value.
    fn argument(&self, at: usize) -> Option<Range<usize>> {
        let name = self.name_before(at, |byte| is_word(byte) || !byte.is_ascii())?;
        let begins = match &self.text[..name.start] {
            [] => true,
            [.., before] => before.is_ascii_whitespace() || b"({[,".contains(before),
        };
        let start = self.end(at + 1, |byte| matches!(byte, b' ' | b'\t'));
        let is_escaped = self.text[start..].starts_with(b"\\");
        let start = start + usize::from(is_escaped);
        let quote = *self.text.get(start).filter(|byte| matches!(byte, b'"' | b'\''))?;
        if !begins || !self.is_secret(&name) {
            return None;
        }
        if self.text[start..].starts_with(b"\"\"\"") {
            let rest = &self.text[start + 3..];
            let end = rest.windows(3).position(|window| window == b"\"\"\"").unwrap_or(rest.len());
            return Some(start + 3..start + 3 + end);
        }
        Some(start + 1..self.end_of_quoted(start + 1, quote, is_escaped))
    }

    /// Returns the end of the quoted text that begins at `start`. A text that is cut off ends at the end.
    fn end_of_quoted(&self, start: usize, quote: u8, is_escaped: bool) -> usize {
        let mut at = start;
        while let Some(byte) = self.text.get(at) {
            match byte {
                byte if *byte == quote => break,
                // If the opening quote is escaped, so is the closing one.
                b'\\' if is_escaped && self.text.get(at + 1) == Some(&quote) => break,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        // Stay on a character boundary.
        at.min(self.text.len())
    }

    /// Finds `Name: value` in the form of header fields. It must begin a line or a quoted text, and the name
    /// must have a hyphen or be a well-known field: code and prose use other names before a colon.
    fn line(&self, at: usize) -> Option<Range<usize>> {
        let name = self.name_before(at, is_word)?;
        let written = &self.text[name.clone()];
        let quote = match &self.text[..name.start] {
            [] | [.., b'\n' | b'\r'] => b'\n',
            [.., quote @ (b'"' | b'\'')] => *quote,
            _ => return None,
        };
        if written.eq_ignore_ascii_case(b"content-disposition") {
            return self.part(at);
        }
        let is_field = written.contains(&b'-')
            || [&b"authorization"[..], b"authorisation", b"authentication", b"cookie", b"dpop"]
                .iter()
                .any(|field| written.eq_ignore_ascii_case(field));
        if !is_field || !self.is_secret(&name) {
            return None;
        }
        let start = self.end(at + 1, |byte| matches!(byte, b' ' | b'\t'));
        Some(start..self.end(start, |byte| !matches!(byte, b'\r' | b'\n') && byte != quote))
    }

    /// Finds the content of a form part. `at` is the colon after its `Content-Disposition`.
    fn part(&self, at: usize) -> Option<Range<usize>> {
        let head = &self.text[at..self.text.len().min(at + PART_HEAD_BYTES_MAX)];
        let mut lines = head.split_inclusive(|byte| *byte == b'\n');
        let mut start = at;
        let disposition = lines.next()?;
        let name = {
            let disposition = String::from_utf8_lossy(disposition);
            media::parameters(&disposition).find(|(name, _)| name.eq_ignore_ascii_case("name"))?.1
        };
        if !self.is_name_secret(&name) {
            return None;
        }
        start += disposition.len();
        loop {
            let line = lines.next().filter(|line| line.ends_with(b"\n"))?;
            start += line.len();
            if line.trim_ascii().is_empty() {
                break;
            }
        }
        let ends = self.text[start..].windows(3).position(|window| window == b"\n--");
        let content = &self.text[start..ends.map_or(self.text.len(), |end| start + end)];
        Some(start..start + content.strip_suffix(b"\r").unwrap_or(content).len())
    }

    /// Reads the tag that the `<` at `at` may begin.
    fn open_tag(&mut self, at: usize) {
        if at < self.markup.tag_end {
            return;
        }
        let Some(tag) = self.tag(at) else { return };
        let Tag { end, name, is_empty, names_secret, has_value } = tag;
        let is_named = std::mem::take(&mut self.markup.is_named);
        let text = String::from_utf8_lossy(&self.text[name.clone()]);
        let is_child = self.markup.child_at == Some(at) && named::stands_for_its_parent(&text);
        let is_name = ["name", "key"].iter().any(|known| text.eq_ignore_ascii_case(known));
        let is_secret = is_named || is_child || self.is_secret(&name) || names_secret && !has_value;
        self.markup = Markup {
            tag_end: end,
            is_pair: names_secret,
            content_at: (is_secret && !is_empty).then_some(end),
            child_at: None,
            is_named: is_name && !is_empty && self.is_name_of_secret(end),
        };
    }

    /// Returns `true` if the text from `start` to the next tag is the name of a secret.
    fn is_name_of_secret(&self, start: usize) -> bool {
        let name = &self.text[start..self.text.len().min(start + NAME_BYTES_MAX + 1)];
        let end = name.iter().position(|byte| *byte == b'<');
        end.is_some_and(|end| self.is_secret(&(start..start + end)))
    }

    /// Reads the tag at `at`: a name, and attributes with values in quotes or none.
    fn tag(&self, at: usize) -> Option<Tag> {
        let is_in_name = |byte: u8| is_word(byte) || matches!(byte, b'.' | b':') || !byte.is_ascii();
        let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_' || !byte.is_ascii();
        self.text.get(at + 1).filter(|byte| is_first(byte))?;
        let mut end = self.end(at + 1, is_in_name);
        let name = self.local_name(at + 1..end);
        let (mut names_secret, mut has_value) = (false, false);
        loop {
            end = self.end(end, |byte| byte.is_ascii_whitespace());
            match &self.text[end..] {
                [b'>', ..] => {
                    return Some(Tag { end: end + 1, name, is_empty: false, names_secret, has_value });
                }
                [b'/', b'>', ..] => {
                    return Some(Tag { end: end + 2, name, is_empty: true, names_secret, has_value });
                }
                _ => {}
            }
            let start = end;
            end = self.end(start, is_in_name);
            if end == start {
                return None;
            }
            let attribute = &self.text[self.local_name(start..end)];
            let Some(value) = self.quoted(self.end(end, |byte| byte.is_ascii_whitespace())) else { continue };
            end = value.end + 1;
            names_secret |= is_attribute(attribute, &NAME_ATTRIBUTES) && self.is_secret(&value);
            has_value |= is_attribute(attribute, &VALUE_ATTRIBUTES);
        }
    }

    /// Returns the part of a name after its prefix (XML Namespaces §4).
    fn local_name(&self, name: Range<usize>) -> Range<usize> {
        let colon = self.text[name.clone()].iter().rposition(|byte| *byte == b':');
        colon.map_or(name.clone(), |colon| name.start + colon + 1..name.end)
    }

    /// Returns the text in quotes after the `=` at `at`.
    fn quoted(&self, at: usize) -> Option<Range<usize>> {
        self.text.get(at).filter(|byte| **byte == b'=')?;
        let start = self.end(at + 1, |byte| byte.is_ascii_whitespace());
        let quote = self.text.get(start).filter(|byte| matches!(byte, b'"' | b'\''))?;
        let max = self.text.len().min(start + 1 + ATTRIBUTE_BYTES_MAX);
        let len = self.text[start + 1..max].iter().position(|byte| byte == quote)?;
        Some(start + 1..start + 1 + len)
    }

    /// Finds the value of an attribute of the last tag, whose `=` is at `at`.
    fn attribute(&self, at: usize) -> Option<Range<usize>> {
        if at >= self.markup.tag_end {
            return None;
        }
        let before = &self.text[..at];
        let end = before.trim_ascii_end().len();
        let name =
            self.name_before(end, |byte| is_word(byte) || matches!(byte, b'.' | b':') || !byte.is_ascii())?;
        let begins = self.text[..name.start].last().is_some_and(u8::is_ascii_whitespace);
        let name = self.local_name(name);
        let is_value = self.markup.is_pair && is_attribute(&self.text[name.clone()], &VALUE_ATTRIBUTES);
        if !begins || !(is_value || self.is_secret(&name)) {
            return None;
        }
        self.quoted(at)
    }

    /// Finds the content of an element whose tag ends at `at`, if it is a secret. It ends with the text.
    fn content(&mut self, at: usize) -> Option<Range<usize>> {
        self.markup.content_at.take_if(|content| *content == at)?;
        let start = self.end(at, |byte| byte.is_ascii_whitespace());
        let rest = &self.text[start..];
        if let Some(data) = rest.strip_prefix(b"<![CDATA[") {
            let len = data.windows(3).position(|window| window == b"]]>").unwrap_or(data.len());
            let start = start + rest.len() - data.len();
            return Some(start..start + len);
        }
        let len = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if len == 0 {
            self.markup.child_at = Some(start);
            return None;
        }
        Some(start..start + len)
    }

    /// Finds a known format that begins with the word `at..end`.
    fn shape(&self, at: usize, end: usize) -> Option<(SecretKind, Range<usize>)> {
        let word = &self.text[at..end];
        if word.ends_with(b"-----BEGIN") {
            return self.private_key(end - 10).map(|span| (SecretKind::PrivateKey, span));
        }
        if let Some(kind) = prefixed(word) {
            return Some((kind, at..end));
        }
        if let Some(span) = self.jwt(at, end) {
            return Some((SecretKind::Jwt, span));
        }
        if let Some(span) = self.credentials(at, end) {
            return Some((SecretKind::Credentials, span));
        }
        let dotted = match word.first() {
            Some(b'y') => self.dotted(at, b"ya29.", 20).map(|span| (SecretKind::GoogleKey, span)),
            Some(b'h') => {
                let span = self.dotted(at, b"hooks.slack.com/services/", 20);
                span.map(|span| (SecretKind::SlackToken, span))
            }
            _ => None,
        };
        if dotted.is_some() {
            return dotted;
        }
        if let Some(span) = self.azure(at, end) {
            return Some((SecretKind::AzureKey, span));
        }
        let is_number = word.first().is_some_and(u8::is_ascii_digit);
        let number = if is_number { self.card(at) } else { None };
        number.map(|span| (SecretKind::CardNumber, span))
    }

    fn private_key(&self, start: usize) -> Option<Range<usize>> {
        let label = &self.text[start + 10..self.text.len().min(start + 74)];
        let end = label.windows(5).position(|dashes| dashes == b"-----")?;
        let is_label = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b' ';
        if !label[..end].iter().all(is_label) || !label[..end].ends_with(b"PRIVATE KEY") {
            return None;
        }
        // A key that is cut off ends at the end of the text, so nothing after it is read twice.
        let body = start + 10 + end + 5;
        let footer = self.text[body..].windows(9).position(|window| window == b"-----END ");
        let Some(footer) = footer.map(|at| body + at + 9) else { return Some(start..self.text.len()) };
        let footer_end =
            self.end(footer, |byte| byte.is_ascii_uppercase() || matches!(byte, b' ' | b'0'..=b'9'));
        Some(start..self.end(footer_end, |byte| byte == b'-'))
    }

    /// Finds three to five parts separated by dots, the first of which is JSON: `{"` is `eyJ` in Base64.
    fn jwt(&self, at: usize, end: usize) -> Option<Range<usize>> {
        if !self.text[at..end].starts_with(b"eyJ") || end - at < 10 {
            return None;
        }
        let (mut parts, mut last) = (1, end);
        while parts < 5 && self.text.get(last) == Some(&b'.') {
            last = self.end(last + 1, is_word);
            parts += 1;
        }
        let has_second = !self.text.get(end + 1..).is_none_or(|_| self.word(end + 1).is_empty());
        (parts >= 3 && has_second).then_some(at..last)
    }

    fn credentials(&self, at: usize, end: usize) -> Option<Range<usize>> {
        let scheme = &self.text[at..end];
        let is_basic = scheme.eq_ignore_ascii_case(b"basic");
        if !is_basic && !scheme.eq_ignore_ascii_case(b"bearer") {
            return None;
        }
        let start = self.end(end, |byte| byte == b' ');
        let bare = self.end(start, |byte| is_word(byte) || b".~+/".contains(&byte));
        let token = &self.text[start..bare];
        let is_secret = if is_basic {
            base64::decode(token)
                .is_some_and(|bytes| bytes.contains(&b':') && std::str::from_utf8(&bytes).is_ok())
        } else {
            let has_digit = token.iter().any(u8::is_ascii_digit);
            !is_pseudonym(token) && (token.len() >= 8 && has_digit || token.len() >= 32)
        };
        (start > end && is_secret).then(|| start..self.end(bare, |byte| byte == b'='))
    }

    /// Finds a prefix that spans more than one word, followed by at least `least` characters.
    fn dotted(&self, at: usize, prefix: &[u8], least: usize) -> Option<Range<usize>> {
        self.text[at..].strip_prefix(prefix)?;
        let start = at + prefix.len();
        let end = self.end(start, |byte| is_word(byte) || byte == b'/');
        (end - start >= least).then_some(at..end)
    }

    /// Finds an Azure storage key, which is 64 bytes in Base64, or a client secret, which has a marker such
    /// as `8Q~` after three characters.
    fn azure(&self, at: usize, end: usize) -> Option<Range<usize>> {
        if let [.., digit, b'Q'] = self.text[at..end]
            && digit.is_ascii_digit()
            && self.text.get(end) == Some(&b'~')
        {
            let last = self.end(end + 1, |byte| is_word(byte) || matches!(byte, b'.' | b'~'));
            return (last - end > 31).then_some(end.saturating_sub(5).max(at)..last);
        }
        let last = at + 88;
        let key = self.text.get(at..last)?.strip_suffix(b"==")?;
        let is_key = key.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
        (is_key && key.iter().any(u8::is_ascii_digit)).then_some(at..last)
    }

    /// Finds a card number: digits with single spaces or hyphens between them.
    fn card(&self, at: usize) -> Option<Range<usize>> {
        // The fraction of a number is not a card number.
        if at > 0 && self.text[at - 1] == b'.' {
            return None;
        }
        let (mut digits, mut number, mut found) = (0, [0_u8; 19], None);
        for (offset, byte) in self.text[at..].iter().enumerate() {
            match byte {
                b'0'..=b'9' if digits < number.len() => {
                    number[digits] = byte - b'0';
                    digits += 1;
                    let after = self.text.get(at + offset + 1..).unwrap_or_default();
                    if is_boundary(after) && is_card(&number[..digits]) {
                        found = Some(at..at + offset + 1);
                    }
                }
                b' ' | b'-' if digits > 0 && self.text[at + offset - 1].is_ascii_digit() => {}
                _ => break,
            }
        }
        found
    }

    /// Finds an e-mail address whose `@` is at `at` and has `length` bytes.
    fn email(&self, at: usize, length: usize) -> Option<Range<usize>> {
        let is_local = |byte: &&u8| is_word(**byte) || b".+%".contains(byte);
        let local = self.text[..at].iter().rev().take(LOCAL_BYTES_MAX).take_while(is_local).count();
        // An encoded character such as `%3D` before an address in a URL is included, which is harmless.
        let start = at - local;
        let domain = at + length;
        let mut end = self.end(domain, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
        while end > domain && matches!(self.text[end - 1], b'.' | b'-') {
            end -= 1;
        }
        let host = &self.text[domain..end];
        let mut labels = host.rsplit(|byte| *byte == b'.');
        let top = labels.next()?;
        let is_top = top.len() >= 2 && top.iter().all(u8::is_ascii_alphabetic) && !is_extension(top);
        let has_second = labels.clone().count() > 0 && labels.all(|label| !label.is_empty());
        let is_address = local > 0 && host.len() <= DOMAIN_BYTES_MAX && is_top && has_second;
        (is_address && !is_pseudonym(&self.text[start..at])).then_some(start..end)
    }

    /// Finds random text in the run of Base64 characters that begins here, or else in the next word. Each run
    /// is checked once.
    fn random(&mut self, at: usize, end: usize) -> Option<Range<usize>> {
        if at >= self.run_end {
            self.run_end = self.end(end, |byte| is_word(byte) || matches!(byte, b'+' | b'/'));
            let run = &self.text[at..self.run_end];
            if is_random(run) && is_base64(run) {
                return Some(at..self.end(self.run_end, |byte| byte == b'='));
            }
        }
        is_random(&self.text[at..end]).then_some(at..end)
    }
}

/// Attributes that name what others of the tag have the value of: `<input name="password" value="...">`.
const NAME_ATTRIBUTES: [&[u8]; 2] = [b"name", b"key"];

/// Attributes that have the value.
const VALUE_ATTRIBUTES: [&[u8]; 2] = [b"value", b"content"];

fn is_attribute(name: &[u8], known: &[&[u8]]) -> bool {
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns `true` if a run of Base64 characters is not a path. A path has more slashes than random text.
fn is_base64(run: &[u8]) -> bool {
    let mut pieces = run.split(|byte| matches!(byte, b'/' | b'+'));
    pieces.clone().count() <= 3 + run.len() / 16 && !pieces.any(is_own)
}

/// Finds a known format that is a single word.
fn prefixed(word: &[u8]) -> Option<SecretKind> {
    if word.len() < PREFIXED_BYTES_MIN {
        return None;
    }
    let is_upper = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    if word.len() == 20
        && word.iter().all(is_upper)
        && [b"AKIA", b"ASIA", b"ABIA", b"ACCA"].iter().any(|prefix| word.starts_with(*prefix))
    {
        return Some(SecretKind::AwsKey);
    }
    let (prefix, least, kind) = PREFIXES.iter().find(|(prefix, ..)| word.starts_with(prefix.as_bytes()))?;
    let rest = &word[prefix.len()..];
    let has_digit = rest.iter().any(u8::is_ascii_digit);
    // Ordinary words may follow the prefix and a hyphen: `sk-learn-...`.
    let is_long = rest.len() >= *least
        && (*kind != SecretKind::AiKey || rest.iter().any(u8::is_ascii_uppercase) || !rest.contains(&b'-'));
    (is_long && has_digit).then_some(*kind)
}

/// Returns `true` if the digits have an issuer's prefix, a length of that issuer, and a valid checksum
/// (ISO/IEC 7812-1).
fn is_card(digits: &[u8]) -> bool {
    let Some([a, b, c, d]) = digits.first_chunk::<4>().map(|first| first.map(u32::from)) else {
        return false;
    };
    let first = a * 1_000 + b * 100 + c * 10 + d;
    let is_issued = matches!(
        (first, digits.len()),
        (4_000..5_000, 13 | 16 | 19)
            | (5_100..5_600 | 2_221..2_721, 16)
            | (3_400..3_500 | 3_700..3_800, 15)
            | (6_011 | 6_440..6_600 | 6_200..6_300 | 3_528..3_590, 16..=19)
            | (3_000..3_060 | 3_600..3_700 | 3_800..3_900, 14..=19)
    );
    let luhn = |(index, digit): (usize, &u8)| match (index % 2, u32::from(*digit) * 2) {
        (0, double) => double / 2,
        (_, double) => double / 10 + double % 10,
    };
    is_issued && digits.iter().rev().enumerate().map(luhn).sum::<u32>().is_multiple_of(10)
}

/// Returns `true` if the top-level domain is a file extension: `icon@2x.png` is not an address.
fn is_extension(top: &[u8]) -> bool {
    [&b"png"[..], b"jpg", b"jpeg", b"gif", b"svg", b"webp", b"js", b"css", b"mjs"]
        .iter()
        .any(|other| top.eq_ignore_ascii_case(other))
}

/// Returns `true` if a text is too random to be a word, a name, a number or a UUID.
fn is_random(text: &[u8]) -> bool {
    if text.len() < RANDOM_BYTES_MIN || is_uuid(text) {
        return false;
    }
    let count = |is_in: fn(&u8) -> bool| text.iter().filter(|byte| is_in(byte)).count();
    let (digits, upper, lower) =
        (count(u8::is_ascii_digit), count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase));
    if digits == 0 || digits + upper + lower == digits {
        return false;
    }
    let is_one_case = upper == 0 || lower == 0;
    if is_one_case && text.iter().all(u8::is_ascii_hexdigit) {
        return text.len() >= RANDOM_HEX_BYTES_MIN && entropy_bits(text) >= 3.0;
    }
    // In words and names, characters of one kind (digits, capitals, small letters) form runs; in random text
    // the kind changes with about every second character.
    let changes = changes(text) * 100 / text.len();
    if is_one_case {
        return text.len() >= RANDOM_ONE_CASE_BYTES_MIN
            && digits >= 4
            && changes >= 25
            && entropy_bits(text) >= 3.5;
    }
    changes >= 35 && entropy_bits(text) >= 3.7
}

/// Returns `true` if a text is a UUID (RFC 9562 §4). It counts without an early exit, so the compiler checks
/// many bytes at once.
pub(crate) fn is_uuid(text: &[u8]) -> bool {
    let Ok(text) = <&[u8; 36]>::try_from(text) else { return false };
    let digits: u8 = text.iter().map(|byte| u8::from(byte.is_ascii_hexdigit())).sum();
    digits == 32 && [8, 13, 18, 23].iter().all(|at| text[*at] == b'-')
}

/// Number of letters and digits whose kind differs from that of the one before.
fn changes(text: &[u8]) -> usize {
    let kinds = text.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let kinds = kinds.map(|byte| (byte.is_ascii_digit(), byte.is_ascii_uppercase()));
    kinds.clone().zip(kinds.skip(1)).filter(|(one, other)| one != other).count()
}

/// Shannon entropy in bits per byte.
fn entropy_bits(text: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text {
        counts[usize::from(*byte)] += 1;
    }
    #[expect(clippy::cast_precision_loss, reason = "it is compared with a rough threshold")]
    let len = text.len() as f64;
    let share = |count: &u32| f64::from(*count) / len;
    counts.iter().filter(|count| **count > 0).map(share).map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
mod tests;
