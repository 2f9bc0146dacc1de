//! Remedies that cannot be in a flow because of its other keys: `when_response`, a condition on the response,
//! and `match.grpc`, which selects streams of messages.

use egret_config::Problem;
use egret_match::expression::{Expression, Scope, Stage};
use egret_remedy::RemedyConfig;

use crate::config::FlowConfig;

impl FlowConfig {
    /// Compiles `when_response` of the flow with that number, whose match captures these `parameters`. Adds
    /// problems if the expression is invalid, or if the flow has a remedy that cannot depend on it.
    pub(crate) fn condition(
        &self,
        number: usize,
        parameters: &[&str],
        problems: &mut Vec<Problem>,
    ) -> Option<Expression<bool>> {
        let source = self.when_response.as_deref()?;
        for (at, remedy) in self.remedies.iter().enumerate() {
            let path = format!("flows[{number}].remedies[{at}]");
            problems.extend(conflict(remedy, &path));
        }
        let path = format!("flows[{number}].when_response");
        // A transformation sees the response before it is forwarded.
        let has_remedies = !self.remedies.is_empty();
        let stage = if has_remedies { Stage::ResponseHead } else { Stage::Finished };
        match Expression::compile(source, Scope { stage, parameters }) {
            Ok(expression) if has_remedies && expression.needs_request_body() => {
                let message = "`request.body` is not available beside a remedy: use it in `match.when`";
                problems.push(Problem::new(path, message));
                None
            }
            Ok(expression) => Some(expression),
            Err(error) => {
                problems.push(error.at(path));
                None
            }
        }
    }
}

/// Adds the problems of remedies that cannot work on the gRPC calls that the flow with that number matches.
pub(crate) fn check_grpc(flow: &FlowConfig, number: usize, problems: &mut Vec<Problem>) {
    let remedies = flow.remedies.iter().enumerate().filter(|_| flow.matching.grpc.is_some());
    problems.extend(remedies.filter_map(|(at, remedy)| {
        let (key, why) = remedy.conflict_with_grpc()?;
        let (path, what) = place(remedy, &format!("flows[{number}].remedies[{at}]"), key)?;
        let message = format!("{what} cannot work on gRPC calls, which the flow matches: {why}");
        Some(Problem::new(path, message))
    }));
}

/// Returns the path of a remedy's key, which is empty for the remedy as a whole, and its name in a sentence.
fn place(remedy: &RemedyConfig, path: &str, key: &str) -> Option<(String, String)> {
    // An entry with no remedy or several is reported elsewhere.
    let name = remedy.only_key(path, &mut Vec::new())?;
    Some(match key {
        "" => (format!("{path}.{name}"), format!("`{name}`")),
        key => (format!("{path}.{name}.{key}"), format!("`{key}` of `{name}`")),
    })
}

/// Returns the problem of a remedy at `path` in a flow with `when_response`, if it has one.
fn conflict(remedy: &RemedyConfig, path: &str) -> Option<Problem> {
    let (key, why) = remedy.conflict_with_condition()?;
    let (path, what) = place(remedy, path, key)?;
    let message = format!(
        "{what} cannot depend on `when_response`: {why}. Put it into a flow of its own, without `when_response`"
    );
    Some(Problem::new(path, message))
}

#[cfg(test)]
mod tests {
    use egret_message::FailureKind;
    use serde_json::{Value, json};

    use crate::fixture::{TestFlows, TestStep, compiled};

    const GET: &str = "GET https://one.example/users/7";

    /// Returns the problems in a flow with this condition, as `path: message`.
    fn problems(when_response: &str, flow: &Value) -> Vec<String> {
        let mut flow = flow.clone();
        flow["name"] = json!("f");
        flow["when_response"] = json!(when_response);
        compiled(json!({ "flows": [flow] })).err().unwrap_or_default()
    }

    fn marks(name: &str) -> Value {
        json!([{ "transform": { "response": { "headers": { "set": { name: "yes" } } } } }])
    }

    #[test]
    fn a_transformation_changes_only_the_responses_that_meet_the_condition() {
        let flows = TestFlows::new(json!({ "flows": [
            { "name": "paid", "when_response": "response.status == 402", "remedies": marks("x-unpaid") },
            { "name": "slow", "when_response": "response.headers['x-wait'] != ''", "remedies": marks("x-slow") },
        ] }));
        for (response, changes) in [("402", 1), ("402\nX-Wait: 1", 2), ("200", 0), ("200\nX-Wait: 1", 1)] {
            let mut exchange = flows.send(GET);
            assert_eq!(exchange.poll(&flows), TestStep::Call);
            exchange.response(&flows, response);
            assert_eq!(exchange.draft.response.len(), changes, "{response}");
            exchange.end(&flows);
        }
    }

