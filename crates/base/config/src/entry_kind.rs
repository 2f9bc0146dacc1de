//! Lists whose entries have exactly one key each, such as the remedies of a flow.

use crate::Problem;

/// A kind of list entries that have exactly one key each.
#[derive(Debug, Clone, Copy)]
pub struct EntryKind {
    /// The kind in a message, with its article: `a remedy`.
    pub name: &'static str,
    /// All keys that an entry may have.
    pub keys: &'static [&'static str],
    /// `true` if the order of the entries matters.
    pub is_ordered: bool,
}

impl EntryKind {
    /// Returns the only key of an entry that has these `keys`. Adds a problem at `path` if it has none, or
    /// several.
    pub fn only_key(
        &self,
        keys: &[&'static str],
        path: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<&'static str> {
        let message = match keys {
            [key] => return Some(key),
            [] => format!("{} is missing: expected one of {}", self.name, self.keys.join(", ")),
            [first, second, ..] => {
                let order = if self.is_ordered { ", in the wanted order" } else { "" };
                format!("`{first}` and `{second}` must be separate list entries{order}")
            }
        };
        problems.push(Problem::new(path, message));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_one_key() {
        let kind = EntryKind { name: "a remedy", keys: &["cache", "retry"], is_ordered: true };
        let mut problems = Vec::new();
        assert_eq!(kind.only_key(&["retry"], "r[0]", &mut problems), Some("retry"));
        assert_eq!(kind.only_key(&[], "r[1]", &mut problems), None);
        assert_eq!(kind.only_key(&["cache", "retry"], "r[2]", &mut problems), None);
        let unordered = EntryKind { is_ordered: false, ..kind };
        assert_eq!(unordered.only_key(&["cache", "retry"], "r[3]", &mut problems), None);
        let texts: Vec<_> = problems.iter().map(|problem| (&*problem.path, &*problem.message)).collect();
        assert_eq!(
            texts,
            [
                ("r[1]", "a remedy is missing: expected one of cache, retry"),
                ("r[2]", "`cache` and `retry` must be separate list entries, in the wanted order"),
                ("r[3]", "`cache` and `retry` must be separate list entries"),
            ]
        );
    }
}
