//! The environment that `egret exec` was started with.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;

/// The variable that marks the environment of a command: `CONTROL_ADDRESS NAME NAME +NAME`. The names are the
/// variables that `egret exec` has set; those with `+` had a value before, which is part of the new one. An
/// isolated command cannot reach the control port, so the word `isolated` is in its place.
pub const MARK: &str = "EGRET_EXEC";

/// Stands for the address of the control port in the mark of an isolated command.
pub const ISOLATED: &str = "isolated";

/// Maximum number of names in the mark.
const NAMES_MAX: usize = 256;

/// The variables, and the outer `egret exec` if there is one.
#[derive(Debug, Clone, Default)]
pub struct Inherited {
    variables: BTreeMap<OsString, OsString>,
    outer: Option<Outer>,
}

/// An `egret exec` that this one runs inside of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outer {
    /// `None` if it cannot be reached, because the command is isolated.
    control: Option<SocketAddr>,
    /// The variables that it has set.
    set: BTreeSet<String>,
    /// The variables that it has extended.
    extended: BTreeSet<String>,
}

impl Outer {
    fn parse(mark: &str) -> Option<Self> {
        let mut words = mark.split_ascii_whitespace();
        let first = words.next()?;
        let control = if first == ISOLATED { None } else { Some(first.parse().ok()?) };
        let mut outer = Self { control, set: BTreeSet::new(), extended: BTreeSet::new() };
        for word in words.take(NAMES_MAX) {
            match word.strip_prefix('+') {
                Some(name) => outer.extended.insert(name.to_owned()),
                None => outer.set.insert(word.to_owned()),
            };
        }
        Some(outer)
    }
}

impl Inherited {
    /// Reads the environment of this process.
    pub fn read() -> Self {
        Self::of(std::env::vars_os())
    }

    /// Returns the environment with these variables.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let variables: BTreeMap<_, _> = variables.into_iter().collect();
        let mark = variables.get(OsStr::new(MARK)).and_then(|mark| mark.to_str());
        let outer = mark.and_then(Outer::parse);
        Self { variables, outer }
    }

    /// The control port of the gateway of the outer `egret exec`.
    pub fn outer(&self) -> Option<SocketAddr> {
        self.outer.as_ref()?.control
    }

    /// Returns `true` if the outer `egret exec` has isolated its command.
    pub fn is_isolated(&self) -> bool {
        self.outer.as_ref().is_some_and(|outer| outer.control.is_none())
    }

    /// Returns the value of a variable. An empty value counts as none, as it does for most programs.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// Returns the value of a variable that the user has set, and not the outer `egret exec`.
    pub fn own(&self, name: &str) -> Option<&OsStr> {
        let is_set = |outer: &Outer| outer.set.contains(name) || outer.extended.contains(name);
        self.get(name).filter(|_| !self.outer.as_ref().is_some_and(is_set))
    }

    /// Returns the value of a variable if it has a part that the user has set.
    pub fn partly_own(&self, name: &str) -> Option<&OsStr> {
        self.get(name).filter(|_| !self.outer.as_ref().is_some_and(|outer| outer.set.contains(name)))
    }

    /// The variables that the outer `egret exec` has added: without them, the environment is the user's.
    pub fn set_by_outer(&self) -> impl Iterator<Item = &str> {
        let added = self.outer.iter().flat_map(|outer| outer.set.iter().map(String::as_str));
        added.chain(self.outer.as_ref().map(|_| MARK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited(variables: &[(&str, &str)]) -> Inherited {
        Inherited::of(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn an_empty_variable_is_none() {
        let inherited = inherited(&[("A", ""), ("B", "b")]);
        assert_eq!((inherited.get("A"), inherited.own("B")), (None, Some(OsStr::new("b"))));
        assert_eq!((inherited.outer(), inherited.set_by_outer().count()), (None, 0));
    }

    #[test]
    fn variables_of_an_outer_exec_are_not_the_users() {
        let inherited = inherited(&[("EGRET_EXEC", "127.0.0.1:81 A +B"), ("A", "a"), ("B", "b"), ("C", "c")]);
        assert_eq!(inherited.outer(), Some(SocketAddr::from(([127, 0, 0, 1], 81))));
        assert_eq!(["A", "B", "C"].map(|name| inherited.own(name).is_some()), [false, false, true]);
        assert_eq!(["A", "B", "C"].map(|name| inherited.partly_own(name).is_some()), [false, true, true]);
        assert_eq!(["A", "B", "C"].map(|name| inherited.get(name).is_some()), [true; 3]);
        assert_eq!(inherited.set_by_outer().collect::<Vec<_>>(), ["A", "EGRET_EXEC"]);
    }

    #[test]
    fn an_isolated_command_has_no_control_port() {
        let inherited = inherited(&[("EGRET_EXEC", "isolated A"), ("A", "a")]);
        assert_eq!((inherited.outer(), inherited.is_isolated()), (None, true));
        assert!(inherited.own("A").is_none());
    }

    #[test]
    fn a_mark_that_is_none_is_ignored() {
        for mark in ["", "x", "localhost:80 A"] {
            let inherited = inherited(&[("EGRET_EXEC", mark), ("A", "a")]);
            assert!(inherited.outer().is_none() && !inherited.is_isolated(), "{mark}");
            assert!(inherited.own("A").is_some(), "{mark}");
        }
    }
}
