//! Masks secrets that a provider sends back. Each character of a secret is replaced by one asterisk, so
//! lengths do not change.
//!
//! In a text that arrives in pieces, the amount held back must not depend on the secrets. Otherwise an
//! attacker who makes the provider send a guess would see it arrive late if the guess is the beginning of a
//! secret. So the amount depends on lengths and line ends only.

use std::sync::Arc;

use egret_har::base64;
use egret_items::opaque;
use zeroize::Zeroizing;

use super::find::{Coding, Finder, LINE_BYTES_MIN, WordTrie};

/// Minimum length of a secret, in bytes. Shorter ones occur by chance in too many texts.
pub const SECRET_BYTES_MIN: usize = 8;
/// Maximum length of a secret, in bytes. About eight times as much is held back of a body without lines.
pub const SECRET_BYTES_MAX: usize = 16 << 10;

const MASK: u8 = b'*';

/// Compiled secrets to mask. Each is found verbatim, percent-encoded (also with `+` for a space), escaped as
/// in JSON, and in Base64. In Base64 it is found at any offset, as in `Authorization: Basic`, and across
/// lines, as in MIME.
pub struct SecretPatterns {
    words: WordTrie,
    /// `true` if a secret contains a line end; a line end in the text then does not prove that a secret has
    /// ended.
    has_lines: bool,
}

/// A secret whose length does not distinguish it from other text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("only a secret of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes can be distinguished from other text; \
             this one has {}", .len)]
pub struct SecretLengthError {
    /// Length of the secret, in bytes.
    pub len: usize,
}

opaque!(SecretPatterns);

impl SecretPatterns {
    /// Compiles `secrets`. Returns an error if one of them is too short or too long to distinguish from other
    /// text.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s [u8]>) -> Result<Self, SecretLengthError> {
        let mut words = Vec::new();
        let mut has_lines = false;
        for secret in secrets {
            if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
                return Err(SecretLengthError { len: secret.len() });
            }
            has_lines |= secret.iter().any(|byte| is_line_end(*byte));
            words.push(Zeroizing::new(secret.to_vec()));
            words.extend(in_form(secret));
            words.extend((0..3).flat_map(|offset| in_base64(secret, offset)));
        }
        let words = WordTrie::new(words.iter().map(|word| word.as_slice()));
        Ok(Self { words: if has_lines { words } else { words.wrapped() }, has_lines })
    }

    /// Masks a complete text. Returns `true` if it contained a secret.
    pub fn mask(self: &Arc<Self>, text: &mut [u8]) -> bool {
        let masked = self.masked(text);
        if let Some(masked) = &masked {
            text.copy_from_slice(masked);
        }
        masked.is_some()
    }

    /// Returns a complete text with its secrets masked, of the same length, or `None` if it has none.
    pub fn masked(self: &Arc<Self>, text: &[u8]) -> Option<Vec<u8>> {
        let mut mask = PatternMask::new(Arc::clone(self));
        let mut masked = Vec::with_capacity(text.len());
        mask.push(text, &mut masked);
        mask.finish(&mut masked);
        mask.has_masked.then_some(masked)
    }
}

/// Returns `secret` with `+` for spaces, as in a form that leaves all other characters unencoded; `None` if
/// it contains no space.
fn in_form(secret: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let with_plus = |byte: &u8| if *byte == b' ' { b'+' } else { *byte };
    secret.contains(&b' ').then(|| Zeroizing::new(secret.iter().map(with_plus).collect()))
}

/// Prefixes of the charset names in which letters and digits are not encoded as ASCII bytes.
const OTHER_CHARSETS: [&[u8]; 13] = [
    b"utf-16",
    b"utf16",
    b"utf-32",
    b"utf32",
    b"utf-7",
    b"utf7",
    b"ucs",
    b"iso-10646-ucs",
    b"csunicode",
    b"x-utf-16",
    b"x-utf-32",
    b"unicodef",
    b"ebcdic",
];

