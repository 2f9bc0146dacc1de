//! Finds what looks like a secret in a text: known shapes, what is too random to be anything else, and values whose name in the text
//! is one of a secret.
//!
//! Every byte is looked at a bounded number of times. Written by hand rather than as regular expressions: most shapes end where a word
//! ends, and some need a sum or a decoder. Our own pseudonyms are found by none.

use std::fmt;
use std::ops::Range;

use crate::base64;
use crate::media;
use crate::named::{self, Meaning};
use crate::pseudonym::is_pseudonym;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A JSON Web Token, signed or encrypted (RFC 7519).
    Jwt,
    /// The id of an access key of Amazon Web Services.
    AwsKey,
    /// An API key, token or client secret of Google.
    GoogleKey,
    /// A storage key or client secret of Microsoft Azure.
    AzureKey,
    /// A token of GitHub.
    GithubToken,
    /// A key of Stripe.
    StripeKey,
    /// A token or web hook of Slack.
    SlackToken,
    /// A key of `OpenAI`, and of those who write theirs alike.
    AiKey,
    /// A private key in PEM (RFC 7468).
    PrivateKey,
    /// A payment card's number, with the right check digit.
    CardNumber,
    /// An e-mail address.
    Email,
    /// What follows `Bearer` or `Basic`.
    Credentials,
    /// A text too random to be a word or a name.
    HighEntropy,
    /// A value whose name is one of a secret.
    Named,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jwt => "JSON Web Token",
            Self::AwsKey => "AWS access key",
            Self::GoogleKey => "Google key",
            Self::AzureKey => "Azure key",
            Self::GithubToken => "GitHub token",
            Self::StripeKey => "Stripe key",
            Self::SlackToken => "Slack token",
            Self::AiKey => "AI provider's key",
            Self::PrivateKey => "private key",
            Self::CardNumber => "card number",
            Self::Email => "e-mail address",
            Self::Credentials => "credentials",
            Self::HighEntropy => "random text",
            Self::Named => "a secret by its name",
        })
    }
}

/// A place in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it looks like.
    pub kind: Kind,
    /// Its bytes.
    pub span: Range<usize>,
}

/// Shapes that are a prefix and at least so many letters after it.
const PREFIXES: &[(&str, usize, Kind)] = &[
    ("AIza", 35, Kind::GoogleKey),
    ("GOCSPX-", 28, Kind::GoogleKey),
    ("ghp_", 36, Kind::GithubToken),
    ("gho_", 36, Kind::GithubToken),
    ("ghu_", 36, Kind::GithubToken),
    ("ghs_", 36, Kind::GithubToken),
    ("ghr_", 36, Kind::GithubToken),
    ("github_pat_", 40, Kind::GithubToken),
    ("sk_live_", 16, Kind::StripeKey),
    ("sk_test_", 16, Kind::StripeKey),
    ("rk_live_", 16, Kind::StripeKey),
    ("rk_test_", 16, Kind::StripeKey),
    ("whsec_", 24, Kind::StripeKey),
    ("xoxa-", 10, Kind::SlackToken),
    ("xoxb-", 10, Kind::SlackToken),
    ("xoxe-", 10, Kind::SlackToken),
    ("xoxp-", 10, Kind::SlackToken),
    ("xoxr-", 10, Kind::SlackToken),
    ("xoxs-", 10, Kind::SlackToken),
    ("xapp-", 10, Kind::SlackToken),
    ("sk-", 20, Kind::AiKey),
    ("hf_", 30, Kind::AiKey),
];

/// The shortest of these shapes.
const PREFIXED_BYTES_MIN: usize = 15;

/// No word by itself is found that is shorter: a payment card's number is the shortest.
const WORD_BYTES_MIN: usize = 13;

/// Shorter texts are not random enough to be told from words.
const RANDOM_BYTES_MIN: usize = 20;

/// Where letters of one case and digits are mixed, more are needed.
const RANDOM_ONE_CASE_BYTES_MIN: usize = 24;

/// Hexadecimal carries four bits a digit: this is the shortest key.
const RANDOM_HEX_BYTES_MIN: usize = 32;

