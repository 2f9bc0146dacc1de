//! Tests of the egress policy's decisions.

use Reason::{ClosedProxy, LinkLocal, Metadata, NotAllowed, OwnPort, Port, Private, Rule};
use Verdict::{Allow, Deny, Report};

use super::*;

fn rule(host: &str, net: &str, ports: &[u16]) -> EgressRule {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    EgressRule { host: given(host), net: given(net), ports: ports.to_vec() }
}

fn own() -> Vec<SocketAddr> {
    vec!["127.0.0.1:8000".parse().unwrap(), "127.0.0.1:8001".parse().unwrap()]
}

/// Returns the policy of a developer's machine: every listener is on loopback.
fn at_home(config: &EgressConfig) -> EgressPolicy {
    EgressPolicy::compile(config, false, false, own()).unwrap()
}

/// Returns the policy of an open proxy with a listener on all addresses.
fn exposed(config: &EgressConfig) -> EgressPolicy {
    EgressPolicy::compile(
        config,
        true,
        true,
        vec!["0.0.0.0:8000".parse().unwrap(), "[::1]:8001".parse().unwrap()],
    )
    .unwrap()
}

/// Returns the policy of a gateway with a listener on all addresses that is not an open proxy.
fn closed(config: &EgressConfig) -> EgressPolicy {
    EgressPolicy::compile(config, true, false, vec!["[::]:8000".parse().unwrap()]).unwrap()
}

fn allow(rules: &[EgressRule]) -> EgressConfig {
    EgressConfig { allow: rules.to_vec(), ..EgressConfig::default() }
}

fn deny(rules: &[EgressRule]) -> EgressConfig {
    EgressConfig { deny: rules.to_vec(), ..EgressConfig::default() }
}

fn host(policy: &EgressPolicy, authority: &str) -> Verdict {
    let authority = Authority::parse(authority.as_bytes(), Some(443)).unwrap();
    policy.check_host(&EgressTarget { authority: &authority, configured: false })
}

/// Returns the verdict on `authority` after it resolved to `ip`.
fn at(policy: &EgressPolicy, authority: &str, ip: &str) -> Verdict {
    judged(policy, authority, ip, false)
}

/// Returns the verdict on a configured provider.
fn provider(policy: &EgressPolicy, authority: &str, ip: &str) -> Verdict {
    judged(policy, authority, ip, true)
}

fn judged(policy: &EgressPolicy, authority: &str, ip: &str, configured: bool) -> Verdict {
    let authority = Authority::parse(authority.as_bytes(), Some(443)).unwrap();
    let target = EgressTarget { authority: &authority, configured };
    match policy.check_host(&target) {
        Allow => policy.check_address(&target, SocketAddr::new(ip.parse().unwrap(), authority.port)),
        verdict => verdict,
    }
}

#[test]
fn reasons_are_numbered_as_they_are_listed() {
    for (index, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index);
        assert!(!reason.to_string().is_empty());
    }
    let mut slugs = Reason::ALL.map(Reason::slug).to_vec();
    slugs.sort_unstable();
    slugs.dedup();
    assert_eq!(slugs.len(), Reason::ALL.len());
}

#[test]
fn a_developers_machine_reaches_itself_and_its_networks() {
    let policy = at_home(&EgressConfig::default());
    for ip in [
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "192.168.1.1",
        "172.17.0.2",
        "fd00::1",
        "100.64.0.1",
        "8.8.8.8",
        "0.0.0.0",
    ] {
        assert_eq!(at(&policy, "host.example", ip), Allow, "{ip}");
        assert_eq!(provider(&policy, "host.example", ip), Allow, "{ip}");
    }
    assert_eq!(host(&policy, "localhost:9000"), Allow);
    assert_eq!(host(&policy, "127.0.0.1:9000"), Allow);
}