/// Returns `true` if secrets cannot be found in a body of this media type (RFC 9110 §8.3.2), because its
/// charset encodes them in other bytes.
pub fn is_unsearchable_charset(media_type: &[u8]) -> bool {
    let is_other = |parameter: &[u8]| {
        let Some(at) = parameter.iter().position(|byte| *byte == b'=') else { return false };
        if !parameter[..at].trim_ascii().eq_ignore_ascii_case(b"charset") {
            return false;
        }
        let charset: Vec<u8> = parameter[at + 1..]
            .iter()
            .filter(|byte| !matches!(byte, b'"' | b'\'' | b'\\') && !byte.is_ascii_whitespace())
            .map(u8::to_ascii_lowercase)
            .collect();
        charset == b"unicode" || OTHER_CHARSETS.iter().any(|other| charset.starts_with(other))
    };
    media_type.split(|byte| *byte == b';').skip(1).any(is_other)
}

/// Returns the Base64 characters that encode only bytes of `secret`, if `offset` bytes precede it in its
/// group of three: in the standard alphabet and in the URL-safe one (RFC 4648 §5).
fn in_base64(secret: &[u8], offset: usize) -> [Zeroizing<Vec<u8>>; 2] {
    let bytes = Zeroizing::new([&[0; 2][..offset], secret].concat());
    let mut text = Zeroizing::new(Vec::new());
    base64::encode(&bytes, &mut text);
    // A character encodes six bits; it belongs to the secret alone if all six do.
    let (first, end) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
    let common = Zeroizing::new(text[first..end].to_vec());
    let digit = |digit: &u8| match digit {
        b'+' => b'-',
        b'/' => b'_',
        digit => *digit,
    };
    let for_urls = Zeroizing::new(common.iter().map(digit).collect());
    [common, for_urls]
}

/// Masks one text that arrives in pieces.
///
/// Completed lines are released at once. Of the text after the last line end, as many bytes are held back as
/// the longest word takes, until more arrives or the text ends. A line that may be one of several lines of
/// Base64 counts as incomplete.
#[derive(Debug)]
pub struct PatternMask {
    patterns: Arc<SecretPatterns>,
    finders: [Finder; 3],
    /// Bytes held back, masked as far as known.
    held: Vec<u8>,
    /// Number of bytes read so far.
    position: u64,
    /// A position that no word spans.
    line_start: u64,
    /// The end of the text so far; `None` if a secret contains line ends, which then prove nothing.
    line: Option<LastLine>,
    has_masked: bool,
}

impl PatternMask {
    /// Creates a mask for a text that may contain those secrets.
    pub fn new(patterns: Arc<SecretPatterns>) -> Self {
        Self {
            line: (!patterns.has_lines).then(LastLine::default),
            patterns,
            finders: [Coding::Plain, Coding::Percent, Coding::Json].map(Finder::new),
            held: Vec::new(),
            position: 0,
            line_start: 0,
            has_masked: false,
        }
    }

