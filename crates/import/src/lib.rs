//! Translates the configs of other products into Egret's, and reports what was lost.
//!
//! A translation is text, because it carries comments for its reader. The caller checks the text with the
//! parser of the config.

mod draft;
mod emit;
pub mod lunar;
mod report;
mod source;
mod yaml;

pub use report::{Item, ItemOutcome, Translation};
pub use source::{BadInput, ImportError};
