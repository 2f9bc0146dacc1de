//! A problem in a config, with a suggestion of the intended name.

use crate::tree::Position;

/// One problem in a config: its position, its message, and a suggestion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path from the root: `gateway.listen[0].provider`. Empty for the config as a whole.
    pub path: String,
    /// The error and the expected value, without the path: `no provider of this name is configured`.
    pub message: String,
    /// The word that was probably intended; shown as ``did you mean `word`?``.
    pub suggestion: Option<String>,
    /// Line and column in the value at `path`, both from 1, if it is a text of several lines.
    pub within: Option<Position>,
}

impl Problem {
    /// Creates a problem at `path` without a suggestion.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), suggestion: None, within: None }
    }

    /// Adds the position in the value, which is a text of several lines.
    #[must_use]
    pub fn within(mut self, line: usize, column: usize) -> Self {
        self.within = Some(Position { line, column });
        self
    }

    /// Adds the candidate nearest to `word` as the suggestion, if one is near enough.
    #[must_use]
    pub fn suggest<'a>(mut self, word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        self.suggestion = suggest(word, candidates).map(str::to_owned);
        self
    }
}

/// Longer words are only compared for equality: the work grows with the square of the length.
const WORD_CHARS_MAX: usize = 64;

/// Returns the candidate nearest to `word`, at most one edit per three characters away. The first one wins a
/// tie.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = folded(word);
    let edits_max = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &folded(candidate)), candidate))
        .filter(|(edits, candidate)| *edits <= edits_max && *edits < candidate.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Folds case and the difference between `-` and `_`, which do not count as edits.
fn folded(word: &str) -> Vec<char> {
    word.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// Number of insertions, deletions, substitutions and swaps of neighbours that lead from `a` to `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    if a.len().max(b.len()) > WORD_CHARS_MAX {
        return if a == b { 0 } else { usize::MAX };
    }
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substituted = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut edits = substituted.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                let swapped: &Vec<usize> = &before_last;
                edits = edits.min(swapped[j - 2] + 1);
            }
            row.push(edits);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_suggested() {
        let keys = ["connect", "tls", "first_byte", "idle", "total"];
        for (word, expected) in [
            ("conect", Some("connect")),
            ("Connect", Some("connect")),
            ("conncet", Some("connect")),
            ("first-byte", Some("first_byte")),
            ("tsl", Some("tls")),
            ("total_timeout", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(suggest(word, keys), expected, "{word}");
        }
    }

    #[test]
    fn a_very_long_word_is_compared_for_equality_only() {
        let long = "a".repeat(100_000);
        assert_eq!(suggest(&long, ["listen", long.as_str()]), Some(long.as_str()));
    }
}
