//! `egret lab run`: experiments from file to folder, stopped and resumed, and the messages of failures.

use std::path::{Path, PathBuf};
use std::process::Command;

use egret_tests::egret::egret;
use egret_tests::process::{Directory, Process, run};
use egret_tests::wait;
use serde_json::Value;

/// The config of an Egret that forwards traffic to the provider.
const NO_FLOW: &str = "gateway:\n  listen: [{ address: \"127.0.0.1:@{port}\", provider: api }]\n  workers: 1\n\
    control: { listen: \"127.0.0.1:@{control_port}\" }\n\
    providers: { api: { url: \"http://127.0.0.1:@{provider_port}\" } }\n";

/// Few enough requests for a test.
const SMALL: &str = "client: { kind: ab, requests: 60, concurrency: 5, warm_up_requests: 5 }\n";

/// Writes an experiment file beside the config that its scenarios may use.
fn experiment(directory: &Directory, text: &str) -> PathBuf {
    directory.write("no-flow.yaml", NO_FLOW);
    directory.write("small.yaml", format!("title: A small run\n{text}"))
}

fn lab(arguments: &[&Path]) -> Command {
    let mut command = egret(["lab", "run"]);
    command.args(arguments);
    command
}

/// Runs it. Returns exit code and output.
fn outcome(mut command: Command) -> (i32, String) {
    let output = run(&mut command);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn json(file: impl AsRef<Path>) -> Value {
    let text = std::fs::read_to_string(file.as_ref())
        .unwrap_or_else(|error| panic!("{}: {error}", file.as_ref().display()));
    serde_json::from_str(&text).unwrap()
}

/// Returns the names of the turns in a folder.
fn turns(results: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(results.join("turns")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.ends_with(".partial"));
    names.sort();
    names
}

#[test]
fn a_run_leaves_a_folder_that_says_what_was_under_test() {
    let directory = Directory::default();
    let file = experiment(
        &directory,
        &format!(
            "provider: {{ path: /get }}\n{SMALL}rounds: 2\nscenarios: [{{ name: direct }}, {{ name: no-flow, egret: no-flow.yaml }}]\n"
        ),
    );
    let out = directory.join("out");
    let (code, stderr) = outcome(lab(&[&file, "--out".as_ref(), &out]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("2 scenarios, 2 rounds: 4 turns") && stderr.contains(" left"), "{stderr}");
    assert_eq!(
        turns(&out),
        ["01-default-direct", "01-default-no-flow", "02-default-direct", "02-default-no-flow"]
    );
    assert!(!directory.join("out.partial").exists());

    let metadata = json(out.join("metadata.json"));
    assert_eq!(metadata["experiment"]["title"], "A small run");
    assert!(metadata["versions"]["ab"].as_str().unwrap().contains("ApacheBench"), "{metadata}");
    assert!(metadata["machine"]["kernel"].as_str().unwrap().starts_with("Linux "));
    assert!(metadata["ended"].is_string() && metadata["load_average_before"].is_number());

    let turn = json(out.join("turns/02-default-no-flow/turn.json"));
    assert_eq!((&turn["requests"], &turn["failed"]), (&60.into(), &0.into()));
    assert_eq!(turn["percentiles_ms"].as_array().unwrap().len(), 101);
    for part in ["client", "provider", "proxy"] {
        let cpu = &turn["processes"][part]["cpu_us_per_request"];
        assert!(part == "client" || cpu.is_number(), "{part}: {turn}");
    }
    assert!(turn["processes"]["proxy"]["memory_bytes_max"].as_u64().unwrap() > 1 << 20);
    let log = std::fs::read_to_string(out.join("turns/02-default-no-flow/proxy.log")).unwrap();
    assert!(log.contains("gateway listening"), "{log}");
    let csv = std::fs::read_to_string(out.join("percentiles/default-no-flow.csv")).unwrap();
    assert!(csv.starts_with("Percentage served,Time in ms\n0,") && csv.lines().count() == 102, "{csv}");
    assert_eq!(json(out.join("summary.json"))["cases"][0]["scenarios"][1]["rounds"], 2);
    assert_eq!(std::fs::read_to_string(out.join("configs/no-flow.yaml")).unwrap(), NO_FLOW);
}

#[test]
fn only_the_gateway_is_kept_from_huge_pages() {
    let directory = Directory::default();
    let file = experiment(
        &directory,
        "provider: { path: /delay/0.1 }\nclient: { kind: bench, requests: 2000, concurrency: 5, warm_up_requests: 0 }\nrounds: 1\n\
         scenarios: [{ name: no-flow, egret: no-flow.yaml }]\n",
    );
    let out = directory.join("out");
    let mut lab = Process::start(&mut lab(&[&file, "--out".as_ref(), &out]));
    let enabled = |id: &str| {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("THP_enabled:")?.trim().parse::<u8>().ok())
    };
    // Returns the command of each child, and if it may use huge pages.
    let children = || -> Vec<(String, Option<u8>)> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", lab.id())).into_iter().flatten().flatten();
        let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let ids: Vec<String> =
            lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
        let command = |id: &String| {
            let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.split('\0').nth(1).unwrap_or_default().to_owned()
        };
        ids.iter().map(|id| (command(id), enabled(id))).collect()
    };
    wait::until(
        "the gateway, the provider and the client run, each with the pages that it should have",
        || {
            let children = children();
            let has = |command: &str, pages: u8| children.contains(&(command.to_owned(), Some(pages)));
            (has("run", 0) && has("provider", 1) && has("bench", 1)).then_some(())
        },
    );
    assert_eq!(enabled(&lab.id().to_string()), Some(1), "the lab itself");
    // It stops its parts, which a kill would leave behind.
    lab.signal("INT");
    lab.until_ended();
}

