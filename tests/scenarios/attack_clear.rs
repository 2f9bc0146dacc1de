//! Credentials sent over the network in the clear must cause a warning.

use egret_tests::egret::egret;
use egret_tests::process::{Directory, run};

const SECRET: &str = "s3cr3tK3y0123";

#[test]
fn a_credential_sent_in_the_clear_warns() {
    let directory = Directory::default();
    let secret = directory.write_secret("secret", SECRET).display().to_string();
    let yaml = |url: &str| {
        format!(
            "providers: {{ origin: {{ url: \"{url}\" }} }}\n\
             accounts:\n  main: {{ provider: origin, bearer: {{ token: \"${{file:{secret}}}\" }} }}\n\
             flows: [{{ name: f, remedies: [authenticate: {{ account: main }}] }}]\n"
        )
    };
    let check = |url: &str| {
        let config = directory.write("egret.yaml", yaml(url));
        let checked = run(egret(["check"]).arg(config));
        assert_eq!(checked.status.code(), Some(0));
        String::from_utf8_lossy(&checked.stderr).into_owned()
    };
    let stderr = check("http://api.example.com");
    let place = format!("warning: {}:3:", directory.join("egret.yaml").display());
    assert!(
        stderr.starts_with(&place) && stderr.contains("accounts.main.provider"),
        "no warning: {stderr:?}"
    );
    assert!(stderr.contains("in the clear") && !stderr.contains(SECRET), "{stderr}");
    for url in ["https://api.example.com", "http://localhost:8080/v1", "http://127.0.0.2", "http://[::1]:1"] {
        assert_eq!(check(url), "", "{url}");
    }
}
