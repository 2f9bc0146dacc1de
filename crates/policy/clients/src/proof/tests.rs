//! Tests of the judgement of proofs.

use data_encoding::BASE64;
use egret_config::{Secret, UnixName};
use egret_http1::{HeadLimits, Progress};
use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};

use super::*;

const CHECKOUT: &str = "checkout-token-0123456789";
const REPORTS: &str = "reports-token-0123456789";
const OLD: &str = "checkout-token-before-9876";

fn secret(value: &str) -> Secret {
    Secret::from_value("${env:TOKEN}", value.to_owned())
}

fn config(tokens: &[(&str, &str)], old: &[(&str, &str)]) -> ClientsConfig {
    let of = |list: &[(&str, &str)]| {
        list.iter().map(|(name, value)| ((*name).to_owned(), secret(value))).collect()
    };
    ClientsConfig { tokens: of(tokens), old_tokens: of(old), ..ClientsConfig::default() }
}

fn clients() -> Clients {
    let config = config(&[("checkout", CHECKOUT), ("reports", REPORTS)], &[("checkout", OLD)]);
    Clients::compile(&config, "c", None, false, &[]).unwrap()
}

fn prove(clients: &Clients, fields: &str) -> Result<String, Unproven> {
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes();
    let mut request = RequestHead::new();
    assert_eq!(request.parse(&head, &HeadLimits::default()), Ok(Progress::Complete), "{fields}");
    let proven = of_request(clients, &request, &head);
    proven.map(|client| client.name().to_owned())
}

fn of_request(clients: &Clients, request: &RequestHead, head: &[u8]) -> Result<Arc<Proven>, Unproven> {
    clients.of_request(request, head, &mut JwtMemory::default(), Timestamp::default()).unwrap()
}

fn confirm(clients: &Clients, proven: &Proven, now: Timestamp) -> Result<(), Unproven> {
    clients.confirm(proven, &mut JwtMemory::default(), now)
}

fn own(token: &str) -> String {
    format!("x-egret-token: {token}\r\n")
}

fn basic(text: &str) -> String {
    format!("Proxy-Authorization: Basic {}\r\n", BASE64.encode(text.as_bytes()))
}

#[test]
fn a_token_proves_its_client_in_every_notation() {
    let clients = clients();
    for (fields, name) in [
        (own(CHECKOUT), "checkout"),
        (own(OLD), "checkout"),
        (format!("Proxy-Authorization: Bearer {REPORTS}\r\n"), "reports"),
        (basic(&format!("reports:{REPORTS}")), "reports"),
        (basic(&format!(":{CHECKOUT}")), "checkout"),
        (own(OLD) + &basic(&format!("checkout:{CHECKOUT}")), "checkout"),
    ] {
        assert_eq!(prove(&clients, &fields), Ok(name.to_owned()), "{fields}");
    }
}

#[test]
fn credentials_of_different_clients_prove_no_client() {
    let clients = clients();
    for (fields, unproven) in [
        (String::new(), Unproven::Missing),
        (format!("Authorization: Bearer {CHECKOUT}\r\n"), Unproven::Missing),
        ("x-egret-consumer: checkout\r\n".to_owned(), Unproven::Missing),
        (own("0123456789abcdef"), Unproven::Wrong),
        (own(&CHECKOUT.to_uppercase()), Unproven::Wrong),
        (basic(&format!("reports:{CHECKOUT}")), Unproven::Wrong),
        (basic(&format!("Checkout:{CHECKOUT}")), Unproven::Wrong),
        (own(CHECKOUT) + &basic(&format!("reports:{REPORTS}")), Unproven::Ambiguous),
        (own(CHECKOUT) + &basic(&format!("checkout:{CHECKOUT}x")), Unproven::Wrong),
        (own(CHECKOUT) + &own(CHECKOUT), Unproven::Ambiguous),
    ] {
        assert_eq!(prove(&clients, &fields), Err(unproven), "{fields}");
    }
}

#[test]
fn two_clients_must_not_share_a_token() {
    for config in [
        config(&[("a", CHECKOUT), ("b", CHECKOUT)], &[]),
        config(&[("a", CHECKOUT), ("b", REPORTS)], &[("a", REPORTS)]),
    ] {
        let problems = Clients::compile(&config, "c", None, false, &[]).unwrap_err();
        assert!(problems[0].message.contains("has the same token"), "{problems:?}");
        assert!(!format!("{problems:?}").contains(CHECKOUT));
    }
    let same = config(&[("a", CHECKOUT)], &[("a", CHECKOUT)]);
    assert!(
        Clients::compile(&same, "c", None, false, &[]).is_ok(),
        "one client may have the same token twice"
    );
}

#[test]
fn a_proof_is_confirmed_until_its_token_is_taken_back() {
    let (before, now) = (clients(), Timestamp::default());
    let head = b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\nx-egret-token: checkout-token-before-9876\r\n\r\n";
    let mut request = RequestHead::new();
    assert_eq!(request.parse(head, &HeadLimits::default()), Ok(Progress::Complete));
    let proven = of_request(&before, &request, head).unwrap();
    assert_eq!(confirm(&before, &proven, now), Ok(()));
    for (tokens, old, expected) in [
        (&[("checkout", OLD)][..], &[][..], Ok(())),
        (&[("checkout", CHECKOUT)], &[("checkout", OLD)], Ok(())),
        (&[("checkout", CHECKOUT)], &[], Err(Unproven::Withdrawn)),
        (&[("reports", OLD)], &[], Err(Unproven::Withdrawn)),
    ] {
        let after = Clients::compile(&config(tokens, old), "c", None, false, &[]).unwrap();
        assert_eq!(confirm(&after, &proven, now), expected, "{tokens:?}");
    }
}

