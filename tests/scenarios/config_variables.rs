//! `${env:NAME}` in the values of a config, and `env("NAME")` in expressions.

use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;

#[test]
fn values_come_from_the_environment_wherever_they_stand() {
    let origin = Provider::plain();
    let config = Config::default().provider("origin", "${env:EGRET_TEST_URL}").flows(
        "quotas: { q: { limit: '${env:EGRET_TEST_LIMIT:-7}', window: '${env:EGRET_TEST_WINDOW}' } }\n\
         flows:\n\
         - name: f\n  match: { when: 'env(\"EGRET_TEST_STAGE\") == \"a\\\" || true\"' }\n  remedies: [limit: { quota: q }]\n\
         - name: g\n  match: { path: /fixed }\n  remedies:\n\
         \x20 - fixed-response: { headers: { content-type: application/json }, body: '{\"a\": \"${env:EGRET_TEST_STAGE}\"}' }\n",
    );
    let egret = Egret::start_with(&config, |command| {
        command.env("EGRET_TEST_URL", origin.url());
        command.env("EGRET_TEST_WINDOW", "1h").env("EGRET_TEST_STAGE", "a\" || true");
    });
    let running = egret.control_get("/api/v1/config").json();
    assert_eq!(
        (&running["quotas"]["q"]["limit"], &running["quotas"]["q"]["window"]),
        (&7.into(), &"1h".into())
    );
    assert_eq!(egret.get("/get").status, 200);
    assert_eq!(egret.control_get("/api/v1/quotas").json()["quotas"][0]["groups"][0]["used"], 1);
    // The value is escaped for JSON.
    assert_eq!(egret.get("/fixed").json()["a"], "a\" || true");
}

#[test]
fn a_missing_variable_is_named_at_its_place() {
    let directory = Directory::default();
    let check = |text: &str| {
        let file = directory.write("egret.yaml", text);
        let output = run(egret(["check"]).arg(file).env("EGRET_TEST_VALUE", "hunter2"));
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (text, expected) in [
        (
            "providers:\n  a: { url: \"${env:EGRET_NO_SUCH}\" }\n",
            ":2:13: providers.a.url: the environment variable EGRET_NO_SUCH is not set",
        ),
        ("log:\n  level: ${env:EGRET_TEST_VALUE}\n", ":2:10: log.level: expected one of"),
        ("gateway:\n  workers: ${env:EGRET_TEST_VALUE}\n", "found the value of `${env:EGRET_TEST_VALUE}`"),
        ("control:\n  token: ${env:EGRET_NO_SUCH:-hunter2}\n", "a secret has no default"),
        (
            "flows: [{ name: f, match: { when: 'env(\"EGRET_NO_SUCH\") == \"a\"' }, remedies: [retry: {}] }]\n",
            "EGRET_NO_SUCH is not set",
        ),
        (
            "flows: [{ name: f, match: { when: '\"${env:EGRET_TEST_VALUE}\" == \"a\"' }, remedies: [retry: {}] }]\n",
            "write `env(\"NAME\")`",
        ),
    ] {
        let (code, stderr) = check(text);
        assert!(
            code == Some(2) && stderr.contains(expected) && !stderr.contains("hunter2"),
            "{text}: {stderr}"
        );
    }
}
