//! An engine with one script in it.

use std::sync::Arc;
use std::time::Duration;

use egret_items::opaque;
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::{Context, Ctx, Error, Function, Object, Runtime};

use crate::call::{Call, Decision, ScriptSide};
use crate::host::{self, ScriptState};
use crate::script::Script;

const PRELUDE: &str = include_str!("prelude.js");

/// Name of the script in the engine's stack traces.
pub(crate) const FILE: &str = "egret-script";

/// Stack of the engine. Workers and the thread that loads a config have at least 2 MiB.
const STACK_BYTES: usize = 256 << 10;

/// Maximum length of a message that a script throws.
const MESSAGE_CHARS_MAX: usize = 300;

/// The time that the prelude and the first run of a script may take: they run once, when the config loads.
const PREPARATION: Duration = Duration::from_millis(500);

/// Memory beyond the limit of a script, for the engine's own objects.
const OWN_MEMORY: usize = 512 << 10;

/// The reason why a call has no result. The changes of the call do not count. The message contains nothing
/// that the script was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It ran for longer than its time.
    #[error("the script ran for longer than `time`")]
    Overrun,
    /// It needed more memory or a deeper stack than it may have.
    #[error("the script needed more than `memory`, or a deeper stack")]
    Exhausted,
    /// It threw something.
    #[error("the script threw an error{}", place(*.at))]
    Threw {
        /// The thrown error, for the author. It may contain data of the exchange.
        message: String,
        /// Line and column in the source, from 1, if they are known.
        at: Option<(usize, usize)>,
    },
    /// It returned something other than a decision.
    #[error("{}", returned(*.promise))]
    Returned {
        /// `true` for a promise.
        promise: bool,
    },
}

impl CallError {
    /// Returns `true` if the instance must not be used again.
    pub fn spoils(&self) -> bool {
        matches!(self, Self::Exhausted | Self::Returned { promise: true })
    }
}

fn returned(promise: bool) -> &'static str {
    if promise {
        "the script used a promise: its functions cannot be `async`"
    } else {
        "the script returned something other than nothing, `respond(...)` or `refuse(...)`"
    }
}

fn place(at: Option<(usize, usize)>) -> String {
    at.map(|(line, column)| format!(" in line {line}, column {column}")).unwrap_or_default()
}

/// An engine for one thread at a time.
pub struct Instance {
    context: Context,
    shared: Arc<ScriptState>,
    time: Duration,
}

opaque!(Instance);

impl Instance {
    /// Creates an engine with `script`, without running it.
    pub(crate) fn new(script: &Script) -> Result<Self, CallError> {
        let failed = |_| CallError::Exhausted;
        let runtime = Runtime::new().map_err(failed)?;
        runtime.set_memory_limit(script.limits.memory.saturating_add(OWN_MEMORY));
        runtime.set_max_stack_size(STACK_BYTES);
        let shared = Arc::new(ScriptState::new(Call::new(script.rules)));
        let clock = Arc::clone(&shared);
        runtime.set_interrupt_handler(Some(Box::new(move || clock.is_over())));
        let context = Context::builder()
            .with::<intrinsic::Date>()
            .with::<intrinsic::Eval>()
            .with::<intrinsic::RegExpCompiler>()
            .with::<intrinsic::RegExp>()
            .with::<intrinsic::Json>()
            .with::<intrinsic::MapSet>()
            .with::<intrinsic::Promise>()
            .build(&runtime)
            .map_err(failed)?;
        shared.start(PREPARATION);
        let instance = Self { context, shared, time: script.limits.time };
        let prepared = instance.context.with(|ctx| {
            prepare(&ctx, &instance.shared, script).map_err(|error| instance.explained(&ctx, &error))
        });
        prepared.map(|()| instance)
    }

    /// Runs the script to find its functions. Returns whether it has one for requests, and one for
    /// responses.
    pub(crate) fn probe(&self) -> Result<(bool, bool), CallError> {
        self.shared.start(PREPARATION);
        let found = self.run(2)?;
        Ok((found & 1 != 0, found & 2 != 0))
    }

