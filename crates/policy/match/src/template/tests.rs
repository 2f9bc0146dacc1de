use egret_clock::Timestamp;
use egret_fixture::with_request;
use egret_message::{Changes, Fields, Request, Response};
use proptest::prelude::*;

use super::*;
use crate::parameters::Parameters;

const SCOPE: Scope<'_> = Scope { stage: Stage::Response, parameters: &["id"] };

const IDENTIFIERS_OF_TEST: Identifiers<'_> = Identifiers {
    request_id: b"a \"b\"",
    new_uuid: || Some("1b4e28ba-2fa1-41d2-883f-0016d3cca427".to_owned()),
};

fn render_for(lines: &str, text: &str, escape: Escape) -> Result<String, TemplateError> {
    let template = Template::compile(text, escape, SCOPE, "body")
        .unwrap_or_else(|problem| panic!("{text}: {problem:?}"));
    with_request("stripe", lines, |request: &Request<'_>| {
        let changes = Changes::default();
        let response = Response { status: 503, fields: Fields::new(&[], b"", &changes), body: None };
        let mut out = Vec::new();
        template.render(
            &Inputs {
                request,
                response: Some(&response),
                parameters: Parameters::default(),
                attempt: 2,
                now: Timestamp::from_secs(1_700_000_000),
                usage: None,
                ended: None,
            },
            &IDENTIFIERS_OF_TEST,
            &mut out,
        )?;
        Ok(String::from_utf8(out).unwrap())
    })
}

fn render(text: &str, escape: Escape) -> String {
    let lines = "GET https://api.stripe.com/v1/charges?page=2&q=a+%22b%22%0d%0A\nX-Id: 7\nX-Id: 8\nX-Quote: say \"hi\" \\";
    render_for(lines, text, escape).unwrap()
}

fn refusal(text: &str, escape: Escape) -> String {
    let problem = Template::compile(text, escape, SCOPE, "body").expect_err(text);
    assert_eq!(problem.path, "body");
    match problem.suggestion {
        Some(meant) => format!("{} [{meant}]", problem.message),
        None => problem.message,
    }
}

