//! The certificates, judged by verifiers that others wrote: webpki, OpenSSL and the JDK.

use std::process::{Command, Output};
use std::sync::Arc;

use egret_message::authority::Host;
use egret_net::tls::provider;
use rcgen::SanType;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};

use super::*;
use crate::pem;
use egret_message::host_pattern::HostPattern;

fn constraints(texts: &[&str]) -> Constraints {
    Constraints::new(texts.iter().map(|text| HostPattern::parse(text).unwrap())).unwrap()
}

fn now() -> Timestamp {
    egret_clock::Clock::new().timestamp(egret_clock::Moment::now())
}

fn authority(texts: &[&str]) -> Authority {
    Authority::make(&constraints(texts), &Owner::new("user@host"), IN_MEMORY_DAYS, now()).unwrap()
}

/// Signs a certificate for a host with the authority's key, whatever its constraints are: what a thief would
/// do.
fn forged(authority: &Authority, host: &str) -> CertificateDer<'static> {
    let validity = Validity { not_before: now() - BACKDATED, not_after: now() + DAY };
    let mut params = params(validity).unwrap();
    params.subject_alt_names = vec![match Host::parse(host.trim_start_matches("*.").as_bytes()).unwrap() {
        Host::Ip(ip) => SanType::IpAddress(ip),
        Host::Name(_) => SanType::DnsName(host.try_into().unwrap()),
    }];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    authority.sign(&params, &KeyPair::generate().unwrap()).unwrap().into()
}

fn server_name(host: &str) -> ServerName<'static> {
    let host = host.replacen('*', "any", 1);
    ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).unwrap()
}

fn webpki_accepts(root: &CertificateDer<'static>, chain: &[CertificateDer<'static>], host: &str) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    verifier.verify_server_cert(&chain[0], &chain[1..], &server_name(host), &[], UnixTime::now()).is_ok()
}

/// Returns `None` if the command is not installed.
fn run(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Lets OpenSSL verify as strictly as it can, as Python 3.13 does.
fn openssl_accepts(root: &CertificateDer<'_>, chain: &[CertificateDer<'_>], host: &str) -> Option<bool> {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("root.pem"), pem::certificate(root)).unwrap();
    std::fs::write(path("leaf.pem"), pem::certificate(&chain[0])).unwrap();
    let others: String = chain[1..].iter().map(|certificate| pem::certificate(certificate)).collect();
    std::fs::write(path("chain.pem"), others).unwrap();
    let kind =
        if matches!(server_name(host), ServerName::IpAddress(_)) { "-verify_ip" } else { "-verify_hostname" };
    let host = host.replacen('*', "any", 1);
    let mut command = Command::new("openssl");
    command.args(["verify", "-x509_strict", "-purpose", "sslserver", "-no-CApath", "-no-CAstore"]);
    command.args([kind, host.trim_matches(['[', ']'])]).arg("-CAfile").arg(path("root.pem"));
    command.arg("-untrusted").arg(path("chain.pem")).arg(path("leaf.pem"));
    run(&mut command).map(|output| output.status.success())
}

