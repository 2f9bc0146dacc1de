//! Loads a config text into its struct, or reports every problem in it.

use std::fmt::Write;

use serde::de::DeserializeOwned;

use crate::node::Node;
use crate::problem::{Problem, suggest};
use crate::read::{ReadError, ReadErrorKind};
use crate::report::{Finding, Report, Spot};
use crate::text_file::Directory;
use crate::tree::{self, Position, YamlNode, YamlValue};

/// Maximum length of a config text, in bytes.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Number of problems after which reading stops.
const PROBLEMS_MAX: usize = 20;

/// Parses `text` as `T`, then runs `validate` for checks that types cannot express.
///
/// `name` is the name of the text in the report, usually the file's path. Unknown, duplicate and missing keys
/// and wrong values are collected first. What remains of the config is passed to `validate`, whose problems
/// are then located in the text. Those that may only follow from what was left out are not reported. Files
/// that the config names are relative to the directory of `name`.
pub fn load<T: DeserializeOwned>(
    name: &str,
    text: &str,
    validate: impl FnOnce(&T) -> Vec<Problem>,
) -> Result<T, Report> {
    load_with_hints(name, text, &[], validate)
}

/// A word of another product's config that people bring along, and what to write instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// The key, or the value where one of several words is expected.
    pub word: &'static str,
    /// The end of a sentence that begins with the word: ``is Lunar's: use `cache` ``.
    pub advice: &'static str,
}

/// Parses `text` as [`load`] does. An unknown key or word that a hint is about gets the hint's advice.
pub fn load_with_hints<T: DeserializeOwned>(
    name: &str,
    text: &str,
    hints: &[Hint],
    validate: impl FnOnce(&T) -> Vec<Problem>,
) -> Result<T, Report> {
    let mut document = Document { hints, ..Document::parse(name, text)? };
    let _directory = Directory::enter(name);
    let (config, mut findings) = document.read_rest::<T>();
    let problems = config.as_ref().map(validate).unwrap_or_default();
    let is_certain = |problem: &Problem| findings.is_empty() || document.is_certain(problem);
    let problems: Vec<Problem> = problems.into_iter().filter(is_certain).collect();
    findings.extend(document.findings(problems));
    findings.sort_by_key(Finding::position);
    match config {
        Some(config) if findings.is_empty() => Ok(config),
        _ => Err(Report::new(name, findings)),
    }
}

fn parse(name: &str, text: &str) -> Result<YamlNode, Report> {
    tree::parse(text).map_err(|error| {
        let spot = Spot { at: error.at, width: 1, hide_value: false };
        Report::new(name, vec![Finding::new(Problem::new("", error.to_string()), spot, text)])
    })
}

/// A parsed config text whose values have not been read into a struct yet, so nothing that it refers to has
/// been read either.
pub struct Document<'a> {
    name: &'a str,
    text: &'a str,
    hints: &'a [Hint],
    root: YamlNode,
}

impl<'a> Document<'a> {
    /// Parses the YAML of `text`; `name` is its name in reports.
    ///
    /// # Errors
    ///
    /// Fails if the text is too long or not a single YAML document.
    pub fn parse(name: &'a str, text: &'a str) -> Result<Self, Report> {
        if text.len() > CONFIG_BYTES_MAX {
            let message = format!("the config is longer than {CONFIG_BYTES_MAX} bytes");
            return Err(Report::whole(name, message));
        }
        // Some editors start the file with a byte order mark, which would shift the columns.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Ok(Self { name, text, hints: &[], root: parse(name, text)? })
    }

