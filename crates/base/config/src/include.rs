//! The files that a config includes: `include: [flows/*.yaml]`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::document::{CONFIG_BYTES_MAX, Document};
use crate::file::{read_file, reason};
use crate::join::INCLUDE;
use crate::node::Node;
use crate::problem::Problem;
use crate::report::Report;
use crate::source::SourceText;
use crate::variables::{Replacing, replaced};

/// Maximum number of files that a config includes, and of the patterns that name them.
pub const INCLUDED_FILES_MAX: usize = 64;

/// Maximum number of entries of a directory that are compared with a pattern.
const ENTRIES_MAX: usize = 10_000;

/// The files that a config includes, and the paths whose changes concern them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Includes {
    /// The files: in the order of the patterns, those of a pattern by name.
    pub files: Vec<SourceText>,
    /// Paths of the files, of those as well that do not exist.
    pub paths: Vec<PathBuf>,
    /// Directories in which a new file may match a pattern.
    pub directories: Vec<PathBuf>,
}

impl Includes {
    /// Returns `false` for the text of a config that certainly includes no file.
    pub fn may_be_in(text: &str) -> bool {
        // An escape may be a letter of the key.
        text.contains(INCLUDE) || text.contains('\\')
    }

    /// Finds and reads the files that the config in the file `config` includes. Files are named relative to
    /// the current directory, if `config` is. A report follows if a pattern is wrong or names a file that
    /// does not exist, if there are too many files, or if one cannot be read.
    pub fn read(document: &Document<'_>, config: &Path) -> (Self, Option<Report>) {
        let directory = config.parent().unwrap_or(Path::new(""));
        let mut includes = Self::default();
        let mut problems = Vec::new();
        let patterns = document.root().get(INCLUDE).into_iter().flat_map(Node::items);
        for (number, pattern) in patterns.enumerate() {
            if number == INCLUDED_FILES_MAX {
                let message = format!(
                    "more than {INCLUDED_FILES_MAX} entries: name several files at once, as in \
                     `flows/*.yaml`"
                );
                problems.push(Problem::new(format!("{INCLUDE}[{number}]"), message));
                break;
            }
            // Its type is checked when the config is read.
            let Some(text) = pattern.text() else { continue };
            let added = includes.add(text, directory, config);
            problems.extend(added.err().map(|why| Problem::new(format!("{INCLUDE}[{number}]"), why)));
        }
        let report = (!problems.is_empty()).then(|| document.locate(problems));
        (includes, report)
    }

    /// Adds the files that match a pattern.
    fn add(&mut self, pattern: &str, directory: &Path, config: &Path) -> Result<(), IncludeError> {
        let on = Replacing::On.enter();
        let pattern = match replaced(pattern).map_err(|error| IncludeError(error.to_string()))? {
            Some(pattern) => pattern,
            None => pattern.to_owned(),
        };
        drop(on);
        for file in self.matches(&directory.join(&pattern))? {
            let name = file.display().to_string();
            if is_same(&file, config) || self.files.iter().any(|known| known.name == name) {
                continue;
            }
            if self.files.len() == INCLUDED_FILES_MAX {
                return Err(IncludeError(format!("more than {INCLUDED_FILES_MAX} files are included")));
            }
            self.paths.push(file.clone());
            let failed = |error: &dyn std::fmt::Display| IncludeError(format!("cannot read {name}: {error}"));
            let bytes = read_file(&file, CONFIG_BYTES_MAX).map_err(|error| failed(&reason(&error)))?;
            let text = std::str::from_utf8(&bytes).map_err(|_| failed(&"it is not UTF-8"))?.to_owned();
            self.files.push(SourceText { name, text });
        }
        Ok(())
    }

    /// Returns the files that a path stands for, by name.
    fn matches(&mut self, path: &Path) -> Result<Vec<PathBuf>, IncludeError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let parent = path.parent().unwrap_or(Path::new(""));
        if parent.to_string_lossy().contains(is_wildcard) {
            let message = "`*` and `?` are only possible in the name of the file, after the last `/`";
            return Err(IncludeError(message.to_owned()));
        }
        if !name.contains(is_wildcard) {
            return Ok(vec![path.to_owned()]);
        }
        self.directories.push(parent.to_owned());
        let listed = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let failed = |error| IncludeError(format!("cannot list {}: {error}", listed.display()));
        let mut files = Vec::new();
        for (count, entry) in fs::read_dir(listed).map_err(failed)?.enumerate() {
            if count == ENTRIES_MAX {
                let message = format!("{} has more than {ENTRIES_MAX} entries", listed.display());
                return Err(IncludeError(message));
            }
            let found = entry.map_err(failed)?.file_name();
            let Some(found) = found.to_str() else { continue };
            // Drafts and hidden files of editors begin with a dot.
            if found.starts_with('.') == name.starts_with('.') && is_match(name.as_bytes(), found.as_bytes())
            {
                files.push(parent.join(found));
            }
        }
        files.sort();
        Ok(files)
    }
}

