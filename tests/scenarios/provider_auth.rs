//! The built-in provider requires credentials like go-httpbin.

use egret_tests::peers::curl;
use egret_tests::process::run_checked;
use egret_tests::provider_pair::{ProviderPair, request};

#[test]
fn basic_and_bearer_credentials_are_judged_alike() {
    let pair = ProviderPair::default();
    let right = "Basic dXNlcjpwYXNz";
    for target in ["/basic-auth/user/pass", "/hidden-basic-auth/user/pass"] {
        for credentials in [right, "basic dXNlcjpwYXNz", "Basic dXNlcjp4", "Basic !", "Bearer x"] {
            pair.assert_alike(&request("GET", target).field("Authorization", credentials));
        }
        pair.assert_alike(&request("GET", target));
        assert_eq!(
            request("GET", target).field("Authorization", right).send_to(pair.built_in().address()).status,
            200
        );
    }
    for credentials in ["Bearer token", "bearer token", "Bearer", "Bearer a b", right] {
        pair.assert_alike(&request("GET", "/bearer").field("Authorization", credentials));
    }
    pair.assert_alike(&request("GET", "/bearer"));
}

#[test]
fn digests_are_asked_for_alike() {
    let pair = ProviderPair::default();
    pair.assert_all_alike(&[
        "/digest-auth/auth/u/p",
        "/digest-auth/auth/u/p/SHA-256",
        "/digest-auth/AUTH/u/p/md5",
        "/digest-auth/auth-int/u/p",
        "/digest-auth/auth/u/p/SHA-1",
    ]);
    let challenge = |target| pair.built_in().get(target).field("www-authenticate").unwrap().to_owned();
    assert!(challenge("/digest-auth/auth/u/p/SHA-256").contains("algorithm=SHA-256"));
    assert_ne!(challenge("/digest-auth/auth/u/p"), challenge("/digest-auth/auth/u/p"));
}

#[test]
fn curl_proves_that_it_knows_the_password() {
    let pair = ProviderPair::default();
    for (credentials, target, status) in [
        ("u:p", "/digest-auth/auth/u/p", "200"),
        ("u:p", "/digest-auth/auth/u/p/SHA-256", "200"),
        ("u:wrong", "/digest-auth/auth/u/p", "401"),
    ] {
        let url = format!("http://{}{target}", pair.built_in().address());
        let printed = run_checked(
            curl()
                .args([
                    "--digest",
                    "--user",
                    credentials,
                    "--output",
                    "/dev/null",
                    "--write-out",
                    "%{http_code}",
                ])
                .arg(url),
        );
        assert_eq!(printed, status, "{credentials} {target}");
    }
}