    /// Returns the whole config, with aliases and merge keys resolved.
    pub fn root(&self) -> Node<'_> {
        Node::new(&self.root)
    }

    /// Deserializes in passes. Each pass finds one problem and skips its entry, so the next pass finds the
    /// next problem. Secrets that the text refers to are read.
    ///
    /// # Errors
    ///
    /// Fails with every unknown, duplicate and missing key, and every wrong value.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<T, Report> {
        match self.read_rest() {
            (Some(config), findings) if findings.is_empty() => Ok(config),
            (_, findings) => Err(Report::new(self.name, findings)),
        }
    }

    /// Does the same. Returns what remains at the end, if anything does, and the problems.
    fn read_rest<T: DeserializeOwned>(&mut self) -> (Option<T>, Vec<Finding>) {
        let mut findings = Vec::new();
        loop {
            let error = match T::deserialize(&self.root) {
                Ok(config) => return (Some(config), findings),
                Err(error) => error,
            };
            let is_unreported = self.is_unreported(&error);
            if !is_unreported {
                findings.push(self.finding(&error));
            }
            let is_skipped = self.skip_entry(&error);
            if !is_skipped || findings.len() == PROBLEMS_MAX {
                return (None, findings);
            }
        }
    }

    /// Returns `true` if a problem of what remains is one of the whole config too: nothing that was skipped
    /// lies on its path, and its message names nothing that was skipped.
    fn is_certain(&self, problem: &Problem) -> bool {
        let mut skipped = Vec::new();
        self.root.skipped_keys(&mut skipped);
        let is_named = |key: &&str| problem.message.contains(&format!("`{key}`"));
        !skipped.iter().any(is_named) && self.is_whole(&problem.path)
    }

    /// Returns `true` if nothing was skipped in the entry of a section that the path leads into.
    fn is_whole(&self, path: &str) -> bool {
        let end = path.find(['.', '[']).unwrap_or(path.len());
        let YamlValue::Mapping(root) = &self.root.value else { return false };
        let Some(section) = root.entries.iter().find(|entry| entry.key == path[..end]) else { return true };
        match &section.node.value {
            YamlValue::Mapping(mapping) => {
                let rest = path[end..].strip_prefix('.').unwrap_or_default();
                let entry = mapping.entries.iter().find(|entry| starts_with_key(rest, &entry.key));
                entry.is_some_and(|entry| !entry.node.has_skipped())
            }
            // The numbers of elements count from what remains.
            YamlValue::Sequence(nodes) => {
                let is_shifted = nodes.iter().any(|node| node.skipped);
                let number = path[end..]
                    .strip_prefix('[')
                    .and_then(|rest| rest.split(']').next()?.parse::<usize>().ok());
                !is_shifted
                    && number.and_then(|number| nodes.get(number)).is_some_and(|node| !node.has_skipped())
            }
            _ => !section.node.skipped,
        }
    }

    /// Returns `true` if a key is missing only because its entry was skipped or misspelt.
    fn is_unreported(&self, error: &ReadError) -> bool {
        let ReadErrorKind::MissingKey(key) = error.kind else { return false };
        let mut node = &self.root;
        for step in error.steps.iter().rev() {
            match node.child(*step) {
                Some(child) => node = child,
                None => return false,
            }
        }
        matches!(&node.value, YamlValue::Mapping(mapping) if mapping.unreported.iter().any(|unreported| unreported == key))
    }

    fn finding(&self, error: &ReadError) -> Finding {
        let mut path = String::new();
        let mut node = &self.root;
        let mut spot = Spot::of(node, self.text);
        for (left, step) in (0..error.steps.len()).rev().zip(error.steps.iter().rev()) {
            match &node.value {
                YamlValue::Mapping(mapping) => {
                    let Some(entry) = mapping.entries.get(*step) else { break };
                    push_key(&mut path, &entry.key);
                    spot = if left == 0 && error.at_key {
                        Spot { hide_value: true, ..Spot::of_key(entry, self.text) }
                    } else {
                        Spot::of_entry(entry, self.text)
                    };
                    node = &entry.node;
                }
                YamlValue::Sequence(nodes) => {
                    let _ = write!(path, "[{step}]");
                    let Some(child) = nodes.get(*step) else { break };
                    node = child;
                    spot = Spot::of(node, self.text);
                }
                _ => break,
            }
        }
        spot.hide_value |= error.secret;
        Finding::new(self.problem(path, error), spot, self.text)
    }

    fn problem(&self, path: String, error: &ReadError) -> Problem {
        let problem = Problem::new(path, error.to_string());
        let hint = |word: &str| self.hints.iter().find(|hint| hint.word == word);
        match &error.kind {
            ReadErrorKind::UnknownKey { key: word, expected }
            | ReadErrorKind::UnknownWord { word, expected } => {
                let suggested = problem.suggest(word, expected.iter().copied());
                match hint(word) {
                    // A slip of the pen is likelier than another product's word only if no hint is about it.
                    Some(hint) => Problem::new(suggested.path, format!("`{word}` {}", hint.advice)),
                    None => suggested,
                }
            }
            ReadErrorKind::WrongType { meant, .. } if !error.secret => {
                Problem { suggestion: meant.clone(), ..problem }
            }
            ReadErrorKind::WrongType { .. } | ReadErrorKind::MissingKey(_) | ReadErrorKind::Other(_) => {
                problem
            }
        }
    }

    /// Skips the entry that the error is about in the next passes. Returns `false` if that is the whole
    /// document.
    fn skip_entry(&mut self, error: &ReadError) -> bool {
        let Some((last, parents)) = error.steps.split_first() else { return false };
        let mut node = &mut self.root;
        for step in parents.iter().rev() {
            match node.child_mut(*step) {
                Some(child) => node = child,
                None => return false,
            }
        }
        if let YamlValue::Mapping(mapping) = &mut node.value {
            mapping.unreported.extend(mapping.entries.get(*last).map(|entry| entry.key.clone()));
            if let ReadErrorKind::UnknownKey { key, expected } = &error.kind
                && let Some(meant) = suggest(key, expected.iter().copied())
            {
                mapping.unreported.push(meant.to_owned());
            }
        }
        match node.child_mut(*last) {
            Some(child) => !std::mem::replace(&mut child.skipped, true),
            None => false,
        }
    }

    /// Locates each problem at the value that its path leads to, or at the nearest parent that the text has.
    pub fn locate(&self, problems: Vec<Problem>) -> Report {
        let mut findings = self.findings(problems);
        findings.sort_by_key(Finding::position);
        Report::new(self.name, findings)
    }

    fn findings(&self, problems: Vec<Problem>) -> Vec<Finding> {
        let located = problems.into_iter().map(|problem| {
            let spot = self.spot(&problem.path);
            let spot = problem.within.and_then(|within| spot.within(within, self.text)).unwrap_or(spot);
            Finding::new(problem, spot, self.text)
        });
        located.collect()
    }

    fn spot(&self, path: &str) -> Spot {
        let mut node = &self.root;
        let mut spot = Spot::of(node, self.text);
        let mut rest = path;
        loop {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            match &node.value {
                YamlValue::Mapping(mapping) => {
                    // Names may hold dots: the longest matching key wins.
                    let entry = mapping
                        .entries
                        .iter()
                        .filter(|entry| starts_with_key(rest, &entry.key))
                        .max_by_key(|entry| entry.key.len());
                    let Some(entry) = entry else { return spot };
                    rest = &rest[entry.key.len()..];
                    spot = Spot::of_entry(entry, self.text);
                    node = &entry.node;
                }
                YamlValue::Sequence(nodes) => {
                    let Some((index, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'))
                    else {
                        return spot;
                    };
                    let Some(child) = index.parse().ok().and_then(|index: usize| nodes.get(index)) else {
                        return spot;
                    };
                    rest = after;
                    spot = Spot::of(child, self.text);
                    node = child;
                }
                _ => return spot,
            }
        }
    }
}

/// Returns `true` if `path` starts with the whole of `key`.
fn starts_with_key(path: &str, key: &str) -> bool {
    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

impl YamlNode {
    /// Returns `true` if this node or one within it was skipped.
    fn has_skipped(&self) -> bool {
        self.skipped
            || match &self.value {
                YamlValue::Mapping(mapping) => mapping.entries.iter().any(|entry| entry.node.has_skipped()),
                YamlValue::Sequence(nodes) => nodes.iter().any(Self::has_skipped),
                _ => false,
            }
    }

    /// Collects the keys under which something was skipped.
    fn skipped_keys<'a>(&'a self, keys: &mut Vec<&'a str>) {
        match &self.value {
            YamlValue::Mapping(mapping) => {
                for entry in mapping.entries.iter().filter(|entry| entry.node.has_skipped()) {
                    keys.push(&entry.key);
                    entry.node.skipped_keys(keys);
                }
            }
            YamlValue::Sequence(nodes) => nodes.iter().for_each(|node| node.skipped_keys(keys)),
            _ => {}
        }
    }

    fn child(&self, step: usize) -> Option<&YamlNode> {
        match &self.value {
            YamlValue::Mapping(mapping) => mapping.entries.get(step).map(|entry| &entry.node),
            YamlValue::Sequence(nodes) => nodes.get(step),
            _ => None,
        }
    }

    fn child_mut(&mut self, step: usize) -> Option<&mut YamlNode> {
        match &mut self.value {
            YamlValue::Mapping(mapping) => mapping.entries.get_mut(step).map(|entry| &mut entry.node),
            YamlValue::Sequence(nodes) => nodes.get_mut(step),
            _ => None,
        }
    }
}

impl Spot {
    fn of(node: &YamlNode, text: &str) -> Self {
        Self { at: node.at, width: width(node, text), hide_value: false }
    }

    /// The position `within` a text of several lines (`|`) whose content begins here. `None` for a text in
    /// another form, whose lines are not those of the file.
    fn within(&self, within: Position, text: &str) -> Option<Self> {
        let before = text.lines().take(self.at.line.saturating_sub(1)).enumerate();
        let (number, header) = before.filter(|(_, line)| !line.trim().is_empty()).last()?;
        let header = header.split(" #").next().unwrap_or_default().trim_end();
        if !["|", "|-", "|+"].iter().any(|style| header.ends_with(style)) {
            return None;
        }
        let first = text.lines().skip(number + 1).find(|line| !line.trim().is_empty())?;
        let indentation = first.len() - first.trim_start_matches(' ').len();
        let at = Position { line: number + 1 + within.line, column: indentation + within.column };
        Some(Self { at, width: 1, hide_value: self.hide_value })
    }

    fn of_key(entry: &tree::Entry, text: &str) -> Self {
        let at = entry.key_at;
        let width = quoted_width(at, text).unwrap_or_else(|| entry.key.chars().count());
        Self { at, width, hide_value: false }
    }

    /// The position of a scalar value, or of the key of a list or mapping, whose own start says little.
    fn of_entry(entry: &tree::Entry, text: &str) -> Self {
        match entry.node.value {
            YamlValue::Mapping(_) | YamlValue::Sequence(_) | YamlValue::Null => Self::of_key(entry, text),
            _ => Self::of(&entry.node, text),
        }
    }
}

/// Width of a scalar in characters, as far as its line and plain looks show it; 1 for a list or mapping.
fn width(node: &YamlNode, text: &str) -> usize {
    if matches!(node.value, YamlValue::Sequence(_) | YamlValue::Mapping(_)) {
        return 1;
    }
    quoted_width(node.at, text).unwrap_or_else(|| {
        let rest = from(node.at, text);
        rest.take_while(|c| !c.is_whitespace() && !matches!(c, ',' | '}' | ']')).count().max(1)
    })
}

/// Width of the quoted text that starts here, quotes included; `None` if there is no quote.
fn quoted_width(at: Position, text: &str) -> Option<usize> {
    let mut rest = from(at, text);
    let quote = rest.next().filter(|c| matches!(c, '"' | '\''))?;
    Some(rest.position(|c| c == quote).map_or(1, |end| end + 2))
}

/// The characters of the line from this position on.
fn from(at: Position, text: &str) -> impl Iterator<Item = char> {
    let line = text.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
    line.chars().skip(at.column.saturating_sub(1))
}
