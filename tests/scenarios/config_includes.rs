//! A config of several files: joined, watched, and rolled back as a set.

use std::fs;

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::{Directory, run};
use egret_tests::wait;

/// Starts a gateway whose config includes `flows/*.yaml`, with one such file.
fn started(text: &str) -> Egret {
    let config = Config::default().control("config_changes: all").flows("include: ['flows/*.yaml']\n");
    Egret::start_with(&config, |command| {
        let flows = command.get_current_dir().unwrap().join("flows");
        fs::create_dir_all(&flows).unwrap();
        fs::write(flows.join("a.yaml"), text).unwrap();
    })
}

fn limit(egret: &Egret, quota: &str) -> Option<u64> {
    egret.control_get("/api/v1/config").json()["quotas"][quota]["limit"].as_u64()
}

fn quota(name: &str, limit: u32) -> String {
    format!("quotas: {{ {name}: {{ limit: {limit}, window: 1h }} }}\n")
}

#[test]
fn problems_of_included_files_name_their_lines() {
    let directory = Directory::default();
    fs::create_dir(directory.join("flows")).unwrap();
    let file =
        directory.write("egret.yaml", "include: ['flows/*.yaml']\nquotas:\n  q: { limit: 5, window: 1s }\n");
    let check = || {
        let output = run(egret(["check"]).arg(&file));
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let a = directory.write("flows/a.yaml", "# two\nquotas:\n  q: { limit: 6, window: 1s }\n");
    let (code, stderr) = check();
    let expected = format!("{}:3:3: quotas.q: `q` is given twice (see {}:3:3)", a.display(), file.display());
    assert!(code == Some(2) && stderr.contains(&expected), "{stderr}");
    directory.write("flows/a.yaml", "flows:\n  - name: f\n    remedies: [limit: { quota: q }]\n");
    assert_eq!(check(), (Some(0), String::new()));
    let b = directory.write("flows/b.yaml", "\nflows: [{ name: g, remedies: [limit: { quota: qq }] }]\n");
    let (_, stderr) = check();
    let expected = format!("{}:2:47: flows[1].remedies[0].limit.quota: no quota is called `qq`", b.display());
    assert!(stderr.contains(&expected), "{stderr}");
    directory.write("flows/b.yaml", "include: [c.yaml]\n");
    assert!(check().1.contains("an included file cannot include others"));
}

#[test]
fn a_change_of_any_file_and_a_new_one_reload_the_config() {
    let egret = started(&quota("a", 5));
    assert_eq!(limit(&egret, "a"), Some(5));
    let flows = egret.directory().join("flows");
    fs::write(flows.join("a.yaml"), quota("a", 6)).unwrap();
    wait::until_true("the change is applied", || limit(&egret, "a") == Some(6));
    fs::write(flows.join("b.yaml"), quota("b", 7)).unwrap();
    wait::until_true("the new file is included", || limit(&egret, "b") == Some(7));
    fs::remove_file(flows.join("b.yaml")).unwrap();
    wait::until_true("it is gone", || limit(&egret, "b").is_none());
}

#[test]
fn a_rollback_restores_the_set() {
    let egret = started(&quota("a", 5));
    let api = ConfigApi::of(&egret);
    let flows = egret.directory().join("flows");
    // Replaced at once: a file that is empty for a while could be a version as well.
    egret.directory().write("flows/a.yaml", quota("a", 6));
    wait::until_true("it is a version", || api.versions().len() == 2);
    assert_eq!((api.versions()[0]["files"].as_u64(), limit(&egret, "a")), (Some(2), Some(6)));
    let kept = api.call("GET /api/v1/config/versions/1?file=flows/a.yaml", "", "");
    assert_eq!(kept.text(), quota("a", 5));
    fs::write(flows.join("b.yaml"), quota("b", 7)).unwrap();
    wait::until_true("the new file is included", || limit(&egret, "b") == Some(7));
    let refused = api.roll_back(1);
    assert!(refused.status == 403 && refused.text().contains("b.yaml"), "{}", refused.text());
    fs::remove_file(flows.join("b.yaml")).unwrap();
    wait::until_true("it is gone", || limit(&egret, "b").is_none());
    fs::remove_file(flows.join("a.yaml")).unwrap();
    wait::until_true("nothing is included", || limit(&egret, "a").is_none());
    assert_eq!(api.roll_back(1).status, 200);
    assert_eq!(limit(&egret, "a"), Some(5));
    assert_eq!(fs::read_to_string(flows.join("a.yaml")).unwrap(), quota("a", 5));
    let files = ConfigApi::of(&egret).call("GET /api/v1/config/files", "", "").json();
    assert_eq!(files["files"][1]["name"], "flows/a.yaml");
    let etag = format!("If-Match: {}\r\n", api.etag());
    let put = api.call("PUT /api/v1/config/files/flows%2Fa.yaml", &etag, "flows: []\n");
    assert_eq!(put.status, 403, "{}", put.text());
}
