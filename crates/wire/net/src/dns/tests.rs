//! Tests of the resolver's service with a fake look-up and a paused clock, and of its thread with a name
//! server on a socket.

use std::cell::Cell;
use std::net::SocketAddr;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::CNAME;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{advance, sleep};

use super::*;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// A look-up with predefined results and delays.
#[derive(Clone)]
struct Fake {
    calls: Rc<Cell<usize>>,
    under_way_max: Rc<Cell<usize>>,
    under_way: Rc<Cell<usize>>,
    delay: Duration,
    answer: Rc<RefCell<Result<Answer, DnsError>>>,
}

impl Fake {
    fn new(ttl_s: u64) -> Self {
        Self::of(Ok(Answer { addresses: vec![ADDRESS], ttl: Some(Duration::from_secs(ttl_s)) }))
    }

    fn of(answer: Result<Answer, DnsError>) -> Self {
        Self {
            calls: Rc::default(),
            under_way_max: Rc::default(),
            under_way: Rc::default(),
            delay: Duration::from_millis(10),
            answer: Rc::new(RefCell::new(answer)),
        }
    }
}

impl Lookup for Fake {
    fn lookup(&mut self, host: Arc<str>) -> impl Future<Output = Result<Answer, DnsError>> + 'static {
        let fake = self.clone();
        async move {
            fake.calls.set(fake.calls.get() + 1);
            fake.under_way.set(fake.under_way.get() + 1);
            fake.under_way_max.set(fake.under_way_max.get().max(fake.under_way.get()));
            sleep(fake.delay).await;
            fake.under_way.set(fake.under_way.get() - 1);
            assert_ne!(&*host, "panic.example", "the test expects a panic");
            fake.answer.borrow().clone()
        }
    }

    fn reconfigure(&mut self, _: &DnsConfig) {}
}

/// Returns a resolver whose service runs in this test's own runtime.
fn with(fake: &Fake, config: &DnsConfig) -> Resolver {
    let (resolver, receivers) = Resolver::new(config);
    tokio::task::spawn_local(serve(fake.clone(), receivers, resolver.counters.clone()));
    resolver
}

