use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::task::{Wake, Waker};

use egret_message::{Fields, KnownProvider};
use egret_store::SharedState;
use serde_json::{Value, json};

use super::*;
use crate::{AccountConfigs, Accounts, Applied, Outgoing};

const START: Timestamp = Timestamp::from_secs(1_000_000);

/// Compiles accounts with one that is called `a`, after the config `before`.
fn accounts(change: &Value, before: Option<&Accounts>) -> Accounts {
    let mut oauth2 = json!({ "token_url": "https://id.example/token", "client_id": "me" });
    oauth2.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    let configs: AccountConfigs =
        serde_json::from_value(json!({ "a": { "provider": "one", "oauth2": oauth2 } })).unwrap();
    let mut problems = Vec::new();
    let providers = [KnownProvider { name: "one", host: None, tls: true }];
    let accounts = Accounts::compile(&configs, &providers, SharedState::default(), before, &mut problems);
    assert_eq!(problems, []);
    accounts
}

fn token(change: &Value) -> Arc<Token> {
    let accounts = accounts(change, None);
    Arc::clone(accounts.get(0).unwrap().token().unwrap())
}

fn at_ms(after_ms: u64) -> Timestamp {
    START + Duration::from_millis(after_ms)
}

fn poll(token: &Arc<Token>, now: Timestamp) -> TokenTurn {
    token.poll(&mut TokenWaiter::default(), now, &Context::from_waker(Waker::noop()))
}

/// Returns the fetch of an exchange that finds no token at this time.
fn elected(token: &Arc<Token>, now: Timestamp) -> Fetch {
    match poll(token, now) {
        TokenTurn::Wait(Some(fetch), _) => fetch,
        other => panic!("{other:?}"),
    }
}

fn grant(fetch: Fetch, now: Timestamp, life_s: u64, more: &str) {
    let body = format!(r#"{{"access_token":"t{life_s}","token_type":"bearer","expires_in":{life_s}{more}}}"#);
    fetch.end(now, Ok(TokenResponse { status: 200, retry_after: None, body: body.as_bytes() }));
}

fn fail(fetch: Fetch, now: Timestamp, status: u16, body: &str, retry_after: Option<&[u8]>) {
    fetch.end(now, Ok(TokenResponse { status, retry_after, body: body.as_bytes() }));
}

/// Returns the message of a refusal, and the milliseconds until a retry makes sense.
fn refused(token: &Arc<Token>, now: Timestamp) -> (String, u128) {
    match poll(token, now) {
        TokenTurn::Refused(refused) => {
            assert_eq!(refused.reason, ErrorKind::AccountUnavailable);
            (refused.detail.into_owned(), refused.retry_at.unwrap().since(now).as_millis())
        }
        other => panic!("{other:?}"),
    }
}

fn is_ready(token: &Arc<Token>, now: Timestamp) -> bool {
    matches!(poll(token, now), TokenTurn::Ready(None))
}

fn sent(token: &Token) -> String {
    String::from_utf8(token.field().unwrap().to_vec()).unwrap()
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_thousand_requests_share_one_fetched_token() {
    let token = token(&json!({}));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let cx = Context::from_waker(&waker);
    let mut waiters: Vec<_> = (0..1_000).map(|_| TokenWaiter::default()).collect();
    let mut fetches = Vec::new();
    for waiting in &mut waiters {
        match token.poll(waiting, START, &cx) {
            TokenTurn::Wait(fetch, until) => {
                assert_eq!(until, START + Duration::from_secs(10));
                fetches.extend(fetch);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fetches.len(), 1);
    grant(fetches.remove(0), at_ms(50), 3600, "");
    assert_eq!(woken.0.load(Relaxed), 1_000);
    for waiting in &mut waiters {
        assert!(matches!(token.poll(waiting, at_ms(50), &cx), TokenTurn::Ready(None)));
    }
    assert_eq!(sent(&token), "Bearer t3600");
    assert_eq!(token.snapshot(at_ms(50)).fetched, 1);
}

#[test]
fn threads_that_race_for_a_token_have_one_fetched() {
    const THREADS: usize = 8;
    for _ in 0..200 {
        let (token, barrier) = (token(&json!({})), Barrier::new(THREADS));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    let mut waiting = TokenWaiter::default();
                    loop {
                        let cx = Context::from_waker(Waker::noop());
                        match token.poll(&mut waiting, START, &cx) {
                            TokenTurn::Wait(Some(fetch), _) => grant(fetch, START, 3600, ""),
                            TokenTurn::Wait(None, _) => std::thread::yield_now(),
                            TokenTurn::Ready(fetch) => {
                                assert!(fetch.is_none());
                                break;
                            }
                            TokenTurn::Refused(refused) => panic!("{refused:?}"),
                        }
                    }
                });
            }
        });
        assert_eq!(token.snapshot(START).fetched, 1);
    }
}

