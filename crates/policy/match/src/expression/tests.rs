use std::fmt;

use egret_clock::Timestamp;
use egret_fixture::with_request;
use egret_message::{Changes, Fields, Request, Response};
use egret_usage::{UsageRecord, UsageSource};
use proptest::prelude::*;

use super::*;
use crate::parameters::Parameters;

const SCOPE: Scope<'_> = Scope { stage: Stage::Finished, parameters: &["id"] };

const REQUEST: &str = "POST https://api.stripe.com/v1/charges?limit=10&expand%5B%5D=a+b\n\
                       X-Tier: gold\nX-Tier: silver\nX-Egret-Consumer: billing";

fn evaluate_on<T: ExpressionValue>(source: &str, body: Option<&[u8]>) -> Result<T, EvaluationError> {
    let expression =
        Expression::<T>::compile(source, SCOPE).unwrap_or_else(|error| panic!("{source}: {error}"));
    with_request("stripe", REQUEST, |request| {
        let changes = Changes::default();
        let fields = Fields::new(&[], b"", &changes);
        let response = Response {
            status: 429,
            fields,
            body: Some(br#"{"error":{"code":"rate"},"usage":{"tokens":12}}"#),
        };
        let request = Request { body, ..*request };
        let usage = UsageRecord {
            input: 11,
            cache_read: 4,
            output: 30,
            reasoning: 8,
            model: Some("large-2".into()),
            source: UsageSource::Reported,
            ..UsageRecord::default()
        };
        expression.evaluate(&Inputs {
            request: &request,
            response: Some(&response),
            parameters: Parameters::default(),
            attempt: 2,
            now: Timestamp::from_secs(1_000_000),
            usage: Some(&usage),
            ended: Some(ENDED),
        })
    })
}

const ENDED: Ended<'_> = Ended {
    duration_ms: 1_500.25,
    provider_ms: 40.0,
    error: "first-byte-timeout",
    is_generated: true,
    grpc_status: "unavailable",
};

const BODY: &[u8] = br#"{"model":"large","amount":250,"items":[{"price":5},{"price":7}],"ratio":0.5,"big":18446744073709551615}"#;

fn is(source: &str) -> Result<bool, EvaluationError> {
    evaluate_on(source, Some(BODY))
}

fn refusal<T: ExpressionValue + fmt::Debug>(source: &str) -> String {
    Expression::<T>::compile(source, SCOPE).expect_err(source).to_string()
}

#[test]
fn every_variable_is_what_its_name_says() {
    for source in [
        "request.method == 'POST'",
        "request.path == '/v1/charges' && request.path.startsWith('/v1/')",
        "request.host == 'api.stripe.com' && request.scheme == 'https'",
        "request.provider == 'stripe' && request.consumer == 'billing'",
        "request.headers['x-tier'] == 'gold' && request.headers[\"X-TIER\"] == 'gold'",
        "has(request.headers.host) && 'host' in request.headers",
        "request.query.limit == '10' && request.query['expand[]'] == 'a b'",
        "int(request.query.limit) + 1 == 11",
        "request.body.model == 'large' && request.body.amount > 200",
        "request.body.items[1].price == 7 && size(request.body.items) == 2",
        "request.body.ratio < 1 && request.body.big > 5u",
        "response.status == 429 && response.status in [429, 503]",
        "response.body.error.code == 'rate'",
        "response.duration_ms > 1000 && response.duration_ms < 1500.5 && response.provider_ms == 40",
        "response.error == 'first-byte-timeout' && response.error.endsWith('timeout') && response.generated",
        "grpc.service == '' && grpc.method == '' && grpc.status == 'unavailable'",
        "attempt == 2 && now == 1000000 && now % 86400 / 3600 == 13",
    ] {
        assert_eq!(is(source), Ok(true), "{source}");
    }
}

#[test]
fn a_variable_of_a_later_stage_is_refused() {
    let refusal = |source: &str, stage| {
        let scope = Scope { stage, parameters: &[] };
        Expression::<bool>::compile(source, scope).map(drop).map_err(|error| error.message)
    };
    let known_from = [
        ("response.status == 1", Stage::ResponseHead),
        ("response.headers.a == ''", Stage::ResponseHead),
        ("response.body.a == 1", Stage::Response),
        ("response.duration_ms > 1", Stage::Finished),
        ("response.provider_ms > 1", Stage::Finished),
        ("response.error == ''", Stage::Finished),
        ("response.generated", Stage::Finished),
        ("grpc.service == ''", Stage::Request),
        ("grpc.method == ''", Stage::Request),
        ("grpc.status == ''", Stage::Finished),
    ];
    for (source, first) in known_from {
        for stage in [Stage::Request, Stage::ResponseHead, Stage::Response, Stage::Finished] {
            match refusal(source, stage) {
                Ok(()) => assert!(stage >= first, "{source} at {stage:?}"),
                Err(message) => {
                    assert!(stage < first, "{source} at {stage:?}");
                    assert!(message.contains("is not available: this expression is evaluated"), "{message}");
                }
            }
        }
    }
}

