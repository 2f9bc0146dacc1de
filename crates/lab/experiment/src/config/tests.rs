//! Tests of the experiment file and of the messages for its mistakes.

use super::*;

fn report(text: &str) -> String {
    Experiment::parse("e.yaml", text, Path::new("/no/such")).unwrap_err().to_string()
}

#[test]
fn the_smallest_experiment_asks_directly_with_the_published_numbers() {
    let text = "title: t\nprovider: {}\nscenarios: [{ name: direct }]\n";
    let experiment = Experiment::parse("e.yaml", text, Path::new(".")).unwrap();
    let client = experiment.client(&experiment.cases[0], &experiment.scenarios[0]);
    assert_eq!(
        (client.amount, client.concurrency, client.warm_up_requests),
        (Amount::Requests(100_000), 100, 1_000)
    );
    assert!(!client.keep_alive && client.kind == ClientKind::Bench);
    assert_eq!((experiment.baseline(), experiment.rounds), ("direct", 7));
}

#[test]
fn quick_changes_what_it_names_and_the_amount_is_one_setting() {
    let text = "title: t\nprovider: {}\nscenarios: [{ name: a }, { name: b }]\nrounds: 9\n\
        client: { duration: 10s, concurrency: 7, keep_alive: true }\n\
        cases: [{ name: one }, { name: two, client: { kind: wrk } }]\n\
        quick: { rounds: 2, cases: [one], client: { requests: 500 } }\n";
    let full = Experiment::parse("e.yaml", text, Path::new(".")).unwrap_err().to_string();
    assert!(full.contains("quick.client.kind: wrk does not support a number of requests"), "{full}");
    let text = text.replace("kind: wrk", "requests_per_second: 50");
    let quick = Experiment::parse("e.yaml", &text, Path::new(".")).unwrap().quick();
    assert_eq!((quick.rounds, quick.cases.len()), (2, 1));
    let client = quick.client(&quick.cases[0], &quick.scenarios[0]);
    assert_eq!((client.amount, client.concurrency), (Amount::Requests(500), 7));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of mistakes")]
fn mistakes_are_told_with_their_place_and_what_was_meant() {
    for (text, expected) in [
        (
            "titel: t\nprovider: {}\nscenarios: [{ name: direct }]\n",
            "e.yaml:1:1: titel: unknown key `titel`; did you mean `title`?",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: direct }]\nclient: { kind: abb }\n",
            "e.yaml:4:17: client.kind: expected one of `bench`, `ab`, `siege`, `wrk`, `oha`, `h2load`, found `abb`; did you mean `ab`?",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: direct }]\nbaseline: drect\n",
            "e.yaml:4:11: baseline: there is no scenario `drect`; did you mean `direct`?",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, command: [nginx, '@{prot}'] }]\n",
            "e.yaml:3:41: scenarios[0].command[1]: unknown placeholder `@{prot}`; did you mean `port`?",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, egret: no.yaml }]\n",
            "e.yaml:3:31: scenarios[0].egret: /no/such/no.yaml: there is no such file",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: No Flow }]\n",
            "e.yaml:3:21: scenarios[0].name: `No Flow` is not a valid name",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x }]\nclient: { requests: 10, concurrency: 20 }\n",
            "e.yaml:4:38: client.concurrency: 20 connections for 10 requests",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x }]\nclient: { kind: ab, requests_per_second: 5 }\n",
            "client.requests_per_second: ab does not support a fixed rate: only `bench` does",
        ),
        (
            "title: t\nprovider: { path: '/delay/@{delay_s}' }\nscenarios: [{ name: x }]\n",
            "the path has `@{delay_s}`, so the case needs a `delay`",
        ),
        ("title: t\nprovider: {}\nscenarios: []\n", "scenarios: at least one is required"),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, command: [y], services: [rdis] }]\nservices: { redis: { kind: redis } }\n",
            "e.yaml:3:49: scenarios[0].services[0]: there is no service `rdis`; did you mean `redis`?",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, command: [y, '@{redis_port}'] }]\nservices: { redis: { kind: redis } }\n",
            "scenarios[0].command[1]: unknown placeholder `@{redis_port}`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x }]\nservices: { proxy: { kind: redis } }\n",
            "services.proxy: a service cannot be called `proxy`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x }]\nservices: { a: { command: [b], environment: { P: '@{prt}' } } }\n",
            "services.a.environment.P: unknown placeholder `@{prt}`; did you mean `port`?",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, instances: 2 }]\n",
            "scenarios[0].instances: requires a proxy that the lab starts",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, command: [y], instances: 9 }]\n",
            "scenarios[0].instances: expected a number from 1 to 8",
        ),
        (
            "title: t\nprovider: {}\nclient: { kind: ab }\nscenarios: [{ name: x, command: [y], instances: 2 }]\n",
            "scenarios[0].instances: ab sends requests to one proxy only: only `bench` spreads them",
        ),
        (
            "title: t\nprovider: { kind: command }\nscenarios: [{ name: x }]\n",
            "`command` requires the key `command`",
        ),
        ("title: t\nprovider: {}\nscenarios: [{ name: x }, { name: x }]\n", "duplicate name `x`"),
        (
            "title: t\nprovider: { kind: command, command: [x], files: { ../a: 1B, b: 1GiB } }\nscenarios: [{ name: a }]\n",
            "a file name may contain letters, digits, `-`, `_` and `.`",
        ),
        (
            "title: t\nprovider: { kind: command, command: [x], files: { b: 1GiB } }\nscenarios: [{ name: a }]\n",
            "provider.files.b: more than 64 MiB",
        ),
        (
            "title: t\nprovider: { files: { b: 1MiB } }\nscenarios: [{ name: a }]\n",
            "provider.files: requires `kind: command`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }]\nclient: { kind: siege, body: 1KiB }\n",
            "client.body: not supported with siege, which only sends GET here",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }]\ncases: [{ name: hot }]\ntables: [{ title: t, loaded: hto, at_rate: hot }]\n",
            "e.yaml:5:30: tables[0].loaded: there is no case `hto`; did you mean `hot`?",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }]\ncases: [{ name: hot }]\ntables: [{ title: t, cases: [hto], figures: [goodput] }]\n",
            "tables[0].cases[0]: there is no case `hto`; did you mean `hot`?",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }]\ncases: [{ name: hot }]\ntables: [{ title: t, cases: [hot] }]\n",
            "tables[0]: a table has either `loaded` and `at_rate`, or `cases` and `figures`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }]\nhold: [{ scenario: a, beside_case: c, figures: [p50], at_most: 1 }]\n",
            "hold[0].beside_case: there is no case `c`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }]\nhold: [{ scenario: a, beside: [a], beside_case: default, figures: [p50], at_most: 1 }]\n",
            "hold[0].beside_case: a figure is compared with other scenarios, or with another case",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }, { name: b }]\nhold: [{ scenario: a, beside: [c], figures: [p50], at_most: 1 }]\n",
            "e.yaml:4:32: hold[0].beside[0]: there is no scenario `c`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }]\nhold: [{ scenario: a, beside: [a], figures: [p50] }]\n",
            "hold[0]: exactly one bound is required",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }]\nhold: [{ scenario: a, beside: [a], figures: [proxy_cpu], added_ms_at_most: 1 }]\n",
            "hold[0].figures: `within` and `added_ms_at_most` apply only to response times",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }]\nhold: [{ scenario: a, figures: [p50], added_ms_at_most: 1 }]\n",
            "hold[0]: `within`, `added_ms_at_most` and `added_us_at_most` require the key `beside`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a }]\nhold: [{ scenario: a, beside: [a], figures: [p50], added_us_at_most: 1 }]\n",
            "hold[0].figures: `added_us_at_most` applies only to figures in µs",
        ),
        (
            "title: t\nprovider: { tls: true }\nscenarios: [{ name: a }]\nhold: [{ scenario: a, figures: [provider_refused], at_most: 0 }]\n",
            "hold[0].figures: only the built-in provider has counters",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: a, client: { kind: ab, threads: 2 } }]\n",
            "scenarios[0].client.threads: ab does not support several threads",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x }]\nrounds: 0\n",
            "expected a number from 1 to 1000, found `0`",
        ),
    ] {
        let report = report(text);
        assert!(report.contains(expected), "\n{report}\n--- is not\n{expected}\n");
    }
}

