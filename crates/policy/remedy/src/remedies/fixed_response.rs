//! `fixed-response`: sends a fixed response without calling the provider. Its header fields and its body are
//! templates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_match::template::Template;
use egret_message::{Fault, Fixed};

use crate::exchange::Exchange;
use crate::local_response::LocalResponse;
use crate::remedy::{CompileContext, Remedy, Step};

egret_config::keys! {
    /// A response written in the config.
    #[derive(Eq)]
    pub struct FixedResponseConfig {
        /// Status code, 200 to 599.
        #[schemars(range(min = 200, max = 599))]
        pub status: u16 = 200,
        /// Header fields. The values are templates: `${request.headers.x-id}` is the value of that field.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub headers: BTreeMap<String, String>,
        /// Body, also a template. Values are escaped for JSON or `application/x-www-form-urlencoded` if
        /// `content-type` among the header fields says so. Markup, scripts and multipart bodies cannot
        /// contain templates.
        #[serde(deserialize_with = "egret_config::verbatim")]
        pub body: String,
    }
}

/// Sends a fixed response.
#[derive(Debug)]
pub struct FixedResponse {
    response: ResponseTemplate,
}

impl Remedy for FixedResponse {
    type Config = FixedResponseConfig;
    type Run = ();

    fn compile(config: &FixedResponseConfig, context: &mut CompileContext<'_>) -> Option<Self> {
        ResponseTemplate::compile(config, "", false, context).map(|response| Self { response })
    }

    fn describe(&self) -> String {
        format!("responds with {} without calling the provider", self.response.status())
    }

    fn request(&self, exchange: &mut Exchange<'_>, _held: &mut (), _cx: &mut Context<'_>) -> Poll<Step> {
        Poll::Ready(match self.response.render(exchange) {
            Ok(fixed) => Step::LocalResponse(Box::new(LocalResponse::Fixed(fixed))),
            Err(fault) => Step::Fail(fault),
        })
    }
}

/// A compiled response.
#[derive(Debug)]
pub(crate) enum ResponseTemplate {
    /// Without template values.
    Fixed(Arc<Fixed>),
    /// With values from the exchange.
    Open { status: u16, fields: Vec<(String, Template)>, body: Template },
}

