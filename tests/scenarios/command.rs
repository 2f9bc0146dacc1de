//! The command line: exit codes, and messages with position and cause.

use egret_tests::egret::{Config, egret};
use egret_tests::process::{Directory, run, run_checked};

/// Runs a command. Returns exit code, standard output and standard error.
fn outcome<const N: usize>(arguments: [&str; N]) -> (i32, String, String) {
    let output = run(&mut egret(arguments));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn check_says_that_a_good_config_is_good() {
    let directory = Directory::default();
    let file = directory.write("good.yaml", Config::with_origin("https://api.example.com/v1").yaml());
    let (code, printed, stderr) = outcome(["check", file.to_str().unwrap()]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(printed.contains("good"), "{printed}");
}

#[test]
fn check_tells_every_problem_with_its_place_and_a_suggestion() {
    let directory = Directory::default();
    let rows = [
        (
            "gateway:\n  lisen: [127.0.0.1:8000]\n  workers: many\n  timeouts: { connect: 5 }\n",
            &[":2:3", ":3:12", ":4:24"][..],
            "did you mean `listen`",
        ),
        (
            "gateway:\n  listen: [{ address: \"127.0.0.1:0\", provider: strip }]\nproviders:\n  stripe: { url: api.stripe.com }\n",
            &[":2:48", ":4:18"],
            "did you mean `stripe`",
        ),
        ("gateway:\n  listen: [127.0.0.1:8000\n", &[":"], "bad.yaml"),
    ];
    for (text, places, received) in rows {
        let file = directory.write("bad.yaml", text);
        let (code, printed, stderr) = outcome(["check", file.to_str().unwrap()]);
        assert_eq!((code, printed.as_str()), (2, ""), "{stderr}");
        for place in places {
            assert!(
                stderr.contains(&format!("{}{place}", file.display())),
                "no problem at {place}:\n{stderr}"
            );
        }
        assert!(stderr.contains(received), "{received:?} is not in\n{stderr}");
    }
}

#[test]
fn check_never_shows_a_secret() {
    let directory = Directory::default();
    let secret = directory.write("secret", "dont show me");
    let text = format!("control: {{ token: \"${{file:{}}}\", tokn: 1 }}\n", secret.display());
    let file = directory.write("egret.yaml", text);
    let (code, printed, stderr) = outcome(["check", file.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(!printed.contains("dont show me") && !stderr.contains("dont show me"), "{stderr}");
}

#[test]
fn exit_codes_tell_wrong_usage_from_failure() {
    let directory = Directory::default();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let listen = format!("\"{}\"", taken.local_addr().unwrap());
    let data_dir = format!("data_dir: {}\n", directory.join("data").display());
    let file = directory.write("taken.yaml", Config::default().listen([&listen]).flows(data_dir).yaml());
    let (code, _, stderr) = outcome(["run", "--config", file.to_str().unwrap()]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains(&taken.local_addr().unwrap().to_string()), "{stderr}");
    let bad = directory.write("bad.yaml", "gatway: {}\n");
    assert_eq!(outcome(["run", "--config", bad.to_str().unwrap()]).0, 2);
    assert_eq!(outcome(["run", "--config", "/no/such/file.yaml"]).0, 2);
    assert_eq!(outcome(["check", "/no/such/file.yaml"]).0, 2);
    assert_eq!(outcome(["no-such-command"]).0, 2);
    assert_eq!(outcome(["--help"]).0, 0);
    assert_eq!(outcome(["version"]).0, 0);
}

#[test]
fn the_schema_is_json_and_knows_the_config() {
    let schema: serde_json::Value = serde_json::from_str(&run_checked(&mut egret(["schema"]))).unwrap();
    for key in ["gateway", "control", "providers"] {
        assert!(schema["properties"].get(key).is_some(), "{key} is not in the schema");
    }
}
