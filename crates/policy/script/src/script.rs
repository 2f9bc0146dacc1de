//! A script that has been checked.

use std::time::Duration;

use egret_items::opaque;
use rquickjs::{Context, Error, Module, Runtime};

use crate::call::{Rules, ScriptSide};
use crate::instance::{CallError, FILE, Instance, position};

/// Memory for checking the syntax.
const CHECK_MEMORY: usize = 64 << 20;

/// The bounds of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that one instance may allocate, beyond about 0.5 MiB for the engine's own objects.
    pub memory: usize,
    /// Processor time of one call.
    pub time: Duration,
}

/// A script that has been checked. `Debug` does not show it, because it may be long, nor its secrets.
#[derive(Clone)]
pub struct Script {
    pub(crate) text: String,
    pub(crate) limits: Limits,
    pub(crate) secrets: Vec<(String, String)>,
    pub(crate) rules: Rules,
    has_request: bool,
    has_response: bool,
}

opaque!(Script { limits });

/// The reason why a script cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    /// The reason.
    pub message: String,
    /// Line and column in the script, both from 1, if they are known.
    pub at: Option<(usize, usize)>,
}

impl Script {
    /// Checks `text`, and runs it once to find its functions.
    ///
    /// # Errors
    ///
    /// Fails if the text is not JavaScript, has a feature that scripts do not have, throws an error when it
    /// runs, or has neither `onRequest` nor `onResponse`.
    pub fn compile(
        text: &str,
        limits: Limits,
        secrets: Vec<(String, String)>,
        rules: Rules,
    ) -> Result<Self, CompileError> {
        check_syntax(text)?;
        if let Some(at) = find_big_integer(text) {
            let message = "integers of any size (`10n`) are not available; a text or a comment must not \
                           look like one either";
            return Err(CompileError { message: message.to_owned(), at: Some(at) });
        }
        let text = text.to_owned();
        let mut script = Self { text, limits, secrets, rules, has_request: false, has_response: false };
        let instance = script.instance().map_err(CompileError::from)?;
        (script.has_request, script.has_response) = instance.probe().map_err(CompileError::from)?;
        if !script.has_request && !script.has_response {
            return Err(CompileError { message: missing_functions(&script.text), at: None });
        }
        Ok(script)
    }

    /// Returns `true` if the script has a function for that side.
    pub fn has(&self, side: ScriptSide) -> bool {
        match side {
            ScriptSide::Request => self.has_request,
            ScriptSide::Response => self.has_response,
        }
    }

    /// Creates an engine with the script in it.
    ///
    /// # Errors
    ///
    /// Fails if the memory does not suffice for the engine itself.
    pub fn instance(&self) -> Result<Instance, CallError> {
        Instance::new(self)
    }
}

impl From<CallError> for CompileError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Threw { message, at } => {
                Self { message: format!("the script does not start: {message}"), at }
            }
            other => Self { message: format!("the script does not start: {other}"), at: None },
        }
    }
}

/// Parses the script by itself, as strict code, so that it cannot end the function that it is wrapped in.
fn check_syntax(text: &str) -> Result<(), CompileError> {
    let failed = |error: Error| CompileError { message: error.to_string(), at: None };
    let runtime = Runtime::new().map_err(failed)?;
    runtime.set_memory_limit(CHECK_MEMORY);
    let context = Context::full(&runtime).map_err(failed)?;
    context.with(|ctx| {
        // The line before it is that of the wrapper when the script runs.
        let Err(error) = Module::declare(ctx.clone(), FILE, format!("\n{text}")) else { return Ok(()) };
        if !matches!(error, Error::Exception) {
            return Err(failed(error));
        }
        let thrown = ctx.catch();
        let exception = thrown.as_exception();
        let message = exception.and_then(rquickjs::Exception::message).unwrap_or_default();
        let at = exception.and_then(|exception| position(&exception.stack()?));
        Err(CompileError { message: format!("invalid JavaScript: {message}"), at })
    })
}

/// Returns the position of the first literal of an integer of any size. They are computed by native code that
/// never asks for the time.
fn find_big_integer(text: &str) -> Option<(usize, usize)> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    for (line, content) in (1..).zip(text.lines()) {
        let mut rest = content;
        while let Some(start) = rest.find(is_word) {
            let word = &rest[start..];
            let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
            let (word, after) = word.split_at(end);
            if word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with('n') {
                let before = content.len() - rest.len() + start;
                return Some((line, content[..before].chars().count() + 1));
            }
            rest = after;
        }
    }
    None
}

/// The message for a script without functions, with the name that was probably meant.
fn missing_functions(text: &str) -> String {
    let expected = "expected `function onRequest(request)` or `function onResponse(request, response)`";
    let names = text.split("function ").skip(1).filter_map(|rest| rest.split('(').next());
    let names: Vec<&str> = names.map(str::trim).filter(|name| !name.is_empty()).take(3).collect();
    if names.is_empty() {
        expected.to_owned()
    } else {
        format!("{expected}; it has `{}`", names.join("`, `"))
    }
}
