//! Streams of language models in the lab: the delay of each event, the quota that meters them, and gateways
//! with paths of their own.

use std::path::{Path, PathBuf};

use egret_tests::bench::{bench, count, summary};
use egret_tests::built_in::BuiltIn;
use egret_tests::egret::egret;
use egret_tests::process::{Directory, run};
use serde_json::Value;

/// Writes an experiment that ships, with its configs, after these replacements in all of them.
fn shipped(directory: &Directory, name: &str, replacements: &[(&str, &str)]) -> PathBuf {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let files = [name, "configs/no-flow.yaml", "configs/with-token-quota.yaml"];
    let mut texts = files.map(|file| std::fs::read_to_string(experiments.join(file)).unwrap());
    for (old, new) in replacements {
        assert!(texts.iter().any(|text| text.contains(old)), "{old}");
        texts = texts.map(|text| text.replace(old, new));
    }
    std::fs::create_dir(directory.join("configs")).unwrap();
    files.iter().zip(texts).for_each(|(file, text)| std::fs::write(directory.join(file), text).unwrap());
    directory.join(name)
}

/// Runs an experiment with these arguments, and returns the folder with its results.
fn results(directory: &Directory, file: &Path, arguments: &[&str]) -> PathBuf {
    let out = directory.join("out");
    let ran = run(egret(["lab", "run", "--rounds", "1"]).args(arguments).arg(file).arg("--out").arg(&out));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    out
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn turn(results: &Path, name: &str) -> Value {
    json(&results.join(format!("turns/01-{name}/turn.json")))
}

#[test]
fn bench_measures_the_delays_of_events_and_misses_none() {
    let (provider, directory) = (BuiltIn::start(&[]), Directory::default());
    let body = directory.write("body.json", r#"{"stream":true}"#);
    let url = format!("http://{}/llm/anthropic/v1/messages?output=3", provider.address());
    let with = |url: &str| {
        ["--events", "-l", "-k", "-n", "4", "-c", "2", "-p", body.to_str().unwrap(), url].map(str::to_owned)
    };
    let stamped = with(&format!("{url}&stamp=true"));
    let result = summary(&stamped.each_ref().map(String::as_str));
    // Three events of text, three before them, and three after them.
    assert_eq!((count(&result, "/events"), count(&result, "/failed")), (36, 0), "{result}");
    assert!(count(&result, "/event_delay_us/max") >= count(&result, "/event_delay_us/p50"));
    let printed = bench(&stamped.each_ref().map(String::as_str)).well().printed;
    assert!(printed.contains("\n  event delay "), "{printed}");
    let plain = bench(&with(&url).each_ref().map(String::as_str));
    assert_eq!(plain.code, 1, "{}", plain.printed);
    assert!(plain.printed.contains("check x 4\n"), "{}", plain.printed);
}

#[test]
fn delays_of_events_are_held_to_those_of_the_provider() {
    let directory = Directory::default();
    let changes = [
        ("requests: 500, concurrency: 450", "requests: 20, concurrency: 5"),
        ("output=41&tokens_per_second=10&", "output=5&tokens_per_second=100&"),
    ];
    let file = shipped(&directory, "llm-events.yaml", &changes);
    let out = results(&directory, &file, &["--quick"]);
    for scenario in ["direct", "egret", "egret-metered"] {
        let turn = turn(&out, &format!("events-10-{scenario}"));
        // Beside the text: its beginning, its end, the usage, and `[DONE]`.
        assert_eq!(
            (&turn["event_delays"]["events"], &turn["failed"]),
            (&180.into(), &0.into()),
            "{scenario}"
        );
    }
    let held = json(&out.join("summary.json"))["held"].clone();
    let held: Vec<&Value> =
        held.as_array().unwrap().iter().filter(|held| held["beside"] == "direct").collect();
    assert_eq!(held.len(), 2, "{held:?}");
    for held in held {
        assert_eq!(
            (&held["figure"], &held["comparison"]),
            (&"event_delay_p99".into(), &"difference_us".into())
        );
    }
}

#[test]
fn the_metered_scenario_is_charged_for_the_tokens_of_its_streams() {
    let directory = Directory::default();
    // A call may begin beside 400 used tokens, and not beside 800: the third and the fourth may not.
    let changes = [
        ("limit: 1000000000000, window: 1m", "limit: 1400, window: 1h"),
        ("output=5000", "output=300"),
        ("output=10000", "output=300"),
        ("concurrency: 10", "concurrency: 1"),
        ("warm_up_requests: 10", "warm_up_requests: 0"),
        ("requests: 12", "requests: 4"),
    ];
    let file = shipped(&directory, "llm-streams.yaml", &changes);
    let out = results(&directory, &file, &["--quick"]);
    for case in ["openai", "anthropic"] {
        for (scenario, failed) in [("direct", 0), ("egret", 0), ("egret-metered", 2)] {
            let turn = turn(&out, &format!("{case}-{scenario}"));
            assert_eq!(
                (&turn["requests"], &turn["failed"]),
                (&4.into(), &failed.into()),
                "{case} {scenario}"
            );
        }
    }
}

#[test]
fn a_gateway_with_paths_of_its_own_gets_its_path_and_fields() {
    let directory = Directory::default();
    std::fs::create_dir(directory.join("configs")).unwrap();
    let config = include_str!("../../experiments/configs/no-flow.yaml");
    std::fs::write(directory.join("configs/no-flow.yaml"), config).unwrap();
    let file = directory.write(
        "paths.yaml",
        "title: A small run\nprovider: { path: '/llm/openai/v1/chat/completions?input=4&output=3' }\n\
         client: { requests: 6, concurrency: 2, warm_up_requests: 0, json: '{\"model\":\"m\"}' }\nscenarios:\n\
         \x20 - { name: direct }\n\
         \x20 - { name: own, egret: configs/no-flow.yaml, path: /llm/azure/openai/v1/chat/completions, headers: { x-llm: input=4&output=3 } }\n",
    );
    let out = results(&directory, &file, &[]);
    let [direct, own] = ["default-direct", "default-own"].map(|name| turn(&out, name));
    assert_eq!((&direct["failed"], &own["failed"]), (&0.into(), &0.into()));
    let tier = 6 * r#","service_tier":"default""#.len() as u64;
    let bytes = |turn: &Value| turn["bytes_body"].as_u64().unwrap();
    assert_eq!(bytes(&direct), bytes(&own) + tier, "the same answer, in OpenAI's form and in Azure's");
}