#[test]
fn other_proxies_providers_and_clients_take_part() {
    let directory = Directory::default();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments");
    let nginx = "[nginx, -e, stderr, -p, \"@{directory}\", -c, \"@{config}\"]";
    let file = experiment(
        &directory,
        &format!(
            "provider: {{ kind: command, command: {nginx}, config: {shipped}/configs/file-provider.conf }}\n\
             client: {{ concurrency: 5, warm_up_requests: 10 }}\nrounds: 1\n\
             cases: [{{ name: wrk, client: {{ kind: wrk, keep_alive: true, duration: 2s }} }}, {{ name: siege, client: {{ kind: siege, requests: 50, deadline: 1m }} }}]\n\
             scenarios:\n  - {{ name: nginx, command: {nginx}, config: {shipped}/configs/nginx.conf }}\n\
             \x20 - {{ name: nobody, command: [no-such-proxy], optional: true }}\n"
        ),
    );
    std::fs::create_dir(directory.join("www")).unwrap();
    std::fs::copy(format!("{shipped}/www/110.txt"), directory.join("www/110.txt")).unwrap();
    let out = directory.join("out");
    let (code, stderr) = outcome(lab(&[&file, "--out".as_ref(), &out]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("left out: nobody (`no-such-proxy` is not installed)"), "{stderr}");
    let wrk = json(out.join("turns/01-wrk-nginx/turn.json"));
    // wrk counts a response that took over 2 s as a failure: at most one of each connection.
    let failed = wrk["failed"].as_u64().unwrap();
    assert!(wrk["requests_per_second"].as_f64().unwrap() > 0.0 && failed <= 5, "{wrk}");
    assert_eq!(wrk["percentiles_ms"].as_array().unwrap().len(), 101);
    let siege = json(out.join("turns/01-siege-nginx/turn.json"));
    assert!(siege["requests"].as_u64().unwrap() > 0 && siege["failed"] == 0, "{siege}");
    assert_eq!(siege["percentiles_ms"].as_array().unwrap().len(), 0);
    assert!(wrk["processes"]["proxy"]["cpu_s"].as_f64().unwrap() > 0.0, "{wrk}");
}

#[test]
fn a_provider_that_speaks_tls_is_reached_straight_and_through_a_proxy() {
    let directory = Directory::default();
    let config = NO_FLOW.replace(
        "\"http://127.0.0.1:@{provider_port}\"",
        "\"https://localhost:@{provider_port}\", tls: { ca: \"@{provider_ca}\" }",
    );
    directory.write("tls.yaml", config);
    let file = experiment(
        &directory,
        &format!(
            "provider: {{ arguments: [--tls, --tls-ca, \"@{{provider_ca}}\", --rtt, 20ms], path: /get, tls: true }}\n{SMALL}rounds: 1\n\
             scenarios: [{{ name: direct }}, {{ name: bench, client: {{ kind: bench }} }}, {{ name: no-flow, egret: tls.yaml }}]\n"
        ),
    );
    let out = directory.join("out");
    let (code, stderr) = outcome(lab(&[&file, "--out".as_ref(), &out]));
    assert_eq!(code, 0, "{stderr}");
    let p50 = |scenario: &str| {
        json(out.join(format!("turns/01-default-{scenario}/turn.json")))["percentiles_ms"][50]
            .as_f64()
            .unwrap()
    };
    // Three round trips plus the exchange, and the exchange alone.
    let (direct, pooled) = (p50("direct"), p50("no-flow"));
    assert!(direct >= 60.0 && pooled >= 20.0, "{direct} and {pooled}");
    // Every client accepts the certificate, although no system authority has signed it.
    assert!(p50("bench") >= 60.0, "{}", p50("bench"));
}

#[test]
fn a_wrong_file_is_refused_with_its_place_before_anything_starts() {
    let directory = Directory::default();
    let out = directory.join("out");
    let file = experiment(&directory, "provider: {}\nscenarois: [{ name: direct }]\nrounds: many\n");
    let (code, stderr) = outcome(lab(&[&file, "--out".as_ref(), &out]));
    assert_eq!(code, 2, "{stderr}");
    for received in [
        "small.yaml:3:1: scenarois: unknown key",
        "did you mean `scenarios`?",
        "small.yaml:4:9: rounds: expected",
    ] {
        assert!(stderr.contains(received), "{received:?} is not in\n{stderr}");
    }
    assert_eq!(outcome(lab(&[Path::new("/no/such.yaml")])).0, 2);
    assert_eq!(outcome(lab(&[])).0, 2);
    assert!(!out.exists() && !directory.join("out.partial").exists());
}

#[test]
fn an_existing_directory_is_not_overwritten() {
    let directory = Directory::default();
    let file = experiment(&directory, &format!("provider: {{}}\n{SMALL}scenarios: [{{ name: direct }}]\n"));
    let kept = directory.write("kept", "mine");
    let (code, stderr) = outcome(lab(&[&file, "--out".as_ref(), kept.parent().unwrap()]));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("already exists"), "{stderr}");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "mine");
}

