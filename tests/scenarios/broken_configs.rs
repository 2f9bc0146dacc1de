//! The messages of `egret check` about broken configs, in a golden file: place, cause and remedy of each.
//!
//! `UPDATE_GOLDEN=1` writes the file again. Read each changed message before you commit it.

use std::path::{Path, PathBuf};

use egret_tests::egret::egret;
use egret_tests::process::run;

/// The directory of the configs and of the golden file.
fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/broken-configs")
}

/// Returns the names of the configs, in order.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries
        .map(|name| name.into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    names.sort();
    names
}

/// Checks a config. Returns its messages under a heading with the exit code.
fn checked(name: &str) -> String {
    let command = if name.contains("-lab-") { ["lab", "run", name] } else { ["check", name, "--"] };
    let arguments = command.into_iter().filter(|argument| *argument != "--");
    let mut egret = egret([]);
    egret.args(arguments).current_dir(directory()).env("NO_COLOR", "1").env_remove("EGRET_NO_SUCH_VARIABLE");
    let output = run(&mut egret);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    format!("### {name}: exit code {code}\n{}{}\n", text(output.stdout), text(output.stderr))
}

#[test]
fn each_mistake_is_reported_with_place_and_remedy() {
    let names = names();
    assert!(names.len() >= 81, "{} configs", names.len());
    let found: String = names.iter().map(|name| checked(name)).collect();
    let golden = directory().join("messages.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    let (found, expected): (Vec<&str>, Vec<&str>) =
        (found.split("### ").collect(), expected.split("### ").collect());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(
            found, expected,
            "`UPDATE_GOLDEN=1 cargo test --workspace --test e2e broken_configs` accepts it"
        );
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn no_message_shows_a_secret_or_the_words_of_a_library() {
    let messages = std::fs::read_to_string(directory().join("messages.txt")).unwrap();
    for word in ["hunter2", "EOF", "IDENTIFIER", "mismatched input", "struct ", "serde", "disallowed"] {
        assert!(!messages.contains(word), "{word}");
    }
}
