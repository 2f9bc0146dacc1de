//! Templates: texts with `${...}` placeholders, for fixed responses and transformations.
//!
//! | in the braces | value |
//! | --- | --- |
//! | `request.method`, `.path`, `.host`, `.provider`, `.scheme`, `.consumer` | text; the consumer is empty if none is named |
//! | `request.headers.x-id`, `query.page`, `params.id` | the first value of that name; empty if there is none |
//! | `response.status`, `response.headers.x-id` | only if there is a response |
//! | `attempt`, `now` | number of the attempt, from 1; seconds since the Unix epoch |
//! | `request.id` | the id of the request in logs, records and responses; empty if requests have none |
//! | `uuid` | a new UUID of version 4 wherever it stands, each time |
//! | `env:NAME`, `env:NAME:-default` | an environment variable, read when the template is compiled |
//!
//! `$${` is a literal `${`. Each value is escaped for its [`Escape`] context, so data from a client or a
//! provider cannot become more than a value. A value from the environment is a secret: it is in the result,
//! and nowhere else.

use std::borrow::Cow;
use std::io::Write;

use egret_config::{Problem, Secret, SecretError, suggest};
use egret_json::write_escaped;

use crate::expression::{Inputs, Scope, Stage, ValueTable, Variable};

/// Maximum length of a template.
const TEMPLATE_BYTES_MAX: usize = 64 << 10;

/// Maximum number of values in a template.
const VALUES_MAX: usize = 256;

/// Maximum length of a result.
const RESULT_BYTES_MAX: usize = 1 << 20;

/// The context of a template, which determines how values are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// Plain text, without escaping.
    Text,
    /// JSON. Text values must be between quotes; numbers may be unquoted.
    Json,
    /// The value of a header field. A value with control characters is rejected.
    Field,
    /// A part of a path, or a name or value in a query: percent-encoded, including slashes.
    Url,
}

/// The identifiers that templates can insert, and expressions cannot.
#[derive(Debug, Clone, Copy)]
pub struct Identifiers<'a> {
    /// The id of the request. Empty if requests have none.
    pub request_id: &'a [u8],
    /// Makes a UUID that nobody else has. `None` if the system has no random numbers.
    pub new_uuid: fn() -> Option<String>,
}

/// A compiled template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Box<[Piece]>,
    escape: Escape,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    /// A variable and, if it is a table, the name to look up.
    Value(Variable, Box<str>),
    /// The id of the request.
    RequestId,
    /// A new UUID.
    Uuid,
    /// A value from the environment, escaped.
    Secret(Secret),
}

/// The names of identifiers.
const IDENTIFIERS: [(&str, Piece); 2] = [("request.id", Piece::RequestId), ("uuid", Piece::Uuid)];

/// Reason why a template cannot be rendered. Contains no values, so it can be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A value has control characters, which are not allowed in a header field.
    #[error("a value contains control characters, which are not allowed in a header field")]
    Control,
    /// The result is too long.
    #[error("the result exceeds {RESULT_BYTES_MAX} bytes")]
    TooLong,
    /// There are no random numbers for a UUID.
    #[error("the system provides no random numbers")]
    NoRandom,
}

