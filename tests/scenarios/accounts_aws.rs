//! Accounts that sign with temporary keys of AWS: against stand-ins of STS, of the metadata services and of
//! programs, and a real S3-compatible store.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use egret_tests::aws::{LATER, ROLE, ROLES, assumed, keys, machine, response};
use egret_tests::clock::Clock;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Client, Response};
use egret_tests::load::Load;
use egret_tests::peers::{S3, curl};
use egret_tests::process::{Directory, raise_open_files, run_checked};
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::wait::{self, Watched};
use serde_json::json;

/// Start time of the test clocks.
const NOW_S: u64 = 1_795_307_476;

/// Returns a config whose calls to the origin are signed with the keys of this identity; `more` are further
/// keys of the account.
fn with_identity(origin: &str, identity: &str, more: &str) -> Config {
    Config::with_origin(origin).flows(format!(
        "accounts:\n  main: {{ provider: origin, sigv4: {{ region: us-east-1, service: s3, identity: {{ {identity}, wait_max: 1h, timeout: 1h }}{more} }} }}\n\
         flows: [{{ name: f, match: {{ provider: origin }}, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n"
    ))
}

fn of_machine(service: &Provider) -> String {
    format!("instance: true, metadata_host: '{}'", service.address())
}

/// Returns the end of keys that are given at this time, and are valid for a minute.
fn end(now_s: u64) -> String {
    jiff::Timestamp::from_second(i64::try_from(now_s + 60).unwrap()).unwrap().to_string()
}

/// Returns the id of the key that a request is signed with. Asserts that the token belongs to it, and is
/// signed.
fn signed_by(request: &Request) -> String {
    let [authorization] = request.values("authorization")[..] else { panic!("{request:?}") };
    let (_, rest) = authorization.split_once("Credential=").unwrap();
    let id = rest.split('/').next().unwrap().to_owned();
    assert_eq!(request.values("x-amz-security-token"), [format!("token-of-{id}")]);
    assert!(authorization.contains(";x-amz-security-token"), "{authorization}");
    id
}

/// Returns the reported reason for the missing keys.
fn why(response: &Response) -> String {
    response.assert_generated(503, "account-unavailable");
    response.json()["detail"].as_str().unwrap().to_owned()
}

/// Returns all that a gateway shows of its accounts: its log at its most verbose, its API and its metrics.
fn shown(egret: &Egret) -> String {
    let paths = ["/api/v1/accounts", "/api/v1/config", "/api/v1/flows", "/metrics"];
    let pages: String = paths.iter().map(|path| egret.control_get(path).text().to_owned()).collect();
    egret.log() + &pages
}

fn assert_discreet(egret: &Egret, secrets: &[&str]) {
    let shown = shown(egret);
    for secret in secrets {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
}

#[test]
fn a_thousand_first_calls_share_the_keys_of_a_machine() {
    const CLIENTS: usize = 1_000;
    let gate = Arc::new(Watched::<bool>::default());
    let opened = Arc::clone(&gate);
    let service = machine(move || {
        opened.until("the keys may be sent", |is_open| is_open.then_some(()));
        response("200 OK", &keys("ASIA1", LATER))
    });
    let origin = Provider::plain();
    raise_open_files();
    let config = with_identity(&origin.url(), &of_machine(&service), "").gateway("workers: 2");
    let config = config.gateway("forwarded_for: true");
    // The provider may be slow to accept a thousand connections at once.
    let egret = config.gateway("timeouts: { connect: 1h }").start();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(egret.address(), "/origin/a");
    }
    wait::until_true("all calls wait", || {
        egret.stat("/clients/open") == CLIENTS as u64 && egret.stat("/clients/idle") == 0
    });
    service.until_requested(3);
    gate.change(|is_open| *is_open = true);
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    let steps = service.requests();
    let lines: Vec<&str> = steps.iter().map(|request| &*request.line).collect();
    let expected = [
        "PUT /latest/api/token HTTP/1.1".to_owned(),
        format!("GET {ROLES} HTTP/1.1"),
        format!("GET {ROLES}reader HTTP/1.1"),
    ];
    assert_eq!(lines, expected);
    assert!(steps.iter().all(|request| request.values("x-forwarded-for").is_empty()));
    let requests = origin.requests();
    assert_eq!(requests.len(), CLIENTS);
    assert!(requests.iter().all(|request| signed_by(request) == "ASIA1"));
    assert_discreet(&egret, &["secret-of-ASIA1", "token-of-ASIA1", "the-session"]);
}

