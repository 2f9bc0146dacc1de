//! A reader that leaves early, as `head -1` does: no panic, and the exit code is that of the command.

use std::process::Command;

use egret_tests::egret::binary;
use egret_tests::process::{Directory, run};

/// Runs a line of bash in which `$EGRET` is the program. Returns the exit code that it prints last.
fn code_of(directory: &Directory, line: &str) -> (String, String) {
    let mut bash = Command::new("bash");
    bash.args(["-c", line]).env("EGRET", binary().canonicalize().unwrap()).current_dir(directory.path());
    let output = run(&mut bash);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (printed, errors) = (text(output.stdout), text(output.stderr));
    (printed.lines().last().unwrap_or_default().to_owned(), errors)
}

#[test]
fn a_closed_standard_output_or_error_changes_no_exit_code() {
    let directory = Directory::default();
    directory.write("good.yaml", "providers: { a: { url: http://127.0.0.1:9000 } }\n");
    let bad: String =
        (0..20).fold("gateway:\n".to_owned(), |text, number| format!("{text}  key{number}: 1\n"));
    directory.write("bad.yaml", bad);
    for (command, expected) in [
        ("check good.yaml", "0"),
        ("check bad.yaml", "2"),
        ("check no-such.yaml", "2"),
        ("run no-such.yaml", "2"),
        ("reference config", "0"),
        ("schema", "0"),
        ("help run", "0"),
        ("--help", "0"),
        ("no-such-command", "2"),
        ("bench -n 1 http://127.0.0.1:1/", "1"),
        ("explain good.yaml --request 'GET http://127.0.0.1:8000/a/x'", "0"),
    ] {
        for streams in
            ["2>&1 | head -1 >/dev/null", "2>&1 | true", "2>&1 >&- | true", "2>&- | true", "2>&- >&-"]
        {
            let line = format!("\"$EGRET\" {command} {streams}; echo \"${{PIPESTATUS[0]}}\"");
            let (code, errors) = code_of(&directory, &line);
            assert_eq!(code, expected, "{line}\n{errors}");
            assert!(!errors.contains("panicked"), "{line}\n{errors}");
        }
    }
}
