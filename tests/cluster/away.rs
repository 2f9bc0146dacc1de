//! The store cannot be reached when the gateways start: each quota's policy says what they do, `/readyz` says
//! that they wait, and once the store is there they share it.

use std::time::Duration;

use egret_tests::allowance::Allowance;
use egret_tests::counted::Counted;
use egret_tests::members::{Members, MembersConfig, target, until_lent};
use egret_tests::redis::{Flavor, RedisServer};
use egret_tests::timeline::{Timeline, pass};
use egret_tests::wait;

const MEMBERS: usize = 2;

#[test]
fn gateways_start_without_their_store() {
    let line = Timeline::new("no store at the start");
    let (mut store, provider) = (RedisServer::start(Flavor::Redis7), Counted::start());
    store.kill();
    let kept = Allowance::sliding(100);
    let config = MembersConfig::new(store.config())
        .cluster("members_expected: 4")
        .queues(std::slice::from_ref(&kept))
        .quota(
            "closed",
            "limit: 100, window: 1h, kind: token-bucket, on_store_error: closed",
            "limit: { quota: closed }",
        )
        .quota(
            "share",
            "limit: 40, window: 1h, kind: token-bucket, on_store_error: share",
            "limit: { quota: share }",
        )
        .quota(
            "open",
            "limit: 40, window: 1h, kind: token-bucket, on_store_error: open",
            "limit: { quota: open }",
        );
    let members = Members::start(&config, &provider, MEMBERS);
    let served = |quota: &str, tries: usize| {
        let gateway = members.gateway(0);
        let mut client = gateway.client();
        let responses =
            (0..tries).map(|_| client.get(gateway.address(), &target(0, quota)).response().status);
        responses.filter(|status| *status == 200).count()
    };
    let figures = [served("closed", 10), served("share", 50), served("open", 50)];
    line.say(format!("calls served: closed, share, open: {figures:?}"));
    assert_eq!(figures, [0, 10, 40]);

    wait::until_true("the gateway is ready without the store", || {
        let ready = members.gateway(0).control_get("/readyz");
        assert!(ready.text().contains("store"), "{ready:?}");
        ready.status == 200
    });
    line.say("ready without the store");
    let status = members.gateway(0).control_get("/api/v1/cluster").json();
    let policies = status["cluster"]["quotas"].as_array().unwrap().iter().map(|quota| {
        assert_eq!(quota["groups"][0]["hold"], 0, "{quota}");
        (quota["name"].as_str().unwrap(), quota["on_store_error"].as_str().unwrap())
    });
    assert!(policies.clone().all(|(name, policy)| name == policy || policy == "keep"), "{status}");
    assert!(policies.count() >= 3, "{status}");
    store.restart();
    let _clients = members.all_clients(std::slice::from_ref(&kept), 50);
    until_lent(&provider, std::slice::from_ref(&kept));
    line.say("lent");
    assert_eq!(members.gateway(0).control_get("/readyz").text(), "ready\n");
    pass(Duration::from_secs(3));
    kept.claim_kept(&provider, &line);
}