#[test]
fn a_store_accepts_what_a_role_signs() {
    let store = S3::start();
    let [id, secret] = S3::KEYS;
    let sts = Provider::responding(assumed("AssumeRole", id, secret));
    let identity =
        format!("role: '{ROLE}', external_id: shop-1, session_name: batch, sts_url: '{}'", sts.url());
    let own = ", access_key_id: '${env:OWN_ID}', secret_access_key: '${env:OWN_KEY}'";
    let egret = Egret::start_with(&with_identity(&store.url(), &identity, own), |command| {
        command.env("OWN_ID", "AKIAOWN").env("OWN_KEY", "the-long-lived-secret");
    });
    let directory = Directory::default();
    let file = directory.write("object", "what it holds");
    let url = format!("{}/origin/bucket/a%20b.txt", egret.url());
    let fixed = ["--fail-with-body", "--path-as-is", &url];
    run_checked(curl().args(fixed).arg("--upload-file").arg(&file));
    assert_eq!(run_checked(curl().args(fixed)), "what it holds");
    let asked = sts.only_request();
    assert_eq!(asked.line, "POST / HTTP/1.1");
    let form = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Freader\
                &RoleSessionName=batch&ExternalId=shop-1";
    assert_eq!(String::from_utf8(asked.body.clone()).unwrap(), form);
    let [authorization] = asked.values("authorization")[..] else { panic!("{asked:?}") };
    assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIAOWN/"), "{authorization}");
    assert!(
        authorization.contains("/us-east-1/sts/aws4_request, SignedHeaders=content-type;host;x-amz-date")
    );
    assert_discreet(&egret, &["the-long-lived-secret", "token-of-"]);
}

#[test]
fn keys_rotate_while_traffic_flows() {
    let directory = Directory::default();
    let Some(clock) = Clock::new(&directory, NOW_S) else { return };
    let given = Arc::new(Watched::<String>::default());
    given.change(|given| *given = keys("ASIA1", &end(NOW_S)));
    let giving = Arc::clone(&given);
    let service = machine(move || response("200 OK", &giving.read(String::clone)));
    let (seen, over) = (Arc::new(Watched::<Vec<String>>::default()), Arc::new(Mutex::new(HashSet::new())));
    let (seeing, refused) = (Arc::clone(&seen), Arc::clone(&over));
    let origin = Provider::with_responses(move |request| {
        let id = signed_by(request);
        let is_over = refused.lock().unwrap().contains(&id);
        seeing.change(|seen| seen.push(id));
        if is_over {
            response("403 Forbidden", "<Error><Code>ExpiredToken</Code></Error>")
        } else {
            ok("done")
        }
    });
    let egret = Egret::start_with(&with_identity(&origin.url(), &of_machine(&service), ""), |command| {
        clock.govern(command);
    });
    egret.get("/a").assert_forwarded(200);
    for round in 2..=4 {
        let (old, new) = (format!("ASIA{}", round - 1), format!("ASIA{round}"));
        let load = Load::start(egret.address(), "/origin/load", 4, true);
        // More than three quarters of the lifetime.
        let now_s = NOW_S + 46 * (round - 1);
        given.change(|given| *given = keys(&new, &end(now_s)));
        clock.set(now_s);
        let then = seen.read(Vec::len);
        seen.until("the new keys are used", |seen| {
            (seen.len() > then + 100 && !seen[seen.len() - 50..].contains(&old)).then_some(())
        });
        // A call with the old keys may still be under way.
        let tally = load.finish();
        assert!(tally.failures.is_empty() && tally.completed == tally.sent, "{tally:?}");
        over.lock().unwrap().insert(old);
    }
    assert_eq!(service.requests().len(), 4 * 3);
    assert_discreet(&egret, &["secret-of-", "token-of-"]);
}

#[test]
fn keys_outlive_a_service_that_fails() {
    let directory = Directory::default();
    let Some(clock) = Clock::new(&directory, NOW_S) else { return };
    let answer = Arc::new(Watched::<Vec<u8>>::default());
    answer.change(|answer| *answer = response("200 OK", &keys("ASIA1", &end(NOW_S))));
    let given = Arc::clone(&answer);
    let service = machine(move || given.read(Vec::clone));
    let origin = Provider::plain();
    let egret = Egret::start_with(&with_identity(&origin.url(), &of_machine(&service), ""), |command| {
        clock.govern(command);
    });
    egret.get("/a").assert_forwarded(200);
    answer.change(|answer| *answer = response("503 Busy", "hunter2"));
    for now_s in [46, 50, 59] {
        clock.set(NOW_S + now_s);
        egret.get("/a").assert_forwarded(200);
    }
    egret.until_logged("a token could not be fetched");
    clock.set(NOW_S + 60);
    let detail = why(&egret.get("/a"));
    assert!(detail.contains("the instance metadata service gave no keys: 503"), "{detail}");
    // A clock that is set forward by a day ends the wait as well as the keys.
    answer.change(|answer| *answer = response("200 OK", &keys("ASIA2", LATER)));
    clock.pass(86_400);
    egret.get("/a").assert_forwarded(200);
    assert_eq!(signed_by(origin.requests().last().unwrap()), "ASIA2");
    assert_discreet(&egret, &["hunter2", "secret-of-", "token-of-"]);
}

