//! Secrets in secret managers: fetched once, renewed under load, and kept while the manager is away. Against
//! stand-ins of Vault, of the managers of AWS and of Google Cloud, and of those that give their identities.

use std::process::Command;
use std::sync::Arc;

use egret_tests::aws::{LATER, ROLE, assumed, keys, machine, response};
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::http::Client;
use egret_tests::load::Load;
use egret_tests::managed::{STRIPE, config, token, token_of};
use egret_tests::process::{Directory, raise_open_files, run};
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::wait::{self, Watched};
use serde_json::{Value, json};

/// The secret id of the role at the stand-in of Vault, in the environment of the gateway.
const SECRET_ID: (&str, &str) = ("EGRET_TEST_SECRET_ID", "planted-secret-id");

/// Secrets that the tests plant, apart from those that are sent to the origin.
const PLANTED: [&str; 4] = ["planted-secret-id", "planted-token", "planted-beside", "hunter2"];

/// The key under `secrets` for the stand-in of Vault; `keys` are further ones of it.
fn vault_at(url: &str, keys: &str) -> String {
    format!(
        "vault: {{ url: '{url}', login: {{ app_role: {{ role_id: egret, secret_id: '${{env:{}}}' }} }}, timeout: 60s{keys} }}",
        SECRET_ID.0
    )
}

fn with_secret_id(command: &mut Command) {
    command.env(SECRET_ID.0, SECRET_ID.1).env("NO_COLOR", "1");
}

fn start(config: &Config) -> Egret {
    Egret::start_with(config, with_secret_id)
}

/// A stand-in of Vault, with one secret.
struct StandInVault {
    server: Provider,
    /// The field `key` of the secret; `None` while it is sealed.
    key: Arc<Watched<Option<String>>>,
}

