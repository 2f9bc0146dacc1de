//! Asks the provider of a language model for a report of usage in the client's place, and notes whether the
//! client gets to see it.
//!
//! A stream of OpenAI's chat API reports usage only if the request has `stream_options: {"include_usage":
//! true}`. Remedies say whether Egret asks. That happens once all of them have seen the request, so a cache
//! tells requests apart as the clients have sent them.

use egret_http1::Method;
use egret_json::edit::{Action, JsonEdits};
use egret_match::is_event_stream;
use egret_message::{Fields, Json, Outcome};
use egret_quota::UsageReport;

use crate::exchange::Exchange;

/// End of the paths of OpenAI's chat API, and of the older one that completes a prompt.
const PATH_END: &[u8] = b"/completions";

/// The request for a report of usage that a call makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UsageAsk {
    /// None that Egret knows of. A report is read if there is one.
    #[default]
    Unknown,
    /// A remedy wants Egret to ask, once all remedies have seen the request. The client does not see the
    /// report if `is_hidden`.
    Wanted {
        /// `true` if the report is for Egret alone.
        is_hidden: bool,
    },
    /// The client has asked itself.
    ByClient,
    /// Egret has asked, and the client sees the report.
    Shown,
    /// Egret has asked, and the report is for Egret alone.
    Hidden,
    /// The same, and the response is a stream that the report is left out of.
    LeftOut,
    /// Egret could not ask.
    Impossible(NotAsked),
}

/// The reason why Egret could not ask for a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAsked {
    /// It is no call of OpenAI's chat API, or its provider does not report on request.
    OtherApi,
    /// The request has a content coding.
    Coded,
    /// The request is no JSON object, or none that could be edited.
    NotJson,
    /// The whole body is not there to be edited: it is too long, or there was no memory for it.
    NotGathered,
    /// The request asks for no stream.
    NotStreamed,
}

impl UsageAsk {
    /// Notes that a remedy wants a report. If several do, the client sees none that one of them wants hidden.
    pub(crate) fn want(&mut self, report: UsageReport) {
        let is_hidden = match report {
            UsageReport::Client => return,
            UsageReport::Ask => *self == Self::Wanted { is_hidden: true },
            UsageReport::AskAndHide => true,
        };
        *self = Self::Wanted { is_hidden };
    }

    /// Explains why a response reports no usage, or what would help.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::Unknown | Self::Wanted { .. } => {
                "have the client ask the provider for usage, as with `stream_options: {\"include_usage\": true}`, \
                 or let Egret ask (`cost.report`)"
            }
            Self::ByClient => "although the client has asked for usage",
            Self::Shown | Self::Hidden | Self::LeftOut => {
                "although Egret has asked for usage (`cost.report`)"
            }
            Self::Impossible(why) => match why {
                NotAsked::OtherApi => "Egret cannot ask for usage in calls of another API than OpenAI's chat",
                NotAsked::Coded => "Egret cannot ask for usage in a request with a content coding",
                NotAsked::NotJson => {
                    "Egret cannot ask for usage in a request that is no JSON object that it can edit"
                }
                NotAsked::NotGathered => {
                    "Egret cannot ask for usage in a request whose body is too long to be kept in memory"
                }
                NotAsked::NotStreamed => "Egret asks for usage in streams only",
            },
        }
    }
}

