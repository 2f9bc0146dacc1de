//! Masks secrets that a provider sends back: in what passes, every one is replaced by as many asterisks, so that nothing else changes.

use std::fmt;
use std::sync::Arc;

use egret_har::base64;
use zeroize::Zeroizing;

use super::find::{Coding, Finder, Words};

/// Shorter secrets are not looked for: they stand in much that is none.
pub const SECRET_BYTES_MIN: usize = 8;
/// Nor are longer ones: up to six times as much is held back of a body that may be one.
pub const SECRET_BYTES_MAX: usize = 16 << 10;

const MASK: u8 = b'*';

/// Secrets that nobody is to be shown, compiled: as they stand, percent-encoded, escaped as in JSON, and in Base64 wherever in it they
/// begin, as in `Authorization: Basic`.
pub struct Echoes(Words);

impl fmt::Debug for Echoes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Echoes")
    }
}

impl Echoes {
    /// The echoes of `secrets`. Refused, with what is wrong, where one of them is too short or too long to be told from other text.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s [u8]>) -> Result<Self, String> {
        let mut words = Vec::new();
        for secret in secrets {
            if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
                return Err(format!(
                    "only a secret of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes can be told from other text: \
                     this one has {}",
                    secret.len()
                ));
            }
            words.push(Zeroizing::new(secret.to_vec()));
            words.extend((0..3).flat_map(|offset| in_base64(secret, offset)));
        }
        Ok(Self(Words::new(words.iter().map(|word| word.as_slice()))))
    }

    /// Masks what is here as a whole. Says whether there was anything to mask.
    pub fn mask(self: &Arc<Self>, text: &mut [u8]) -> bool {
        let mut mask = EchoMask::new(Arc::clone(self));
        let mut masked = Vec::with_capacity(text.len());
        mask.push(text, &mut masked);
        mask.finish(&mut masked);
        if mask.has_masked {
            text.copy_from_slice(&masked);
        }
        mask.has_masked
    }
}

/// The characters that stand in Base64 for `secret` alone, where `offset` bytes come before it in its group of three: in the common
/// alphabet and in that for URLs (RFC 4648 §5).
fn in_base64(secret: &[u8], offset: usize) -> [Zeroizing<Vec<u8>>; 2] {
    let bytes = Zeroizing::new([&[0; 2][..offset], secret].concat());
    let mut text = Zeroizing::new(Vec::new());
    base64::encode(&bytes, &mut text);
    // A character of six bits is the secret's alone where all of them are.
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

/// Masks one text that comes in pieces. It holds back what may be the beginning of a secret, and nothing else.
#[derive(Debug)]
pub struct EchoMask {
    echoes: Arc<Echoes>,
    finders: [Finder; 3],
    /// What is held back, masked as far as is known.
    held: Vec<u8>,
    /// Bytes of the text so far.
    position: u64,
    /// What was masked last, up to where it touches what was masked before.
    masked: (u64, u64),
    has_masked: bool,
}

impl EchoMask {
    /// For a text with echoes of those secrets.
    pub fn new(echoes: Arc<Echoes>) -> Self {
        Self {
            echoes,
            finders: [Coding::Plain, Coding::Percent, Coding::Json].map(Finder::new),
            held: Vec::new(),
            position: 0,
            masked: (0, 0),
            has_masked: false,
        }
    }

    /// Takes the next piece, and appends to `out` what of the text can go on.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let (start, origin) = self.release(out);
        out.extend_from_slice(piece);
        let words = &self.echoes.0;
        let mut marks = Marks { text: &mut out[start..], origin, last: self.masked, is_any: false };
        let mut at = 0;
        while at < piece.len() {
            if self.finders.iter().all(Finder::is_idle) {
                // Nearly everything is nothing that a secret begins with.
                let next = piece[at..].iter().position(|byte| words.may_begin(*byte));
                at = next.map_or(piece.len(), |next| at + next);
            }
            let Some(byte) = piece.get(at) else { break };
            let position = self.position + at as u64;
            for finder in &mut self.finders {
                finder.read(words, *byte, position, &mut |start, end| marks.mark(start, end));
            }
            at += 1;
        }
        self.position += piece.len() as u64;
        let Marks { last, is_any, .. } = marks;
        self.masked = last;
        self.has_masked |= is_any;
        self.hold(start, out);
    }

    /// The text ends: appends to `out` what was held back.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let (start, origin) = self.release(out);
        let mut marks = Marks { text: &mut out[start..], origin, last: self.masked, is_any: false };
        for finder in &mut self.finders {
            finder.finish(&self.echoes.0, &mut |start, end| marks.mark(start, end));
        }
        self.has_masked |= marks.is_any;
    }

    /// Appends what was held back to `out`. Says where it stands there, and where in the text.
    fn release(&mut self, out: &mut Vec<u8>) -> (usize, u64) {
        let (start, origin) = (out.len(), self.position - self.held.len() as u64);
        out.append(&mut self.held);
        (start, origin)
    }

    /// Takes back what may be the beginning of a secret from the end of `out`, but nothing of what stands there before `start`.
    fn hold(&mut self, start: usize, out: &mut Vec<u8>) {
        let Some(mut from) = self.finders.iter().filter_map(Finder::start).min() else { return };
        // What is masked is so whatever comes.
        if (self.masked.0..self.masked.1).contains(&from) {
            from = self.masked.1;
        }
        let len = usize::try_from(self.position - from).unwrap_or(usize::MAX).min(out.len() - start);
        self.held.extend(out.drain(out.len() - len..));
    }
}

