//! Scripts: functions in JavaScript that edit a request or a response, respond to it or refuse it.
//!
//! A [`Script`] is checked once, and makes an [`Instance`] for each worker: an engine with its own memory, in
//! which nothing survives a call. The script runs as a whole for each call, so its variables are new, and
//! everything else that it can reach is frozen. It sees copies of messages ([`Call`]) and no other host
//! objects, and has no I/O.
//!
//! `prelude.js` is the part of the host that is written in JavaScript. `egret-script.d.ts` in
//! `docs/reference` declares what scripts see.

mod call;
mod host;
mod instance;
mod script;

#[cfg(test)]
mod tests;

pub use call::{Call, CopiedBody, Decision, MessageCopy, Rules, ScriptSide};
pub use instance::{CallError, Instance};
pub use script::{CompileError, Limits, Script};

/// TypeScript declarations of everything that scripts see.
pub const DECLARATIONS: &str = include_str!("../../../../docs/reference/egret-script.d.ts");