impl Template {
    /// Compiles `text`, which is at the path `at` in the config and may use the variables of `scope`.
    pub fn compile(text: &str, escape: Escape, scope: Scope<'_>, at: &str) -> Result<Self, Problem> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(Problem::new(at, format!("a template must not exceed {TEMPLATE_BYTES_MAX} bytes")));
        }
        let mut compiler = Compiler {
            escape,
            scope,
            at,
            pieces: Vec::new(),
            literal: String::new(),
            quotes: Quotes::default(),
        };
        compiler.read(text)?;
        Ok(Self { pieces: compiler.pieces.into(), escape })
    }

    /// Returns the text of a template without values.
    pub fn as_literal(&self) -> Option<&str> {
        match &*self.pieces {
            [] => Some(""),
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns `true` if a value is a secret, from the environment.
    pub fn has_secret(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Secret(_)))
    }

    /// Iterates over the texts between the values, in order.
    pub fn literals(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(text) => Some(&**text),
            Piece::Value(..) | Piece::RequestId | Piece::Uuid | Piece::Secret(_) => None,
        })
    }

    /// Returns `true` if the template begins with `text`.
    pub fn begins_with(&self, text: &str) -> bool {
        matches!(self.pieces.first(), Some(Piece::Literal(literal)) if literal.starts_with(text))
    }

    /// Appends the rendered template. After an error, the appended bytes are meaningless.
    pub fn render(
        &self,
        inputs: &Inputs<'_>,
        identifiers: &Identifiers<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), TemplateError> {
        let start = out.len();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Value(variable, name) => self.escape.write(&value(*variable, name, inputs), out)?,
                Piece::RequestId => self.escape.write(identifiers.request_id, out)?,
                Piece::Uuid => {
                    let uuid = (identifiers.new_uuid)().ok_or(TemplateError::NoRandom)?;
                    out.extend_from_slice(uuid.as_bytes());
                }
                Piece::Secret(secret) => out.extend_from_slice(secret.expose().as_bytes()),
            }
            if out.len() - start > RESULT_BYTES_MAX {
                return Err(TemplateError::TooLong);
            }
        }
        Ok(())
    }
}

struct Compiler<'a> {
    escape: Escape,
    scope: Scope<'a>,
    at: &'a str,
    pieces: Vec<Piece>,
    literal: String,
    quotes: Quotes,
}

