//! Tasks of newcomers, played and counted in steps. A command, a file that is edited, and a button or field
//! of the page are one step each. `docs/explanation/tasks-in-steps.md` has the most that each task may take.
//!
//! The calls of the application and what the test looks at are no steps.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::browser::browse;
use crate::egret::Egret;
use crate::process::{Process, run};

/// The page with the table.
const PAGE: &str = "docs/explanation/tasks-in-steps.md";

/// The commands that play the tasks, as the table has them.
pub const PLAYED_BY: [&str; 5] = [
    "make test ONLY=steps_of_first_calls",
    "make test ONLY=steps_of_policies",
    "make test ONLY=steps_at_night",
    "make test-clients ONLY=steps_of_clients",
    "make test-cluster ONLY=steps_of_the_cluster",
];

/// A task: its name in the table, and the play.
pub type Task = (&'static str, fn(&mut Steps));

/// The steps of a task so far.
#[derive(Debug, Default)]
pub struct Steps {
    taken: Vec<String>,
}

impl Steps {
    fn take(&mut self, step: String) {
        println!("    {}. {step}", self.taken.len() + 1);
        self.taken.push(step);
    }

    /// Takes a step: runs a command, which must end with this exit code. Returns what it prints.
    pub fn ends(&mut self, command: &mut Command, code: i32) -> String {
        self.take(words(command));
        let Output { status, stdout, stderr } = run(command);
        let printed = String::from_utf8([stdout, stderr].concat()).unwrap();
        assert_eq!(status.code(), Some(code), "{command:?}: {printed}");
        printed
    }

    /// Takes a step: runs a command, which must succeed. Returns what it prints.
    pub fn runs(&mut self, command: &mut Command) -> String {
        self.ends(command, 0)
    }

    /// Takes a step: starts a command that goes on.
    pub fn starts(&mut self, command: &mut Command) -> Process {
        self.take(words(command));
        Process::printing(command)
    }

    /// Takes a step: edits the config of a gateway that runs, and waits until it is in force.
    pub fn edits(&mut self, egret: &Egret, yaml: &str) {
        self.take("edit of egret.yaml".to_owned());
        egret.change_config(yaml);
    }

    /// Takes a step: edits a file.
    pub fn writes(&mut self, file: &Path, text: &str) {
        self.take(format!("edit of {}", file.display()));
        std::fs::write(file, text).unwrap();
    }

    /// Takes a step for each of these scripts, which act on the page in order: see [`browse`]. Returns the
    /// value of the expression `seen`.
    pub fn acts(&mut self, egret: &Egret, before: &str, acts: &[&str], seen: &str) -> Value {
        for act in acts {
            self.take((*act).to_owned());
        }
        browse(egret, &format!("{before}\n{}\nreturn {seen};", acts.join("\n")))
    }
}

/// Returns the words of a command: its variables are those of the test.
fn words(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// A row of the table: the counts, from the first to the committed one.
#[derive(Debug)]
struct Row {
    counts: [String; 3],
    played_by: String,
}

/// Returns the rows of the table by the task's name.
fn rows() -> BTreeMap<String, Row> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
    let page = std::fs::read_to_string(file).unwrap();
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let cells = cells.map(|line| line.split(" | ").map(str::trim).collect::<Vec<_>>());
    let rows = cells.filter_map(|cells| {
        let [name, first, second, now, played_by] = cells[..] else { return None };
        let played_by = played_by.strip_prefix('`')?.strip_suffix('`')?.to_owned();
        Some((name.to_owned(), Row { counts: [first, second, now].map(str::to_owned), played_by }))
    });
    rows.collect()
}

/// Plays the tasks of a command, prints their rows with the steps that they took, and fails if one took more
/// than the table has, or if the table has others.
pub fn judge(played_by: &str, tasks: &[Task]) {
    assert!(PLAYED_BY.contains(&played_by), "{played_by}");
    let rows = rows();
    let of_command = rows.iter().filter(|(_, row)| row.played_by == played_by).map(|(name, _)| name.as_str());
    let mut names: Vec<&str> = tasks.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(of_command.collect::<Vec<_>>(), names, "the tasks of `{played_by}` in {PAGE}");
    let mut failures = Vec::new();
    for (name, play) in tasks {
        println!("{name}");
        let mut steps = Steps::default();
        play(&mut steps);
        let ([first, second, committed], taken) = (&rows[*name].counts, steps.taken.len());
        println!("| {name} | {first} | {second} | {committed} | played: {taken} |");
        let max: usize = committed.parse().unwrap_or_else(|_| panic!("{name}: {committed} is no number"));
        if taken > max {
            failures.push(format!("{name}: {taken} steps, and not {max}: {:#?}", steps.taken));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Asserts that each task of the table names one of the commands that play them.
pub fn assert_all_played() {
    let rows = rows();
    assert!(rows.len() >= 25, "{} tasks", rows.len());
    for (name, Row { played_by, .. }) in &rows {
        assert!(PLAYED_BY.contains(&&**played_by), "{name}: {played_by}");
    }
}