#[test]
fn a_proxy_that_does_not_start_is_quoted() {
    let directory = Directory::default();
    let file = experiment(
        &directory,
        &format!(
            "provider: {{}}\n{SMALL}rounds: 1\nscenarios:\n  - {{ name: direct }}\n\
             \x20 - {{ name: broken, command: [sh, -c, \"echo no such option: --fast >&2; exit 3\"] }}\n"
        ),
    );
    let out = directory.join("out");
    let (code, stderr) = outcome(lab(&[&file, "--out".as_ref(), &out]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("the proxy of `broken` did not start (exit status: 3)"), "{stderr}");
    assert!(
        stderr.contains("no such option: --fast") && stderr.contains("1 of 2 turns are stored"),
        "{stderr}"
    );
    assert!(!out.exists(), "it looks whole");
    assert_eq!(turns(&directory.join("out.partial")), ["01-default-direct"]);
    let missing =
        experiment(&directory, "provider: {}\nscenarios: [{ name: x, command: [no-such-proxy] }]\n");
    let (code, stderr) = outcome(lab(&[&missing, "--out".as_ref(), &directory.join("never")]));
    assert_eq!(code, 1);
    assert!(stderr.contains("the scenario `x` needs `no-such-proxy`, which is not installed"), "{stderr}");
    assert!(!directory.join("never.partial").exists());
}

#[test]
fn a_provider_that_responds_with_errors_is_told_before_it_is_measured() {
    let directory = Directory::default();
    let file = experiment(
        &directory,
        &format!("provider: {{ path: /status/503 }}\n{SMALL}scenarios: [{{ name: direct }}]\n"),
    );
    let (code, stderr) = outcome(lab(&[&file, "--out".as_ref(), &directory.join("out")]));
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("failures in a warm-up of") && stderr.contains("/status/503: is the path right?"),
        "{stderr}"
    );
}

