//! `egret check --fix`: what is fixed in the file, and what stays.

use egret_tests::egret::egret;
use egret_tests::process::{Directory, run};

const BEFORE: &str = "\
# My config\r
provider:   # the API\r
  api: { url:https://api.example }\r
quotas:\r
  live: { limt: '5', window: 1s }   # per second\r
flows:\r
  - name: calls\r
    remedies:\r
      # wait for a turn\r
      - queue: { quota: liv }\r
      - retry: { attempts: 3 }   # three in all\r
";

const AFTER: &str = "\
# My config\r
providers:   # the API\r
  api: { url: https://api.example }\r
quotas:\r
  live: { limit: 5, window: 1s }   # per second\r
flows:\r
  - name: calls\r
    remedies:\r
      - retry: { attempts: 3 }   # three in all\r
      # wait for a turn\r
      - queue: { quota: live }\r
";

#[test]
fn obvious_mistakes_are_mended_and_everything_else_stays() {
    let directory = Directory::default();
    let file = directory.write("egret.yaml", BEFORE);
    let fix = || {
        let output = run(egret(["check", "--fix"]).arg(&file));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, printed, stderr) = fix();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), AFTER);
    for line in ["-provider:   # the API", "+providers:   # the API", "+      - queue: { quota: live }"] {
        assert!(printed.lines().any(|printed| printed.trim_end() == line), "{line}: {printed}");
    }
    assert!(printed.ends_with(": OK (1 listener, 1 provider)\n"), "{printed}");
    let (code, printed, stderr) = fix();
    assert!(
        code == Some(0) && !printed.contains("---") && stderr.ends_with("nothing to fix\n"),
        "{printed}{stderr}"
    );
}

#[test]
fn remaining_problems_are_reported_and_links_stay() {
    let directory = Directory::default();
    let text = "provider: { a: { url: 'https://a.example', timeouts: { connect: 5 } } }\n";
    let file = directory.write("egret.yaml", text);
    let output = run(egret(["check", "--fix"]).arg(&file));
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("did you mean `5s`"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text.replacen("provider", "providers", 1));
    let link = directory.join("link.yaml");
    std::os::unix::fs::symlink(directory.write("target.yaml", text), &link).unwrap();
    let output = run(egret(["check", "--fix"]).arg(&link));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("symbolic link"));
}