    /// Reads the next piece, and appends to `out` the text that can be released.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        self.push_all([piece], out);
    }

    /// Reads several pieces at once. The bytes held back are moved only once for all of them.
    pub fn push_all<'p>(&mut self, pieces: impl IntoIterator<Item = &'p [u8]>, out: &mut Vec<u8>) {
        let (start, origin) = self.release(out);
        for piece in pieces {
            out.extend_from_slice(piece);
            self.read(piece, MaskedText { text: &mut out[start..], origin, is_any: false });
        }
        self.hold(start, out);
    }

    /// Searches the next piece for words and masks them.
    fn read(&mut self, piece: &[u8], mut text: MaskedText<'_>) {
        let words = &self.patterns.words;
        let mut at = 0;
        while at < piece.len() {
            if self.finders.iter().all(Finder::is_idle) {
                // Skip bytes that cannot begin a secret: almost all of them.
                let next = piece[at..].iter().position(|byte| words.may_begin(*byte));
                at = next.map_or(piece.len(), |next| at + next);
            }
            let Some(byte) = piece.get(at) else { break };
            let position = self.position + at as u64;
            let is_end = is_line_end(*byte) && self.line.as_ref().is_some_and(|line| line.ends(piece, at));
            for finder in &mut self.finders {
                if is_end {
                    finder.finish(words, &mut |start, end| text.mask(start, end));
                } else {
                    finder.read(words, *byte, position, &mut |start, end| text.mask(start, end));
                }
            }
            at += 1;
        }
        self.has_masked |= text.is_any;
        if let Some(line) = &mut self.line {
            let mut ends = memchr::memchr2_iter(b'\r', b'\n', piece).rev();
            if let Some(end) = ends.find(|at| line.ends(piece, *at)) {
                self.line_start = self.position + end as u64 + 1;
            }
            line.take(piece);
        }
        self.position += piece.len() as u64;
    }

    /// Ends the text: appends the bytes held back to `out`.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let (start, origin) = self.release(out);
        let mut text = MaskedText { text: &mut out[start..], origin, is_any: false };
        for finder in &mut self.finders {
            finder.finish(&self.patterns.words, &mut |start, end| text.mask(start, end));
        }
        self.has_masked |= text.is_any;
    }

    /// Appends the bytes held back to `out`. Returns their position in `out` and in the text.
    fn release(&mut self, out: &mut Vec<u8>) -> (usize, u64) {
        let (start, origin) = (out.len(), self.position - self.held.len() as u64);
        out.append(&mut self.held);
        (start, origin)
    }

    /// Moves back from the end of `out` as many bytes as a word could still span, whatever the words are, but
    /// none before `start`.
    fn hold(&mut self, start: usize, out: &mut Vec<u8>) {
        let len = usize::try_from(self.position - self.line_start).unwrap_or(usize::MAX);
        let len = len.min(self.patterns.words.text_bytes_max()).min(out.len() - start);
        self.held.extend(out.drain(out.len() - len..));
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// The last line of a text that arrives in pieces: enough state to know if it may be one of several lines of
/// Base64.
#[derive(Debug, Default)]
struct LastLine {
    /// Number of bytes at its end that may be Base64, in any escaping, up to [`LINE_BYTES_MIN`].
    run: usize,
    /// `true` if a CR follows them.
    has_cr: bool,
}

impl LastLine {
    /// Returns `true` if the CR or LF at `at` in `piece` ends every possible word. The state covers the text
    /// before `piece`.
    fn ends(&self, piece: &[u8], at: usize) -> bool {
        let before = &piece[..at];
        let run = match (piece[at], before) {
            (b'\n', [before @ .., b'\r']) => self.run_of(before),
            // The CR is in the previous piece.
            (b'\n', []) if self.has_cr => self.run,
            _ => self.run_of(before),
        };
        run < LINE_BYTES_MIN
    }

    /// Returns the number of bytes at the end of `before`, the beginning of a piece, that may be Base64.
    fn run_of(&self, before: &[u8]) -> usize {
        let is_one = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/-_%\\".contains(*byte);
        let run = before.iter().rev().take(LINE_BYTES_MIN).take_while(is_one).count();
        if run == before.len() && !self.has_cr { run + self.run } else { run }
    }

    fn take(&mut self, piece: &[u8]) {
        let Some((last, before)) = piece.split_last() else { return };
        let has_cr = *last == b'\r';
        let run = self.run_of(if has_cr { before } else { piece });
        *self = Self { run: run.min(LINE_BYTES_MIN), has_cr };
    }
}

/// A part of the text in which secrets are masked.
struct MaskedText<'a> {
    text: &'a mut [u8],
    /// Position of this part in the text.
    origin: u64,
    is_any: bool,
}

