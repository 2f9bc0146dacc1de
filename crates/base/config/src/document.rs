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
/// and wrong values are collected first. Only a config without them is passed to `validate`, whose problems
/// are then located in the text. Files that the config names are relative to the directory of `name`.
pub fn load<T: DeserializeOwned>(
    name: &str,
    text: &str,
    validate: impl FnOnce(&T) -> Vec<Problem>,
) -> Result<T, Report> {
    let mut document = Document::parse(name, text)?;
    let _directory = Directory::enter(name);
    let config: T = document.read()?;
    let problems = validate(&config);
    if problems.is_empty() { Ok(config) } else { Err(document.locate(problems)) }
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
        Ok(Self { name, text, root: parse(name, text)? })
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
        let mut findings = Vec::new();
        loop {
            let error = match T::deserialize(&self.root) {
                Ok(config) if findings.is_empty() => return Ok(config),
                Ok(_) => break,
                Err(error) => error,
            };
            let is_unreported = self.is_unreported(&error);
            if !is_unreported {
                findings.push(self.finding(&error));
            }
            let is_skipped = self.skip_entry(&error);
            if !is_skipped || findings.len() == PROBLEMS_MAX {
                break;
            }
        }
        findings.sort_by_key(Finding::position);
        Err(Report::new(self.name, findings))
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
        let problem = Problem::new(path, error.to_string());
        let problem = match &error.kind {
            ReadErrorKind::UnknownKey { key, expected } => problem.suggest(key, expected.iter().copied()),
            ReadErrorKind::UnknownWord { word, expected } => problem.suggest(word, expected.iter().copied()),
            ReadErrorKind::MissingKey(_) | ReadErrorKind::Other(_) => problem,
        };
        Finding::new(problem, spot, self.text)
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
        let mut findings: Vec<Finding> = problems
            .into_iter()
            .map(|problem| {
                let spot = self.spot(&problem.path);
                let spot = problem.within.and_then(|within| spot.within(within, self.text)).unwrap_or(spot);
                Finding::new(problem, spot, self.text)
            })
            .collect();
        findings.sort_by_key(Finding::position);
        Report::new(self.name, findings)
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