#[test]
fn one_caller_renews_a_token_before_it_expires() {
    for (change, life_s, renew_at_s) in [
        (json!({}), 3600, 3540),
        // At most a quarter of its lifetime.
        (json!({}), 60, 45),
        (json!({ "renew_before": "10s" }), 60, 50),
    ] {
        let token = token(&change);
        grant(elected(&token, START), START, life_s, "");
        let renew_at = START + Duration::from_secs(renew_at_s);
        assert!(is_ready(&token, renew_at - Duration::from_millis(1)));
        let TokenTurn::Ready(Some(fetch)) = poll(&token, renew_at) else { panic!() };
        assert!(is_ready(&token, renew_at), "one renews it");
        assert_eq!(sent(&token), format!("Bearer t{life_s}"));
        grant(fetch, renew_at, 7, "");
        assert!(is_ready(&token, renew_at));
        assert_eq!(sent(&token), "Bearer t7");
    }
}

#[test]
fn a_life_counts_from_when_the_token_was_asked_for() {
    let token = token(&json!({ "default_life": "4s" }));
    let fetch = elected(&token, START);
    let body = br#"{"access_token":"t","token_type":"bearer"}"#;
    fetch.end(at_ms(2_000), Ok(TokenResponse { status: 200, retry_after: None, body }));
    assert_eq!(token.snapshot(at_ms(2_000)).expires_at, Some(at_ms(4_000)));
    assert!(is_ready(&token, at_ms(2_999)));
    drop(elected(&token, at_ms(4_000)));
    // A token that has expired when it arrives is used all the same, or there would be one fetch after the
    // other.
    let fetch = elected(&token, at_ms(4_000));
    fetch.end(at_ms(9_000), Ok(TokenResponse { status: 200, retry_after: None, body }));
    assert_eq!(token.snapshot(at_ms(9_000)).expires_at, Some(at_ms(10_000)));
}

#[test]
fn where_a_fetch_is_given_up_another_exchange_is_elected() {
    let token = token(&json!({}));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let cx = Context::from_waker(&waker);
    let fetch = elected(&token, START);
    let mut waiting = TokenWaiter::default();
    assert!(matches!(token.poll(&mut waiting, START, &cx), TokenTurn::Wait(None, _)));
    drop(fetch);
    assert_eq!(woken.0.load(Relaxed), 1);
    let TokenTurn::Wait(Some(fetch), _) = token.poll(&mut waiting, START, &cx) else { panic!() };
    grant(fetch, START, 60, "");
    assert!(matches!(token.poll(&mut waiting, START, &cx), TokenTurn::Ready(None)));
    let snapshot = token.snapshot(START);
    assert_eq!((snapshot.fetched, snapshot.failed), (1, 0));
}

#[test]
fn a_wait_for_a_token_ends_after_the_maximum() {
    let token = token(&json!({ "wait_max": "2s" }));
    let mut waiting = TokenWaiter::default();
    let cx = Context::from_waker(Waker::noop());
    let TokenTurn::Wait(Some(fetch), until) = token.poll(&mut waiting, START, &cx) else { panic!() };
    assert_eq!(until, at_ms(2_000));
    assert!(matches!(token.poll(&mut waiting, at_ms(1_999), &cx), TokenTurn::Wait(None, _)));
    let TokenTurn::Refused(late) = token.poll(&mut waiting, at_ms(2_000), &cx) else { panic!() };
    assert_eq!(late.reason, ErrorKind::AccountUnavailable);
    assert!(late.detail.contains("after 2s (`wait_max`)"), "{}", late.detail);
    grant(fetch, at_ms(2_500), 60, "");
    assert!(is_ready(&token, at_ms(2_500)));
}

