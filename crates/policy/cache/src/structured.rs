//! Parser for dictionaries of structured fields (RFC 9651 §3.2), as needed for targeted cache fields. It
//! validates the whole syntax, and returns only the kinds of values that directives use.

/// Maximum number of members; a larger dictionary is malformed.
const MEMBERS_MAX: usize = 64;

/// The value of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// An integer.
    Integer(i64),
    /// A boolean. A member without a value is true.
    Boolean(bool),
    /// Any other value.
    Other,
}

/// Parses the dictionary in the lines of a field. Of equal keys the last one counts. Returns `None` on any
/// syntax error; the field is ignored then.
pub fn dictionary<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Vec<(&'a [u8], Value)>> {
    let mut members: Vec<(&[u8], Value)> = Vec::new();
    for line in lines {
        let mut cursor = Cursor(line);
        cursor.skip(b" ");
        while !cursor.0.is_empty() {
            let key = cursor.key()?;
            let value = if cursor.take(b'=') { cursor.member()? } else { Value::Boolean(true) };
            cursor.parameters()?;
            members.retain(|(other, _)| *other != key);
            members.push((key, value));
            cursor.skip(b" \t");
            if cursor.0.is_empty() {
                break;
            }
            cursor.take(b',').then_some(())?;
            cursor.skip(b" \t");
            (!cursor.0.is_empty() && members.len() <= MEMBERS_MAX).then_some(())?;
        }
    }
    Some(members)
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn skip(&mut self, bytes: &[u8]) {
        let len = self.0.iter().take_while(|byte| bytes.contains(byte)).count();
        self.0 = &self.0[len..];
    }

    fn take(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn run(&mut self, is_in: impl Fn(u8) -> bool) -> &'a [u8] {
        let (run, rest) = self.0.split_at(self.0.iter().take_while(|byte| is_in(**byte)).count());
        self.0 = rest;
        run
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        self.0.first().filter(|first| first.is_ascii_lowercase() || **first == b'*')?;
        Some(self.run(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)))
    }

    /// Parses an item or an inner list.
    fn member(&mut self) -> Option<Value> {
        if !self.take(b'(') {
            return self.item();
        }
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            matches!(self.0.first(), Some(b' ' | b')')).then_some(())?;
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn item(&mut self) -> Option<Value> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => self.boolean(),
            b':' => self.bytes(),
            b'@' => {
                self.next();
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b'%' => self.display_string(),
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                self.run(|byte| egret_http1::is_token(&[byte]) || byte == b':' || byte == b'/');
                Some(Value::Other)
            }
            _ => None,
        }
    }

    /// Parses a number of at most 15 digits, or 12 digits and 3 decimals.
    fn number(&mut self) -> Option<Value> {
        let sign = if self.take(b'-') { -1 } else { 1 };
        let whole = self.run(|byte| byte.is_ascii_digit());
        if self.take(b'.') {
            let fraction = self.run(|byte| byte.is_ascii_digit());
            let is_decimal = (1..=12).contains(&whole.len()) && (1..=3).contains(&fraction.len());
            return is_decimal.then_some(Value::Other);
        }
        (whole.len() <= 15).then_some(())?;
        let number = i64::try_from(egret_http1::decimal(whole)?).ok()?;
        Some(Value::Integer(sign * number))
    }

    fn string(&mut self) -> Option<Value> {
        self.next();
        loop {
            match self.next()? {
                b'"' => return Some(Value::Other),
                b'\\' => matches!(self.next()?, b'"' | b'\\').then_some(())?,
                0x20..=0x7e => {}
                _ => return None,
            }
        }
    }

    fn boolean(&mut self) -> Option<Value> {
        self.next();
        match self.next()? {
            b'1' => Some(Value::Boolean(true)),
            b'0' => Some(Value::Boolean(false)),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<Value> {
        self.next();
        self.run(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        self.take(b':').then_some(Value::Other)
    }

    fn display_string(&mut self) -> Option<Value> {
        self.next();
        self.take(b'"').then_some(())?;
        loop {
            match self.next()? {
                b'"' => return Some(Value::Other),
                b'%' => {
                    for _ in 0..2 {
                        matches!(self.next()?, b'0'..=b'9' | b'a'..=b'f').then_some(())?;
                    }
                }
                0x20..=0x7e => {}
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(String, Value)>> {
        let members = dictionary(text.split('\n').map(str::as_bytes))?;
        Some(
            members
                .into_iter()
                .map(|(key, value)| (String::from_utf8(key.to_vec()).unwrap(), value))
                .collect(),
        )
    }

    #[test]
    fn members_are_read_with_what_they_are_worth() {
        let members =
            read("max-age=60;a=1;b, no-store ,\tprivate=?0, a=(1 \"x\";y :aGk=:), *b=-1.5\nmax-age=5")
                .unwrap();
        let members: Vec<(&str, Value)> = members.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        assert_eq!(
            members,
            [
                ("no-store", Value::Boolean(true)),
                ("private", Value::Boolean(false)),
                ("a", Value::Other),
                ("*b", Value::Other),
                ("max-age", Value::Integer(5)),
            ]
        );
        assert_eq!(read("  "), Some(vec![]));
        assert_eq!(
            read("a=@12, b=%\"f%c3%bc\", c=tok/en:*"),
            Some(vec![("a".into(), Value::Other), ("b".into(), Value::Other), ("c".into(), Value::Other)])
        );
    }

    #[test]
    fn one_wrong_byte_makes_all_of_it_nothing() {
        for text in [
            "max-age=60,",
            ",max-age=60",
            "Max-Age=60",
            "max-age = 60",
            "max-age=",
            "max-age=1234567890123456",
            "a=1.",
            "a=1.2345",
            "a=\"x",
            "a=\"\\n\"",
            "a=?2",
            "a=(1",
            "a=(1\"x\")",
            "a=:x",
            "a;=1",
            "a b",
            "a=%\"%C3\"",
            "a=\u{e9}",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(&"a,".repeat(100)), None);
    }
}
