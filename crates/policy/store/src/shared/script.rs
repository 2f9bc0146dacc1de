//! The script by which Redis or Valkey does what the [`Book`](super::Book) does. A call is written as keys
//! and arguments, and a reply is numbers between spaces.

use std::fmt;

use super::message::{BookReply, Call, GroupCall, GroupReply, Press, Told, View, WindowCall};
use super::terms::Terms;

/// The text of the script.
pub const CALL_SCRIPT: &str = include_str!("call.lua");

/// Number of texts in a reply before those of the groups.
const HEAD_WORDS: usize = 5;
/// Number of texts in a reply for each group.
const GROUP_WORDS: usize = 7;
/// The script computes with numbers of 53 bits, so no reply has greater ones.
const NUMBER_MAX: u64 = 1 << 53;
/// No units above this are told to the script. It is above all limits.
const UNITS_MAX: u64 = 1_000_000_000_000_000;
/// The text of a group that no other member should call about.
const NO_PRESS: &str = "-";

/// The keys of a segment. They share a hash tag, so one server of a Redis Cluster has all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
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

/// A reply that no such script gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptReplyError;

impl fmt::Display for ScriptReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store gave a reply that is not Egret's: another program may use its keys")
    }
}

impl std::error::Error for ScriptReplyError {}

impl Segment {
    /// The segment with this number of a cluster.
    pub fn new(cluster: &str, number: u64) -> Self {
        Self { prefix: format!("egret:{{{cluster}:{number}}}") }
    }

    /// The key with this name.
    pub(super) fn key(&self, name: &str) -> Vec<u8> {
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

    /// The channel on which members are asked to call soon.
    pub fn channel(&self) -> Vec<u8> {
        format!("{}:p", self.prefix).into_bytes()
    }

    /// Reads a message of the [`channel`](Self::channel): the group, and the reason to call. Messages about
    /// the calls of `instance` itself, and those of others, give nothing.
    pub fn pressed<'a>(&self, message: &'a [u8], instance: u64) -> Option<(&'a [u8], Press)> {
        let mut words = message.splitn(3, |byte| *byte == b' ');
        let caller = words.next()?;
        let press = press(std::str::from_utf8(words.next()?).ok()?)?;
        let group = words.next()?.strip_prefix(self.group(b"").as_slice())?;
        (caller != instance.to_string().as_bytes()).then_some((group, press))
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
                terms.settle_ms,
                terms.learn_ms,
                terms.keep_ms,
                terms.turn_ms,
            ]),
            head(call),
            call.run.as_bytes().to_vec(),
            call.name.as_bytes().to_vec(),
            self.channel(),
        ];
        arguments.extend(groups.iter().map(group));
        ScriptCall { keys, arguments }
    }
}

fn head(call: &Call) -> Vec<u8> {
    let Call { instance, generation, nonce, seq, view, divisor, leaves, clock, .. } = call;
    let mut numbers =
        vec![*instance, *generation, *nonce, *seq, view.roster, view.low, *divisor, u64::from(*leaves)];
    numbers.extend(clock.iter().flat_map(|clock| [clock.earliest_ms, clock.latest_ms]));
    words(&numbers)
}

