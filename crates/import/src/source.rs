//! The files of the original: read within limits, and walked so that no key is overlooked.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use egret_config::{CONFIG_BYTES_MAX, Position, YamlEntry, YamlNode, YamlValue, parse_yaml, read_file};

use crate::report::{Item, ItemOutcome, shown};

/// Maximum number of files in an imported directory.
const FILES_MAX: usize = 1_000;

/// Maximum number of bytes in all of them.
const BYTES_MAX: usize = 16 * CONFIG_BYTES_MAX;

/// Maximum number of problems that are reported.
const PROBLEMS_MAX: usize = 20;

/// Longest text in the original that a message repeats, in characters.
const TEXT_CHARS_MAX: usize = 60;

/// The reason why nothing was translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// A file or directory cannot be read: its path and the cause.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, String),
    /// The directory has nothing to import.
    #[error(
        "{0}: nothing to import: expected policies.yaml, flows/*.yaml, quotas/*.yaml, path_params/*.yaml or gateway_config.yaml"
    )]
    Nothing(PathBuf),
    /// The files are wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Bad(Vec<BadInput>),
}

/// A mistake in the original.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{}:{}: {}", .at.line, .at.column, shown(.message))]
pub struct BadInput {
    /// The file.
    pub file: String,
    /// Its place.
    pub at: Position,
    /// The mistake and what was expected.
    pub message: String,
}

/// A file of the original, as text.
#[derive(Debug)]
pub(crate) struct TextFile {
    /// Its path relative to the directory, for messages.
    pub name: String,
    pub text: String,
}

/// Reads files below a directory within the limits.
#[derive(Debug)]
pub(crate) struct Folder<'a> {
    root: &'a Path,
    files: usize,
    bytes: usize,
}

impl<'a> Folder<'a> {
    pub fn new(root: &'a Path) -> Self {
        Self { root, files: 0, bytes: 0 }
    }

    /// Reads a file if it exists.
    pub fn file(&mut self, name: &str) -> Result<Option<TextFile>, ImportError> {
        let path = self.root.join(name);
        if !path.exists() {
            return Ok(None);
        }
        let unreadable = |cause: String| ImportError::Unreadable(path.clone(), cause);
        let bytes = read_file(&path, CONFIG_BYTES_MAX).map_err(|error| unreadable(error.to_string()))?;
        self.files += 1;
        self.bytes += bytes.len();
        if self.files > FILES_MAX || self.bytes > BYTES_MAX {
            return Err(unreadable(format!("more than {FILES_MAX} files or {BYTES_MAX} bytes in all")));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| unreadable("not UTF-8".to_owned()))?;
        Ok(Some(TextFile { name: name.to_owned(), text: text.trim_start_matches('\u{feff}').to_owned() }))
    }

    /// Reads the YAML files directly in a folder, in the order of their names.
    pub fn yaml_files(&mut self, folder: &str) -> Result<Vec<TextFile>, ImportError> {
        let path = self.root.join(folder);
        if !path.is_dir() {
            return Ok(Vec::new());
        }
        let unreadable = |error: std::io::Error| ImportError::Unreadable(path.clone(), error.to_string());
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(&path).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
            if Path::new(&name).extension().is_some_and(|kind| kind == "yaml" || kind == "yml") {
                names.insert(name);
            }
            if names.len() > FILES_MAX {
                return Err(ImportError::Unreadable(path.clone(), format!("more than {FILES_MAX} files")));
            }
        }
        let files = names.iter().map(|name| self.file(&format!("{folder}/{name}")));
        files.filter_map(Result::transpose).collect()
    }
}

/// A YAML file of the original.
#[derive(Debug)]
pub(crate) struct YamlFile {
    pub name: String,
    pub root: YamlNode,
}

/// Findings on the way through the files: mistakes, and what became of each item.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    problems: RefCell<Vec<BadInput>>,
    items: RefCell<Vec<Item>>,
}

impl Findings {
    pub fn parse(&self, file: &TextFile) -> Option<YamlFile> {
        match parse_yaml(&file.text) {
            Ok(root) => Some(YamlFile { name: file.name.clone(), root }),
            Err(error) => {
                self.bad(&file.name, error.at, error.to_string());
                None
            }
        }
    }

