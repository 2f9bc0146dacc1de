//! The outcome of a translation: the config, and what became of each item of the original.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// A translated config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    /// Egret's config, as commented YAML.
    pub config: String,
    /// Every item of the original, in its order.
    pub items: Vec<Item>,
}

/// A part of the original, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// The file, relative to the imported directory.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// The part: ``remedy `limit` (strategy_based_throttling)``.
    pub what: String,
    /// Its outcome.
    pub verdict: ItemOutcome,
}

/// The outcome of a part of the original.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemOutcome {
    /// Its translation behaves alike.
    Translated,
    /// Its translation behaves differently: the difference.
    Different(String),
    /// It has no translation: the reason, and what to do instead.
    Lost(String),
}

/// The reason why a part has no translation, and what to do instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Untranslatable(Cow<'static, str>);

impl From<&'static str> for Untranslatable {
    fn from(reason: &'static str) -> Self {
        Self(reason.into())
    }
}

impl From<String> for Untranslatable {
    fn from(reason: String) -> Self {
        Self(reason.into())
    }
}

impl From<Untranslatable> for String {
    fn from(Untranslatable(reason): Untranslatable) -> Self {
        reason.into_owned()
    }
}

impl fmt::Display for Untranslatable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A test of an outcome.
type Test = fn(&ItemOutcome) -> bool;

impl Translation {
    /// Returns `true` if a part of the original has no translation.
    pub fn is_lossy(&self) -> bool {
        self.items.iter().any(|item| matches!(item.verdict, ItemOutcome::Lost(_)))
    }

    /// Returns the report: the counts, then every item, grouped by its verdict.
    pub fn report(&self) -> String {
        let of = |kind: Test| self.items.iter().filter(move |item| kind(&item.verdict));
        let groups: [(&str, Test); 3] = [
            ("translated", |verdict| matches!(verdict, ItemOutcome::Translated)),
            ("translated with a difference", |verdict| matches!(verdict, ItemOutcome::Different(_))),
            ("not translated", |verdict| matches!(verdict, ItemOutcome::Lost(_))),
        ];
        let counts = groups.map(|(name, kind)| format!("{} {name}", of(kind).count()));
        let mut text = format!("{}\n", counts.join(", "));
        for (name, kind) in groups {
            let items: Vec<String> = of(kind).map(ToString::to_string).collect();
            if !items.is_empty() {
                let _ = write!(text, "\n{name}:\n{}\n", items.join("\n"));
            }
        }
        text
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, what, verdict } = self;
        write!(f, "  {}:{line}: {}", shown(file), shown(what))?;
        match verdict {
            ItemOutcome::Translated => Ok(()),
            ItemOutcome::Different(text) | ItemOutcome::Lost(text) => write!(f, ": {}", shown(text)),
        }
    }
}

/// The text without control characters, which could move the cursor of a terminal.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_groups_items_by_what_became_of_them() {
        let item =
            |line, what: &str, verdict| Item { file: "a.yaml".into(), line, what: what.into(), verdict };
        let translation = Translation {
            config: String::new(),
            items: vec![
                item(1, "remedy `a`", ItemOutcome::Lost("no\u{1b}[2J way".into())),
                item(2, "remedy `b`", ItemOutcome::Translated),
            ],
        };
        assert_eq!(
            translation.report(),
            "1 translated, 0 translated with a difference, 1 not translated\n\n\
             translated:\n  a.yaml:2: remedy `b`\n\nnot translated:\n  a.yaml:1: remedy `a`: no\u{fffd}[2J way\n"
        );
        assert!(translation.is_lossy());
    }
}
