//! Pods that prove who they are by a projected token of their service account, with the keys of the cluster
//! in a file.

use egret_tests::egret::{Config, Egret};
use egret_tests::issuer::{TokenKey, key_set};
use egret_tests::peers::curl;
use egret_tests::process::{Directory, run};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;
use serde_json::{Value, json};

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The claims of a projected token.
fn claims(namespace: &str, account: &str) -> Value {
    json!({
        "aud": ["egret"],
        "iss": ISSUER,
        "jti": "1f2c5a4e-9d7b-4b7e-8f6a-0c1d2e3f4a5b",
        "kubernetes.io": {
            "namespace": namespace,
            "node": { "name": "node-1", "uid": "5b6c" },
            "pod": { "name": format!("{account}-7d9c"), "uid": "6c7d" },
            "serviceaccount": { "name": account, "uid": "7d8e" },
        },
        "nbf": 1_700_000_000,
        "sub": format!("system:serviceaccount:{namespace}:{account}"),
    })
}

/// Starts a gateway that serves the namespace `prod`, and tells the others that they may not.
fn start(directory: &Directory, key: &TokenKey) -> (Egret, Provider) {
    let origin = Provider::with_responses(|request| ok(&request.values("x-seen").concat()));
    let keys = directory.write("jwks.json", key_set(&[key]));
    let listen = format!(
        "{{ address: '127.0.0.1:0', clients: {{ jwt: {{ issuer: '{ISSUER}', audience: egret, jwks: '{}' }} }} }}",
        keys.display()
    );
    let flows = "flows:\n\
        \x20 - name: prod\n\
        \x20   match: { consumer: 'system:serviceaccount:prod:*' }\n\
        \x20   remedies: [{ transform: { request: { headers: { set: { x-seen: '${request.consumer}' } } } } }]\n";
    (Config::with_origin(origin.url()).listen([&listen]).flows(flows).start(), origin)
}

fn status(egret: &Egret, token: &str) -> (u16, String) {
    let response = egret.get_with("/origin/a", &format!("x-egret-token: {token}\r\n"));
    (response.status, response.text().to_owned())
}

#[test]
fn a_projected_token_proves_its_service_account() {
    let (directory, key) = (Directory::default(), TokenKey::new("cluster"));
    let (egret, _origin) = start(&directory, &key);
    let own = "system:serviceaccount:prod:checkout";
    assert_eq!(status(&egret, &key.token(claims("prod", "checkout"))), (200, own.to_owned()));
    assert_eq!(
        status(&egret, &key.token(claims("dev", "checkout"))),
        (200, String::new()),
        "no flow matches"
    );
    let mut other = claims("prod", "checkout");
    other["aud"] = json!([ISSUER]);
    assert_eq!(status(&egret, &key.token(other)).0, 407, "the token is for the API server");
}

#[test]
fn curl_proves_its_account_as_the_user_of_its_proxy() {
    let (directory, key) = (Directory::default(), TokenKey::new("cluster"));
    let (egret, origin) = start(&directory, &key);
    let token = key.token(claims("prod", "checkout"));
    let target = format!("{}/a", origin.url());
    let call = |userinfo: &str| {
        let proxy = format!("http://{userinfo}@{}", egret.address());
        let output = run(curl().args(["--proxy", &proxy, "-w", " %{http_code}"]).arg(&target));
        String::from_utf8(output.stdout).unwrap().lines().last().unwrap_or_default().to_owned()
    };
    let own = "system:serviceaccount:prod:checkout";
    let user = own.replace(':', "%3A");
    assert_eq!(call(&format!("{user}:{token}")), format!("{own} 200"));
    let other = user.replace("checkout", "reports");
    assert!(call(&format!("{other}:{token}")).ends_with(" 407"), "the name is another one's");
}

#[test]
fn the_file_of_keys_is_read_again_by_a_reload() {
    let (directory, one, two) = (Directory::default(), TokenKey::new("one"), TokenKey::new("two"));
    let (egret, _origin) = start(&directory, &one);
    let statuses = || [&one, &two].map(|key| status(&egret, &key.token(claims("prod", "checkout"))).0);
    assert_eq!(statuses(), [200, 407]);
    directory.write("jwks.json", key_set(&[&two]));
    egret.hang_up();
    wait::until_true("the new keys are in use", || statuses() == [407, 200]);
    directory.write("jwks.json", "{}");
    egret.hang_up();
    egret.until_logged("it has no list `keys`");
    assert_eq!(statuses(), [407, 200], "a broken file changes nothing");
}