#[test]
fn metadata_and_link_local_are_denied_everywhere_and_in_every_disguise() {
    for policy in [at_home(&EgressConfig::default()), exposed(&EgressConfig::default())] {
        for (ip, reason) in [
            ("169.254.169.254", Metadata),
            ("::ffff:169.254.169.254", Metadata),
            ("64:ff9b::a9fe:a9fe", Metadata),
            ("2002:a9fe:a9fe::1", Metadata),
            ("fd00:ec2::254", Metadata),
            ("100.100.100.200", Metadata),
            ("168.63.129.16", Metadata),
            ("169.254.1.1", LinkLocal),
            ("fe80::1", LinkLocal),
            ("64:ff9b::a9fe:101", LinkLocal),
        ] {
            assert_eq!(at(&policy, "innocent.example", ip), Deny(reason), "{ip}");
            assert_eq!(provider(&policy, "innocent.example", ip), Deny(reason), "{ip} as a provider's");
            let literal = Host::Ip(ip.parse().unwrap()).to_string();
            assert_eq!(host(&policy, &literal), Deny(reason), "{ip} as the host");
        }
        for name in ["metadata.google.internal", "METADATA.google.internal.", "metadata.goog"] {
            assert_eq!(host(&policy, name), Deny(Metadata), "{name} before the DNS look-up");
        }
    }
}

#[test]
fn a_provider_reaches_a_link_local_address_that_its_url_is() {
    for policy in [at_home(&EgressConfig::default()), closed(&EgressConfig::default())] {
        assert_eq!(provider(&policy, "169.254.169.254:80", "169.254.169.254"), Allow);
        assert_eq!(provider(&policy, "[fe80::1]:80", "fe80::1"), Allow);
        assert_eq!(provider(&policy, "metadata.google.internal:80", "169.254.169.254"), Deny(Metadata));
    }
}

#[test]
fn a_rule_opens_metadata_only_when_it_names_it() {
    let opens = |rules: &[EgressRule]| {
        at(&at_home(&allow(rules)), "metadata.google.internal:80", "169.254.169.254") == Allow
    };
    assert!(opens(&[rule("", "169.254.169.254", &[])]));
    assert!(opens(&[rule("169.254.169.254", "", &[80])]));
    assert!(opens(&[rule("metadata.google.internal", "169.254.169.254/32", &[])]));
    assert!(opens(&[rule("metadata.google.internal", "", &[])]));
    for vague in [
        rule("*.google.internal", "", &[]),
        rule("", "0.0.0.0/0", &[]),
        rule("", "169.254.0.0/16", &[]),
        rule("", "", &[80]),
        rule("other.example", "169.254.169.254", &[]),
        rule("", "169.254.169.254", &[443]),
    ] {
        assert!(!opens(std::slice::from_ref(&vague)), "{vague:?}");
    }
}

#[test]
fn a_rule_opens_link_local_only_by_a_range_within() {
    let opens =
        |net: &str, ip: &str| at(&at_home(&allow(&[rule("", net, &[])])), "host.example", ip) == Allow;
    assert!(
        opens("169.254.0.0/16", "169.254.1.1")
            && opens("169.254.1.1", "169.254.1.1")
            && opens("fe80::/10", "fe80::1")
    );
    assert!(!opens("169.0.0.0/8", "169.254.1.1") && !opens("::/0", "fe80::1"));
}