impl Exchange<'_> {
    /// Asks for a report of usage in the request, if a remedy wants one. The request is the one that is sent:
    /// all remedies have seen it.
    pub fn ask_for_usage(&mut self) {
        let UsageAsk::Wanted { is_hidden } = self.draft.call.usage else { return };
        self.draft.call.usage = match self.asking_body() {
            Err(why) => UsageAsk::Impossible(why),
            Ok(None) => UsageAsk::ByClient,
            Ok(Some(body)) => {
                self.draft.replace_request_body(body);
                if is_hidden {
                    // A report cannot be left out of a coded stream.
                    self.draft.request.set(b"accept-encoding", b"identity");
                    UsageAsk::Hidden
                } else {
                    UsageAsk::Shown
                }
            }
        };
    }

    /// Returns the request's body with the request for a report; `None` if the client has asked for it.
    fn asking_body(&self) -> Result<Option<Vec<u8>>, NotAsked> {
        let request = self.request();
        let reports = self.conventions().is_none_or(|known| known.preset.reports_when_asked());
        if self.method() != Method::Post || !request.path.ends_with(PATH_END) || !reports {
            return Err(NotAsked::OtherApi);
        }
        match request.fields.json() {
            Json::No => Err(NotAsked::NotJson),
            Json::Encoded => Err(NotAsked::Coded),
            Json::Plain => request.body.map_or(Err(NotAsked::NotGathered), asking),
        }
    }

    /// Decides whether a report is left out of the response that has arrived, and removes the fields that
    /// describe the longer body.
    pub fn leave_usage_out(&mut self) {
        if !matches!(self.draft.call.usage, UsageAsk::Hidden | UsageAsk::LeftOut) {
            return;
        }
        self.draft.call.usage = UsageAsk::Hidden;
        let Outcome::Response(received) = self.outcome else { return };
        let fields = Fields::received(&received.head.fields, received.bytes);
        let is_provider = self.local_kind.is_none() && received.head.status == 200;
        if is_provider && is_event_stream(fields) && !fields.is_encoded() {
            self.draft.forget_response_length(fields.get(b"etag"));
            self.draft.call.usage = UsageAsk::LeftOut;
        }
    }

    /// Returns `true` if the response is a coded stream, which a report could not be left out of.
    pub(crate) fn shows_hidden_usage(&self) -> bool {
        let response = self.response().filter(|_| self.draft.call.usage == UsageAsk::Hidden);
        response.is_some_and(|response| {
            response.status == 200 && is_event_stream(response.fields) && response.fields.is_encoded()
        })
    }
}

/// Place of the request for a report.
const INCLUDE_USAGE: &str = "/stream_options/include_usage";

/// Returns the body of a streamed call with the request for a report; `None` if it has that already.
fn asking(body: &[u8]) -> Result<Option<Vec<u8>>, NotAsked> {
    let mut edits = JsonEdits::default();
    for (pointer, action) in [("/stream", Action::Rewrite), (INCLUDE_USAGE, Action::Set(0))] {
        edits.insert(pointer, action).map_err(|_| NotAsked::NotJson)?;
    }
    let mut is_streamed = false;
    let edited = edits.apply_with(body, &[&b"true"[..]], &mut |value, kept| {
        is_streamed = value == b"true";
        kept.extend_from_slice(value);
        Ok(())
    });
    match edited {
        Ok(edited) if is_streamed => Ok(edited.filter(|_| !has_asked(body))),
        Ok(_) => Err(NotAsked::NotStreamed),
        Err(_) => Err(NotAsked::NotJson),
    }
}

/// Returns `true` if the last one of repeated requests for a report asks for it: providers read that one.
fn has_asked(body: &[u8]) -> bool {
    let mut has_asked = false;
    let mut edits = JsonEdits::default();
    let read = edits.insert(INCLUDE_USAGE, Action::Rewrite).ok().and_then(|()| {
        let mut note = |value: &[u8], kept: &mut Vec<u8>| {
            has_asked = value == b"true";
            kept.extend_from_slice(value);
            Ok(())
        };
        edits.apply_with(body, &[], &mut note).ok()
    });
    read.is_some() && has_asked
}

#[cfg(test)]
mod tests {
    use egret_fixture::{Decision, NotAsked, TestExchange, TestFlows, TestStep, UsageAsk};
    use egret_presets::PresetName;
    use egret_usage::{UsageDialect, UsageRecord, UsageSource};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const CHAT: &str =
        "POST https://one.example/v1/chat/completions\nContent-Type: application/json\nDigest: d";
    const STREAM: &str = r#"{"model":"m", "stream": true}"#;
    const ASKING: &str = r#"{"model":"m", "stream": true,"stream_options":{"include_usage":true}}"#;
    const EVENTS: &str = "200\ncontent-type: text/event-stream\ncontent-length: 99\netag: \"1\"\ndigest: d";

    fn harness(report: &str) -> TestFlows {
        TestFlows::new(json!({
            "quotas": { "q": {
                "limit": 100, "window": "1h",
                "cost": { "request": "5", "usage": "tokens", "report": report },
            } },
            "flows": [{ "name": "f", "remedies": [{ "limit": { "quota": "q" } }] }],
        }))
    }

    fn called(harness: &TestFlows, lines: &str, body: Option<&str>) -> TestExchange {
        let mut exchange = harness.send(lines);
        exchange.body = body.map(|body| body.as_bytes().to_vec());
        assert_eq!(exchange.poll(harness), TestStep::Call);
        exchange
    }

