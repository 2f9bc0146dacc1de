//! Leaves the report of usage out of a stream of OpenAI's chat API, for a client that has not asked for it.

use egret_json::pointer::Pointers;
use memchr::{memchr2, memmem};

use crate::sse::{Sse, SsePart};

/// Maximum length of an event that is held back. A report has less than a kilobyte; a longer event is none.
const EVENT_BYTES_MAX: usize = 16 << 10;

/// The members that tell a report.
const MEMBERS: [&str; 3] = ["/choices", "/usage", "/error"];

/// Leaves the report of usage out of a stream of events, however it is cut: each event whose data is a JSON
/// object with an empty list `choices`, an object `usage` and no `error`. All other bytes pass as they are.
///
/// It holds back the event under way, up to 16 KiB, until that ends or is too long to be a report. Comments
/// before an event pass at once, because they keep a connection alive.
#[derive(Debug)]
pub struct ReportFilter {
    sse: Sse,
    /// The bytes of the event under way, as far as they are held back.
    held: Vec<u8>,
    /// The data in them.
    data: Vec<u8>,
    members: Pointers,
    next: Upcoming,
}

/// The use of the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upcoming {
    /// They are held back until their event ends.
    Hold,
    /// They pass up to the end of their line, which is a comment before an event.
    PassLine,
    /// They pass up to the end of their event, which is too long.
    Pass,
    /// A CR has ended an event or a comment. A LF behind it belongs to that, and passes.
    PassLineFeed,
    /// The same, behind an event that was left out.
    DropLineFeed,
}

impl Default for ReportFilter {
    fn default() -> Self {
        Self {
            sse: Sse::default(),
            held: Vec::new(),
            data: Vec::new(),
            members: Pointers::new(MEMBERS),
            next: Upcoming::Hold,
        }
    }
}

