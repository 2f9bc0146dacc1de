//! Reads text files up to the size limit of a config.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use egret_config::CONFIG_BYTES_MAX;

/// The reason why a text file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TextFileError {
    /// The file does not exist.
    #[error("there is no such file")]
    Missing,
    /// The file cannot be opened.
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// The file is longer than a config may be.
    #[error("longer than {CONFIG_BYTES_MAX} bytes")]
    TooLong,
    /// The content is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
}

/// Reads a text file.
pub(crate) fn read_text(file: &Path) -> Result<String, TextFileError> {
    let opened = File::open(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => TextFileError::Missing,
        _ => TextFileError::Open(error),
    })?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(CONFIG_BYTES_MAX + 1).unwrap_or(u64::MAX);
    opened.take(limit).read_to_end(&mut bytes).map_err(TextFileError::Read)?;
    if bytes.len() > CONFIG_BYTES_MAX {
        return Err(TextFileError::TooLong);
    }
    String::from_utf8(bytes).map_err(|_| TextFileError::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_long_or_binary_file_is_refused() {
        let directory = std::env::temp_dir().join(format!("egret-lab-text-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let read = |content: &[u8]| {
            let file = directory.join("file");
            std::fs::write(&file, content).unwrap();
            read_text(&file)
        };
        assert_eq!(read("a: ä".as_bytes()).unwrap(), "a: ä");
        assert_eq!(read(&vec![b'x'; CONFIG_BYTES_MAX]).unwrap().len(), CONFIG_BYTES_MAX);
        assert!(matches!(read(&vec![b'x'; CONFIG_BYTES_MAX + 1]), Err(TextFileError::TooLong)));
        assert!(matches!(read(b"\xff"), Err(TextFileError::NotUtf8)));
        assert!(matches!(read_text(&directory.join("none")), Err(TextFileError::Missing)));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