#[test]
fn missing_fields_are_empty_and_missing_members_are_errors() {
    for source in [
        "request.headers.nothing == ''",
        "request.headers['nothing'] == ''",
        "!has(request.headers.nothing) && !('nothing' in request.headers)",
        "request.query.nothing == '' && request.params.id == ''",
        "!has(request.body.nothing)",
        "has(request.body.nothing) || true",
    ] {
        assert_eq!(is(source), Ok(true), "{source}");
    }
    assert_eq!(is("request.body.nothing == 1"), Err(EvaluationError::Missing));
    assert_eq!(is("request.body.items[2] == 1"), Err(EvaluationError::Missing));
    for body in [None, Some(&b"not json"[..]), Some(b"null"), Some(b"")] {
        assert_eq!(evaluate_on("request.body == null", body), Ok(true));
    }
}

#[test]
fn lists_and_maps_can_be_gone_through() {
    for source in [
        "request.body.items.exists(item, item.price == 7)",
        "request.body.items.all(item, item.price > 4)",
        "request.body.items.map(item, item.price) == [5, 7]",
        "request.body.items.filter(item, item.price > 5) == [{'price': 7}]",
        "request.body.items.exists_one(item, item.price + request.body.amount == 257)",
        "request.body.exists(key, key == 'model')",
        "[1, 2].map(x, [3, 4].map(y, x * y)) == [[3, 4], [6, 8]]",
        "[1, 2].exists(x, request.headers['x-tier'] == 'gold' && x == 2)",
    ] {
        assert_eq!(is(source), Ok(true), "{source}");
    }
}

#[test]
fn a_cost_is_a_number_and_a_key_is_a_text() {
    let cost = |source| evaluate_on::<u64>(source, Some(BODY));
    assert_eq!(cost("response.body.usage.tokens * 2"), Ok(24));
    assert_eq!(cost("request.body.ratio * 3.0"), Ok(2));
    assert_eq!(cost("18446744073709551615u"), Ok(u64::MAX));
    for (source, error) in [
        ("1 - 2", EvaluationError::Outcome),
        ("0.0 / 0.0", EvaluationError::Outcome),
        ("1e300", EvaluationError::Outcome),
        ("request.body.model", EvaluationError::Outcome),
        ("1 / (attempt - 2)", EvaluationError::Arithmetic),
        ("9223372036854775807 + attempt", EvaluationError::Arithmetic),
        ("attempt * 1.5", EvaluationError::Types),
        ("request.body.model - 1", EvaluationError::Types),
    ] {
        assert_eq!(cost(source), Err(error), "{source}");
    }
    let key = |source| evaluate_on::<String>(source, Some(BODY));
    assert_eq!(key("request.headers['x-tier'] + ':' + request.body.model").as_deref(), Ok("gold:large"));
    assert_eq!(key("request.body.amount").as_deref(), Ok("250"));
    assert_eq!(key("request.body.items"), Err(EvaluationError::Outcome));
}

