//! HashiCorp's Vault in the place of its stand-in: each way to log in, secrets that change under load, and a
//! server that is sealed for a while.

use std::process::Command;

use egret_tests::egret::{Egret, egret};
use egret_tests::issuer::base64url;
use egret_tests::load::Load;
use egret_tests::managed::{STRIPE, config, token};
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run};
use egret_tests::provider::{Provider, Request};
use egret_tests::wait;
use serde_json::{Value, json};

use super::peers::Vault;

/// The variable with what the gateway logs in by.
const LOGIN: &str = "EGRET_TEST_LOGIN";

/// Tokens that are good for one call: each fetch of a secret needs a login of its own.
const FOR_ONE_CALL: (&str, &str) = ("token_num_uses", "1");

/// Writes a new version of the secret.
fn put(vault: &Vault, key: &str) {
    vault.call("POST", "secret/data/stripe", &json!({ "data": { "key": key, "other": "beside" } }));
}

/// Starts a Vault with a secret, and a policy by which it may be read.
fn vault_with(key: &str) -> Vault {
    let vault = Vault::start();
    let policy = r#"path "secret/data/stripe" { capabilities = ["read"] }"#;
    vault.call("PUT", "sys/policies/acl/reader", &json!({ "policy": policy }));
    // The store of a mount is ready a moment after the mount.
    let first = json!({ "data": { "key": key, "other": "beside" } });
    wait::until_true("the secret is stored", || {
        vault.try_call("POST", "secret/data/stripe", &first).0 == 200
    });
    vault
}

/// Makes an `AppRole`, whose logins have tokens of this kind. Returns its way to log in, and its secret id.
fn app_role(vault: &Vault, tokens: (&str, &str)) -> (String, String) {
    vault.call("POST", "sys/auth/apps", &json!({ "type": "approle" }));
    let role = json!({ "token_policies": ["reader"], "token_ttl": "1m", tokens.0: tokens.1 });
    vault.call("POST", "auth/apps/role/egret", &role);
    let id = vault.call("GET", "auth/apps/role/egret/role-id", &Value::Null);
    let secret = vault.call("POST", "auth/apps/role/egret/secret-id", &Value::Null);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let id = text(&id["data"]["role_id"]);
    let way = format!("app_role: {{ role_id: '{id}', secret_id: '${{env:{LOGIN}}}', mount: apps }}");
    (way, text(&secret["data"]["secret_id"]))
}

/// Makes a token with the policy of readers. Returns the way to log in by it, and the token.
fn own_token(vault: &Vault) -> (String, String) {
    let made = vault.call("POST", "auth/token/create", &json!({ "policies": ["reader"], "period": "1h" }));
    let token = made["auth"]["client_token"].as_str().unwrap().to_owned();
    (format!("token: '${{env:{LOGIN}}}'"), token)
}

/// The token of a service account, as a file of a pod has it. Vault leaves its signature to the cluster.
fn pod_token(account: &str) -> String {
    let claims = json!({
        "iss": "https://kubernetes.default.svc.cluster.local",
        "kubernetes.io": { "namespace": "shop", "serviceaccount": { "name": account, "uid": "7d8e" } },
        "sub": format!("system:serviceaccount:shop:{account}"),
    });
    let parts = [json!({ "alg": "RS256", "kid": "cluster" }), claims].map(|part| part.to_string());
    let [header, claims] = parts.map(|part| base64url(part.as_bytes()));
    format!("{header}.{claims}.{}", base64url(b"signature"))
}

/// Says about the token of a review whether it is that of the account `checkout`.
fn review(request: &Request) -> Vec<u8> {
    let review: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let is_known = review["spec"]["token"] == pod_token("checkout");
    let user = json!({ "username": "system:serviceaccount:shop:checkout", "uid": "7d8e" });
    let status = if is_known { json!({ "authenticated": true, "user": user }) } else { json!({}) };
    let kind = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status });
    egret_tests::aws::response("201 Created", &kind.to_string())
}

