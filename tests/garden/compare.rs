//! Compares what became of a request directly and through Egret.

use std::collections::BTreeSet;

use super::play::Outcome;
use super::record::Record;
use super::verdict::{Difference, Verdict, laxer, refused};

/// Compares the outcomes of a message.
pub(crate) fn compare(number: u64, bytes: &[u8], direct: &Outcome, through: &Outcome) -> Verdict {
    let options = options(bytes);
    let essence = |outcome: &Outcome| {
        outcome.of_message().map(|record| record.essence(&options)).collect::<Vec<Record>>()
    };
    let (known, got) = (essence(direct), essence(through));
    if through.records.len() > through.echoes() {
        return Verdict::Unexplained(Difference::MoreRequests);
    }
    let refusal = through.refusal();
    if known == got {
        let goes_on = direct.has_end(number);
        return match refusal {
            Some((error, detail)) if goes_on => refused(&error, &detail),
            Some(_) => Verdict::RefusedByBoth,
            None if goes_on || direct.echoes() > 0 => ended(direct, through, number),
            None => Verdict::RefusedByBoth,
        };
    }
    if known.starts_with(&got) {
        return match refusal {
            Some((error, detail)) => refused(&error, &detail),
            None => Verdict::Unexplained(Difference::Lost),
        };
    }
    if got.starts_with(&known) {
        return laxer(bytes);
    }
    if known.iter().zip(&got).any(|(known, got)| reads_on(known, got)) {
        return Verdict::RefusedByPeer("it takes the next request for a part of the body");
    }
    Verdict::Unexplained(Difference::OtherMessage)
}

/// The verdict on a message that was accepted on both ways: the request behind it must be too, unless the
/// connection ended.
fn ended(direct: &Outcome, through: &Outcome, number: u64) -> Verdict {
    let is_lost = direct.has_end(number) && !through.has_end(number) && !through.closed;
    if is_lost { Verdict::Unexplained(Difference::Lost) } else { Verdict::Equal }
}

/// `true` if the body of the first goes on where that of the second ends.
fn reads_on(known: &Record, got: &Record) -> bool {
    let same = Record { length: got.length, sum: got.sum, start: got.start.clone(), ..known.clone() };
    same == *got && known.length > got.length && known.start.starts_with(&got.start)
}

/// The options of all lines of Connection, in lower case. Some servers separate them at spaces too.
pub(crate) fn options(bytes: &[u8]) -> BTreeSet<Vec<u8>> {
    let lower = bytes.to_ascii_lowercase();
    let values = lower.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"connection:"));
    values
        .flat_map(|value| value.split(|byte| matches!(byte, b',' | b' ')))
        .map(|option| option.trim_ascii().to_vec())
        .collect()
}