#[expect(clippy::unnecessary_wraps, reason = "used beside results that are errors")]
fn found() -> LookupOutcome {
    Ok([ADDRESS].into())
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_answer_is_kept_for_its_ttl() {
    let fake = Fake::new(60);
    let resolver = with(&fake, &DnsConfig::default());
    for _ in 0..3 {
        assert_eq!(resolver.resolve("a.example").await, found());
    }
    assert_eq!(fake.calls.get(), 1);
    advance(Duration::from_secs(59)).await;
    assert_eq!(resolver.resolve("a.example").await, found());
    assert_eq!(fake.calls.get(), 1);
    advance(Duration::from_secs(2)).await;
    assert_eq!(resolver.resolve("a.example").await, found());
    assert_eq!(fake.calls.get(), 2);
    let DnsSnapshot { lookups, hits, coalesced, failures, entries } = resolver.snapshot();
    assert_eq!((lookups, hits, coalesced, failures, entries), (5, 3, 0, 0, 1));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_ttl_is_held_between_its_bounds() {
    for (ttl_s, held_s) in [(Some(0), 1), (Some(100_000), 300), (None, 1)] {
        let ttl = ttl_s.map(Duration::from_secs);
        let fake = Fake::of(Ok(Answer { addresses: vec![ADDRESS], ttl }));
        let resolver = with(&fake, &DnsConfig::default());
        assert_eq!(resolver.resolve("a.example").await, found());
        advance(Duration::from_millis(held_s * 1_000 - 1)).await;
        assert_eq!(resolver.resolve("a.example").await, found());
        assert_eq!(fake.calls.get(), 1, "{ttl_s:?}");
        advance(Duration::from_millis(1)).await;
        assert_eq!(resolver.resolve("a.example").await, found());
        assert_eq!(fake.calls.get(), 2, "{ttl_s:?}");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_thousand_askers_share_one_look_up() {
    let fake = Fake::new(60);
    let resolver = with(&fake, &DnsConfig::default());
    let mut askers = JoinSet::new();
    for _ in 0..1_000 {
        let resolver = resolver.clone();
        askers.spawn_local(async move { resolver.resolve("a.example").await });
    }
    assert!(askers.join_all().await.into_iter().all(|outcome| outcome == found()));
    assert_eq!(fake.calls.get(), 1);
    assert_eq!(resolver.snapshot().coalesced, 999);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_asker_that_leaves_takes_nothing_from_the_others() {
    let fake = Fake::new(60);
    let resolver = with(&fake, &DnsConfig::default());
    let left = tokio::time::timeout(Duration::from_millis(5), resolver.resolve("a.example")).await;
    assert!(left.is_err());
    assert_eq!(resolver.resolve("a.example").await, found());
    assert_eq!(fake.calls.get(), 1);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_failure_is_kept_for_a_while() {
    for (answer, error) in [
        (Err(DnsError::NotFound), DnsError::NotFound),
        (Err(DnsError::Failed), DnsError::Failed),
        (Ok(Answer { addresses: vec![], ttl: Some(Duration::from_mins(1)) }), DnsError::NotFound),
    ] {
        let fake = Fake::of(answer);
        let resolver = with(&fake, &DnsConfig::default());
        assert_eq!(resolver.resolve("a.example").await, Err(error));
        assert_eq!(resolver.resolve("a.example").await, Err(error));
        assert_eq!((fake.calls.get(), resolver.snapshot().failures), (1, 2));
        *fake.answer.borrow_mut() = Ok(Answer { addresses: vec![ADDRESS], ttl: None });
        advance(Duration::from_secs(2)).await;
        assert_eq!(resolver.resolve("a.example").await, found());
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_look_up_ends_in_time() {
    let fake = Fake { delay: Duration::from_hours(1), ..Fake::new(60) };
    let resolver = with(&fake, &DnsConfig::default());
    let start = Instant::now();
    assert_eq!(resolver.resolve("a.example").await, Err(DnsError::Timeout));
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_look_up_that_panics_fails_and_the_service_goes_on() {
    let resolver = with(&Fake::new(60), &DnsConfig::default());
    assert_eq!(resolver.resolve("panic.example").await, Err(DnsError::Failed));
    assert_eq!(resolver.resolve("a.example").await, found());
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn concurrent_and_queued_look_ups_are_bounded() {
    let fake = Fake::new(60);
    let resolver = with(&fake, &DnsConfig::default());
    let mut askers = JoinSet::new();
    let room = LOOKUPS_MAX + QUEUE_MAX;
    for index in 0..room + 100 {
        let resolver = resolver.clone();
        askers.spawn_local(async move { resolver.resolve(&format!("{index}.example")).await });
    }
    let outcomes = askers.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == found()).count(), room);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Err(DnsError::Busy)).count(), 100);
    assert_eq!((fake.under_way_max.get(), fake.calls.get()), (LOOKUPS_MAX, room));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_channel_that_is_full_turns_askers_away() {
    let (resolver, receivers) = Resolver::new(&DnsConfig::default());
    let mut askers = JoinSet::new();
    for _ in 0..=CHANNEL_MAX {
        let resolver = resolver.clone();
        askers.spawn_local(async move { resolver.resolve("a.example").await });
    }
    assert_eq!(askers.join_next().await.unwrap().unwrap(), Err(DnsError::Busy));
    assert_eq!((resolver.snapshot().lookups, resolver.snapshot().failures), (1, 1));
    drop(receivers);
    assert_eq!(askers.join_next().await.unwrap().unwrap(), Err(DnsError::Stopped));
    assert_eq!(resolver.resolve("a.example").await, Err(DnsError::Stopped));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_cache_is_bounded_and_outlives_a_reload() {
    let fake = Fake::new(60);
    let config = DnsConfig { entries: 4, ..DnsConfig::default() };
    let resolver = with(&fake, &config);
    for index in 0..10 {
        assert_eq!(resolver.resolve(&format!("{index}.example")).await, found());
    }
    assert_eq!(resolver.snapshot().entries, 4);
    resolver.reconfigure(&DnsConfig { entries: 2, ..config });
    assert_eq!(resolver.resolve("9.example").await, found());
    assert_eq!((fake.calls.get(), resolver.snapshot().entries), (10, 2));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn addresses_and_localhost_ask_nobody() {
    let fake = Fake::new(60);
    let resolver = with(&fake, &DnsConfig::default());
    assert_eq!(resolver.resolve("192.0.2.7").await, Ok([[192, 0, 2, 7].into()].into()));
    assert_eq!(resolver.resolve("2001:db8::1").await, Ok(["2001:db8::1".parse().unwrap()].into()));
    for host in ["localhost", "app.localhost"] {
        let addresses = resolver.resolve(host).await.unwrap();
        assert!(addresses.len() == 2 && addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    }
    assert_eq!((fake.calls.get(), resolver.snapshot().lookups), (0, 0));
}

/// Runs a name server for a few names. It never responds to IPv6 queries for `silent.example`.
async fn name_server(socket: UdpSocket, queries: Arc<Semaphore>) {
    let mut buffer = [0; 512];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
        let query = Message::from_vec(&buffer[..length]).unwrap();
        let question = query.queries[0].clone();
        queries.add_permits(1);
        let name = question.name().to_ascii();
        let mut answer = Message::response(query.metadata.id, query.metadata.op_code);
        answer.metadata.recursion_available = true;
        answer.add_query(question.clone());
        let data: Option<RData> = match (name.trim_end_matches('.'), question.query_type()) {
            ("both.example" | "silent.example", RecordType::A) => Some(RData::from(ADDRESS)),
            ("both.example", RecordType::AAAA) => Some(RData::from("2001:db8::1".parse::<IpAddr>().unwrap())),
            ("silent.example", RecordType::AAAA) => continue,
            ("alias.example", _) => {
                let target = "target.example.".parse().unwrap();
                answer.add_answer(Record::from_rdata(
                    question.name().clone(),
                    7,
                    RData::CNAME(CNAME(target)),
                ));
                answer.add_answer(Record::from_rdata(
                    "target.example.".parse().unwrap(),
                    60,
                    RData::from(ADDRESS),
                ));
                None
            }
            ("broken.example", _) => {
                answer.metadata.response_code = ResponseCode::ServFail;
                None
            }
            _ => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                None
            }
        };
        answer.add_answers(data.map(|data| Record::from_rdata(question.name().clone(), 60, data)));
        socket.send_to(&answer.to_vec().unwrap(), peer).await.unwrap();
    }
}

#[tokio::test(flavor = "local")]
async fn name_servers_are_asked_for_both_families_once() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server: SocketAddr = socket.local_addr().unwrap();
    let queries = Arc::new(Semaphore::new(0));
    tokio::task::spawn_local(name_server(socket, queries.clone()));
    let config = DnsConfig { servers: vec![server], ..DnsConfig::default() };

    // On a busy machine a query is repeated, and the second family is too late. Such a run shows nothing.
    let both: LookupOutcome = Ok(["2001:db8::1".parse().unwrap(), ADDRESS].into());
    let mut runs = 0..20;
    let resolver = loop {
        assert!(runs.next().is_some(), "two queries never found both families");
        let resolver = Resolver::start(&config).unwrap();
        let before = queries.available_permits();
        // The second time the result comes from the cache.
        let found = [resolver.resolve("both.example").await, resolver.resolve("both.example").await];
        if found == [both.clone(), both.clone()] && queries.available_permits() == before + 2 {
            break resolver;
        }
    };

    assert_eq!(resolver.resolve("missing.example").await, Err(DnsError::NotFound));
    assert_eq!(resolver.resolve("broken.example").await, Err(DnsError::Failed));
    assert_eq!(resolver.snapshot().entries, 3);

    // The look-up of the family that does not answer takes longer than this test may.
    let config = DnsConfig {
        servers: vec![server],
        timeout: egret_config::Duration::from_secs(3_600),
        ..DnsConfig::default()
    };
    let patient = Resolver::start(&config).unwrap();
    let found_one = tokio::time::timeout(Duration::from_mins(1), patient.resolve("silent.example")).await;
    assert_eq!(found_one, Ok(found()), "the family that answers is not kept waiting");
}

#[tokio::test(flavor = "local")]
async fn an_alias_holds_no_longer_than_the_way_to_it() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let servers = vec![socket.local_addr().unwrap()];
    tokio::task::spawn_local(name_server(socket, Arc::new(Semaphore::new(0))));
    let mut lookup = SystemLookup::new(&DnsConfig { servers, ..DnsConfig::default() });
    let answer = lookup.lookup("alias.example".into()).await.unwrap();
    assert_eq!((answer.addresses, answer.ttl), (vec![ADDRESS], Some(Duration::from_secs(7))));
}

#[tokio::test(flavor = "local")]
async fn a_name_server_that_is_silent_does_not_keep_from_the_next() {
    let (silent, socket) =
        (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let servers = vec![silent.local_addr().unwrap(), socket.local_addr().unwrap()];
    tokio::task::spawn_local(name_server(socket, Arc::new(Semaphore::new(0))));
    let resolver = Resolver::start(&DnsConfig { servers, ..DnsConfig::default() }).unwrap();
    // The two families may be asked at different times, and the second is not waited for.
    assert!(resolver.resolve("both.example").await.is_ok());
}

#[tokio::test(flavor = "local")]
async fn a_reload_changes_who_is_asked() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let servers = vec![socket.local_addr().unwrap()];
    tokio::task::spawn_local(name_server(socket, Arc::new(Semaphore::new(0))));
    let timeout = egret_config::Duration::from_millis(50);
    let before = DnsConfig { servers: vec![([127, 0, 0, 1], 1).into()], timeout, ..DnsConfig::default() };
    let resolver = Resolver::start(&before).unwrap();
    assert!(resolver.resolve("unheard.example").await.is_err());
    resolver.reconfigure(&DnsConfig { servers, ..DnsConfig::default() });
    assert!(resolver.resolve("both.example").await.is_ok());
}

#[tokio::test(flavor = "local")]
async fn the_system_is_asked_when_the_config_says_so() {
    let resolver =
        Resolver::start(&DnsConfig { resolver: crate::config::Resolver::System, ..DnsConfig::default() })
            .unwrap();
    // Besides localhost, this machine's name is the one that every system is most likely to resolve.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let expected = tokio::net::lookup_host((host.trim(), 0)).await.is_ok_and(|found| found.count() > 0);
    assert_eq!(resolver.resolve(host.trim()).await.is_ok(), expected);
}