#[test]
fn mistakes_in_machines_and_urls_are_told_with_their_place() {
    for (text, expected) in [
        (
            "title: t\nprovider: {}\nscenarios: [{ name: direct }]\non: { client: { ssh: -x } }\n",
            "e.yaml:4:22: on.client.ssh: must not start with `-`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: direct }]\non: { client: { ssh: me@c } }\n",
            "e.yaml:4:1: on: `provider.address` is required: the client runs on another machine and connects to it",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, url: 'https://proxy' }]\n",
            "e.yaml:3:29: scenarios[0].url: expected a URL that starts with `http://`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, url: '${env:A}-${env:B}' }]\n",
            "e.yaml:3:29: scenarios[0].url: expected a URL or exactly `${env:NAME}`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, url: 'http://h', command: [nginx] }]\n",
            "scenarios[0].url: cannot be combined with `egret`, `command` or `config`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x }]\nclient: { kind: ab, json: '{}' }\n",
            "client.json: requires `bench` and `http1` or `http2`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x }]\nclient: { json: '{}', body: 1KiB }\n",
            "client.json: set either `json` or `body`, not both",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x }]\nclient: { events: true, protocol: http2 }\n",
            "client.events: requires `bench` and `http1`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x }]\nclient: { events: true }\n\
             on: { client: { ssh: me@c }, provider: { address: 10.0.0.1 } }\n",
            "on: `events` compares the clocks of client and provider: they need the same machine",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, path: '/@{delay_s}' }]\n",
            "cases[0]: the path has `@{delay_s}`, so the case needs a `delay`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, url: 'http://h', headers: { 'a b': c } }]\n",
            "scenarios[0].headers.a b: expected the name of a header field other than `host`",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, url: 'http://h', headers: { a: \"b\\r\\nc: d\" } }]\n",
            "scenarios[0].headers.a: a value has at most 1,024 bytes and no control characters",
        ),
        (
            "title: t\nprovider: {}\nscenarios: [{ name: x, url: 'http://h', headers: { a: '@{prot}' } }]\n",
            "scenarios[0].headers.a: unknown placeholder `@{prot}`; did you mean `port`?",
        ),
    ] {
        let report = report(text);
        assert!(report.contains(expected), "\n{report}\n--- is not\n{expected}\n");
    }
}