    #[test]
    fn a_condition_sees_the_response_of_inner_flows() {
        let flows = TestFlows::new(json!({ "flows": [
            { "name": "outer", "when_response": "response.headers['x-inner'] == 'yes'", "remedies": marks("x-outer") },
            { "name": "inner", "when_response": "response.status == 418", "remedies": marks("x-inner") },
            { "name": "teapot", "remedies": [{ "fixed-response": { "status": 418 } }] },
        ] }));
        let mut exchange = flows.send(GET);
        assert!(matches!(exchange.poll(&flows), TestStep::Fixed(_)));
        assert_eq!(exchange.draft.response.len(), 2);
        exchange.end(&flows);
    }

    #[test]
    fn a_condition_that_fails_is_counted() {
        let flows = TestFlows::new(json!({ "flows": [
            { "name": "f", "when_response": "int(response.headers['x-used']) > 5", "remedies": marks("x-high") },
        ] }));
        let failures = || flows.flows.snapshot(flows.now, 0).flows[0].match_failures;
        assert_eq!(flows.exchange(GET, "200\nX-Used: many"), TestStep::Response(200));
        assert_eq!(failures(), 1);
        let mut exchange = flows.send(GET);
        assert_eq!(exchange.poll(&flows), TestStep::Call);
        assert_eq!(exchange.failure(&flows, FailureKind::Connect), TestStep::Failure(FailureKind::Connect));
        exchange.end(&flows);
        assert_eq!(failures(), 1);
    }

    #[test]
    fn when_response_is_refused_for_remedies_before_the_response() {
        let found = problems(
            "response.status == 402",
            &json!({ "remedies": [
                { "retry": {} },
                { "transform": { "request": { "headers": { "remove": ["a"] } } } },
                { "transform": { "response": { "headers": { "remove": ["a"] } } } },
            ] }),
        );
        assert_eq!(found.len(), 2, "{found:#?}");
        let retry = "flows[0].remedies[0].retry: `retry` cannot depend on `when_response`: it acts before the \
                     response is known. Put it into a flow of its own, without `when_response`";
        assert_eq!(found[0], retry);
        assert!(found[1].starts_with("flows[0].remedies[1].transform.request: `request` of `transform`"));
        assert!(found[1].contains("the request is already sent when the response is known"), "{found:#?}");
    }

    #[test]
    fn a_remedy_that_cannot_work_on_grpc_is_refused() {
        let found = |remedy: Value| {
            let flow =
                json!({ "name": "f", "match": { "grpc": { "service": "a.B" } }, "remedies": [remedy] });
            compiled(json!({ "flows": [flow] })).err().unwrap_or_default().concat()
        };
        for (remedy, path) in [
            (json!({ "cache": {} }), "cache: `cache`"),
            (
                json!({ "transform": { "request": { "json": { "remove": ["/a"] } } } }),
                "transform.request.json: `request.json` of `transform`",
            ),
            (
                json!({ "transform": { "response": { "json": { "remove": ["/a"] } } } }),
                "transform.response.json: `response.json` of `transform`",
            ),
        ] {
            let problem = found(remedy);
            let expected = format!("flows[0].remedies[0].{path} cannot work on gRPC calls");
            assert!(problem.contains(&expected), "{problem}");
        }
        assert_eq!(found(json!({ "retry": { "on": ["grpc-unavailable"] } })), "");
        assert_eq!(found(json!({ "transform": { "request": { "headers": { "remove": ["a"] } } } })), "");
    }

    #[test]
    fn a_condition_may_use_what_is_known_where_it_is_evaluated() {
        let (diagnosed, changed) = (json!({}), json!({ "remedies": marks("a") }));
        for source in [
            "response.body.error.code == 'x'",
            "response.duration_ms > 1000",
            "response.provider_ms > 10.5",
            "response.error != ''",
            "response.generated",
            "request.body.model == 'x'",
        ] {
            assert_eq!(problems(source, &diagnosed), [""; 0], "{source}");
            let found = problems(source, &changed);
            assert!(found.len() == 1 && found[0].starts_with("flows[0].when_response: "), "{found:?}");
            assert!(found[0].contains("is not available"), "{found:?}");
        }
        for source in ["response.status >= 500", "response.headers.a == request.headers.a && attempt < 3"] {
            assert_eq!(problems(source, &changed), [""; 0], "{source}");
        }
        for (source, message) in [
            ("response.status", "this evaluates to a number"),
            ("response.stat == 1", "there is no variable `response.stat`"),
            ("response.status ==", "this is not valid CEL"),
            ("request.params.id == '7'", "no path or host of a match here has a parameter"),
        ] {
            let found = problems(source, &diagnosed);
            assert!(found.len() == 1 && found[0].contains(message), "{source}: {found:?}");
        }
    }
}