    #[test]
    fn a_stream_is_asked_for_usage_if_the_quota_wants_that() {
        for (report, sent, usage) in [
            ("client", STREAM, UsageAsk::Unknown),
            ("ask", ASKING, UsageAsk::Shown),
            ("ask-and-hide", ASKING, UsageAsk::Hidden),
        ] {
            let harness = harness(report);
            let mut exchange = called(&harness, CHAT, Some(STREAM));
            let (_, fields, body) = exchange.sent(&harness);
            assert_eq!((body.as_deref(), exchange.draft.call.usage), (Some(sent), usage), "{report}");
            let has = |field: &str| fields.iter().any(|other| other == field);
            assert_eq!(has("Digest: d"), report == "client", "{report}");
            assert_eq!(has("accept-encoding: identity"), report == "ask-and-hide", "{report}");
        }
    }

    #[test]
    fn a_client_that_asks_itself_sees_the_report() {
        let harness = harness("ask-and-hide");
        let mut exchange = called(&harness, CHAT, Some(ASKING));
        assert_eq!(exchange.sent(&harness).2.as_deref(), Some(ASKING));
        exchange.response(&harness, EVENTS);
        assert_eq!(exchange.draft.call.usage, UsageAsk::ByClient);
        assert!(exchange.draft.response.is_empty());
    }

    #[test]
    fn the_last_of_repeated_members_says_whether_the_client_asks() {
        let body = |values: [bool; 2]| {
            let [first, last] = values.map(|value| format!("\"include_usage\":{value}"));
            format!("{{\"stream\":true,\"stream_options\":{{{first},{last}}}}}")
        };
        assert_eq!(asking(body([false, true]).as_bytes()), Ok(None));
        let once = br#"{"stream":true,"stream_options":{"include_usage":true}}"#;
        assert_eq!(asking(body([true, false]).as_bytes()), Ok(Some(once.to_vec())));
    }

