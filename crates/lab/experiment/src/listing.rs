//! Lists experiments and results.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::clock::span;
use crate::config::Experiment;
use crate::plan;
use crate::results::Results;

/// Maximum number of directory entries examined.
const ENTRIES_MAX: usize = 1_000;

/// Lists the experiments and results in these directories. An invalid file is listed with its first problem.
pub fn list(experiments: &Path, results: &Path) -> String {
    let mut text = String::new();
    let files: Vec<PathBuf> = entries(experiments)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    let _ = writeln!(
        text,
        "Experiments in {}{}",
        experiments.display(),
        if files.is_empty() { ": none" } else { "" }
    );
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let description = match Experiment::read(&file) {
            Ok((experiment, _)) => format!(
                "{} ({}; --quick {})",
                experiment.title,
                about(&experiment),
                about(&experiment.clone().quick())
            ),
            Err(report) => report.summaries().into_iter().next().unwrap_or_default(),
        };
        let _ = writeln!(text, "  {name:<20}  {description}");
    }
    let folders: Vec<Results> = entries(results).iter().filter_map(|path| Results::open(path).ok()).collect();
    let _ =
        writeln!(text, "Results in {}{}", results.display(), if folders.is_empty() { ": none" } else { "" });
    for results in folders {
        let name = results.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (turns, planned) = (results.turns.len(), results.turns_planned());
        let state = if results.is_whole() {
            format!("{turns} turns")
        } else {
            format!("{turns} of {planned} turns, incomplete")
        };
        let _ = writeln!(text, "  {name:<20}  {} ({state})", results.metadata.experiment.title);
    }
    text
}

fn about(experiment: &Experiment) -> String {
    plan::estimate(experiment, &plan::planned_turns(experiment))
        .map_or_else(|| "unknown duration".into(), |time| format!("about {}", span(time)))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.take(ENTRIES_MAX).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_and_results_are_listed_with_their_state() {
        let root = tempfile::tempdir().unwrap();
        let [experiments, folders] = ["experiments", "results"].map(|name| root.path().join(name));
        assert!(
            list(&experiments, &folders).contains("experiments: none\n"),
            "directories that do not exist"
        );
        std::fs::create_dir_all(&experiments).unwrap();
        let text = "title: Good\nprovider: { path: /delay/0.1 }\nscenarios: [{ name: a }]\nrounds: 2\n\
            client: { requests: 1000, warm_up_requests: 0 }\nquick: { rounds: 1 }\n";
        std::fs::write(experiments.join("good.yaml"), text).unwrap();
        std::fs::write(experiments.join("bad.yaml"), "titel: x\n").unwrap();
        std::fs::write(experiments.join("notes.txt"), "").unwrap();
        let synthetic = crate::fixture::results(text, 1.0, |_, _, _, _| 1.0);
        Results::create(
            &folders.join("first"),
            synthetic.metadata,
            text,
            &std::collections::BTreeMap::default(),
        )
        .unwrap();
        let listed = list(&experiments, &folders);
        let lines: Vec<&str> = listed.lines().collect();
        assert!(lines[1].starts_with("  bad.yaml") && lines[1].contains("unknown key `titel`"), "{listed}");
        assert_eq!(lines[2], "  good.yaml             Good (about 3 s; --quick about 1 s)");
        assert_eq!(lines[4], "  first.partial         Good (0 of 2 turns, incomplete)");
        assert_eq!(lines.len(), 5, "{listed}");
    }
}
