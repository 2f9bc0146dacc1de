//! The config file of a command that names none: `./egret.yaml`, if there is one.

use std::path::{Path, PathBuf};

use egret_files::check_found;

use crate::failure::Failure;

/// Name of the file that commands look for in the working directory.
pub const FILE_NAME: &str = "egret.yaml";

/// A name that others use, and that is not looked for.
const OTHER_NAME: &str = "egret.yml";

/// Returns the file that a command names, or else `./egret.yaml` if it exists.
///
/// # Errors
///
/// Fails if another user could have chosen what the found file says: it would be done with this user's calls,
/// variables and files.
pub fn named_or_found(named: Option<PathBuf>) -> Result<Option<PathBuf>, Failure> {
    named.map_or_else(|| found("--config "), |named| Ok(Some(named)))
}

/// Returns `./egret.yaml` if it exists. `option` precedes a file that the command is given.
fn found(option: &str) -> Result<Option<PathBuf>, Failure> {
    let found = PathBuf::from(FILE_NAME);
    if found.symlink_metadata().is_err() {
        return Ok(None);
    }
    check_found(&found).map_err(|reason| {
        Failure::Misused(format!(
            "./{FILE_NAME} is not read by itself: {reason}: name it on the command line if you trust what it says: \
             `{option}{FILE_NAME}`"
        ))
    })?;
    Ok(Some(found))
}

/// Returns advice if the working directory has no `egret.yaml`, but a file with nearly that name.
pub fn overlooked() -> Option<String> {
    let is_overlooked = !Path::new(FILE_NAME).exists() && Path::new(OTHER_NAME).exists();
    is_overlooked
        .then(|| format!("{OTHER_NAME} is here, but only {FILE_NAME} is read by itself: name the file"))
}

/// Returns the file that a command names, or else `./egret.yaml`, for a command that needs a config.
///
/// # Errors
///
/// Fails if neither is there, and as [`named_or_found`] does.
pub fn required(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let file = named.map_or_else(|| found(""), |named| Ok(Some(named)))?;
    file.ok_or_else(|| {
        Failure::Misused(overlooked().unwrap_or_else(|| {
            format!("there is no {FILE_NAME} here: name a config file, or write one with `egret init`; see `--help`")
        }))
    })
}

/// Returns the name of the YAML file in the directory of `missing` that was probably meant.
pub fn similar_config(missing: &Path) -> Option<String> {
    similar(missing, is_yaml)
}

/// Returns the name of the file in the directory of `missing` that was probably meant, among those whose
/// names are of a kind.
pub fn similar(missing: &Path, is_of_kind: impl Fn(&str) -> bool) -> Option<String> {
    let directory = match missing.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let entries = std::fs::read_dir(directory).ok()?.flatten().take(ENTRIES_MAX);
    let names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_of_kind(name))
        .collect();
    let word = missing.file_name()?.to_str()?;
    let name = egret_config::suggest(word, names.iter().map(String::as_str))?;
    Some(missing.with_file_name(name).display().to_string())
}

/// Number of files in a directory that are compared.
const ENTRIES_MAX: usize = 1000;

fn is_yaml(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_wins_and_a_misspelt_one_gets_a_suggestion() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        assert_eq!(named_or_found(Some(path("a.yaml"))).unwrap(), Some(path("a.yaml")));
        for name in ["egret.yaml", "egret.txt", "shop.yml"] {
            std::fs::write(path(name), "").unwrap();
        }
        assert_eq!(similar_config(&path("egert.yaml")), Some(path("egret.yaml").display().to_string()));
        assert_eq!(similar_config(&path("shop.yaml")), Some(path("shop.yml").display().to_string()));
        assert_eq!(similar_config(&path("other-thing.yaml")), None);
        assert_eq!(similar_config(Path::new("/no/such/egret.yaml")), None);
    }
}
