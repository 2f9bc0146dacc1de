//! Tests of what is decided before the first turn: changes from the command line, programs, and cores.

use super::*;
use crate::fixture::experiment;

const TEXT: &str = "title: t\nprovider: {}\nscenarios: [{ name: a }, { name: b }]\nrounds: 9\n\
    client: { duration: 9s }\ncases: [{ name: one }, { name: two }, { name: three }]\n\
    quick: { rounds: 2, cases: [one], client: { duration: 1s } }\n";

/// All parts on this machine.
fn hosts() -> Hosts {
    Hosts::connect(&crate::config::MachinesConfig::default(), Path::new("/egret"), Path::new("/")).unwrap()
}

fn names(experiment: &Experiment) -> Vec<&str> {
    experiment.cases.iter().map(|case| case.name.as_str()).collect()
}

#[test]
fn named_cases_also_run_in_the_quick_profile() {
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
        leave_out(&mut experiment, &hosts()).map(|left_out| (left_out, experiment.scenarios.len()))
    };
    let (reasons, scenarios) = left_out("optional: true").unwrap();
    assert_eq!((reasons["x"].as_str(), scenarios), ("`no-such-program` is not installed", 1));
    let error = left_out("optional: false").unwrap_err().to_string();
    assert_eq!(error, "the scenario `x` needs `no-such-program`, which is not installed or not in PATH");
    let text = "title: t\nprovider: {}\nservices: { sums: { command: [no-such-sums] } }\n\
        scenarios: [{ name: direct }, { name: x, command: [sh], services: [sums], optional: true }]\n";
    let reasons = leave_out(&mut experiment(text), &hosts()).unwrap();
    assert_eq!(reasons["x"], "`no-such-sums` is not installed", "a service");
    let mut provider =
        experiment("title: t\nprovider: { kind: command, command: [no-such] }\nscenarios: [{ name: a }]\n");
    let error = leave_out(&mut provider, &hosts()).unwrap_err().to_string();
    assert!(error.starts_with("the provider needs `no-such`"), "{error}");
}

#[test]
fn needed_programs_follow_the_profile_and_the_cases() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("mine.yaml");
    let text = "title: t\nprovider: { kind: go-httpbin }\n\
        services: { redis: { kind: redis }, sums: { command: [sums] } }\n\
        cases: [{ name: kept, client: { kind: wrk, keep_alive: true, duration: 2s } }, { name: new, client: { kind: ab } }]\n\
        scenarios:\n\
        - { name: direct }\n\
        - { name: own, command: [\"@{egret}\", run], services: [redis] }\n\
        - { name: peer, command: [peer], services: [redis, sums], optional: true }\n\
        - { name: built, command: [./built] }\n\
        quick: { cases: [new], scenarios: [direct, own], client: { duration: 1s } }\n";
    std::fs::write(&file, text).unwrap();
    let needed = |quick: bool, cases: &[&str]| {
        let cases = cases.iter().map(ToString::to_string).collect();
        let needed = needs(&file, &Changes { quick, cases, ..Changes::default() });
        needed.map(|programs| Vec::from_iter(programs).join(" ")).map_err(|error| error.to_string())
    };
    assert_eq!(needed(false, &[]), Ok("ab go-httpbin peer redis-server sums wrk".into()));
    assert_eq!(needed(true, &[]), Ok("ab go-httpbin redis-server".into()));
    assert_eq!(needed(false, &["kept"]), Ok("go-httpbin peer redis-server sums wrk".into()));
    assert_eq!(needed(false, &["old"]), Err("there is no case `old`; the cases are kept, new".into()));
}

#[test]
fn a_baseline_is_never_left_out() {
    let text = "title: t\nprovider: {}\nbaseline: x\n\
        scenarios: [{ name: a }, { name: x, command: [no-such-program], optional: true }]\n";
    let error = leave_out(&mut experiment(text), &hosts()).unwrap_err().to_string();
    assert!(error.starts_with("the scenario `x` needs"), "{error}");
}

#[test]
fn a_new_run_stores_its_setup_before_the_first_turn() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("mine.yaml");
    let text = "title: t\nprovider: {}\nscenarios: [{ name: a }]\nrounds: 3\n";
    std::fs::write(&file, text).unwrap();
    let out = root.path().join("out");
    let run = Run::new(&file, &Changes::default(), Some(&out), Path::new("/no/egret"), "9.9").unwrap();
    let metadata = &run.results.metadata;
    assert_eq!(
        (metadata.name.as_str(), metadata.quick, metadata.here.as_path()),
        ("mine", false, root.path())
    );
    assert_eq!(metadata.versions["egret"], "egret 9.9");
    let stored = std::fs::read_to_string(root.path().join("out.partial/experiment.yaml")).unwrap();
    assert_eq!(stored, text);
    let resumed = Run::resume(&out, Path::new("/no/egret")).unwrap();
    assert_eq!(resumed.results.metadata.started.len(), 2);
    assert_eq!(resumed.results.turns_planned(), 3);
}

#[test]
fn the_parts_of_a_machine_share_its_cores() {
    let pinned = |parts: &[&str], cores: &[usize]| {
        let parts: Vec<(&str, &[usize])> = parts.iter().map(|part| (*part, cores)).collect();
        let cores: BTreeMap<String, usize> = pinned_together(&parts).into_iter().collect();
        ["client", "proxy", "provider"].map(|part| cores.get(part).copied())
    };
    let all = ["client", "proxy", "provider"];
    assert_eq!(pinned(&all, &[0]), [None; 3]);
    assert_eq!(pinned(&all, &[0, 1]), [Some(0), Some(1), Some(0)]);
    assert_eq!(pinned(&all, &[4, 5, 6]), [Some(4), Some(6), Some(5)]);
    assert_eq!(pinned(&["client", "provider"], &[0, 1]), [Some(0), None, Some(1)]);
    assert_eq!(pinned(&["proxy", "provider"], &[0, 1, 2]), [None, Some(2), Some(1)]);
    assert_eq!(pinned(&["proxy"], &[0, 1]), [None, Some(1), None]);

    let services = |cores: &[usize]| {
        let parts = ["client", "proxy", "provider", "services"].map(|part| (part, cores));
        let cores: BTreeMap<String, usize> = pinned_together(&parts).into_iter().collect();
        (cores.get("services").copied(), cores.get("provider").copied())
    };
    assert_eq!(services(&[0, 1]), (Some(0), Some(0)), "beside the client");
    assert_eq!(services(&[0, 1, 2]), (Some(1), Some(1)));
    assert_eq!(services(&[0, 1, 2, 3]), (Some(3), Some(1)));
}
