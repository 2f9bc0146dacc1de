//! Expressions in CEL, the Common Expression Language: compiled when the config is loaded, evaluated where they are used.
//!
//! What an expression can see:
//!
//! | variable | what it is |
//! | --- | --- |
//! | `request.method`, `.path`, `.host`, `.provider`, `.scheme`, `.consumer` | text; the path as sent, the consumer empty if none is named |
//! | `request.headers["x"]`, `request.query["x"]`, `request.params["x"]` | text: the first value, empty if there is none; `has(request.headers.x)` and `"x" in request.headers` tell |
//! | `request.body`, `response.body` | the body as JSON; `null` if there is none or it is no JSON |
//! | `response.status`, `response.headers["x"]` | the status as a number, and fields as above |
//! | `attempt` | which try of the call this is, from 1 |
//! | `now` | seconds since the Unix epoch, as a number |
//!
//! Nothing is built but what an expression names. Its length is bounded when it is compiled, and each evaluation by a budget that
//! what it goes through, copies and joins is charged to, so that no body can make one run long or take much memory. What can be known
//! to be wrong is refused when it is compiled; all else is an [`EvaluationError`], which never holds anything of a message.

mod budget;
mod check;
mod values;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock};

use cel::common::ast::IdedExpr;
use cel::common::types::{CelBool, CelDouble, CelInt, CelString, CelUInt};
use cel::common::value::Val;
use cel::{Context, Env, ExecutionError, Value};
use egret_clock::Timestamp;
use egret_config::{Problem, suggest};

use crate::message::{Request, Response};
use crate::router::Parameters;
use check::{Known, Variables};

pub(crate) use values::{Table, Variable};

/// Longer expressions are refused.
const EXPRESSION_BYTES_MAX: usize = 2048;

/// Deeper nesting is refused.
const DEPTH_MAX: u16 = 48;

/// Longer bodies are not read: `request.body` is an error then.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// What expressions at some place of the config may see.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// Whether there is a response yet.
    pub has_response: bool,
    /// The parameters that paths of the flow's match capture; for quotas those of all flows.
    pub parameters: &'a [&'a str],
}

impl Scope<'_> {
    /// Why the parameter `name` is never there, if it is not.
    pub(crate) fn missing_parameter(&self, name: &str) -> Option<ExpressionError> {
        if self.parameters.contains(&name) {
            return None;
        }
        let message = format!("no path of a match here has a parameter `{{{name}}}`");
        let suggestion = suggest(name, self.parameters.iter().copied()).map(str::to_owned);
        Some(ExpressionError { message, suggestion })
    }
}

/// What an expression is evaluated on.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The response, where there is one.
    pub response: Option<&'a Response<'a>>,
    /// What the flow's path has captured.
    pub parameters: Parameters<'a>,
    /// Which try of the call this is, from 1.
    pub attempt: u32,
    /// What time it is.
    pub now: Timestamp,
}

/// A type that an expression may have to come to.
pub trait Outcome: Sized {
    /// What is asked for, in words.
    const EXPECTED: &'static str;

    #[doc(hidden)]
    fn may_be(known: Known) -> bool;

    /// The value, where it is one.
    fn of(value: &dyn Val) -> Option<Self>;
}

impl Outcome for bool {
    const EXPECTED: &'static str = "true or false";

    fn may_be(known: Known) -> bool {
        matches!(known, Known::Unknown | Known::Bool)
    }

    fn of(value: &dyn Val) -> Option<Self> {
        value.downcast_ref::<CelBool>().map(|value| *value.inner())
    }
}

impl Outcome for u64 {
    const EXPECTED: &'static str = "a number that is not negative";

    fn may_be(known: Known) -> bool {
        matches!(known, Known::Unknown | Known::Number)
    }

