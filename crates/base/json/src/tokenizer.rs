//! A strict, incremental JSON tokenizer (RFC 8259). Pieces may be cut anywhere. It does not recurse, and
//! buffers at most one name or number.
//!
//! It is stricter than the grammar in one point: half of a surrogate pair is rejected, because it is not a
//! character.

/// Maximum nesting depth. One bit per level says whether the container is an object.
pub const DEPTH_MAX: usize = 127;

/// Maximum length of a member's name. Names are buffered.
pub const NAME_BYTES_MAX: usize = 4096;

/// Maximum length of a number. Numbers are buffered.
pub const NUMBER_BYTES_MAX: usize = 1024;

/// Receives the tokens of a JSON text in order. White space is skipped.
pub trait Sink {
    /// An object (`true`) or a list (`false`) begins.
    fn open(&mut self, is_object: bool);
    /// The innermost container ends.
    fn close(&mut self, is_object: bool);
    /// Another member or element follows.
    fn comma(&mut self);
    /// The name of the member whose value follows, unescaped.
    fn name(&mut self, name: &str);
    /// A string begins.
    fn begin_text(&mut self);
    /// A piece of the string, unescaped. Pieces may be cut within a character.
    fn text(&mut self, piece: &[u8]);
    /// The string ends.
    fn end_text(&mut self);
    /// A number as it is written.
    fn number(&mut self, number: &[u8]);
    /// `true`, `false` or `null`.
    fn word(&mut self, word: &'static str);
}

/// The reason why a text could not be read as JSON. It reveals nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON.
    #[error("not valid JSON")]
    Malformed,
    /// The text is nested deeper than [`DEPTH_MAX`].
    #[error("nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// A name or a number is longer than its limit.
    #[error("a name or a number is too long")]
    TooLong,
}

/// The token that is expected or being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TokenizerState {
    /// A value.
    #[default]
    Value,
    /// A value, or the end of the list.
    FirstElement,
    /// A name, or the end of the object.
    FirstName,
    Name,
    Colon,
    /// A comma or the end of the container; at the top level, only white space.
    AfterValue,
    /// The rest of a string.
    Text,
    /// The character after a backslash.
    Escape,
    /// The given number of further digits of `\u`.
    Digits(u8),
    /// The backslash, then the `u`, of the second half of a surrogate pair.
    SecondHalf,
    SecondHalfU,
    Number(NumberPart),
    /// The rest of a word, and the whole word.
    Word(&'static str, &'static str),
}

/// The part of a number that was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberPart {
    Minus,
    /// A leading zero, which no digit may follow.
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl NumberPart {
    /// Returns the part that the next byte belongs to, or `None` if the byte is not part of the number.
    fn after(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Integer, b'0'..=b'9') => Self::Integer,
            (Self::Zero | Self::Integer, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Self::E,
            (Self::E, b'+' | b'-') => Self::Sign,
            (Self::E | Self::Sign | Self::Exponent, b'0'..=b'9') => Self::Exponent,
            _ => return None,
        })
    }

    fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::Exponent)
    }
}

/// Validates UTF-8 (RFC 3629 §4) that may be cut anywhere.
#[derive(Debug, Clone, Copy)]
struct Utf8 {
    /// Number of bytes that the character still needs.
    left: u8,
    /// Range of the next of these bytes.
    low: u8,
    high: u8,
}

impl Default for Utf8 {
    fn default() -> Self {
        Self { left: 0, low: 0x80, high: 0xbf }
    }
}

impl Utf8 {
    fn accepts(&mut self, byte: u8) -> bool {
        if self.left > 0 {
            let is_next = (self.low..=self.high).contains(&byte);
            *self = Self { left: self.left - 1, ..Self::default() };
            return is_next;
        }
        (self.left, self.low, self.high) = match byte {
            0..=0x7f => return true,
            0xc2..=0xdf => (1, 0x80, 0xbf),
            0xe0 => (2, 0xa0, 0xbf),
            0xed => (2, 0x80, 0x9f),
            0xe1..=0xef => (2, 0x80, 0xbf),
            0xf0 => (3, 0x90, 0xbf),
            0xf1..=0xf3 => (3, 0x80, 0xbf),
            0xf4 => (3, 0x80, 0x8f),
            _ => return false,
        };
        true
    }
}