#[test]
fn a_certificate_proves_its_name_until_it_expires() {
    let config = ClientsConfig { ca: Some("ca.pem".into()), ..ClientsConfig::default() };
    let of =
        |authorities: &[u8]| Clients::compile(&config, "c", Some(authorities.into()), true, &[]).unwrap();
    let clients = of(b"one");
    let mut params = CertificateParams::new(["checkout.internal".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2030, 1, 1);
    let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
    let proven = clients.of_certificate(Some(&der)).unwrap().unwrap();
    assert_eq!(proven.name(), "checkout.internal");
    let until = Timestamp::from_secs(1_893_456_000);
    assert_eq!(confirm(&clients, &proven, until), Ok(()));
    assert_eq!(confirm(&of(b"one"), &proven, until), Ok(()), "read again, unchanged");
    let later = Timestamp::from_secs(1_893_456_001);
    assert_eq!(confirm(&clients, &proven, later), Err(Unproven::Withdrawn));
    assert_eq!(confirm(&of(b"two"), &proven, until), Err(Unproven::Withdrawn));
    assert_eq!(confirm(&self::clients(), &proven, until), Err(Unproven::Withdrawn));
    assert_eq!(clients.of_certificate(None).unwrap().err(), Some(Unproven::Missing));
    assert_eq!(clients.of_certificate(Some(b"junk")).unwrap().err(), Some(Unproven::Certificate));
    assert!(self::clients().of_certificate(Some(&der)).is_none());
}

#[test]
fn debug_output_shows_no_token() {
    let head = own(CHECKOUT);
    let clients = clients();
    assert_eq!(prove(&clients, &head), Ok("checkout".to_owned()));
    let proven = clients.of_certificate(None).is_none();
    assert!(proven && !format!("{clients:?}").contains("token-"));
}

proptest! {
    #[test]
    fn no_other_token_proves_a_client(token in "[!-~]{16,40}") {
        prop_assume!(![CHECKOUT, REPORTS, OLD].contains(&token.as_str()));
        prop_assert_eq!(prove(&clients(), &own(&token)), Err(Unproven::Wrong));
    }

    #[test]
    fn no_part_or_variation_of_a_token_proves_its_client(at in 0..CHECKOUT.len(), byte in b'!'..=b'~') {
        let clients = clients();
        let mut changed = CHECKOUT.as_bytes().to_vec();
        changed[at] = byte;
        prop_assume!(changed != CHECKOUT.as_bytes());
        let changed = String::from_utf8(changed).unwrap();
        prop_assert_eq!(prove(&clients, &own(&changed)), Err(Unproven::Wrong));
        prop_assert_eq!(prove(&clients, &own(&CHECKOUT[at..])).ok().filter(|_| at > 0), None);
        prop_assert_eq!(prove(&clients, &own(&CHECKOUT[..at])).ok(), None);
    }
}

fn users(users: &[(&str, &[u32])]) -> Result<Clients, Vec<Problem>> {
    let numbers = |numbers: &[u32]| numbers.iter().map(|number| UnixName::Id(*number)).collect();
    let users = users.iter().map(|(name, list)| ((*name).to_owned(), numbers(list))).collect();
    Clients::compile(&ClientsConfig { users, ..ClientsConfig::default() }, "c", None, false, &[])
}

#[test]
fn a_user_of_a_unix_socket_is_its_client_until_a_reload() {
    let before = users(&[("checkout", &[1001, 1002]), ("reports", &[1003])]).unwrap();
    let of = |user: u32| before.of_user(|| Some(user));
    let name = |user: u32| of(user).map(|client| client.name().to_owned());
    let checkout = Some("checkout".to_owned());
    assert_eq!(
        [1001, 1002, 1003, 0].map(name),
        [checkout.clone(), checkout, Some("reports".to_owned()), None]
    );
    assert!(before.of_user(|| None).is_none());
    assert!(clients().of_user(|| unreachable!("tokens prove these clients")).is_none());
    let head = b"GET / HTTP/1.1\r\nHost: h\r\nx-egret-token: 0123456789abcdef\r\n\r\n";
    let mut request = RequestHead::new();
    request.parse(head, &HeadLimits::default()).unwrap();
    let by_request = before.of_request(&request, head, &mut JwtMemory::default(), Timestamp::default());
    assert!(by_request.is_none(), "no token counts");
    assert_eq!((before.without_proof(), before.ask_for_tokens()), (Unproven::User, false));
    let (kept, renamed) = (of(1003).unwrap(), of(1001).unwrap());
    let after = users(&[("reports", &[1003]), ("shop", &[1001])]).unwrap();
    assert_eq!(confirm(&after, &kept, Timestamp::default()), Ok(()));
    for clients in [&after, &clients()] {
        assert_eq!(confirm(clients, &renamed, Timestamp::default()), Err(Unproven::Withdrawn));
    }
}

#[test]
fn a_user_proves_one_client_and_nobody_proves_none() {
    for (list, expected) in [
        (&[("a", &[1][..]), ("b", &[1])][..], "is listed twice, here and for `a`"),
        (&[("a", &[65_534])], "proves nothing"),
        (&[("a", &[u32::MAX])], "proves nothing"),
    ] {
        let problems = users(list).unwrap_err();
        assert!(problems[0].message.contains(expected), "{problems:?}");
    }
}
