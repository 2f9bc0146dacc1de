//! A problem in a config, with a suggestion of the intended name.

use std::cell::Cell;

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
    /// Path of another part of the config that the problem is about. Its place is added to the message.
    pub related: Option<String>,
}

impl Problem {
    /// Creates a problem at `path` without a suggestion.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), suggestion: None, within: None, related: None }
    }

    /// Creates the problem that no `kind` of thing, such as `quota`, has this `name`. Suggests a near one of
    /// the `names` there are, or shows them.
    pub fn unknown_name<'a>(
        path: impl Into<String>,
        kind: &str,
        name: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut names = names.into_iter();
        let first: Vec<&str> = names.by_ref().take(NAMES_MAX + 1).collect();
        let message = match name {
            "" => format!("the {kind}'s name is missing"),
            name => format!("no {kind} is called `{name}`"),
        };
        let problem = Self::new(path, message);
        let mut problem = problem.suggest(name, first.iter().copied().chain(names));
        if problem.suggestion.is_none() {
            let advice = match first[..] {
                [] => format!(": define it under `{kind}s`"),
                [only] => format!("; there is `{only}`"),
                _ if first.len() <= NAMES_MAX => format!("; there are `{}`", first.join("`, `")),
                _ => String::new(),
            };
            problem.message += &advice;
        }
        problem
    }

    /// Adds the position in the value, which is a text of several lines.
    #[must_use]
    pub fn within(mut self, line: usize, column: usize) -> Self {
        self.within = Some(Position { line, column });
        self
    }

    /// Adds the path of another part of the config that the problem is about.
    #[must_use]
    pub fn related(mut self, path: impl Into<String>) -> Self {
        self.related = Some(path.into());
        self
    }

    /// Adds the candidate nearest to `word` as the suggestion, if one is near enough.
    #[must_use]
    pub fn suggest<'a>(mut self, word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        self.suggestion = suggest(word, candidates).map(str::to_owned);
        self
    }
}

/// Number of names that a message shows.
const NAMES_MAX: usize = 8;

/// Longer words are only compared for equality: the work grows with the square of the length.
const WORD_CHARS_MAX: usize = 64;

/// Number of comparisons of words while a config is loaded. Without a limit, a config of many unknown names
/// would cost the square of their number.
const COMPARISONS_MAX: usize = 10_000;

thread_local! {
    /// Number of comparisons that are left. Without a config there is no limit.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Limits the work for suggestions of this thread from now on: a config is read.
pub(crate) fn limit_comparisons() {
    LEFT.set(Some(COMPARISONS_MAX));
}

/// Counts a comparison. Returns `false` if there is none left.
fn may_compare() -> bool {
    let left = LEFT.get();
    LEFT.set(left.map(|left| left.saturating_sub(1)));
    left != Some(0)
}

/// Returns the candidate nearest to `word`, at most one edit per three characters away, or else the one that
/// has most of a word in common with it, as `retry` with `retries`. The first one wins a tie.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = folded(word);
    let mut nearest: Option<(usize, &str)> = None;
    let mut akin: Option<(usize, &str)> = None;
    for candidate in candidates.into_iter().take_while(|_| may_compare()) {
        let letters = folded(candidate);
        if let Some(edits) = near(&word, &letters)
            && nearest.is_none_or(|(least, _)| edits < least)
        {
            nearest = Some((edits, candidate));
        }
        let common = common_beginning(&word, &letters);
        if common > akin.map_or(0, |(max, _)| max) {
            akin = Some((common, candidate));
        }
    }
    nearest.or(akin).map(|(_, candidate)| candidate)
}

/// Returns `true` if `candidate` differs from `word` by at most one edit per three characters.
pub(crate) fn is_near(word: &str, candidate: &str) -> bool {
    near(&folded(word), &folded(candidate)).is_some()
}

/// Returns the number of edits from `word` to `candidate`, if the words are near each other.
fn near(word: &[char], candidate: &[char]) -> Option<usize> {
    let edits_max = (word.len() / 3).max(1);
    if word.len().abs_diff(candidate.len()) > edits_max {
        return None;
    }
    let edits = distance(word, candidate);
    (edits <= edits_max && edits < candidate.len()).then_some(edits)
}

/// Shortest beginning that makes two words akin.
const COMMON_CHARS_MIN: usize = 4;

/// Returns the length of the beginning that `word` has in common with one of the parts of `candidate`, if it
/// is most of the shorter one; else 0.
fn common_beginning(word: &[char], candidate: &[char]) -> usize {
    // A dotted name or the name of a file has its first part in common with many others.
    if word.len().max(candidate.len()) > WORD_CHARS_MAX || word.contains(&'.') {
        return 0;
    }
    let parts = candidate.split(|c| *c == '_').chain([candidate]);
    let common = parts.map(|part| {
        let common = word.iter().zip(part).take_while(|(a, b)| a == b).count();
        let is_most = 4 * common >= 3 * word.len().min(part.len());
        if common >= COMMON_CHARS_MIN && is_most { common } else { 0 }
    });
    common.max().unwrap_or_default()
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
            ("total_timeout", Some("total")),
            ("connection", Some("connect")),
            ("idol_connect", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(suggest(word, keys), expected, "{word}");
        }
    }

    #[test]
    fn an_unknown_name_gets_a_near_one_or_those_that_there_are() {
        let said = |name, names: &[&'static str]| {
            let problem = Problem::unknown_name("p", "quota", name, names.iter().copied());
            (problem.message, problem.suggestion)
        };
        let plain = |message: &str| (message.to_owned(), None);
        let (near, meant) = said("hourli", &["hourly", "daily"]);
        assert_eq!((near.as_str(), meant.as_deref()), ("no quota is called `hourli`", Some("hourly")));
        assert_eq!(said("x", &["a", "b"]), plain("no quota is called `x`; there are `a`, `b`"));
        assert_eq!(said("x", &["a"]), plain("no quota is called `x`; there is `a`"));
        assert_eq!(said("", &["a"]), plain("the quota's name is missing; there is `a`"));
        assert_eq!(said("x", &[]), plain("no quota is called `x`: define it under `quotas`"));
    }

    #[test]
    fn a_word_of_the_same_stem_is_suggested() {
        let keys = ["limit", "retry", "provider-throttle", "timeout"];
        for (word, expected) in [
            ("retries", Some("retry")),
            ("throttling", Some("provider-throttle")),
            ("time_limit", None),
            ("rat", None),
        ] {
            assert_eq!(suggest(word, keys), expected, "{word}");
        }
    }

    #[test]
    fn suggestions_of_a_config_have_a_limit() {
        limit_comparisons();
        let names: Vec<String> = (0..COMPARISONS_MAX).map(|number| format!("name-{number}")).collect();
        let candidates = || names.iter().map(String::as_str);
        assert_eq!(suggest("name_9999", candidates()), Some("name-9999"));
        assert_eq!(suggest("name_9999", candidates()), None);
        assert_eq!(Problem::unknown_name("p", "quota", "x", candidates()).message, "no quota is called `x`");
        limit_comparisons();
        assert_eq!(suggest("name_9999", candidates()), Some("name-9999"));
    }

    #[test]
    fn a_very_long_word_is_compared_for_equality_only() {
        let long = "a".repeat(100_000);
        assert_eq!(suggest(&long, ["listen", long.as_str()]), Some(long.as_str()));
    }
}
