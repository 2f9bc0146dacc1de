//! Tests of the list as readers see it.

use std::sync::Arc;
use std::thread;

use egret_config::Size;
use serde_json::{Value, json};

use super::*;
use crate::fixture::Archive;
use crate::observers::{HandOver, Record};
use crate::record::{Attempt, Routed};

const GET: &str = "GET https://one.example/users/7?token=s3cr3t\nauthorization: Bearer abcdef";

/// An open list, and exchanges for it.
struct Live {
    archive: Archive,
    traffic: Arc<Traffic>,
}

impl Live {
    fn new(config: TrafficConfig) -> Self {
        let archive = Archive::with(&json!([{ "har": { "export": "kept" } }]));
        let traffic = Arc::new(Traffic::new(config, 1));
        traffic.apply(&archive.diagnoses);
        traffic.set_open(true);
        Self { archive, traffic }
    }

    /// Returns a record for the list.
    fn record(&self, request: &str, response: &str) -> Record {
        let mut record = self.archive.record(request, response);
        record.watch(&self.traffic);
        record.set_flows(["f", "g"].into_iter());
        record.routed = Some(Routed { destination: "one https://one.example".into(), generation: 7 });
        record
    }

    fn see(&self, request: &str, response: &str) {
        self.record(request, response).show(&mut RecordReader::default());
    }

    fn list(&self, filter: &[(&str, &str)]) -> Vec<Value> {
        let filter = TrafficFilter::parse(filter.iter().copied()).unwrap();
        let mut out = b"[".to_vec();
        self.traffic.latest(u64::MAX, &filter, 100, usize::MAX, &mut out);
        out.push(b']');
        serde_json::from_slice(&out).unwrap()
    }

    fn lines(&self, from: u64) -> (Batch, usize) {
        let mut out = Vec::new();
        let batch = self.traffic.lines(from, &TrafficFilter::default(), usize::MAX, &mut out);
        (batch, out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count())
    }
}

#[test]
fn an_exchange_is_listed_without_its_secrets_and_archived_as_ever() {
    let live = Live::new(TrafficConfig::default());
    live.see(GET, "200\nContent-Type: application/json; charset=utf-8");
    let [exchange] = &live.list(&[])[..] else { panic!("one exchange") };
    let url = exchange["url"].as_str().unwrap();
    assert!(url.starts_with("https://one.example/users/7?token=egr_"), "{url}");
    for (member, expected) in [
        ("id", json!(1)),
        ("method", json!("GET")),
        ("flows", json!(["f", "g"])),
        ("status", json!(200)),
        ("answered_by", json!("provider")),
        ("error", json!(null)),
        ("duration_us", json!(5_100)),
        ("media_type", json!("application/json")),
        ("started", json!("1970-01-12T13:46:40.000000Z")),
    ] {
        assert_eq!(exchange[member], expected, "{member} of {exchange}");
    }
    let details = live.traffic.details(1, &|_, _| None).unwrap();
    let details: Value = serde_json::from_slice(&details).unwrap();
    assert_eq!((&details["id"], &details["phases"]["wait_us"]), (&json!(1), &json!(4_900)));
    let text = details.to_string();
    assert!(!text.contains("s3cr3t") && !text.contains("abcdef"), "{text}");
    assert!(live.traffic.details(2, &|_, _| None).is_none());
    assert_eq!(live.archive.entries().len(), 1);
}

#[test]
fn decisions_are_told_in_words_with_their_causes() {
    let live = Live::new(TrafficConfig::default());
    let mut record = live.record(GET, "200");
    record.set_remedies(
        "f/limit=wait, f/limit=next, f/retry-2=repeat, f/retry-2=repeat, g/cache=answer;report",
    );
    let failed = |status, error| Attempt { start_us: 1, end_us: 2, status, error, ..Attempt::default() };
    record.note_attempt(failed(503, None));
    record.note_attempt(failed(0, Some("connect-failed")));
    record.facts.attempts = 3;
    record.show(&mut RecordReader::default());
    let does = |flow: &str, remedy: &str| (remedy == "limit").then(|| format!("{flow} limits"));
    let details: Value = serde_json::from_slice(&live.traffic.details(1, &does).unwrap()).unwrap();
    let decisions = details["decisions"].as_array().unwrap();
    let text = |at: usize| decisions[at]["text"].as_str().unwrap();
    assert_eq!(decisions.len(), 5);
    assert_eq!(
        (text(0), text(1), &decisions[0]["does"]),
        ("held the request back", "had no effect", &json!("f limits"))
    );
    assert_eq!(text(2), "retried: status 503");
    assert_eq!(text(3), "retried: connect-failed");
    assert_eq!((&decisions[4]["report"], &decisions[4]["does"]), (&json!(true), &json!("")));
    assert_eq!(details["calls"].as_array().unwrap().len(), 3);
}

