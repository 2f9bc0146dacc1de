//! Budget of an evaluation.
//!
//! CEL loops only over lists and maps, and values grow only by concatenation and by putting values into lists
//! and maps. When an expression is compiled, it is rewritten to pass these operations through a function that
//! charges for them. A unit is about the cost of evaluating one operator or of copying [`BYTES_PER_UNIT`].

use std::cell::Cell;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};
use cel::common::types::{CelBytes, CelInt, CelList, CelMap, CelMapKey, CelString, DYN_TYPE, INT_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

/// Budget of one evaluation in units: about ten milliseconds at most.
const BUDGET: u64 = 250_000;

/// Number of bytes copied per unit.
const BYTES_PER_UNIT: usize = 64;

/// Name of the charging function. It cannot be written in an expression.
const CHARGE: &str = "@charge";

thread_local! {
    /// Remaining budget of the current evaluation.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Starts an evaluation with a full budget.
pub(super) fn grant() {
    LEFT.set(BUDGET);
}

/// Returns `true` if the evaluation has used up its budget.
pub(super) fn is_spent() -> bool {
    LEFT.get() == 0
}

/// Declares the charging function.
pub(super) fn declare(environment: &mut Env) -> Result<(), DeclarationError> {
    environment.add_overload(CHARGE, CHARGE, vec![DYN_TYPE, INT_TYPE], charge)
}

/// Wraps `expression` to charge for its value: `weight` units for each element, plus the size of its content.
pub(super) fn charged(expression: IdedExpr, weight: u32) -> IdedExpr {
    let weight = Expr::Literal(LiteralValue::Int(CelInt::from(i64::from(weight))));
    let args = vec![expression, IdedExpr { id: 0, expr: weight }];
    let call = CallExpr { func_name: CHARGE.to_owned(), target: None, args };
    IdedExpr { id: 0, expr: Expr::Call(call) }
}

fn charge<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let mut args = args.into_iter();
    let (Some(value), Some(weight)) = (args.next(), args.next()) else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let weight = weight.downcast_ref::<CelInt>().map_or(1, |weight| weight.inner().unsigned_abs());
    let elements = value.as_sizer().map_or(1, |sizer| sizer.size().inner().unsigned_abs());
    let left = LEFT.get().saturating_sub(elements.saturating_mul(weight));
    let left = less(value.as_ref(), left);
    LEFT.set(left);
    if left == 0 { Err(ExecutionError::function_error(CHARGE, "budget")) } else { Ok(value) }
}

/// Returns the budget left after paying for the content of `value`. Stops when the budget is used up.
fn less(value: &dyn Val, left: u64) -> u64 {
    let of_bytes = |bytes: usize| 1 + u64::try_from(bytes / BYTES_PER_UNIT).unwrap_or(u64::MAX);
    if left == 0 {
        return 0;
    }
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return left.saturating_sub(of_bytes(text.inner().len()));
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return left.saturating_sub(of_bytes(bytes.inner().len()));
    }
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        return list.inner().iter().fold(left - 1, |left, element| less(element.as_ref(), left));
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        return map.inner().iter().fold(left - 1, |left, (key, value)| {
            let key = if let CelMapKey::String(key) = key { key.inner().len() } else { 0 };
            less(value.as_ref(), left.saturating_sub(of_bytes(key)))
        });
    }
    left - 1
}