#[test]
fn every_experiment_that_ships_is_good_and_quick_within_two_minutes() {
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../experiments"));
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let (experiment, _) = Experiment::read(&file).unwrap_or_else(|report| panic!("{report}"));
        let cases = experiment.cases.len();
        let quick = experiment.quick();
        let name = file.file_stem().unwrap().to_str().unwrap();
        if ["modes", "active-flow", "correlation", "lunar"].contains(&name) {
            assert!(quick.rounds >= 5 && quick.cases.len() == cases, "{name} gives a verdict on every case");
        }
        let planned_turns = crate::plan::planned_turns(&quick);
        let time = crate::plan::estimate(&quick, &planned_turns)
            .expect("what a quick run takes is known beforehand");
        // The rest of two minutes is left to a machine that starts processes slowly.
        assert!(time <= std::time::Duration::from_secs(105), "{}: {time:?}", file.display());
    }
}

#[test]
fn the_settings_of_a_scenario_override_a_cases_and_those_the_experiments() {
    let experiment = crate::fixture::experiment(
        "title: t\nprovider: {}\nclient: { requests: 1000, concurrency: 1, threads: 1, keep_alive: true }\n\
         cases: [{ name: c, client: { concurrency: 20, duration: 5s } }]\n\
         scenarios: [{ name: a }, { name: b, client: { concurrency: 300, keep_alive: false } }]\n",
    );
    let of = |scenario: usize| experiment.client(&experiment.cases[0], &experiment.scenarios[scenario]);
    let (a, b) = (of(0), of(1));
    // A number of requests and a duration are two forms of one setting.
    let five = Amount::For(std::time::Duration::from_secs(5));
    assert_eq!((a.amount, a.concurrency, a.keep_alive), (five, 20, true));
    assert_eq!((b.amount, b.concurrency, b.keep_alive), (five, 300, false));
}

#[test]
fn a_duration_from_the_command_line_changes_only_cases_that_have_one() {
    let mut experiment = crate::fixture::experiment(
        "title: t\nprovider: {}\nscenarios: [{ name: a }]\n\
         cases: [{ name: timed, client: { duration: 9s } }, { name: counted, client: { requests: 500 } }]\n",
    );
    experiment.set_duration(Duration::from_secs(2));
    let amounts: Vec<Amount> =
        experiment.pairs().map(|(case, scenario)| experiment.client(case, scenario).amount).collect();
    assert_eq!(amounts, [Amount::For(std::time::Duration::from_secs(2)), Amount::Requests(500)]);
}

#[test]
fn the_baseline_is_the_named_one_or_direct_or_the_first() {
    let baseline = |scenarios: &str| {
        let text = format!("title: t\nprovider: {{}}\nscenarios: {scenarios}\n");
        crate::fixture::experiment(&text).baseline().to_owned()
    };
    assert_eq!(baseline("[{ name: a }, { name: b }]"), "a");
    assert_eq!(baseline("[{ name: a }, { name: direct }]"), "direct");
    assert_eq!(baseline("[{ name: a }, { name: direct }]\nbaseline: a"), "a");
}

