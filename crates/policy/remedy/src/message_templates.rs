//! Templates for the parts of a message that a config may set: header fields, bodies, paths. The content is
//! validated here for all remedies.

use std::borrow::Cow;

use egret_http1::{KnownField, is_token};
use egret_match::matching::decode;
use egret_match::template::{Escape, Template};
use egret_message::Fault;

use crate::exchange::Exchange;
use crate::remedy::CompileContext;

/// A path to call. It begins with `/` and has no query. A value in it is a segment or a part of one, whatever
/// it contains.
#[derive(Debug)]
pub(crate) struct PathTemplate(Template);

impl PathTemplate {
    /// Returns the path, if it has no values.
    pub fn as_literal(&self) -> Option<&str> {
        self.0.as_literal()
    }

    /// Returns `true` if the path contains a secret.
    pub fn has_secret(&self) -> bool {
        self.0.has_secret()
    }

    /// Renders the path for `exchange`. Fails if values would create a segment `.` or `..`: providers may
    /// treat those as relative, encoded or not.
    pub fn render(&self, exchange: &Exchange<'_>) -> Result<Cow<'_, [u8]>, Fault> {
        let path = exchange.render(&self.0)?;
        if self.as_literal().is_none() && has_dot_segments(&path) {
            return Err(Fault("the values turn a segment of the path into `.` or `..`".into()));
        }
        Ok(path)
    }
}

impl CompileContext<'_> {
    /// Compiles the value of the field `name`, which is set under `name` in `key` of this remedy. Adds a
    /// problem if either is invalid.
    pub(crate) fn field_template(
        &mut self,
        key: &str,
        name: &str,
        value: &str,
        has_response: bool,
    ) -> Option<Template> {
        let key = format!("{key}.{name}");
        let name_problem = field_name_problem(name);
        let is_named_well = name_problem.is_none();
        if let Some(problem) = name_problem {
            self.problem(&key, problem);
        }
        self.template(&key, value, Escape::Field, has_response).filter(|_| is_named_well)
    }

    /// Compiles the body in `key` of this remedy. Values are escaped for its `content_type`: as JSON strings
    /// or form values, and not at all in plain text. Values in any other structured content type are a
    /// problem.
    pub(crate) fn body_template(
        &mut self,
        key: &str,
        text: &str,
        content_type: Option<&Template>,
        has_response: bool,
    ) -> Option<Template> {
        let escape = match content_type.map(Template::as_literal) {
            None => Ok(Escape::Text),
            Some(Some(media_type)) => escape_for_body(media_type),
            Some(None) => Err(
                "values are not allowed here: the content-type contains values, so the escaping is unknown",
            ),
        };
        let template = self.template(key, text, escape.unwrap_or(Escape::Text), has_response)?;
        match escape {
            Err(problem) if template.as_literal().is_none() => {
                self.problem(key, problem);
                None
            }
            _ => Some(template),
        }
    }

    /// Compiles the path in `key` of this remedy.
    pub(crate) fn path_template(
        &mut self,
        key: &str,
        text: &str,
        has_response: bool,
    ) -> Option<PathTemplate> {
        let template = self.template(key, text, Escape::Url, has_response)?;
        let is_good = template.begins_with("/")
            && template.literals().all(is_path_text)
            && !template.as_literal().is_some_and(|path| has_dot_segments(path.as_bytes()));
        if !is_good {
            self.problem(
                key,
                "must begin with `/`, without a query, `.` or `..`; other characters than letters, \
                 digits and signs must be percent-encoded",
            );
        }
        is_good.then_some(PathTemplate(template))
    }
}

/// Returns `true` if a whole path, without a query, can be called: it begins with `/`, has no segment that
/// any provider may treat as `.` or `..`, and needs no further encoding.
pub(crate) fn is_literal_path(path: &str) -> bool {
    path.starts_with('/') && is_path_text(path) && !has_dot_segments(path.as_bytes())
}