/// Tokenizes one JSON text.
#[derive(Debug, Default)]
pub struct Tokenizer {
    state: TokenizerState,
    depth: usize,
    /// One bit for each open container, set if it is an object. The innermost is the lowest bit.
    objects: u128,
    /// `true` if the string that is being read is a name.
    is_name: bool,
    /// The name or number that is being read.
    held: Vec<u8>,
    utf8: Utf8,
    /// Value of the `\u` digits read so far.
    unit: u32,
    /// First half of a surrogate pair.
    first_half: Option<u32>,
    error: Option<JsonError>,
}

impl Tokenizer {
    /// Returns a tokenizer at the start of a text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next piece. After an error, every call returns that error.
    pub fn push(&mut self, piece: &[u8], sink: &mut impl Sink) -> Result<(), JsonError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let read = self.read(piece, sink);
        self.error = read.err();
        read
    }

    /// Ends the text and passes on a number that was still open. Returns an error if the text is incomplete.
    pub fn finish(&mut self, sink: &mut impl Sink) -> Result<(), JsonError> {
        self.push(b"", sink)?;
        if let TokenizerState::Number(part) = self.state {
            self.end_number(part, sink)?;
        }
        if self.state == TokenizerState::AfterValue && self.depth == 0 {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    fn read(&mut self, mut rest: &[u8], sink: &mut impl Sink) -> Result<(), JsonError> {
        while let [byte, after @ ..] = rest {
            match self.state {
                TokenizerState::Text => rest = self.text(rest, sink)?,
                TokenizerState::Number(part) => match part.after(*byte) {
                    Some(part) => {
                        self.hold(&[*byte], NUMBER_BYTES_MAX)?;
                        self.state = TokenizerState::Number(part);
                        rest = after;
                    }
                    // The byte is the first after the number.
                    None => self.end_number(part, sink)?,
                },
                _ => {
                    self.byte(*byte, sink)?;
                    rest = after;
                }
            }
        }
        Ok(())
    }

    /// Reads a byte outside of strings and numbers.
    fn byte(&mut self, byte: u8, sink: &mut impl Sink) -> Result<(), JsonError> {
        match (self.state, byte) {
            (TokenizerState::Escape, _) => self.escape(byte, sink)?,
            (TokenizerState::Digits(left), _) => self.digit(byte, left, sink)?,
            (TokenizerState::SecondHalf, b'\\') => self.state = TokenizerState::SecondHalfU,
            (TokenizerState::SecondHalfU, b'u') => self.state = TokenizerState::Digits(4),
            (TokenizerState::Word(left, word), _) => self.word(byte, left, word, sink)?,
            (TokenizerState::SecondHalf | TokenizerState::SecondHalfU, _) => {
                return Err(JsonError::Malformed);
            }
            (_, b' ' | b'\t' | b'\n' | b'\r') => {}
            (TokenizerState::FirstElement, b']')
            | (TokenizerState::FirstName, b'}')
            | (TokenizerState::AfterValue, b']' | b'}') => {
                self.close(byte, sink)?;
            }
            (TokenizerState::Value | TokenizerState::FirstElement, _) => self.value(byte, sink)?,
            (TokenizerState::FirstName | TokenizerState::Name, b'"') => {
                self.is_name = true;
                self.held.clear();
                self.state = TokenizerState::Text;
            }
            (TokenizerState::Colon, b':') => self.state = TokenizerState::Value,
            (TokenizerState::AfterValue, b',') if self.depth > 0 => {
                sink.comma();
                self.state = if self.objects & 1 == 1 { TokenizerState::Name } else { TokenizerState::Value };
            }
            _ => return Err(JsonError::Malformed),
        }
        Ok(())
    }

    /// Reads the first byte of a value.
    fn value(&mut self, byte: u8, sink: &mut impl Sink) -> Result<(), JsonError> {
        self.state = match byte {
            b'{' | b'[' => {
                if self.depth == DEPTH_MAX {
                    return Err(JsonError::TooDeep);
                }
                let is_object = byte == b'{';
                self.depth += 1;
                self.objects = self.objects << 1 | u128::from(is_object);
                sink.open(is_object);
                if is_object { TokenizerState::FirstName } else { TokenizerState::FirstElement }
            }
            b'"' => {
                self.is_name = false;
                sink.begin_text();
                TokenizerState::Text
            }
            b'-' | b'0'..=b'9' => {
                self.held.clear();
                self.held.push(byte);
                TokenizerState::Number(match byte {
                    b'-' => NumberPart::Minus,
                    b'0' => NumberPart::Zero,
                    _ => NumberPart::Integer,
                })
            }
            b't' => TokenizerState::Word("rue", "true"),
            b'f' => TokenizerState::Word("alse", "false"),
            b'n' => TokenizerState::Word("ull", "null"),
            _ => return Err(JsonError::Malformed),
        };
        Ok(())
    }

    fn close(&mut self, byte: u8, sink: &mut impl Sink) -> Result<(), JsonError> {
        let is_object = byte == b'}';
        if self.depth == 0 || is_object != (self.objects & 1 == 1) {
            return Err(JsonError::Malformed);
        }
        self.depth -= 1;
        self.objects >>= 1;
        sink.close(is_object);
        self.state = TokenizerState::AfterValue;
        Ok(())
    }

    fn word(
        &mut self,
        byte: u8,
        left: &'static str,
        word: &'static str,
        sink: &mut impl Sink,
    ) -> Result<(), JsonError> {
        if left.as_bytes().first() != Some(&byte) {
            return Err(JsonError::Malformed);
        }
        let left = &left[1..];
        self.state = TokenizerState::Word(left, word);
        if left.is_empty() {
            sink.word(word);
            self.state = TokenizerState::AfterValue;
        }
        Ok(())
    }

    fn end_number(&mut self, part: NumberPart, sink: &mut impl Sink) -> Result<(), JsonError> {
        if !part.may_end() {
            return Err(JsonError::Malformed);
        }
        sink.number(&self.held);
        self.state = TokenizerState::AfterValue;
        Ok(())
    }

    /// Reads a piece of a string. Returns the rest of the piece after the string's end or after a backslash.
    fn text<'a>(&mut self, piece: &'a [u8], sink: &mut impl Sink) -> Result<&'a [u8], JsonError> {
        let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..0x20);
        let len = piece.iter().position(|byte| !is_plain(byte)).unwrap_or(piece.len());
        let (plain, rest) = piece.split_at(len);
        if !plain.iter().all(|byte| self.utf8.accepts(*byte)) {
            return Err(JsonError::Malformed);
        }
        self.emit(plain, sink)?;
        let Some((byte, after)) = rest.split_first() else { return Ok(rest) };
        if self.utf8.left > 0 {
            return Err(JsonError::Malformed);
        }
        match byte {
            b'"' => self.end_text(sink)?,
            b'\\' => self.state = TokenizerState::Escape,
            _ => return Err(JsonError::Malformed),
        }
        Ok(after)
    }

    fn end_text(&mut self, sink: &mut impl Sink) -> Result<(), JsonError> {
        if !self.is_name {
            sink.end_text();
            self.state = TokenizerState::AfterValue;
            return Ok(());
        }
        sink.name(std::str::from_utf8(&self.held).map_err(|_| JsonError::Malformed)?);
        self.state = TokenizerState::Colon;
        Ok(())
    }

    fn emit(&mut self, piece: &[u8], sink: &mut impl Sink) -> Result<(), JsonError> {
        if self.is_name {
            return self.hold(piece, NAME_BYTES_MAX);
        }
        if !piece.is_empty() {
            sink.text(piece);
        }
        Ok(())
    }

    fn hold(&mut self, piece: &[u8], max: usize) -> Result<(), JsonError> {
        if self.held.len() + piece.len() > max {
            return Err(JsonError::TooLong);
        }
        self.held.extend_from_slice(piece);
        Ok(())
    }

    fn escape(&mut self, byte: u8, sink: &mut impl Sink) -> Result<(), JsonError> {
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.state = TokenizerState::Digits(4);
                return Ok(());
            }
            _ => return Err(JsonError::Malformed),
        };
        self.state = TokenizerState::Text;
        self.emit(&[plain], sink)
    }

    /// Reads a digit of `\u`. `left` counts the digits that are missing, including this one.
    fn digit(&mut self, byte: u8, left: u8, sink: &mut impl Sink) -> Result<(), JsonError> {
        let digit = char::from(byte).to_digit(16).ok_or(JsonError::Malformed)?;
        self.unit = (self.unit << 4 | digit) & 0xffff;
        self.state = TokenizerState::Digits(left - 1);
        if left > 1 {
            return Ok(());
        }
        let code = match (self.first_half.take(), self.unit) {
            (Some(first), second @ 0xdc00..0xe000) => 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00),
            (None, first @ 0xd800..0xdc00) => {
                self.first_half = Some(first);
                self.state = TokenizerState::SecondHalf;
                return Ok(());
            }
            (None, unit) => unit,
            (Some(_), _) => return Err(JsonError::Malformed),
        };
        let letter = char::from_u32(code).ok_or(JsonError::Malformed)?;
        self.state = TokenizerState::Text;
        self.emit(letter.encode_utf8(&mut [0; 4]).as_bytes(), sink)
    }
}

