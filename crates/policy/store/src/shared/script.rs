//! The allocator's script, by which Redis or Valkey notes who holds how many units. A call is written as keys
//! and arguments, and a reply is numbers between spaces.

use super::message::{AllocatorReply, Call, CallReply, GroupCall, GroupReply, View, WakeUpHint, WindowCall};
use super::terms::Terms;

/// The text of the script.
pub const CALL_SCRIPT: &str = include_str!("call.lua");

/// Number of texts in a reply before those of the groups.
const HEAD_WORDS: usize = 5;
/// Number of texts in a reply for each group.
const GROUP_WORDS: usize = 7;
/// The script computes with numbers of 53 bits, so no reply has greater ones.
const NUMBER_MAX: u64 = 1 << 53;
/// The script gets no units above this. It is above all limits.
const UNITS_MAX: u64 = 1_000_000_000_000_000;
/// The text of a group without a wake-up hint.
const NO_HINT: &str = "-";

/// The keys of a shard. They share a hash tag, so one server of a Redis Cluster has all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    prefix: String,
}

/// The keys and arguments of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptCall {
    /// The keys that the script touches.
    pub keys: Vec<Vec<u8>>,
    /// Its arguments.
    pub arguments: Vec<Vec<u8>>,
}

/// A number as a script reads it.
pub(crate) fn digits(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A reply that no such script gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store gave a reply that is not Egret's: another program may use its keys")]
pub struct ScriptReplyError;

impl Shard {
    /// The shard with this number of a cluster.
    pub fn new(cluster: &str, number: u64) -> Self {
        Self { prefix: format!("egret:{{{cluster}:{number}}}") }
    }

    /// The key with this name.
    pub(crate) fn key(&self, name: &str) -> Vec<u8> {
        format!("{}:{name}", self.prefix).into_bytes()
    }

    /// The key of the members.
    pub fn members(&self) -> Vec<u8> {
        self.key("m")
    }

    /// The key of a group.
    pub fn group(&self, group: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), b":q:", group].concat()
    }

    /// The key of the claim of a name with this digest.
    pub fn claim(&self, digest: u128) -> Vec<u8> {
        self.key(&format!("a:{digest:032x}"))
    }

    /// The channel of claims.
    pub fn claim_channel(&self) -> Vec<u8> {
        self.key("a")
    }

    /// The channel on which members are asked to call soon.
    pub fn channel(&self) -> Vec<u8> {
        format!("{}:p", self.prefix).into_bytes()
    }

    /// Reads a message of the [`channel`](Self::channel): the group, and the reason to call. Messages about
    /// the calls of `instance` itself, and those of others, give nothing.
    pub fn hint<'a>(&self, message: &'a [u8], instance: u64) -> Option<(&'a [u8], WakeUpHint)> {
        let mut words = message.splitn(3, |byte| *byte == b' ');
        let caller = words.next()?;
        let hint = hint(std::str::from_utf8(words.next()?).ok()?)?;
        let group = words.next()?.strip_prefix(self.group(b"").as_slice())?;
        (caller != instance.to_string().as_bytes()).then_some((group, hint))
    }

    /// Writes a call as the script reads it.
    pub fn call(&self, call: &Call, terms: &Terms) -> ScriptCall {
        let groups = &call.groups;
        let mut keys = vec![self.members()];
        keys.extend(groups.iter().map(|group| self.group(&group.key)));
        let mut arguments = vec![
            words(&[
                terms.ttl_ms,
                terms.renewal_ms,
                terms.gap_ms,
                terms.settle_time_ms,
                terms.recovery_ms,
                terms.fallback_ms,
                terms.turn_ms,
            ]),
            head(call),
            call.incarnation.as_bytes().to_vec(),
            call.name.as_bytes().to_vec(),
            self.channel(),
        ];
        arguments.extend(groups.iter().map(group));
        ScriptCall { keys, arguments }
    }
}

fn head(call: &Call) -> Vec<u8> {
    let Call { instance, generation, nonce, seq, view, divisor, leaves, clock, .. } = call;
    let mut numbers = vec![
        *instance,
        *generation,
        *nonce,
        *seq,
        view.member_count,
        view.lowest_divisor,
        *divisor,
        u64::from(*leaves),
    ];
    numbers.extend(clock.iter().flat_map(|clock| [clock.earliest_ms, clock.latest_ms]));
    words(&numbers)
}

fn group(call: &GroupCall) -> Vec<u8> {
    let GroupCall { generation, limit, cool_down_ms, has_fallback, has, want, used, report, window, .. } =
        call;
    let units = |units: u64| units.min(UNITS_MAX);
    let mut numbers = vec![*generation, units(*limit), *cool_down_ms, u64::from(*has_fallback)];
    numbers.extend([*has, *want, *used].map(units));
    // A report that ends at once says nothing.
    let (remaining, reset_in_ms) = report.map_or((0, 0), |report| (report.remaining, report.reset_in_ms));
    numbers.extend([units(remaining), reset_in_ms]);
    if let Some(WindowCall { begin_ms, end_ms, total, known, settled }) = *window {
        numbers.extend([begin_ms, end_ms, units(total), units(known), units(settled)]);
    }
    words(&numbers)
}