    pub fn bad(&self, file: &str, at: Position, message: impl Into<String>) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX {
            problems.push(BadInput { file: file.to_owned(), at, message: message.into() });
        }
    }

    pub fn item(&self, file: &str, at: Position, what: impl Into<String>, verdict: ItemOutcome) {
        let item = Item { file: file.to_owned(), line: at.line, what: what.into(), verdict };
        self.items.borrow_mut().push(item);
    }

    /// Returns the items, or the mistakes.
    pub fn finish(self) -> Result<Vec<Item>, ImportError> {
        let problems = self.problems.into_inner();
        if !problems.is_empty() {
            return Err(ImportError::Bad(problems));
        }
        let mut items = self.items.into_inner();
        items.sort();
        items.dedup();
        Ok(items)
    }
}

/// A mapping of the original. It remembers which keys were read; the others are reported as lost.
#[derive(Debug)]
pub(crate) struct Mapping<'a> {
    pub file: &'a str,
    pub at: Position,
    findings: &'a Findings,
    entries: Vec<Pair<'a>>,
    read: RefCell<BTreeSet<usize>>,
}

/// A key and its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub key: &'a str,
    pub key_at: Position,
    pub node: &'a YamlNode,
}

impl<'a> Mapping<'a> {
    /// The entries of a mapping; nothing counts as an empty one.
    pub fn of(file: &'a str, node: &'a YamlNode, findings: &'a Findings) -> Self {
        let pair = |entry: &'a YamlEntry| Pair { key: &entry.key, key_at: entry.key_at, node: &entry.node };
        let entries = match &node.value {
            YamlValue::Mapping(mapping) => mapping.entries.iter().map(pair).collect(),
            YamlValue::Null => Vec::new(),
            other => {
                findings.bad(file, node.at, format!("expected a mapping, found {}", described(other)));
                Vec::new()
            }
        };
        Self { file, at: node.at, findings, entries, read: RefCell::default() }
    }

    /// The entries of a list of `{ key: …, value: … }`.
    pub fn parameters(&self, key: &str) -> Self {
        let mut entries: Vec<Pair<'a>> = Vec::new();
        for parameter in self.list(key) {
            let fields = Mapping::of(self.file, parameter, self.findings);
            let Some(YamlNode { value: YamlValue::Text(key), at, .. }) = fields.get("key") else {
                fields.missing("key");
                continue;
            };
            if entries.iter().any(|known| known.key == key) {
                fields.bad(*at, format!("the parameter `{}` is given twice", cut(key)));
            }
            entries.extend(fields.get("value").map(|node| Pair { key, key_at: *at, node }));
        }
        Self { file: self.file, at: self.at, findings: self.findings, entries, read: RefCell::default() }
    }

