//! Handshakes between rustls and the configurations.

use std::sync::Arc;
use std::time::Duration;

use egret_clock::{Clock, Moment};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConnection};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;
use crate::authority::{Authority, IN_MEMORY_DAYS, Owner};
use crate::constraints::Constraints;
use egret_message::host_pattern::HostPattern;

const DAY: Duration = Duration::from_hours(24);

fn now() -> Timestamp {
    Clock::new().timestamp(Moment::now())
}

fn configs(hosts: &[&str]) -> ServerConfigs {
    let patterns: Vec<HostPattern> = hosts.iter().map(|text| HostPattern::parse(text).unwrap()).collect();
    let constraints = Constraints::new(patterns.clone()).unwrap();
    let authority = Authority::make(&constraints, &Owner::new("user@host"), IN_MEMORY_DAYS, now()).unwrap();
    ServerConfigs::new(Arc::new(authority), patterns.into_iter().collect(), true).unwrap()
}

fn host(text: &str) -> Host {
    Host::parse(text.as_bytes()).unwrap()
}

fn client(authority: &Authority) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.root().der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13, &TLS12]);
    let mut config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(64);
    Arc::new(config)
}

/// Shakes hands until both sides are done, and reads the tickets.
fn shake(
    client: &Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: &str,
) -> Result<ClientConnection, rustls::Error> {
    let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name)?;
    let mut server = ServerConnection::new(server)?;
    for _ in 0..4 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut left = &bytes[..];
        while !left.is_empty() {
            server.read_tls(&mut left).unwrap();
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut left = &bytes[..];
        while !left.is_empty() {
            client.read_tls(&mut left).unwrap();
            client.process_new_packets()?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(client)
}

fn leaf(client: &ClientConnection) -> CertificateDer<'static> {
    client.peer_certificates().unwrap()[0].clone().into_owned()
}