#[test]
fn the_gateways_own_ports_are_denied_under_any_address() {
    let home = at_home(&EgressConfig::default());
    for ip in ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "64:ff9b::7f00:1"] {
        assert_eq!(at(&home, "localhost:8000", ip), Deny(OwnPort), "{ip}");
        assert_eq!(provider(&home, "localhost:8001", ip), Deny(OwnPort), "{ip}");
    }
    assert_eq!(at(&home, "localhost:8002", "127.0.0.1"), Allow);
    assert_eq!(at(&home, "localhost:8000", "127.0.0.2"), Allow, "the gateway does not listen there");
    assert_eq!(
        at(&home, "example.com:8000", "8.8.8.8"),
        Allow,
        "the port alone does not identify the gateway"
    );

    let exposed = exposed(&EgressConfig::default());
    assert_eq!(
        provider(&exposed, "localhost:8000", "127.8.8.8"),
        Deny(OwnPort),
        "a listener on all addresses takes it"
    );
    assert_eq!(provider(&exposed, "localhost:8001", "::1"), Deny(OwnPort));
    assert_eq!(
        provider(&exposed, "localhost:8001", "::"),
        Deny(OwnPort),
        "the unspecified address is this machine"
    );
    assert_eq!(provider(&exposed, "localhost:8000", "::1"), Allow, "0.0.0.0 accepts no IPv6");
    assert_eq!(at(&exposed, "example.com:8000", "8.8.8.8"), Allow);
    assert_eq!(provider(&closed(&EgressConfig::default()), "localhost:8000", "::1"), Deny(OwnPort));
    assert_eq!(
        provider(&closed(&EgressConfig::default()), "localhost:8000", "127.0.0.1"),
        Deny(OwnPort),
        "[::] takes IPv4"
    );
}

#[test]
fn own_ports_at_other_addresses_are_recognised() {
    let connected = |policy: &EgressPolicy, local: &str, peer: &str| {
        let authority = Authority::parse(b"host.example:8000", None).unwrap();
        let target = EgressTarget { authority: &authority, configured: true };
        policy.check_connected(&target, local.parse().unwrap(), peer.parse().unwrap())
    };
    let policy = exposed(&EgressConfig::default());
    assert_eq!(connected(&policy, "192.168.1.5:40000", "192.168.1.5:8000"), Deny(OwnPort));
    assert_eq!(connected(&policy, "[::ffff:192.168.1.5]:40000", "192.168.1.5:8000"), Deny(OwnPort));
    assert_eq!(connected(&policy, "192.168.1.5:40000", "192.168.1.6:8000"), Allow, "another machine");
    assert_eq!(
        connected(&policy, "192.168.1.5:40000", "192.168.1.5:8001"),
        Allow,
        "that one listens on ::1 only"
    );
    assert_eq!(connected(&at_home(&EgressConfig::default()), "192.168.1.5:40000", "192.168.1.5:8000"), Allow);
    let named = exposed(&allow(&[rule("", "192.168.1.5", &[8000])]));
    assert_eq!(connected(&named, "192.168.1.5:40000", "192.168.1.5:8000"), Allow);
}

#[test]
fn a_rule_opens_an_own_port_only_with_address_and_port() {
    let opens = |rule: EgressRule| at(&at_home(&allow(&[rule])), "localhost:8000", "127.0.0.1") == Allow;
    assert!(opens(rule("", "127.0.0.1", &[8000])) && opens(rule("localhost", "127.0.0.0/8", &[8000])));
    assert!(
        !opens(rule("", "127.0.0.0/8", &[]))
            && !opens(rule("localhost", "", &[8000]))
            && !opens(rule("", "", &[8000]))
    );
}

#[test]
fn private_addresses_are_denied_while_a_listener_is_exposed() {
    let policy = exposed(&EgressConfig::default());
    for ip in [
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "172.16.0.1",
        "192.0.0.1",
        "192.0.2.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fc00::1",
        "fd12::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:10.0.0.1",
        "::10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::1",
        "2001:0:4136:e378:8000:63bf:f5ff:fffe",
    ] {
        assert_eq!(at(&policy, "innocent.example", ip), Deny(Private), "{ip}");
        assert_eq!(
            provider(&policy, "provider.example", ip),
            Allow,
            "{ip}: a provider is where its owner says"
        );
    }
    for ip in ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"] {
        assert_eq!(at(&policy, "innocent.example", ip), Allow, "{ip}");
    }
}