    /// The value of a key; `None` if it is absent or null.
    pub fn get(&self, key: &str) -> Option<&'a YamlNode> {
        let number = self.entries.iter().position(|entry| entry.key == key)?;
        self.read.borrow_mut().insert(number);
        Some(self.entries[number].node).filter(|node| !matches!(node.value, YamlValue::Null))
    }

    /// All entries, which count as read.
    pub fn all(&self) -> Vec<Pair<'a>> {
        self.read.borrow_mut().extend(0..self.entries.len());
        self.entries.clone()
    }

    /// Marks keys as read that have no effect.
    pub fn ignore(&self, keys: &[&str]) {
        for key in keys {
            let _ = self.get(key);
        }
    }

    fn expected(&self, key: &str, node: &YamlNode, expected: &str) {
        let message = format!("`{key}`: expected {expected}, found {}", described(&node.value));
        self.findings.bad(self.file, node.at, message);
    }

    /// Reads the value of a key, or reports that another was expected.
    fn read_as<T>(
        &self,
        key: &str,
        node: &YamlNode,
        read: fn(&YamlNode) -> Option<T>,
        expected: &str,
    ) -> Option<T> {
        let value = read(node);
        if value.is_none() {
            self.expected(key, node, expected);
        }
        value
    }

    /// Reports a key that must be there.
    pub fn missing(&self, key: &str) {
        self.findings.bad(self.file, self.at, format!("the key `{key}` is missing"));
    }

    pub fn bad(&self, at: Position, message: impl Into<String>) {
        self.findings.bad(self.file, at, message);
    }

    /// A text; numbers and booleans count as one.
    pub fn text(&self, key: &str) -> Option<String> {
        self.read_as(key, self.get(key)?, scalar_text, "a text")
    }

    pub fn required_text(&self, key: &str) -> String {
        if self.get(key).is_none() {
            self.missing(key);
        }
        self.text(key).unwrap_or_default()
    }

    /// A number from 0.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.read_as(key, self.get(key)?, scalar_number, "a number from 0")
    }

    /// A whole number from 0.
    pub fn whole(&self, key: &str) -> Option<u64> {
        self.read_as(key, self.get(key)?, scalar_whole, "a whole number from 0")
    }

    /// A whole number from 1 that must be there.
    pub fn required_whole(&self, key: &str) -> u64 {
        match (self.get(key), self.whole(key)) {
            (None, _) => self.missing(key),
            (Some(node), Some(0)) => self.expected(key, node, "a whole number from 1"),
            _ => {}
        }
        self.whole(key).unwrap_or(1).max(1)
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        self.read_as(key, self.get(key)?, scalar_flag, "`true` or `false`")
    }

    /// The elements of a list; one value alone counts as a list of one.
    pub fn list(&self, key: &str) -> Vec<&'a YamlNode> {
        match self.get(key) {
            None => Vec::new(),
            Some(node) => match &node.value {
                YamlValue::Sequence(nodes) => nodes.iter().collect(),
                _ => vec![node],
            },
        }
    }

    /// The texts of a list.
    pub fn texts(&self, key: &str) -> Vec<String> {
        let text = |node| self.read_as(key, node, scalar_text, "a text");
        self.list(key).into_iter().filter_map(text).collect()
    }

    /// The mapping under a key.
    pub fn fields(&self, key: &str) -> Option<Self> {
        self.get(key).map(|node| Mapping::of(self.file, node, self.findings))
    }

    /// Another mapping of the same file.
    pub fn of_node(&self, node: &'a YamlNode) -> Self {
        Mapping::of(self.file, node, self.findings)
    }

    /// The mappings in a list.
    pub fn each(&self, key: &str) -> Vec<Self> {
        self.list(key).into_iter().map(|node| Mapping::of(self.file, node, self.findings)).collect()
    }

    /// Notes what became of this mapping, and of keys that nobody read.
    pub fn done(self, what: impl Into<String>, verdict: ItemOutcome) {
        self.findings.item(self.file, self.at, what, verdict);
        self.unread();
    }

    /// Reports the keys that nobody read.
    pub fn unread(&self) {
        let read = self.read.borrow();
        for (_, entry) in self.entries.iter().enumerate().filter(|(number, _)| !read.contains(number)) {
            let verdict =
                ItemOutcome::Lost("the key is unknown to the importer, and has no effect".to_owned());
            self.findings.item(self.file, entry.key_at, format!("key `{}`", cut(entry.key)), verdict);
        }
    }
}

/// The text of a scalar.
pub(crate) fn scalar_text(node: &YamlNode) -> Option<String> {
    match &node.value {
        YamlValue::Text(text) => Some(text.clone()),
        YamlValue::Bool(value) => Some(value.to_string()),
        YamlValue::Unsigned(value) => Some(value.to_string()),
        YamlValue::Signed(value) => Some(value.to_string()),
        YamlValue::Float(value) => Some(value.to_string()),
        YamlValue::Null | YamlValue::Sequence(_) | YamlValue::Mapping(_) => None,
    }
}

/// A whole number from 0, also in quotes.
pub(crate) fn scalar_whole(node: &YamlNode) -> Option<u64> {
    match &node.value {
        YamlValue::Unsigned(value) => Some(*value),
        YamlValue::Text(text) => text.parse().ok(),
        _ => None,
    }
}

/// A number from 0, also in quotes.
pub(crate) fn scalar_number(node: &YamlNode) -> Option<f64> {
    let number = match &node.value {
        YamlValue::Float(value) => Some(*value),
        YamlValue::Unsigned(_) | YamlValue::Text(_) => scalar_text(node)?.parse().ok(),
        _ => None,
    };
    number.filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

/// `true` or `false`, in the words of YAML 1.1 too.
fn scalar_flag(node: &YamlNode) -> Option<bool> {
    match &node.value {
        YamlValue::Bool(flag) => Some(*flag),
        YamlValue::Text(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn described(value: &YamlValue) -> String {
    match value {
        YamlValue::Null => "nothing".to_owned(),
        YamlValue::Sequence(_) => "a list".to_owned(),
        YamlValue::Mapping(_) => "a mapping".to_owned(),
        // A value may be a secret.
        YamlValue::Text(_) => "another text".to_owned(),
        YamlValue::Bool(value) => format!("`{value}`"),
        YamlValue::Unsigned(value) => format!("`{value}`"),
        YamlValue::Signed(value) => format!("`{value}`"),
        YamlValue::Float(value) => format!("`{value}`"),
    }
}

/// The text, cut to a length that fits into a message.
pub(crate) fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(TEXT_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