#[test]
fn a_client_accepts_the_certificate_of_each_host_and_of_no_other() {
    let configs = configs(&["api.x.com", "*.y.com", "10.0.0.1", "::1", "localhost"]);
    let client = client(configs.authority());
    for name in ["api.x.com", "API.X.COM.", "a.y.com", "a.b.y.com", "10.0.0.1", "[::1]", "localhost"] {
        let server = configs.get(&host(name)).unwrap();
        let shaken = shake(&client, server, name.trim_end_matches('.')).unwrap();
        assert_eq!(shaken.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!(shaken.peer_certificates().unwrap().len(), 2);
    }
    for (shown, wanted) in [("api.x.com", "a.api.x.com"), ("a.y.com", "b.a.y.com"), ("10.0.0.1", "10.0.0.2")]
    {
        let error = shake(&client, configs.get(&host(shown)).unwrap(), wanted).unwrap_err();
        assert!(matches!(error, rustls::Error::InvalidCertificate(_)), "{wanted}: {error}");
    }
}

#[test]
fn a_long_name_has_an_empty_subject() {
    let configs = configs(&["*.y.com"]);
    let client = client(configs.authority());
    let name = format!("{0}.{0}.y.com", "a".repeat(60));
    let shaken = shake(&client, configs.get(&host(&name)).unwrap(), &name).unwrap();
    let leaf = leaf(&shaken);
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
    assert_eq!(leaf.subject().to_string(), "");
    assert!(leaf.subject_alternative_name().unwrap().unwrap().critical);
}

#[test]
fn certificates_outside_the_constraints_are_not_minted() {
    let configs = configs(&["api.x.com", "10.0.0.1"]);
    for name in ["x.com", "b.x.com", "api.x.com.evil.example", "10.0.0.2", "[::1]", "localhost"] {
        let error = configs.get(&host(name)).unwrap_err();
        assert!(matches!(error, MintError::OutsideConstraints), "{name}");
    }
}

#[test]
fn the_names_of_a_pattern_share_one_certificate() {
    let configs = configs(&["*.y.com", "own.y.com", "*.local"]);
    let get = |name: &str| configs.get(&host(name)).unwrap();
    let first = get("n0.y.com");
    for number in 1..10_000 {
        assert!(Arc::ptr_eq(&first, &get(&format!("n{number}.y.com"))));
    }
    for other in ["own.y.com", "a.b.y.com", "printer.local"] {
        assert!(!Arc::ptr_eq(&first, &get(other)), "{other}");
    }
    assert!(Arc::ptr_eq(&get("a.b.y.com"), &get("c.b.y.com")));
    assert!(!Arc::ptr_eq(&get("a.local"), &get("b.local")));
    let kept = configs.shared.kept.read().unwrap();
    assert_eq!(kept.len(), 6);
}

#[test]
fn the_cache_is_bounded() {
    let configs = configs(&["*"]);
    for number in 0..2000 {
        configs.get(&host(&format!("h{number}.example"))).unwrap();
    }
    assert!(configs.shared.kept.read().unwrap().len() <= CERTIFICATES_MAX);
}

#[test]
fn a_certificate_is_kept_for_half_of_its_validity() {
    let hosts = [HostPattern::parse("api.x.com").unwrap()];
    let start = now();
    let constraints = Constraints::new(hosts).unwrap();
    let authority = Authority::make(&constraints, &Owner::new(""), 60, start).unwrap();
    let configs = ServerConfigs::new(Arc::new(authority), HostPatterns::default(), true).unwrap();
    let get = |after: Duration| configs.get_at(&host("api.x.com"), start + after);
    let first = get(Duration::ZERO).unwrap();
    assert!(Arc::ptr_eq(&first, &get(14 * DAY).unwrap()));
    let second = get(15 * DAY).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    // This one ends with the authority, so it is not renewed.
    let last = get(31 * DAY).unwrap();
    assert!(Arc::ptr_eq(&last, &get(59 * DAY).unwrap()));
    assert!(matches!(get(60 * DAY), Err(MintError::Authority(_))));
}

#[test]
fn sessions_are_resumed_for_the_same_host_only_also_after_a_reload() {
    let (one, client) = {
        let configs = configs(&["api.x.com", "b.x.com"]);
        let client = client(configs.authority());
        (configs, client)
    };
    let again = ServerConfigs::new(Arc::clone(one.authority()), HostPatterns::default(), true).unwrap();
    let kind = |configs: &ServerConfigs, name: &str| {
        shake(&client, configs.get(&host(name)).unwrap(), name).unwrap().handshake_kind()
    };
    assert_eq!(kind(&one, "api.x.com"), Some(HandshakeKind::Full));
    assert_eq!(kind(&one, "api.x.com"), Some(HandshakeKind::Resumed));
    assert_eq!(kind(&one, "b.x.com"), Some(HandshakeKind::Full));
    assert_eq!(kind(&again, "api.x.com"), Some(HandshakeKind::Resumed));
}

#[test]
fn serial_numbers_differ_and_keys_do_not() {
    let configs = configs(&["a.x.com", "b.x.com", "10.0.0.1"]);
    let client = client(configs.authority());
    let [a, b, ip] = ["a.x.com", "b.x.com", "10.0.0.1"]
        .map(|name| leaf(&shake(&client, configs.get(&host(name)).unwrap(), name).unwrap()));
    let [a, b, ip] = [&a, &b, &ip].map(|der| X509Certificate::from_der(der).unwrap().1);
    assert_ne!(a.raw_serial(), b.raw_serial());
    assert_eq!(a.public_key(), b.public_key());
    assert_eq!((a.subject().to_string().as_str(), ip.subject().to_string().as_str()), ("CN=a.x.com", ""));
    for leaf in [a, b, ip] {
        assert!(!leaf.is_ca());
        let usage = leaf.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && usage.flags.is_power_of_two());
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any);
        let days = (leaf.validity().not_after.timestamp() - leaf.validity().not_before.timestamp()) / 86_400;
        assert!((30..=31).contains(&days), "{days}");
    }
}

#[test]
fn threads_that_want_one_host_share_one_certificate() {
    let configs = configs(&["api.x.com"]);
    let got: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let configs = configs.clone();
                scope.spawn(move || configs.get(&host("api.x.com")).unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(got.iter().all(|config| Arc::ptr_eq(config, &got[0])));
}
