//! Tests of the choice of a proxy. The tunnels have scenarios.

use std::collections::BTreeMap;

use super::*;

fn policy() -> Arc<EgressPolicy> {
    Arc::new(EgressPolicy::for_proxies(Vec::new()))
}

fn config(url: &str) -> ProxyConfig {
    ProxyConfig { url: url.to_owned(), ..ProxyConfig::default() }
}

fn but(url: &str, no_proxy: &[&str]) -> ProxyConfig {
    ProxyConfig { no_proxy: no_proxy.iter().map(|&entry| entry.to_owned()).collect(), ..config(url) }
}

fn compile(config: &ProxyConfig, variables: &[(&str, &str)]) -> Result<ProxyRules, String> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    ProxyRules::compile(config, "gateway.upstream_proxy", &policy(), variable).map_err(|problems| {
        let told = |problem: &Problem| format!("{}: {}", problem.path, problem.message);
        problems.iter().map(told).collect::<Vec<_>>().join("\n")
    })
}

fn chosen(rules: &ProxyRules, tls: bool, target: &str) -> Option<String> {
    let target = Authority::parse(target.as_bytes(), Some(443)).unwrap();
    rules.choose(tls, &target).map(|proxy| proxy.to_string())
}

#[test]
fn a_configured_proxy_is_for_all_hosts_but_the_listed_ones() {
    let rules = compile(&but("http://proxy.example", &["inner.example", "10.0.0.0/8"]), &[]);
    let rules = rules.unwrap();
    let proxy = Some("http://proxy.example:80".to_owned());
    for tls in [true, false] {
        assert_eq!(chosen(&rules, tls, "api.example.com"), proxy);
        for direct in ["a.inner.example", "10.2.3.4", "127.0.0.1", "localhost"] {
            assert_eq!(chosen(&rules, tls, direct), None, "{direct}");
        }
    }
}

#[test]
fn the_environment_has_its_customary_order() {
    let from = |variables: &[(&str, &str)]| compile(&config("from_environment"), variables).unwrap();
    let rules = from(&[
        ("HTTPS_PROXY", "http://upper:1"),
        ("https_proxy", "lower:2"),
        ("ALL_PROXY", "socks5h://all"),
        ("NO_PROXY", "inner.example, ,10.0.0.0/8 http://nonsense/"),
    ]);
    assert_eq!(chosen(&rules, true, "api.example"), Some("http://lower:2".to_owned()));
    assert_eq!(chosen(&rules, false, "api.example"), Some("socks5h://all:1080".to_owned()));
    assert_eq!(chosen(&rules, true, "a.inner.example"), None);
    assert_eq!(chosen(&rules, true, "10.1.1.1"), None);
    let empty = from(&[("https_proxy", ""), ("HTTPS_PROXY", "https://upper/")]);
    assert_eq!(chosen(&empty, true, "api.example"), Some("https://upper:443".to_owned()));
    assert_eq!(chosen(&empty, false, "api.example"), None);
}

#[test]
fn no_message_shows_a_password() {
    for url in ["http://me:s3cret@proxy.example", "ftp://me:s3cret@proxy", "http://me:s3cret@a b", "s3cret@x"]
    {
        let told = compile(&config(url), &[]).unwrap_err();
        assert!(told.contains("gateway.upstream_proxy.url") && !told.contains("s3cret"), "{told}");
    }
    for value in ["http://me:s3cret%zz@proxy", "foo://me:s3cret@proxy", "http://me%3a:s3cret@proxy"] {
        let told = compile(&config("from_environment"), &[("HTTPS_PROXY", value)]).unwrap_err();
        assert!(told.contains("HTTPS_PROXY") && !told.contains("s3cret"), "{told}");
    }
    let rules = compile(&config("from_environment"), &[("ALL_PROXY", "http://me:s3c%72et@proxy")]);
    let rules = rules.unwrap();
    assert_eq!(rules.https.as_ref().unwrap().credentials.as_ref().unwrap().password, "s3cret");
    assert!(!format!("{rules:?} {}", rules.https.as_ref().unwrap()).contains("s3cret"));
}

#[test]
fn keys_that_contradict_each_other_are_refused() {
    let named = |url| ProxyConfig { username: Some("a".to_owned()), ..config(url) };
    for (config, message) in [
        (but("none", &["a"]), "no_proxy: there is no proxy"),
        (named("from_environment"), "username: not allowed"),
        (named("http://a"), "`username` requires `password`"),
        (ProxyConfig { ca: Some("/ca.pem".into()), ..config("http://a") }, "ca: only a proxy at `https://`"),
        (config(""), "url: this is not the URL of a proxy"),
        (but("http://a", &["10.0.0.1/8"]), "write `10.0.0.0/8`"),
    ] {
        let told = compile(&config, &[]).unwrap_err();
        assert!(told.contains(message), "{told}");
    }
    assert_eq!(chosen(&compile(&config("none"), &[]).unwrap(), true, "a.example"), None);
}
