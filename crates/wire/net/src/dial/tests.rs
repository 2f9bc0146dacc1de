//! Tests of the race between addresses with a paused clock, and of dialling over real sockets.

use std::cell::RefCell;
use std::future::pending;
use std::net::TcpListener;

use egret_message::authority::Authority;
use socket2::SockRef;

use super::*;
use crate::config::{DnsConfig, EgressConfig, EgressMode, EgressRule};
use crate::event_loop::{paused, run};

/// The outcome of one attempt of a race.
#[derive(Clone, Copy)]
enum Attempt {
    Connects(u64),
    Fails(u64, DialError),
    Hangs,
}
use Attempt::{Connects, Fails, Hangs};

/// Runs a race with a paused clock. Returns the winner or the error, and the start of each attempt, in
/// milliseconds.
async fn race(attempts: &[Attempt]) -> (Result<usize, DialError>, Vec<u128>, u128) {
    let (begin, starts) = (now::exact(), RefCell::new(Vec::new()));
    let race = Race::new((0..attempts.len()).collect(), &DialOptions::default(), |index: usize| {
        starts.borrow_mut().push(elapsed(begin).as_millis());
        let attempt = attempts[index];
        async move {
            match attempt {
                Connects(after_ms) => event_loop::sleep(Duration::from_millis(after_ms)).await,
                Fails(after_ms, error) => {
                    event_loop::sleep(Duration::from_millis(after_ms)).await;
                    return Err(error);
                }
                Hangs => pending().await,
            }
            Ok(index)
        }
    });
    let outcome = in_time(Duration::from_secs(5), race.run()).await;
    (outcome, starts.into_inner(), elapsed(begin).as_millis())
}

#[test]
fn the_next_attempt_waits_a_quarter_of_a_second() {
    paused(async {
        assert_eq!(race(&[Connects(100), Connects(0)]).await, (Ok(0), vec![0], 100));
        assert_eq!(race(&[Hangs, Connects(10)]).await, (Ok(1), vec![0, 250], 260));
        assert_eq!(race(&[Connects(400), Connects(200)]).await, (Ok(0), vec![0, 250], 400));
        assert_eq!(race(&[Hangs, Hangs, Connects(0)]).await, (Ok(2), vec![0, 250, 500], 500));
    });
}

#[test]
fn a_failure_starts_the_next_attempt_at_once() {
    paused(async {
        let refused = |after_ms| Fails(after_ms, DialError::Refused);
        assert_eq!(race(&[refused(5), Connects(5)]).await, (Ok(1), vec![0, 5], 10));
        assert_eq!(race(&[Hangs, refused(5), Connects(1)]).await, (Ok(2), vec![0, 250, 255], 256));
        assert_eq!(
            race(&[refused(0), refused(0), refused(7)]).await,
            (Err(DialError::Refused), vec![0, 0, 0], 7)
        );
    });
}

#[test]
fn of_several_failures_the_most_telling_is_reported() {
    paused(async {
        let fails = |error| Fails(3, error);
        for errors in
            [[DialError::Unreachable, DialError::Refused], [DialError::Refused, DialError::Unreachable]]
        {
            assert_eq!(race(&errors.map(fails)).await.0, Err(DialError::Refused));
        }
        assert_eq!(
            race(&[fails(DialError::Refused), fails(DialError::Denied(Reason::OwnPort))]).await.0,
            Err(DialError::Denied(Reason::OwnPort))
        );
    });
}

#[test]
fn all_attempts_together_have_a_time_limit() {
    paused(async {
        assert_eq!(
            race(&[Hangs, Fails(1, DialError::Refused), Hangs]).await,
            (Err(DialError::Timeout), vec![0, 250, 251], 5_000)
        );
    });
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

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
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
    let target = EgressTarget { authority: &authority, configured: false };
    (dial(&target, &resolver, policy, &DialOptions::default()).await, resolver)
}

async fn connect_to(addresses: &[&str], port: u16, policy: &EgressPolicy) -> Result<Dialed, DialError> {
    let authority = Authority::parse(format!("host.example:{port}").as_bytes(), None).unwrap();
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    connect(
        &EgressTarget { authority: &authority, configured: false },
        &addresses,
        policy,
        &DialOptions::default(),
    )
    .await
}

#[test]
fn a_connection_is_made_without_delay_and_with_keepalive() {
    run(async {
        let (_listener, port) = listener();
        for host in ["localhost", "127.0.0.1"] {
            let dialed =
                dial_to(&format!("{host}:{port}"), &policy(&EgressConfig::default())).await.0.unwrap();
            assert_eq!(dialed.peer, SocketAddr::from(([127, 0, 0, 1], port)));
            assert_eq!(dialed.reported, None);
            assert!(SockRef::from(&dialed.socket).tcp_nodelay().unwrap());
            assert!(SockRef::from(&dialed.socket).keepalive().unwrap());
        }
    });
}

#[test]
fn a_refused_connection_has_its_own_error() {
    run(async {
        let (listener, port) = listener();
        drop(listener);
        let policy = policy(&EgressConfig::default());
        assert_eq!(connect_to(&["127.0.0.1"], port, &policy).await.unwrap_err(), DialError::Refused);
        assert_eq!(connect_to(&[], port, &policy).await.unwrap_err(), DialError::Dns(DnsError::NotFound));
    });
}

#[test]
fn a_name_without_response_is_an_error_of_dns() {
    run(async {
        let error = dial_to("missing.example:80", &policy(&EgressConfig::default())).await.0.unwrap_err();
        assert!(matches!(error, DialError::Dns(_)), "{error:?}");
    });
}

#[test]
fn a_denied_name_is_never_asked_of_dns() {
    run(async {
        let rule = EgressRule { host: Some("*.example".to_owned()), ..EgressRule::default() };
        let policy = policy(&EgressConfig { deny: vec![rule], ..EgressConfig::default() });
        let (outcome, resolver) = dial_to("secret.example:80", &policy).await;
        assert_eq!(outcome.unwrap_err(), DialError::Denied(Reason::Rule));
        assert_eq!(resolver.snapshot().lookups, 0);
    });
}

#[test]
fn denied_addresses_are_left_out() {
    run(async {
        let (listener, port) = listener();
        let policy = policy(&deny_net("127.0.0.2"));
        let dialed = connect_to(&["127.0.0.2", "127.0.0.1"], port, &policy).await.unwrap();
        assert_eq!(dialed.peer, listener.local_addr().unwrap());
        assert_eq!(
            connect_to(&["127.0.0.2"], port, &policy).await.unwrap_err(),
            DialError::Denied(Reason::Rule)
        );
        let metadata = connect_to(&["169.254.169.254", "::ffff:169.254.169.254"], port, &policy).await;
        assert_eq!(metadata.unwrap_err(), DialError::Denied(Reason::Metadata));
    });
}

#[test]
fn in_mode_report_the_connection_is_made_and_the_reason_kept() {
    run(async {
        let (_listener, port) = listener();
        let policy = policy(&EgressConfig { mode: EgressMode::Report, ..deny_net("127.0.0.0/8") });
        assert_eq!(connect_to(&["127.0.0.1"], port, &policy).await.unwrap().reported, Some(Reason::Rule));
        assert_eq!(
            dial_to(&format!("127.0.0.1:{port}"), &policy).await.0.unwrap().reported,
            Some(Reason::Rule)
        );
    });
}