#[test]
fn a_service_that_gives_no_keys_is_named() {
    let long = format!(r#"{{"AccessKeyId":"{}"}}"#, "a".repeat(70 << 10));
    for (answer, says) in [
        (response("200 OK", "<html>hunter2</html>"), "metadata service returned something other than keys"),
        (response("200 OK", &long), "response exceeds 65536 bytes"),
        (response("200 OK", &keys("hunter2/x", LATER)), "returned something other than keys"),
        (response("200 OK", &keys("hunter2", "2001-01-01T00:00:00Z")), "returned keys that have expired"),
        (response("404 Not Found", "hunter2"), "gave no keys: 404; attach a role to the machine"),
        (
            response("200 OK", r#"{"Code":"AssumeRoleUnauthorizedAccess","Message":"hunter2"}"#),
            "gave no keys: 200 AssumeRoleUnauthorizedAccess",
        ),
    ] {
        let (origin, service) = (Provider::plain(), machine(move || answer.clone()));
        let egret = with_identity(&origin.url(), &of_machine(&service), "").start();
        let detail = why(&egret.get("/a"));
        assert!(detail.contains(says) && !detail.contains("hunter2"), "{detail}");
        egret.until_logged("a token could not be fetched");
        assert_discreet(&egret, &["hunter2"]);
        assert_eq!(origin.requests().len(), 0);
    }
    let twice = String::from_utf8(assumed("AssumeRole", "ASIA1", "hunter2")).unwrap();
    let twice = twice
        .split_once("\r\n\r\n")
        .unwrap()
        .1
        .replace("<AccessKeyId>", "<AccessKeyId>ASIA2</AccessKeyId><AccessKeyId>");
    let denied = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>hunter2</Message></Error></ErrorResponse>";
    for (answer, says) in [
        (response("403 Forbidden", denied), "STS gave no keys: 403 AccessDenied; check the role"),
        (response("200 OK", &twice), "STS returned something other than keys"),
        (response("302 Found", "hunter2"), "redirects are not followed"),
    ] {
        let (origin, sts) = (Provider::plain(), Provider::responding(answer));
        let service = machine(|| response("200 OK", &keys("ASIA1", LATER)));
        let identity = of_machine(&service) + &format!(", role: '{ROLE}', sts_url: '{}'", sts.url());
        let egret = with_identity(&origin.url(), &identity, "").start();
        let detail = why(&egret.get("/a"));
        assert!(detail.contains(says), "{detail}");
        egret.until_logged("a token could not be fetched");
        assert_discreet(&egret, &["hunter2", "secret-of-ASIA1"]);
    }
}

#[test]
fn a_web_identity_is_read_again_for_each_request() {
    let directory = Directory::default();
    let Some(clock) = Clock::new(&directory, NOW_S) else { return };
    let sts = Provider::responding(assumed("AssumeRoleWithWebIdentity", "ASIA1", "secret-of-ASIA1"));
    let file = directory.write("token", "first-web-token\n");
    let origin = Provider::plain();
    let identity = format!("web_identity: true, sts_url: '{}'", sts.url());
    let egret = Egret::start_with(&with_identity(&origin.url(), &identity, ""), |command| {
        clock.govern(command);
        command.env("AWS_WEB_IDENTITY_TOKEN_FILE", &file).env("AWS_ROLE_ARN", ROLE);
    });
    egret.get("/a").assert_forwarded(200);
    assert_eq!(signed_by(&origin.only_request()), "ASIA1");
    directory.write("token", "second-web-token");
    // Keys are kept for thirty days at most.
    clock.pass(31 * 86_400);
    egret.get("/a").assert_forwarded(200);
    let forms: Vec<String> =
        sts.requests().iter().map(|request| String::from_utf8(request.body.clone()).unwrap()).collect();
    let [first, second] = &forms[..] else { panic!("{forms:?}") };
    assert!(
        first.starts_with("Action=AssumeRoleWithWebIdentity&") && first.contains("role%2Freader"),
        "{first}"
    );
    assert!(first.ends_with("&WebIdentityToken=first-web-token"), "{first}");
    assert!(second.ends_with("&WebIdentityToken=second-web-token"), "{second}");
    assert!(sts.requests().iter().all(|request| request.values("authorization").is_empty()));
    assert_discreet(&egret, &["web-token", "secret-of-", "token-of-"]);
}

#[test]
fn a_container_proves_itself_to_its_endpoint() {
    let directory = Directory::default();
    let file = directory.write("proof", "the-proof-of-the-pod\n");
    let service = Provider::responding(response("200 OK", &keys("ASIA1", LATER)));
    let origin = Provider::plain();
    let egret = Egret::start_with(&with_identity(&origin.url(), "container: true", ""), |command| {
        command
            .env("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/v1/credentials", service.url()))
            .env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file);
    });
    egret.get("/a").assert_forwarded(200);
    assert_eq!(signed_by(&origin.only_request()), "ASIA1");
    let asked = service.only_request();
    assert_eq!(asked.line, "GET /v1/credentials HTTP/1.1");
    assert_eq!(asked.values("authorization"), ["the-proof-of-the-pod"]);
    assert_discreet(&egret, &["the-proof-of-the-pod", "secret-of-ASIA1", "token-of-ASIA1"]);
}