    #[test]
    fn calls_that_cannot_be_asked_pass_unchanged_and_are_counted() {
        let harness = harness("ask");
        let json = "POST https://one.example/chat/completions\ncontent-type: application/json";
        let cases = [
            (
                "POST https://one.example/v1/messages\ncontent-type: application/json",
                Some(STREAM),
                NotAsked::OtherApi,
            ),
            (
                "PUT https://one.example/chat/completions\ncontent-type: application/json",
                Some(STREAM),
                NotAsked::OtherApi,
            ),
            (
                "POST https://one.example/chat/completions\ncontent-type: text/plain",
                Some(STREAM),
                NotAsked::NotJson,
            ),
            (
                "POST https://one.example/chat/completions\ncontent-type: application/json\ncontent-encoding: gzip",
                Some(STREAM),
                NotAsked::Coded,
            ),
            (json, None, NotAsked::NotGathered),
            (json, Some("{\"stream\":true"), NotAsked::NotJson),
            (json, Some("[{\"stream\":true}]"), NotAsked::NotJson),
            (json, Some(r#"{"stream":true,"stream_options":"x"}"#), NotAsked::NotJson),
            (json, Some(r#"{"stream":false}"#), NotAsked::NotStreamed),
            (json, Some(r#"{"messages":[{"stream":true}]}"#), NotAsked::NotStreamed),
        ];
        for (number, (lines, body, why)) in (1..).zip(cases) {
            let mut exchange = called(&harness, lines, body);
            assert_eq!(exchange.draft.call.usage, UsageAsk::Impossible(why), "{lines} {body:?}");
            assert_eq!(exchange.sent(&harness).2.as_deref(), body);
            exchange.response(&harness, "200");
            exchange.end_with_usage(&harness, UsageRecord::default());
            assert_eq!(harness.decided(0, Decision::Fail), number, "{lines}");
        }
    }

    #[test]
    fn a_report_is_left_out_of_a_plain_stream_only() {
        let harness = harness("ask-and-hide");
        for (lines, usage) in [
            (EVENTS, UsageAsk::LeftOut),
            ("200\ncontent-type: application/json\ncontent-length: 9", UsageAsk::Hidden),
            ("400\ncontent-type: text/event-stream\ncontent-length: 9", UsageAsk::Hidden),
            ("200\ncontent-type: text/event-stream\ncontent-encoding: gzip", UsageAsk::Hidden),
        ] {
            let mut exchange = called(&harness, CHAT, Some(STREAM));
            exchange.response(&harness, lines);
            assert_eq!(exchange.draft.call.usage, usage, "{lines}");
            let changes = &exchange.draft.response;
            let is_left_out = usage == UsageAsk::LeftOut;
            assert_eq!(
                (changes.removes(b"content-length"), changes.removes(b"digest")),
                (is_left_out, is_left_out)
            );
            if is_left_out {
                assert_eq!(exchange.added(), [("etag".to_owned(), "W/\"1\"".to_owned())]);
            }
        }
    }

    #[test]
    fn a_repeated_call_asks_again_and_the_first_body_is_edited() {
        let remedies = json!([
            { "fallback": { "model": "n", "methods": ["POST"] } },
            { "limit": { "quota": "q" } },
        ]);
        let harness = TestFlows::new(json!({
            "quotas": { "q": { "limit": 100, "window": "1h", "cost": { "usage": "tokens", "report": "ask-and-hide" } } },
            "flows": [{ "name": "f", "remedies": remedies }],
        }));
        let mut exchange = called(&harness, CHAT, Some(STREAM));
        assert_eq!(exchange.response(&harness, "503"), TestStep::Repeat(harness.now));
        assert_eq!(exchange.poll(&harness), TestStep::Call);
        assert_eq!(exchange.sent(&harness).2, Some(ASKING.replace("\"m\"", "\"n\"")));
        assert_eq!(exchange.draft.call.usage, UsageAsk::Hidden);
    }

    #[test]
    fn the_strictest_of_several_quotas_decides() {
        let quota = |report: &str| json!({ "limit": 100, "window": "1h", "cost": { "usage": "tokens", "report": report } });
        for order in [["a", "b"], ["b", "a"]] {
            let harness = TestFlows::new(json!({
                "quotas": { "a": quota("ask"), "b": quota("ask-and-hide") },
                "flows": [{ "name": "f", "remedies": order.map(|name| json!({ "limit": { "quota": name } })) }],
            }));
            assert_eq!(called(&harness, CHAT, Some(STREAM)).draft.call.usage, UsageAsk::Hidden);
        }
    }

    #[test]
    fn a_preset_decides_whether_its_provider_is_asked() {
        for (preset, is_asked) in [("openai", true), ("mistral", false), ("stripe", false)] {
            let name: PresetName = preset.parse().unwrap();
            assert_eq!(name.preset().reports_when_asked(), is_asked, "{preset}");
        }
    }

    #[test]
    fn a_coded_stream_with_a_hidden_report_is_counted() {
        let harness = harness("ask-and-hide");
        let end = |lines: &str| {
            let mut exchange = called(&harness, CHAT, Some(STREAM));
            exchange.response(&harness, lines);
            let (source, dialect) = (UsageSource::Reported, Some(UsageDialect::Chat));
            exchange.end_after(&harness, lines, UsageRecord { source, dialect, ..UsageRecord::default() });
            harness.decided(0, Decision::Fail)
        };
        assert_eq!(end(EVENTS), 0);
        assert_eq!(end("200\ncontent-type: text/event-stream\ncontent-encoding: gzip"), 1);
    }

    proptest! {
        /// The edited body means the same, apart from the report that it asks for.
        #[test]
        fn only_the_request_for_the_report_is_added(
            options in prop::option::of(prop_oneof![
                Just(json!(null)), Just(json!({})), Just(json!({ "include_obfuscation": false })),
                Just(json!({ "include_usage": false })), Just(json!({ "include_usage": null, "a": [1] })),
            ]),
            text in ".{0,20}",
            is_streamed: bool,
        ) {
            let mut body = json!({ "messages": [{ "content": text }], "stream": is_streamed });
            if let Some(options) = options {
                body["stream_options"] = options;
            }
            let asking = asking(body.to_string().as_bytes());
            if !is_streamed {
                prop_assert_eq!(asking, Err(super::NotAsked::NotStreamed));
                return Ok(());
            }
            let sent: Value = serde_json::from_slice(&asking.unwrap().unwrap()).unwrap();
            if body["stream_options"].is_null() {
                body["stream_options"] = json!({});
            }
            body["stream_options"]["include_usage"] = true.into();
            prop_assert_eq!(sent, body);
        }

        #[test]
        fn no_body_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = asking(&bytes);
        }
    }
}