/// Returns a line of the JDK's verifier for each certificate of each authority, or none if there is no JDK.
/// It ignores the constraints of a root, which is why the issuing certificate has them too. A JVM takes
/// longer to start than to verify, so one verifies all.
fn java_verdicts(groups: &[(Authority, Vec<CertificateDer<'static>>)]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: String, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut command = Command::new("java");
    command.arg(write("Judge.java".to_owned(), include_str!("judge.java").to_owned()));
    for (group, (authority, leaves)) in groups.iter().enumerate() {
        command.args((group > 0).then_some("--"));
        let certificates = [authority.root().der(), authority.issuing()].into_iter().chain(leaves);
        for (number, certificate) in certificates.enumerate() {
            command.arg(write(format!("{group}-{number}.pem"), pem::certificate(certificate)));
        }
    }
    let Some(output) = run(&mut command) else { return Vec::new() };
    let printed = String::from_utf8(output.stdout).unwrap();
    let verdicts: Vec<String> = printed.lines().map(str::to_owned).collect();
    let leaves: usize = groups.iter().map(|(_, leaves)| leaves.len()).sum();
    assert_eq!(verdicts.len(), leaves, "{printed}{}", String::from_utf8_lossy(&output.stderr));
    verdicts
}

fn accepts(authority: &Authority, chain: &[CertificateDer<'static>], host: &str) -> bool {
    let accepted = webpki_accepts(authority.root().der(), chain, host);
    if let Some(by_openssl) = openssl_accepts(authority.root().der(), chain, host) {
        assert_eq!(accepted, by_openssl, "webpki and OpenSSL disagree about {host}");
    }
    accepted
}

#[test]
fn a_thief_of_the_key_can_speak_for_the_configured_hosts_only() {
    let (mut groups, mut cases) = (Vec::new(), Vec::new());
    for (hosts, good, bad) in [
        (
            &["api.x.com", "*.y.com", "localhost"][..],
            &["api.x.com", "a.api.x.com", "*.y.com", "y.com", "localhost"][..],
            &["x.com", "b.x.com", "*.x.com", "xapi.x.com", "bank.example", "10.0.0.1", "[::1]"][..],
        ),
        (
            &["api.x.com", "10.0.0.1"],
            &["api.x.com", "10.0.0.1"],
            &["x.com", "10.0.0.2", "[::1]", "127.0.0.1"],
        ),
        (
            &["api.x.com", "10.0.0.1", "::1"],
            &["api.x.com", "10.0.0.1", "[::1]"],
            &["x.com", "10.0.0.2", "[::2]"],
        ),
        (&["10.0.0.1"], &["10.0.0.1"], &["api.x.com", "10.0.0.2", "[::1]", "localhost"]),
        (&["::1"], &["[::1]"], &["api.x.com", "10.0.0.2", "[::2]", "0.0.0.0"]),
        (&["*"], &["api.x.com", "*.y.com", "10.0.0.1", "[::1]"], &[]),
    ] {
        let authority = authority(hosts);
        let all: Vec<(&str, bool)> =
            good.iter().map(|host| (*host, true)).chain(bad.iter().map(|host| (*host, false))).collect();
        let leaves: Vec<_> = all.iter().map(|(host, _)| forged(&authority, host)).collect();
        for ((host, is_good), leaf) in all.iter().zip(&leaves) {
            let chain = [leaf.clone(), authority.issuing().clone()];
            assert_eq!(accepts(&authority, &chain, host), *is_good, "{host} by an authority for {hosts:?}");
        }
        cases.extend(all.into_iter().map(|(host, is_good)| (hosts, host, is_good)));
        groups.push((authority, leaves));
    }
    for ((hosts, host, is_good), verdict) in cases.into_iter().zip(java_verdicts(&groups)) {
        let is_accepted = verdict == "accepted";
        assert_eq!(is_accepted, is_good, "{host} by an authority for {hosts:?} in Java: {verdict}");
    }
}

#[test]
fn a_thief_of_the_key_cannot_make_an_authority_without_constraints() {
    let authority = authority(&["api.x.com"]);
    let validity = Validity { not_before: now() - BACKDATED, not_after: now() + DAY };
    let params = issuing_params("0", &Constraints::NONE, validity).unwrap();
    let key = KeyPair::generate().unwrap();
    let below: CertificateDer<'static> = authority.sign(&params, &key).unwrap().into();
    let other = Authority {
        root: authority.root().clone(),
        issuing: below.clone(),
        issuer: Issuer::from_ca_cert_der(&below, key).unwrap(),
        constraints: Constraints::NONE,
        not_before: authority.not_before,
        not_after: authority.not_after,
    };
    for host in ["api.x.com", "bank.example"] {
        let chain = [forged(&other, host), below.clone(), authority.issuing().clone()];
        assert!(!accepts(&authority, &chain, host), "{host}");
    }
}

#[test]
fn the_certificates_have_the_fields_that_strict_verifiers_want() {
    let authority = authority(&["api.x.com"]);
    let other =
        Authority::make(&constraints(&["api.x.com"]), &Owner::new(&"é\n".repeat(99)), 3, now()).unwrap();
    let (root, issuing) = (parsed(authority.root().der()).unwrap(), parsed(&authority.issuing).unwrap());
    assert!(root.subject().to_string().starts_with("CN=Egret root "), "{}", root.subject());
    assert!(root.subject().to_string().ends_with(", O=user@host"), "{}", root.subject());
    assert!(issuing.subject().to_string().starts_with("CN=Egret CA "), "{}", issuing.subject());
    assert_eq!(authority.name(), format!("Egret root {}", &issuing.subject().to_string()[12..]));
    assert_ne!(authority.name(), other.name());
    assert_eq!(Owner::new(&"é\n".repeat(99)).0.chars().count(), OWNER_CHARS_MAX);
    for (certificate, path_length) in [(&root, 1), (&issuing, 0)] {
        let constraints = certificate.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, Some(path_length));
        let usage = certificate.key_usage().unwrap().unwrap();
        assert!(usage.critical && usage.value.key_cert_sign());
        assert_eq!(usage.value.flags.count_ones(), 1);
        assert!(certificate.name_constraints().unwrap().unwrap().critical);
        assert_eq!(certificate.raw_serial().len(), SERIAL_BYTES);
    }
    assert_ne!(root.raw_serial(), issuing.raw_serial());
    assert!(root.extended_key_usage().unwrap().is_none());
    let usage = issuing.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth && !usage.any);
    let text = format!("{authority:?} {:?}", authority.issuer);
    assert!(!text.contains(&authority.key_pem()[40..80]), "{text}");
}

#[test]
fn the_identifier_of_the_issuers_key_is_the_one_in_its_certificate() {
    use x509_parser::extensions::ParsedExtension;
    let identifiers = |der: &CertificateDer<'_>| {
        let (_, certificate) = X509Certificate::from_der(der).unwrap();
        let (mut own, mut issuers) = (None, None);
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => own = Some(id.0.to_vec()),
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    issuers = id.key_identifier.as_ref().map(|id| id.0.to_vec());
                }
                _ => {}
            }
        }
        (own, issuers)
    };
    let authority = authority(&["api.x.com"]);
    let leaf = forged(&authority, "api.x.com");
    let [root, issuing, leaf] = [authority.root().der(), &authority.issuing, &leaf].map(identifiers);
    assert!(root.0.is_some() && issuing.0.is_some());
    assert_eq!((root.1, issuing.1, leaf.1), (None, root.0, issuing.0));
}

