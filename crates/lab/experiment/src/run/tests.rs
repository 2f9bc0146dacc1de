//! Tests of what is decided before the first turn: changes from the command line, programs, and cores.

use super::*;
use crate::fixture::experiment;

const TEXT: &str = "title: t\nprovider: {}\nscenarios: [{ name: a }, { name: b }]\nrounds: 9\n\
    client: { duration: 9s }\ncases: [{ name: one }, { name: two }, { name: three }]\n\
    quick: { rounds: 2, cases: [one], client: { duration: 1s } }\n";

fn names(experiment: &Experiment) -> Vec<&str> {
    experiment.cases.iter().map(|case| case.name.as_str()).collect()
}

#[test]
fn cases_named_on_the_command_line_are_also_run_in_the_quick_profile() {
    let change = |quick: bool, cases: &[&str]| {
        let cases = cases.iter().map(ToString::to_string).collect();
        Changes { quick, cases, ..Changes::default() }.apply_to(experiment(TEXT)).unwrap()
    };
    assert_eq!(names(&change(false, &[])), ["one", "two", "three"]);
    assert_eq!(names(&change(true, &[])), ["one"]);
    let named = change(true, &["three", "two"]);
    assert_eq!((names(&named), named.rounds), (vec!["two", "three"], 2));
}

#[test]
fn rounds_and_seconds_override_the_profile() {
    let changes = Changes { quick: true, rounds: Some(4), seconds: Some(3), ..Changes::default() };
    let changed = changes.apply_to(experiment(TEXT)).unwrap();
    let client = changed.client(&changed.cases[0], &changed.scenarios[0]);
    assert_eq!(changed.rounds, 4);
    assert_eq!(client.amount, crate::client_settings::Amount::For(std::time::Duration::from_secs(3)));
    let unknown = Changes { cases: vec!["four".into()], ..Changes::default() };
    let error = unknown.apply_to(experiment(TEXT)).unwrap_err().to_string();
    assert_eq!(error, "there is no case `four`; the cases are one, two, three");
}

#[test]
fn only_an_optional_scenario_is_left_out_without_its_program() {
    let left_out = |scenario: &str| {
        let text = format!(
            "title: t\nprovider: {{}}\nscenarios: [{{ name: direct }}, {{ name: x, command: [no-such-program], {scenario} }}]\n"
        );
        let mut experiment = experiment(&text);
        leave_out(&mut experiment, Path::new("/")).map(|left_out| (left_out, experiment.scenarios.len()))
    };
    let (reasons, scenarios) = left_out("optional: true").unwrap();
    assert_eq!((reasons["x"].as_str(), scenarios), ("`no-such-program` is not installed", 1));
    let error = left_out("optional: false").unwrap_err().to_string();
    assert_eq!(error, "the scenario `x` needs `no-such-program`, which is not installed or not in PATH");
    let mut provider =
        experiment("title: t\nprovider: { kind: command, command: [no-such] }\nscenarios: [{ name: a }]\n");
    let error = leave_out(&mut provider, Path::new("/")).unwrap_err().to_string();
    assert!(error.starts_with("the provider needs `no-such`"), "{error}");
}

#[test]
fn a_baseline_is_never_left_out() {
    let text = "title: t\nprovider: {}\nbaseline: x\n\
        scenarios: [{ name: a }, { name: x, command: [no-such-program], optional: true }]\n";
    let error = leave_out(&mut experiment(text), Path::new("/")).unwrap_err().to_string();
    assert!(error.starts_with("the scenario `x` needs"), "{error}");
}

#[test]
fn the_version_of_a_program_is_its_first_line_with_a_digit() {
    let directory = tempfile::tempdir().unwrap();
    let version = |script: &str| version_output(Path::new("/bin/sh"), &["-c", script], directory.path());
    assert_eq!(version("echo usage; echo '  tool 1.2.3  '; echo 9"), Some("tool 1.2.3".into()));
    assert_eq!(version("echo tool 4 >&2; exit 1"), Some("tool 4".into()), "on either stream");
    assert_eq!(version("echo none"), None);
    let long = version("printf '1%.0s' $(seq 500)").unwrap();
    assert_eq!(long.len(), VERSION_CHARS_MAX);
    // siege prints the settings file that it creates in the home directory.
    assert_eq!(version("echo $HOME/1; echo v2"), Some("v2".into()));
}

#[test]
fn a_new_run_stores_its_setup_before_the_first_turn() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("mine.yaml");
    let text = "title: t\nprovider: {}\nscenarios: [{ name: a }]\nrounds: 3\n";
    std::fs::write(&file, text).unwrap();
    let out = root.path().join("out");
    let run = Run::new(&file, &Changes::default(), Some(&out), "/no/egret".into(), "9.9").unwrap();
    let metadata = &run.results.metadata;
    assert_eq!(
        (metadata.name.as_str(), metadata.quick, metadata.here.as_path()),
        ("mine", false, root.path())
    );
    assert_eq!(metadata.versions["egret"], "egret 9.9");
    let stored = std::fs::read_to_string(root.path().join("out.partial/experiment.yaml")).unwrap();
    assert_eq!(stored, text);
    let resumed = Run::resume(&out, "/no/egret".into()).unwrap();
    assert_eq!(resumed.results.metadata.started.len(), 2);
    assert_eq!(resumed.results.turns_planned(), 3);
}
