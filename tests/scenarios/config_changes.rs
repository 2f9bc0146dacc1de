//! Changes of the config over the control port: read, validated, replaced, applied and rolled back.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret};
use egret_tests::peers::curl;
use egret_tests::process::run;
use egret_tests::wait;

/// Returns a config with a quota of that limit.
fn with_limit(limit: u32) -> Config {
    Config::default().flows(format!("quotas: {{ live: {{ limit: {limit}, window: 1h }} }}\n"))
}

/// Returns the text of the config file.
fn file(egret: &Egret) -> String {
    fs::read_to_string(egret.directory().join("egret.yaml")).unwrap()
}

/// Returns the limit in the running config.
fn limit(egret: &Egret) -> u64 {
    egret.control_get("/api/v1/config").json()["quotas"]["live"]["limit"].as_u64().unwrap()
}

#[test]
fn a_change_is_written_applied_and_rolled_back() {
    let (old, new) = (with_limit(5), with_limit(6));
    let egret = old.start();
    let path = egret.directory().join("egret.yaml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let api = ConfigApi::of(&egret);
    let response = api.put(&new.yaml());
    assert_eq!(response.status, 200, "{response:?}");
    let applied = response.json();
    assert_eq!((&applied["applied"][0], applied["version"].as_u64()), (&"quotas".into(), Some(2)));
    assert_eq!((limit(&egret), file(&egret)), (6, new.yaml()));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    assert_eq!(response.field("etag"), Some(api.etag().as_str()));
    let versions = api.versions();
    let kept: Vec<_> = versions
        .iter()
        .map(|version| (version["origin"].as_str().unwrap(), version["current"] == true))
        .collect();
    assert_eq!(kept, [("api", true), ("start", false)]);
    assert_eq!(api.call("GET /api/v1/config/versions/1", "", "").text(), old.yaml());
    assert_eq!(api.roll_back(1).status, 200);
    assert_eq!((limit(&egret), file(&egret)), (5, old.yaml()));
    assert_eq!(api.versions()[0]["origin"], "rollback");
    assert_eq!(api.roll_back(9).status, 404);
}

#[test]
fn a_change_that_was_based_on_another_text_is_refused() {
    let egret = with_limit(5).start();
    let api = ConfigApi::of(&egret);
    let stale = format!("If-Match: {}\r\n", api.etag());
    let theirs = with_limit(7).yaml();
    egret.rewrite(&theirs);
    let put = |fields: &str| api.call("PUT /api/v1/config/files/egret.yaml", fields, &with_limit(6).yaml());
    assert_eq!((put(&stale).status, put("").status), (412, 428));
    wait::until_true("the file is applied", || limit(&egret) == 7);
    assert_eq!(file(&egret), theirs);
    wait::until_true("it is a version", || api.versions()[0]["origin"] == "file");
    assert_eq!(put(&format!("If-Match: {}\r\n", api.etag())).status, 200);
}

#[test]
fn an_invalid_text_changes_nothing_and_every_problem_has_its_place() {
    let egret = with_limit(5).control("config_changes: all").start();
    let (api, before) = (ConfigApi::of(&egret), file(&egret));
    let text = format!("{before}flows: [{{ name: f, remedis: [] }}]\n");
    let problems = api.put(&text).json();
    assert_eq!((&problems["status"], &problems["problems"]), (&422.into(), &api.validate(&text)["problems"]));
    let problem = &problems["problems"][0];
    assert_eq!(
        (&problem["file"], &problem["path"], &problem["suggestion"]),
        (&"egret.yaml".into(), &"flows[0].remedis".into(), &"remedies".into())
    );
    assert_eq!(
        (problem["line"].as_u64(), problem["column"].as_u64()),
        (Some(text.lines().count() as u64), Some(20))
    );
    assert_eq!(api.put(" \n").status, 422);
    assert_eq!((limit(&egret), file(&egret)), (5, before.clone()));
    assert_eq!(api.validate(&before)["valid"], true);
}

#[test]
fn a_file_that_is_read_only_or_a_link_is_not_replaced() {
    let egret = with_limit(5).start();
    let (api, path) = (ConfigApi::of(&egret), egret.directory().join("egret.yaml"));
    let refused = |why: &str| {
        let response = api.put(&with_limit(6).yaml());
        assert_eq!(response.status, 403);
        assert!(response.text().contains(why), "{}", response.text());
        assert_eq!(limit(&egret), 5);
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    refused("it is read-only");
    // As in a mounted ConfigMap.
    fs::rename(&path, egret.directory().join("data.yaml")).unwrap();
    symlink("data.yaml", &path).unwrap();
    refused("symbolic link");
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
}

#[test]
fn changes_can_be_switched_off_and_the_config_still_be_validated() {
    let config = with_limit(5).control("config_changes: off");
    let egret = config.start();
    let (api, new) = (ConfigApi::of(&egret), config.yaml().replace("limit: 5", "limit: 6"));
    assert_eq!((api.put(&new).status, api.roll_back(1).status), (403, 403));
    assert_eq!(api.validate(&new)["valid"], true);
    assert_eq!(limit(&egret), 5);
}

#[test]
fn only_listed_values_change_unless_the_file_says_all() {
    let egret = with_limit(5).start();
    let (api, before) = (ConfigApi::of(&egret), file(&egret));
    let added = api.put(&format!("{before}exporters: {{}}\n"));
    assert_eq!((added.status, added.json()["problems"][0]["path"].as_str()), (403, Some("exporters")));
    let reordered = before.replace("limit: 5, window: 1h", "window: 1h, limit: 5");
    assert_eq!(api.put(&reordered).status, 403);
    let laid_out =
        before.replace("{ limit: 5, window: 1h }", "\n    # calls\n    limit: 6\n    window: '2h'\n");
    let laid_out = laid_out.replace("quotas: { live: ", "quotas:\n  live:").replace("'2h'\n }", "'2h'");
    assert_eq!(api.put(&laid_out).status, 200, "{}", api.put(&laid_out).text());
    assert_eq!(limit(&egret), 6);
    assert_eq!(api.roll_back(1).status, 200);
}

#[test]
fn earlier_names_are_read_with_a_warning() {
    let egret = with_limit(5).control("config_changes: restricted").start();
    egret.until_logged("`restricted` is read as `tune`");
    assert_eq!(egret.control_get("/api/v1/config").json()["control"]["config_changes"], "tune");
    let api = ConfigApi::of(&egret);
    assert_eq!(api.put(&format!("{}exporters: {{}}\n", file(&egret))).status, 403);
    assert_eq!(api.put(&file(&egret).replace("limit: 5", "limit: 6")).status, 200);
}

#[test]
fn the_token_is_in_a_private_file_and_unlogged() {
    let mut egret = with_limit(5).start();
    let token = ConfigApi::of(&egret).token().to_owned();
    let path = egret.directory().join("egret-data/control-token");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(token.len(), 64);
    egret.until_logged("control token: ");
    egret.terminate();
    egret.until_ended();
    assert!(!egret.log().contains(&token));
    assert!(!path.exists());
}

/// The user `nobody`.
const OTHER_USER: u32 = 65_534;

#[test]
fn another_local_user_reads_no_token_and_is_refused_without_it() {
    let egret = with_limit(5).start();
    let directory = egret.directory().join("egret-data");
    let token_file = directory.join("control-token");
    // Only the mode of the file itself is left to protect it.
    for entered in [egret.directory().path(), &directory] {
        fs::set_permissions(entered, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let read = match Command::new("cat").arg(&token_file).uid(OTHER_USER).gid(OTHER_USER).output() {
        Ok(read) => read,
        // Only root can act as another user.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            assert_eq!(fs::metadata(&token_file).unwrap().mode() & 0o777, 0o600);
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(!read.status.success() && read.stdout.is_empty());
    assert!(String::from_utf8_lossy(&read.stderr).contains("Permission denied"));

    let api = format!("http://{}/api/v1/config", egret.control());
    let new = with_limit(6).yaml();
    for (method, path) in [
        ("GET", "files"),
        ("GET", "files/egret.yaml"),
        ("PUT", "files/egret.yaml"),
        ("POST", "validate"),
        ("GET", "versions"),
        ("GET", "versions/1"),
        ("POST", "rollback?version=1"),
    ] {
        let mut call = curl();
        call.uid(OTHER_USER).gid(OTHER_USER).args(["--write-out", "%{http_code}", "--request", method]);
        if matches!(path, "files/egret.yaml" | "validate") && method != "GET" {
            call.args(["--data-binary", &new, "--header", "if-match: *"]);
        }
        call.arg(format!("{api}/{path}"));
        let answer = String::from_utf8(run(&mut call).stdout).unwrap();
        assert!(answer.ends_with("401"), "{method} {path}: {answer}");
        assert!(!answer.contains("limit: 5"), "{method} {path}: {answer}");
    }
    assert_eq!(limit(&egret), 5);
}
