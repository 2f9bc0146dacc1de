//! Lists experiments and results.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::clock::span;
use super::config::Experiment;
use super::plan;
use super::results::Results;

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
        let told = match Experiment::read(&file) {
            Ok((experiment, _)) => format!(
                "{} ({}; --quick {})",
                experiment.title,
                about(&experiment),
                about(&experiment.clone().quick())
            ),
            Err(report) => report.summaries().into_iter().next().unwrap_or_default(),
        };
        let _ = writeln!(text, "  {name:<20}  {told}");
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
    plan::estimate(experiment, &plan::steps(experiment))
        .map_or_else(|| "unknown duration".into(), |time| format!("about {}", span(time)))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.take(ENTRIES_MAX).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
