//! Texts of clients, providers and files that command a terminal or reorder its text: no command prints them.

use egret_tests::egret::{Config, egret as egret_command};
use egret_tests::process::{Directory, Process, run};
use egret_tests::provider::Provider;
use egret_tests::traffic::LiveTraffic;
use egret_tests::wait;
use serde_json::Value;

/// The control sequence introducer in one character, an override of the direction of text, a character
/// without width, and a separator of lines.
const HOSTILE: &str = "a\u{9b}31m\u{202e}b\u{200b}c\u{2028}d";

/// Asserts that a text is printable.
fn assert_printable(what: &str, text: &str) {
    let is_bad = |letter: &char| {
        letter.is_control() && !matches!(letter, '\n' | '\t')
            || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}')
    };
    let found: Vec<char> = text.chars().filter(is_bad).collect();
    assert!(found.is_empty(), "{what} prints {found:?}: {text:?}");
}

#[test]
fn tail_escapes_in_json_what_a_terminal_would_obey() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let traffic = LiveTraffic::open(&egret);
    let mut command = egret_command(["tail", "--json", "-v", "--provider", "origin"]);
    command.arg("--control").arg(egret.control().to_string()).current_dir(egret.directory().path());
    let tail = Process::printing(&mut command);
    wait::until_true("the command reads", || traffic.list("limit=0")["status"]["readers"] == 1);
    let request = format!("GET /origin/ HTTP/1.1\r\nHost: {}\r\nX-A: {HOSTILE}\r\n\r\n", egret.address());
    egret.client().send(request).response().assert_forwarded(200);
    let line = tail.until_printed("the call", |lines| lines.first().cloned());
    assert_printable("egret tail --json", &line);
    let details: Value = serde_json::from_str(&line).unwrap();
    let fields = details["har"]["request"]["headers"].as_array().unwrap();
    assert!(fields.iter().any(|field| field["value"] == HOSTILE), "{details}");
}

#[test]
fn discover_prints_no_text_that_a_terminal_would_obey() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let consumer = "shop\u{202e}\u{2028}x";
    let fields = format!("X-Egret-Consumer: {consumer}\r\n");
    let request = format!("GET /origin/ HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", egret.address());
    egret.client().send(request).response().assert_forwarded(200);
    wait::until_true("the call is listed", || egret.control_get("/api/v1/discovery").text().contains("shop"));
    for arguments in [&["discover"][..], &["discover", "--json"], &["discover", "--flows"]] {
        let mut command = egret_command([]);
        command.args(arguments).arg("--control").arg(egret.control().to_string());
        let printed = run(command.current_dir(egret.directory().path()));
        let text = String::from_utf8(printed.stdout).unwrap();
        assert!(printed.status.success() && !text.is_empty(), "{arguments:?}: {text}");
        assert_printable(&arguments.join(" "), &text);
        if arguments.contains(&"--json") {
            let consumers =
                &serde_json::from_str::<Value>(&text).unwrap()["flows"][0]["endpoints"][0]["consumers"];
            assert!(consumers[consumer].is_u64(), "{text}");
        }
    }
}

#[test]
fn a_benchmark_prints_no_text_that_a_terminal_would_obey() {
    let origin = Provider::responding(format!(
        "HTTP/1.1 200 OK\r\nServer: {HOSTILE}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    ));
    let printed = run(&mut egret_command(["bench", "-n", "1", &format!("{}/", origin.url())]));
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.contains("Server Software:"), "{text}");
    assert_printable("egret bench", &text);
}

#[test]
fn messages_about_files_have_no_text_that_a_terminal_would_obey() {
    let directory = Directory::default();
    let config =
        directory.write("egret.yaml", format!("providers:\n  \"{HOSTILE}\": {{ urll: x }} # {HOSTILE}\n"));
    let archive = directory.write(
        "a.har",
        format!(
            "{{\"log\": {{\"version\": \"1.2\", \"{HOSTILE}\": \"ada@example.com\", \"entries\": [{{}}]}}}}"
        ),
    );
    let (config, archive) = (config.display().to_string(), archive.display().to_string());
    for arguments in [
        &["check", &config][..],
        &["check", "--json", &config],
        &["explain", &config, "--request", "GET http://a/"],
        &["har", "verify", &archive],
        &["har", "stats", &archive],
    ] {
        let mut command = egret_command([]);
        let printed = run(command.args(arguments));
        let text = String::from_utf8([printed.stdout, printed.stderr].concat()).unwrap();
        assert!(!text.is_empty(), "{arguments:?}");
        assert_printable(&arguments.join(" "), &text);
    }
}
