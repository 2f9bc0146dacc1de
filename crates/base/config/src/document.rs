//! Loads a config text into its struct, or reports every problem in it.

use std::fmt::Write;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

use crate::join::{Clash, join};
use crate::node::Node;
use crate::problem::{Problem, limit_comparisons, suggest};
use crate::read::{ReadError, ReadErrorKind};
use crate::report::{Finding, Place, ReadingStep, Report, Spot};
use crate::secret::{FetchedBefore, FetchedSecrets};
use crate::slips;
use crate::source::{ConfigText, SourceSet, directory_of};
use crate::text_file::Directory;
use crate::tree::{self, Position, YamlNode, YamlValue};
use crate::variables::Replacing;

/// Maximum length of a config, in bytes: the file and all that it includes.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Number of expected words that a message with a suggestion shows.
const WORDS_MAX: usize = 8;

/// Depth below the root of a mapping whose keys depend on each other: an entry of a section.
const ENTRY_DEPTH: usize = 2;

/// Number of problems after which reading stops, and of problems and warnings that are shown of a text that
/// was read. Each costs a look at the text.
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
    Document::parse(name, text)?.load(validate, |_| Vec::new()).map(|loaded| loaded.config)
}

/// A word of another product's config that people bring along, and what to write instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// The key, or the value where one of several words is expected.
    pub word: &'static str,
    /// The end of a sentence that begins with the word: ``is Lunar's: use `cache` ``.
    pub advice: &'static str,
}

/// A valid config, and what is probably wrong with it nevertheless.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    /// The config.
    pub config: T,
    /// The warnings, in the order of the text.
    pub warnings: Report,
}

fn parse(number: u16, source: &ConfigText<'_>) -> Result<YamlNode, Report> {
    let parsed = tree::parse(source.text).map_err(|error| {
        let spot = Spot { source: number, at: error.at, width: 1, hide_value: false };
        let problem = Problem::new("", error.to_string());
        Report::new(source.name, vec![Finding::new(problem, ReadingStep::Syntax, spot, source)])
    });
    parsed.map(|mut root| {
        root.set_source(number);
        root
    })
}

/// A parsed config whose values have not been read into a struct yet, so nothing that it refers to has been
/// read either.
pub struct Document<'a> {
    /// The config file, and those that it includes.
    sources: Vec<ConfigText<'a>>,
    /// The directory that files are relative to.
    directory: PathBuf,
    hints: &'a [Hint],
    replacing: Replacing,
    fetched: Option<FetchedSecrets>,
    root: YamlNode,
}

impl<'a> Document<'a> {
    /// Parses the YAML of `text`; `name` is its name in reports. Files that the config names are relative to
    /// the directory of `name`.
    ///
    /// # Errors
    ///
    /// Fails if the text is too long or not a single YAML document.
    pub fn parse(name: &'a str, text: &'a str) -> Result<Self, Report> {
        if text.len() > CONFIG_BYTES_MAX {
            let message = format!("the config is longer than {CONFIG_BYTES_MAX} bytes");
            return Err(Report::whole(name, message));
        }
        limit_comparisons();
        let source = ConfigText::new(name, text);
        let root = parse(0, &source)?;
        let directory = directory_of(name);
        let sources = vec![source];
        Ok(Self { sources, directory, hints: &[], replacing: Replacing::Off, fetched: None, root })
    }

    /// Parses a config and the files that it includes. At the top of each, mappings are joined by their keys
    /// and lists are appended.
    ///
    /// # Errors
    ///
    /// Fails if a text is not a single YAML document, if all together are too long, and if two texts give the
    /// same name.
    pub fn parse_set(set: &'a SourceSet) -> Result<Self, Report> {
        let mut document = Self::parse(&set.main.name, &set.main.text)?;
        if set.bytes() > CONFIG_BYTES_MAX {
            let message =
                format!("the config and the files that it includes are longer than {CONFIG_BYTES_MAX} bytes");
            return Err(Report::whole(&set.main.name, message));
        }
        let mut findings = Vec::new();
        for file in &set.included {
            let number = u16::try_from(document.sources.len()).unwrap_or(u16::MAX);
            let source = ConfigText::new(&file.name, &file.text);
            document.sources.push(source);
            match parse(number, &source) {
                Ok(root) => {
                    let clashes = join(&mut document.root, root);
                    findings.extend(clashes.into_iter().map(|clash| document.clash(clash)));
                }
                Err(report) => findings.extend(report.findings),
            }
        }
        if findings.is_empty() { Ok(document) } else { Err(Report::new(&set.main.name, findings)) }
    }