/// The reason why a pattern does not lead to files. It is shown at the pattern.
struct IncludeError(String);

impl From<IncludeError> for String {
    fn from(error: IncludeError) -> Self {
        error.0
    }
}

fn is_wildcard(c: char) -> bool {
    matches!(c, '*' | '?')
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || fs::canonicalize(one).ok().zip(fs::canonicalize(other).ok()).is_some_and(|(a, b)| a == b)
}

/// Returns `true` if `name` matches a pattern, in which `*` stands for any bytes and `?` for any one. The
/// time grows with the product of the lengths, which are those of file names.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // The last star, and the beginning of what comes after it in the name.
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((star_at, rest)) = star else { return false };
                star = Some((star_at, rest + 1));
                (at, from) = (star_at + 1, rest + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        for (pattern, name, matches) in [
            ("*.yaml", "a.yaml", true),
            ("*.yaml", "a.yml", false),
            ("*.yaml", ".yaml", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbY", false),
            ("?.yaml", "ab.yaml", false),
            ("?.yaml", "a.yaml", true),
            ("**", "", true),
            ("", "a", false),
        ] {
            assert_eq!(is_match(pattern.as_bytes(), name.as_bytes()), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn included_files_are_read_once_and_in_order() {
        let directory = std::env::temp_dir().join(format!("egret-include-{}", std::process::id()));
        fs::create_dir_all(directory.join("flows")).unwrap();
        for name in ["egret.yaml", "flows/b.yaml", "flows/a.yaml", "flows/.hidden.yaml", "one.yaml"] {
            fs::write(directory.join(name), format!("# {name}\n")).unwrap();
        }
        let config = directory.join("egret.yaml");
        let read = |text: &str| {
            let document = Document::parse("egret.yaml", text).unwrap();
            let (includes, report) = Includes::read(&document, &config);
            if let Some(report) = report {
                return Err(report.to_string());
            }
            let texts: Vec<_> = includes.files.into_iter().map(|file| file.text).collect();
            Ok::<_, String>((texts.concat(), includes.directories.len()))
        };
        assert_eq!(
            read("include: [one.yaml, 'flows/*.yaml', '*.yaml']").unwrap(),
            ("# one.yaml\n# flows/a.yaml\n# flows/b.yaml\n".to_owned(), 2)
        );
        assert_eq!(read("include: ['flows/*.yml']").unwrap(), (String::new(), 1));
        assert_eq!(read("include: one.yaml").unwrap(), ("# one.yaml\n".to_owned(), 0));
        for (text, message) in [
            ("include: [no.yaml]", "egret.yaml:1:11: include[0]: cannot read"),
            ("include: ['f*/a.yaml']", "only possible in the name of the file"),
            ("include: ['none/*.yaml']", "cannot list"),
            ("include: ['${env:EGRET_NO_SUCH}.yaml']", "EGRET_NO_SUCH is not set"),
        ] {
            let report = read(text).unwrap_err();
            assert!(report.contains(message), "{report}");
        }
        // Only so many patterns are looked for, whether there are such files or not.
        let many = format!("include: [{}]", "no.yaml, ".repeat(1_000));
        let document = Document::parse("egret.yaml", &many).unwrap();
        let (includes, report) = Includes::read(&document, &config);
        assert_eq!(includes.paths.len(), INCLUDED_FILES_MAX);
        let report = report.unwrap().to_string();
        assert!(report.ends_with("45 more problems are not shown"), "{report}");
        for number in 0..=INCLUDED_FILES_MAX {
            fs::write(directory.join(format!("flows/{number}.yaml")), "").unwrap();
        }
        assert!(read("include: ['flows/*']").unwrap_err().contains("more than 64 files"));
        fs::remove_dir_all(directory).unwrap();
    }
}