impl StandInVault {
    fn start(key: &str) -> Self {
        let state = Arc::new(Watched::<Option<String>>::default());
        state.change(|state| *state = Some(key.to_owned()));
        let key = Arc::clone(&state);
        let server = Provider::with_responses(move |request| match key.read(Clone::clone) {
            Some(key) => answer(request, &key),
            None => response("503 Service Unavailable", r#"{"errors":["Vault is sealed: hunter2"]}"#),
        });
        Self { server, key: state }
    }

    fn url(&self) -> String {
        self.server.url()
    }

    fn set(&self, key: Option<&str>) {
        self.key.change(|state| *state = key.map(str::to_owned));
    }

    fn lines(&self) -> Vec<String> {
        self.server.requests().into_iter().map(|request| request.line).collect()
    }
}

/// Returns the response of a Vault whose secret has this key.
fn answer(request: &Request, key: &str) -> Vec<u8> {
    let is_logged_in = request.values("x-vault-token") == ["planted-token"];
    let body = match &*request.line {
        "POST /v1/auth/approle/login HTTP/1.1" => {
            let form: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            if form != json!({ "role_id": "egret", "secret_id": SECRET_ID.1 }) {
                return response("400 Bad Request", r#"{"errors":["invalid role or secret ID: hunter2"]}"#);
            }
            json!({ "auth": { "client_token": "planted-token", "lease_duration": 60 } })
        }
        _ if !is_logged_in => {
            return response("403 Forbidden", r#"{"errors":["permission denied: hunter2"]}"#);
        }
        "GET /v1/secret/data/stripe HTTP/1.1" => {
            let metadata = json!({ "version": 3, "destroyed": false });
            json!({ "data": { "data": { "key": key, "other": "planted-beside" }, "metadata": metadata } })
        }
        _ => return response("404 Not Found", r#"{"errors":[]}"#),
    };
    response("200 OK", &body.to_string())
}

#[test]
fn a_thousand_callers_cause_one_fetch() {
    const CLIENTS: usize = 1_000;
    let (vault, origin) = (StandInVault::start("the-first-key"), Provider::plain());
    raise_open_files();
    let mut yaml = config(&origin, STRIPE, &vault_at(&vault.url(), ", lifetime: 1d")).yaml();
    for number in 0..50 {
        let account =
            format!("  more-{number}: {{ provider: origin, bearer: {{ token: '{STRIPE}' }} }}\nflows:");
        yaml = yaml.replacen("flows:", &account, 1);
    }
    // The provider may be slow to accept a thousand connections at once.
    let yaml = yaml.replacen("gateway:\n", "gateway:\n  timeouts: { connect: 1h }\n", 1);
    let egret = start(&Config::written(yaml.clone()));
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(egret.address(), "/origin/a");
    }
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    assert!(origin.requests().iter().all(|request| token_of(request) == "the-first-key"));
    egret.change_config(yaml.replace("level: debug", "level: info"));
    assert_eq!(token(&egret, &origin), "the-first-key");
    let once = ["POST /v1/auth/approle/login HTTP/1.1", "GET /v1/secret/data/stripe HTTP/1.1"];
    assert_eq!(vault.lines(), once);
    vault.set(Some("the-second-key"));
    egret.hang_up();
    wait::until_true("the second key is used", || token(&egret, &origin) == "the-second-key");
    assert_eq!(vault.lines(), [once, once].concat());
}

#[test]
fn secrets_rotate_under_load_without_a_failed_call() {
    let (vault, origin) = (StandInVault::start("the-key-1"), Provider::plain());
    let egret = start(&config(&origin, STRIPE, &vault_at(&vault.url(), ", lifetime: 1s")));
    let load = Load::start(egret.address(), "/origin/load", 4, true);
    for round in 2..=4 {
        let new = format!("the-key-{round}");
        vault.set(Some(&new));
        wait::until_true("the new key is used", || token(&egret, &origin) == new);
    }
    let tally = load.finish();
    assert!(tally.failures.is_empty() && tally.completed == tally.sent, "{tally:?}");
    assert_eq!(egret.stat("/reloads_refused"), 0, "{}", egret.log());
}

#[test]
fn an_outage_keeps_the_last_secret() {
    let (vault, origin) = (StandInVault::start("the-first-key"), Provider::plain());
    let egret = start(&config(&origin, STRIPE, &vault_at(&vault.url(), ", lifetime: 1s")));
    let metric = |value: u32| {
        let line = format!("egret_managed_secret_up{{secret=\"vault:secret/data/stripe\"}} {value}\n");
        wait::until_true(&line, || egret.control_get("/metrics").text().contains(&line));
    };
    metric(1);
    vault.set(None);
    let log = egret.log_with("a secret was not renewed, and the last one stays in use");
    assert!(log.contains("Vault responded with 503") && !log.contains("hunter2"), "{log}");
    metric(0);
    wait::until_true("there is a finding", || {
        let findings = egret.control_get("/api/v1/findings");
        findings.text().contains("the secret vault:secret/data/stripe was not renewed")
    });
    assert_eq!(token(&egret, &origin), "the-first-key");
    // A reload has no need of it either.
    let before = egret.stat("/reloads");
    egret.hang_up();
    wait::until_true("the config is applied again", || egret.stat("/reloads") > before);
    assert_eq!(token(&egret, &origin), "the-first-key");
    vault.set(Some("the-second-key"));
    wait::until_true("the second key is used", || token(&egret, &origin) == "the-second-key");
    egret.until_logged("the secret manager gives the secret again");
    metric(1);
    assert_eq!(egret.log().matches("a secret was not renewed").count(), 1);
    assert_eq!(egret.stat("/reloads_refused"), 0, "{}", egret.log());
}

#[test]
fn a_renewed_secret_that_cannot_be_used_changes_nothing() {
    let (vault, origin) = (StandInVault::start("the-first-key"), Provider::plain());
    let egret = start(&config(&origin, STRIPE, &vault_at(&vault.url(), ", lifetime: 1s")));
    vault.set(Some("hunter2\nX-Smuggled: 1"));
    egret.until_logged("renewed secrets are not in use");
    assert_eq!(token(&egret, &origin), "the-first-key");
    vault.set(Some("the-second-key"));
    wait::until_true("the second key is used", || token(&egret, &origin) == "the-second-key");
    assert!(!egret.log().contains("hunter2"), "{}", egret.log());
}

#[test]
fn planted_secrets_appear_nowhere() {
    let directory = Directory::default();
    let (har, seen) = (directory.join("har"), directory.join("seen"));
    let vault = StandInVault::start("planted-key-of-vault");
    let origin = Provider::with_responses(|request| ok(&token_of(request)));
    // A command of the same config, which is run again while all secrets are known.
    let script = format!(
        "(env; cat /proc/self/cmdline /proc/self/environ) > {0}.new; mv {0}.new {0}; echo printed",
        seen.display()
    );
    let secrets = vault_at(&vault.url(), ", lifetime: 1s")
        + &format!(
            ", commands: {{ other: {{ command: [sh, -c, '{script}'], lifetime: 1s, timeout: 60s }} }}"
        );
    let mut yaml = config(&origin, STRIPE, &secrets).yaml().replace("level: debug", "level: trace");
    let more = format!(
        "  other: {{ provider: origin, bearer: {{ token: '${{exec:other}}' }} }}\n\
         exporters: {{ archive: {{ type: har, directory: '{}' }} }}\nflows:",
        har.display()
    );
    yaml = yaml.replacen("flows:", &more, 1).replacen(
        "account: main } }] }]",
        "account: main } }], diagnoses: [{ har: { export: archive, obfuscate: false, bodies: 64KiB } }] }]",
        1,
    );
    let egret = start(&Config::written(yaml));
    assert_eq!(token(&egret, &origin), "planted-key-of-vault");
    let recorded = wait::until("the exchange is recorded", || {
        let files = std::fs::read_dir(&har).ok()?.filter_map(Result::ok);
        let texts: String = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
        texts.contains("\"_account\":\"main\"").then_some(texts)
    });
    vault.server.until_requested(6);
    vault.set(Some("planted-key-of-later"));
    wait::until_true("the later key is used", || token(&egret, &origin) == "planted-key-of-later");
    vault.set(None);
    egret.until_logged("a secret was not renewed");
    let paths = [
        "/",
        "/metrics",
        "/api/v1/config",
        "/api/v1/accounts",
        "/api/v1/flows",
        "/api/v1/findings",
        "/api/v1/stats",
    ];
    let mut shown: String = paths.iter().map(|path| egret.control_get(path).text().to_owned()).collect();
    let of_command = std::fs::read_to_string(&seen).unwrap();
    assert!(of_command.contains("PATH="), "{of_command}");
    shown += &(egret.log() + &recorded + &of_command);
    assert!(shown.contains(STRIPE));
    for secret in PLANTED.into_iter().chain(["planted-key-of-vault", "planted-key-of-later"]) {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
}

#[test]
fn a_refused_reference_is_reported_at_its_place() {
    let (vault, origin, directory) =
        (StandInVault::start("planted-key"), Provider::plain(), Directory::default());
    let check = |reference: &str, secrets: &str, option: &str| {
        let config = directory.write("egret.yaml", config(&origin, reference, secrets).yaml());
        let mut command = egret(["check", config.to_str().unwrap()]);
        with_secret_id(command.args(Some(option).filter(|option| !option.is_empty())));
        let checked = run(&mut command);
        let said = [checked.stdout, checked.stderr].concat();
        (checked.status.code(), String::from_utf8(said).unwrap())
    };
    let of_vault = vault_at(&vault.url(), "");
    let place = "egret.yaml:10:46: accounts.main.bearer.token: ";
    for (reference, secrets, says) in [
        (STRIPE, "", "is in a secret manager that is not configured: add `secrets.vault`"),
        ("${vault:secret/data/stripe}", &*of_vault, "write the path of the secret as Vault's API has it"),
        (
            "${vault:secret/data/stripe#kee}",
            &of_vault,
            "no secret was fetched for ${vault:secret/data/stripe#kee}: the secret is not JSON with one field `kee`",
        ),
        ("${vault:secret/data/none#key}", &of_vault, "Vault responded with 404: there is no such secret"),
        (
            STRIPE,
            &of_vault.replace("role_id: egret", "role_id: other"),
            "Vault responded with 400: check the login",
        ),
        (
            STRIPE,
            &of_vault.replace(&vault.url(), "http://127.0.0.1:1"),
            "no secret was fetched for ${vault:secret/data/stripe#key}: 127.0.0.1:1: ",
        ),
        (
            "${aws:a}",
            "aws: { region: eu-west-1, url: 'http://127.0.0.1:1', access_key_id: '${env:PATH}', secret_access_key: '${env:PATH}' }",
            "no secret was fetched for ${aws:a}: secrets.aws.access_key_id: must consist of letters",
        ),
    ] {
        let (code, said) = check(reference, secrets, "");
        assert!(code == Some(2) && said.contains(place) && said.contains(says), "{said}");
        assert!(
            PLANTED.iter().all(|secret| !said.contains(secret)) && !said.contains("planted-key"),
            "{said}"
        );
    }
    let before = vault.lines();
    assert_eq!(check(STRIPE, &of_vault, "--no-secrets").0, Some(0));
    assert_eq!(vault.lines(), before);
    assert_eq!(check(STRIPE, &of_vault, "").0, Some(0));
    assert_eq!(vault.lines().len(), before.len() + 2);
}

#[test]
fn commands_that_ask_a_gateway_fetch_nothing() {
    let (vault, origin) = (StandInVault::start("planted-key"), Provider::plain());
    let gateway = start(&config(&origin, STRIPE, &vault_at(&vault.url(), ", lifetime: 1d")));
    let before = vault.lines();
    for command in ["health", "status", "doctor", "discover"] {
        let mut command = egret([command, "--config"]);
        command.arg(gateway.directory().join("egret.yaml"));
        command.arg("--control").arg(gateway.control().to_string());
        with_secret_id(command.current_dir(gateway.directory().path()));
        let said = run(&mut command);
        // A mistake in the arguments.
        assert_ne!(said.status.code(), Some(2), "{said:?}");
        let said = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
        assert!(!said.contains("planted"), "{said}");
    }
    assert_eq!(vault.lines(), before);
}

#[test]
fn a_workload_of_kubernetes_logs_in_with_its_token() {
    let directory = Directory::default();
    let file = directory.write_secret("token", "planted-jwt-1\n");
    let reads = Watched::<u32>::default();
    let vault = Provider::with_responses(move |request| {
        if request.line == "POST /v1/auth/cluster/one/login HTTP/1.1" {
            return response("200 OK", r#"{"auth":{"client_token":"planted-token"}}"#);
        }
        reads.change(|count| *count += 1);
        let key = format!("the-key-{}", reads.read(|count| *count));
        response("200 OK", &json!({ "data": { "data": { "key": key }, "metadata": {} } }).to_string())
    });
    let origin = Provider::plain();
    let secrets = format!(
        "vault: {{ url: '{}', namespace: team/pay, lifetime: 1s, timeout: 60s, \
         login: {{ kubernetes: {{ role: egret, mount: cluster/one, token_file: '{}' }} }} }}",
        vault.url(),
        file.display()
    );
    let egret = start(&config(&origin, STRIPE, &secrets));
    directory.write_secret("token", "planted-jwt-2");
    wait::until_true("it has logged in again", || token(&egret, &origin) != "the-key-1");
    let requests = vault.requests();
    let forms: Vec<Value> =
        requests.iter().filter_map(|request| serde_json::from_slice(&request.body).ok()).collect();
    assert_eq!(forms[0], json!({ "role": "egret", "jwt": "planted-jwt-1" }));
    wait::until_true("the new token is used", || {
        let mut forms =
            vault.requests().into_iter().filter_map(|request| serde_json::from_slice(&request.body).ok());
        forms.next_back() == Some(json!({ "role": "egret", "jwt": "planted-jwt-2" }))
    });
    for request in requests {
        assert_eq!(request.values("x-vault-namespace"), ["team/pay"]);
        assert_eq!(request.values("x-vault-request"), ["true"]);
    }
    assert!(!egret.log().contains("planted"), "{}", egret.log());
}

#[test]
fn a_manager_is_reached_through_the_upstream_proxy() {
    let (vault, origin) = (StandInVault::start("the-first-key"), Provider::plain());
    let address = vault.server.address();
    let proxy = Provider::scripted(move |peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\n\r\n");
        peer.relay_to(address);
    });
    let secrets = vault_at("http://vault.test:8200", ", lifetime: 1d");
    let config =
        config(&origin, STRIPE, &secrets).gateway(format!("upstream_proxy: {{ url: '{}' }}", proxy.url()));
    let egret = start(&config);
    assert_eq!(token(&egret, &origin), "the-first-key");
    assert_eq!(proxy.requests()[0].line, "CONNECT vault.test:8200 HTTP/1.1");
    assert_eq!(vault.lines().len(), 2);
    assert_eq!(vault.server.requests()[0].values("host"), ["vault.test:8200"]);
}

/// Returns the id of the key that a request to the manager of AWS is signed with.
fn signed_by(request: &Request) -> String {
    let [authorization] = request.values("authorization")[..] else { panic!("{request:?}") };
    let (_, rest) = authorization.split_once("Credential=").unwrap();
    let (id, scope) = rest.split_once('/').unwrap();
    assert!(scope.contains("/eu-west-1/secretsmanager/aws4_request"), "{authorization}");
    let names = "SignedHeaders=content-type;host;x-amz-date;";
    assert!(authorization.contains(names) && authorization.contains("x-amz-target,"), "{authorization}");
    id.to_owned()
}

#[test]
fn secrets_of_aws_are_fetched_with_every_identity() {
    let secret = json!({ "key": "planted-key-of-aws", "other": "planted-beside" }).to_string();
    let manager =
        Provider::responding(response("200 OK", &json!({ "Name": "a", "SecretString": secret }).to_string()));
    let sts = Provider::responding(assumed("AssumeRoleWithWebIdentity", "ASIAWEB", "planted-secret-of-sts"));
    let instance = machine(|| response("200 OK", &keys("ASIAMACHINE", LATER)));
    let container = Provider::responding(response("200 OK", &keys("ASIAPOD", LATER)));
    let directory = Directory::default();
    let jwt = directory.write_secret("jwt", "planted-jwt");
    let printed = json!({ "Version": 1, "AccessKeyId": "AKIAPRINTED", "SecretAccessKey": "planted-printed" });
    let printed = directory.write_secret("printed", printed.to_string());
    let origin = Provider::plain();
    for (identity, id) in [
        (format!("identity: {{ instance: true, metadata_host: '{}' }}", instance.address()), "ASIAMACHINE"),
        (
            format!(
                "identity: {{ web_identity: true, role: '{ROLE}', token_file: '{}', sts_url: '{}' }}",
                jwt.display(),
                sts.url()
            ),
            "ASIAWEB",
        ),
        ("identity: { container: true }".to_owned(), "ASIAPOD"),
        ("identity: { process: '${exec:keys}' }".to_owned(), "AKIAPRINTED"),
        ("access_key_id: '${env:OWN_ID}', secret_access_key: '${env:OWN_KEY}'".to_owned(), "AKIAOWN"),
    ] {
        let secrets = format!(
            "commands: {{ keys: {{ command: [cat, '{}'], timeout: 60s }} }}, \
             aws: {{ region: eu-west-1, url: '{}', timeout: 60s, {identity} }}",
            printed.display(),
            manager.url()
        );
        let egret = Egret::start_with(&config(&origin, "${aws:prod/stripe#key}", &secrets), |command| {
            command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", container.url());
            command.env("OWN_ID", "AKIAOWN").env("OWN_KEY", "planted-own-key");
        });
        assert_eq!(token(&egret, &origin), "planted-key-of-aws");
        let asked = manager.requests().pop().unwrap();
        assert_eq!((&*asked.line, signed_by(&asked)), ("POST / HTTP/1.1", id.to_owned()));
        assert_eq!(asked.values("x-amz-target"), ["secretsmanager.GetSecretValue"]);
        assert_eq!(asked.body, br#"{"SecretId":"prod/stripe"}"#);
        let shown = egret.log() + egret.control_get("/api/v1/config").text();
        assert!(!shown.contains("planted") && !shown.contains("secret-of-"), "{shown}");
    }
    assert_eq!(manager.requests().len(), 5);
}

#[test]
fn secrets_of_google_are_fetched_for_the_machine() {
    const VERSION: &str = "projects/shop/secrets/stripe/versions/latest";
    let granted = json!({ "access_token": "planted-token", "expires_in": 3600, "token_type": "Bearer" });
    let service = Provider::responding(response("200 OK", &granted.to_string()));
    let whole = Arc::new(Watched::<Vec<u8>>::default());
    // The Base64 of `the-whole-secret`.
    let accessed = json!({ "name": VERSION, "payload": { "data": "dGhlLXdob2xlLXNlY3JldA==" } });
    whole.change(|whole| *whole = response("200 OK", &accessed.to_string()));
    let given = Arc::clone(&whole);
    let manager = Provider::with_responses(move |_| given.read(Vec::clone));
    let origin = Provider::plain();
    let secrets = format!(
        "gcp: {{ identity: {{ metadata: true, metadata_host: '{}' }}, url: '{}', lifetime: 1s, timeout: 60s }}",
        service.address(),
        manager.url()
    );
    let egret = start(&config(&origin, &format!("${{gcp:{VERSION}}}"), &secrets));
    assert_eq!(token(&egret, &origin), "the-whole-secret");
    let asked = manager.requests().remove(0);
    assert_eq!(asked.line, format!("GET /v1/{VERSION}:access HTTP/1.1"));
    assert_eq!(asked.values("authorization"), ["Bearer planted-token"]);
    let denied = json!({ "error": { "code": 403, "status": "PERMISSION_DENIED", "message": "hunter2" } });
    whole.change(|whole| *whole = response("403 Forbidden", &denied.to_string()));
    let log = egret.log_with("a secret was not renewed");
    assert!(log.contains("Secret Manager responded with 403 PERMISSION_DENIED: allow the identity"), "{log}");
    assert_eq!(token(&egret, &origin), "the-whole-secret");
    assert!(PLANTED.iter().all(|secret| !log.contains(secret)), "{log}");
}