    /// Calls the function for `side`: `fill` gives it the exchange, `take` receives the changes and the
    /// decision.
    pub fn call<T>(
        &self,
        side: ScriptSide,
        fill: impl FnOnce(&mut Call),
        take: impl FnOnce(&mut Call, Decision) -> T,
    ) -> Result<T, CallError> {
        {
            let mut call = self.shared.call();
            call.side = side;
            call.decision = Decision::Next;
            call.has_changed_target = false;
            fill(&mut call);
        }
        self.shared.start(self.time);
        let returned = self.run(u8::from(side == ScriptSide::Response));
        // Native code may have gone on for longer without asking for the time.
        let is_over = self.shared.is_over();
        let is_spoilt = self.context.runtime().is_job_pending();
        let returned = match returned {
            // An error that follows from the interruption.
            Err(CallError::Threw { .. }) | Ok(_) if is_over => return Err(CallError::Overrun),
            _ if is_spoilt => return Err(CallError::Returned { promise: true }),
            returned => returned?,
        };
        let mut call = self.shared.call();
        let decision = std::mem::replace(&mut call.decision, Decision::Next);
        match returned {
            0 => Ok(take(&mut call, Decision::Next)),
            1 => Ok(take(&mut call, decision)),
            kind => Err(CallError::Returned { promise: kind == 2 }),
        }
    }

    /// Bytes that the engine has allocated.
    pub fn memory(&self) -> usize {
        usize::try_from(self.context.runtime().memory_usage().malloc_size).unwrap_or(0)
    }

    fn run(&self, side: u8) -> Result<i32, CallError> {
        self.context.with(|ctx| {
            let result = match ctx.userdata::<Function<'_>>() {
                Some(run) => run.call::<_, i32>((side,)),
                None => return Err(CallError::Exhausted),
            };
            result.map_err(|error| self.explained(&ctx, &error))
        })
    }

    /// Describes an error of the engine.
    fn explained(&self, ctx: &Ctx<'_>, error: &Error) -> CallError {
        if !matches!(error, Error::Exception) {
            return match error {
                Error::Allocation => CallError::Exhausted,
                error => CallError::Threw { message: shortened(&error.to_string()), at: None },
            };
        }
        let thrown = ctx.catch();
        let Some(exception) = thrown.as_exception() else {
            // The engine throws `null` if there is no memory even for an error.
            if thrown.is_null() {
                return CallError::Exhausted;
            }
            let message = thrown.as_string().and_then(|text| text.to_string().ok());
            let message = message.unwrap_or_else(|| format!("a value of the type {}", thrown.type_name()));
            return CallError::Threw { message: shortened(&message), at: None };
        };
        let message = exception.message().unwrap_or_default();
        if message == "out of memory" || message == "Maximum call stack size exceeded" {
            return CallError::Exhausted;
        }
        if message == "interrupted" && self.shared.is_over() {
            return CallError::Overrun;
        }
        let at = exception.stack().and_then(|stack| position(&stack));
        let name = exception.as_object().get::<_, String>("name").unwrap_or_else(|_| "Error".to_owned());
        CallError::Threw { message: shortened(&format!("{name}: {message}")), at }
    }
}

/// Evaluates the script's function for each purpose, and the prelude, which returns the function that runs
/// them. The context keeps that function.
fn prepare(ctx: &Ctx<'_>, shared: &Arc<ScriptState>, script: &Script) -> Result<(), Error> {
    let returns = [
        "(typeof onRequest === 'function' ? 1 : 0) | (typeof onResponse === 'function' ? 2 : 0)",
        "onRequest",
        "onResponse",
    ];
    let sources = rquickjs::Array::new(ctx.clone())?;
    for (number, returned) in returns.into_iter().enumerate() {
        let mut options = EvalOptions::default();
        options.filename = Some(FILE.to_owned());
        let text = format!("(function () {{\n{}\n; return {returned}; }})", script.text);
        sources.set(number, ctx.eval_with_options::<Function<'_>, _>(text, options)?)?;
    }
    let secrets = Object::new(ctx.clone())?;
    for (name, value) in &script.secrets {
        secrets.set(name.as_str(), value.as_str())?;
    }
    let mut options = EvalOptions::default();
    options.filename = Some("egret".to_owned());
    let prelude: Function<'_> = ctx.eval_with_options(PRELUDE, options)?;
    let run: Function<'_> = prelude.call((host::host(ctx, shared)?, secrets, sources))?;
    // The context has no other data.
    drop(ctx.store_userdata(run));
    Ok(())
}

/// Returns the position of the first frame of a stack trace that is in the script.
pub(crate) fn position(stack: &str) -> Option<(usize, usize)> {
    let (_, rest) = stack.split_once(&format!("{FILE}:"))?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    let (line, column) = (numbers.next()?.parse::<usize>().ok()?, numbers.next()?.parse().ok()?);
    // The first line is the wrapper's.
    Some((line.saturating_sub(1).max(1), column))
}

fn shortened(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect()
}
