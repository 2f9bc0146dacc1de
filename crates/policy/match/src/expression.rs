//! Expressions in CEL, the Common Expression Language: compiled when the config is loaded, evaluated for each
//! exchange.
//!
//! Variables of an expression:
//!
//! | variable | value |
//! | --- | --- |
//! | `request.method`, `.path`, `.host`, `.provider`, `.scheme`, `.consumer` | text; the path in its normal form, the consumer empty if none is named |
//! | `request.headers["x"]`, `request.query["x"]`, `request.params["x"]` | text: the first value, empty if there is none; test with `has(request.headers.x)` and `"x" in request.headers` |
//! | `request.body`, `response.body` | the body as JSON; `null` if there is none or it is not JSON |
//! | `response.status`, `response.headers["x"]` | the status code as a number, and header fields as above |
//! | `attempt` | number of the attempt, from 1 |
//! | `now` | seconds since the Unix epoch, as a number |
//!
//! Only the values that an expression names are built. Its length is limited when it is compiled. Each
//! evaluation has a budget for iterating, copying and concatenating, so no body can make it run long or use
//! much memory. Errors that can be known in advance are found when it is compiled; all others are an
//! [`EvaluationError`], which never contains any part of a message.

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

use crate::parameters::Parameters;
use check::{Known, Variables};
use egret_message::{Request, Response};

pub(crate) use values::{Table, Variable};

/// Maximum length of an expression.
const EXPRESSION_BYTES_MAX: usize = 2048;

/// Maximum nesting depth.
const DEPTH_MAX: u16 = 48;

/// Maximum length of a body that expressions can read. Reading a longer `request.body` is an error.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// The names that expressions in one place of the config may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope<'a> {
    /// `true` if there is a response when the expression is evaluated.
    pub has_response: bool,
    /// Parameters captured by the paths of the flow's match; for quotas, those of all flows.
    pub parameters: &'a [&'a str],
}

impl Scope<'_> {
    /// Returns an error if no path captures the parameter `name`.
    pub fn missing_parameter(&self, name: &str) -> Option<ExpressionError> {
        if self.parameters.contains(&name) {
            return None;
        }
        let message = format!("no path of a match here has a parameter `{{{name}}}`");
        let suggestion = suggest(name, self.parameters.iter().copied()).map(str::to_owned);
        Some(ExpressionError { message, suggestion })
    }
}

/// The inputs of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The response, if there is one.
    pub response: Option<&'a Response<'a>>,
    /// Parameters captured by the flow's path.
    pub parameters: Parameters<'a>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The current time.
    pub now: Timestamp,
}

/// A type that an expression can evaluate to.
pub trait Outcome: Sized {
    /// Description of the type for error messages.
    const EXPECTED: &'static str;

    #[doc(hidden)]
    fn may_be(known: Known) -> bool;

    /// Converts the value. Returns `None` if it has another type.
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
    const EXPECTED: &'static str = "a non-negative number";

    fn may_be(known: Known) -> bool {
        matches!(known, Known::Unknown | Known::Number)
    }

    /// Rounds fractions up.
    fn of(value: &dyn Val) -> Option<Self> {
        if let Some(value) = value.downcast_ref::<CelInt>() {
            return Self::try_from(*value.inner()).ok();
        }
        if let Some(value) = value.downcast_ref::<CelUInt>() {
            return Some(*value.inner());
        }
        let value = value.downcast_ref::<CelDouble>()?.inner().ceil();
        // Above 2^53, a double cannot represent every whole number.
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

    /// Rejects infinity and NaN.
    fn of(value: &dyn Val) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "a precision of 53 bits is enough")]
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
    const EXPECTED: &'static str = "text";

    fn may_be(known: Known) -> bool {
        matches!(known, Known::Unknown | Known::Text | Known::Number | Known::Bool)
    }

    /// Formats whole numbers and booleans as text.
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

/// A compiled expression that evaluates to a `T`.
#[derive(Debug, Clone)]
pub struct Expression<T> {
    tree: Arc<IdedExpr>,
    variables: Variables,
    outcome: PhantomData<fn() -> T>,
}