#[test]
fn a_named_internal_host_is_reached_from_an_exposed_gateway() {
    let policy = exposed(&allow(&[rule("*.corp.example", "", &[]), rule("", "10.9.0.0/16", &[8443])]));
    assert_eq!(at(&policy, "vault.corp.example", "10.1.2.3"), Allow);
    assert_eq!(at(&policy, "corp.example", "10.1.2.3"), Deny(Private), "the pattern is for names below");
    assert_eq!(at(&policy, "evilcorp.example", "10.1.2.3"), Deny(Private));
    assert_eq!(at(&policy, "other.example:8443", "10.9.1.1"), Allow);
    assert_eq!(at(&policy, "other.example:443", "10.9.1.1"), Deny(Private));
    assert_eq!(at(&policy, "other.example:8443", "10.8.1.1"), Deny(Private));
    let by_port = exposed(&allow(&[rule("", "", &[443])]));
    assert_eq!(at(&by_port, "innocent.example", "10.0.0.1"), Deny(Private), "a port names no host");
    let pair = exposed(&allow(&[rule("vault.corp.example", "10.1.0.0/16", &[])]));
    assert_eq!(at(&pair, "vault.corp.example", "10.1.2.3"), Allow);
    assert_eq!(at(&pair, "vault.corp.example", "10.2.2.3"), Deny(Private), "rebinding leaves the range");
}

#[test]
fn a_closed_proxy_serves_configured_or_allowed_hosts() {
    let policy = closed(&allow(&[
        rule("api.example.com", "", &[443]),
        rule("", "10.0.0.0/8", &[]),
        rule("", "", &[9]),
    ]));
    assert_eq!(host(&policy, "8.8.8.8"), Deny(ClosedProxy));
    assert_eq!(host(&policy, "10.0.0.1"), Allow);
    assert_eq!(at(&policy, "api.example.com", "8.8.8.8"), Allow);
    assert_eq!(at(&policy, "api.example.com:80", "8.8.8.8"), Deny(ClosedProxy));
    assert_eq!(
        at(&policy, "other.example.com", "8.8.8.8"),
        Deny(ClosedProxy),
        "decided by the address, for the range's sake"
    );
    assert_eq!(at(&policy, "other.example.com", "10.0.0.1"), Allow);
    assert_eq!(at(&policy, "other.example.com:9", "8.8.8.8"), Deny(ClosedProxy), "a port names no host");
    assert_eq!(provider(&policy, "provider.example", "8.8.8.8"), Allow);
    assert_eq!(
        host(&closed(&EgressConfig::default()), "other.example.com"),
        Deny(ClosedProxy),
        "before the DNS look-up"
    );
}

#[test]
fn default_deny_leaves_what_is_allowed_or_configured() {
    let rules = [rule("api.example.com", "", &[]), rule("", "", &[8443])];
    let policy = at_home(&EgressConfig { default: EgressDefault::Deny, ..allow(&rules) });
    assert_eq!(host(&policy, "other.example.com"), Deny(NotAllowed), "before the DNS look-up");
    assert_eq!(host(&policy, "8.8.8.8"), Deny(NotAllowed));
    assert_eq!(at(&policy, "api.example.com", "8.8.8.8"), Allow);
    assert_eq!(at(&policy, "other.example.com:8443", "8.8.8.8"), Allow);
    assert_eq!(provider(&policy, "provider.example", "8.8.8.8"), Allow);
    assert_eq!(
        at(&policy, "api.example.com", "169.254.169.254"),
        Deny(Metadata),
        "a host's DNS opens nothing built in"
    );
    let lenient = EgressPolicy::compile(
        &EgressConfig { default: EgressDefault::Deny, ..allow(&rules) },
        true,
        true,
        vec![],
    );
    assert_eq!(
        host(&lenient.unwrap(), "other.example.com"),
        Deny(NotAllowed),
        "it applies to an open proxy too"
    );
}