fn group(call: &GroupCall) -> Vec<u8> {
    let GroupCall { generation, limit, cool_ms, keeps, has, want, used, report, window, .. } = call;
    let units = |units: u64| units.min(UNITS_MAX);
    let mut numbers = vec![*generation, units(*limit), *cool_ms, u64::from(*keeps)];
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

impl BookReply {
    /// Reads the script's reply to a call about so many groups.
    pub fn from_script(reply: &[u8], groups: usize) -> Result<Self, ScriptReplyError> {
        if reply == b"stale" {
            return Ok(Self::Stale);
        }
        told(reply, groups).map(Self::Told).ok_or(ScriptReplyError)
    }
}

fn told(reply: &[u8], groups: usize) -> Option<Told> {
    let count = groups.checked_mul(GROUP_WORDS)?.checked_add(HEAD_WORDS)?;
    let words: Vec<&str> = std::str::from_utf8(reply).ok()?.split(' ').take(count + 1).collect();
    if words.len() != count {
        return None;
    }
    let (head, rest) = words.split_at_checked(HEAD_WORDS)?;
    let number = |at: usize| counted(head[at]);
    let mut told = Told {
        time_ms: number(0)?,
        generation: head[1].parse().ok()?,
        view: View { roster: number(2)?, low: number(3)? },
        divisor: number(4)?,
        groups: Vec::with_capacity(groups),
        pressed: Vec::new(),
    };
    for (index, words) in rest.chunks_exact(GROUP_WORDS).enumerate() {
        let number = |at: usize| counted(words[at]);
        told.groups.push(GroupReply {
            hold: number(0)?,
            cap: if words[1] == "-" { u64::MAX } else { number(1)? },
            pool: words[2].parse().ok().filter(|pool: &i64| pool.unsigned_abs() <= NUMBER_MAX)?,
            learning_ms: number(3)?,
            total: number(4)?,
            differs: number(5)? == 1,
        });
        if words[6] != NO_PRESS {
            told.pressed.push((index, press(words[6])?));
        }
    }
    Some(told)
}

/// Reads a number. A greater one than the script's would be too much for sums.
fn counted(word: &str) -> Option<u64> {
    word.parse().ok().filter(|number| *number <= NUMBER_MAX)
}

fn press(word: &str) -> Option<Press> {
    match word {
        "s" => Some(Press::Short),
        "f" => Some(Press::Freed(None)),
        _ => Some(Press::Freed(Some(word.strip_prefix('f')?.parse().ok()?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_the_numbers_of_the_call_and_of_each_group() {
        let BookReply::Told(told) = BookReply::from_script(
            b"1700000000000 18446744073709551615 8 8 8 12 - 3 0 0 0 - 1 12 -4 7 9 1 s",
            2,
        )
        .unwrap() else {
            panic!("stale")
        };
        assert_eq!((told.generation, told.view.roster, told.divisor), (u64::MAX, 8, 8));
        assert_eq!((told.groups[0].hold, told.groups[0].cap), (12, u64::MAX));
        assert_eq!((told.groups[1].pool, told.groups[1].differs), (-4, true));
        assert_eq!(told.pressed, [(1, Press::Short)]);
        assert_eq!(BookReply::from_script(b"stale", 2), Ok(BookReply::Stale));
    }

    #[test]
    fn replies_of_other_scripts_are_refused() {
        for reply in ["", "OK", "1 2 3 4 5", "1 2 3 4 5 1 - 0 0 0 0 x", "1 2 3 4 5 -1 - 0 0 0 0 -"] {
            assert_eq!(BookReply::from_script(reply.as_bytes(), 1), Err(ScriptReplyError), "{reply}");
        }
        assert!(BookReply::from_script(b"1 2 3 4 5 1 - 0 0 0 0 - 1", 1).is_err());
        assert!(BookReply::from_script(&[0xff], 1).is_err());
        for at in [0, 2, 3, 4, 5, 7, 8, 9] {
            let mut words = ["1", "2", "3", "4", "5", "1", "-", "0", "0", "0", "0", "-"];
            words[at] = "9007199254740993";
            assert_eq!(
                BookReply::from_script(words.join(" ").as_bytes(), 1),
                Err(ScriptReplyError),
                "{words:?}"
            );
        }
    }

    #[test]
    fn a_press_concerns_other_members_of_the_segment() {
        let segment = Segment::new("payments", 3);
        let message = b"7 f egret:{payments:3}:q:a b";
        assert_eq!(segment.pressed(message, 8), Some((b"a b".as_slice(), Press::Freed(None))));
        let message = b"7 f9 egret:{payments:3}:q:a b";
        assert_eq!(segment.pressed(message, 8), Some((b"a b".as_slice(), Press::Freed(Some(9)))));
        assert!(Press::Freed(Some(9)).concerns(9) && !Press::Freed(Some(9)).concerns(8));
        assert_eq!(segment.pressed(message, 7), None);
        assert_eq!(Segment::new("payments", 4).pressed(message, 8), None);
        assert_eq!(segment.pressed(b"7 f", 8), None);
        assert_eq!(segment.pressed(b"7 - egret:{payments:3}:q:a", 8), None);
    }
}