fn words(numbers: &[u64]) -> Vec<u8> {
    let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
    words.join(" ").into_bytes()
}

impl AllocatorReply {
    /// Reads the script's reply to a call about so many groups.
    pub fn from_script(reply: &[u8], groups: usize) -> Result<Self, ScriptReplyError> {
        if reply == b"stale" {
            return Ok(Self::Stale);
        }
        call_reply(reply, groups).map(Self::Applied).ok_or(ScriptReplyError)
    }
}

fn call_reply(reply: &[u8], groups: usize) -> Option<CallReply> {
    let count = groups.checked_mul(GROUP_WORDS)?.checked_add(HEAD_WORDS)?;
    let words: Vec<&str> = std::str::from_utf8(reply).ok()?.split(' ').take(count + 1).collect();
    if words.len() != count {
        return None;
    }
    let (head, rest) = words.split_at_checked(HEAD_WORDS)?;
    let number = |at: usize| counted(head[at]);
    let mut read = CallReply {
        time_ms: number(0)?,
        generation: head[1].parse().ok()?,
        view: View { member_count: number(2)?, lowest_divisor: number(3)? },
        divisor: number(4)?,
        groups: Vec::with_capacity(groups),
        hints: Vec::new(),
    };
    for (index, words) in rest.chunks_exact(GROUP_WORDS).enumerate() {
        let number = |at: usize| counted(words[at]);
        read.groups.push(GroupReply {
            hold: number(0)?,
            cap: if words[1] == "-" { u64::MAX } else { number(1)? },
            pool: words[2].parse().ok().filter(|pool: &i64| pool.unsigned_abs() <= NUMBER_MAX)?,
            recovery_ms: number(3)?,
            total: number(4)?,
            differs: number(5)? == 1,
        });
        if words[6] != NO_HINT {
            read.hints.push((index, hint(words[6])?));
        }
    }
    Some(read)
}

/// Reads a number. A greater one than the script's would be too much for sums.
fn counted(word: &str) -> Option<u64> {
    word.parse().ok().filter(|number| *number <= NUMBER_MAX)
}

fn hint(word: &str) -> Option<WakeUpHint> {
    match word {
        "s" => Some(WakeUpHint::Short),
        "f" => Some(WakeUpHint::Freed(None)),
        _ => Some(WakeUpHint::Freed(Some(word.strip_prefix('f')?.parse().ok()?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_the_numbers_of_the_call_and_of_each_group() {
        let AllocatorReply::Applied(reply) = AllocatorReply::from_script(
            b"1700000000000 18446744073709551615 8 8 8 12 - 3 0 0 0 - 1 12 -4 7 9 1 s",
            2,
        )
        .unwrap() else {
            panic!("stale")
        };
        assert_eq!((reply.generation, reply.view.member_count, reply.divisor), (u64::MAX, 8, 8));
        assert_eq!((reply.groups[0].hold, reply.groups[0].cap), (12, u64::MAX));
        assert_eq!((reply.groups[1].pool, reply.groups[1].differs), (-4, true));
        assert_eq!(reply.hints, [(1, WakeUpHint::Short)]);
        assert_eq!(AllocatorReply::from_script(b"stale", 2), Ok(AllocatorReply::Stale));
    }

    #[test]
    fn replies_of_other_scripts_are_refused() {
        for reply in ["", "OK", "1 2 3 4 5", "1 2 3 4 5 1 - 0 0 0 0 x", "1 2 3 4 5 -1 - 0 0 0 0 -"] {
            assert_eq!(AllocatorReply::from_script(reply.as_bytes(), 1), Err(ScriptReplyError), "{reply}");
        }
        assert!(AllocatorReply::from_script(b"1 2 3 4 5 1 - 0 0 0 0 - 1", 1).is_err());
        assert!(AllocatorReply::from_script(&[0xff], 1).is_err());
        for at in [0, 2, 3, 4, 5, 7, 8, 9] {
            let mut words = ["1", "2", "3", "4", "5", "1", "-", "0", "0", "0", "0", "-"];
            words[at] = "9007199254740993";
            assert_eq!(
                AllocatorReply::from_script(words.join(" ").as_bytes(), 1),
                Err(ScriptReplyError),
                "{words:?}"
            );
        }
    }

    #[test]
    fn a_hint_concerns_other_members_of_the_shard() {
        let shard = Shard::new("payments", 3);
        let message = b"7 f egret:{payments:3}:q:a b";
        assert_eq!(shard.hint(message, 8), Some((b"a b".as_slice(), WakeUpHint::Freed(None))));
        let message = b"7 f9 egret:{payments:3}:q:a b";
        assert_eq!(shard.hint(message, 8), Some((b"a b".as_slice(), WakeUpHint::Freed(Some(9)))));
        assert!(WakeUpHint::Freed(Some(9)).concerns(9) && !WakeUpHint::Freed(Some(9)).concerns(8));
        assert_eq!(shard.hint(message, 7), None);
        assert_eq!(Shard::new("payments", 4).hint(message, 8), None);
        assert_eq!(shard.hint(b"7 f", 8), None);
        assert_eq!(shard.hint(b"7 - egret:{payments:3}:q:a", 8), None);
    }
}