    /// An unknown key or word that a hint is about gets the hint's advice.
    #[must_use]
    pub fn with_hints(self, hints: &'a [Hint]) -> Self {
        Self { hints, ..self }
    }

    /// Reads the files that the config names relative to `directory`, instead of that of its own name.
    #[must_use]
    pub fn in_directory(self, directory: PathBuf) -> Self {
        Self { directory, ..self }
    }

    /// Replaces `${env:NAME}` in texts, once they are read.
    #[must_use]
    pub fn with_variables(self) -> Self {
        Self { replacing: Replacing::On, ..self }
    }

    /// Gives it secrets that were fetched, for references such as `${exec:NAME}`.
    #[must_use]
    pub fn with_fetched(self, secrets: FetchedSecrets) -> Self {
        Self { fetched: Some(secrets), ..self }
    }

    /// Reads the config, then runs `validate` for checks that types cannot express, and `warn` on a valid
    /// config.
    ///
    /// # Errors
    ///
    /// Fails with every unknown, duplicate and missing key, every wrong value, and the problems that
    /// `validate` finds in what remains, except those that may only follow from what was left out.
    pub fn load<T: DeserializeOwned>(
        mut self,
        validate: impl FnOnce(&T) -> Vec<Problem>,
        warn: impl FnOnce(&T) -> Vec<Problem>,
    ) -> Result<Loaded<T>, Report> {
        let (config, mut findings) = self.read_rest::<T>();
        let mut problems = config.as_ref().map(validate).unwrap_or_default();
        let more = cut(&mut problems);
        if !findings.is_empty() {
            self.retain_certain(&mut problems);
        }
        findings.extend(self.findings(problems));
        findings.sort_by_key(Finding::position);
        findings.extend(more.map(|more| Finding::unplaced(self.name(), more, ReadingStep::Rules)));
        match config {
            Some(config) if findings.is_empty() => {
                let warnings = self.locate(warn(&config)).into_warnings();
                Ok(Loaded { config, warnings })
            }
            _ => Err(Report::new(self.name(), findings)),
        }
    }

