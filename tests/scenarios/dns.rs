//! Names: each is resolved once for all requests, cached for its TTL, and checked by its address.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Client, Response};
use egret_tests::provider::Provider;
use egret_tests::wait::{Watched, until, until_true};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn behind(names: &NameServer) -> Egret {
    Config::default().gateway(names.config()).start()
}

fn ask(egret: &Egret, host: &str, origin: &Provider) -> Response {
    egret.client().get(format!("{host}:{}", origin.address().port()), "/").response()
}

#[test]
fn an_answer_is_kept_as_long_as_its_ttl_says() {
    let origin = Provider::plain();
    let names = NameServer::start(|name| {
        Answer::Addresses(vec![HERE], if name == "short.example" { 1 } else { 3600 })
    });
    let egret = behind(&names);
    // A tunnel always opens a connection, even if there are idle ones.
    let tunnel = |host: &str| {
        let request = format!("CONNECT {host}:{} HTTP/1.1\r\nHost: a\r\n\r\n", origin.address().port());
        assert_eq!(egret.client().send(request).response_to("HEAD").status, 200);
    };
    for _ in 0..5 {
        tunnel("long.example");
        tunnel("short.example");
    }
    assert_eq!(names.queries("long.example"), 1);
    until_true("the short response is requested again", || {
        tunnel("short.example");
        names.queries("short.example") >= 2
    });
    assert_eq!(names.queries("long.example"), 1);
}

#[test]
fn many_who_ask_at_once_share_one_look_up() {
    let origin = Provider::plain();
    let released = Arc::new(Watched::<bool>::default());
    let waiting = Arc::clone(&released);
    let names = NameServer::start(move |_| {
        waiting.until("the look-up may end", |released| released.then_some(()));
        Answer::Addresses(vec![HERE], 60)
    });
    let egret = behind(&names);
    let mut clients: Vec<Client> = (0..30).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(format!("shared.example:{}", origin.address().port()), "/");
    }
    let others = clients.len() as u64 - 1;
    until_true("the others wait for the first one's look-up", || egret.stat("/dns/coalesced") == others);
    released.change(|released| *released = true);
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    assert_eq!(names.queries("shared.example"), 1);
}

#[test]
fn a_failure_is_kept_too() {
    let origin = Provider::plain();
    let names = NameServer::start(|_| Answer::NoSuchName);
    let egret = behind(&names);
    for _ in 0..10 {
        ask(&egret, "missing.example", &origin).assert_generated(502, "dns-failed");
    }
    assert!(names.queries("missing.example") <= 2, "asked {} times", names.queries("missing.example"));
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_name_server_that_is_silent_is_a_504() {
    let origin = Provider::plain();
    let names = NameServer::start(|_| Answer::Silence);
    let egret = Config::default().gateway(names.config_within("1s")).start();
    ask(&egret, "silent.example", &origin).assert_generated(504, "dns-timeout");
}

#[test]
fn the_next_address_is_tried_after_a_refusal() {
    let origin = Provider::plain();
    let dead = Ipv4Addr::new(127, 0, 0, 77);
    let names = NameServer::start(move |_| Answer::Addresses(vec![dead, HERE], 60));
    let egret = behind(&names);
    for _ in 0..3 {
        ask(&egret, "two.example", &origin).assert_forwarded(200);
    }
}

#[test]
fn a_name_that_leads_to_a_metadata_service_is_denied() {
    let names = NameServer::start(|_| Answer::Addresses(vec![Ipv4Addr::new(169, 254, 169, 254)], 60));
    let egret = behind(&names);
    egret
        .client()
        .get("innocent.example", "/latest/meta-data/")
        .response()
        .assert_generated(403, "egress-denied");
    assert_eq!(egret.denials("metadata"), 1);
}

#[test]
fn a_name_that_leads_to_the_control_port_is_denied() {
    let names = NameServer::start(|_| Answer::Addresses(vec![HERE], 60));
    let egret = behind(&names);
    let host = format!("innocent.example:{}", egret.control().port());
    egret.client().get(host, "/api/v1/config").response().assert_generated(403, "egress-denied");
}

#[test]
fn egress_judges_the_address_that_is_connected() {
    let (good, secret) = (Provider::plain(), Provider::plain());
    // First an allowed address, then a forbidden one: the pattern of a rebinding attack.
    let is_rebound = Arc::new(AtomicBool::new(false));
    let rebound = Arc::clone(&is_rebound);
    let names = NameServer::start(move |_| {
        let address = if rebound.load(SeqCst) { Ipv4Addr::new(127, 0, 0, 9) } else { HERE };
        Answer::Addresses(vec![address], 0)
    });
    let rules = "egress: { deny: [{ net: 127.0.0.9 }] }";
    let egret = Config::default().gateway(names.config()).gateway(rules).start();
    ask(&egret, "rebinding.example", &good).assert_forwarded(200);
    is_rebound.store(true, SeqCst);
    // Until the first response expires, connections use the address that was checked.
    let denied = until("the name is looked up again", || {
        let request =
            format!("CONNECT rebinding.example:{} HTTP/1.1\r\nHost: a\r\n\r\n", secret.address().port());
        let response = egret.client().send(request).response_to("HEAD");
        (response.status != 200).then_some(response)
    });
    assert_eq!((denied.status, denied.field("x-egret-error")), (403, Some("egress-denied")));
    assert!(names.queries("rebinding.example") >= 2);
}

#[test]
fn a_providers_scheme_holds_by_every_route() {
    let origin = Provider::plain();
    let names = NameServer::start(|_| Answer::Addresses(vec![HERE], 60));
    let port = origin.address().port();
    let config = Config::with_origin(format!("http://api.example:{port}")).gateway(names.config());
    let egret = config.start();
    egret.get("/a").assert_forwarded(200);
    ask(&egret, "api.example", &origin).assert_forwarded(200);
    ask(&egret, "API.Example.", &origin).assert_forwarded(200);
    let requests = ["pool_hits", "pool_steals", "connects"].map(|name| egret.provider_stat("origin", name));
    assert_eq!(requests.iter().sum::<u64>(), 3, "all come from the provider: {requests:?}");
}