#[test]
fn deny_comes_before_allow_and_before_what_is_configured() {
    let policy = at_home(&EgressConfig {
        allow: vec![rule("*.example.com", "", &[])],
        ..deny(&[rule("bad.example.com", "", &[]), rule("", "10.0.0.0/8", &[]), rule("", "", &[25])])
    });
    assert_eq!(host(&policy, "bad.example.com"), Deny(Rule), "before the DNS look-up");
    assert_eq!(host(&policy, "BAD.example.com."), Deny(Rule));
    assert_eq!(host(&policy, "good.example.com:25"), Deny(Rule));
    assert_eq!(host(&policy, "good.example.com"), Allow);
    assert_eq!(provider(&policy, "bad.example.com", "8.8.8.8"), Deny(Rule));
    for ip in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "2002:a01:203::1"] {
        assert_eq!(at(&policy, "good.example.com", ip), Deny(Rule), "{ip}");
        assert_eq!(provider(&policy, "good.example.com", ip), Deny(Rule), "{ip}");
    }
    let pair = at_home(&deny(&[rule("api.example.com", "8.8.8.0/24", &[443])]));
    assert_eq!(at(&pair, "api.example.com", "8.8.8.8"), Deny(Rule));
    assert_eq!(at(&pair, "api.example.com", "8.8.4.4"), Allow);
    assert_eq!(at(&pair, "api.example.com:80", "8.8.8.8"), Allow);
    assert_eq!(at(&pair, "other.example.com", "8.8.8.8"), Allow);
    let address = at_home(&deny(&[rule("8.8.8.8", "", &[])]));
    assert_eq!(host(&address, "8.8.8.8"), Deny(Rule));
    assert_eq!(at(&address, "dns.example", "8.8.8.8"), Deny(Rule), "by any name");
}

#[test]
fn report_lets_through_and_off_does_not_look() {
    let policy = |mode| at_home(&EgressConfig { mode, ..deny(&[rule("bad.example", "", &[])]) });
    assert_eq!(host(&policy(EgressMode::Report), "bad.example"), Report(Rule));
    assert_eq!(at(&policy(EgressMode::Report), "x.example", "169.254.169.254"), Report(Metadata));
    assert_eq!(host(&policy(EgressMode::Report), "good.example"), Allow);
    assert_eq!(host(&policy(EgressMode::Off), "bad.example"), Allow);
    assert_eq!(at(&policy(EgressMode::Off), "localhost:8000", "127.0.0.1"), Allow);
}

#[test]
fn a_bad_rule_is_refused_with_its_path() {
    for (bad, path, words) in [
        (rule("", "", &[]), "", "empty rule"),
        (rule("*", "", &[]), ".host", "leave `host` out"),
        (rule("a b", "", &[]), ".host", "`a b` is not a host name"),
        (rule("api.*.com", "", &[]), ".host", "not a host name"),
        (rule("*.10.0.0.1", "", &[]), ".host", "range in `net`"),
        (rule("https://x.example", "", &[]), ".host", "not a host name"),
        (rule("regex:(a", "", &[]), ".host", "is not a regular expression"),
        (rule("regex:*.x.example", "", &[]), ".host", r"write `regex:.*\.x\.example`"),
        (rule("regex:https://x", "", &[]), ".host", "no scheme and no slash"),
        (rule("regex:.*", "", &[]), ".host", "leave `host` out"),
        (rule("10.0.0.1", "10.0.0.0/8", &[]), ".net", "remove `host` or `net`"),
        (rule("", "10.0.0.0/40", &[]), ".net", "not an address or range"),
        (rule("", "example.com", &[]), ".net", "not an address or range"),
        (rule("", "10.1.2.3/8", &[]), ".net", "beyond its prefix"),
        (rule("x.example", "", &[443, 0]), ".ports[1]", "0 is not a port"),
    ] {
        let config = EgressConfig {
            allow: vec![rule("x", "", &[]), bad.clone()],
            deny: vec![bad],
            ..EgressConfig::default()
        };
        let problems = EgressPolicy::compile(&config, false, false, vec![]).unwrap_err();
        let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(
            paths,
            [format!("gateway.egress.deny[0]{path}"), format!("gateway.egress.allow[1]{path}")]
        );
        assert!(problems[0].message.contains(words), "{}", problems[0].message);
    }
    let problems =
        EgressPolicy::compile(&deny(&[rule("", "10.1.2.3/8", &[])]), false, false, vec![]).unwrap_err();
    assert_eq!(problems[0].suggestion.as_deref(), Some("10.0.0.0/8"));
}

