//! A strict scanner (RFC 8259) of a JSON text in memory, for edits and lookups in place.

/// Maximum depth of nesting. The scanner keeps one bit for each container.
const DEPTH_MAX: usize = 127;

/// Maximum growth of a text by all edits together. A value is inserted once for each repetition of a name.
pub(crate) const GROWTH_BYTES_MAX: usize = 1 << 20;

/// Reason why a text cannot be edited. Contains nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON from this byte on.
    #[error("invalid JSON at byte {0}")]
    Malformed(usize),
    /// The text is nested too deeply.
    #[error("nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// There is no place for a value to set: its parent is a string, a number or a list.
    #[error("there is no place for a value to set")]
    NoPlace,
    /// The edits would add too much to the text.
    #[error("the edits would add more than {GROWTH_BYTES_MAX} bytes")]
    TooLong,
}

/// Appends the unescaped form of a valid JSON string. Returns `None` for half of a surrogate pair, which is
/// not a character.
pub(crate) fn unescape(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = raw;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let (escape, after) = rest.split_first()?;
        rest = after;
        out.push(match escape {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut unit = hex(&mut rest)?;
                if (0xd800..0xdc00).contains(&unit) {
                    rest = rest.strip_prefix(b"\\u")?;
                    let low = hex(&mut rest).filter(|low| (0xdc00..0xe000).contains(low))?;
                    unit = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                }
                out.extend_from_slice(char::from_u32(unit)?.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            other => *other,
        });
    }
    Some(())
}

/// Parses the next four hexadecimal digits.
fn hex(rest: &mut &[u8]) -> Option<u32> {
    let (digits, after) = rest.split_at_checked(4)?;
    *rest = after;
    digits.iter().try_fold(0, |number, digit| Some(number * 16 + char::from(*digit).to_digit(16)?))
}

/// A strict JSON scanner (RFC 8259).
pub(crate) struct Scanner<'a> {
    pub(crate) text: &'a [u8],
    pub at: usize,
    /// Number of open containers.
    pub depth: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(crate) fn malformed(&self) -> JsonError {
        JsonError::Malformed(self.at)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.eat(byte) { Ok(()) } else { Err(self.malformed()) }
    }

    pub(crate) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Enters the container that begins here.
    pub(crate) fn open(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(JsonError::TooDeep) } else { Ok(()) }
    }

    /// Returns `true` if the opened container has a member; otherwise leaves it.
    pub(crate) fn first(&mut self, end: u8) -> bool {
        self.space();
        let is_empty = self.eat(end);
        self.depth -= usize::from(is_empty);
        !is_empty
    }

    /// Returns `true` if the container has another member; otherwise leaves it.
    pub(crate) fn next(&mut self, end: u8) -> Result<bool, JsonError> {
        self.space();
        if self.eat(b',') {
            self.space();
            return Ok(true);
        }
        self.expect(end)?;
        self.depth -= 1;
        Ok(false)
    }

    /// Reads a name and its colon; returns the name in its escaped form, without quotes.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], JsonError> {
        let start = self.at + 1;
        self.string()?;
        let name = &self.text[start..self.at - 1];
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(name)
    }

    /// Skips the value that begins here.
    pub(crate) fn skip(&mut self) -> Result<(), JsonError> {
        let outside = self.depth;
        // One bit for each open container: 1 for an object.
        let mut objects = 0_u128;
        let end = |objects: u128| if objects & 1 == 1 { b'}' } else { b']' };
        loop {
            let mut is_within = false;
            if let Some(bracket @ (b'{' | b'[')) = self.peek() {
                self.open()?;
                objects = (objects << 1) | u128::from(bracket == b'{');
                is_within = self.first(end(objects));
                objects >>= u32::from(!is_within);
            } else {
                self.scalar()?;
            }
            while !is_within {
                if self.depth == outside {
                    return Ok(());
                }
                is_within = self.next(end(objects))?;
                objects >>= u32::from(!is_within);
            }
            if objects & 1 == 1 {
                self.name()?;
            }
        }
    }

    /// Skips a string, a number or a literal.
    fn scalar(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => Err(self.malformed()),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.malformed());
        }
        self.at += word.len();
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.expect(b'"')?;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(0x20..) => self.at += 1,
                Some(_) | None => return Err(self.malformed()),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                let digits = self.text.get(self.at + 1..self.at + 5);
                if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    return Err(self.malformed());
                }
                self.at += 5;
            }
            _ => return Err(self.malformed()),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.malformed()) } else { Ok(()) }
    }
}