/// Longest local part of an address (RFC 5321 §4.5.3.1.1).
const LOCAL_BYTES_MAX: usize = 64;

/// Longest domain of an address (RFC 5321 §4.5.3.1.2).
const DOMAIN_BYTES_MAX: usize = 255;

/// Longer names in a text are not read.
const NAME_BYTES_MAX: usize = 64;

/// Longer users and passwords in a URL are not read.
const USER_BYTES_MAX: usize = 512;

/// Longer header fields of a part of a form are not read.
const PART_HEAD_BYTES_MAX: usize = 2048;

/// What looks like a secret in `text`, in its order; findings do not overlap.
pub fn detect(text: &str) -> Vec<Finding> {
    if is_short_word(text) {
        return Vec::new();
    }
    let mut scan = Scan { text: text.as_bytes(), run_end: 0, found: Vec::new() };
    let mut at = 0;
    while at < scan.text.len() {
        at = scan.step(at);
    }
    scan.found
}

/// Whether a text is a word in which nothing is found, as most names and many values are.
pub(crate) fn is_short_word(text: &str) -> bool {
    text.len() < WORD_BYTES_MIN && text.bytes().all(is_word)
}

/// Whether anything in `text` looks like a secret.
pub fn holds_secret(text: &str) -> bool {
    !detect(text).is_empty()
}

struct Scan<'a> {
    text: &'a [u8],
    /// Where the run of base64 ends that was judged last.
    run_end: usize,
    found: Vec<Finding>,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Whether a word is a pseudonym, such as a boundary of multipart with its hyphens, or a name with its underscore.
fn is_own(word: &[u8]) -> bool {
    let start = word.iter().take_while(|byte| matches!(byte, b'-' | b'_')).count();
    let end = word.len() - word[start..].iter().rev().take_while(|byte| **byte == b'-').count();
    is_pseudonym(&word[start..end])
}