#[test]
fn a_regular_expression_matches_whole_hosts_only() {
    let expression = rule(r"regex:(api|files)-\d+\.(x|y)\.example", "", &[]);
    let strict = EgressConfig { default: EgressDefault::Deny, ..allow(std::slice::from_ref(&expression)) };
    let (allowing, denying) = (at_home(&strict), at_home(&deny(&[expression])));
    for name in ["api-1.x.example", "API-22.Y.Example.", "files-0.y.example:8443"] {
        assert_eq!((host(&allowing, name), host(&denying, name)), (Allow, Deny(Rule)), "{name}");
    }
    for name in
        ["api-1.x.example.evil", "evil.api-1.x.example", "api-1.x.examples", "api-.x.example", "[::1]"]
    {
        assert_eq!((host(&allowing, name), host(&denying, name)), (Deny(NotAllowed), Allow), "{name}");
    }
}

#[test]
fn a_regular_expression_sees_an_address_as_requested_and_lifts_little() {
    let denying = at_home(&deny(&[rule(r"regex:10\.1\..*", "", &[])]));
    for address in ["10.1.2.3", "[::ffff:10.1.2.3]", "[::FFFF:a01:203]"] {
        assert_eq!(host(&denying, address), Deny(Rule), "{address}");
    }
    assert_eq!(host(&denying, "10.10.2.3"), Allow);
    assert_eq!(at(&denying, "x.example", "10.1.2.3"), Allow, "only `net` matches what a name leads to");
    let allowing = exposed(&allow(&[rule("regex:.+", "", &[])]));
    assert_eq!(at(&allowing, "metadata.google.internal", "169.254.169.254"), Deny(Metadata));
    assert_eq!(at(&allowing, "169.254.169.254", "169.254.169.254"), Deny(Metadata));
    assert_eq!(at(&allowing, "x.example", "169.254.7.7"), Deny(LinkLocal));
    assert_eq!(at(&allowing, "127.0.0.1:8000", "127.0.0.1"), Deny(OwnPort));
    assert_eq!(at(&allowing, "x.example", "10.0.0.1"), Allow, "as with any other name");
}

#[test]
fn an_ipv6_address_needs_no_brackets_in_a_rule() {
    for text in ["2001:4860:4860::8888", "[2001:4860:4860::8888]"] {
        assert_eq!(host(&at_home(&deny(&[rule(text, "", &[])])), "[2001:4860:4860::8888]"), Deny(Rule));
    }
}

/// Returns the policy of the gateway that `egret exec --isolate` starts.
fn isolated(config: &EgressConfig) -> EgressPolicy {
    at_home(config).isolated()
}

