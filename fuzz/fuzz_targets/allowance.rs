//! Fuzzes rate-limit fields of a provider: points in time, and the remaining allowance.
#![no_main]

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use egret_clock::{Timestamp, retry_after};
use egret_quota::{LearnConfig, QuotaConfig, Quotas, Stores};

const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);
const LIMIT: u64 = 1_000_000;

static HOUR: AtomicU64 = AtomicU64::new(0);
static QUOTAS: LazyLock<Quotas> = LazyLock::new(|| {
    let quota = QuotaConfig { limit: LIMIT, learn: Some(LearnConfig::default()), ..QuotaConfig::default() };
    let quotas = BTreeMap::from([("q".to_owned(), quota)]);
    Quotas::compile(&quotas, None, Stores::default(), &[], &mut Vec::new())
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert!(retry_after::read(bytes, NOW).is_none_or(|time| time >= NOW));

    // Each line is the value of one field, in this order.
    let names: [&[u8]; 5] =
        [b"ratelimit", b"ratelimit-remaining", b"x-ratelimit-remaining", b"x-ratelimit-reset", b"retry-after"];
    let fields = names.into_iter().zip(bytes.split(|byte| *byte == b'\n'));
    let quota = QUOTAS.get("q").expect("it is configured");
    // Two hours later, earlier limits and used units have expired.
    let now = NOW + Duration::from_hours(HOUR.fetch_add(2, Ordering::Relaxed));
    let mut grant = quota.take(now, &[], 1).expect("nothing that was said holds for more than an hour");
    grant.responded(now);
    grant.learn(now, quota, 429, &fields, || None);
    let status = quota.status(now, &[]).expect("it has no groups");
    assert!(status.remaining < LIMIT);
});