#[test]
fn filters_are_those_of_a_match_and_of_the_end() {
    let live = Live::new(TrafficConfig::default());
    live.see(GET, "200");
    live.see("POST https://two.example/orders\nx-egret-consumer: shop", "503");
    live.see("DELETE https://two.example/orders/7", "");
    let ids = |filter: &[(&str, &str)]| {
        live.list(filter).iter().map(|exchange| exchange["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), [3, 2, 1]);
    assert_eq!(ids(&[("method", "get,post")]), [2, 1]);
    assert_eq!(ids(&[("host", "*.example"), ("path", "/orders/*")]), [3, 2]);
    assert_eq!(ids(&[("status", "5xx,none")]), [3, 2]);
    assert_eq!(ids(&[("answered_by", "nobody")]), [3]);
    assert_eq!(ids(&[("consumer", "s*")]), [2]);
    assert_eq!(ids(&[("flow", "h,g"), ("provider", "one")]), [3, 2, 1]);
    assert_eq!((ids(&[("flow", "h")]), ids(&[("slower_than", "6ms")])), (vec![], vec![]));
    assert_eq!(ids(&[("slower_than", "5ms"), ("query.token", "*")]), [1]);
    assert_eq!((ids(&[("query.token", "s3*")]), ids(&[("header.authorization", "*abc*")])), (vec![], vec![]));
    assert_eq!(ids(&[("header.authorization", "Bearer egr_*")]), [1]);
}

#[test]
fn a_reader_that_is_late_learns_how_much_it_lost() {
    let live = Live::new(TrafficConfig { entries: 3, ..TrafficConfig::default() });
    assert_eq!(live.lines(live.traffic.next_id()), (Batch { next: 1, lost: 0, has_more: false }, 0));
    (0..5).for_each(|_| live.see(GET, "200"));
    assert_eq!(live.lines(1), (Batch { next: 6, lost: 2, has_more: false }, 3));
    assert_eq!(live.lines(0).0.lost, 2);
    assert_eq!(live.lines(5), (Batch { next: 6, lost: 0, has_more: false }, 1));
    let mut out = Vec::new();
    let batch = live.traffic.lines(3, &TrafficFilter::default(), 1, &mut out);
    assert_eq!((batch.next, batch.has_more), (4, true));
}

#[test]
fn a_closed_list_is_empty_and_takes_nothing() {
    let live = Live::new(TrafficConfig::default());
    live.see(GET, "200");
    assert!(live.traffic.set_open(false) && !live.traffic.set_open(false));
    live.see(GET, "200");
    let status = live.traffic.status();
    assert_eq!((status.open, status.entries, status.bytes, status.recorded), (false, 0, 0, 1));
    let off = Traffic::new(TrafficConfig { entries: 0, ..TrafficConfig::default() }, 1);
    assert!(!off.set_open(true) && !off.is_on());
}

#[test]
fn bodies_are_wanted_by_size_and_what_has_no_place_is_counted() {
    let live = Live::new(TrafficConfig { bodies: Size::from_bytes(10), ..TrafficConfig::default() });
    let mut record = live.record(GET, "200\nContent-Type: application/json");
    assert!(record.wants_bodies());
    assert_eq!((record.wanted_bytes(b"application/json"), record.wanted_bytes(b"image/png")), (10, 10));
    record.response_body.bytes.extend_from_slice(b"{\"a\":1,\"b\"");
    record.response_body.body_bytes = 14;
    record.show(&mut RecordReader::default());
    let details: Value = serde_json::from_slice(&live.traffic.details(1, &|_, _| None).unwrap()).unwrap();
    assert!(
        details["har"]["response"]["content"]["text"].as_str().unwrap().starts_with("{\"a\":1"),
        "{details}"
    );
    let before = live.traffic.status().bytes;
    let mut picture = live.record(GET, "200\nContent-Type: image/png");
    picture.response_body.bytes.resize(10_000, 0);
    picture.show(&mut RecordReader::default());
    assert!(live.traffic.status().bytes - before < 10_000, "a body that nobody can read is not kept");
    record.count(0, HandOver::Dropped);
    assert_eq!(live.traffic.status().missed, 1);
}

#[test]
fn readers_share_the_smallest_number_that_one_of_them_wants() {
    let live = Live::new(TrafficConfig::default());
    let (ten, two) = (live.traffic.reader(10), live.traffic.reader(2));
    assert_eq!(live.traffic.status().readers, 2);
    drop(two);
    assert_eq!(live.traffic.status().one_in, 10);
    drop(ten);
    assert_eq!(live.traffic.status().readers, 0);
}

/// Puts a request with this head and body together again.
fn resent(lines: &str, body: &[u8], body_bytes: u64) -> Result<Resend, NotResendable> {
    let live = Live::new(TrafficConfig::default());
    let mut record = live.record(lines, "200");
    record.request_body.bytes.extend_from_slice(body);
    record.request_body.body_bytes = body_bytes;
    record.show(&mut RecordReader::default());
    live.traffic.resend(1).unwrap()
}

#[test]
fn a_resent_request_keeps_secrets_without_connection_fields() {
    let lines = "POST https://one.example/users\nauthorization: Bearer abcdef\ncontent-type: application/json\n\
        content-length: 7\nconnection: x-hop, close\nx-hop: 1\nExpect: 100-continue\nx-kept: 2";
    let resend = resent(lines, br#"{"a":1}"#, 7).unwrap();
    assert_eq!(resend.risk(), ResendRisk::ActsAgain);
    let message = String::from_utf8(resend.message(ResendTarget::Received)).unwrap();
    assert_eq!(
        message,
        "POST / HTTP/1.1\r\nHost: one.example\r\nauthorization: Bearer abcdef\r\n\
         content-type: application/json\r\nx-kept: 2\r\ncontent-length: 7\r\nconnection: close\r\n\r\n{\"a\":1}"
    );
    let absolute = String::from_utf8(resend.message(ResendTarget::Absolute)).unwrap();
    assert!(absolute.starts_with("POST https://one.example/ HTTP/1.1\r\n"), "{absolute}");
    assert!(!format!("{resend:?}").contains("abcdef"));
    let bodiless = resent(GET, b"", 0).unwrap();
    assert_eq!(bodiless.risk(), ResendRisk::None);
    assert!(bodiless.message(ResendTarget::Received).ends_with(b"connection: close\r\n\r\n"));
}

#[test]
fn a_request_that_was_not_recorded_whole_is_not_sent_again() {
    let json = "POST https://one.example/users\ncontent-type: application/json\n";
    let not = |lines: &str, body: &[u8], body_bytes| resent(lines, body, body_bytes).unwrap_err();
    let sized = format!("{json}content-length: 5");
    assert_eq!(not(&sized, b"", 0), NotResendable::BodyNotReceived);
    assert_eq!(not(&sized, b"", 5), NotResendable::BodyNotKept);
    assert_eq!(not(&sized, b"1234", 5), NotResendable::BodyTooLong);
    assert_eq!(not(&format!("{json}transfer-encoding: chunked"), b"12345", 5), NotResendable::Chunked);
    let upgrade = "GET https://one.example/\nconnection: upgrade\nupgrade: websocket";
    assert_eq!(not(upgrade, b"", 0), NotResendable::Tunnel);
}

#[test]
fn only_the_exchange_with_that_number_is_marked() {
    let live = Live::new(TrafficConfig::default());
    live.see(GET, "200");
    let see = |number: Option<u64>| {
        let mut record = live.record(GET, "200");
        record.facts.resend = number;
        record.show(&mut RecordReader::default());
    };
    let resending = live.traffic.resending(1).unwrap();
    see(None);
    assert_eq!(resending.id(), None);
    see(Some(resending.number()));
    see(Some(resending.number()));
    assert_eq!(resending.id(), Some(3));
    let marks: Vec<_> = live.list(&[]).iter().map(|exchange| exchange["resent_of"].as_u64()).collect();
    assert_eq!(marks, [None, Some(1), None, None]);
    drop(resending);
    let all: Vec<_> = (0..40).filter_map(|_| live.traffic.resending(1)).collect();
    assert_eq!(all.len(), 32, "the number of those that are expected is bounded");
}

#[test]
fn the_number_of_a_resent_request_leads_to_its_entry() {
    let live = Live::new(TrafficConfig::default());
    for _ in 0..200 {
        let resending = live.traffic.resending(1).unwrap();
        let mut record = live.record(GET, "200");
        record.facts.resend = Some(resending.number());
        let traffic = Arc::clone(&live.traffic);
        let reader = thread::spawn(move || {
            loop {
                if let Some(id) = resending.id() {
                    return traffic.details(id, &|_, _| None).is_some();
                }
                thread::yield_now();
            }
        });
        record.show(&mut RecordReader::default());
        assert!(reader.join().unwrap());
    }
}

#[test]
fn a_resent_request_is_pinned_to_its_provider() {
    let pin = resent(GET, b"", 0).unwrap().pin(4);
    assert_eq!((&*pin.routed.destination, pin.routed.generation), ("one https://one.example", 7));
    assert_eq!(pin.number, 4);
    let live = Live::new(TrafficConfig::default());
    let mut record = live.record(GET, "404");
    record.routed = None;
    record.show(&mut RecordReader::default());
    assert_eq!(live.traffic.resend(1).unwrap().unwrap_err(), NotResendable::Unrouted);
}