/// Returns `true` if `bytes` is exactly one JSON text within the limits.
pub fn is_json(bytes: &[u8]) -> bool {
    let mut tokenizer = Tokenizer::new();
    tokenizer.push(bytes, &mut NullSink).and_then(|()| tokenizer.finish(&mut NullSink)).is_ok()
}

/// A sink that ignores all tokens.
struct NullSink;

impl Sink for NullSink {
    fn open(&mut self, _: bool) {}
    fn close(&mut self, _: bool) {}
    fn comma(&mut self) {}
    fn name(&mut self, _: &str) {}
    fn begin_text(&mut self) {}
    fn text(&mut self, _: &[u8]) {}
    fn end_text(&mut self) {}
    fn number(&mut self, _: &[u8]) {}
    fn word(&mut self, _: &'static str) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::write_escaped;

    /// Writes the tokens back as JSON.
    #[derive(Default)]
    struct Echo(Vec<u8>);

    impl Sink for Echo {
        fn open(&mut self, is_object: bool) {
            self.0.push(if is_object { b'{' } else { b'[' });
        }
        fn close(&mut self, is_object: bool) {
            self.0.push(if is_object { b'}' } else { b']' });
        }
        fn comma(&mut self) {
            self.0.push(b',');
        }
        fn name(&mut self, name: &str) {
            self.begin_text();
            self.text(name.as_bytes());
            self.end_text();
            self.0.push(b':');
        }
        fn begin_text(&mut self) {
            self.0.push(b'"');
        }
        fn text(&mut self, piece: &[u8]) {
            write_escaped(piece, &mut self.0);
        }
        fn end_text(&mut self) {
            self.0.push(b'"');
        }
        fn number(&mut self, number: &[u8]) {
            self.0.extend_from_slice(number);
        }
        fn word(&mut self, word: &'static str) {
            self.0.extend_from_slice(word.as_bytes());
        }
    }

    fn echo(text: &[u8], piece_bytes: usize) -> Result<Vec<u8>, JsonError> {
        let (mut tokenizer, mut sink) = (Tokenizer::new(), Echo::default());
        for piece in text.chunks(piece_bytes.max(1)) {
            tokenizer.push(piece, &mut sink)?;
        }
        tokenizer.finish(&mut sink)?;
        Ok(sink.0)
    }

    /// Generates any JSON, with names and strings that need escapes.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn escapes_are_undone() {
        let text = br#" { "\u0061\/" : [ "\ud83d\ude00\n\"", -1.5e+3 , true,false , null, {} , [ ] ] } "#;
        assert_eq!(
            String::from_utf8(echo(text, 3).unwrap()).unwrap(),
            "{\"a/\":[\"😀\\u000a\\\"\",-1.5e+3,true,false,null,{},[]]}"
        );
    }