#[test]
fn wrong_names_and_types_are_refused_with_suggestions() {
    for (source, message) in [
        ("request.pth == 'a'", "there is no variable `request.pth`; did you mean `request.path`?"),
        ("request.header.x == 'a'", "there is no variable `request.header`; did you mean `request.headers`?"),
        ("reqest.path == 'a'", "there is no variable `reqest.path`; did you mean `request.path`?"),
        ("atempt == 1", "there is no variable `atempt`; did you mean `attempt`?"),
        ("request == 1", "`request` is not a value: use a member of it, like `request.headers`"),
        (
            "request.params.idd == 'a'",
            "no path or host of a match here has a parameter `{idd}`; did you mean `id`?",
        ),
        ("request.params['x'] == 'a'", "no path or host of a match here has a parameter `{x}`"),
        ("request.path.startWith('a')", "there is no function `startWith`; did you mean `startsWith`?"),
        ("request.path.has('a')", "wrong use of `has`: write it like `has(request.headers.accept)`"),
        (
            "request.headers.exists(h, h == 'a')",
            "headers, query and params cannot be iterated: look up values by name",
        ),
        ("[1].exists(now, now == 1)", "`now` is already a variable: choose another name"),
        (
            "request.path",
            "this evaluates to text, but true or false is expected: compare it, with `==` for example",
        ),
        (
            "1 + 1",
            "this evaluates to a number, but true or false is expected: compare it, with `==` for example",
        ),
        (
            "true ? 1 : 2",
            "this evaluates to a number, but true or false is expected: compare it, with `==` for example",
        ),
    ] {
        assert_eq!(refusal::<bool>(source), message, "{source}");
    }
    assert_eq!(
        refusal::<u64>("attempt > 1"),
        "this evaluates to true or false, but a non-negative number is expected"
    );
    assert!(
        refusal::<String>("request.headers").starts_with("this evaluates to a list, a map or another type")
    );
    let before = Scope { stage: Stage::Request, parameters: &[] };
    let error = Expression::<bool>::compile("response.status == 1", before).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`response.status` is not available: this expression is evaluated before the call"
    );
}

#[test]
fn invalid_cel_is_refused_with_its_place() {
    for (source, start) in [
        ("request.path === 'a'", "`===` is not an operator: write `==` (column 14)"),
        (
            "request.method == 'GET' &&\nrequest.path = 1",
            "`=` is not an operator: write `==` (line 2, column 14)",
        ),
        ("request.method == 'GET' and attempt > 1", "`and` is not an operator: write `&&` (column 25)"),
        ("not has(request.body.a)", "`not` is not an operator: write `!` (column 1)"),
        ("'abc", "the text that begins here has no closing `'` (column 1)"),
        ("", "the expression is empty (column 1)"),
        ("request.method ==", "a value is missing after `==` (column 18)"),
        ("== 'GET'", "a value is missing before `==` (column 1)"),
        ("request.path.contains(", "`(` has no closing `)` (column 22)"),
        ("(attempt > 1]", "`]` does not close `(`: write `)` (column 13)"),
        ("attempt > 1)", "`)` closes nothing: remove it (column 12)"),
        ("attempt 1", "an operator is missing between `attempt` and `1`, such as `==` or `&&` (column 9)"),
        ("size(request.path) > 1 # long", "`#` has no meaning in CEL (column 24)"),
        ("for == 1", "`for` is a reserved word of CEL (column 1)"),
        ("attempt == 99999999999999999999", "this number does not fit into 64 bits (column 12)"),
    ] {
        let message = refusal::<bool>(source);
        let message = message.strip_prefix("this is not valid CEL: ").unwrap_or(&message);
        assert_eq!(message, start, "{source}");
    }
    assert!(refusal::<bool>(&"a".repeat(EXPRESSION_BYTES_MAX + 1)).contains("at most 2048 bytes"));
    assert!(refusal::<bool>(&"(".repeat(EXPRESSION_BYTES_MAX)).starts_with("this is not valid CEL"));
    assert!(refusal::<bool>(&"!".repeat(EXPRESSION_BYTES_MAX)).starts_with("this is not valid CEL"));
}

#[test]
fn an_expression_says_which_bodies_it_needs() {
    for (source, request, response_body, response) in [
        ("request.path == ''", false, false, false),
        ("request.body.a == 1", true, false, false),
        ("response.status == 1", false, false, true),
        ("[1].exists(x, response.body.a == x)", false, true, true),
        ("has(response.headers.a)", false, false, true),
    ] {
        let expression = Expression::<bool>::compile(source, SCOPE).unwrap();
        assert_eq!(expression.needs_request_body(), request, "{source}");
        assert_eq!(expression.needs_response_body(), response_body, "{source}");
        assert_eq!(expression.needs_response(), response, "{source}");
    }
}

