//! Lunar's JSON paths into an API call (`$.response.body.usage.total_tokens`) as expressions and pointers.

use crate::emit::Figure;

/// The message that a path leads into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageSide {
    Request,
    Response,
}

/// A part of an API call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallPath {
    pub side: MessageSide,
    pub part: MessagePart,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MessagePart {
    Header(String),
    Query(String),
    PathParameter(String),
    Method,
    Host,
    Path,
    Status,
    Body(Vec<PathStep>),
}

/// A step into a JSON body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    Name(String),
    Index(usize),
}

impl CallPath {
    /// Parses a path; `None` if it selects several places, or is none into an API call.
    pub fn parse(text: &str) -> Option<Self> {
        let steps = steps(text.trim().strip_prefix('$')?)?;
        let mut names = steps.iter();
        let side = match names.next()? {
            PathStep::Name(name) if name == "request" => MessageSide::Request,
            PathStep::Name(name) if name == "response" => MessageSide::Response,
            _ => return None,
        };
        let PathStep::Name(part) = names.next()? else { return None };
        let rest: Vec<PathStep> = names.cloned().collect();
        let name = |make: fn(String) -> MessagePart| match rest.as_slice() {
            [PathStep::Name(name)] => Some(make(name.clone())),
            _ => None,
        };
        let alone = |part: MessagePart| rest.is_empty().then_some(part);
        let part = match (part.as_str(), side) {
            ("headers" | "header", _) => name(|name| MessagePart::Header(name.to_ascii_lowercase())),
            ("query_param" | "query_params" | "query", MessageSide::Request) => name(MessagePart::Query),
            ("path_params" | "path_param", MessageSide::Request) => name(MessagePart::PathParameter),
            ("method", MessageSide::Request) => alone(MessagePart::Method),
            ("host", MessageSide::Request) => alone(MessagePart::Host),
            ("path", MessageSide::Request) => alone(MessagePart::Path),
            ("status" | "status_code", MessageSide::Response) => alone(MessagePart::Status),
            ("body" | "parsed_body", _) => Some(MessagePart::Body(rest.clone())),
            _ => None,
        };
        Some(Self { side, part: part? })
    }

    /// The CEL expression of its value.
    pub fn cel(&self) -> String {
        let side = match self.side {
            MessageSide::Request => "request",
            MessageSide::Response => "response",
        };
        match &self.part {
            MessagePart::Header(name) => format!("{side}.headers[{}]", quoted(name)),
            MessagePart::Query(name) => format!("{side}.query[{}]", quoted(name)),
            MessagePart::PathParameter(name) => format!("{side}.params[{}]", quoted(name)),
            MessagePart::Method => format!("{side}.method"),
            MessagePart::Host => format!("{side}.host"),
            MessagePart::Path => format!("{side}.path"),
            MessagePart::Status => format!("{side}.status"),
            MessagePart::Body(steps) => steps.iter().fold(format!("{side}.body"), |path, step| match step {
                PathStep::Name(name) if is_identifier(name) => format!("{path}.{name}"),
                PathStep::Name(name) => format!("{path}[{}]", quoted(name)),
                PathStep::Index(index) => format!("{path}[{index}]"),
            }),
        }
    }

    /// The source of a figure.
    pub fn source(&self) -> Figure {
        match (&self.part, self.side) {
            (MessagePart::Header(name), MessageSide::Request) => Figure::RequestHeader(name.clone()),
            (MessagePart::Header(name), MessageSide::Response) => Figure::Header(name.clone()),
            _ => Figure::Cel(self.cel()),
        }
    }

    /// The JSON pointer of a place in a body.
    pub fn pointer(&self) -> Option<String> {
        let MessagePart::Body(steps) = &self.part else { return None };
        Some(steps.iter().fold(String::new(), |path, step| match step {
            PathStep::Name(name) => format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")),
            PathStep::Index(index) => format!("{path}/{index}"),
        }))
    }
}

/// A text in CEL.
pub(super) fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    let inner = json.trim_start_matches('"');
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    if inner.contains(['\\', '\'']) { json } else { format!("'{inner}'") }
}

fn is_identifier(name: &str) -> bool {
    const RESERVED: [&str; 5] = ["in", "true", "false", "null", "as"];
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
        && !RESERVED.contains(&name)
}

/// The steps after `$`: `.name`, `["name"]`, `[0]`.
fn steps(mut rest: &str) -> Option<Vec<PathStep>> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let name = &after[..end];
            let is_plain = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
            steps.push(is_plain.then(|| PathStep::Name(name.to_owned()))?);
            rest = &after[end..];
        } else {
            let after = rest.strip_prefix('[')?;
            let (step, remaining) = if let quote @ ('"' | '\'') = after.chars().next()? {
                let (name, remaining) = after[1..].split_once(quote)?;
                (PathStep::Name(name.to_owned()), remaining.strip_prefix(']')?)
            } else {
                let (index, remaining) = after.split_once(']')?;
                (PathStep::Index(index.parse().ok()?), remaining)
            };
            steps.push(step);
            rest = remaining;
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_into_a_call_is_an_expression() {
        for (path, cel) in [
            ("$.response.body.usage.total_tokens", "response.body.usage.total_tokens"),
            ("$.response.body['a-b'][0].in", "response.body['a-b'][0]['in']"),
            ("$.request.headers[\"X-Count\"]", "request.headers['x-count']"),
            ("$.request.query_param.page", "request.query['page']"),
            ("$.response.status", "response.status"),
        ] {
            assert_eq!(CallPath::parse(path).map(|path| path.cel()).as_deref(), Some(cel), "{path}");
        }
        for path in [
            "",
            "$",
            "$.request",
            "$.response.body[*].id",
            "$..a",
            "$.request.body[?(@.a == 1)]",
            "$.a.b",
            "$[",
        ] {
            assert_eq!(CallPath::parse(path), None, "{path}");
        }
    }

    #[test]
    fn a_place_in_a_body_has_a_pointer() {
        let pointer = |path| CallPath::parse(path).and_then(|path| path.pointer());
        assert_eq!(pointer("$.request.body.a['b/c'][1]").as_deref(), Some("/a/b~1c/1"));
        assert_eq!(pointer("$.request.method"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(path: String) {
            let _ = CallPath::parse(&path);
            let _ = CallPath::parse(&format!("$.request.body{path}"));
        }
    }
}