#[test]
fn after_a_failure_the_endpoint_is_left_alone_for_longer_and_longer() {
    let token = token(&json!({}));
    let mut now = START;
    for longest_s in [1, 2, 4, 8, 16, 32, 60, 60] {
        fail(elected(&token, now), now, 503, "busy", None);
        let (detail, wait_ms) = refused(&token, now);
        assert!((longest_s * 500..=longest_s * 1_000).contains(&wait_ms), "{wait_ms} ms, not {longest_s} s");
        assert!(
            detail
                .starts_with("there is no token for the account a: the token endpoint responded with 503; "),
            "{detail}"
        );
        now = now + Duration::from_millis(u64::try_from(wait_ms).unwrap() + 1);
    }
    grant(elected(&token, now), now, 60, "");
    assert_eq!(token.snapshot(now).error, None);
    // The backoff begins again.
    now = now + Duration::from_secs(61);
    fail(elected(&token, now), now, 503, "", None);
    assert!(refused(&token, now).1 <= 1_000);
    assert_eq!(token.snapshot(now).failed, 9);
}

#[test]
fn a_lasting_refusal_is_retried_late_without_showing_secrets() {
    for (status, body, says) in [
        (
            401,
            r#"{"error":"invalid_client","error_description":"hunter2"}"#,
            "refused the request: 401 invalid_client",
        ),
        (400, r#"{"error":"invalid_grant"}"#, "refused the request: 400 invalid_grant"),
        (403, "hunter2", "refused the request: 403"),
        (302, "hunter2", "responded with 302; redirects are not followed"),
        (200, "<html>hunter2</html>", "returned something other than JSON"),
    ] {
        let token = token(&json!({}));
        fail(elected(&token, START), START, status, body, None);
        let (detail, wait_ms) = refused(&token, START);
        assert!((5_000..=10_000).contains(&wait_ms), "{wait_ms}");
        assert!(detail.contains(says) && !detail.contains("hunter2"), "{detail}");
    }
}

#[test]
fn an_endpoint_that_asks_for_time_gets_it_within_bounds() {
    for (asked, expected_ms) in
        [(&b"20"[..], 20_000..=20_000), (b"99999999", 600_000..=600_000), (b"x", 500..=1_000)]
    {
        let token = token(&json!({}));
        fail(elected(&token, START), START, 429, "", Some(asked));
        assert!(expected_ms.contains(&refused(&token, START).1));
    }
}

#[test]
fn a_failed_renewal_matters_once_the_token_expires() {
    let token = token(&json!({}));
    grant(elected(&token, START), START, 60, "");
    let mut failures = 0;
    for second in 45..60 {
        let now = START + Duration::from_secs(second);
        match poll(&token, now) {
            TokenTurn::Ready(Some(fetch)) => {
                failures += 1;
                fetch.end(now, Err(TokenError::Unreachable("connect-failed")));
            }
            TokenTurn::Ready(None) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(sent(&token), "Bearer t60");
    }
    assert!((3..=6).contains(&failures), "{failures}");
    let now = START + Duration::from_mins(1);
    assert_eq!(token.snapshot(now).state, TokenState::Expired);
    assert!(!matches!(poll(&token, now), TokenTurn::Ready(_)));
}

#[test]
fn a_refused_token_is_fetched_again_at_bounded_intervals() {
    let token = token(&json!({}));
    grant(elected(&token, START), START, 60, "");
    let cx = Context::from_waker(Waker::noop());
    let mut first = TokenWaiter::default();
    let mut second = TokenWaiter::default();
    for waiting in [&mut first, &mut second] {
        assert!(matches!(token.poll(waiting, START, &cx), TokenTurn::Ready(None)));
    }
    assert!(token.reject(&first, at_ms(10)));
    assert_eq!(token.snapshot(at_ms(10)).state, TokenState::Rejected);
    assert!(token.reject(&second, at_ms(11)), "it is discarded already, and another one will be fetched");
    first.repeat();
    let TokenTurn::Wait(Some(fetch), _) = token.poll(&mut first, at_ms(20), &cx) else { panic!() };
    assert!(matches!(token.poll(&mut second, at_ms(20), &cx), TokenTurn::Wait(None, _)));
    grant(fetch, at_ms(30), 70, "");
    assert!(token.reject(&second, at_ms(31)), "there is another one");
    assert!(matches!(token.poll(&mut first, at_ms(40), &cx), TokenTurn::Ready(None)));
    // The new token is rejected too: it stays, and the exchange is not repeated a second time.
    assert!(!token.reject(&first, at_ms(50)));
    assert!(is_ready(&token, at_ms(60)));
    let mut third = TokenWaiter::default();
    assert!(matches!(token.poll(&mut third, at_ms(5_000), &cx), TokenTurn::Ready(None)));
    assert!(!token.reject(&third, at_ms(5_009)));
    assert!(token.reject(&third, at_ms(5_010)));
    assert_eq!(token.snapshot(at_ms(5_010)).fetched, 2);
}

#[test]
fn a_clock_that_is_set_back_ends_the_wait_after_a_failure() {
    let token = token(&json!({}));
    let ahead = START + Duration::from_hours(24 * 365);
    fail(elected(&token, ahead), ahead, 401, "", None);
    // The turn of a worker may have begun before the failure.
    assert!(refused(&token, ahead - Duration::from_secs(1)).1 > 0);
    assert_eq!(token.snapshot(START).retry_at, None);
    grant(elected(&token, START), START, 60, "");
}

#[test]
fn a_clock_that_is_set_back_ends_the_interval_after_a_rejection() {
    let token = token(&json!({}));
    let cx = Context::from_waker(Waker::noop());
    for now in [START + Duration::from_hours(24 * 365), START] {
        grant(elected(&token, now), now, 60, "");
        let mut waiting = TokenWaiter::default();
        assert!(matches!(token.poll(&mut waiting, now, &cx), TokenTurn::Ready(None)));
        assert!(token.reject(&waiting, now), "{now}");
    }
}

#[test]
fn a_rotated_refresh_token_survives_a_reload() {
    let given = |text: &str| Secret::from_value("${env:REFRESH}", text.to_owned());
    let configs = |refresh_token: &str, scope: &str| {
        let change = json!({ "grant": "refresh_token", "scope": [scope], "refresh_token": "${env:PATH}" });
        let mut oauth2 = json!({ "token_url": "https://id.example/token", "client_id": "me" });
        oauth2.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let mut configs: AccountConfigs =
            serde_json::from_value(json!({ "a": { "provider": "one", "oauth2": oauth2 } })).unwrap();
        let oauth2 = configs.get_mut("a").and_then(|account| account.oauth2.as_mut()).unwrap();
        oauth2.refresh_token = Some(given(refresh_token));
        configs
    };
    let compile = |configs: &AccountConfigs, before: Option<&Accounts>| {
        let providers = [KnownProvider { name: "one", host: None, tls: true }];
        Accounts::compile(configs, &providers, SharedState::default(), before, &mut Vec::new())
    };
    let of = |accounts: &Accounts| Arc::clone(accounts.get(0).unwrap().token().unwrap());
    let asked = |fetch: &Fetch| String::from_utf8(fetch.request().unwrap().to_vec()).unwrap();

    let first = compile(&configs("r1", "x"), None);
    let fetch = elected(&of(&first), START);
    assert!(asked(&fetch).contains("refresh_token=r1&scope=x"));
    grant(fetch, START, 60, r#","refresh_token":"r2""#);
    let TokenTurn::Ready(Some(fetch)) = poll(&of(&first), at_ms(50_000)) else { panic!() };
    assert!(asked(&fetch).contains("refresh_token=r2&"));
    drop(fetch);

    // Another scope needs another token, and the grant is still the same.
    let second = compile(&configs("r1", "y"), Some(&first));
    let fetch = elected(&of(&second), START);
    assert!(asked(&fetch).contains("refresh_token=r2&scope=y"));
    drop(fetch);
    let third = compile(&configs("r9", "y"), Some(&second));
    assert!(asked(&elected(&of(&third), START)).contains("refresh_token=r9&"));
    assert_eq!(of(&third).snapshot(START).fetched, 1, "counts continue");
}

#[test]
fn a_reload_keeps_the_token_of_a_config_that_has_not_changed() {
    let before = accounts(&json!({}), None);
    let of = |accounts: &Accounts| Arc::clone(accounts.get(0).unwrap().token().unwrap());
    grant(elected(&of(&before), START), START, 60, "");
    let same = accounts(&json!({}), Some(&before));
    assert!(is_ready(&of(&same), at_ms(1)));
    let other = accounts(&json!({ "audience": "b" }), Some(&same));
    drop(elected(&of(&other), at_ms(1)));
}

#[test]
fn debug_output_shows_no_token() {
    let token = token(&json!({}));
    let fetch = elected(&token, START);
    assert_eq!(format!("{fetch:?} {token:?}"), "Fetch(a) Token(a)");
    grant(fetch, START, 60, "");
    assert!(!format!("{token:?} {:?}", token.snapshot(START)).contains("t60"));
}

/// Compiles an account of a cloud called `a`. Returns its token and the problems.
fn cloud(account: &Value, before: Option<&Accounts>) -> (Accounts, Vec<String>) {
    let mut account = account.clone();
    account["provider"] = "one".into();
    let configs: AccountConfigs = serde_json::from_value(json!({ "a": account })).unwrap();
    let mut problems = Vec::new();
    let providers = [KnownProvider { name: "one", host: None, tls: true }];
    let accounts = Accounts::compile(&configs, &providers, SharedState::default(), before, &mut problems);
    (accounts, problems.into_iter().map(|problem| problem.path).collect())
}

#[test]
fn problems_of_cloud_accounts_are_at_their_own_keys() {
    let azure = |more: &str, value: Value| {
        let mut azure =
            json!({ "resource": "https://a", "tenant": "t", "client_id": "c", "workload": "${env:PATH}" });
        azure[more] = value;
        json!({ "azure": azure })
    };
    for (account, path) in [
        (json!({ "gcp": { "service_account": "${env:PATH}" } }), "accounts.a.gcp.service_account"),
        (json!({ "gcp": { "metadata": true, "metadata_host": "a#b" } }), "accounts.a.gcp.metadata_host"),
        (json!({ "gcp": { "metadata": true, "timeout": "0s" } }), "accounts.a.gcp.timeout"),
        (azure("authority", "ftp://a".into()), "accounts.a.azure.authority"),
        (azure("client_id", "".into()), "accounts.a.azure.client_id"),
        (azure("resource", "a b".into()), "accounts.a.azure.resource"),
        (azure("wait_max", "0s".into()), "accounts.a.azure.wait_max"),
        (
            json!({ "github": { "app": "Iv1.a", "installation": 7, "key": "${env:PATH}" } }),
            "accounts.a.github.key",
        ),
        (
            json!({ "sigv4": { "region": "r", "service": "s", "identity": { "instance": true, "timeout": "0s" } } }),
            "accounts.a.sigv4.identity.timeout",
        ),
        (
            json!({ "sigv4": { "region": "r", "service": "s", "identity": { "instance": true, "container": true } } }),
            "accounts.a.sigv4.identity",
        ),
    ] {
        assert_eq!(cloud(&account, None).1, [path], "{account}");
    }
}

#[test]
fn a_token_of_the_machine_is_used_and_renewed_like_any_other() {
    let (accounts, problems) = cloud(&json!({ "gcp": { "metadata": true } }), None);
    assert_eq!(problems, [""; 0]);
    let account = accounts.get(0).unwrap();
    let token = Arc::clone(account.token().unwrap());
    assert_eq!(account.kind(), "gcp");
    let fetch = elected(&token, START);
    assert!(fetch.is_of_machine() && fetch.request().unwrap().starts_with(b"GET /computeMetadata/v1/"));
    grant(fetch, START, 3600, "");
    assert!(is_ready(&token, at_ms(1)));
    let TokenTurn::Ready(Some(fetch)) = poll(&token, at_ms(3_540_000)) else { panic!() };
    fail(fetch, at_ms(3_540_000), 503, "", None);
    // The old one outlives a service that fails.
    assert!(matches!(poll(&token, at_ms(3_599_999)), TokenTurn::Ready(_)));
    assert!(matches!(poll(&token, at_ms(3_600_000)), TokenTurn::Wait(Some(_), _)));
}

#[test]
fn a_new_assertion_of_somebody_else_keeps_the_token() {
    let with = |assertion: &str, scope: &str, before: Option<&Accounts>| {
        let oauth2 = json!({
            "token_url": "https://id.example/token", "client_id": "me", "client_assertion": "${env:PATH}",
            "scope": [scope],
        });
        let mut configs: AccountConfigs =
            serde_json::from_value(json!({ "a": { "provider": "one", "oauth2": oauth2 } })).unwrap();
        let oauth2 = configs.get_mut("a").and_then(|account| account.oauth2.as_mut()).unwrap();
        oauth2.client_assertion = Some(Secret::from_value("${file:a}", assertion.to_owned()));
        let providers = [KnownProvider { name: "one", host: None, tls: true }];
        Accounts::compile(&configs, &providers, SharedState::default(), before, &mut Vec::new())
    };
    let of = |accounts: &Accounts| Arc::clone(accounts.get(0).unwrap().token().unwrap());
    let first = with("one", "x", None);
    grant(elected(&of(&first), START), START, 60, "");
    let second = with("two", "x", Some(&first));
    assert!(is_ready(&of(&second), at_ms(1)));
    let TokenTurn::Ready(Some(fetch)) = poll(&of(&second), at_ms(50_000)) else { panic!() };
    assert!(fetch.request().unwrap().ends_with(b"client_assertion=two"));
    drop(fetch);
    drop(elected(&of(&with("two", "y", Some(&second))), at_ms(1)));
}

/// Returns an account that signs with the keys of this identity.
fn identity(identity: &Value, before: Option<&Accounts>) -> Accounts {
    let sigv4 = json!({ "region": "eu-west-1", "service": "s3", "identity": identity });
    let (accounts, problems) = cloud(&json!({ "sigv4": sigv4 }), before);
    assert_eq!(problems, [""; 0]);
    accounts
}

/// Answers a step of a fetch with this body. Returns the next step, if there is one.
fn answer(fetch: Fetch, now: Timestamp, body: &str) -> Option<Fetch> {
    fetch.end(now, Ok(TokenResponse { status: 200, retry_after: None, body: body.as_bytes() }))
}

/// Returns keys that end an hour after the start.
fn keys_of(id: &str) -> String {
    json!({
        "Code": "Success", "AccessKeyId": id, "SecretAccessKey": format!("secret-of-{id}"),
        "Token": format!("token-of-{id}"), "Expiration": "1970-01-12T14:46:40Z",
    })
    .to_string()
}

/// Answers the three steps of a machine.
fn give_keys(fetch: Fetch, now: Timestamp, id: &str) {
    let fetch = answer(fetch, now, "session").unwrap();
    let fetch = answer(fetch, now, "reader").unwrap();
    assert!(answer(fetch, now, &keys_of(id)).is_none());
}

/// Returns the fields that sign a request, or the reason why there are none.
fn signed(accounts: &Accounts, now: Timestamp) -> Result<[String; 2], String> {
    let outgoing = Outgoing {
        now,
        tls: true,
        method: b"GET",
        host: b"one.example",
        base: b"",
        path: b"/a",
        query: None,
        fields: Fields::received(&[], b""),
        body: Some(b""),
    };
    let mut applied = Applied::default();
    accounts.get(0).unwrap().apply(&outgoing, &mut applied).map_err(|error| error.to_string())?;
    Ok([&b"authorization"[..], b"x-amz-security-token"].map(|wanted| {
        let (_, value) = applied.fields.added().find(|(name, _)| *name == wanted).unwrap();
        String::from_utf8(value.to_vec()).unwrap()
    }))
}

#[test]
fn keys_of_a_machine_are_one_fetch_of_three_requests() {
    let accounts = identity(&json!({ "instance": true }), None);
    let account = accounts.get(0).unwrap();
    let token = Arc::clone(account.token().unwrap());
    assert_eq!((account.kind(), signed(&accounts, START).is_err()), ("sigv4", true));
    let fetch = elected(&token, START);
    assert!(fetch.is_of_machine() && fetch.request().unwrap().starts_with(b"PUT /latest/api/token "));
    assert!(matches!(poll(&token, START), TokenTurn::Wait(None, _)));
    give_keys(fetch, START, "ASIA1");
    assert!(is_ready(&token, at_ms(1)));
    let [authorization, session_token] = signed(&accounts, at_ms(1)).unwrap();
    assert!(authorization.contains("Credential=ASIA1/"), "{authorization}");
    assert_eq!(session_token, "token-of-ASIA1");
    let masked = accounts.in_force().patterns().unwrap().masked(b"secret-of-ASIA1 token-of-ASIA1").unwrap();
    assert_eq!(masked, b"*************** **************");
    assert_eq!(token.snapshot(at_ms(1)).fetched, 1);
    assert!(account.secret_patterns().is_err(), "keys that change cannot be masked in responses");
    // Five minutes before their end.
    assert!(is_ready(&token, at_ms(3_299_999)));
    let TokenTurn::Ready(Some(fetch)) = poll(&token, at_ms(3_300_000)) else { panic!() };
    assert_eq!(&*fetch.endpoint().target, "/");
    give_keys(fetch, at_ms(3_300_000), "ASIA2");
    let [authorization, session_token] = signed(&accounts, at_ms(3_300_001)).unwrap();
    assert!(authorization.contains("Credential=ASIA2/"), "{authorization}");
    assert_eq!(session_token, "token-of-ASIA2");
}

#[test]
fn a_step_that_fails_ends_the_fetch_with_its_service() {
    let accounts = identity(&json!({ "instance": true, "role": "arn:aws:iam::1:role/a" }), None);
    let token = Arc::clone(accounts.get(0).unwrap().token().unwrap());
    let endpoints: Vec<_> = token.endpoints().map(|endpoint| &*endpoint.authority).collect();
    assert_eq!(endpoints, ["169.254.169.254", "sts.eu-west-1.amazonaws.com"]);
    let fetch = elected(&token, START);
    assert!(fetch.end(START, Err(TokenError::Unreachable("connect-failed"))).is_none());
    let (detail, wait_ms) = refused(&token, START);
    assert!(detail.contains("the instance metadata service has not responded (connect-failed)"), "{detail}");
    assert!(wait_ms <= 1_000);
    let fetch = answer(elected(&token, at_ms(1_001)), at_ms(1_001), "session").unwrap();
    let fetch = answer(fetch, at_ms(1_001), "reader").unwrap();
    let fetch = answer(fetch, at_ms(1_001), &keys_of("ASIA1")).unwrap();
    assert!(!fetch.is_of_machine() && &*fetch.endpoint().authority == "sts.eu-west-1.amazonaws.com");
    fail(
        fetch,
        at_ms(1_001),
        403,
        "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>",
        None,
    );
    let (detail, _) = refused(&token, at_ms(1_001));
    assert!(detail.contains("STS gave no keys: 403 AccessDenied; check the role"), "{detail}");
}

#[test]
fn keys_of_a_program_are_used_until_they_expire() {
    let printed = |secret: &str, role: Option<&str>, before: Option<&Accounts>| {
        let printed = json!({
            "Version": 1, "AccessKeyId": "ASIA", "SecretAccessKey": secret, "SessionToken": "token-of-program",
            "Expiration": "2099-01-01T00:00:00Z",
        });
        // Any secret, which is replaced.
        let identity = json!({ "process": "${env:PATH}", "role": role });
        let sigv4 = json!({ "region": "eu-west-1", "service": "s3", "identity": identity });
        let mut configs: AccountConfigs =
            serde_json::from_value(json!({ "a": { "provider": "one", "sigv4": sigv4 } })).unwrap();
        let sigv4 = configs.get_mut("a").and_then(|account| account.sigv4.as_mut()).unwrap();
        let secret = Secret::from_value("${exec:aws}", printed.to_string());
        sigv4.identity.as_mut().unwrap().process = Some(secret);
        let providers = [KnownProvider { name: "one", host: None, tls: true }];
        let mut problems = Vec::new();
        let accounts = Accounts::compile(&configs, &providers, SharedState::default(), before, &mut problems);
        assert_eq!(problems, []);
        accounts
    };
    let accounts = printed("secret-of-program", None, None);
    accounts.put_in_force();
    assert!(accounts.get(0).unwrap().token().is_none());
    assert_eq!(signed(&accounts, START).unwrap()[1], "token-of-program");
    let masked = accounts.in_force().patterns().unwrap().masked(b"secret-of-program").unwrap();
    assert_eq!(masked, b"*****************");
    let error = signed(&accounts, Timestamp::from_secs(4_070_908_800)).unwrap_err();
    assert!(error.contains("a shorter `lifetime`"), "{error}");

    // Other keys of the program keep those of the role.
    let role = Some("arn:aws:iam::1:role/a");
    let of = |accounts: &Accounts| Arc::clone(accounts.get(0).unwrap().token().unwrap());
    let first = printed("one", role, None);
    let fetch = elected(&of(&first), START);
    let assumed = "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIA2</AccessKeyId>\
                   <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
                   <Expiration>1970-01-12T14:46:40Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>";
    assert!(answer(fetch, START, assumed).is_none());
    let second = printed("two", role, Some(&first));
    assert!(is_ready(&of(&second), at_ms(1)));
    assert!(signed(&second, at_ms(1)).unwrap()[0].contains("Credential=ASIA2/"));
    drop(elected(&of(&printed("two", Some("arn:aws:iam::1:role/b"), Some(&second))), at_ms(1)));
}
