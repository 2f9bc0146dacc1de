//! Responses of the generator to real clients.

use std::fmt::Write as _;

use super::clients::{Client, NAMES, Seen};
use super::compare::options;
use super::generate::{Message, mark};
use super::record::Record;
use super::report::{Counts, Pair, chosen, print};
use super::shrink::shrink;
use super::verdict::{Difference, Part, Verdict, laxer, refused};

#[test]
fn real_clients_see_what_the_provider_has_sent() {
    let counts: Vec<Counts> = chosen(&NAMES)
        .into_iter()
        .map(|name| Counts::of(name, &Client::start(name), Message::response))
        .collect();
    assert_eq!(print(&counts), 0, "messages without an explanation, see above");
}

impl Pair for Client {
    fn judge_all(&self, messages: &[Message]) -> Vec<Verdict> {
        let responses: Vec<(u64, Vec<u8>)> =
            messages.iter().map(|message| (message.number, message.response_bytes())).collect();
        let seen = self.receive(&responses).into_iter().zip(&responses);
        let verdict = |((direct, through), (number, bytes)): ((Seen, Seen), &(u64, Vec<u8>))| {
            compare(*number, bytes, &direct, &through)
        };
        seen.map(verdict).collect()
    }

    fn judge_again(&self, message: &Message) -> Verdict {
        receive_one(self, message.number, &message.response_bytes()).0
    }

    fn show(&self, message: &Message, verdict: Verdict) -> String {
        let number = message.number;
        let small =
            shrink(message, verdict, Message::response_bytes, |bytes| receive_one(self, number, bytes).0);
        let (verdict, direct, through) = receive_one(self, number, &small);
        let mut text = format!("{}\n{verdict:?}\n", small.escape_ascii());
        for (way, seen) in [("directly", &direct), ("through Egret", &through)] {
            for (which, record) in [("the response", &seen.first), ("the next one", &seen.next)] {
                let record = record.as_ref().map_or_else(|| "an error".to_owned(), ToString::to_string);
                let _ = writeln!(text, "{way}, {which}: {record}");
            }
        }
        text
    }
}

/// Has the client receive one response alone.
fn receive_one(client: &Client, number: u64, bytes: &[u8]) -> (Verdict, Seen, Seen) {
    let (direct, through) = client.receive(&[(number, bytes.to_vec())]).pop().unwrap_or_default();
    (compare(number, bytes, &direct, &through), direct, through)
}

/// Compares what a client has seen.
fn compare(number: u64, bytes: &[u8], direct: &Seen, through: &Seen) -> Verdict {
    if through.first.as_ref().is_some_and(|first| first.method.starts_with(b"1")) {
        // The final response is then the next one to the client, with Egret or without.
        return Verdict::RefusedByPeer("it takes an informational response for the final one");
    }
    let echo = format!("{}ok", mark(number));
    match &through.next {
        None => return Verdict::Unexplained(Difference::Lost),
        Some(next) if next.value("x-echo") != Some(echo.as_bytes()) => {
            return Verdict::Unexplained(Difference::OtherResponse);
        }
        Some(_) => {}
    }
    let options = options(bytes);
    let essence = |record: &Record| record.essence(&options);
    match (&direct.first, &through.first) {
        (known, Some(got)) if got.value("x-egret-error").is_some() => {
            if known.is_none() {
                Verdict::RefusedByBoth
            } else {
                refusal(got)
            }
        }
        (None, None) => Verdict::RefusedByBoth,
        (Some(_), None) if may_be_cut(bytes) => {
            Verdict::RefusedByEgret(Part::Framing, "the response is cut short")
        }
        (Some(_), None) => Verdict::Unexplained(Difference::Lost),
        (None, Some(_)) => laxer(bytes),
        (Some(known), Some(got)) if essence(known) == essence(got) => Verdict::Equal,
        (Some(known), Some(got)) if reads_body(&essence(known), &essence(got)) => {
            Verdict::RefusedByPeer("it reads a body behind 204 or 304")
        }
        _ => Verdict::Unexplained(Difference::OtherMessage),
    }
}

/// `true` if a client has read a body that a response with this status cannot have (RFC 9112 §6.3).
fn reads_body(known: &Record, got: &Record) -> bool {
    let same = Record { length: got.length, sum: got.sum, start: got.start.clone(), ..known.clone() };
    same == *got && got.length == 0 && matches!(&got.method[..], b"204" | b"304")
}

/// The verdict on an error of Egret, which a client has received.
fn refusal(got: &Record) -> Verdict {
    let error = String::from_utf8_lossy(got.value("x-egret-error").unwrap_or_default()).into_owned();
    let text = String::from_utf8_lossy(&got.start).into_owned();
    let detail = text.split_once("\"detail\":\"").map_or("", |(_, detail)| detail);
    refused(&error, detail)
}

/// `true` if the body of a response may break a rule of chunks, which shows once its head has been passed on.
fn may_be_cut(bytes: &[u8]) -> bool {
    let head = bytes.to_ascii_lowercase();
    memchr::memmem::find(&head, b"chunked").is_some()
}