/// Returns the reason why a config must not set a field of that name, if there is one.
pub(crate) fn field_name_problem(name: &str) -> Option<String> {
    if !is_token(name.as_bytes()) {
        return Some(format!(
            "`{name}` is not a valid header field name: expected letters, digits and `-`, no spaces"
        ));
    }
    let known = KnownField::of(name.as_bytes());
    let is_framing = known.is_hop_by_hop()
        || matches!(
            known,
            KnownField::ContentLength | KnownField::Host | KnownField::Expect | KnownField::Trailer
        );
    if is_framing {
        return Some(format!(
            "`{name}` controls framing or routing, so only the gateway may set it: remove it"
        ));
    }
    is_of_gateway(known, name).then(|| format!("`{name}` is reserved for the gateway"))
}

/// Returns `true` for a field that routes a request, or that the gateway itself sends.
fn is_of_gateway(known: KnownField, name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let routes = ["x-lunar-host", "x-lunar-scheme", "mashape-host-override", "mashape-upstream-protocol"];
    known == KnownField::ProxyStatus || name.starts_with("x-egret-") || routes.contains(&name.as_str())
}

/// Returns the escaping for a body of that media type, or the reason why there is none.
fn escape_for_body(media_type: &str) -> Result<Escape, &'static str> {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is = |word: &str| essence.contains(word);
    if is("json") {
        Ok(Escape::Json)
    } else if essence == "application/x-www-form-urlencoded" {
        Ok(Escape::Url)
    } else if is("html") || is("xml") || is("script") || is("multipart") {
        Err("values are not allowed in this content-type: they can be escaped only for JSON, forms and \
             plain text")
    } else {
        Ok(Escape::Text)
    }
}

/// Returns `true` if the whole text is valid in a path (RFC 3986 §3.3, plus characters that providers
/// accept). Percent-encoded bytes must be complete, so a value cannot become part of one.
fn is_path_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'"' | b'<' | b'>');
    let is_whole =
        |at: usize| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    bytes.iter().all(is_plain) && memchr::memchr_iter(b'%', bytes).all(is_whole)
}

/// Returns `true` if any provider may treat a segment of the path as `.` or `..`: also encoded, between
/// encoded slashes, or with parameters.
fn has_dot_segments(path: &[u8]) -> bool {
    let mut decoded = Vec::with_capacity(path.len());
    decode(path, |part| decoded.extend_from_slice(part));
    let is_dots = |segment: &[u8]| {
        let name = segment.split(|byte| *byte == b';').next();
        matches!(name, Some(b"." | b".."))
    };
    decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(is_dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_a_body_are_escaped_for_its_content_type() {
        for (media_type, escape) in [
            ("application/json", Escape::Json),
            ("Application/Problem+JSON; charset=utf-8", Escape::Json),
            ("application/x-ndjson", Escape::Json),
            ("application/x-www-form-urlencoded", Escape::Url),
            ("text/plain", Escape::Text),
            ("text/csv; header=absent", Escape::Text),
        ] {
            assert_eq!(escape_for_body(media_type), Ok(escape), "{media_type}");
        }
        for media_type in
            ["text/html", "application/xml", "image/svg+xml", "text/javascript", "multipart/mixed"]
        {
            assert!(escape_for_body(media_type).is_err(), "{media_type}");
        }
    }

    #[test]
    fn a_path_has_nothing_that_a_value_could_become_a_part_of() {
        for text in ["/", "/v1/a-b_c~d!$&'()*+,;=:@", "/a%2Fb", "/%41"] {
            assert!(is_path_text(text), "{text}");
        }
        for text in ["/a?b", "/a#b", "/a b", "/ä", "/a%", "/a%4", "/a%zz", "/\"", "/<", "/\u{7f}"] {
            assert!(!is_path_text(text), "{text}");
        }
        for path in
            ["/.", "/..", "/a/../b", "/%2e%2E/a", "/.%2e", ".", "/..%2Fa", "/a%5c..", "/..;a", "/..%3Ba/b"]
        {
            assert!(has_dot_segments(path.as_bytes()), "{path}");
        }
        for path in ["/", "/...", "/.a", "/a..", "/%2e%2e%2e", "/%252e"] {
            assert!(!has_dot_segments(path.as_bytes()), "{path}");
        }
    }
}
