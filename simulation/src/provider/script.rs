//! The script of a provider that speaks HTTP/1.1, for one request: it responds well or badly.

use std::collections::VecDeque;
use std::time::Duration;

use super::Step;
use crate::answer::{Answer, Delay, STALL_MS};
use crate::ledger::{Ledger, Sent};
use crate::message::chunked;
use crate::scenario::{Dice, RequestPlan, Trouble};

/// The steps of a provider for a request.
pub(super) struct Script {
    /// One after the other.
    pub steps: VecDeque<Step>,
    /// The number of the response's body, if only the end of the connection ends it.
    pub unframed: Option<u64>,
}

/// Decides how a provider responds to a request.
pub(super) fn script(
    plan: &RequestPlan,
    is_secured: bool,
    dice: &mut Dice,
    trouble: Trouble,
    ledger: &mut Ledger,
) -> Script {
    let mut steps = VecDeque::new();
    if dice.percent(trouble.nonsense) {
        let nonsense =
            dice.pick(&["SSH-2.0-x\r\n", "HTTP/1.1 2x0 no\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"]);
        steps.extend([Step::Write(nonsense.bytes().collect()), Step::Close(true)]);
        return Script { steps, unframed: None };
    }
    let Delay { awaits_body, pause } = Delay::draw(dice, trouble);
    steps.extend(awaits_body.then_some(Step::AwaitBody));
    steps.extend(pause.map(Step::Pause));
    let Written { mut bytes, closes, unframed } = response(plan, is_secured, dice, trouble, ledger);
    if dice.percent(trouble.cut) {
        // Often nothing of it is sent.
        let most = if dice.percent(40) { 0 } else { bytes.len() as u64 };
        bytes.truncate(usize::try_from(dice.between(0, most)).unwrap_or_default());
        let cut = if dice.percent(50) { Step::Close(is_secured && dice.percent(30)) } else { Step::Reset };
        steps.extend([Step::Write(bytes.into()), cut]);
        return Script { steps, unframed };
    }
    let pauses = if dice.percent(trouble.stall) {
        // Often before the first byte.
        let most = if dice.percent(40) { 0 } else { bytes.len() as u64 };
        let middle = usize::try_from(dice.between(0, most)).unwrap_or_default();
        Some((middle, Duration::from_millis(dice.between(0, STALL_MS))))
    } else if dice.percent(trouble.late_body) {
        let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |end| end + 4);
        Some((head, dice.pause(2_000)))
    } else {
        None
    };
    let rest = pauses.map(|(middle, time)| [Step::Pause(time), Step::Write(bytes.split_off(middle).into())]);
    steps.push_back(Step::Write(bytes.into()));
    steps.extend(rest.into_iter().flatten());
    let forgets = is_secured && closes && dice.percent(trouble.cut);
    steps.push_back(if closes { Step::Close(!forgets) } else { Step::Done });
    Script { steps, unframed }
}

/// A response in bytes.
struct Written {
    bytes: Vec<u8>,
    /// The connection closes behind it.
    closes: bool,
    /// The number of its body, if only the end of the connection ends it.
    unframed: Option<u64>,
}

/// Writes a response.
fn response(
    plan: &RequestPlan,
    is_secured: bool,
    dice: &mut Dice,
    trouble: Trouble,
    ledger: &mut Ledger,
) -> Written {
    let answer = Answer::draw(dice, trouble);
    let (len, number) = (answer.len, answer.number);
    let kind = dice.pick(&["length", "length", "length", "chunked", "chunked", "close"]);
    // In clear nobody can tell a body that was cut from one that has ended.
    let may_be_short = kind == "close" && !is_secured;
    ledger.respond(number, Sent { len: len as u64, may_be_short, ..Sent::default() });
    let mut text = String::new();
    if dice.percent(10) {
        text.push_str("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
    }
    text.push_str(&format!("HTTP/1.1 {} Some\r\n", answer.status));
    for (name, value) in answer.fields(plan) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if answer.status == 503 && dice.percent(50) {
        text.push_str("retry-after: 1\r\n");
    }
    let closes = kind == "close" || dice.percent(10);
    if closes {
        text.push_str("connection: close\r\n");
    }
    match kind {
        "length" => text.push_str(&format!("content-length: {len}\r\n\r\n")),
        "chunked" => text.push_str("transfer-encoding: chunked\r\n\r\n"),
        _ => text.push_str("\r\n"),
    }
    let mut bytes = text.into_bytes();
    let content = answer.content(plan);
    if kind == "chunked" && plan.method != "HEAD" {
        let size = dice.pick(&[1_000, 10_000, 100_000]);
        bytes.extend(chunked(&content, size));
    } else {
        bytes.extend(content);
    }
    Written { bytes, closes, unframed: (kind == "close" && is_secured).then_some(number) }
}
