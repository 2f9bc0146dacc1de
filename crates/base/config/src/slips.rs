//! Slips of the pen that YAML accepts, and that mean something else than they look like.

use crate::problem::Problem;

/// Characters that word processors put in place of quotes.
const PRINTED_QUOTES: [char; 9] =
    ['\u{201c}', '\u{201d}', '\u{201e}', '\u{201f}', '\u{2018}', '\u{2019}', '\u{201a}', '«', '»'];

/// Returns the key of `url:http://...`, which YAML reads as one word because no space follows the colon. The
/// scheme of a URL is none, even if a key has its name.
pub(crate) fn key_of(word: &str, expected: &[&'static str]) -> Option<&'static str> {
    let (key, rest) = word.split_once(':')?;
    expected.iter().copied().find(|known| *known == key && !rest.starts_with(' ') && !rest.starts_with("//"))
}

/// Returns the message about such a word.
pub(crate) fn glued(word: &str, expected: &[&'static str]) -> Option<String> {
    key_of(word, expected).map(|key| format!("a space is missing after the colon: write `{key}: ...`"))
}

/// Adds to a problem that the value's `first` character is no quote of YAML, if it looks like one.
pub(crate) fn with_quotes_noted(mut problem: Problem, first: Option<char>) -> Problem {
    if let Some(quote) = first.filter(|c| PRINTED_QUOTES.contains(c)) {
        let advice =
            format!("; the quote `{quote}` is part of the text: only `\"` and `'` are quotes in YAML");
        problem.message += &advice;
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_no_key_with_its_value() {
        let keys = ["url", "http"];
        assert_eq!(key_of("url:http://a", &keys), Some("url"));
        assert_eq!(key_of("http:2", &keys), Some("http"));
        assert_eq!(key_of("http://a", &keys), None);
    }
}