/// A compilation error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionError {
    /// The mistake, with its position in the expression if known.
    pub message: String,
    /// A suggested name.
    pub suggestion: Option<String>,
}

impl ExpressionError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), suggestion: None }
    }
}

impl ExpressionError {
    /// Converts the error to a problem of the config at `path`.
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

/// An evaluation error. It contains no part of the inputs, so it can be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvaluationError {
    /// A key or element does not exist.
    Missing,
    /// An operator or function got a value of an unsuitable type.
    Types,
    /// A number is too large, or is divided by zero.
    Arithmetic,
    /// The budget for time and memory is exhausted.
    Budget,
    /// The body is longer than expressions may read.
    BodyTooLong,
    /// The result has another type than expected.
    Outcome,
    /// Any other error.
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
            Self::Missing => "a key or an element does not exist: test with `has(...)` first",
            Self::Types => "an operator or function got a value of the wrong type",
            Self::Arithmetic => "a number is too large, or is divided by zero",
            Self::Budget => "the evaluation exceeds its budget for time and memory",
            Self::BodyTooLong => "the body is longer than expressions may read",
            Self::Outcome => "the result has the wrong type",
            Self::Other => "a function cannot process the value it got",
        })
    }
}

impl std::error::Error for EvaluationError {}

/// The standard functions, and those that expressions are rewritten to call.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib().with_optional_support(false);
    // The declarations cannot fail: the names cannot be written in an expression, and each is declared once.
    let _ = budget::declare(&mut environment);
    let _ = values::declare(&mut environment);
    Arc::new(environment)
});

impl<T: Outcome> Expression<T> {
    /// Compiles `source`, which may use the names in `scope`.
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
                "this evaluates to {known}, but {} is expected",
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
            // An error inside the expression need not be an error of the result: `x || true` is true for any
            // `x`.
            return Err(EvaluationError::Budget);
        }
        let value = value.map_err(|error| EvaluationError::of(&error))?;
        T::of(value.as_ref()).ok_or(EvaluationError::Outcome)
    }

    /// Returns `true` if the expression reads the request's body.
    pub fn needs_request_body(&self) -> bool {
        self.variables.contains(Variable::RequestBody)
    }

    /// Returns `true` if the expression reads the response's body.
    pub fn needs_response_body(&self) -> bool {
        self.variables.contains(Variable::ResponseBody)
    }

    /// Returns `true` if the expression reads any part of the response.
    pub fn needs_response(&self) -> bool {
        [Variable::ResponseStatus, Variable::ResponseHeaders, Variable::ResponseBody]
            .into_iter()
            .any(|variable| self.variables.contains(variable))
    }
}

/// Converts the first parse error, with an excerpt of its position.
fn not_cel(source: &str, errors: &cel::ParseErrors) -> ExpressionError {
    let Some(error) = errors.errors.first() else { return ExpressionError::new("this is not valid CEL") };
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let what = first_line(&error.msg);
    let place = usize::try_from(error.pos.0).ok().zip(usize::try_from(error.pos.1).ok());
    let Some((line, column)) = place.filter(|(line, _)| *line > 0) else {
        return ExpressionError::new(format!("this is not valid CEL: {what}"));
    };
    let text = source.lines().nth(line - 1).unwrap_or_default();
    let (before, after): (String, String) = (
        text.chars().take(column.saturating_sub(1)).collect(),
        text.chars().skip(column.saturating_sub(1)).take(PLACE_CHARS).collect(),
    );
    let before: String = before.chars().skip(before.chars().count().saturating_sub(PLACE_CHARS)).collect();
    let of_line = if source.lines().count() > 1 { format!("line {line}, ") } else { String::new() };
    ExpressionError::new(format!(
        "this is not valid CEL: {of_line}column {column}, at `{before}▸{after}`: {what}"
    ))
}

/// Number of characters of an expression shown on either side of an error.
const PLACE_CHARS: usize = 24;

#[cfg(test)]
mod tests;