impl ReportFilter {
    /// Takes the next bytes of the stream, and appends those that pass to `out`.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            let len = memchr2(b'\r', b'\n', bytes).map_or(bytes.len(), |end| end + 1);
            let (piece, rest) = bytes.split_at(len);
            self.take(piece, out);
            bytes = rest;
        }
    }

    /// Ends the stream, and appends what is left of it to `out`. A report that lacks the empty line behind it
    /// is left out too, because some clients read it.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.end_event(out);
    }

    /// Takes a part of a line, which may end with the first or only byte of the line's end.
    fn take(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let Self { sse, data, next, .. } = self;
        let (is_kept, mut has_ended) = (*next != Upcoming::Pass, false);
        sse.push(piece, &mut |part| match part {
            SsePart::Data(text) if is_kept && data.len() + text.len() <= EVENT_BYTES_MAX => {
                data.extend_from_slice(text);
            }
            SsePart::Data(_) => {}
            SsePart::End => has_ended = true,
        });
        match (self.next, piece) {
            (Upcoming::PassLineFeed, b"\n") => {
                out.extend_from_slice(piece);
                self.next = Upcoming::Hold;
                return;
            }
            (Upcoming::DropLineFeed, b"\n") => {
                self.next = Upcoming::Hold;
                return;
            }
            (Upcoming::Pass, _) => out.extend_from_slice(piece),
            (next, _) if next == Upcoming::PassLine || (self.held.is_empty() && piece.starts_with(b":")) => {
                out.extend_from_slice(piece);
                self.next = match piece.last() {
                    Some(b'\n') => Upcoming::Hold,
                    Some(b'\r') => Upcoming::PassLineFeed,
                    _ => Upcoming::PassLine,
                };
            }
            _ if self.held.len() + piece.len() > EVENT_BYTES_MAX => {
                out.append(&mut self.held);
                out.extend_from_slice(piece);
                self.data.clear();
                self.next = Upcoming::Pass;
            }
            _ => {
                self.held.extend_from_slice(piece);
                self.next = Upcoming::Hold;
            }
        }
        if has_ended {
            let is_report = self.end_event(out);
            self.next = match (piece.ends_with(b"\r"), is_report) {
                (false, _) => Upcoming::Hold,
                (true, true) => Upcoming::DropLineFeed,
                (true, false) => Upcoming::PassLineFeed,
            };
        }
    }

    /// Ends the event under way. Returns `true` if it is a report, which does not pass.
    fn end_event(&mut self, out: &mut Vec<u8>) -> bool {
        let is_report = self.is_report();
        if is_report {
            self.held.clear();
        } else {
            out.append(&mut self.held);
        }
        self.data.clear();
        is_report
    }

    /// Returns `true` if the data so far is a report.
    fn is_report(&self) -> bool {
        // Most events have no such member, and the search for it costs less than reading JSON.
        if memmem::find(&self.data, b"\"usage\"").is_none() {
            return false;
        }
        let Some(found) = self.members.find(&self.data) else { return false };
        let [Some(choices), Some(usage), error] = found[..] else { return false };
        let inside = choices.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
        inside.is_some_and(|inside| inside.trim_ascii().is_empty())
            && usage.starts_with(b"{")
            && error.is_none_or(|error| error == b"null")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = r#"data: {"choices":[{"delta":{"content":"\"usage\":{}"}}],"usage":null}"#;
    const REPORT: &str = r#"data: {"id":"1","choices": [ ],"usage":{"prompt_tokens":1}}"#;
    const DONE: &str = "data: [DONE]";

    /// Events, each with `true` if it is a report.
    fn events() -> Vec<(String, bool)> {
        let others = [
            TEXT.to_owned(),
            DONE.to_owned(),
            ": keep-alive".to_owned(),
            "id: 1\nevent: usage\ndata: {\"usage\":{}}".to_owned(),
            r#"data: {"choices":[],"usage":null,"prompt_filter_results":[]}"#.to_owned(),
            r#"data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}"#.to_owned(),
            r#"data: {"choices":[],"usage":{},"error":{"message":"no"}}"#.to_owned(),
            r#"data: {"choices":[],"usage":{"prompt_tokens":1}"#.to_owned(),
            r#"data: [{"choices":[],"usage":{}}]"#.to_owned(),
            r#"datas: {"choices":[],"usage":{}}"#.to_owned(),
            format!("data: {{\"choices\":[],\"pad\":\"{}\",\"usage\":{{}}}}", "x".repeat(EVENT_BYTES_MAX)),
        ];
        let reports = [
            REPORT.to_owned(),
            "id: 7\ndata: {\"choices\":[],\ndata:\"usage\":{},\ndata: \"error\":null}\nretry: 1".to_owned(),
            "event: x\n: keep-alive\ndata:{\"usage\":{\"completion_tokens\":2},\"choices\":[]}".to_owned(),
        ];
        let others = others.into_iter().map(|text| (text, false));
        others.chain(reports.into_iter().map(|text| (text, true))).collect()
    }

    fn filtered<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<u8> {
        let (mut filter, mut out) = (ReportFilter::default(), Vec::new());
        for piece in pieces {
            filter.push(piece, &mut out);
            assert!(filter.held.len() <= EVENT_BYTES_MAX && filter.data.len() <= EVENT_BYTES_MAX);
        }
        filter.finish(&mut out);
        out
    }

    #[test]
    fn the_report_is_left_out_at_each_cut() {
        for end in ["\n", "\r\n", "\r"] {
            let stream =
                |events: &[&str]| -> String { events.iter().flat_map(|event| [*event, end, end]).collect() };
            let whole = format!("\u{feff}{}", stream(&[TEXT, REPORT, ": a", REPORT, DONE]));
            let expected = format!("\u{feff}{}", stream(&[TEXT, ": a", DONE]));
            for cut in 0..=whole.len() {
                let (start, rest) = whole.as_bytes().split_at(cut);
                assert_eq!(filtered([start, rest]), expected.as_bytes(), "{end:?}, cut at {cut}");
            }
            assert_eq!(filtered(whole.as_bytes().chunks(1)), expected.as_bytes(), "{end:?}, by bytes");
        }
    }

    #[test]
    fn an_event_passes_once_it_has_ended() {
        let (mut filter, mut out) = (ReportFilter::default(), Vec::new());
        filter.push(TEXT.as_bytes(), &mut out);
        assert!(out.is_empty());
        filter.push(b"\n\n", &mut out);
        assert_eq!(out.len(), TEXT.len() + 2);
    }

    #[test]
    fn comments_before_an_event_pass_at_once() {
        for end in ["\n", "\r\n", "\r"] {
            let (mut filter, mut out) = (ReportFilter::default(), Vec::new());
            let comment = format!(": keep-alive{end}");
            for part in [": keep", "-alive", end, ": keep-alive", end] {
                filter.push(part.as_bytes(), &mut out);
            }
            assert_eq!(out, comment.repeat(2).as_bytes());
            filter.push(format!("{REPORT}{end}{end}").as_bytes(), &mut out);
            assert_eq!(out, comment.repeat(2).as_bytes());
        }
    }

    #[test]
    fn a_stream_that_ends_in_an_event_loses_nothing_but_a_report() {
        for (event, is_report) in events() {
            let expected = if is_report { "" } else { &event };
            assert_eq!(filtered([event.as_bytes()]), expected.as_bytes(), "{event}");
        }
    }

    proptest! {
        #[test]
        fn every_other_byte_passes_however_the_stream_is_cut(
            numbers in prop::collection::vec((0..events().len(), 0..3_usize), 0..12),
            sizes in prop::collection::vec(1_usize..400, 1..40),
        ) {
            let events = events();
            let (mut stream, mut expected) = (String::new(), String::new());
            for (number, end) in numbers {
                let (event, is_report) = &events[number];
                let end = ["\n", "\r\n", "\r"][end];
                let text = format!("{}{end}{end}", event.replace('\n', end));
                stream.push_str(&text);
                if !is_report {
                    expected.push_str(&text);
                }
            }
            let mut rest = stream.as_bytes();
            let pieces = sizes.iter().cycle().map_while(|size| {
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                rest = after;
                (!piece.is_empty()).then_some(piece)
            });
            prop_assert_eq!(filtered(pieces.collect::<Vec<_>>()), expected.as_bytes());
        }

        #[test]
        fn any_bytes_pass_the_same_way_at_each_cut(
            parts in prop::collection::vec(prop::sample::select(vec![
                "\n", "\r", "data:", " ", "{\"choices\":[],", "\"usage\":{}", "}", "\u{feff}", "id", ":",
            ]), 0..30),
        ) {
            let stream = parts.concat();
            let whole = filtered([stream.as_bytes()]);
            prop_assert_eq!(&filtered(stream.as_bytes().chunks(1)), &whole);
            for cut in 0..stream.len() {
                let (start, rest) = stream.as_bytes().split_at(cut);
                prop_assert_eq!(&filtered([start, rest]), &whole);
            }
        }
    }
}
