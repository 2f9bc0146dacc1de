//! Tests that a results folder is complete or recognizably not, and that a stopped run can be continued.

use super::*;
use crate::fixture;

const TEXT: &str = "title: t\nprovider: {}\nscenarios: [{ name: a }, { name: b }]\nrounds: 2\n";

/// A new results folder, and the turns that may be stored in it.
fn created(directory: &Path) -> (Results, Vec<Turn>) {
    let synthetic =
        fixture::results(TEXT, 1.0, |_, _, _, percent| f64::from(u32::try_from(percent).unwrap()));
    let configs = BTreeMap::from([("a.yaml".to_owned(), "gateway: {}".to_owned())]);
    let results = Results::create(directory, synthetic.metadata, TEXT, &configs).unwrap();
    (results, synthetic.turns)
}

fn store(results: &mut Results, turn: Turn) {
    let directory = results.start_turn(turn.round, &turn.case, &turn.scenario).unwrap();
    std::fs::write(directory.join("client.out"), "output").unwrap();
    results.keep_turn(&directory, turn).unwrap();
}

#[test]
fn a_stopped_run_is_read_back_and_completed() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("run");
    let (mut results, turns) = created(&directory);
    turns[..3].iter().for_each(|turn| store(&mut results, turn.clone()));
    // A turn that was started and not finished does not count.
    results.start_turn(2, "default", "b").unwrap();
    drop(results);
    let mut results = Results::open(&directory).unwrap();
    assert_eq!(results.directory, root.path().join("run.partial"));
    assert_eq!((results.turns.len(), results.turns_planned(), results.is_whole()), (3, 4, false));
    assert!(results.has(1, "default", "b") && !results.has(2, "default", "b"));
    assert_eq!(results.turns, turns[..3]);
    assert_eq!(results.configs().unwrap()["a.yaml"], "gateway: {}");
    store(&mut results, turns[3].clone());
    let finished = results.finish().unwrap();
    assert_eq!(finished.directory, directory);
    let reopened = Results::open(&directory).unwrap();
    assert!(reopened.is_whole() && reopened.metadata == finished.metadata);
    assert!(directory.join("turns/01-default-a/client.out").is_file());
}

#[test]
fn existing_results_are_never_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("run");
    let (results, _) = created(&directory);
    let metadata = results.metadata.clone();
    let again = || Results::create(&directory, metadata.clone(), TEXT, &BTreeMap::new());
    assert!(matches!(again(), Err(ResultsError::Exists(path)) if path == root.path().join("run.partial")));
    results.finish().unwrap();
    let error = again().unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("already exists: choose another folder with --out, or continue with --resume")
    );
    let empty = root.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(Results::create(&empty, metadata.clone(), TEXT, &BTreeMap::new()).is_ok());
}

#[test]
fn a_folder_of_another_kind_or_version_is_refused() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(Results::open(root.path()), Err(ResultsError::NotThere(_))));
    let directory = root.path().join("run");
    let (results, _) = created(&directory);
    let file = results.directory.join("metadata.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"version\": 1", "\"version\": 2", 1)).unwrap();
    let error = Results::open(&directory).unwrap_err().to_string();
    assert!(error.ends_with("has version 2, which this version of egret cannot read"), "{error}");
    std::fs::write(&file, "{").unwrap();
    let error = Results::open(&directory).unwrap_err().to_string();
    assert!(error.contains("not in the format of `egret lab run`"), "{error}");
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("a.json");
    write_json(&file, &[1, 2]).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "[\n  1,\n  2\n]\n");
    let error = write_whole(&root.path().join("none/a.json"), "").unwrap_err();
    assert!(matches!(error, ResultsError::Io { .. }), "{error}");
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1, "no temporary file is left");
    let full = ResultsError::Io { path: "a".into(), error: io::ErrorKind::StorageFull.into() };
    assert_eq!(full.to_string(), "a: the disk is full");
}

#[test]
fn the_figures_of_a_turn_are_per_request() {
    let mut turn = fixture::results(TEXT, 20.0, |_, _, _, _| 1.0).turns.remove(1);
    turn.figures.failed = 250;
    assert_eq!((turn.scenario.as_str(), turn.proxy_cpu_us()), ("b", Some(20.0)));
    assert!((turn.proxy_memory_mib().unwrap() - 8.0).abs() < 1e-9);
    assert!((turn.failed_share() - 0.25).abs() < 1e-9);
    // 1100 calls of the provider for 1000 requests; 490 admitted of 250 per second in 2 seconds.
    assert!((turn.calls_per_request().unwrap() - 1.1).abs() < 1e-9);
    assert!((turn.allowance_used().unwrap() - 0.98).abs() < 1e-9);
    assert_eq!((turn.percentile_ms(100), turn.percentile_ms(101)), (Some(1.0), None));
    turn.figures.requests = 0;
    assert!(turn.failed_share().is_finite() && turn.calls_per_request().unwrap().is_finite());
    turn.counted = None;
    assert_eq!((turn.calls_per_request(), turn.allowance_used()), (None, None));
}

#[test]
fn a_machine_is_busy_from_half_of_its_cores() {
    let mut metadata = fixture::results(TEXT, 1.0, |_, _, _, _| 1.0).metadata;
    assert_eq!(metadata.machine.cores, 2);
    for (load, busy) in [(0.0, false), (1.0, false), (1.01, true)] {
        metadata.load_average_before = load;
        assert_eq!(metadata.machine_was_busy(), busy, "{load}");
    }
}
