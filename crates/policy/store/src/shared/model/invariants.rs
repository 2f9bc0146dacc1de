//! The inequalities at the top of `call.lua`, checked against the state that a call leaves.

use std::collections::BTreeMap;

use egret_fake_redis::{Hash, Keys};

use crate::shared::{Call, CallReply, GroupCall, GroupReply, Terms};

/// A member, as the state has it.
struct Row<'a> {
    state: &'a str,
    ends_ms: u64,
    divisor: u64,
    joined_ms: u64,
}

/// The units of a member in a group.
struct Holder {
    hold: u64,
    limit: u64,
    called_ms: u64,
}

type Rows<'a> = BTreeMap<&'a [u8], Row<'a>>;

/// Returns the first inequality that does not hold. `names` are those of the call's keys.
pub fn check(
    keys: &Keys,
    names: &[Vec<u8>],
    call: &Call,
    reply: &CallReply,
    terms: &Terms,
) -> Result<(), String> {
    if let Some((key, _)) = keys.iter().find(|(_, hash)| hash.ends_ms.is_none()) {
        return Err(format!("{} has no end", key.escape_ascii()));
    }
    let shard = &keys[&names[0]];
    let rows: Rows<'_> = entries(shard).map(|(member, text)| (member, row(text))).collect();
    check_members(shard, &rows, reply)?;
    for ((name, group), units) in names[1..].iter().zip(&call.groups).zip(&reply.groups) {
        // A call about another window than the present one leaves no trace.
        let is_void = group.window.is_some_and(|window| {
            reply.time_ms < window.begin_ms || window.end_ms <= reply.time_ms || units.hold < group.has
        });
        if !is_void {
            check_group(&keys[name], &rows, group, units, reply.time_ms, terms)?;
        }
    }
    Ok(())
}

fn check_members(shard: &Hash, rows: &Rows<'_>, reply: &CallReply) -> Result<(), String> {
    let [begun_ms, last_ms] = numbers(text(&shard.fields[b":".as_slice()]), 1);
    rule(begun_ms <= last_ms, "begun <= last")?;
    rule(reply.view.lowest_divisor <= reply.view.member_count, "lowest divisor <= member count")?;
    for row in rows.values() {
        // A clock that was set back begins a generation, in which the times of an earlier one mean nothing.
        rule(row.state == "e" || row.joined_ms <= last_ms, "joined <= last")?;
        let is_divided = row.state == "j" && row.divisor > 0;
        rule(!is_divided || reply.view.lowest_divisor <= row.divisor, "lowest divisor <= divisor")?;
    }
    Ok(())
}

fn check_group(
    state: &Hash,
    rows: &Rows<'_>,
    group: &GroupCall,
    reply: &GroupReply,
    now_ms: u64,
    terms: &Terms,
) -> Result<(), String> {
    let [_, cool_down_ms] = numbers(text(&state.fields[b":".as_slice()]), 1);
    let (mut held, mut gone, mut limit) = (0, 0, u64::MAX);
    for (member, text) in entries(state) {
        let holder = holder(text);
        let Some(row) = rows.get(member) else { return Err("a holder is no member".to_owned()) };
        rule(row.joined_ms <= holder.called_ms, "joined <= called")?;
        let settle_time_ms = if row.state == "l" { 0 } else { terms.settle_time_ms };
        if matches!(row.state, "j" | "s") && now_ms < row.ends_ms {
            held += holder.hold;
            limit = limit.min(holder.limit);
        } else if now_ms < row.ends_ms + settle_time_ms + cool_down_ms {
            gone += holder.hold;
        }
    }
    let is_lent = reply.hold > group.has;
    rule(!is_lent || reply.pool >= 0, "0 <= pool, if units are lent")?;
    rule(!is_lent || reply.recovery_ms == 0, "hold == has, while it recovers")?;
    rule(reply.hold >= group.has, "has <= hold")?;
    if group.window.is_some() {
        // The caller's limit counts even if it leaves.
        return sum([reply.total], reply.pool, limit.min(group.limit), "total + pool <= limit");
    }
    let limit = if limit == u64::MAX { 0 } else { limit };
    sum([held, gone], reply.pool, limit, "held + gone + pool <= limit")
}

fn sum<const N: usize>(units: [u64; N], pool: i64, limit: u64, name: &str) -> Result<(), String> {
    let sum = units.iter().sum::<u64>().cast_signed() + pool;
    rule(sum <= limit.cast_signed(), &format!("{name}: {units:?} + {pool} <= {limit}"))
}

fn rule(holds: bool, name: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("not true: {name}")) }
}

/// The fields of members.
fn entries(hash: &Hash) -> impl Iterator<Item = (&[u8], &str)> {
    let members = hash.fields.iter().filter(|(field, _)| *field != b":");
    members.map(|(field, value)| (field.as_slice(), text(value)))
}

fn row(text: &str) -> Row<'_> {
    let [_, ends_ms, _, _, divisor, joined_ms] = numbers(text, 1);
    Row { state: text.split(' ').next().unwrap(), ends_ms, divisor, joined_ms }
}

fn holder(text: &str) -> Holder {
    let [hold, _, limit, _, _, _, called_ms] = numbers(text, 0);
    Holder { hold, limit, called_ms }
}

/// The numbers of a text after so many words.
fn numbers<const N: usize>(text: &str, skipped: usize) -> [u64; N] {
    let mut words = text.split(' ').skip(skipped);
    std::array::from_fn(|_| words.next().unwrap().parse().unwrap())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