#[test]
fn a_provider_that_dies_while_it_is_measured_ends_the_run() {
    let directory = Directory::default();
    let file = experiment(
        &directory,
        "provider:\n  kind: command\n  path: /delay/0.2\n\
         \x20 command: [sh, -c, 'echo $$ > \"@{here}/pid\"; exec \"@{egret}\" provider --listen 127.0.0.1:@{port}']\n\
         client: { kind: ab, requests: 2000, concurrency: 5, warm_up_requests: 0 }\nrounds: 1\nscenarios: [{ name: direct }]\n",
    );
    let out = directory.join("out");
    let mut lab = Process::start(&mut lab(&[&file, "--out".as_ref(), &out]));
    let partial = directory.join("out.partial");
    wait::until_true("it is measured", || {
        partial.join("turns/01-default-direct.partial/measured/client.out").exists()
    });
    let pid = std::fs::read_to_string(directory.join("pid")).unwrap();
    assert!(run(Command::new("sh").args(["-c", &format!("kill -9 {pid}")])).status.success());
    assert_eq!(lab.until_ended().code(), Some(1));
    let stderr = lab.stderr();
    assert!(stderr.contains("the provider ended during the measurement (signal: 9"), "{stderr}");
    assert!(stderr.contains("0 of 1 turns are stored") && !out.exists(), "{stderr}");
    assert_eq!(turns(&partial), Vec::<String>::new());
}

#[test]
fn a_run_that_is_interrupted_keeps_whole_turns_and_goes_on() {
    let directory = Directory::default();
    // The provider of the first turn is quick. That of the second one responds after an hour, so the turn
    // goes on until it is interrupted.
    let file = experiment(
        &directory,
        "provider:\n  kind: command\n  path: /delay/constant:1h\n\
         \x20 command: [sh, -c, 'max=$(cat \"@{here}/max\"); cp \"@{here}/next\" \"@{here}/max\"; exec \"@{egret}\" provider --listen 127.0.0.1:@{port} --max-duration $max']\n\
         client: { kind: ab, requests: 100, concurrency: 5, warm_up_requests: 0 }\n\
         rounds: 3\nscenarios: [{ name: direct }]\n",
    );
    let longest = |max: &str, next: &str| {
        directory.write("max", max);
        directory.write("next", next);
    };
    longest("50ms", "1h");
    let (out, partial) = (directory.join("out"), directory.join("out.partial"));
    let mut stopped = Process::start(&mut lab(&[&file, "--out".as_ref(), &out]));
    wait::until_true("a turn is kept", || partial.join("turns/01-default-direct").exists());
    stopped.signal("INT");
    assert_eq!(stopped.until_ended().code(), Some(1));
    let stderr = stopped.stderr();
    let kept = turns(&partial).len();
    assert!(
        stderr.contains(&format!(
            "Stopped: {kept} of 3 turns are stored; continue with: egret lab run --resume "
        )),
        "{stderr}"
    );
    assert!(kept < 3 && !out.exists());
    let first = json(partial.join("turns/01-default-direct/turn.json"));

    longest("50ms", "50ms");
    let (code, stderr) = outcome(lab(&["--resume".as_ref(), &partial]));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(turns(&out).len(), 3);
    assert_eq!(json(out.join("turns/01-default-direct/turn.json")), first);
    assert_eq!(json(out.join("metadata.json"))["started"].as_array().unwrap().len(), 2);
    assert!(!partial.exists());
    let whole = run(egret(["lab", "list", "--experiments"])
        .arg(directory.path())
        .arg("--results")
        .arg(directory.path()));
    let listed = String::from_utf8(whole.stdout).unwrap();
    assert!(listed.contains("A small run (3 turns)") && listed.contains("small.yaml"), "{listed}");
}