impl Compiler<'_> {
    fn read(&mut self, text: &str) -> Result<(), Problem> {
        let mut rest = text;
        while let Some(dollar) = rest.find("${") {
            let (before, from) = rest.split_at(dollar);
            if let Some(before) = before.strip_suffix('$') {
                self.add(before)?;
                self.add("${")?;
                rest = &from[2..];
                continue;
            }
            self.add(before)?;
            let Some((name, after)) = from[2..].split_once('}') else {
                return Err(self.problem("`${` without `}`: write `$${` for a literal `${`".to_owned()));
            };
            self.value(name.trim())?;
            rest = after;
        }
        self.add(rest)?;
        self.close();
        if self.pieces.len() > 2 * VALUES_MAX {
            return Err(self.problem(format!("a template must not exceed {VALUES_MAX} values")));
        }
        Ok(())
    }

    fn problem(&self, message: String) -> Problem {
        Problem::new(self.at, message)
    }

    fn add(&mut self, literal: &str) -> Result<(), Problem> {
        if self.escape == Escape::Field && literal.bytes().any(is_control) {
            return Err(self.problem(
                "control characters, such as line ends, are not allowed in a header field".to_owned(),
            ));
        }
        self.quotes.read(literal);
        self.literal.push_str(literal);
        Ok(())
    }

    fn close(&mut self) {
        if !self.literal.is_empty() {
            self.pieces.push(Piece::Literal(std::mem::take(&mut self.literal).into()));
        }
    }

    fn value(&mut self, name: &str) -> Result<(), Problem> {
        if let Some(variable) = name.strip_prefix("env:") {
            self.check_quotes(name)?;
            let secret = self.environment(variable)?;
            self.close();
            self.pieces.push(Piece::Secret(secret));
            return Ok(());
        }
        if let Some((_, piece)) = IDENTIFIERS.iter().find(|(known, _)| *known == name) {
            self.check_quotes(name)?;
            self.close();
            self.pieces.push(piece.clone());
            return Ok(());
        }
        let (variable, key) = self.named(name)?;
        if !matches!(variable, Variable::ResponseStatus | Variable::Attempt | Variable::Now) {
            self.check_quotes(name)?;
        }
        self.close();
        self.pieces.push(Piece::Value(variable, key.into()));
        Ok(())
    }

    /// Checks that a text value in JSON is inside quotes.
    fn check_quotes(&self, name: &str) -> Result<(), Problem> {
        if self.escape == Escape::Json && !self.quotes.is_open {
            return Err(self.problem(format!("a text value in JSON must be quoted: write `\"${{{name}}}\"`")));
        }
        Ok(())
    }

    /// Reads `NAME` or `NAME:-default` from the environment, and escapes the value. The default replaces a
    /// variable that is missing or empty.
    fn environment(&self, text: &str) -> Result<Secret, Problem> {
        let (name, default) = match text.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (text, None),
        };
        if name.is_empty() {
            return Err(self.problem("`${env:}` names no variable: write `${env:NAME}`".to_owned()));
        }
        let source = format!("${{env:{name}}}");
        let value = match (Secret::resolve(&source), default) {
            (Ok(secret), _) => secret,
            (Err(SecretError::NotSet { .. } | SecretError::Empty { .. }), Some(default)) => {
                Secret::from_value(source.clone(), default.to_owned())
            }
            (Err(error), _) => return Err(self.problem(error.to_string())),
        };
        let mut escaped = Vec::new();
        let written = self.escape.write(value.expose().as_bytes(), &mut escaped);
        written.map_err(|error| self.problem(error.to_string()))?;
        // Escaping keeps UTF-8.
        Ok(Secret::from_value(source, String::from_utf8(escaped).unwrap_or_default()))
    }

    /// Returns the variable of that name, and the name to look up in it.
    fn named<'n>(&self, name: &'n str) -> Result<(Variable, &'n str), Problem> {
        if ["file:", "exec:", "credential:", "vault:", "aws:", "gcp:"]
            .iter()
            .any(|form| name.starts_with(form))
        {
            let message = format!("`${{{name}}}` is not available in templates: use `${{env:NAME}}`");
            return Err(self.problem(message));
        }
        let full = match name.split_once('.') {
            Some(("params" | "query", _)) => Cow::Owned(format!("request.{name}")),
            _ => Cow::Borrowed(name),
        };
        let known = Variable::ALL.into_iter().find(|variable| {
            full.strip_prefix(variable.name()).is_some_and(|rest| match rest.strip_prefix('.') {
                Some(key) => variable.is_table() && !key.is_empty(),
                None => rest.is_empty() && !variable.is_table(),
            })
        });
        let Some(variable) = known.filter(|variable| is_available(*variable)) else {
            return Err(self.unknown(name));
        };
        let known = variable.name();
        if variable.stage() > self.scope.stage {
            return Err(self.problem(format!(
                "`{known}` is not available here: this template is rendered before the call"
            )));
        }
        // The short form and the full form end with the same name.
        let key = &name[name.len() - (full.len() - known.len()).saturating_sub(1)..];
        if variable == Variable::Parameters
            && let Some(missing) = self.scope.missing_parameter(key)
        {
            return Err(missing.at(self.at));
        }
        Ok((variable, key))
    }

    fn unknown(&self, name: &str) -> Problem {
        if ["request.body", "response.body"].iter().any(|body| name.starts_with(body)) {
            return self.problem("bodies are not available in templates".to_owned());
        }
        if Variable::named(name).is_some_and(|variable| variable.stage() >= Stage::ResponseEnd) {
            return self.problem(format!("`{name}` is not available in templates: it is known at the end"));
        }
        let mut known: Vec<&str> = vec!["params", "query"];
        known.extend(IDENTIFIERS.map(|(known, _)| known));
        known
            .extend(Variable::ALL.into_iter().filter(|variable| is_available(*variable)).map(Variable::name));
        let shown = match name.match_indices('.').nth(1) {
            Some((dot, _)) => &name[..dot],
            None => name,
        };
        let table = || suggest(shown.split('.').next()?, ["params", "query"]);
        let meant = match (suggest(shown, known.iter().copied()), shown.split_once('.')) {
            (Some(meant), _) if !["params", "query"].contains(&meant) => Some(meant.to_owned()),
            // `param.id`: the table is misspelt, not the name of its entry.
            (_, Some((_, entry))) => table().map(|table| format!("{table}.{entry}")),
            (meant, None) => meant.or_else(table).map(str::to_owned),
        };
        let mut problem = self.problem(format!("unknown value `{shown}` in a template"));
        problem.suggestion = meant.filter(|meant| *meant != shown);
        if problem.suggestion.is_none() && known.contains(&shown) {
            problem.message.push_str(": add the name of an entry, as in `request.headers.accept`");
        }
        problem
    }
}