/// A part of the text, on which masks are put.
struct Marks<'a> {
    text: &'a mut [u8],
    /// Where it begins in the text.
    origin: u64,
    last: (u64, u64),
    is_any: bool,
}

impl Marks<'_> {
    /// Masks what stands in the text from `start` to `end`. What has gone on of it was masked before.
    fn mark(&mut self, start: u64, end: u64) {
        let within =
            |position: u64| usize::try_from(position.saturating_sub(self.origin)).unwrap_or(usize::MAX);
        self.text[within(start)..within(end)].fill(MASK);
        self.is_any = true;
        self.last = if start <= self.last.1 && self.last.0 <= end {
            (start.min(self.last.0), end.max(self.last.1))
        } else {
            (start, end)
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::find::tests::occurrences;
    use super::*;

    const SECRET: &str = "pa/ss\"wörd+8";

    fn echoes(secrets: &[&str]) -> Arc<Echoes> {
        Arc::new(Echoes::new(secrets.iter().map(|secret| secret.as_bytes())).unwrap())
    }

    /// What becomes of a text that comes in those pieces, and the most that was held back.
    fn masked<Piece: AsRef<[u8]>>(
        echoes: &Arc<Echoes>,
        pieces: impl IntoIterator<Item = Piece>,
    ) -> (Vec<u8>, usize) {
        let (mut mask, mut out, mut held, mut total) = (EchoMask::new(Arc::clone(echoes)), Vec::new(), 0, 0);
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
        echoes(secrets).mask(&mut text);
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
                    // What its first and last bytes share with their neighbours stays, as those do, and padding.
                    let around = (before.len() + after.len()) * 8 / 6 + 6;
                    assert!(kept <= around, "{text} -> {shown}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_secret_passes_at_once() {
        let echoes = echoes(&["sk_live_0123456789"]);
        let mut mask = EchoMask::new(Arc::clone(&echoes));
        let mut out = Vec::new();
        for event in ["data: {\"delta\":\"sky\"}\n\n", "data: sk_live_9876543210\n\n", "data: [DONE]\n\n"] {
            out.clear();
            mask.push(event.as_bytes(), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), event);
        }
        out.clear();
        mask.push(b"data: sk_live_01", &mut out);
        assert_eq!(out, b"data: ");
        // It goes on otherwise.
        mask.push(b"2\n\nsk_", &mut out);
        assert_eq!(out, b"data: sk_live_012\n\n");
        mask.finish(&mut out);
        assert_eq!(out, b"data: sk_live_012\n\nsk_");
    }

    #[test]
    fn what_is_masked_is_not_held_back_any_longer() {
        let secrets = ["abcdefgh", "fghabcdefghi"];
        let mut mask = EchoMask::new(echoes(&secrets));
        let mut out = Vec::new();
        mask.push(b"-abcdefgh", &mut out);
        assert_eq!(out, b"-********");
        mask.push(b"abcdefghi-", &mut out);
        assert_eq!(out, b"-*****************-");
    }

    #[test]
    fn a_body_that_is_all_beginnings_of_a_secret_takes_no_longer_than_another() {
        let secret = "a".repeat(4_000) + "b";
        let echoes = echoes(&[&secret]);
        let text = "a".repeat(1_000_000) + "b";
        let (out, held) = masked(&echoes, text.as_bytes().chunks(10_000));
        assert!(out[..996_000].iter().all(|byte| *byte == b'a'));
        assert!(out[996_000..].iter().all(|byte| *byte == MASK));
        assert!(held < secret.len(), "{held}");
    }

    #[test]
    fn secrets_that_could_not_be_told_from_text_are_refused() {
        for secret in ["", "1234567", &"x".repeat(SECRET_BYTES_MAX + 1)] {
            let message = Echoes::new([secret.as_bytes()]).unwrap_err();
            assert!(message.ends_with(&format!("this one has {}", secret.len())), "{message}");
        }
        assert!(Echoes::new([&b"12345678"[..], "x".repeat(SECRET_BYTES_MAX).as_bytes()]).is_ok());
    }

    #[test]
    fn nothing_of_it_is_shown() {
        let shown = format!("{:?}", EchoMask::new(echoes(&["sk_live_0123456789"])));
        assert!(!shown.contains("sk_l") && shown.contains("Echoes"), "{shown}");
    }

    /// Every way in which the secrets are looked for.
    fn words(secrets: &[&str]) -> Vec<Vec<u8>> {
        let encoded = |secret: &&str| {
            let encoded =
                (0..3).flat_map(|offset| in_base64(secret.as_bytes(), offset)).map(|word| word.to_vec());
            [secret.as_bytes().to_vec()].into_iter().chain(encoded).collect::<Vec<_>>()
        };
        secrets.iter().flat_map(encoded).collect()
    }

    const SECRETS: [&str; 3] = ["abab\"/%\\", "ababababab", "b\"/%\\aé!"];

    /// Pieces of secrets, whole ones and encoded ones, and what is none.
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
            let echoes = echoes(&SECRETS);
            let (out, held) = masked(&echoes, pieces);
            prop_assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected));
            for coding in [Coding::Plain, Coding::Percent, Coding::Json] {
                prop_assert_eq!(occurrences(&words(&SECRETS), coding, &out), []);
            }
            let longest = words(&SECRETS).iter().map(Vec::len).max().unwrap_or_default();
            prop_assert!(held < 6 * longest, "{} bytes were held back", held);
            let mut at_once = text.clone();
            prop_assert_eq!(echoes.mask(&mut at_once), text != expected);
            prop_assert_eq!(at_once, out);
        }
    }
}