    /// Fractions are rounded up.
    fn of(value: &dyn Val) -> Option<Self> {
        if let Some(value) = value.downcast_ref::<CelInt>() {
            return Self::try_from(*value.inner()).ok();
        }
        if let Some(value) = value.downcast_ref::<CelUInt>() {
            return Some(*value.inner());
        }
        let value = value.downcast_ref::<CelDouble>()?.inner().ceil();
        // Above 2^53 a double is no exact number of anything.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within the range just checked"
        )]
        (0.0..=9_007_199_254_740_992.0).contains(&value).then_some(value as Self)
    }
}

impl Outcome for f64 {
    const EXPECTED: &'static str = "a number";

    fn may_be(known: Known) -> bool {
        matches!(known, Known::Unknown | Known::Number)
    }

    /// Neither infinity nor what is no number.
    fn of(value: &dyn Val) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "a number as others count: 53 bits of it")]
        let value = match value.downcast_ref::<CelInt>() {
            Some(value) => *value.inner() as Self,
            None => match value.downcast_ref::<CelUInt>() {
                Some(value) => *value.inner() as Self,
                None => *value.downcast_ref::<CelDouble>()?.inner(),
            },
        };
        value.is_finite().then_some(value)
    }
}

impl Outcome for String {
    const EXPECTED: &'static str = "a text";

    fn may_be(known: Known) -> bool {
        matches!(known, Known::Unknown | Known::Text | Known::Number | Known::Bool)
    }

    /// Whole numbers and truth values are written out.
    fn of(value: &dyn Val) -> Option<Self> {
        if let Some(value) = value.downcast_ref::<CelString<'_>>() {
            return Some(value.inner().to_owned());
        }
        if let Some(value) = value.downcast_ref::<CelInt>() {
            return Some(value.inner().to_string());
        }
        if let Some(value) = value.downcast_ref::<CelUInt>() {
            return Some(value.inner().to_string());
        }
        value.downcast_ref::<CelBool>().map(|value| value.inner().to_string())
    }
}

/// A compiled expression that comes to a `T`.
#[derive(Debug, Clone)]
pub struct Expression<T> {
    tree: Arc<IdedExpr>,
    variables: Variables,
    outcome: PhantomData<fn() -> T>,
}

/// Why an expression was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionError {
    /// What is wrong, and where in the expression if that is known.
    pub message: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl ExpressionError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), suggestion: None }
    }
}

impl ExpressionError {
    /// As a problem of the config at `path`.
    pub fn at(self, path: impl Into<String>) -> Problem {
        Problem { path: path.into(), message: self.message, suggestion: self.suggestion }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(meant) => write!(f, "; did you mean `{meant}`?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ExpressionError {}

/// Why an expression came to nothing. Says nothing of what it was evaluated on, so that it can be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvaluationError {
    /// A key or an element was asked for that is not there.
    Missing,
    /// An operator or function was given what it is not for.
    Types,
    /// A number too large, or a division by zero.
    Arithmetic,
    /// It would have taken too long or too much memory.
    Budget,
    /// A body was asked for that is longer than expressions may read.
    BodyTooLong,
    /// It came to something else than was asked for.
    Outcome,
    /// Anything else.
    Other,
}

impl EvaluationError {
    fn of(error: &ExecutionError) -> Self {
        match error {
            ExecutionError::NoSuchKey(_) | ExecutionError::IndexOutOfBounds(_) => Self::Missing,
            ExecutionError::DivisionByZero(_)
            | ExecutionError::RemainderByZero(_)
            | ExecutionError::Overflow(..) => Self::Arithmetic,
            ExecutionError::NoSuchOverload(_)
            | ExecutionError::UnexpectedType { .. }
            | ExecutionError::UnsupportedBinaryOperator(..)
            | ExecutionError::UnsupportedIndex(..)
            | ExecutionError::UnsupportedKeyType(_)
            | ExecutionError::UnsupportedTargetType { .. }
            | ExecutionError::NotSupportedAsMethod { .. }
            | ExecutionError::ValuesNotComparable(..) => Self::Types,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "it asks for a key or an element that is not there: ask with `has(...)` first",
            Self::Types => "an operator or function in it was given a value of a type that it is not for",
            Self::Arithmetic => "a number in it is too large, or divided by zero",
            Self::Budget => "it would take too long on what it was given",
            Self::BodyTooLong => "it asks for a body that is longer than expressions may read",
            Self::Outcome => "it came to a value of another type than is needed here",
            Self::Other => "a function in it cannot do anything with what it was given",
        })
    }
}

impl std::error::Error for EvaluationError {}

/// The functions of the standard, and those that expressions are rewritten to.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib().with_optional_support(false);
    // Neither name can be written in an expression, and neither is declared twice.
    let _ = budget::declare(&mut environment);
    let _ = values::declare(&mut environment);
    Arc::new(environment)
});