/// Returns `true` for a variable that templates may use: no body, and nothing that is known only at the end.
fn is_available(variable: Variable) -> bool {
    !variable.is_body() && variable.stage() < Stage::ResponseEnd
}

/// Tracks whether the JSON read so far ends inside a string.
#[derive(Debug, Default)]
struct Quotes {
    is_open: bool,
    is_escaped: bool,
}

impl Quotes {
    fn read(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = self.is_open,
                b'"' => self.is_open = !self.is_open,
                _ => (),
            }
        }
    }
}

fn value<'a>(variable: Variable, key: &str, inputs: &Inputs<'a>) -> Cow<'a, [u8]> {
    let Inputs { request, response, parameters, attempt, now, .. } = *inputs;
    let number = |number: u64| Cow::Owned(number.to_string().into_bytes());
    let look_up = |table: ValueTable<'a>| table.first(key).unwrap_or_default();
    match variable {
        Variable::Method => request.method.into(),
        Variable::Path => request.path.into(),
        Variable::Host => request.host.as_bytes().into(),
        Variable::Provider => request.provider.as_bytes().into(),
        Variable::Scheme => if request.tls { &b"https"[..] } else { b"http" }.into(),
        Variable::Consumer => request.consumer().unwrap_or_default().into(),
        Variable::Headers => look_up(ValueTable::Fields(request.fields)),
        Variable::Query => look_up(ValueTable::Query(*request)),
        Variable::Parameters => look_up(ValueTable::Parameters(parameters)),
        Variable::ResponseStatus => number(response.map_or(0, |response| response.status.into())),
        Variable::ResponseHeaders => {
            response.map(|response| look_up(ValueTable::Fields(response.fields))).unwrap_or_default()
        }
        Variable::GrpcService => {
            Cow::Borrowed(request.grpc().map_or(&b""[..], |call| call.service.as_bytes()))
        }
        Variable::GrpcMethod => Cow::Borrowed(request.grpc().map_or(&b""[..], |call| call.method.as_bytes())),
        Variable::Attempt => number(attempt.into()),
        Variable::Now => number(now.as_secs()),
        // Templates are compiled without these.
        Variable::RequestBody
        | Variable::ResponseBody
        | Variable::ResponseDuration
        | Variable::ResponseProviderTime
        | Variable::ResponseError
        | Variable::ResponseGenerated
        | Variable::GrpcStatus
        | Variable::UsageInput
        | Variable::UsageOutput
        | Variable::UsageCached
        | Variable::UsageReasoning
        | Variable::UsageCost
        | Variable::UsageModel
        | Variable::UsageSource => Cow::default(),
    }
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

impl Escape {
    fn write(self, value: &[u8], out: &mut Vec<u8>) -> Result<(), TemplateError> {
        match self {
            Self::Field if value.iter().copied().any(is_control) => return Err(TemplateError::Control),
            Self::Text | Self::Field => out.extend_from_slice(value),
            Self::Json => write_escaped(String::from_utf8_lossy(value).as_bytes(), out),
            Self::Url => write_url(value, out),
        }
        Ok(())
    }
}

/// Appends `value` percent-encoded, except for the unreserved characters of RFC 3986 §2.3.
pub fn write_url(value: &[u8], out: &mut Vec<u8>) {
    for byte in value {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            byte if byte.is_ascii_alphanumeric() => out.push(*byte),
            byte => drop(write!(out, "%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests;
