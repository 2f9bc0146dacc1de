//! Files beside a config that belong to it, such as scripts.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::file::{read_file, reason};

/// Maximum length of such a file, unless its key has another.
const TEXT_BYTES_MAX: usize = 256 << 10;

thread_local! {
    /// The directory of the config that this thread reads.
    static DIRECTORY: RefCell<PathBuf> = RefCell::default();
}

/// The directory that paths are relative to, while it exists.
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Enters the directory of a config file.
    pub fn enter(directory: PathBuf) -> Self {
        Self(DIRECTORY.replace(directory))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        DIRECTORY.set(std::mem::take(&mut self.0));
    }
}

/// The text of a file that a config names, of at most this number of bytes. Two of them are equal if the
/// texts are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile<const BYTES_MAX: usize = TEXT_BYTES_MAX> {
    path: String,
    text: Arc<str>,
}

impl<const BYTES_MAX: usize> TextFile<BYTES_MAX> {
    /// Path, as written in the config: relative to the directory of the config file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The text, as it was when the config was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn read(path: &str) -> io::Result<Self> {
        let file = DIRECTORY.with_borrow(|directory| directory.join(path));
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot read {}: {}", file.display(), reason(&error)))
        };
        let bytes = read_file(&file, BYTES_MAX).map_err(failed)?;
        let not_utf8 = || io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
        let text = std::str::from_utf8(&bytes).map_err(|_| failed(not_utf8()))?;
        Ok(Self { path: path.to_owned(), text: text.into() })
    }
}

impl<'de, const BYTES_MAX: usize> Deserialize<'de> for TextFile<BYTES_MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = Cow::<'de, str>::deserialize(deserializer)?;
        Self::read(&path).map_err(de::Error::custom)
    }
}

impl<const BYTES_MAX: usize> Serialize for TextFile<BYTES_MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.path)
    }
}

impl<const BYTES_MAX: usize> JsonSchema for TextFile<BYTES_MAX> {
    fn schema_name() -> Cow<'static, str> {
        "TextFile".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Path of a text file, relative to the directory of the config file.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Problem, load};

    #[derive(Debug, Deserialize)]
    struct Config {
        text: TextFile,
    }

    #[test]
    fn a_file_is_found_beside_the_config_and_only_there() {
        let directory = std::env::temp_dir().join(format!("egret-text-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("a.js"), "one").unwrap();
        let name = directory.join("egret.yaml").display().to_string();
        let config: Config = load(&name, "text: a.js", |_| Vec::new()).unwrap();
        assert_eq!((config.text.path(), config.text.text()), ("a.js", "one"));
        let report = load::<Config>("egret.yaml", "text: no-such.js", |_| Vec::new()).unwrap_err();
        assert!(report.to_string().contains("egret.yaml:1:7: text: cannot read no-such.js"), "{report}");
        std::fs::write(directory.join("a.js"), b"\xff").unwrap();
        assert!(
            load::<Config>(&name, "text: a.js", |_| Vec::new()).unwrap_err().to_string().contains("UTF-8")
        );
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_problem_in_a_text_of_several_lines_has_its_own_place() {
        #[derive(Debug, Deserialize)]
        struct Inline {
            #[expect(dead_code, reason = "only its place matters")]
            source: String,
        }
        let place = |text: &str| {
            let problem = |_: &Inline| vec![Problem::new("source", "wrong").within(2, 3)];
            let report = load::<Inline>("egret.yaml", text, problem).unwrap_err().to_string();
            report.split(": ").next().unwrap().to_owned()
        };
        assert_eq!(place("source: |\n  one\n  two\n"), "egret.yaml:3:5");
        assert_eq!(place("source: |-\n\n    two\n"), "egret.yaml:3:7");
        assert_eq!(place("source: \"one\\ntwo\"\n"), "egret.yaml:1:9");
    }
}