#[test]
fn every_problem_of_a_client_names_its_key() {
    for (client, expected) in [
        ("{ concurrency: 0 }", "client.concurrency: expected a number from 1 to 10000"),
        ("{ requests: 0 }", "client.requests: expected a number from 1 to 50000000"),
        ("{ duration: 500ms }", "client.duration: must be at least `1s`"),
        ("{ duration: 5s, deadline: 5s }", "client.deadline: must be longer than `duration`"),
        ("{ duration: 5s, requests: 5 }", "client.duration: set either `requests` or `duration`, not both"),
        ("{ kind: wrk, duration: 5s }", "client.keep_alive: wrk always keeps connections open"),
        ("{ kind: h2load, protocol: http2 }", "client.keep_alive: h2load always keeps connections open"),
        ("{ kind: h2load, keep_alive: true }", "client.protocol: h2load speaks `http2` and `grpc` here"),
        ("{ kind: ab, protocol: grpc }", "client.protocol: ab does not speak HTTP/2 here"),
        ("{ streams: 2 }", "client.streams: requires `protocol: http2` or `grpc`"),
        ("{ protocol: http2, streams: 0 }", "client.streams: expected a number from 1 to 1000"),
        ("{ protocol: http2, streams: 101 }", "at most 10000 streams in all"),
        ("{ threads: 65 }", "client.threads: expected a number from 1 to 64, at most `concurrency`"),
        (
            "{ concurrency: 2, threads: 3 }",
            "client.threads: expected a number from 1 to 64, at most `concurrency`",
        ),
        ("{ body: 65MiB }", "client.body: more than 64 MiB"),
        ("{ kind: ab, resume: true }", "client.resume: ab does not say whether it resumes"),
        ("{ requests_per_second: 0 }", "client.requests_per_second: expected a number from 1"),
    ] {
        let text = format!("title: t\nprovider: {{}}\nscenarios: [{{ name: a }}]\nclient: {client}\n");
        let report = report(&text);
        assert!(report.contains(expected), "{report}\n--- is not\n{expected}");
    }
}

#[test]
fn a_scenario_that_cannot_be_reached_so_is_told() {
    for (scenario, expected) in [
        ("{ name: x, reach: tls }", "scenarios[0].reach: requires a proxy that the lab starts"),
        (
            "{ name: x, reach: tunnel, command: [y], client: { kind: ab } }",
            "scenarios[0].reach: ab does not ask for a tunnel with CONNECT: only `bench` does",
        ),
        (
            "{ name: x, reach: tunnel, command: [y], instances: 2 }",
            "scenarios[0].reach: a client has one proxy for its tunnels",
        ),
    ] {
        let report = report(&format!("title: t\nprovider: {{}}\nscenarios: [{scenario}]\n"));
        assert!(report.contains(expected), "{report}\n--- is not\n{expected}");
    }
}

#[test]
fn a_case_may_name_the_scenarios_that_take_part() {
    let text = "title: t\nprovider: {}\nscenarios: [{ name: a }, { name: b }, { name: c }]\nrounds: 3\n\
        cases: [{ name: all }, { name: some, scenarios: [c, a] }]\n";
    let experiment = crate::fixture::experiment(text);
    let pairs: Vec<_> = experiment.pairs().map(|(case, scenario)| (&*case.name, &*scenario.name)).collect();
    assert_eq!(pairs, [("all", "a"), ("all", "b"), ("all", "c"), ("some", "a"), ("some", "c")]);
    let planned = crate::plan::planned_turns(&experiment);
    assert_eq!(planned.len(), 15);
    assert!(planned.iter().all(|turn| turn.case == 0 || turn.scenario != 1), "{planned:?}");
    let unknown = report(&text.replace("[c, a]", "[d]"));
    assert!(unknown.contains("cases[1].scenarios[0]: there is no scenario `d`"), "{unknown}");
}

#[test]
fn a_url_from_the_environment_is_resolved_before_a_run() {
    let text =
        "title: t\nprovider: {}\nscenarios: [{ name: direct }, { name: x, url: '${env:EGRET_NO_SUCH}' }]\n";
    let mut experiment = Experiment::parse("e.yaml", text, Path::new(".")).unwrap();
    assert!(!experiment.scenarios[1].is_direct() && experiment.scenarios[0].is_direct());
    let (scenario, error) = experiment.resolve_urls().unwrap_err();
    assert_eq!(scenario, "x");
    assert!(error.to_string().starts_with("the environment variable EGRET_NO_SUCH is not set"), "{error}");
    experiment.scenarios[1].url = Some("http://h/".into());
    assert!(experiment.resolve_urls().is_ok());
    assert_eq!(experiment.scenarios[1].url.as_deref(), Some("http://h:80"));
}
