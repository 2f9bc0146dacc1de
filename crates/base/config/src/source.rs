//! The texts that a config consists of: the config file, and the files that it includes.

use std::path::{Path, PathBuf};

/// A text of a config, and its name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceText {
    /// The name in messages, usually the file's path.
    pub name: String,
    /// The text.
    pub text: String,
}

/// The config file, and the files that it includes, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceSet {
    /// The config file.
    pub main: SourceText,
    /// The files that it includes.
    pub included: Vec<SourceText>,
}

impl SourceSet {
    /// Creates a set without included files.
    pub fn single(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { main: SourceText { name: name.into(), text: text.into() }, included: Vec::new() }
    }

    /// Number of bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.included.iter().map(|file| file.text.len()).sum::<usize>() + self.main.text.len()
    }

    /// Returns the name of an included file relative to the directory of the config file.
    pub fn relative_name<'a>(&self, file: &'a SourceText) -> &'a str {
        let directory = directory_of(&self.main.name);
        let relative = Path::new(&file.name).strip_prefix(&directory).ok().and_then(Path::to_str);
        relative.unwrap_or(&file.name)
    }
}

/// Returns the directory of the config file `name`; empty for the current one.
pub(crate) fn directory_of(name: &str) -> PathBuf {
    Path::new(name).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// A text of a config that is being read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigText<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

impl<'a> ConfigText<'a> {
    /// Some editors start a file with a byte order mark, which would shift the columns.
    pub fn new(name: &'a str, text: &'a str) -> Self {
        Self { name, text: text.strip_prefix('\u{feff}').unwrap_or(text) }
    }
}