#[test]
fn an_isolated_client_reaches_public_hosts_at_the_ports_of_http_alone() {
    for mode in [EgressMode::Enforce, EgressMode::Report, EgressMode::Off] {
        let policy = isolated(&EgressConfig { mode, ..EgressConfig::default() });
        for authority in ["api.example.com", "api.example.com:80", "8.8.8.8", "[2606:4700::1111]:80"] {
            let ip = if authority.starts_with('[') { "2606:4700::1111" } else { "8.8.8.8" };
            assert_eq!(at(&policy, authority, ip), Allow, "{authority}");
        }
        for (authority, ip, reason) in [
            ("api.example.com:22", "8.8.8.8", Port),
            ("api.example.com:8443", "8.8.8.8", Port),
            ("8.8.8.8:53", "8.8.8.8", Port),
            ("localhost:9210", "127.0.0.1", Port),
            ("localhost", "127.0.0.1", Private),
            ("localhost", "::1", Private),
            ("127.0.0.1:9210", "127.0.0.1", Private),
            ("0.0.0.0", "0.0.0.0", Private),
            ("[::]", "::", Private),
            ("127.1.2.3", "127.1.2.3", Private),
            ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1", Private),
            ("[::7f00:1]", "::7f00:1", Private),
            ("[64:ff9b::7f00:1]", "64:ff9b::7f00:1", Private),
            ("[2002:a00:1::]", "2002:a00:1::", Private),
            ("rebound.example", "10.1.2.3", Private),
            ("192.168.1.1", "192.168.1.1", Private),
            ("[fd12::1]", "fd12::1", Private),
            ("[fe80::1]", "fe80::1", LinkLocal),
            ("169.254.7.7", "169.254.7.7", LinkLocal),
            ("169.254.169.254", "169.254.169.254", Metadata),
            ("metadata.google.internal", "169.254.169.254", Metadata),
            ("127.0.0.1:8001", "127.0.0.1", OwnPort),
        ] {
            assert_eq!(at(&policy, authority, ip), Deny(reason), "{mode:?} {authority}");
        }
    }
}

#[test]
fn an_isolated_client_reaches_what_the_config_names() {
    let policy = isolated(&allow(&[
        rule("db.example", "", &[5432]),
        rule("", "10.9.0.0/16", &[]),
        rule("", "", &[8443]),
        rule("regex:.+", "", &[81]),
    ]));
    assert_eq!(at(&policy, "db.example:5432", "10.0.0.1"), Allow, "a name with its port");
    assert_eq!(at(&policy, "db.example:22", "8.8.8.8"), Deny(Port));
    assert_eq!(at(&policy, "10.9.1.1:22", "10.9.1.1"), Allow, "a range with all ports");
    assert_eq!(at(&policy, "10.8.1.1", "10.8.1.1"), Deny(Private));
    assert_eq!(at(&policy, "any.example:8443", "8.8.8.8"), Allow, "a port of public hosts");
    assert_eq!(at(&policy, "any.example:8443", "127.0.0.1"), Deny(Private), "a port names no host");
    assert_eq!(at(&policy, "localhost:81", "127.0.0.1"), Allow, "as with any other name");
    assert_eq!(provider(&policy, "provider.example:9000", "127.0.0.1"), Allow);
    assert_eq!(provider(&policy, "127.0.0.1:8001", "127.0.0.1"), Deny(OwnPort));
    let strict = EgressConfig { default: EgressDefault::Deny, ..allow(&[rule("a.example", "", &[])]) };
    assert_eq!(host(&isolated(&strict), "b.example"), Deny(NotAllowed), "the other rules hold as well");
    let learning = EgressConfig { mode: EgressMode::Report, ..strict };
    assert_eq!(host(&isolated(&learning), "b.example"), Report(NotAllowed));
}

#[test]
fn an_isolated_client_does_not_reach_this_machine_by_a_public_address() {
    let connected = |policy: &EgressPolicy, configured: bool| {
        let authority = Authority::parse(b"8.8.8.8", Some(443)).unwrap();
        let target = EgressTarget { authority: &authority, configured };
        policy.check_connected(&target, "8.8.8.8:40000".parse().unwrap(), "8.8.8.8:443".parse().unwrap())
    };
    assert_eq!(connected(&at_home(&EgressConfig::default()), false), Allow);
    let policy = isolated(&EgressConfig { mode: EgressMode::Off, ..EgressConfig::default() });
    assert_eq!((connected(&policy, false), connected(&policy, true)), (Deny(Private), Allow));
    let named = isolated(&allow(&[rule("", "8.8.8.8", &[443])]));
    assert_eq!(connected(&named, false), Allow);
    let by_port = isolated(&allow(&[rule("", "", &[443])]));
    assert_eq!(connected(&by_port, false), Deny(Private));
}
