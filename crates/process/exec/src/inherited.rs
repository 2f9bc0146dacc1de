//! The environment that `egret exec` was started with.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The variable that marks the environment of a command:
/// `CONTROL_ADDRESS /DATA_DIR NAME +NAME -Dproperty=value`. The data directory has the key by which the
/// gateway proves itself, wherever an inner command runs. The names are the variables that `egret exec` has
/// set; those with `+` had a value before, which is part of the new one. The properties are those that it has
/// added to [`JAVA`], with their values, [as words](word). An isolated command cannot reach the control port,
/// so the word `isolated` is in its place.
pub const MARK: &str = "EGRET_EXEC";

/// Options for every Java virtual machine, separated by white space.
pub const JAVA: &str = "JAVA_TOOL_OPTIONS";

/// Begins the option that sets a system property of Java.
pub const JAVA_PROPERTY: &str = "-D";

/// Stands for the address of the control port in the mark of an isolated command.
pub const ISOLATED: &str = "isolated";

/// Maximum number of names in the mark.
const NAMES_MAX: usize = 256;

/// The variables, and the outer `egret exec` if there is one.
#[derive(Debug, Clone, Default)]
pub struct Inherited {
    variables: BTreeMap<OsString, OsString>,
    outer: Option<Outer>,
    /// The variables that the command must not see.
    withheld: BTreeSet<String>,
}

/// An `egret exec` that this one runs inside of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Outer {
    /// `None` if it cannot be reached, because the command is isolated.
    control: Option<SocketAddr>,
    /// The data directory of its gateway.
    data_dir: Option<PathBuf>,
    /// The variables that it has set.
    set: BTreeSet<String>,
    /// The variables that it has extended.
    extended: BTreeSet<String>,
    /// The options with properties that it has added to those of Java.
    properties: BTreeSet<String>,
}