#[test]
fn an_authority_reads_back_and_its_parts_must_belong_together() {
    let (one, two) = (authority(&["api.x.com", "10.0.0.1", "::1"]), authority(&["api.x.com"]));
    for hosts in [&["10.0.0.1"][..], &["invalid"], &["a.invalid", "10.0.0.1"], &["*"]] {
        // Making one reads its constraints back.
        assert_eq!(authority(hosts).constraints, constraints(hosts));
    }
    let read = |root: &Authority, issuing: &Authority, key: &Authority, now| {
        Authority::read(root.root().der().clone(), issuing.issuing.clone(), key.key_pem().as_bytes(), now)
    };
    let back = read(&one, &one, &one, now()).unwrap();
    assert_eq!(back.constraints, one.constraints);
    assert_eq!((back.not_before, back.not_after), (one.not_before, one.not_after));
    assert_eq!((back.fingerprint(), back.fingerprint().len()), (one.fingerprint(), 95));
    assert!(accepts(&one, &[forged(&back, "api.x.com"), one.issuing.clone()], "api.x.com"));
    assert!(matches!(read(&one, &one, &two, now()), Err(AuthorityError::OtherKey)));
    assert!(matches!(read(&two, &one, &one, now()), Err(AuthorityError::OtherRoot)));
    let end = one.not_after();
    assert!(matches!(read(&one, &one, &one, end), Err(AuthorityError::Expired(at)) if at == end));
    assert!(read(&one, &one, &one, end - Duration::from_secs(1)).is_ok());
    let early = now() - Duration::from_hours(25);
    assert!(matches!(read(&one, &one, &one, early), Err(AuthorityError::NotYetValid(_))));
    assert!(read(&one, &one, &one, now() - Duration::from_hours(23)).is_ok());
    let leaf = forged(&one, "api.x.com");
    let as_root = Authority::read(leaf, one.issuing.clone(), one.key_pem().as_bytes(), now());
    assert!(matches!(as_root, Err(AuthorityError::Certificate(_))));
    for key in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
        let read = Authority::read(one.root().der().clone(), one.issuing.clone(), key.as_bytes(), now());
        assert!(matches!(read, Err(AuthorityError::Key)));
    }
}

#[test]
fn the_validity_is_bounded() {
    for days in [0, DAYS_MAX + 1] {
        let made = Authority::make(&Constraints::NONE, &Owner::new(""), days, now());
        assert!(matches!(made, Err(AuthorityError::Days(_))));
    }
    let now = now();
    let made = Authority::make(&Constraints::NONE, &Owner::new(""), INIT_DAYS, now).unwrap();
    assert_eq!((made.not_after().as_secs() - now.as_secs()) / 86_400, u64::from(INIT_DAYS));
    assert_eq!(made.not_after().as_secs() - made.not_before.as_secs(), 86_400 * (u64::from(INIT_DAYS) + 1));
}