#[test]
fn no_body_makes_an_expression_run_long() {
    let many = format!("{{\"items\":[{}0],\"text\":\"{}\"}}", "1,".repeat(100_000), "x".repeat(500_000));
    for source in [
        "request.body.items.all(x, request.body.items.all(y, x + y < 9))",
        "request.body.items.all(x, request.body.text.contains('y' + request.body.text) || true)",
        "size(request.body.items.map(x, request.body.text)) > 0",
        "size(request.body.items.map(x, request.body)) > 0",
        "request.body.items.all(x, [request.body.items, request.body.items] != [])",
        "size([1].map(a, [a,a,a,a,a,a,a,a]).map(a, [a,a,a,a,a,a,a,a]).map(a, [a,a,a,a,a,a,a,a]).map(a, [a,a,a,a,a,a,a,a])\
         .map(a, [a,a,a,a,a,a,a,a]).map(a, [a,a,a,a,a,a,a,a]).map(a, [a,a,a,a,a,a,a,a]).map(a, [a,a,a,a,a,a,a,a])) > 0",
        "size(['x'].map(a, a+a+a+a+a+a+a+a).map(a, a+a+a+a+a+a+a+a).map(a, a+a+a+a+a+a+a+a).map(a, a+a+a+a+a+a+a+a)\
         .map(a, a+a+a+a+a+a+a+a).map(a, a+a+a+a+a+a+a+a).map(a, a+a+a+a+a+a+a+a).map(a, a+a+a+a+a+a+a+a)\
         .map(a, a+a+a+a+a+a+a+a).map(a, a+a+a+a+a+a+a+a)) > 0",
    ] {
        assert_eq!(
            evaluate_on::<bool>(source, Some(many.as_bytes())),
            Err(EvaluationError::Budget),
            "{source}"
        );
    }
    let long = format!("\"{}\"", "x".repeat(EXPRESSION_BODY_BYTES_MAX));
    assert_eq!(
        evaluate_on::<bool>("request.body == ''", Some(long.as_bytes())),
        Err(EvaluationError::BodyTooLong)
    );
    let ordinary = format!("{{\"items\":[{}0]}}", "{\"price\":1},".repeat(10_000));
    assert_eq!(evaluate_on("size(request.body.items) == 10001", Some(ordinary.as_bytes())), Ok(true));
    assert_eq!(evaluate_on("request.body.items.exists(x, x == 0)", Some(ordinary.as_bytes())), Ok(true));
}

#[test]
fn deep_json_is_no_json() {
    let deep = "[".repeat(100_000);
    assert_eq!(evaluate_on("request.body == null", Some(deep.as_bytes())), Ok(true));
}

#[test]
fn an_error_says_nothing_of_the_message() {
    let secret = br#"{"card":"4242"}"#;
    let error = evaluate_on::<bool>("request.body.card - 1 == 0", Some(secret)).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("4242"));
}

proptest! {
    #[test]
    fn any_expression_is_evaluated_without_a_panic(
        words in prop::collection::vec(prop::sample::select(vec![
            "request", "response", ".body", ".duration_ms", ".error", ".generated", ".status", ".headers", ".path", ".query", "['x']", "[0]", ".x", "(", ")", "[", "]", "{", "}", ":", ",",
            " == ", " && ", " || ", " ? ", "!", "-", " + ", " * ", " / ", " % ", " in ", " < ", "1", "0", "2u", "1.5", "'a'", "b'a'", "true", "null",
            "size(", "has(", "int(", "string(", "type(", "dyn(", ".all(x, ", ".map(x, ", ".exists(x, ", ".filter(x, ", "x", ".contains(", "attempt", "now",
            "9223372036854775807", "-9223372036854775808", "duration('1s')", "Msg{", "`a`", "\"", "'''", "\\", "\u{e9}", ".?x", "[?0]",
        ]), 0..14),
        body in prop::sample::select(vec![r#"{"x":[1,{"x":"a"}]}"#, "[[1],[2]]", "1", "\"a\"", "null"]),
    ) {
        let source = words.concat();
        if Expression::<bool>::compile(&source, SCOPE).is_ok() {
            let _ = evaluate_on::<bool>(&source, Some(body.as_bytes()));
        }
        let _ = Expression::<u64>::compile(&source, SCOPE);
    }
}

#[test]
fn usage_is_seen_at_the_end_of_the_response() {
    assert_eq!(evaluate_on("usage.input + usage.output", None), Ok(41_u64));
    for source in [
        "usage.cached == 4 && usage.reasoning == 8",
        "usage.model == 'large-2' && usage.source == 'reported'",
    ] {
        assert_eq!(is(source), Ok(true), "{source}");
    }
    assert_eq!(refusal::<u64>("usage"), "`usage` is not a value: use a member of it, like `usage.input`");
    let early = Scope { stage: Stage::Response, parameters: &[] };
    let error = Expression::<u64>::compile("usage.input", early).unwrap_err();
    assert!(error.to_string().starts_with("`usage.input` is not available"), "{error}");
    let late = Scope { stage: Stage::ResponseEnd, parameters: &[] };
    let expression = Expression::<u64>::compile("usage.input", late).unwrap();
    assert!(expression.needs_usage() && expression.needs_response() && !expression.needs_response_body());
}