/// Lets Vault ask a cluster about tokens. Returns the way to log in by one, and the cluster.
fn kubernetes(vault: &Vault, directory: &Directory) -> (String, Provider) {
    let cluster = Provider::with_responses(review);
    vault.call("POST", "sys/auth/kubernetes", &json!({ "type": "kubernetes" }));
    let authority = Authority::default().certificate();
    let host = json!({ "kubernetes_host": cluster.url(), "kubernetes_ca_cert": authority, "disable_local_ca_jwt": true });
    vault.call("POST", "auth/kubernetes/config", &host);
    let role = json!({
        "bound_service_account_names": ["checkout"],
        "bound_service_account_namespaces": ["shop"],
        "token_policies": ["reader"],
    });
    vault.call("POST", "auth/kubernetes/role/egret", &role);
    let file = directory.write_secret("token", pod_token("checkout"));
    (format!("kubernetes: {{ role: egret, token_file: '{}' }}", file.display()), cluster)
}

/// The keys of the section `secrets`.
fn secrets(vault: &Vault, way: &str) -> String {
    format!("vault: {{ url: '{}', login: {{ {way} }}, lifetime: 1s, timeout: 60s }}", vault.url())
}

/// Starts a gateway that logs in by `proof`.
fn start(vault: &Vault, origin: &Provider, way: &str, proof: &str) -> Egret {
    Egret::start_with(&config(origin, STRIPE, &secrets(vault, way)), |command| with(command, proof))
}

fn with(command: &mut Command, proof: &str) {
    command.env(LOGIN, proof).env("NO_COLOR", "1");
}

#[test]
fn each_login_at_vault_works_and_a_wrong_one_is_refused() {
    let (vault, origin, directory) = (vault_with("the-first-key"), Provider::plain(), Directory::default());
    let (own, role, (pod, _cluster)) =
        (own_token(&vault), app_role(&vault, ("token_type", "batch")), kubernetes(&vault, &directory));
    for (way, proof, refusal) in [
        (own.0, own.1, "403: check the login"),
        (role.0, role.1, "500 to the login: check it"),
        (pod, String::from("none"), "403: check the login"),
    ] {
        directory.write_secret("token", pod_token("checkout"));
        let gateway = start(&vault, &origin, &way, &proof);
        assert_eq!(token(&gateway, &origin), "the-first-key", "{way}");
        // The config shows references alone.
        let shown = gateway.log() + gateway.control_get("/api/v1/config").text();
        assert!(!shown.contains("the-first-key") && !shown.contains(&proof), "{shown}");
        directory.write_secret("token", pod_token("another"));
        let file = directory.write("egret.yaml", config(&origin, STRIPE, &secrets(&vault, &way)).yaml());
        let mut check = egret(["check", &file.display().to_string()]);
        with(&mut check, "hunter2");
        let output = run(&mut check);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let reason = format!("Vault responded with {refusal}");
        assert!(output.status.code() == Some(2) && said.contains(&reason), "{way}: {said}");
    }
}

#[test]
fn secrets_of_vault_change_under_load_without_a_failed_call() {
    let (vault, origin) = (vault_with("the-key-1"), Provider::plain());
    let (way, secret_id) = app_role(&vault, FOR_ONE_CALL);
    let gateway = start(&vault, &origin, &way, &secret_id);
    let load = Load::start(gateway.address(), "/origin/load", 4, true);
    for round in 2..=4 {
        let new = format!("the-key-{round}");
        put(&vault, &new);
        wait::until_true("the new key is used", || token(&gateway, &origin) == new);
    }
    let tally = load.finish();
    assert!(tally.failures.is_empty() && tally.completed == tally.sent, "{tally:?}");
    assert_eq!(gateway.stat("/reloads_refused"), 0, "{}", gateway.log());
}

#[test]
fn a_sealed_vault_and_a_deleted_secret_leave_the_last_key() {
    let (vault, origin) = (vault_with("the-first-key"), Provider::plain());
    let (way, secret_id) = app_role(&vault, FOR_ONE_CALL);
    let gateway = start(&vault, &origin, &way, &secret_id);
    let is_renewed = |state: u32| {
        let line = format!("egret_managed_secret_up{{secret=\"vault:secret/data/stripe\"}} {state}\n");
        wait::until_true(&line, || gateway.control_get("/metrics").text().contains(&line));
        assert!(state == 1 || token(&gateway, &origin) == "the-first-key");
    };
    vault.seal();
    is_renewed(0);
    vault.unseal();
    gateway.hang_up();
    is_renewed(1);
    vault.call("DELETE", "secret/data/stripe", &Value::Null);
    is_renewed(0);
    put(&vault, "the-second-key");
    gateway.hang_up();
    wait::until_true("the second key is used", || token(&gateway, &origin) == "the-second-key");
    is_renewed(1);
}