    /// The name of the config file.
    fn name(&self) -> &'a str {
        self.sources.first().map_or("", |source| source.name)
    }

    fn source(&self, number: u16) -> ConfigText<'a> {
        let none = ConfigText { name: "", text: "" };
        self.sources.get(usize::from(number)).copied().unwrap_or(none)
    }

    /// The text that a node is in.
    fn text_of(&self, node: &YamlNode) -> &'a str {
        self.source(node.source).text
    }

    fn clash(&self, clash: Clash) -> Finding {
        let Clash { path, message, second, first } = clash;
        let place = |(source, at)| Place { file: self.source(source).name.into(), at };
        let spot = Spot { source: second.0, at: second.1, width: 1, hide_value: true };
        let finding =
            Finding::new(Problem::new(path, message), ReadingStep::Syntax, spot, &self.source(second.0));
        finding.related_to(first.map(place))
    }

    /// Returns `true` if both have the same content, once the element `from` of the list at `path` was put
    /// behind the element `to`.
    pub(crate) fn equals_moved(mut self, path: &str, from: usize, to: usize, other: &Self) -> bool {
        let moved = self.root.at_path_mut(path).is_some_and(|node| match &mut node.value {
            YamlValue::Sequence(nodes) if from < to && to < nodes.len() => {
                let node = nodes.remove(from);
                nodes.insert(to, node);
                true
            }
            _ => false,
        });
        moved && self.root().is_same(other.root())
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
            (_, findings) => Err(Report::new(self.name(), findings)),
        }
    }

    /// Does the same. Returns what remains at the end, if anything does, and the problems.
    fn read_rest<T: DeserializeOwned>(&mut self) -> (Option<T>, Vec<Finding>) {
        let _directory = Directory::enter(self.directory.clone());
        let _replacing = self.replacing.enter();
        let _fetched = FetchedBefore::replace(self.fetched.clone());
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

    /// Keeps the problems of what remains that are some of the whole config too: nothing that was skipped
    /// lies on their path, and their message names nothing that was skipped.
    fn retain_certain(&self, problems: &mut Vec<Problem>) {
        let mut skipped = Vec::new();
        self.root.skipped_keys(&mut skipped);
        let names: Vec<String> = skipped.iter().map(|key| format!("`{key}`")).collect();
        let is_named = |problem: &Problem| names.iter().any(|name| problem.message.contains(name));
        problems.retain(|problem| !is_named(problem) && self.is_whole(&problem.path));
    }

    /// Returns `true` if nothing was skipped that the value at the path may depend on. Sections are
    /// independent of each other, and so are the entries of a section and the elements of a list; the keys
    /// of one entry are not.
    fn is_whole(&self, path: &str) -> bool {
        let (mut node, mut rest) = (&self.root, path);
        for depth in 0.. {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let child = match &node.value {
                YamlValue::Mapping(mapping) => mapping.entry_at(rest).map(|entry| {
                    let mut others = mapping.entries.iter().filter(|other| other.key != entry.key);
                    let is_whole = depth < ENTRY_DEPTH || others.all(|other| !other.node.has_skipped());
                    (&entry.node, &rest[entry.key.len()..], is_whole)
                }),
                // The numbers of elements count from what remains.
                YamlValue::Sequence(nodes) => element_at(nodes, rest)
                    .map(|(node, rest)| (node, rest, !nodes.iter().any(|node| node.skipped))),
                _ => None,
            };
            match child {
                Some((_, _, false)) => return false,
                Some((child, after, true)) => (node, rest) = (child, after),
                None => return depth == 0 || !node.has_skipped(),
            }
        }
        false
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
        let mut spot = Spot::of(node, self.text_of(node));
        for (left, step) in (0..error.steps.len()).rev().zip(error.steps.iter().rev()) {
            match &node.value {
                YamlValue::Mapping(mapping) => {
                    let Some(entry) = mapping.entries.get(*step) else { break };
                    push_key(&mut path, &entry.key);
                    spot = if left == 0 && error.at_key {
                        Spot { hide_value: true, ..Spot::of_key(entry, self.text_of(&entry.node)) }
                    } else {
                        Spot::of_entry(entry, self.text_of(&entry.node))
                    };
                    node = &entry.node;
                }
                YamlValue::Sequence(nodes) => {
                    let _ = write!(path, "[{step}]");
                    let Some(child) = nodes.get(*step) else { break };
                    node = child;
                    spot = Spot::of(node, self.text_of(node));
                }
                _ => break,
            }
        }
        let has_value = !error.at_key && !matches!(node.value, YamlValue::Null);
        if has_value && matches!(error.kind, ReadErrorKind::WrongType { .. }) {
            // The value, whose key is as it should be.
            spot = Spot { hide_value: spot.hide_value, ..Spot::of(node, self.text_of(node)) };
        }
        spot.hide_value |= error.secret;
        let source = self.source(spot.source);
        let problem = slips::with_quotes_noted(self.problem(path, error), from(spot.at, source.text).next());
        Finding::new(problem, ReadingStep::Reading, spot, &source)
    }

    fn problem(&self, path: String, error: &ReadError) -> Problem {
        let problem = Problem::new(path, error.to_string());
        let hint = |word: &str| self.hints.iter().find(|hint| hint.word == word);
        match &error.kind {
            ReadErrorKind::UnknownKey { key: word, expected }
            | ReadErrorKind::UnknownWord { word, expected } => {
                if let Some(message) = slips::glued(word, expected) {
                    return Problem { message, ..problem };
                }
                let suggested = problem.suggest(word, expected.iter().copied());
                match hint(word) {
                    // A slip of the pen is likelier than another product's word only if no hint is about it.
                    Some(hint) => Problem::new(suggested.path, format!("`{word}` {}", hint.advice)),
                    None if suggested.suggestion.is_some() && expected.len() > WORDS_MAX => {
                        Problem { message: error.without_expected(), ..suggested }
                    }
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
                && let Some(meant) =
                    slips::key_of(key, expected).or_else(|| suggest(key, expected.iter().copied()))
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
    pub fn locate(&self, mut problems: Vec<Problem>) -> Report {
        let more = cut(&mut problems);
        let mut findings = self.findings(problems);
        findings.sort_by_key(Finding::position);
        findings.extend(more.map(|more| Finding::unplaced(self.name(), more, ReadingStep::Rules)));
        Report::new(self.name(), findings)
    }

    fn findings(&self, problems: Vec<Problem>) -> Vec<Finding> {
        let located = problems.into_iter().map(|problem| {
            let spot = self.spot(&problem.path);
            let source = self.source(spot.source);
            let within =
                |within| spot.within(within, source.text).or_else(|| spot.within_line(within, source.text));
            let place = problem.within.and_then(within).unwrap_or(spot);
            let related = problem.related.as_deref().map(|path| {
                let spot = self.spot(path);
                Place { file: self.source(spot.source).name.into(), at: spot.at }
            });
            let problem = slips::with_quotes_noted(problem, from(spot.at, source.text).next());
            Finding::new(problem, ReadingStep::Rules, place, &source).related_to(related)
        });
        located.collect()
    }

    fn spot(&self, path: &str) -> Spot {
        let mut node = &self.root;
        let mut spot = Spot::of(node, self.text_of(node));
        let mut rest = path;
        loop {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            match &node.value {
                YamlValue::Mapping(mapping) => {
                    let entry = mapping.entry_at(rest);
                    let Some(entry) = entry else { return spot };
                    rest = &rest[entry.key.len()..];
                    spot = Spot::of_entry(entry, self.text_of(&entry.node));
                    node = &entry.node;
                }
                YamlValue::Sequence(nodes) => {
                    let Some((child, after)) = element_at(nodes, rest) else { return spot };
                    rest = after;
                    spot = Spot::of(child, self.text_of(child));
                    node = child;
                }
                _ => return spot,
            }
        }
    }
}

/// Leaves only the problems that are shown. Returns the problem that there are more.
fn cut(problems: &mut Vec<Problem>) -> Option<Problem> {
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    problems.truncate(PROBLEMS_MAX);
    (more > 0).then(|| Problem::new("", format!("{more} more problems are not shown")))
}

/// Returns the element whose number the path begins with, and the rest of the path.
fn element_at<'n, 'p>(nodes: &'n [YamlNode], path: &'p str) -> Option<(&'n YamlNode, &'p str)> {
    let (number, rest) = path.strip_prefix('[')?.split_once(']')?;
    Some((nodes.get(number.parse::<usize>().ok()?)?, rest))
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

impl tree::Mapping {
    /// Returns the entry whose key the path begins with. Names may hold dots: the longest matching key wins.
    fn entry_at(&self, path: &str) -> Option<&tree::YamlEntry> {
        self.entries
            .iter()
            .filter(|entry| starts_with_key(path, &entry.key))
            .max_by_key(|entry| entry.key.len())
    }
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

    /// Collects the keys under which something was skipped, and those that were probably meant.
    fn skipped_keys<'a>(&'a self, keys: &mut Vec<&'a str>) {
        match &self.value {
            YamlValue::Mapping(mapping) => {
                keys.extend(mapping.unreported.iter().map(String::as_str));
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

    /// Returns the value that a path leads to. Its names have no dots.
    fn at_path_mut(&mut self, path: &str) -> Option<&mut Self> {
        let mut node = self;
        for step in path.split(['.', '[']) {
            let number = step.strip_suffix(']').and_then(|number| number.parse::<usize>().ok());
            node = match (&mut node.value, number) {
                (YamlValue::Sequence(nodes), Some(number)) => nodes.get_mut(number)?,
                (YamlValue::Mapping(mapping), None) => {
                    &mut mapping.entries.iter_mut().find(|entry| entry.key == step)?.node
                }
                _ => return None,
            };
        }
        Some(node)
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
        Self { source: node.source, at: node.at, width: width(node, text), hide_value: false }
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
        Some(Self { at, width: 1, ..*self })
    }

    /// The position `within` a text that is written in one line, with or without quotes.
    fn within_line(&self, within: Position, text: &str) -> Option<Self> {
        if within.line != 1 {
            return None;
        }
        let rest: Vec<char> = from(self.at, text).collect();
        let quote = rest.first().filter(|c| matches!(c, '"' | '\''));
        let mut written = usize::from(quote.is_some());
        for _ in 1..within.column {
            written += match (quote, rest.get(written)?) {
                (Some('"'), '\\') | (Some('\''), '\'') => 2,
                _ => 1,
            };
        }
        let at = Position { line: self.at.line, column: self.at.column + written };
        Some(Self { at, width: 1, ..*self })
    }

    fn of_key(entry: &tree::YamlEntry, text: &str) -> Self {
        let at = entry.key_at;
        let width = quoted_width(at, text).unwrap_or_else(|| entry.key.chars().count());
        Self { source: entry.node.source, at, width, hide_value: false }
    }

    /// The position of a scalar value, or of the key of a list or mapping, whose own start says little.
    fn of_entry(entry: &tree::YamlEntry, text: &str) -> Self {
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