impl<T: Outcome> Expression<T> {
    /// Compiles `source`, which may see what `scope` says.
    pub fn compile(source: &str, scope: Scope<'_>) -> Result<Self, ExpressionError> {
        if source.len() > EXPRESSION_BYTES_MAX {
            return Err(ExpressionError::new(format!(
                "an expression has at most {EXPRESSION_BYTES_MAX} bytes"
            )));
        }
        let parser = ENVIRONMENT.parser().max_recursion_depth(DEPTH_MAX);
        let mut tree = parser.parse(source).map_err(|errors| not_cel(source, &errors))?;
        let variables = check::check(&mut tree, scope)?;
        let known = check::known(&tree);
        if !T::may_be(known) {
            return Err(ExpressionError::new(format!(
                "this comes to {known}, where {} is needed",
                T::EXPECTED
            )));
        }
        Ok(Self { tree: Arc::new(tree), variables, outcome: PhantomData })
    }

    /// Evaluates the expression.
    pub fn evaluate(&self, inputs: &Inputs<'_>) -> Result<T, EvaluationError> {
        let values = values::Values::new(inputs);
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.set_variable_resolver(&values);
        budget::grant();
        let value = Value::resolve_val(&self.tree, &context);
        if values.is_body_too_long() {
            return Err(EvaluationError::BodyTooLong);
        }
        if budget::is_spent() {
            // Not every error is an error of the whole: `x || true` is true whatever `x` is.
            return Err(EvaluationError::Budget);
        }
        let value = value.map_err(|error| EvaluationError::of(&error))?;
        T::of(value.as_ref()).ok_or(EvaluationError::Outcome)
    }

    /// Whether the request's body has to be there.
    pub fn needs_request_body(&self) -> bool {
        self.variables.contains(Variable::RequestBody)
    }

    /// Whether the response's body has to be there.
    pub fn needs_response_body(&self) -> bool {
        self.variables.contains(Variable::ResponseBody)
    }

    /// Whether anything of the response has to be there.
    pub fn needs_response(&self) -> bool {
        [Variable::ResponseStatus, Variable::ResponseHeaders, Variable::ResponseBody]
            .into_iter()
            .any(|variable| self.variables.contains(variable))
    }
}

/// The first error, with its place shown.
fn not_cel(source: &str, errors: &cel::ParseErrors) -> ExpressionError {
    let Some(error) = errors.errors.first() else { return ExpressionError::new("this is not CEL") };
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let what = first_line(&error.msg);
    let place = usize::try_from(error.pos.0).ok().zip(usize::try_from(error.pos.1).ok());
    let Some((line, column)) = place.filter(|(line, _)| *line > 0) else {
        return ExpressionError::new(format!("this is not CEL: {what}"));
    };
    let text = source.lines().nth(line - 1).unwrap_or_default();
    let (before, after): (String, String) = (
        text.chars().take(column.saturating_sub(1)).collect(),
        text.chars().skip(column.saturating_sub(1)).take(PLACE_CHARS).collect(),
    );
    let before: String = before.chars().skip(before.chars().count().saturating_sub(PLACE_CHARS)).collect();
    let of_line = if source.lines().count() > 1 { format!("line {line}, ") } else { String::new() };
    ExpressionError::new(format!("this is not CEL: {of_line}column {column}, at `{before}▸{after}`: {what}"))
}

/// How much of an expression is shown on either side of an error.
const PLACE_CHARS: usize = 24;

#[cfg(test)]
mod tests;