    #[test]
    fn malformed_json_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "]",
            "}",
            "[}",
            "{]",
            "[1,]",
            "[,1]",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{1:1}",
            "1 2",
            "1,2",
            "01",
            "-",
            "-a",
            "1.",
            ".5",
            "+1",
            "1e",
            "1e+",
            "0x1",
            "1.e1",
            "tru",
            "truee",
            "True",
            "nul",
            "NaN",
            "'a'",
            "\"",
            "\"a",
            "\"\\\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\ud800\"",
            "\"\\ud800a\"",
            "\"\\ud800\\n\"",
            "\"\n\"",
            "\"\t\"",
            "[1 2]",
            "{\"a\" 1}",
            "\u{feff}1",
            "[1]]",
            "//a\n1",
            "{\"a\":1 \"b\":2}",
        ] {
            for piece_bytes in [1, 100] {
                assert_eq!(echo(text.as_bytes(), piece_bytes), Err(JsonError::Malformed), "{text}");
            }
        }
        for text in [
            &b"\"\xff\""[..],
            b"\"\xc0\x80\"",
            b"\"\xed\xa0\x80\"",
            b"\"\xe4\xbd\"",
            b"\"\xf4\x90\x80\x80\"",
            b"{\"\xe4\":1}",
        ] {
            assert_eq!(echo(text, 1), Err(JsonError::Malformed), "{text:?}");
        }
    }

    #[test]
    fn depth_names_and_numbers_are_limited() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(echo(deep(DEPTH_MAX).as_bytes(), 7).is_ok());
        assert_eq!(echo(deep(DEPTH_MAX + 1).as_bytes(), 7), Err(JsonError::TooDeep));
        assert_eq!(echo("[".repeat(1_000_000).as_bytes(), 4096), Err(JsonError::TooDeep));
        let named = |len: usize| format!("{{\"{}\":1}}", "a".repeat(len));
        assert!(echo(named(NAME_BYTES_MAX).as_bytes(), 7).is_ok());
        assert_eq!(echo(named(NAME_BYTES_MAX + 1).as_bytes(), 7), Err(JsonError::TooLong));
        assert!(echo("1".repeat(NUMBER_BYTES_MAX).as_bytes(), 7).is_ok());
        assert_eq!(echo("1".repeat(NUMBER_BYTES_MAX + 1).as_bytes(), 7), Err(JsonError::TooLong));
        assert!(echo(format!("\"{}\"", "a".repeat(1_000_000)).as_bytes(), 4096).is_ok());
    }

    #[test]
    fn an_error_stays() {
        let (mut tokenizer, mut sink) = (Tokenizer::new(), Echo::default());
        assert!(tokenizer.push(b"[}", &mut sink).is_err());
        assert!(tokenizer.push(b"1]", &mut sink).is_err());
        assert!(tokenizer.finish(&mut sink).is_err());
    }

    proptest! {
        #[test]
        fn json_is_told_as_it_is(json in any_json(), is_pretty: bool, piece_bytes in 1_usize..40) {
            let text = if is_pretty { serde_json::to_vec_pretty(&json) } else { serde_json::to_vec(&json) }.unwrap();
            let rewritten = echo(&text, piece_bytes).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Value>(&rewritten).unwrap(), serde_json::from_slice::<Value>(&text).unwrap());
        }

        #[test]
        fn it_accepts_what_serde_json_does(
            text in r#"([\[\]{},:"\\ueE0-9.+ ad-]|true|null|"a":|\\n|\\ud83d|\\ude00){0,12}"#,
            piece_bytes in 1_usize..5,
        ) {
            let other = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            let ours = echo(text.as_bytes(), piece_bytes).is_ok();
            // `IgnoredAny` does not check surrogates; the tokenizer does.
            prop_assert!(ours == other || (other && text.contains("\\ud")), "{}", text);
        }

        #[test]
        fn any_bytes_are_read_the_same_however_they_are_cut(bytes: Vec<u8>, piece_bytes in 1_usize..5) {
            prop_assert_eq!(echo(&bytes, piece_bytes), echo(&bytes, usize::MAX));
        }
    }
}
