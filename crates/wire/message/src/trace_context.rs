//! Trace Context (W3C Recommendation, level 1): `traceparent`, and the span ids that Egret creates.
//!
//! All ids of an exchange derive from one random number. So the remedy that edits the request and the
//! diagnosis that records the exchange need to share only that number.

use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use data_encoding::HEXLOWER;
use egret_clock::mixed;

/// Length of a `traceparent` of version 00; later versions may be longer.
const LEN: usize = 55;
/// Flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// A parsed `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace id; not all zeros.
    pub trace_id: [u8; 16],
    /// The id of the span that made the request; not all zeros.
    pub parent_id: [u8; 8],
    /// `true` if the caller may have recorded the trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Parses the value of a field; `None` if the recipient must start a new trace (§3.2.2.5, §4.3).
    pub fn read(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(LEN)?;
        let [v, w, b'-', ..] = known else { return None };
        let version = [*v, *w];
        let is_version = version.iter().all(u8::is_ascii_hexdigit) && &version != b"ff";
        // Later versions may have more parts after a dash.
        let ends_well = rest.is_empty() || (&version != b"00" && rest.starts_with(b"-"));
        if !is_version || !ends_well || known[35] != b'-' || known[52] != b'-' {
            return None;
        }
        let (mut trace_id, mut parent_id, mut flags) = ([0; 16], [0; 8], [0; 1]);
        // Digits in lower case only (§3.2.2).
        for (digits, bytes) in [(3..35, &mut trace_id[..]), (36..52, &mut parent_id), (53..55, &mut flags)] {
            HEXLOWER.decode_mut(&known[digits], bytes).ok()?;
        }
        let is_right = trace_id != [0; 16] && parent_id != [0; 8];
        is_right.then_some(Self { trace_id, parent_id, is_sampled: flags[0] & SAMPLED != 0 })
    }

    /// Parses all fields of that name; repeated fields are invalid (§3.2).
    pub fn of<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let first = values.next()?;
        if values.next().is_some() { None } else { Self::read(first) }
    }

    /// Formats the value of a field, in version 00. Unknown flags are not forwarded (§3.2.2.5.1).
    pub fn write(&self) -> [u8; LEN] {
        let mut value = *b"00-00000000000000000000000000000000-0000000000000000-00";
        HEXLOWER.encode_mut(&self.trace_id, &mut value[3..35]);
        HEXLOWER.encode_mut(&self.parent_id, &mut value[36..52]);
        HEXLOWER.encode_mut(&[u8::from(self.is_sampled)], &mut value[53..55]);
        value
    }
}

/// The random number from which the ids of an exchange derive. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// Creates a seed from a random number; a trace that it starts is recorded if `is_sampled`.
    pub fn new(drawn: u64, is_sampled: bool) -> Self {
        Self(drawn & !3 | 2 | u64::from(is_sampled))
    }

    /// Restores a seed from [`get`](Self::get); `None` for zero.
    pub fn from_number(number: u64) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// The seed as a number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns `true` if a trace that it starts is recorded.
    pub fn is_sampled(self) -> bool {
        self.0 & 1 != 0
    }

    /// The id of a trace that begins with the exchange.
    pub fn trace_id(self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.id(1));
        id[8..].copy_from_slice(&self.id(2));
        id
    }

    /// The span id of the exchange.
    pub fn exchange_id(self) -> [u8; 8] {
        self.id(3)
    }

    /// The span id of a call to a provider, by its number from 1.
    pub fn call_id(self, number: u32) -> [u8; 8] {
        self.id(3 + u64::from(number.max(1)))
    }

    /// Derives an id. Two processes might draw the same seed; a random number per process makes their ids
    /// differ.
    fn id(self, which: u64) -> [u8; 8] {
        static PROCESS: OnceLock<u64> = OnceLock::new();
        // A simulated world has one process at a time, and must repeat exactly.
        let of_process = || {
            if egret_clock::IS_SIMULATED { 0 } else { std::hash::RandomState::new().build_hasher().finish() }
        };
        let process = *PROCESS.get_or_init(of_process);
        let id = mixed(mixed(self.0 ^ process).wrapping_add(which.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        // Zero is not a valid id.
        (id | u64::from(id == 0)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let parent = TraceParent::read(PARENT.as_bytes()).unwrap();
        assert_eq!((parent.trace_id[0], parent.parent_id[7], parent.is_sampled), (0x0a, 0x31, true));
        assert_eq!(parent.write(), PARENT.as_bytes());
        let later = format!("cc{}-what-comes-later", &PARENT[2..]);
        assert_eq!(TraceParent::read(later.as_bytes()), Some(parent));
        let unsampled = PARENT.replace("-01", "-fe");
        assert!(!TraceParent::read(unsampled.as_bytes()).unwrap().is_sampled);
    }

    #[test]
    fn a_malformed_traceparent_is_refused() {
        for wrong in [
            "",
            &PARENT[1..],
            &PARENT.replace("00-", "ff-"),
            &PARENT.replace("0af7", "0AF7"),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &format!("{PARENT}-"),
            &format!("{PARENT}x"),
            &format!("cc{}x", &PARENT[2..]),
            &PARENT.replace("-01", "-0g"),
            &PARENT.replace("-b7", "_b7"),
        ] {
            assert_eq!(TraceParent::read(wrong.as_bytes()), None, "{wrong}");
        }
        let values = [PARENT.as_bytes(), PARENT.as_bytes()];
        assert_eq!(TraceParent::of(values.into_iter()), None);
        assert!(TraceParent::of(values.into_iter().take(1)).is_some());
    }

    proptest! {
        #[test]
        fn no_value_panics(value in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(parent) = TraceParent::read(&value) {
                prop_assert_eq!(TraceParent::read(&parent.write()), Some(parent));
            }
        }

        #[test]
        fn ids_differ_and_follow_from_the_seed(drawn: u64, is_sampled: bool) {
            let seed = Seed::new(drawn, is_sampled);
            prop_assert_eq!(seed.is_sampled(), is_sampled);
            prop_assert_eq!(Seed::from_number(seed.get()), Some(seed));
            prop_assert!(seed.trace_id() != [0; 16] && seed.exchange_id() != [0; 8]);
            prop_assert_ne!(seed.exchange_id(), seed.call_id(1));
            prop_assert_ne!(seed.call_id(1), seed.call_id(2));
        }
    }
}
