//! Tests of long windows, whose units the store lends in blocks.

use super::*;

fn minute(limit: u64) -> QuotaConfig {
    QuotaConfig {
        limit,
        kind: QuotaKind::Fixed,
        window: Some(egret_config::Duration::from_secs(60)),
        store: StoreKind::Redis,
        ..QuotaConfig::default()
    }
}

fn day(limit: u64) -> QuotaConfig {
    QuotaConfig { kind: QuotaKind::Calendar, window: None, period: Some(Period::Day), ..minute(limit) }
}

impl Cluster {
    /// Passes to the begin of the next minute, and a little further.
    fn pass_to_minute(&mut self) {
        let into_ms = (START_MS + self.now_ms()) % 60_000;
        self.pass(60_000 - into_ms + 10);
    }

    /// Takes units as long as there are any, in each millisecond of a time.
    fn take_all(&mut self, gateway: usize, ms: u64) -> Vec<Grant> {
        let mut grants = Vec::new();
        for _ in 0..ms {
            self.step();
            while let Ok(grant) = self.take(gateway, b"") {
                grants.push(grant);
            }
        }
        grants
    }
}

/// Ends calls: each has its response now.
fn respond(grants: Vec<Grant>, cluster: &Cluster) -> usize {
    let count = grants.len();
    for mut grant in grants {
        grant.responded(cluster.wall());
    }
    count
}

#[test]
fn gateways_use_all_of_a_window_and_nothing_above_it() {
    for config in [minute(1_000), day(1_000)] {
        let mut cluster = Cluster::start(3, &config);
        cluster.pass(LEARNED_MS);
        if config.kind == QuotaKind::Fixed {
            cluster.pass_to_minute();
        }
        let (served, _) = cluster.load(40_000);
        let used: u64 = served.iter().sum();
        assert!((990..=1_000).contains(&used), "{:?}: {served:?}", config.kind);
        assert!(served.iter().all(|&served| served > 200), "{:?}: {served:?}", config.kind);
        if config.kind == QuotaKind::Fixed {
            cluster.pass_to_minute();
            let (served, _) = cluster.load(40_000);
            assert!((980..=1_000).contains(&served.iter().sum::<u64>()), "{served:?}");
        }
    }
}

#[test]
fn without_the_store_lent_units_and_policy_apply() {
    for (policy, max) in [
        (OnStoreError::Keep, 10),
        (OnStoreError::Closed, 10),
        (OnStoreError::Share, 400),
        (OnStoreError::Open, 900),
    ] {
        let mut cluster = Cluster::start(2, &QuotaConfig { on_store_error: Some(policy), ..day(1_000) });
        cluster.pass(LEARNED_MS);
        cluster.pass(2_000);
        // It uses a hundred units, and one of a block that has more.
        let mut grants = Vec::new();
        for _ in 0..2_000 {
            cluster.step();
            if grants.len() < 100 {
                grants.extend(cluster.take(0, b""));
            }
        }
        assert_eq!(respond(grants, &cluster), 100);
        grants = cluster.take_all(0, 100);
        assert!(!grants.is_empty());
        let before = 100 + respond(grants, &cluster);
        cluster.is_store_away = true;
        let grants = cluster.take_all(0, 5_000);
        let after = respond(grants, &cluster);
        let least = if max > 10 { max - 50 } else { 0 };
        assert!((least..=max).contains(&after), "{policy:?}: {before}, {after}");
        assert_eq!(cluster.take(0, b"").unwrap_err().why == Why::StoreDown, policy != OnStoreError::Open);
        // The store hears what was used alone when it is back, and the others use no more than the rest.
        cluster.is_store_away = false;
        cluster.pass(3_000);
        let grants = cluster.take_all(1, 20_000);
        let used = before + after + respond(grants, &cluster);
        assert!((980..=1_000).contains(&used), "{policy:?}: {used}");
    }
}

#[test]
fn the_settled_cost_of_a_call_is_shared() {
    let mut cluster = Cluster::start(2, &day(100));
    cluster.pass(LEARNED_MS);
    let take_one = |cluster: &mut Cluster| loop {
        cluster.step();
        if let Ok(grant) = cluster.take(0, b"") {
            break grant;
        }
    };
    let mut dear = take_one(&mut cluster);
    dear.settle(cluster.wall(), 60);
    let mut cheap = take_one(&mut cluster);
    cheap.settle(cluster.wall(), 0);
    take_one(&mut cluster).cancel(cluster.wall());
    cluster.pass(5_000);
    let grants = cluster.take_all(1, 10_000);
    assert!((38..=40).contains(&respond(grants, &cluster)));
}

#[test]
fn calls_in_transit_count_in_the_next_window_too() {
    let mut cluster = Cluster::start(2, &minute(100));
    cluster.pass(LEARNED_MS);
    cluster.pass_to_minute();
    cluster.pass(50_000);
    let in_transit: Vec<Grant> = cluster.take_all(0, 5_000).into_iter().take(30).collect();
    assert_eq!(in_transit.len(), 30);
    cluster.pass_to_minute();
    let grants = cluster.take_all(1, 40_000);
    assert!((60..=70).contains(&respond(grants, &cluster)));
    drop(in_transit);
}

#[test]
fn unused_units_go_back_and_a_dropped_group_tells_what_was_used() {
    let mut cluster = Cluster::start(2, &day(1_000));
    cluster.pass(LEARNED_MS);
    let grants = cluster.take_all(0, 1_000);
    let used = respond(grants, &cluster) as u64;
    assert!(used > 0);
    cluster.pass(5_000);
    assert_eq!(cluster.shared(0).hold, used);
    let gateway = &mut cluster.gateways[0];
    gateway.quotas = Quotas::default();
    cluster.pass(3_000);
    let grants = cluster.take_all(1, 20_000);
    let both = used + respond(grants, &cluster) as u64;
    assert!((990..=1_000).contains(&both), "{both}");
}