impl ResponseTemplate {
    /// Compiles the response `config`, whose keys have the prefix `at` in the remedy's config. `has_response`
    /// is `true` if it is rendered after a call.
    pub fn compile(
        config: &FixedResponseConfig,
        at: &str,
        has_response: bool,
        context: &mut CompileContext<'_>,
    ) -> Option<Self> {
        let before = context.problems.len();
        if !(200..=599).contains(&config.status) {
            context.problem(&format!("{at}status"), "the status of a final response must be from 200 to 599");
        }
        let headers = format!("{at}headers");
        let mut fields: Vec<(String, Template)> = Vec::with_capacity(config.headers.len());
        for (name, value) in &config.headers {
            if fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                context.problem(&format!("{headers}.{name}"), "is listed twice: names are case-insensitive");
            }
            let value = context.field_template(&headers, name, value, has_response);
            fields.extend(value.map(|value| (name.clone(), value)));
        }
        let content_type = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let content_type = content_type.map(|(_, value)| value);
        let body = context.body_template(&format!("{at}body"), &config.body, content_type, has_response)?;
        if context.problems.len() > before {
            return None;
        }
        let open = Self::Open { status: config.status, fields, body };
        Some(open.literal().map_or(open, |fixed| Self::Fixed(Arc::new(fixed))))
    }

    /// Returns the response if it has no template values.
    fn literal(&self) -> Option<Fixed> {
        let Self::Open { status, fields, body } = self else { return None };
        let bytes = |template: &Template| Some(template.as_literal()?.as_bytes().to_vec());
        let fields = fields.iter().map(|(name, value)| Some((name.clone().into(), bytes(value)?)));
        Some(Fixed { status: *status, fields: fields.collect::<Option<_>>()?, body: bytes(body)? })
    }

    /// Status code.
    pub fn status(&self) -> u16 {
        match self {
            Self::Fixed(fixed) => fixed.status,
            Self::Open { status, .. } => *status,
        }
    }

    /// Renders the response for `exchange`.
    pub fn render(&self, exchange: &Exchange<'_>) -> Result<Arc<Fixed>, Fault> {
        let (status, fields, body) = match self {
            Self::Fixed(fixed) => return Ok(Arc::clone(fixed)),
            Self::Open { status, fields, body } => (*status, fields, body),
        };
        let fields = fields
            .iter()
            .map(|(name, value)| Ok((name.clone().into(), exchange.render(value)?.into_owned())));
        let fields = fields.collect::<Result<_, Fault>>()?;
        Ok(Arc::new(Fixed { status, fields, body: exchange.render(body)?.into_owned() }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use egret_fixture::{TestFlows, TestStep, problems};
    use egret_message::{ErrorKind, Fixed};

    fn answer(response: &Value, lines: &str) -> Fixed {
        let harness = TestFlows::new(json!({ "flows": [{
            "name": "f",
            "match": { "path": ["/users/{id}", "/teams/{team}/*"] },
            "remedies": [{ "fixed-response": response }],
        }]}));
        let TestStep::Fixed(fixed) = harness.exchange(lines, "200") else { panic!() };
        Fixed::clone(&fixed)
    }

    fn body(response: &Value, lines: &str) -> String {
        String::from_utf8(answer(response, lines).body).unwrap()
    }

    #[test]
    fn values_of_the_exchange_stand_in_fields_and_body() {
        let response = json!({
            "status": 202,
            "headers": { "location": "/jobs/${params.id}", "x-plain": "as is" },
            "body": "${request.method} ${params.id}|${params.team} ${query.page} ${request.headers.x-id}",
        });
        let fixed = answer(&response, "GET https://one.example/users/7?page=2\nX-Id: a");
        let fields: Vec<_> = fixed.fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(fixed.status, 202);
        assert_eq!(fields, [("location", &b"/jobs/7"[..]), ("x-plain", b"as is")]);
        assert_eq!(fixed.body, b"GET 7| 2 a");
        assert_eq!(body(&response, "GET https://one.example/teams/blue/x"), "GET |blue  ");
    }

    #[test]
    fn values_are_escaped_for_what_the_content_type_says() {
        let lines = "GET https://one.example/users/a%22b%26c";
        let body = |media_type: &str, text: &str| {
            body(&json!({ "headers": { "Content-Type": media_type }, "body": text }), lines)
        };
        assert_eq!(body("application/json", r#"{"id":"${params.id}"}"#), r#"{"id":"a\"b&c"}"#);
        assert_eq!(body("application/x-www-form-urlencoded", "id=${params.id}"), "id=a%22b%26c");
        assert_eq!(body("text/plain", "${params.id}"), "a\"b&c");
        assert_eq!(body("text/html", "<p>$${params.id}"), "<p>${params.id}");
    }

    #[test]
    fn a_failed_template_passes_or_refuses_the_exchange() {
        let lines = "GET https://one.example/?a=%0d%0aX:1";
        let harness = |on_error: &str| {
            TestFlows::with(&json!([
                { "fixed-response": { "headers": { "x-a": "${query.a}" } }, "on_error": on_error },
            ]))
        };
        let open = harness("open");
        assert_eq!(open.exchange(lines, "200"), TestStep::Response(200));
        let closed = harness("closed");
        assert_eq!(closed.exchange(lines, "200").refusal(&closed).0, ErrorKind::RemedyFailed);
    }

    #[test]
    fn nonsense_is_refused_where_it_stands() {
        let found = problems(&json!([
            { "fixed-response": { "headers": { "x-a": "${params.idd}", "two words": "" } } },
            { "fixed-response": { "headers": { "x-a": "", "X-A": "" }, "body": "${response.status}" } },
            { "fixed-response": { "headers": { "content-type": "text/html" }, "body": "<p>${params.id}" } },
            { "fixed-response": { "headers": { "content-type": "${query.a}" }, "body": "${params.id}" } },
            { "fixed-response": { "headers": { "content-type": "application/json" }, "body": "{\"a\":${params.id}}" } },
            { "fixed-response": { "headers": { "content-length": "1" } } },
        ]));
        let places: Vec<_> = found.iter().map(|problem| problem.split(": ").next().unwrap()).collect();
        let expected = [
            (0, "headers.two words"),
            (0, "headers.x-a"),
            (1, "headers.x-a"),
            (1, "body"),
            (2, "body"),
            (3, "body"),
            (4, "body"),
            (5, "headers.content-length"),
        ];
        let expected = expected.map(|(at, key)| format!("flows[0].remedies[{at}].fixed-response.{key}"));
        assert_eq!(places, expected, "{found:#?}");
        assert!(found[1].contains("no path or host of a match here has a parameter `{idd}`"), "{found:#?}");
    }
}