impl<'a> Scan<'a> {
    /// Looks at what begins at `at`, and says where to go on.
    fn step(&mut self, at: usize) -> usize {
        let (length, separator) = match &self.text[at..] {
            [b'@', ..] => (1, true),
            // An encoded letter is none of the word after it.
            [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => (3, true),
            [byte, ..] => (1, !is_word(*byte)),
            [] => return at + 1,
        };
        if self.text[at] == b'@' || self.text[at..].starts_with(b"%40") {
            // The password before a host is no part of an address.
            let is_password = self.found.last().is_some_and(|last| last.span.end == at);
            let address = self.email(at, length).filter(|_| !is_password);
            return address.map_or(at + length, |span| self.find(Kind::Email, span));
        }
        if matches!(self.text[at], b'=' | b':')
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
                Some(span) => self.find(Kind::HighEntropy, span),
                None => end,
            },
        }
    }

    /// Notes a finding. An address may reach back into one before, which it then takes in.
    fn find(&mut self, kind: Kind, span: Range<usize>) -> usize {
        while self.found.last().is_some_and(|last| last.span.end > span.start) {
            self.found.pop();
        }
        let end = span.end;
        self.found.push(Finding { kind, span });
        end
    }

    /// Where a run of such bytes ends.
    fn end(&self, from: usize, is_in: impl Fn(u8) -> bool) -> usize {
        let run = self.text[from..].iter().take_while(|byte| is_in(**byte)).count();
        from + run
    }

    fn word(&self, from: usize) -> &'a [u8] {
        &self.text[from..self.end(from, is_word)]
    }

    /// The value that the `=` or `:` at `at` gives a name of a secret.
    fn named(&self, at: usize) -> Option<(Kind, Range<usize>)> {
        let after = &self.text[at + 1..];
        let span = if self.text[at] == b'=' {
            self.parameter(at)?
        } else if after.starts_with(b"//") {
            return self.password(at + 3).map(|span| (Kind::Credentials, span));
        } else {
            self.member(at).or_else(|| self.line(at))?
        };
        let value = std::str::from_utf8(&self.text[span.clone()]).unwrap_or_default().trim_end();
        let credentials = named::scheme(value).map_or(value, |(_, credentials)| credentials);
        if named::tells_nothing(credentials) {
            return None;
        }
        let end = span.start + value.len();
        let span = end - credentials.len()..end;
        // What it is by its look says more, and may be more.
        let shape = self.shape(span.start, self.end(span.start, is_word));
        let shape = shape.filter(|(_, found)| found.start == span.start && found.end >= span.end);
        Some(shape.unwrap_or((Kind::Named, span)))
    }

    /// What stands before `end` and may be part of a name.
    fn name_before(&self, end: usize, is_in: impl Fn(u8) -> bool) -> Option<Range<usize>> {
        let bytes = self.text[..end].iter().rev().take(NAME_BYTES_MAX + 1);
        let length = bytes.take_while(|byte| is_in(**byte)).count();
        (1..=NAME_BYTES_MAX).contains(&length).then(|| end - length..end)
    }

    fn is_secret(&self, name: &Range<usize>) -> bool {
        named::meaning(&String::from_utf8_lossy(&self.text[name.clone()])) != Meaning::Plain
    }

    /// `name=value` as queries, forms and environments have it: it begins a line or follows `?` or `&`. Code has it elsewhere.
    fn parameter(&self, at: usize) -> Option<Range<usize>> {
        let name = self.name_before(at, |byte| is_word(byte) || b".[]%".contains(&byte))?;
        let begins = match &self.text[..name.start] {
            // Code assigns to members at the beginning of a line.
            [] | [.., b'\n' | b'\r'] => !self.text[name.clone()].contains(&b'.'),
            [.., b'?'] | [.., b'&', b'a', b'm', b'p', b';'] => true,
            [before @ .., b'&'] => !before.ends_with(b"&"),
            _ => false,
        };
        if !begins || !self.is_secret(&name) {
            return None;
        }
        let is_value = |byte: u8| byte > b' ' && byte != 0x7f && !b"&\"'<>#\\`".contains(&byte);
        let mut end = self.end(at + 1, is_value);
        if self.text.get(end) == Some(&b' ')
            && named::is_scheme(&String::from_utf8_lossy(&self.text[at + 1..end]))
        {
            end = self.end(end + 1, is_value);
        }
        // What ends a sentence or a list is part of no value.
        while end > at + 1 && matches!(self.text[end - 1], b';' | b',' | b'.' | b')') {
            end -= 1;
        }
        Some(at + 1..end)
    }

    /// The password of `user:password@` at `at`.
    fn password(&self, at: usize) -> Option<Range<usize>> {
        let bytes = self.text[at..].iter().take(USER_BYTES_MAX);
        let is_in = |byte: &&u8| **byte > b' ' && !b"/?#\"'<>\\".contains(*byte);
        let authority = &self.text[at..at + bytes.take_while(is_in).count()];
        let end = authority.iter().rposition(|byte| *byte == b'@')?;
        let start = authority[..end].iter().position(|byte| *byte == b':')? + 1;
        (start < end && !is_pseudonym(&authority[start..end])).then(|| at + start..at + end)
    }

    /// `"name": "value"` as JSON and code have it; the quotes may be escaped, and the value a number.
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

    /// Where a quoted text ends that begins at `start`; one that is cut off reaches to the end.
    fn end_of_quoted(&self, start: usize, quote: u8, is_escaped: bool) -> usize {
        let mut at = start;
        while let Some(byte) = self.text.get(at) {
            match byte {
                byte if *byte == quote => break,
                // Within quotes that are escaped, so is the last of them.
                b'\\' if is_escaped && self.text.get(at + 1) == Some(&quote) => break,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        // Not within a character.
        at.min(self.text.len())
    }

    /// `Name: value` as header fields have it: it begins a line or a quoted text, and its name has a hyphen or is one of HTTP's. Code and
    /// prose have other names before a colon.
    fn line(&self, at: usize) -> Option<Range<usize>> {
        let name = self.name_before(at, is_word)?;
        let spelt = &self.text[name.clone()];
        let quote = match &self.text[..name.start] {
            [] | [.., b'\n' | b'\r'] => b'\n',
            [.., quote @ (b'"' | b'\'')] => *quote,
            _ => return None,
        };
        if spelt.eq_ignore_ascii_case(b"content-disposition") {
            return self.part(at);
        }
        let is_field = spelt.contains(&b'-')
            || spelt.eq_ignore_ascii_case(b"authorization")
            || spelt.eq_ignore_ascii_case(b"cookie");
        if !is_field || !self.is_secret(&name) {
            return None;
        }
        let start = self.end(at + 1, |byte| matches!(byte, b' ' | b'\t'));
        Some(start..self.end(start, |byte| !matches!(byte, b'\r' | b'\n') && byte != quote))
    }

    /// The content of a part of a form, whose `Content-Disposition` ends its name at `at`.
    fn part(&self, at: usize) -> Option<Range<usize>> {
        let head = &self.text[at..self.text.len().min(at + PART_HEAD_BYTES_MAX)];
        let mut lines = head.split_inclusive(|byte| *byte == b'\n');
        let mut start = at;
        let disposition = lines.next()?;
        let name = {
            let disposition = String::from_utf8_lossy(disposition);
            media::parameters(&disposition).find(|(name, _)| name.eq_ignore_ascii_case("name"))?.1
        };
        if named::meaning(&name) == Meaning::Plain {
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

    /// A known shape that begins with the word at `at`.
    fn shape(&self, at: usize, end: usize) -> Option<(Kind, Range<usize>)> {
        let word = &self.text[at..end];
        if word.ends_with(b"-----BEGIN") {
            return self.private_key(end - 10).map(|span| (Kind::PrivateKey, span));
        }
        if let Some(kind) = prefixed(word) {
            return Some((kind, at..end));
        }
        if let Some(span) = self.jwt(at, end) {
            return Some((Kind::Jwt, span));
        }
        if let Some(span) = self.credentials(at, end) {
            return Some((Kind::Credentials, span));
        }
        if let Some(span) = self.dotted(at, b"ya29.", 20) {
            return Some((Kind::GoogleKey, span));
        }
        if let Some(span) = self.dotted(at, b"hooks.slack.com/services/", 20) {
            return Some((Kind::SlackToken, span));
        }
        if let Some(span) = self.azure(at, end) {
            return Some((Kind::AzureKey, span));
        }
        self.card(at).map(|span| (Kind::CardNumber, span))
    }

    fn private_key(&self, start: usize) -> Option<Range<usize>> {
        let label = &self.text[start + 10..self.text.len().min(start + 74)];
        let end = label.windows(5).position(|dashes| dashes == b"-----")?;
        let is_label = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b' ';
        if !label[..end].iter().all(is_label) || !label[..end].ends_with(b"PRIVATE KEY") {
            return None;
        }
        // One that is cut off reaches to the end, so that nothing behind it is read twice.
        let body = start + 10 + end + 5;
        let footer = self.text[body..].windows(9).position(|window| window == b"-----END ");
        let Some(footer) = footer.map(|at| body + at + 9) else { return Some(start..self.text.len()) };
        let footer_end =
            self.end(footer, |byte| byte.is_ascii_uppercase() || matches!(byte, b' ' | b'0'..=b'9'));
        Some(start..self.end(footer_end, |byte| byte == b'-'))
    }

    /// Three parts or more with dots between them, of which the first is JSON: `{"` begins `eyJ`.
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

    /// A prefix that is more than a word, and so many letters after it.
    fn dotted(&self, at: usize, prefix: &[u8], least: usize) -> Option<Range<usize>> {
        self.text[at..].strip_prefix(prefix)?;
        let start = at + prefix.len();
        let end = self.end(start, |byte| is_word(byte) || byte == b'/');
        (end - start >= least).then_some(at..end)
    }

    /// A storage key is 64 bytes in base64; a client secret has `8Q~` or its like after three letters.
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

    /// Digits, with single spaces or hyphens between them.
    fn card(&self, at: usize) -> Option<Range<usize>> {
        // A fraction is no card.
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

    /// An address whose `@`, of this length, is at `at`.
    fn email(&self, at: usize, length: usize) -> Option<Range<usize>> {
        let is_local = |byte: &&u8| is_word(**byte) || b".+%".contains(byte);
        let local = self.text[..at].iter().rev().take(LOCAL_BYTES_MAX).take_while(is_local).count();
        // The `%3D` before an address in a URL is not part of it, but nobody is harmed if it is.
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

    /// What is random in the run of base64 that begins here, or in its next word. A run is judged once.
    fn random(&mut self, at: usize, end: usize) -> Option<Range<usize>> {
        if at >= self.run_end {
            self.run_end = self.end(at, |byte| is_word(byte) || matches!(byte, b'+' | b'/'));
            let run = &self.text[at..self.run_end];
            if is_random(run) && is_base64(run) {
                return Some(at..self.end(self.run_end, |byte| byte == b'='));
            }
        }
        is_random(&self.text[at..end]).then_some(at..end)
    }
}

/// Whether a run of base64 is none of path: that has more slashes than are there by chance.
fn is_base64(run: &[u8]) -> bool {
    let mut pieces = run.split(|byte| matches!(byte, b'/' | b'+'));
    pieces.clone().count() <= 3 + run.len() / 16 && !pieces.any(is_own)
}

/// A shape that is a word by itself.
fn prefixed(word: &[u8]) -> Option<Kind> {
    if word.len() < PREFIXED_BYTES_MIN {
        return None;
    }
    let is_upper = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    if word.len() == 20
        && word.iter().all(is_upper)
        && [b"AKIA", b"ASIA", b"ABIA", b"ACCA"].iter().any(|prefix| word.starts_with(*prefix))
    {
        return Some(Kind::AwsKey);
    }
    let (prefix, least, kind) = PREFIXES.iter().find(|(prefix, ..)| word.starts_with(prefix.as_bytes()))?;
    let rest = &word[prefix.len()..];
    let has_digit = rest.iter().any(u8::is_ascii_digit);
    // Words follow a hyphen too: `sk-learn-...`.
    let is_long = rest.len() >= *least
        && (*kind != Kind::AiKey || rest.iter().any(u8::is_ascii_uppercase) || !rest.contains(&b'-'));
    (is_long && has_digit).then_some(*kind)
}

/// Whether a number may end before this.
fn is_boundary(after: &[u8]) -> bool {
    match after {
        [b'.', digit, ..] => !digit.is_ascii_digit(),
        [byte, ..] => !byte.is_ascii_alphanumeric() && *byte != b'_',
        [] => true,
    }
}

/// Whether digits begin as an issuer's do, are as many, and add up (ISO/IEC 7812-1).
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
    let luhn = |(place, digit): (usize, &u8)| match (place % 2, u32::from(*digit) * 2) {
        (0, double) => double / 2,
        (_, double) => double / 10 + double % 10,
    };
    is_issued && digits.iter().rev().enumerate().map(luhn).sum::<u32>().is_multiple_of(10)
}

/// `icon@2x.png` is no address.
fn is_extension(top: &[u8]) -> bool {
    [&b"png"[..], b"jpg", b"jpeg", b"gif", b"svg", b"webp", b"js", b"css", b"mjs"]
        .iter()
        .any(|other| top.eq_ignore_ascii_case(other))
}

/// Whether a text is too random for a word, a name, a number or a UUID.
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
    // In words and names, letters of a kind stand together; in random text every other one is of another kind than that before it.
    let changes = changes(text) * 100 / text.len();
    if is_one_case {
        return text.len() >= RANDOM_ONE_CASE_BYTES_MIN
            && digits >= 4
            && changes >= 25
            && entropy_bits(text) >= 3.5;
    }
    changes >= 35 && entropy_bits(text) >= 3.7
}

/// RFC 9562 §4.
fn is_uuid(text: &[u8]) -> bool {
    let is_place = |(place, byte): (usize, &u8)| match place {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.iter().enumerate().all(is_place)
}

/// How often a letter or digit is of another kind than that before it.
fn changes(text: &[u8]) -> usize {
    let kinds = text.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let kinds = kinds.map(|byte| (byte.is_ascii_digit(), byte.is_ascii_uppercase()));
    kinds.clone().zip(kinds.skip(1)).filter(|(one, other)| one != other).count()
}

/// Shannon's entropy, in bits a byte.
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
