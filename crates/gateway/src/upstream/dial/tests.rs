//! The race between addresses with a paused clock, and dialling over real sockets.

use std::cell::RefCell;
use std::future::pending;

use tokio::net::TcpListener;

use super::*;
use crate::config::{DnsConfig, EgressConfig, EgressMode, EgressRule};
use crate::upstream::authority::Authority;

/// How one attempt of a race goes.
#[derive(Clone, Copy)]
enum Attempt {
    Connects(u64),
    Fails(u64, DialError),
    Hangs,
}
use Attempt::{Connects, Fails, Hangs};

/// Runs a race with a paused clock: who won or what failed, and when each attempt began, in milliseconds.
async fn race(attempts: &[Attempt]) -> (Result<usize, DialError>, Vec<u128>, u128) {
    let (begin, starts) = (Instant::now(), RefCell::new(Vec::new()));
    let race = Race::new((0..attempts.len()).collect(), &DialOptions::default(), |index: usize| {
        starts.borrow_mut().push(begin.elapsed().as_millis());
        let attempt = attempts[index];
        async move {
            match attempt {
                Connects(after_ms) => tokio::time::sleep(Duration::from_millis(after_ms)).await,
                Fails(after_ms, error) => {
                    tokio::time::sleep(Duration::from_millis(after_ms)).await;
                    return Err(error);
                }
                Hangs => pending().await,
            }
            Ok(index)
        }
    });
    let outcome = in_time(Duration::from_secs(5), race.run()).await;
    (outcome, starts.into_inner(), begin.elapsed().as_millis())
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_next_attempt_waits_a_quarter_of_a_second() {
    assert_eq!(race(&[Connects(100), Connects(0)]).await, (Ok(0), vec![0], 100));
    assert_eq!(race(&[Hangs, Connects(10)]).await, (Ok(1), vec![0, 250], 260));
    assert_eq!(race(&[Connects(400), Connects(200)]).await, (Ok(0), vec![0, 250], 400));
    assert_eq!(race(&[Hangs, Hangs, Connects(0)]).await, (Ok(2), vec![0, 250, 500], 500));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_failure_starts_the_next_attempt_at_once() {
    let refused = |after_ms| Fails(after_ms, DialError::Refused);
    assert_eq!(race(&[refused(5), Connects(5)]).await, (Ok(1), vec![0, 5], 10));
    assert_eq!(race(&[Hangs, refused(5), Connects(1)]).await, (Ok(2), vec![0, 250, 255], 256));
    assert_eq!(
        race(&[refused(0), refused(0), refused(7)]).await,
        (Err(DialError::Refused), vec![0, 0, 0], 7)
    );
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn of_several_failures_the_most_telling_is_reported() {
    let fails = |error| Fails(3, error);
    for errors in [[DialError::Unreachable, DialError::Refused], [DialError::Refused, DialError::Unreachable]]
    {
        assert_eq!(race(&errors.map(fails)).await.0, Err(DialError::Refused));
    }
    assert_eq!(
        race(&[fails(DialError::Refused), fails(DialError::Denied(Reason::OwnPort))]).await.0,
        Err(DialError::Denied(Reason::OwnPort))
    );
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn all_attempts_together_have_a_time_limit() {
    assert_eq!(
        race(&[Hangs, Fails(1, DialError::Refused), Hangs]).await,
        (Err(DialError::Timeout), vec![0, 250, 251], 5_000)
    );
}

#[test]
fn the_families_take_turns_and_ipv6_begins() {
    let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    let turns = |texts: &[&str]| in_turn(&ips(texts)).collect::<Vec<_>>();
    assert_eq!(
        turns(&["192.0.2.1", "192.0.2.2", "::1", "::2", "::3"]),
        ips(&["::1", "192.0.2.1", "::2", "192.0.2.2", "::3"])
    );
    assert_eq!(
        turns(&["192.0.2.1", "192.0.2.2", "192.0.2.3", "::1"]),
        ips(&["::1", "192.0.2.1", "192.0.2.2", "192.0.2.3"])
    );
    assert_eq!(turns(&[]), ips(&[]));
    assert_eq!(in_turn(&vec![[192, 0, 2, 1].into(); 100]).count(), ADDRESSES_MAX);
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn policy(config: &EgressConfig) -> EgressPolicy {
    EgressPolicy::compile(config, false, false, vec![]).unwrap()
}

fn deny_net(net: &str) -> EgressConfig {
    EgressConfig {
        deny: vec![EgressRule { net: Some(net.to_owned()), ..EgressRule::default() }],
        ..EgressConfig::default()
    }
}

fn resolver() -> Resolver {
    let timeout = egret_config::Duration::from_millis(50);
    let servers = vec!["127.0.0.1:1".parse().unwrap()];
    Resolver::start(&DnsConfig { servers, timeout, ..DnsConfig::default() }).unwrap()
}

async fn dial_to(authority: &str, policy: &EgressPolicy) -> (Result<Dialed, DialError>, Resolver) {
    let resolver = resolver();
    let authority = Authority::parse(authority.as_bytes(), None).unwrap();
    let target = Target { authority: &authority, configured: false };
    (dial(&target, &resolver, policy, &DialOptions::default()).await, resolver)
}

async fn connect_to(addresses: &[&str], port: u16, policy: &EgressPolicy) -> Result<Dialed, DialError> {
    let authority = Authority::parse(format!("host.example:{port}").as_bytes(), None).unwrap();
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    connect(&Target { authority: &authority, configured: false }, &addresses, policy, &DialOptions::default())
        .await
}

#[tokio::test(flavor = "local")]
async fn a_connection_is_made_without_delay_and_with_keepalive() {
    let (_listener, port) = listener().await;
    for host in ["localhost", "127.0.0.1"] {
        let dialed = dial_to(&format!("{host}:{port}"), &policy(&EgressConfig::default())).await.0.unwrap();
        assert_eq!(dialed.peer, SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(dialed.reported, None);
        assert!(dialed.stream.nodelay().unwrap());
        assert!(SockRef::from(&dialed.stream).keepalive().unwrap());
    }
}

#[tokio::test(flavor = "local")]
async fn nobody_listening_is_told_from_other_failures() {
    let (listener, port) = listener().await;
    drop(listener);
    let policy = policy(&EgressConfig::default());
    assert_eq!(connect_to(&["127.0.0.1"], port, &policy).await.unwrap_err(), DialError::Refused);
    assert_eq!(connect_to(&[], port, &policy).await.unwrap_err(), DialError::Dns(DnsError::NotFound));
}

#[tokio::test(flavor = "local")]
async fn a_name_without_answer_is_an_error_of_dns() {
    let error = dial_to("missing.example:80", &policy(&EgressConfig::default())).await.0.unwrap_err();
    assert!(matches!(error, DialError::Dns(_)), "{error:?}");
}

#[tokio::test(flavor = "local")]
async fn a_denied_name_is_never_asked_of_dns() {
    let rule = EgressRule { host: Some("*.example".to_owned()), ..EgressRule::default() };
    let policy = policy(&EgressConfig { deny: vec![rule], ..EgressConfig::default() });
    let (outcome, resolver) = dial_to("secret.example:80", &policy).await;
    assert_eq!(outcome.unwrap_err(), DialError::Denied(Reason::Rule));
    assert_eq!(resolver.snapshot().lookups, 0);
}

#[tokio::test(flavor = "local")]
async fn denied_addresses_are_left_out() {
    let (listener, port) = listener().await;
    let policy = policy(&deny_net("127.0.0.2"));
    let dialed = connect_to(&["127.0.0.2", "127.0.0.1"], port, &policy).await.unwrap();
    assert_eq!(dialed.peer, listener.local_addr().unwrap());
    assert_eq!(connect_to(&["127.0.0.2"], port, &policy).await.unwrap_err(), DialError::Denied(Reason::Rule));
    let metadata = connect_to(&["169.254.169.254", "::ffff:169.254.169.254"], port, &policy).await;
    assert_eq!(metadata.unwrap_err(), DialError::Denied(Reason::Metadata));
}

#[tokio::test(flavor = "local")]
async fn in_mode_report_the_connection_is_made_and_the_reason_kept() {
    let (_listener, port) = listener().await;
    let policy = policy(&EgressConfig { mode: EgressMode::Report, ..deny_net("127.0.0.0/8") });
    assert_eq!(connect_to(&["127.0.0.1"], port, &policy).await.unwrap().reported, Some(Reason::Rule));
    assert_eq!(dial_to(&format!("127.0.0.1:{port}"), &policy).await.0.unwrap().reported, Some(Reason::Rule));
}
