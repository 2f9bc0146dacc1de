//! Invalid accounts: each is rejected with its position and advice, and no secret is repeated.

use egret_tests::egret::egret;
use egret_tests::process::{Directory, run};

/// Returns the output of `egret check` for accounts and the remedies that use them.
fn check(directory: &Directory, accounts: &str, remedies: &str) -> (Option<i32>, String) {
    let yaml = format!(
        "providers:\n  stripe: {{ url: 'https://api.stripe.example' }}\n  plain: {{ url: 'http://plain.example' }}\n\
         accounts:\n  {accounts}\nflows:\n  - name: f\n    match: {{ provider: stripe }}\n    remedies: [{remedies}]\n"
    );
    let file = directory.write("egret.yaml", yaml);
    let checked = run(egret(["check", file.to_str().unwrap()])
        .env("NO_COLOR", "1")
        .env("KEY", "k3y")
        .env("TORN", "k3\ny"));
    (checked.status.code(), String::from_utf8_lossy(&checked.stderr).into_owned())
}

#[test]
fn every_mistake_has_a_place_and_a_way_out() {
    let directory = Directory::default();
    let good = "main: { provider: stripe, bearer: { token: '${env:KEY}' } }";
    let use_main = "{ authenticate: { account: main } }";
    for (accounts, remedies, received) in [
        (
            "main: { bearer: { token: '${env:KEY}' } }",
            use_main,
            "5:3: accounts.main: the key `provider` is missing",
        ),
        (
            "main: { provider: stripes, bearer: { token: '${env:KEY}' } }",
            use_main,
            "accounts.main.provider: no provider is called `stripes`; did you mean `stripe`?",
        ),
        (
            "main: { provider: stripe }",
            use_main,
            "accounts.main: the credential is missing: set one of `basic`, `api_key`",
        ),
        (
            "main: { provider: stripe, bearer: { token: '${env:KEY}' }, basic: { user: u } }",
            use_main,
            "accounts.main: `basic` and `bearer` exclude each other: use two accounts",
        ),
        (
            "main: { provider: stripe, bearer: { token: '${env:NO_SUCH_KEY}' } }",
            use_main,
            "accounts.main.bearer.token: the environment variable NO_SUCH_KEY is not set",
        ),
        (
            "main: { provider: stripe, bearer: { token: k3y } }",
            use_main,
            "accounts.main.bearer.token: a secret must not be written in the config",
        ),
        (
            "main: { provider: stripe, bearer: { token: '${env:TORN}' } }",
            use_main,
            "accounts.main.bearer.token: contains a control character",
        ),
        (
            "main: { provider: stripe, api_key: { header: Host, value: '${env:KEY}' } }",
            use_main,
            "accounts.main.api_key.header: `Host` is not a header field that may carry a key",
        ),
        (
            "main: { provider: stripe, api_key: { value: '${env:KEY}' } }",
            use_main,
            "accounts.main.api_key.value: set either `header` or `query`",
        ),
        (
            "main: { provider: stripe, basic: { user: 'a:b', password: '${env:KEY}' } }",
            use_main,
            "accounts.main.basic.user: a user must not contain a colon",
        ),
        (
            "main: { provider: plain, certificate: { certificate: a.pem, key: '${env:KEY}' } }",
            "{ timeout: { total: 1s } }",
            "accounts.main.certificate: a client certificate requires TLS, but the URL of `plain` is not `https`",
        ),
        (
            "main: { provider: stripe, account: other }",
            use_main,
            "accounts.main.account: unknown key `account`",
        ),
        (
            good,
            "{ authenticate: { account: mian } }",
            "authenticate.account: no account is called `mian`; did you mean `main`?",
        ),
        (
            "main: { provider: plain, bearer: { token: '${env:KEY}' } }",
            use_main,
            "authenticate.account: the account `main` is for `plain`, which the flow does not match",
        ),
        (
            good,
            "{ cache: {} }, { authenticate: { account: main } }",
            "flows[0].remedies[0].cache: `remedies[1].authenticate` chooses an account after the cache look-up",
        ),
        (
            "'a b': { provider: stripe, bearer: { token: '${env:KEY}' } }",
            "{ timeout: { total: 1s } }",
            "an account's name must consist of 1 to 64 letters",
        ),
    ] {
        let (code, stderr) = check(&directory, accounts, remedies);
        assert_eq!(code, Some(2), "{accounts} {remedies}: {stderr}");
        assert!(stderr.contains(received), "{received:?} is not in\n{stderr}");
        assert!(!stderr.contains("k3y"), "{stderr}");
    }
    let (code, stderr) = check(&directory, good, use_main);
    assert_eq!(code, Some(0), "{stderr}");
}
