//! Tests of shared quotas with groups, shares and parents.

use proptest::prelude::*;

use super::*;

fn grouped(limit: u64) -> QuotaConfig {
    QuotaConfig { group_by: Some(GroupBy::Consumer), ..sliding(limit) }
}

#[test]
fn a_long_name_is_one_group_in_all_gateways() {
    let mut cluster = Cluster::start(2, &grouped(10));
    cluster.pass(LEARNED_MS);
    let (name, other) = (vec![b'a'; 500], vec![b'b'; 500]);
    cluster.lend(0, &[&name], 10);
    let grants: Vec<Grant> = (0..10).map(|_| cluster.take(0, &name).unwrap()).collect();
    cluster.pass(3_000);
    assert!(cluster.take(1, &name).is_err());
    cluster.lend(1, &[&other], 10);
    drop(grants);
    cluster.lend(1, &[&name], 10);
}

#[test]
fn groups_beyond_the_maximum_share_one_allowance_in_all_gateways() {
    let config = QuotaConfig { groups_max: 1, ..grouped(10) };
    let mut cluster = Cluster::start(2, &config);
    cluster.pass(LEARNED_MS);
    let mut first = Vec::new();
    for gateway in 0..2 {
        cluster.lend(gateway, &[b"first"], 1);
        first.push(cluster.take(gateway, b"first").unwrap());
    }
    cluster.lend(0, &[b"second"], 10);
    let grants: Vec<Grant> = (0..10).map(|_| cluster.take(0, b"second").unwrap()).collect();
    cluster.pass(3_000);
    assert!(cluster.take(1, b"third").is_err());
    drop(grants);
    cluster.lend(1, &[b"third"], 10);
}

#[derive(Debug, Clone)]
enum Op {
    Take { gateway: usize, group: usize, units: u64 },
    Respond(usize),
    Settle(usize, u64),
    Cancel(usize),
    Drop(usize),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..2_usize, 0..3_usize, 1..4_u64)
            .prop_map(|(gateway, group, units)| Op::Take { gateway, group, units }),
        2 => (0..20_usize).prop_map(Op::Respond),
        1 => (0..20_usize, 0..6_u64).prop_map(|(at, units)| Op::Settle(at, units)),
        1 => (0..20_usize).prop_map(Op::Cancel),
        1 => (0..20_usize).prop_map(Op::Drop),
        2 => (1..700_u64).prop_map(Op::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_call_draws_from_all_or_none_and_all_units_come_back(
        ops in prop::collection::vec(op(), 1..120),
        has_shares: bool,
        kind in prop::sample::select(vec![QuotaKind::Sliding, QuotaKind::Fixed, QuotaKind::TokenBucket]),
    ) {
        const GROUPS: [&[u8]; 3] = [b"gold", b"tin", b"zinc"];
        let shares: SharesConfig =
            serde_json::from_value(serde_json::json!({ "groups": { "gold": "50%" }, "default": "allow" })).unwrap();
        let parent = QuotaConfig { limit: 24, kind, ..sliding(24) };
        let child = QuotaConfig {
            parent: Some("parent".to_owned()),
            shares: has_shares.then_some(shares),
            kind,
            ..grouped(16)
        };
        let configs = [("q".to_owned(), child), ("parent".to_owned(), parent)].into();
        let mut cluster = Cluster::with(2, &configs);
        cluster.pass(LEARNED_MS);
        let used = |cluster: &Cluster, gateway: usize, name: &str| -> u64 {
            let quota = cluster.gateways[gateway].quotas.get(name).unwrap();
            let groups = quota.snapshot(cluster.wall(), 10).groups;
            groups.iter().filter(|group| group.name != "(rest)").map(|group| group.used).sum()
        };
        let mut grants: Vec<Grant> = Vec::new();
        for op in ops {
            let wall = cluster.wall();
            match op {
                Op::Take { gateway, group, units } => {
                    let before = [used(&cluster, gateway, "q"), used(&cluster, gateway, "parent")];
                    let taken = cluster.quota(gateway).take(wall, &[GROUPS[group]], units);
                    let more = if taken.is_ok() { units } else { 0 };
                    let after = [used(&cluster, gateway, "q"), used(&cluster, gateway, "parent")];
                    // The child does not show the groups that share the rest, only the rest as a whole.
                    let in_child = if has_shares && group > 0 { 0 } else { more };
                    prop_assert_eq!(after, [before[0] + in_child, before[1] + more]);
                    grants.extend(taken);
                }
                Op::Respond(at) => if let Some(grant) = grants.get_mut(at) { grant.responded(wall) },
                Op::Settle(at, units) => if let Some(grant) = grants.get_mut(at) { grant.settle(wall, units) },
                Op::Cancel(at) => if at < grants.len() { grants.swap_remove(at).cancel(wall) },
                Op::Drop(at) => if at < grants.len() { drop(grants.swap_remove(at)) },
                Op::Pass(ms) => cluster.pass(ms),
            }
        }
        drop(grants);
        cluster.pass(6_000);
        for gateway in 0..2 {
            for name in ["q", "parent"] {
                let quota = cluster.gateways[gateway].quotas.get(name).unwrap();
                for group in quota.snapshot(cluster.wall(), 10).groups {
                    prop_assert_eq!(group.used, 0, "{} of {}", group.name, name);
                }
            }
        }
        // Nothing has leaked: one gateway is granted the whole limit of a group.
        cluster.lend(0, &[b"gold"], if has_shares { 8 } else { 16 });
    }
}
