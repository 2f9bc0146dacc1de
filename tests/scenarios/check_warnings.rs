//! Warnings about valid configs: from `egret check`, from the control API, and in the log of a running
//! gateway.

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, egret};
use egret_tests::process::{Directory, run};

/// Checks a text. Returns the exit code, and the warnings, each as `path: message`.
fn warnings(text: &str, arguments: &[&str]) -> (i32, Vec<String>) {
    let directory = Directory::default();
    let file = directory.write("egret.yaml", text);
    let output = run(egret(["check", "--json"]).arg(file).args(arguments));
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(checked["valid"], true, "{checked:#}");
    let warnings = checked["warnings"].as_array().unwrap().iter();
    let warning = |warning: &serde_json::Value| {
        assert_eq!(warning["severity"], "warning");
        assert!(warning["line"].as_u64() > Some(0) && warning["column"].as_u64() > Some(0), "{warning}");
        format!("{}: {}", warning["path"].as_str().unwrap(), warning["message"].as_str().unwrap())
    };
    (output.status.code().unwrap(), warnings.map(warning).collect())
}

const PROVIDER: &str = "providers: { api: { url: 'https://api.example' } }\n";

#[test]
fn advice_names_what_a_restart_forgets_and_this_environment_lacks() {
    let directory = Directory::default();
    let text = "quotas: { month: { limit: 5, kind: calendar, period: month } }\n\
                exporters: { bucket: { type: s3, endpoint: 'https://s3.example', bucket: b } }\n";
    let file = directory.write("egret.yaml", text);
    let told = |key: &str| {
        let mut check = egret(["check"]);
        check.arg(&file).env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", key);
        String::from_utf8(run(&mut check).stdout).unwrap()
    };
    let forgets = "quotas.month: a restart forgets what was used, unless it has `store: file`\n";
    let lacks = "exporters.bucket: `egret run` needs what this environment lacks: no credentials";
    let (without, with) = (told(""), told("key"));
    assert!(without.contains(forgets) && without.contains(lacks), "{without}");
    assert!(with.contains(forgets) && !with.contains(lacks), "{with}");
}

#[test]
fn every_warning_has_its_place_and_what_to_write_instead() {
    for (text, path, words) in [
        (
            "quotas: { q: { limit: 5, window: 1s } }\n\
             flows: [{ name: f, remedies: [queue: { quota: q }, retry: {}] }]",
            "flows[0].remedies[0].queue: ",
            "put this entry behind `retry`",
        ),
        ("quotas: { q: { limit: 5, window: 1s } }", "quotas.q: ", "use it in a `limit` or `queue`"),
        ("exporters: { e: { type: stdout } }", "exporters.e: ", "name it in `export` of a diagnosis"),
        (
            "accounts: { a: { provider: api, bearer: { token: '${env:PATH}' } } }",
            "accounts.a: ",
            "use it in `authenticate`",
        ),
        ("gateway: { listen: ['127.0.0.1:8001'] }", "gateway.listen[0]: ", "choose another port"),
        (
            "gateway: { listen: ['127.0.0.1:7001', '0.0.0.0:7001'] }",
            "gateway.listen[1]: ",
            "choose another port",
        ),
        ("flows: [{ name: f }]", "flows[0]: ", "give it `remedies` or `diagnoses`"),
        (
            "flows: [{ name: f, match: { when: '1 > 2' }, remedies: [retry: {}] }]",
            "flows[0].match.when: ",
            "always false",
        ),
        (
            "flows: [{ name: f, remedies: [retry: { idempotency_key: generate }] }]",
            "flows[0].remedies[0].retry.idempotency_key: ",
            "write `idempotency_key: { make: true }`",
        ),
        (
            "flows: [{ name: f, remedies: [fixed-response: {}] }, { name: g, remedies: [retry: {}] }]",
            "flows[1].remedies: ",
            "narrow `match` there",
        ),
        (
            "interception: { hosts: [x.example], tunnel: [api.example] }\n\
             flows: [{ name: f, match: { provider: api }, remedies: [retry: {}] }]",
            "flows[0].match.provider: ",
            "remove the host there",
        ),
    ] {
        let (code, warnings) = warnings(&format!("{PROVIDER}{text}\n"), &[]);
        assert_eq!((code, warnings.len()), (0, 1), "{text}: {warnings:#?}");
        assert!(warnings[0].starts_with(path) && warnings[0].contains(words), "{warnings:#?}");
    }
}

#[test]
fn unreachable_and_looping_providers_warn() {
    let text = "gateway: { listen: [{ address: '127.0.0.1:7001', provider: a }] }\n\
                providers: { a: { url: 'https://a.example' }, b: { url: 'https://b.example' }, c: { url: 'https://c.example' } }\n\
                flows:\n- { name: f, match: { provider: b }, remedies: [retry: {}] }\n\
                - { name: g, match: { provider: a }, remedies: [fallback: { provider: c }] }\n";
    let paths = |text: &str| {
        let (_, warnings) = warnings(text, &[]);
        warnings.into_iter().map(|warning| warning.split(": ").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(paths(text), ["providers.b", "flows[0].match.provider"]);
    assert_eq!(paths(&text.replace("provider: a }] }", "provider: a }, '127.0.0.1:7002'] }")), [""; 0]);
    assert_eq!(paths("providers: { me: { url: 'http://127.0.0.1:8000/x' } }\n"), ["providers.me.url"]);
}

#[test]
fn warnings_are_refused_on_demand_and_shown_with_an_excerpt() {
    let directory = Directory::default();
    let file = directory.write("egret.yaml", format!("{PROVIDER}flows:\n  - name: idle\n"));
    let check = |arguments: &[&str]| {
        let output = run(egret(["check"]).arg(&file).args(arguments));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, printed, stderr) = check(&[]);
    assert_eq!(code, Some(0));
    assert!(printed.ends_with(": OK (1 listener, 1 provider)\n"), "{printed}");
    let excerpt = format!("warning: {}:3:5: flows[0]: this flow does nothing", file.display());
    assert!(stderr.starts_with(&excerpt) && stderr.contains("3 |   - name: idle\n"), "{stderr}");
    let (code, _, stderr) = check(&["--deny-warnings"]);
    assert!(code == Some(1) && stderr.contains("1 warning, which `--deny-warnings` refuses"), "{stderr}");
}

#[test]
fn a_running_gateway_logs_them_and_the_api_returns_them() {
    let egret = Config::default().flows("quotas: { live: { limit: 5, window: 1h } }\n").start();
    egret.until_logged("no flow draws from this quota");
    let api = ConfigApi::of(&egret);
    let text = std::fs::read_to_string(egret.directory().join("egret.yaml")).unwrap();
    let warning = &api.validate(&text)["warnings"][0];
    assert_eq!((&warning["path"], &warning["severity"]), (&"quotas.live".into(), &"warning".into()));
}
