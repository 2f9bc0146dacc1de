//! Reads the config file, at start and again while Egret runs.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use egret_config::CONFIG_BYTES_MAX;

/// The reason why there is no config text. Its message names the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFileError {
    file: PathBuf,
    cause: Cause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cause {
    NotFound,
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
            Cause::NotFound => write!(f, "{name}: no such file"),
            Cause::Unreadable(error) => write!(f, "{name}: cannot read the file: {error}"),
            Cause::TooLong => {
                write!(f, "{name}: longer than {CONFIG_BYTES_MAX} bytes, the limit for a config")
            }
            Cause::NotUtf8 { line } => write!(f, "{name}:{line}: not UTF-8 from here on"),
        }
    }
}

impl std::error::Error for ConfigFileError {}

/// Reads a config file when Egret starts; it may be a pipe.
pub fn read(file: &Path) -> Result<String, ConfigFileError> {
    let read = || {
        let mut bytes = Vec::new();
        // The extra byte detects a file that is too long. The limit protects the memory from an endless
        // device.
        let limit = u64::try_from(CONFIG_BYTES_MAX + 1).unwrap_or(u64::MAX);
        std::fs::File::open(file)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    text_of(file, read())
}

/// Reads the config file again while Egret runs. A pipe, which might never end, is rejected.
pub fn read_again(file: &Path) -> Result<String, ConfigFileError> {
    let read = egret_config::read_file(file, CONFIG_BYTES_MAX).map(|mut bytes| std::mem::take(&mut *bytes));
    text_of(file, read)
}

fn text_of(file: &Path, read: std::io::Result<Vec<u8>>) -> Result<String, ConfigFileError> {
    let failed = |cause| ConfigFileError { file: file.to_owned(), cause };
    let bytes = read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => failed(Cause::NotFound),
        _ => failed(Cause::Unreadable(error.to_string())),
    })?;
    if bytes.len() > CONFIG_BYTES_MAX {
        return Err(failed(Cause::TooLong));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        failed(Cause::NotUtf8 { line: 1 + valid.filter(|byte| **byte == b'\n').count() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_says_why() {
        let missing = read(Path::new("/no/such.yaml")).unwrap_err().to_string();
        assert_eq!(missing, "/no/such.yaml: no such file");
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
