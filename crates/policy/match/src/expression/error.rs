//! The errors of expressions, when they are compiled and when they are evaluated.

use std::fmt;

use cel::ExecutionError;
use egret_config::Problem;

/// A compilation error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionError {
    /// The mistake.
    pub message: String,
    /// A suggested name.
    pub suggestion: Option<String>,
    /// Line and column in the expression, both from 1, if known.
    pub place: Option<(usize, usize)>,
}

impl ExpressionError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), suggestion: None, place: None }
    }
}

impl ExpressionError {
    /// Converts the error to a problem of the config at `path`.
    pub fn at(self, path: impl Into<String>) -> Problem {
        let problem = Problem { suggestion: self.suggestion, ..Problem::new(path, self.message) };
        match self.place {
            Some((line, column)) => problem.within(line, column),
            None => problem,
        }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.place {
            Some((1, column)) => write!(f, " (column {column})")?,
            Some((line, column)) => write!(f, " (line {line}, column {column})")?,
            None => {}
        }
        match &self.suggestion {
            Some(meant) => write!(f, "; did you mean `{meant}`?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ExpressionError {}

/// An evaluation error. It contains no part of the inputs, so it can be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// A key or element does not exist.
    #[error("a key or an element does not exist: test with `has(...)` first")]
    Missing,
    /// An operator or function got a value of an unsuitable type.
    #[error("an operator or function got a value of the wrong type")]
    Types,
    /// A number is too large, or is divided by zero.
    #[error("a number is too large, or is divided by zero")]
    Arithmetic,
    /// The budget for time and memory is exhausted.
    #[error("the evaluation exceeds its budget for time and memory")]
    Budget,
    /// The body is longer than expressions may read.
    #[error("the body is longer than expressions may read")]
    BodyTooLong,
    /// The result has another type than expected.
    #[error("the result has the wrong type")]
    Outcome,
    /// Any other error.
    #[error("a function cannot process the value it got")]
    Other,
}

impl EvaluationError {
    pub(super) fn of(error: &ExecutionError) -> Self {
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