#[test]
fn keys_of_a_program_are_replaced_as_a_whole() {
    let directory = Directory::default();
    let printed = |id: &str| {
        json!({
            "Version": 1, "AccessKeyId": id, "SecretAccessKey": format!("secret-of-{id}"),
            "SessionToken": format!("token-of-{id}"), "Expiration": LATER,
        })
        .to_string()
    };
    let file = directory.write_secret("keys", printed("ASIA1"));
    let origin = Provider::plain();
    let yaml = with_identity(&origin.url(), "process: '${exec:keys}'", "").yaml();
    let commands = format!(
        "secrets: {{ commands: {{ keys: {{ command: [cat, '{}'], lifetime: 1s }} }} }}\n",
        file.display()
    );
    let egret = Config::written(yaml + &commands).start();
    egret.get("/a").assert_forwarded(200);
    assert_eq!(signed_by(&origin.only_request()), "ASIA1");
    directory.write_secret("keys", printed("ASIA2"));
    wait::until_true("the new keys are used", || {
        egret.get("/a").assert_forwarded(200);
        signed_by(origin.requests().last().unwrap()) == "ASIA2"
    });
    directory.write_secret("keys", "hunter2");
    egret.until_logged("renewed secrets are not in use");
    egret.get("/a").assert_forwarded(200);
    assert_eq!(signed_by(origin.requests().last().unwrap()), "ASIA2");
    assert_discreet(&egret, &["hunter2", "secret-of-", "token-of-"]);
}

#[test]
fn recordings_show_no_keys_that_a_provider_repeats() {
    let directory = Directory::default();
    let har = directory.join("har");
    let service = machine(|| response("200 OK", &keys("ASIA1", LATER)));
    let origin = Provider::with_responses(|request| {
        ok(&format!("{} secret-of-ASIA1", request.values("x-amz-security-token").concat()))
    });
    let config = Config::with_origin(origin.url()).flows(format!(
        "accounts:\n  main: {{ provider: origin, sigv4: {{ region: us-east-1, service: s3, identity: {{ {}, wait_max: 1h, timeout: 1h }} }} }}\n\
         exporters: {{ archive: {{ type: har, directory: \"{}\" }} }}\n\
         flows:\n  - name: f\n    remedies: [{{ authenticate: {{ account: main }} }}]\n    \
         diagnoses: [{{ har: {{ export: archive, obfuscate: false, bodies: 64KiB }} }}]\n",
        of_machine(&service),
        har.display()
    ));
    let egret = config.start();
    let received = egret.get("/a");
    assert_eq!(received.assert_forwarded(200).text(), "token-of-ASIA1 secret-of-ASIA1");
    let recorded = wait::until("the exchange is recorded", || {
        let files = std::fs::read_dir(&har).ok()?.filter_map(Result::ok);
        let texts: String = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
        texts.contains("\"_account\":\"main\"").then_some(texts)
    });
    for secret in ["secret-of-ASIA1", "token-of-ASIA1"] {
        assert!(!recorded.contains(secret), "{recorded}");
    }
    assert_discreet(&egret, &["secret-of-ASIA1", "token-of-ASIA1"]);
}
