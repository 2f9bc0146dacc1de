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
//! | `response.duration_ms`, `.provider_ms` | only once the exchange is over: milliseconds, as numbers |
//! | `response.error`, `.generated` | only once the exchange is over: slug of Egret's error, empty if there is none; `true` if Egret made the response |
//! | `usage.cost` | at the end of a response: its cost in nano-dollars, or 0 if it is not known |
//! | `usage.input`, `.output`, `.cached`, `.reasoning` | at the end of a response: its tokens, or 0 if it reports none |
//! | `usage.model`, `.source` | the model that has answered, empty if it is not told; `reported`, `partial` or `none` |
//! | `attempt` | number of the attempt, from 1 |
//! | `now` | seconds since the Unix epoch, as a number |
//! | `env("NAME")`, `env("NAME", "default")` | an environment variable, read when the expression is compiled |
//!
//! Only the values that an expression names are built. Its length is limited when it is compiled. Each
//! evaluation has a budget for iterating, copying and concatenating, so no body can make it run long or use
//! much memory. Errors that can be known in advance are found when it is compiled; all others are an
//! [`EvaluationError`], which never contains any part of a message.

mod budget;
mod check;
mod error;
mod inputs;
mod syntax;
mod values;

use std::marker::PhantomData;
use std::sync::{Arc, LazyLock};
use std::thread;

use cel::common::ast::IdedExpr;
use cel::common::types::{CelBool, CelDouble, CelInt, CelString, CelUInt};
use cel::common::value::Val;
use cel::{Context, Env, Value};

use check::{ValueType, Variables};

pub use error::{EvaluationError, ExpressionError};
pub use inputs::{EXPRESSION_BODY_BYTES_MAX, Ended, Inputs, Scope, Stage};
pub(crate) use values::{ValueTable, Variable};

/// Maximum length of an expression.
const EXPRESSION_BYTES_MAX: usize = 2048;

/// Maximum nesting depth.
const DEPTH_MAX: u16 = 48;

/// The stack of the parser, which recurses: without optimization it uses 100 KiB for each level.
const PARSER_STACK_BYTES: usize = 16 << 20;

/// A type that an expression can evaluate to.
pub trait ExpressionValue: Sized {
    /// Description of the type for error messages.
    const EXPECTED: &'static str;

    #[doc(hidden)]
    fn may_be(known: ValueType) -> bool;

    /// Converts the value. Returns `None` if it has another type.
    fn of(value: &dyn Val) -> Option<Self>;
}

impl ExpressionValue for bool {
    const EXPECTED: &'static str = "true or false";

    fn may_be(known: ValueType) -> bool {
        matches!(known, ValueType::Unknown | ValueType::Bool)
    }

    fn of(value: &dyn Val) -> Option<Self> {
        value.downcast_ref::<CelBool>().map(|value| *value.inner())
    }
}

impl ExpressionValue for u64 {
    const EXPECTED: &'static str = "a non-negative number";

    fn may_be(known: ValueType) -> bool {
        matches!(known, ValueType::Unknown | ValueType::Number)
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

impl ExpressionValue for f64 {
    const EXPECTED: &'static str = "a number";

    fn may_be(known: ValueType) -> bool {
        matches!(known, ValueType::Unknown | ValueType::Number)
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

impl ExpressionValue for String {
    const EXPECTED: &'static str = "text";

    fn may_be(known: ValueType) -> bool {
        matches!(known, ValueType::Unknown | ValueType::Text | ValueType::Number | ValueType::Bool)
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

/// The standard functions, and those that expressions are rewritten to call.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib().with_optional_support(false);
    // The declarations cannot fail: the names cannot be written in an expression, and each is declared once.
    let _ = budget::declare(&mut environment);
    let _ = values::declare(&mut environment);
    Arc::new(environment)
});

/// Parses an expression, on a thread of its own: the stack of the caller may be too small.
fn parse(source: &str) -> Result<IdedExpr, ExpressionError> {
    let parse = || ENVIRONMENT.parser().max_recursion_depth(DEPTH_MAX).parse(source);
    let parsed = thread::scope(|scope| {
        let builder = thread::Builder::new().name("egret-cel".into()).stack_size(PARSER_STACK_BYTES);
        builder.spawn_scoped(scope, parse).map(thread::ScopedJoinHandle::join)
    });
    match parsed {
        Ok(Ok(parsed)) => parsed.map_err(|errors| syntax::explain(source, &errors)),
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => Err(ExpressionError::new(format!("the thread of the parser cannot start: {error}"))),
    }
}

impl<T: ExpressionValue> Expression<T> {
    /// Compiles `source`, which may use the names in `scope`.
    pub fn compile(source: &str, scope: Scope<'_>) -> Result<Self, ExpressionError> {
        if source.len() > EXPRESSION_BYTES_MAX {
            return Err(ExpressionError::new(format!(
                "an expression has at most {EXPRESSION_BYTES_MAX} bytes"
            )));
        }
        if source.contains("${env:") {
            let message = "`${env:NAME}` is not replaced in an expression: write `env(\"NAME\")`";
            return Err(ExpressionError::new(message));
        }
        let mut tree = parse(source)?;
        let variables = check::check(&mut tree, scope)?;
        let known = check::known(&tree);
        if !T::may_be(known) {
            let compare =
                if T::EXPECTED == bool::EXPECTED { ": compare it, with `==` for example" } else { "" };
            return Err(ExpressionError::new(format!(
                "this evaluates to {known}, but {} is expected{compare}",
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

    /// Returns the value of an expression that names no variable, not even of the environment, and thus
    /// always has the same; `None` for any other.
    pub fn constant(&self) -> Option<Result<T, EvaluationError>> {
        if self.variables != Variables::default() {
            return None;
        }
        budget::grant();
        let context = Context::with_env(Arc::clone(&ENVIRONMENT));
        let value = Value::resolve_val(&self.tree, &context);
        if budget::is_spent() {
            return Some(Err(EvaluationError::Budget));
        }
        let value = value.map_err(|error| EvaluationError::of(&error));
        Some(value.and_then(|value| T::of(value.as_ref()).ok_or(EvaluationError::Outcome)))
    }

    /// Returns `true` if the expression reads the request's body.
    pub fn needs_request_body(&self) -> bool {
        self.variables.contains(Variable::RequestBody)
    }

    /// Returns `true` if the expression reads the response's body.
    pub fn needs_response_body(&self) -> bool {
        self.variables.contains(Variable::ResponseBody)
    }

    /// Returns `true` if the expression reads the usage that the response reports.
    pub fn needs_usage(&self) -> bool {
        Variable::ALL.into_iter().any(|variable| variable.is_usage() && self.variables.contains(variable))
    }

    /// Returns `true` if the expression reads any part of the response itself.
    pub fn needs_response(&self) -> bool {
        Variable::ALL
            .into_iter()
            .filter(|variable| {
                matches!(variable.stage(), Stage::ResponseHead | Stage::Response | Stage::ResponseEnd)
            })
            .any(|variable| self.variables.contains(variable))
    }
}

#[cfg(test)]
mod tests;
