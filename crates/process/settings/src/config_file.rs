//! Reads the config file, at start and again while Egret runs.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use egret_config::{CONFIG_BYTES_MAX, Document, Includes, Loaded, Report, SourceSet, SourceText};

use crate::config::Config;
use crate::failure::Failure;

use crate::config_path;

/// The reason why there is no config text. Its message names the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFileError {
    file: PathBuf,
    cause: ConfigFileCause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ConfigFileCause {
    NotFound {
        /// A file beside it with nearly the same name.
        similar: Option<String>,
    },
    /// The system's message.
    Unreadable(String),
    TooLong,
    /// The line of the first byte that is not.
    NotUtf8 {
        line: usize,
    },
}

impl fmt::Display for ConfigFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.display();
        match &self.cause {
            ConfigFileCause::NotFound { similar: Some(similar) } => {
                write!(f, "{name}: no such file; did you mean `{similar}`?")
            }
            ConfigFileCause::NotFound { similar: None } => {
                write!(f, "{name}: no such file; `egret init {name}` writes a config to start from")
            }
            ConfigFileCause::Unreadable(error) => write!(f, "{name}: cannot read the file: {error}"),
            ConfigFileCause::TooLong => {
                write!(f, "{name}: longer than {CONFIG_BYTES_MAX} bytes, the limit for a config")
            }
            ConfigFileCause::NotUtf8 { line } => write!(f, "{name}:{line}: not UTF-8 from here on"),
        }
    }
}

impl std::error::Error for ConfigFileError {}

/// A config file, and the files that it includes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigSources {
    /// The texts.
    pub set: SourceSet,
    /// Paths of the included files, of those as well that do not exist.
    pub paths: Vec<PathBuf>,
    /// Directories in which a new file may be included.
    pub directories: Vec<PathBuf>,
    /// The reason why an included file is missing.
    problem: Option<Report>,
}

impl ConfigSources {
    /// Reads the files that `text`, the config in `file`, includes. The texts get the names of their files.
    pub fn of(file: &Path, text: String) -> Self {
        Self::named(file, file.display().to_string(), text)
    }

    /// Does the same for a config with another name.
    pub fn named(file: &Path, name: String, text: String) -> Self {
        // The same error is reported once the config is read.
        let document = Includes::may_be_in(&text).then(|| Document::parse(&name, &text).ok()).flatten();
        let (includes, problem) =
            document.map_or_else(Default::default, |document| Includes::read(&document, file));
        let Includes { files, paths, directories } = includes;
        let set = SourceSet { main: SourceText { name, text }, included: files };
        Self { set, paths, directories, problem }
    }

    /// Creates the sources of a config without a file.
    pub fn single(name: &str, text: &str) -> Self {
        Self { set: SourceSet::single(name, text), ..Self::default() }
    }

    /// Returns the same with other texts of included files.
    #[must_use]
    pub fn with_included(mut self, included: Vec<SourceText>) -> Self {
        (self.set.included, self.problem) = (included, None);
        self
    }

    /// Returns the texts, if all of them could be read.
    pub fn complete(&self) -> Result<&SourceSet, Report> {
        self.problem.clone().map_or(Ok(&self.set), Err)
    }

    /// Reads the config.
    pub fn load(&self) -> Result<Loaded<Config>, Report> {
        crate::advice::load(self.complete()?)
    }
}

/// Reads a config file, and the files that it includes, for a command.
pub fn load(file: &Path) -> Result<Loaded<Config>, Failure> {
    read(file).map_err(Failure::misused)?.load().map_err(Failure::misused)
}

/// Reads a config file when Egret starts; it may be a pipe.
pub fn read(file: &Path) -> Result<ConfigSources, ConfigFileError> {
    let opened = std::fs::File::open(file);
    let text = text_of(file, opened.and_then(read_all))?;
    Ok(ConfigSources::of(file, text))
}

/// Reads a config from standard input. Files that it names are relative to the current directory.
pub fn read_standard_input() -> Result<ConfigSources, ConfigFileError> {
    let file = Path::new("standard input");
    let text = text_of(file, read_all(std::io::stdin()))?;
    Ok(ConfigSources::named(Path::new(""), file.display().to_string(), text))
}

fn read_all(reader: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The extra byte detects a file that is too long. The limit protects the memory from an endless device.
    let limit = u64::try_from(CONFIG_BYTES_MAX + 1).unwrap_or(u64::MAX);
    reader.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the config file again while Egret runs. A pipe, which might never end, is rejected.
pub fn read_again(file: &Path) -> Result<ConfigSources, ConfigFileError> {
    let read = egret_config::read_file(file, CONFIG_BYTES_MAX).map(|mut bytes| std::mem::take(&mut *bytes));
    Ok(ConfigSources::of(file, text_of(file, read)?))
}

fn text_of(file: &Path, read: std::io::Result<Vec<u8>>) -> Result<String, ConfigFileError> {
    let failed = |cause| ConfigFileError { file: file.to_owned(), cause };
    let bytes = read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            failed(ConfigFileCause::NotFound { similar: config_path::similar_config(file) })
        }
        _ => failed(ConfigFileCause::Unreadable(egret_config::reason(&error))),
    })?;
    if bytes.len() > CONFIG_BYTES_MAX {
        return Err(failed(ConfigFileCause::TooLong));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        failed(ConfigFileCause::NotUtf8 { line: 1 + valid.filter(|byte| **byte == b'\n').count() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_says_why() {
        let missing = read(Path::new("/no/such.yaml")).unwrap_err().to_string();
        assert_eq!(
            missing,
            "/no/such.yaml: no such file; `egret init /no/such.yaml` writes a config to start from"
        );
        let endless = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(endless.contains("longer than 1048576 bytes"), "{endless}");
        let directory = read(Path::new("/")).unwrap_err().to_string();
        assert!(directory.starts_with("/: cannot read the file"), "{directory}");
    }

    #[test]
    fn a_byte_that_is_no_text_is_named_by_its_line() {
        let error = text_of(Path::new("a.yaml"), Ok(b"a: b\nc: \xff\n".to_vec())).unwrap_err();
        assert_eq!(error.to_string(), "a.yaml:2: not UTF-8 from here on");
    }
}
