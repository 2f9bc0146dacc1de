//! The rules for changes over the control API.
//!
//! `tune` needs no guess about what a text means. The new config must have the same shape as the *approved*
//! one: the same keys, and lists of the same length, all in the same order. Values may differ only at the
//! keys of the table in `tunable.rs`, and only by plain values: numbers, durations and the like. So no text
//! that is an expression, a template, a script, a URL, a host, a name or a path can be new.
//!
//! The approved config is the last one that came from the file itself, at start or by a reload. Only the
//! owner of the file decides what the gateway may read, and where it sends what it has read. The rules
//! compare two texts before anything that the new one refers to is read, so a refusal reveals nothing about
//! the files and variables of the machine.

mod tunable;

#[cfg(test)]
mod generated_changes;
#[cfg(test)]
mod tests;

use egret_config::{Node, Problem, YamlValue};

pub use tunable::PathStep;

/// Sections that never change over the API, which could otherwise change its own rules, or run programs.
const OWN_SECTIONS: [&str; 3] = ["control", "data_dir", "secrets"];

/// Number of problems after which the comparison stops.
const PROBLEMS_MAX: usize = 20;

/// Advice in every refusal.
const ADVICE: &str =
    "change it in the file itself, or allow such changes there with `control.config_changes: all`";

/// Returns a problem for each change that `control.config_changes: tune` refuses. Call it before the new text
/// is read into a config, and again afterwards, when paths are known by their type.
pub fn tune(approved: Node<'_>, new: Node<'_>) -> Vec<Problem> {
    let mut comparison = Comparison { path: Vec::new(), problems: Vec::new() };
    comparison.compare(approved, new);
    comparison.problems
}

/// Returns a problem for each change that is refused even with `control.config_changes: all`.
pub fn all(approved: Node<'_>, new: Node<'_>) -> Vec<Problem> {
    let changed = OWN_SECTIONS.into_iter().filter(|section| is_changed(section, approved, new));
    let message = "this section cannot be changed over the API: change it in the file itself";
    changed.map(|section| Problem::new(section, message)).collect()
}

fn is_changed(key: &str, before: Node<'_>, now: Node<'_>) -> bool {
    match (before.get(key), now.get(key)) {
        (Some(before), Some(now)) => !before.is_same(now),
        (before, now) => before.is_some() != now.is_some(),
    }
}

/// A walk through two configs at once.
struct Comparison<'a> {
    /// The way to the nodes in hand, from the root. Both configs have it.
    path: Vec<PathStep<'a>>,
    problems: Vec<Problem>,
}

impl<'a> Comparison<'a> {
    fn compare(&mut self, approved: Node<'a>, new: Node<'a>) {
        if self.problems.len() >= PROBLEMS_MAX {
            return;
        }
        match (approved.value(), new.value()) {
            (YamlValue::Mapping(_), YamlValue::Mapping(_)) => self.compare_mappings(approved, new),
            (YamlValue::Sequence(before), YamlValue::Sequence(now)) if before.len() == now.len() => {
                for (number, (before, now)) in approved.elements().zip(new.elements()).enumerate() {
                    self.enter(PathStep::Element(number, before), before, now);
                }
            }
            (YamlValue::Mapping(_) | YamlValue::Sequence(_), _)
            | (_, YamlValue::Mapping(_) | YamlValue::Sequence(_)) => {
                self.refuse("only values can be changed, so nothing can be added here, removed or replaced");
            }
            _ => self.compare_scalars(approved, new),
        }
    }

    fn enter(&mut self, step: PathStep<'a>, approved: Node<'a>, new: Node<'a>) {
        self.path.push(step);
        self.compare(approved, new);
        self.path.pop();
    }

    /// Compares two mappings, whose keys must be in the same order: some of them are applied in turn.
    fn compare_mappings(&mut self, approved: Node<'a>, new: Node<'a>) {
        let (mut before, mut now) = (approved.entries(), new.entries());
        loop {
            match (before.next(), now.next()) {
                (None, None) => return,
                (Some((name, before)), Some((other, now))) if name == other => {
                    self.enter(PathStep::Key(name), before, now);
                }
                (_, Some((name, _))) => {
                    self.path.push(PathStep::Key(name));
                    self.refuse("only values can be changed, so keys stay as they are, in the same order");
                    self.path.pop();
                    return;
                }
                (Some((name, _)), None) => {
                    return self.refuse(&format!("only values can be changed, and `{name}` is missing here"));
                }
            }
        }
    }

    fn compare_scalars(&mut self, approved: Node<'_>, new: Node<'_>) {
        if approved.is_same(new) {
            return;
        }
        match tunable::plain_value(&self.path) {
            // A key of this table whose type is a path would be a mistake in the table.
            Some(_) if new.is_path() => self.refuse("this value is a path"),
            Some(plain) if plain.takes(new.value()) => {}
            Some(plain) => self.refuse(&format!("this value must be {plain}")),
            None => self.refuse("this value stays as it is"),
        }
    }

    fn refuse(&mut self, reason: &str) {
        let path = tunable::text(&self.path);
        self.problems.push(Problem::new(path, format!("refused over the API: {reason}; {ADVICE}")));
    }
}
