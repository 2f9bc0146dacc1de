//! Requests of the generator to real servers.

use std::fmt::Write as _;
use std::time::Duration;

use super::compare::compare;
use super::generate::Message;
use super::play::{LONG_QUIET, Outcome, QUIET, play};
use super::report::{Counts, Pair, chosen, print};
use super::servers::{NAMES, Server};
use super::shrink::shrink;
use super::verdict::Verdict;

#[test]
fn real_servers_understand_what_egret_passes_on() {
    let counts: Vec<Counts> = chosen(&NAMES)
        .into_iter()
        .map(|name| Counts::of(name, &Server::start(name), Message::request))
        .collect();
    assert_eq!(print(&counts), 0, "messages without an explanation, see above");
}

impl Pair for Server {
    fn judge_all(&self, messages: &[Message]) -> Vec<Verdict> {
        let sent: Vec<(u64, Vec<u8>)> =
            messages.iter().map(|message| (message.number, message.request_bytes())).collect();
        let outcomes = play(self, &sent, QUIET).into_iter().zip(&sent);
        outcomes
            .map(|((direct, through), (number, bytes))| compare(*number, bytes, &direct, &through))
            .collect()
    }

    fn judge_again(&self, message: &Message) -> Verdict {
        let bytes = message.request_bytes();
        match play_one(self, message.number, &bytes, 5 * QUIET).0 {
            Verdict::Unexplained(_) => play_one(self, message.number, &bytes, LONG_QUIET).0,
            verdict => verdict,
        }
    }

    fn show(&self, message: &Message, verdict: Verdict) -> String {
        let number = message.number;
        let small =
            shrink(message, verdict, Message::request_bytes, |bytes| play_one(self, number, bytes, QUIET).0);
        let (verdict, direct, through) = play_one(self, number, &small, LONG_QUIET);
        let mut text = format!("{}\n{verdict:?}\n", small.escape_ascii());
        for (way, outcome) in [("directly", &direct), ("through Egret", &through)] {
            let _ = writeln!(text, "{way}: {:?}, closed {}", outcome.statuses(), outcome.closed);
            for record in &outcome.records {
                let _ = writeln!(text, "    {record}");
            }
            if let Some((error, detail)) = outcome.refusal() {
                let _ = writeln!(text, "    {error}: {detail}");
            }
        }
        text
    }
}

/// Plays one message alone.
fn play_one(server: &Server, number: u64, bytes: &[u8], quiet: Duration) -> (Verdict, Outcome, Outcome) {
    let (direct, through) = play(server, &[(number, bytes.to_vec())], quiet).pop().unwrap_or_default();
    (compare(number, bytes, &direct, &through), direct, through)
}
