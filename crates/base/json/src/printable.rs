//! Texts that may go to a terminal or into a log. They often come from strangers, and some characters of them
//! would command a terminal, hide or reorder other text, or end a line.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Takes the place of a character that is not printed.
const REPLACEMENT: char = '\u{fffd}';

/// Returns `true` for control characters, for those that change the direction of a text or have no width, and
/// for separators of lines. It includes line ends and tabs.
pub fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a text of several lines with each unprintable character replaced. Line ends and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_bad = |letter| is_unprintable(letter) && !matches!(letter, '\n' | '\t');
    if !text.contains(is_bad) {
        return text.into();
    }
    // A line may end with CR and LF. A CR alone would let the rest overwrite the line.
    let lines = text.split("\r\n").map(|line| replaced(line, is_bad));
    lines.collect::<Vec<_>>().join("\r\n").into()
}

/// Returns a text of one line with each unprintable character replaced, line ends and tabs included.
pub fn printable_line(text: &str) -> Cow<'_, str> {
    replaced(text, is_unprintable)
}

fn replaced(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return text.into();
    }
    text.chars().map(|letter| if is_bad(letter) { REPLACEMENT } else { letter }).collect()
}

/// Returns JSON with each unprintable character escaped. The value stays the same, and so do line ends and
/// tabs between tokens.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    // Within strings, line ends and tabs are escaped already.
    let is_bad = |letter: char| is_unprintable(letter) && !matches!(letter, '\n' | '\r' | '\t');
    if !json.contains(is_bad) {
        return json.into();
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        if is_bad(letter) { push_escape(letter, &mut escaped) } else { escaped.push(letter) }
    }
    escaped.into()
}

/// Appends a character as JSON escapes it.
fn push_escape(letter: char, out: &mut String) {
    for unit in letter.encode_utf16(&mut [0; 2]) {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

/// Appends the value of a pair `key=value`, as readers of logfmt expect it: in quotes, escaped as in JSON,
/// unless it consists of visible ASCII characters other than quotes, backslashes and `=`.
pub fn push_value(value: &str, out: &mut String) {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=');
    if !value.is_empty() && value.bytes().all(is_plain) {
        return out.push_str(value);
    }
    push_quoted(value, out);
}

/// Appends a text in quotes, escaped as in JSON.
pub fn push_quoted(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if is_unprintable(letter) => push_escape(letter, out),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: &str = "\0\u{7}\u{8}\u{b}\r\u{1b}\u{7f}\u{85}\u{9b}\u{ad}\u{61c}\u{200b}\u{200d}\u{200e}\u{2028}\u{2029}\
        \u{202a}\u{202e}\u{2060}\u{2066}\u{2069}\u{feff}\u{e0041}";

    #[test]
    fn each_character_that_is_not_printed_is_replaced() {
        for letter in BAD.chars() {
            assert!(is_unprintable(letter), "{letter:?}");
            assert_eq!(printable(&format!("a{letter}b\n\tc")), "a\u{fffd}b\n\tc", "{letter:?}");
            assert_eq!(printable_line(&format!("a{letter}b\nc")), "a\u{fffd}b\u{fffd}c");
        }
        assert_eq!(printable("a\r\n\rb\u{1b}\r\n"), "a\r\n\u{fffd}b\u{fffd}\r\n");
        for text in ["", "plain", "ünïcödé 日本語 русский עברית 🎉 – “x”"] {
            assert!(matches!(printable_line(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = format!("a{BAD}\"\\\n\tb");
        let json = format!("{{\n\t\"{}\": [1]\r\n}}\n", {
            let mut text = Vec::new();
            crate::write_escaped(value.as_bytes(), &mut text);
            String::from_utf8(text).unwrap()
        });
        let escaped = printable_json(&json);
        assert!(!escaped.chars().any(|letter| is_unprintable(letter) && !"\n\r\t".contains(letter)));
        assert!(
            escaped.contains("\\u009b") && escaped.contains("\\u202e") && escaped.contains("\\udb40\\udc41")
        );
        assert!(crate::tokenizer::is_json(escaped.as_bytes()));
        assert!(matches!(printable_json("{\"a\": \"é\"}\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_value_is_quoted_unless_it_is_plain() {
        for (value, expected) in [
            ("/v1/users;v", "/v1/users;v"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("a=b", "\"a=b\""),
            ("\"", "\"\\\"\""),
            ("a\\", "\"a\\\\\""),
            ("a\nstatus=200", "\"a\\u000astatus=200\""),
            ("é", "\"é\""),
            ("\u{202e}", "\"\\u202e\""),
        ] {
            let mut out = String::new();
            push_value(value, &mut out);
            assert_eq!(out, expected);
        }
    }
}