#[test]
fn identifiers_are_inserted_and_escaped() {
    assert_eq!(render("${request.id}/${uuid}", Escape::Text), "a \"b\"/1b4e28ba-2fa1-41d2-883f-0016d3cca427");
    assert_eq!(render("{\"id\": \"${request.id}\"}", Escape::Json), r#"{"id": "a \"b\""}"#);
    assert_eq!(render("${request.id}", Escape::Url), "a%20%22b%22");
    assert!(refusal("{\"id\": ${uuid}}", Escape::Json).contains("must be quoted"));
    assert!(refusal("${uid}", Escape::Text).ends_with("[uuid]"));
}

#[test]
fn values_stand_where_they_are_named() {
    for (text, expected) in [
        ("", ""),
        ("plain $ { } $x", "plain $ { } $x"),
        ("$${request.path}", "${request.path}"),
        (
            "${request.method} ${request.scheme}://${request.host}${request.path}",
            "GET https://api.stripe.com/v1/charges",
        ),
        ("${ request.provider }/${request.consumer}", "stripe/"),
        ("${request.headers.x-id}${request.headers.X-ID}${request.headers.none}", "77"),
        ("${query.page}${request.query.page}${query.none}", "22"),
        ("[${params.id}${request.params.id}]", "[]"),
        ("${response.status} ${attempt} ${now}", "503 2 1700000000"),
    ] {
        assert_eq!(render(text, Escape::Text), expected, "{text}");
    }
}

#[test]
fn values_are_escaped_for_where_they_go() {
    assert_eq!(render(r#"{"q":"${request.headers.x-quote}"}"#, Escape::Json), r#"{"q":"say \"hi\" \\"}"#);
    assert_eq!(render(r#"{"q":"${query.q}"}"#, Escape::Json), r#"{"q":"a \"b\"\u000d\u000a"}"#);
    assert_eq!(render(r#"{"at":${now},"\"":"${attempt}"}"#, Escape::Json), r#"{"at":1700000000,"\"":"2"}"#);
    assert_eq!(render("/v2/${request.path}", Escape::Url), "/v2/%2Fv1%2Fcharges");
    assert_eq!(render("id=${request.headers.x-id}", Escape::Field), "id=7");
    assert_eq!(
        render_for("GET http://h/?a=%0d%0aX:1", "${query.a}", Escape::Field),
        Err(TemplateError::Control)
    );
}

#[test]
fn an_invalid_template_is_refused_with_suggestions() {
    for (text, escape, message) in [
        ("${request.pth}", Escape::Text, "unknown value `request.pth` in a template [request.path]"),
        (
            "${request.header.x}",
            Escape::Text,
            "unknown value `request.header` in a template [request.headers]",
        ),
        ("${parms.id}", Escape::Text, "unknown value `parms.id` in a template [params.id]"),
        ("${params.idd}", Escape::Text, "no path or host of a match here has a parameter `{idd}` [id]"),
        (
            "${request.headers}",
            Escape::Text,
            "unknown value `request.headers` in a template: add the name of an entry, as in `request.headers.accept`",
        ),
        ("${request.body}", Escape::Text, "bodies are not available in templates"),
        ("${}", Escape::Text, "unknown value `` in a template"),
        ("${request.path", Escape::Text, "`${` without `}`: write `$${` for a literal `${`"),
        ("${file:/key}", Escape::Text, "`${file:/key}` is not available in templates: use `${env:NAME}`"),
        ("${vault:a#b}", Escape::Text, "`${vault:a#b}` is not available in templates: use `${env:NAME}`"),
        ("${env:EGRET_NONE}", Escape::Text, "the environment variable EGRET_NONE is not set"),
        ("${env:}", Escape::Text, "`${env:}` names no variable: write `${env:NAME}`"),
        (
            "${env:EGRET_NONE:-a\nb}",
            Escape::Field,
            "a value contains control characters, which are not allowed in a header field",
        ),
        (
            "{\"a\":${env:CARGO_PKG_NAME}}",
            Escape::Json,
            "a text value in JSON must be quoted: write `\"${env:CARGO_PKG_NAME}\"`",
        ),
        (
            "${response.duration_ms}",
            Escape::Text,
            "`response.duration_ms` is not available in templates: it is known at the end",
        ),
        ("a\nb", Escape::Field, "control characters, such as line ends, are not allowed in a header field"),
        ("{\"a\":${query.a}}", Escape::Json, "a text value in JSON must be quoted: write `\"${query.a}\"`"),
        (
            "{\"a\\\"\":${query.a}}",
            Escape::Json,
            "a text value in JSON must be quoted: write `\"${query.a}\"`",
        ),
    ] {
        assert_eq!(refusal(text, escape), message, "{text}");
    }
    let before = Scope { stage: Stage::Request, parameters: &[] };
    let problem = Template::compile("${response.status}", Escape::Text, before, "body").unwrap_err();
    assert_eq!(
        problem.message,
        "`response.status` is not available here: this template is rendered before the call"
    );
    assert!(refusal(&"${now}a".repeat(VALUES_MAX + 1), Escape::Text).contains("must not exceed 256 values"));
    assert!(
        refusal(&"a".repeat(TEMPLATE_BYTES_MAX + 1), Escape::Text).contains("must not exceed 65536 bytes")
    );
}

#[test]
fn a_value_of_the_environment_is_read_once_and_never_shown() {
    let name = env!("CARGO_PKG_NAME");
    let template = Template::compile("a ${env:CARGO_PKG_NAME} b", Escape::Text, SCOPE, "body").unwrap();
    assert_eq!(template.as_literal(), None);
    let shown = format!("{template:?} {:?}", template.literals().collect::<Vec<_>>());
    assert!(!shown.contains(name) && shown.contains("${env:CARGO_PKG_NAME}"), "{shown}");
    let render = |text: &str, escape| render_for("GET http://h/", text, escape).unwrap();
    assert_eq!(render("a ${env:CARGO_PKG_NAME} b", Escape::Text), format!("a {name} b"));
    assert_eq!(render("${env:CARGO_PKG_NAME:-other}", Escape::Text), name);
    // A default is escaped for its place, like any value.
    assert_eq!(render("/${env:EGRET_NONE:-a/b c}", Escape::Url), "/a%2Fb%20c");
    assert_eq!(render(r#"{"a":"${env:EGRET_NONE:-say "x"}"}"#, Escape::Json), r#"{"a":"say \"x\""}"#);
    assert_eq!(render("[${env:EGRET_NONE:-}]", Escape::Text), "[]");
}

#[test]
fn a_result_is_bounded() {
    let lines = format!("GET http://h/\nX-Long: {}", "a".repeat(8_000));
    let template = "${request.headers.x-long}".repeat(VALUES_MAX);
    assert_eq!(render_for(&lines, &template, Escape::Text), Err(TemplateError::TooLong));
}

proptest! {
    #[test]
    fn inserted_values_stay_inside_their_json_text(value in "[ -~]{0,20}", encoded in prop::collection::vec(any::<u8>(), 0..20)) {
        let percent: String = encoded.iter().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
        let lines = format!("GET http://h/?a={percent}\nX-A: {value}");
        let json = render_for(&lines, r#"["${request.headers.x-a}","${query.a}"]"#, Escape::Json).unwrap();
        let parsed: Vec<String> = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(parsed, [value.trim().to_owned(), String::from_utf8_lossy(&encoded).into_owned()]);
    }

    #[test]
    fn any_template_compiles_or_is_refused(text in "[${}a.\"\\\\ ]{0,24}|\\$\\{(request|query|params|now|env|file|response)[.:a-z-]{0,10}\\}") {
        for escape in [Escape::Text, Escape::Json, Escape::Field, Escape::Url] {
            let _ = Template::compile(&text, escape, SCOPE, "body");
        }
    }
}