#[test]
fn a_full_disk_is_told_and_nothing_looks_whole() {
    let directory = Directory::default();
    let file = experiment(
        &directory,
        &format!("provider: {{}}\n{SMALL}rounds: 1\nscenarios: [{{ name: direct }}]\n"),
    );
    let (out, partial) = (directory.join("out"), directory.join("out.partial"));
    let (code, _) = outcome(lab(&[&file, "--out".as_ref(), &out]));
    assert_eq!(code, 0);
    // The device accepts no bytes, like a full disk; it is the target of the last write of a run.
    std::fs::rename(&out, &partial).unwrap();
    std::fs::remove_dir_all(partial.join("turns/01-default-direct")).unwrap();
    let before = std::fs::read(partial.join("metadata.json")).unwrap();
    std::os::unix::fs::symlink("/dev/full", partial.join("metadata.json.partial")).unwrap();
    let (code, stderr) = outcome(lab(&["--resume".as_ref(), &partial]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("metadata.json: the disk is full"), "{stderr}");
    assert!(!out.exists() && std::fs::read(partial.join("metadata.json")).unwrap() == before);
    assert_eq!(outcome(lab(&["--resume".as_ref(), &partial])).0, 0);
    assert!(out.exists());
}

#[test]
fn cases_and_rounds_are_chosen_on_the_command_line() {
    let directory = Directory::default();
    let text = format!(
        "provider: {{ path: /get }}\n{SMALL}scenarios: [{{ name: direct }}]\ncases: [{{ name: one }}, {{ name: two }}]\n\
         quick: {{ cases: [one], rounds: 1 }}\n"
    );
    let file = experiment(&directory, &text);
    let chosen = |words: &[&str], out: &str| {
        let mut command = lab(&[&file, "--out".as_ref(), &directory.join(out)]);
        command.args(words);
        outcome(command)
    };
    let (code, stderr) = chosen(&["--quick", "--case", "two", "--rounds", "2"], "out");
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(turns(&directory.join("out")), ["01-two-direct", "02-two-direct"]);
    let (code, stderr) = chosen(&["--case", "three"], "none");
    assert!(code == 2 && stderr.contains("there is no case `three`; the cases are one, two"), "{stderr}");
    assert!(!directory.join("none.partial").exists());
}

#[test]
fn a_proxy_is_reached_over_tls_and_through_a_tunnel() {
    let directory = Directory::default();
    let provider = "control: { listen: \"127.0.0.1:@{control_port}\" }\n\
        providers: { api: { url: \"https://localhost:@{provider_port}\", tls: { ca: \"@{provider_ca}\" } } }\n";
    let tls = "secrets: { world_readable: allow }\ngateway:\n  listen:\n    - address: \"127.0.0.1:@{port}\"\n      provider: api\n      \
        tls: { certificate: \"@{certificate}\", key: \"${file:@{key}}\" }\n";
    let intercepts = "gateway: { listen: [\"127.0.0.1:@{port}\"] }\ninterception: { hosts: [localhost] }\n";
    directory.write("tls.yaml", format!("{tls}{provider}"));
    directory.write("intercepts.yaml", format!("{intercepts}{provider}"));
    let file = experiment(
        &directory,
        "provider: { arguments: [--tls, --tls-ca, '@{provider_ca}'], path: /get, tls: true }\n\
         client: { requests: 60, concurrency: 5, warm_up_requests: 5 }\nrounds: 1\n\
         cases: [{ name: new }, { name: again, scenarios: [tls, tunnel], client: { resume: true } }]\n\
         scenarios: [{ name: direct }, { name: tls, egret: tls.yaml, reach: tls }, \
         { name: tunnel, egret: intercepts.yaml, reach: tunnel }]\n\
         hold: [{ scenario: tunnel, cases: [again], figures: [resumed_share], at_least: 0.9 }, \
         { scenario: tls, beside: [tls], figures: [requests_per_cpu_second], at_least: 1 }]\n",
    );
    let out = directory.join("out");
    let mut command = lab(&[&file, "--out".as_ref(), &out]);
    command.arg("--hold");
    let (code, stderr) = outcome(command);
    assert_eq!(code, 0, "{stderr}");
    let expected = ["01-again-tls", "01-again-tunnel", "01-new-direct", "01-new-tls", "01-new-tunnel"];
    assert_eq!(turns(&out), expected);
    for name in expected {
        let turn = json(out.join("turns").join(name).join("turn.json"));
        assert_eq!((&turn["requests"], &turn["failed"]), (&60.into(), &0.into()), "{name}");
        let resumed = turn["resumed"].as_u64().unwrap();
        assert!(if name.contains("again") { resumed >= 55 } else { resumed == 0 }, "{name}: {resumed}");
        let key = std::fs::read_to_string(out.join("turns").join(name).join("proxy-tls.yaml"));
        assert!(!key.unwrap_or_default().contains("PRIVATE KEY"), "{name}");
    }
}
