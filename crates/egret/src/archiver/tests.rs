//! Tests of the translation of HARchiver's options.

use clap::Parser;
use egret_settings::config::Config;

use super::*;
use crate::cli::{Cli, Command};

fn parse(line: &str) -> Result<ArchiverArgs, clap::Error> {
    let words = ["egret", NAME].into_iter().chain(line.split_whitespace()).map(OsString::from);
    Cli::try_parse_from(with_two_dashes(words)).map(|cli| match cli.command {
        Command::Archiver(arguments) => *arguments,
        _ => panic!("another command"),
    })
}

fn translated<T>(line: &str, take: impl FnOnce(Translation<'_>) -> T) -> T {
    let arguments = parse(line).unwrap();
    let token = arguments.service_token.clone();
    take(Translation { arguments: &arguments, token })
}

fn config(line: &str) -> serde_json::Value {
    translated(line, |translation| {
        translation.check().unwrap();
        serde_json::to_value(translation.config().unwrap()).unwrap()
    })
}

#[test]
fn words_get_a_second_dash_and_values_do_not() {
    for (line, expected) in [
        ("15000 -https 15001 -debug", "15000 --https 15001 --debug"),
        ("15000 -c 5 -t 2.5 TOKEN", "15000 -c 5 -t 2.5 TOKEN"),
        ("15000 -filter-ua -debug -replays", "15000 --filter-ua -debug --replays"),
        ("15000 -rev -x -env -y --bind ::1", "15000 --rev -x --env -y --bind ::1"),
        ("15000 -r a.example -d -x", "15000 --r a.example --d -x"),
        ("-help", "--help"),
        ("-h", "-h"),
    ] {
        let words = ["egret", NAME].into_iter().chain(line.split_whitespace()).map(OsString::from);
        let found = with_two_dashes(words)[2..].join(std::ffi::OsStr::new(" "));
        assert_eq!(found.to_str(), Some(expected), "{line}");
    }
    let others = ["egret", "bench", "-kk"].map(OsString::from);
    assert_eq!(with_two_dashes(others.clone()), others);
}

#[test]
fn an_option_cut_too_short_is_told_from_those_it_may_be() {
    let found = |line: &str| {
        let words = ["egret", NAME].into_iter().chain(line.split_whitespace()).map(OsString::from);
        ambiguous(&with_two_dashes(words))
    };
    let message = found("15000 -r api.example").unwrap();
    assert!(message.contains("-reverse") && message.contains("-replays"), "{message}");
    assert!(found("15000 -re api.example").is_some());
    for line in
        ["15000 -rev api.example", "15000 -host -r", "15000 -c 5", "15000 -reverse a -replays", "15000 -h"]
    {
        assert_eq!(found(line), None, "{line}");
    }
}

#[test]
fn every_option_of_harchivers_is_taken() {
    let line = "15000 TOKEN -https 15001 -reverse api.example:81 -env production -debug -c 9 -t 2.5 -replays \
                -filter-ua bot -host collector.example -port 5501";
    let arguments = parse(line).unwrap();
    assert_eq!((arguments.listen_port, arguments.https, arguments.port), (Some(15000), Some(15001), 5501));
    assert_eq!((arguments.concurrency.get(), arguments.timeout.as_millis()), (9, 2_500));
    assert!(arguments.debug && arguments.replays);
    for wrong in ["", "x", "70000", "1 -c 0", "1 -t 0", "1 -t x", "1 -nothing", "1 T T"] {
        assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
    }
    assert!(parse("-version").unwrap().version && parse("-build-info").unwrap().build_info);
}

#[test]
fn the_shortest_line_is_a_forward_proxy_that_writes_har_files() {
    let config = config("15000");
    let gateway = &config["gateway"];
    assert_eq!(gateway["listen"][0]["address"], "0.0.0.0:15000");
    assert_eq!((&gateway["open_proxy"], &gateway["limits"]["exchanges"]), (&true.into(), &500.into()));
    for timeout in ["connect", "tls", "first_byte"] {
        assert_eq!(gateway["timeouts"][timeout], "6s");
    }
    assert_eq!(gateway["private_fields"][1], "service-token");
    assert_eq!(gateway["compat"], serde_json::json!(["harchiver"]));
    assert_eq!(config["exporters"]["files"]["directory"], "./egret-data/archiver-15000/har");
    let flows = config["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 1, "without a collector no token is required");
    let har = &flows[0]["diagnoses"][0]["har"];
    assert_eq!((&har["obfuscate"], &har["detect_secrets"]), (&false.into(), &true.into()));
}

#[test]
fn a_collector_gets_documents_and_asks_for_a_token() {
    let found = config("15000 -host ::1 -env staging");
    let collector = &found["exporters"]["collector"];
    assert_eq!(collector["transport"]["zeromq"], "tcp://[::1]:5500");
    assert_eq!(collector["environment"], "staging");
    assert_eq!(found["flows"][0]["name"], "without-token");
    assert!(found["exporters"].get("files").is_none(), "{found}");
    let found = config("15000 TOKEN -host collector.example -har ./har");
    assert_eq!(found["flows"].as_array().unwrap().len(), 1);
    assert_eq!(found["flows"][0]["diagnoses"].as_array().unwrap().len(), 2);
    assert_eq!(found["exporters"]["files"]["directory"], "./har");
}

#[test]
fn a_target_has_a_provider_for_each_scheme() {
    let found = config("15000 -reverse api.example:81");
    let listener = &found["gateway"]["listen"][0];
    assert_eq!((&listener["provider"], &listener["keep_host"]), (&"target".into(), &true.into()));
    assert_eq!(listener.get("scheme"), None);
    assert_eq!(found["providers"]["target"]["url"], "http://api.example:81");
    assert_eq!(found["providers"]["target-https"]["url"], "https://api.example:81");
    assert_eq!(found["gateway"]["scheme_fields"], serde_json::json!(["x-upstream-protocol"]));
    let found = config("15000 -reverse https://api.example");
    assert_eq!(found["gateway"]["listen"][0]["scheme"], "https");
    assert_eq!(found["providers"]["target-https"]["url"], "https://api.example");
}

#[test]
fn the_printed_config_is_the_one_that_runs_and_has_no_token() {
    let line = "15000 hunter2 -reverse api.example -host collector.example -debug -replays -filter-ua (a|b) -obfuscate all";
    translated(line, |translation| {
        let printed = translation.yaml();
        assert!(!printed.contains("hunter2") && !translation.banner().contains("hunter2"), "{printed}");
        assert!(printed.contains("service_token: \"${env:EGRET_SERVICE_TOKEN}\""), "{printed}");
        let config = translation.config().unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
        // Parsed again without the one line that needs the environment.
        let rest: String = printed
            .lines()
            .filter(|line| !line.contains("service_token:"))
            .flat_map(|line| [line, "\n"])
            .collect();
        let again = Config::parse("printed.yaml", &rest).unwrap();
        assert_eq!(again.gateway, config.gateway);
        assert_eq!(again.flows, config.flows);
        assert_eq!(again.providers, config.providers);
    });
}

#[test]
fn a_problem_names_the_option_of_the_command_line() {
    for (line, message) in [
        ("1 -reverse http://a/b", "-reverse expects"),
        ("1 -reverse user@a", "-reverse expects"),
        ("1 -https 1", "-https needs a port that differs"),
        ("1 -filter-ua (?=a)", "-filter-ua is not a valid regular expression"),
        ("1 -host tcp://a:1", "-host expects"),
    ] {
        let error = translated(line, |translation| translation.check().unwrap_err().to_string());
        assert!(error.starts_with(message), "{line}: {error}");
    }
    let error = translated("1 -https 2", |translation| translation.config().unwrap_err().to_string());
    assert!(error.contains("key.pem"), "{error}");
}