impl MaskedText<'_> {
    /// Masks the text from `start` to `end`, except its line ends. All of it must still be held.
    fn mask(&mut self, start: u64, end: u64) {
        let within =
            |position: u64| usize::try_from(position.saturating_sub(self.origin)).unwrap_or(usize::MAX);
        for byte in &mut self.text[within(start)..within(end)] {
            if !is_line_end(*byte) {
                *byte = MASK;
            }
        }
        self.is_any = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::find::tests::occurrences;
    use super::*;

    const SECRET: &str = "pa/ss\"wörd+8";

    fn patterns(secrets: &[&str]) -> Arc<SecretPatterns> {
        Arc::new(SecretPatterns::new(secrets.iter().map(|secret| secret.as_bytes())).unwrap())
    }

    /// Returns the masked text for those pieces, and the maximum number of bytes held back.
    fn masked<Piece: AsRef<[u8]>>(
        patterns: &Arc<SecretPatterns>,
        pieces: impl IntoIterator<Item = Piece>,
    ) -> (Vec<u8>, usize) {
        let (mut mask, mut out, mut held, mut total) =
            (PatternMask::new(Arc::clone(patterns)), Vec::new(), 0, 0);
        for piece in pieces {
            total += piece.as_ref().len();
            mask.push(piece.as_ref(), &mut out);
            held = held.max(total - out.len());
        }
        mask.finish(&mut out);
        assert_eq!(out.len(), total);
        (out, held)
    }

    fn whole(secrets: &[&str], text: &str) -> String {
        let mut text = text.as_bytes().to_vec();
        patterns(secrets).mask(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn base64_of(bytes: &[u8]) -> String {
        let mut text = Vec::new();
        base64::encode(bytes, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_secret_is_masked_however_it_is_written() {
        for text in [
            SECRET,
            "pa%2Fss%22w%C3%B6rd%2B8",
            "pa%2fss%22w%c3%b6rd%2b8",
            "%70%61%2f%73%73%22%77%c3%b6%72%64%2b%38",
            "pa/ss\\\"wörd+8",
            "pa\\/ss\\\"w\\u00f6rd\\u002B8",
        ] {
            let (stars, around) = ("*".repeat(text.len()), format!("<{text}>,{text}"));
            assert_eq!(whole(&[SECRET], &around), format!("<{stars}>,{stars}"), "{text}");
        }
    }

    #[test]
    fn in_base64_it_is_masked_wherever_it_begins() {
        for before in ["", "u:", "user:", "a:b:c"] {
            for after in ["", "!", "!!"] {
                let credentials = base64_of(format!("{before}{SECRET}{after}").as_bytes());
                let url = credentials.replace('+', "-").replace('/', "_");
                for text in
                    [credentials.replace('/', "\\/"), credentials.replace('+', "%2B"), credentials, url]
                {
                    let shown = whole(&[SECRET], &text);
                    let kept: usize = shown.bytes().filter(|byte| *byte != MASK).count();
                    assert_eq!(shown.len(), text.len());
                    // Characters that the secret's first and last bytes share with their neighbours stay, and
                    // so do the neighbours and the padding.
                    let around = (before.len() + after.len()) * 8 / 6 + 6;
                    assert!(kept <= around, "{text} -> {shown}");
                }
            }
        }
    }

    #[test]
    fn lines_pass_at_once_and_what_follows_them_waits_whatever_it_is() {
        let patterns = patterns(&["sk_live_0123456789"]);
        let mut mask = PatternMask::new(Arc::clone(&patterns));
        let mut out = Vec::new();
        for event in [
            "data: {\"delta\":\"sky\"}\n\n",
            "data: sk_live_9876543210\n\n",
            "data: [DONE]\r\n\r\n",
            "{\"n\":1}\n",
            "event: a\r\r",
        ] {
            out.clear();
            mask.push(event.as_bytes(), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), event);
        }
        for next in ["data: sk_live_01", "data: zz_live_01", "----------------"] {
            out.clear();
            mask.push(next.as_bytes(), &mut out);
            assert_eq!(out, b"");
            mask.push(b"\n", &mut out);
            assert_eq!(out, [next.as_bytes(), b"\n"].concat());
        }
        out.clear();
        mask.push(b"the end", &mut out);
        assert_eq!(out, b"");
        mask.finish(&mut out);
        assert_eq!(out, b"the end");
    }

    #[test]
    fn a_line_that_may_be_one_of_base64_waits_for_the_next() {
        let mut mask = PatternMask::new(patterns(&["sk_live_0123456789"]));
        let mut out = Vec::new();
        let line = "YQ".repeat(LINE_BYTES_MIN / 2);
        for (piece, passed) in [
            (line.clone() + "\n", ""),
            ("\n".to_owned(), &*(line.clone() + "\n\n")),
            (line.clone() + "\r", ""),
            ("\n".to_owned(), ""),
            ("\r\n".to_owned(), &*(line.clone() + "\r\n\r\n")),
            (line[1..].to_owned() + "\n", &*(line[1..].to_owned() + "\n")),
        ] {
            out.clear();
            mask.push(piece.as_bytes(), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), passed, "{piece:?}");
        }
    }

    #[test]
    fn a_form_may_have_a_plus_for_a_space() {
        let secret = "pass word + more";
        for text in ["pass+word+%2B+more", "pass%20word%20%2B%20more", "pass+word+++more", "pass word + more"]
        {
            assert_eq!(
                whole(&[secret], &format!("k={text}&")),
                format!("k={}&", "*".repeat(text.len())),
                "{text}"
            );
        }
        assert_eq!(whole(&["pass_word"], "pass+word"), "pass+word");
    }

    #[test]
    fn a_secret_with_line_ends_is_masked() {
        let secret = "-----BEGIN KEY-----\nMIIE\n-----END KEY-----";
        for text in [secret.to_owned(), secret.replace('\n', "\\n"), secret.replace('\n', "%0A")] {
            let shown = whole(&[secret], &format!("<{text}>"));
            assert!(!shown.contains("MIIE") && !shown.contains("BEGIN"), "{shown}");
            assert_eq!(shown.len(), text.len() + 2);
        }
        let mut mask = PatternMask::new(patterns(&[secret]));
        let mut out = Vec::new();
        mask.push(b"-----BEGIN KEY-----\n", &mut out);
        assert_eq!(out, b"");
    }

    #[test]
    fn charsets_in_which_a_secret_has_other_bytes_are_told() {
        for media_type in [
            "application/json; charset=utf-16",
            "text/plain;charset=\"UTF-16LE\"",
            "text/plain; format=flowed ; Charset = utf-32be",
            "text/plain; charset='ucs-2'",
            "text/plain; charset=unicode",
        ] {
            assert!(is_unsearchable_charset(media_type.as_bytes()), "{media_type}");
        }
        for media_type in [
            "",
            "utf-16",
            "application/json",
            "text/plain; charset=utf-8",
            "text/plain; charset=unicode-1-1-utf-8",
            "text/plain; charset=iso-8859-1; name=utf-16",
            "text/plain; charset=windows-1252",
        ] {
            assert!(!is_unsearchable_charset(media_type.as_bytes()), "{media_type}");
        }
    }

    #[test]
    fn a_body_of_secret_prefixes_takes_no_longer() {
        let secret = "a".repeat(4_000) + "b";
        let patterns = patterns(&[&secret]);
        let text = "a".repeat(1_000_000) + "b";
        let (out, held) = masked(&patterns, text.as_bytes().chunks(10_000));
        assert!(out[..996_000].iter().all(|byte| *byte == b'a'));
        assert!(out[996_000..].iter().all(|byte| *byte == MASK));
        assert!(held <= patterns.words.text_bytes_max(), "{held}");
    }

    #[test]
    fn secrets_that_could_not_be_told_from_text_are_refused() {
        for secret in ["", "1234567", &"x".repeat(SECRET_BYTES_MAX + 1)] {
            let message = SecretPatterns::new([secret.as_bytes()]).unwrap_err().to_string();
            assert!(message.ends_with(&format!("this one has {}", secret.len())), "{message}");
        }
        assert!(SecretPatterns::new([&b"12345678"[..], "x".repeat(SECRET_BYTES_MAX).as_bytes()]).is_ok());
    }

    #[test]
    fn debug_output_shows_no_pattern() {
        let shown = format!("{:?}", PatternMask::new(patterns(&["sk_live_0123456789"])));
        assert!(!shown.contains("sk_l") && shown.contains("SecretPatterns"), "{shown}");
    }

    /// Returns every form in which the secrets are searched for.
    fn words(secrets: &[&str]) -> Vec<Vec<u8>> {
        let encoded = |secret: &&str| {
            let encoded =
                (0..3).flat_map(|offset| in_base64(secret.as_bytes(), offset)).map(|word| word.to_vec());
            let in_form = in_form(secret.as_bytes()).map(|word| word.to_vec());
            [secret.as_bytes().to_vec()].into_iter().chain(in_form).chain(encoded).collect::<Vec<_>>()
        };
        secrets.iter().flat_map(encoded).collect()
    }

    const PIECES: [&str; 12] = [
        "a",
        "ab",
        "abab\"/%",
        "ababababab",
        "YWJhYiIvJVw=",
        "%61b",
        "\\u0061bab",
        "-",
        "{\"a\":1}",
        " ",
        "0123456789012345678901234567890123456789012345678901234567890",
        "*",
    ];

    const SECRETS: [&str; 3] = ["abab\"/%\\", "ababababab", "b\"/%\\aé!"];

    /// Pieces of secrets, whole secrets, encoded secrets, and other text.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let base64 = SECRETS.map(|secret| base64_of(format!("u:{secret}").as_bytes()));
        let mut parts: Vec<String> = [
            "a", "b", "ab", "\"", "/%", "%", "%61", "%6", "%5C", "%2f%25", "\\", "\\\\", "\\\"", "\\/",
            "\\u0061", "\\u00e9", "é", "%C3%A9", "!", "\\u00", "YWJh", "*",
        ]
        .map(str::to_owned)
        .to_vec();
        parts.extend(base64);
        parts.extend(SECRETS.map(str::to_owned));
        prop::collection::vec(prop::sample::select(parts), 0..24)
            .prop_map(|parts| parts.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn in_whatever_pieces_it_comes_exactly_the_secrets_are_masked(text in text(), cuts in prop::collection::vec(0..200_usize, 0..12)) {
            let mut expected = text.clone();
            for coding in [Coding::Plain, Coding::Percent, Coding::Json] {
                for (start, end) in occurrences(&words(&SECRETS), coding, &text) {
                    expected[start..end].fill(MASK);
                }
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]);
            let patterns = patterns(&SECRETS);
            let (out, held) = masked(&patterns, pieces);
            prop_assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected));
            for coding in [Coding::Plain, Coding::Percent, Coding::Json] {
                prop_assert_eq!(occurrences(&words(&SECRETS), coding, &out), []);
            }
            prop_assert!(held <= patterns.words.text_bytes_max(), "{} bytes were held back", held);
            let mut at_once = text.clone();
            prop_assert_eq!(patterns.mask(&mut at_once), text != expected);
            prop_assert_eq!(at_once, out);
        }

        /// The timing of released text must not depend on the content of the secret, only on its length.
        #[test]
        fn how_much_passes_hangs_on_no_secret(
            pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..40),
            lines in prop::collection::vec(prop::sample::select(vec!["\n", "\r\n", "\r", "\n\n"]), 0..40),
        ) {
            let mut masks = [["abab\"/%\\", "ababababab"], ["zzzzzzzz", "yyyyyyyyyy"]].map(|secrets| PatternMask::new(patterns(&secrets)));
            let mut outs = [Vec::new(), Vec::new()];
            let ends = lines.iter().copied().chain(std::iter::repeat(""));
            for piece in pieces.iter().zip(ends).flat_map(|(piece, end)| [piece, end]) {
                for (mask, out) in masks.iter_mut().zip(&mut outs) {
                    mask.push(piece.as_bytes(), out);
                    // No byte is released that a word may still include.
                    let start = mask.finders.iter().filter_map(Finder::start).min();
                    prop_assert!(start.is_none_or(|start| start >= mask.position - mask.held.len() as u64));
                }
                prop_assert_eq!(outs[0].len(), outs[1].len());
            }
        }

        #[test]
        fn in_base64_in_lines_it_is_masked_as_in_one(
            before in prop::collection::vec(any::<u8>(), 0..120),
            after in prop::collection::vec(any::<u8>(), 0..120),
            width in LINE_BYTES_MIN..80,
            end in prop::sample::select(vec!["\n", "\r\n", "\\n", "\\r\\n", "%0A", "%0D%0A"]),
            cuts in prop::collection::vec(0..1_000_usize, 0..6),
        ) {
            let secret = "s3cr3t/0123456789+abc".repeat(5);
            let text = base64_of(&[&before, secret.as_bytes(), &after].concat());
            let lines: Vec<_> = text.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
            let text_in_lines = lines.join(end);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text_in_lines.len())).chain([0, text_in_lines.len()]).collect();
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|ends| &text_in_lines[ends[0]..ends[1]]);
            let (out, _) = masked(&patterns(&[&secret]), pieces);
            let shown = String::from_utf8(out).unwrap();
            // An escaped line end is masked as well.
            let stars = "*".repeat(end.len());
            let end = if end.trim().is_empty() { end } else { &*stars };
            let mut expected = text.clone().into_bytes();
            patterns(&[&secret]).mask(&mut expected);
            let first = expected.iter().position(|byte| *byte == MASK).unwrap();
            let last = expected.iter().rposition(|byte| *byte == MASK).unwrap();
            let mut in_lines = Vec::new();
            for (at, byte) in expected.iter().enumerate() {
                if at > 0 && at % width == 0 {
                    let is_within = at > first && at <= last;
                    in_lines.extend_from_slice(if is_within { end } else { &text_in_lines[at + (at / width - 1) * end.len()..][..end.len()] }.as_bytes());
                }
                in_lines.push(*byte);
            }
            prop_assert_eq!(shown, String::from_utf8(in_lines).unwrap());
        }
    }
}