impl Outer {
    fn parse(mark: &str) -> Option<Self> {
        let mut words = mark.split_ascii_whitespace();
        let first = words.next()?;
        let control = if first == ISOLATED { None } else { Some(first.parse().ok()?) };
        let mut outer = Self { control, ..Self::default() };
        for word in words.take(NAMES_MAX) {
            if word.starts_with('/') {
                outer.data_dir = Some(word.into());
            } else if word.starts_with(JAVA_PROPERTY) {
                outer.properties.insert(of_word(word));
            } else if let Some(name) = word.strip_prefix('+') {
                outer.extended.insert(name.to_owned());
            } else {
                outer.set.insert(word.to_owned());
            }
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
        let mut variables: BTreeMap<_, _> = variables.into_iter().collect();
        let mark = variables.get(OsStr::new(MARK)).and_then(|mark| mark.to_str());
        let outer = mark.and_then(Outer::parse);
        if let Some(outer) = &outer
            && let Some(options) = variables.get_mut(OsStr::new(JAVA))
            && let Some(text) = options.to_str()
        {
            *options = without_properties(text, &outer.properties).into();
        }
        Self { variables, outer, withheld: BTreeSet::new() }
    }

    /// Returns the environment without these variables, which hold secrets of Egret.
    #[must_use]
    pub fn withhold(mut self, names: BTreeSet<String>) -> Self {
        self.variables.retain(|name, _| !name.to_str().is_some_and(|name| names.contains(name)));
        self.withheld = names;
        self
    }

    /// The variables that the command must not see.
    pub fn withheld(&self) -> impl Iterator<Item = &str> {
        self.withheld.iter().map(String::as_str)
    }

    /// The control port of the gateway of the outer `egret exec`, and its data directory if it is known.
    pub fn outer(&self) -> Option<(SocketAddr, Option<&Path>)> {
        let outer = self.outer.as_ref()?;
        Some((outer.control?, outer.data_dir.as_deref()))
    }

    /// Returns `true` if the outer `egret exec` has isolated its command.
    pub fn is_isolated(&self) -> bool {
        self.outer.as_ref().is_some_and(|outer| outer.control.is_none())
    }

    /// The options of Java that are the user's, without the properties that the outer `egret exec` has added.
    pub fn java_options(&self) -> Option<&OsStr> {
        let is_known = self.outer.as_ref().is_none_or(|outer| !outer.properties.is_empty());
        if is_known { self.get(JAVA) } else { self.partly_own(JAVA) }
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

/// Returns the options without those that were added. One with another value is the user's, wherever it
/// stands.
fn without_properties(options: &str, added: &BTreeSet<String>) -> String {
    let kept: Vec<_> = split_options(options).into_iter().filter(|option| !added.contains(*option)).collect();
    kept.join(" ")
}

/// Returns an option as one word of the mark.
pub fn word(option: &str) -> String {
    let encode = |character: char| match character {
        '%' => "%25".to_owned(),
        // Paths have no other white space, or the option is taken for one of the user's.
        ' ' => "%20".to_owned(),
        character => character.to_string(),
    };
    option.chars().map(encode).collect()
}

/// Returns the option that a word of the mark stands for.
fn of_word(word: &str) -> String {
    word.replace("%20", " ").replace("%25", "%")
}

/// Splits options where Java does: at white space, but not between quotes of either kind.
fn split_options(options: &str) -> Vec<&str> {
    let mut quote = None;
    let is_between = |character: char| {
        match quote {
            Some(open) if open == character => quote = None,
            None if matches!(character, '"' | '\'') => quote = Some(character),
            _ => {}
        }
        quote.is_none() && character.is_whitespace()
    };
    options.split(is_between).filter(|option| !option.is_empty()).collect()
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
        let control = SocketAddr::from(([127, 0, 0, 1], 81));
        assert_eq!(inherited.outer(), Some((control, None)));
        assert_eq!(["A", "B", "C"].map(|name| inherited.own(name).is_some()), [false, false, true]);
        assert_eq!(["A", "B", "C"].map(|name| inherited.partly_own(name).is_some()), [false, true, true]);
        assert_eq!(["A", "B", "C"].map(|name| inherited.get(name).is_some()), [true; 3]);
        assert_eq!(inherited.set_by_outer().collect::<Vec<_>>(), ["A", "EGRET_EXEC"]);
    }

    #[test]
    fn java_options_of_an_outer_exec_are_not_the_users() {
        let options = |mark: &str, value: &str| {
            let inherited = inherited(&[("EGRET_EXEC", mark), ("JAVA_TOOL_OPTIONS", value)]);
            inherited.java_options().map(|options| options.to_string_lossy().into_owned())
        };
        let added = ["-Dhttp.proxyPort=1", "-Dtrust=\"/a b%20c.jks\""];
        let (words, added) = (added.map(word).join(" "), &*added.join(" "));
        let mark = format!("127.0.0.1:81 +JAVA_TOOL_OPTIONS {words}");
        let own = "-Xmx1g -Dhttp.proxyHost='my  host'";
        assert_eq!(options(&mark, &format!("{own} {added}")).as_deref(), Some(own));
        let later = "-Dhttp.proxyPort=2";
        for value in [format!("{own} {added} {later}"), format!("{own} {later} {added}")] {
            assert_eq!(options(&mark, &value).unwrap(), format!("{own} {later}"), "{value}");
        }
        let mark = format!("127.0.0.1:81 JAVA_TOOL_OPTIONS {words}");
        assert_eq!(options(&mark, added), None);
        assert_eq!(options(&mark, &format!("{added} -Xmx1g")).as_deref(), Some("-Xmx1g"));
        assert_eq!(options(&mark, later).as_deref(), Some(later), "the user has replaced all of them");
        // All properties were the user's, or the mark is a copy.
        assert_eq!(options("127.0.0.1:81 +JAVA_TOOL_OPTIONS", added).as_deref(), Some(added));
        assert_eq!(options("127.0.0.1:81", added).as_deref(), Some(added));
    }

    #[test]
    fn secrets_of_egret_are_not_in_the_environment() {
        let names = BTreeSet::from(["A".to_owned(), "HTTPS_PROXY".to_owned()]);
        let inherited = inherited(&[("A", "a"), ("B", "b"), ("HTTPS_PROXY", "x")]).withhold(names);
        assert_eq!((inherited.get("A"), inherited.own("HTTPS_PROXY")), (None, None));
        assert_eq!(inherited.get("B"), Some(OsStr::new("b")));
        assert_eq!(inherited.withheld().collect::<Vec<_>>(), ["A", "HTTPS_PROXY"]);
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
