//! JSON as bytes: read as a stream, edited in its text, and written. No value is built, and no number is
//! computed but by [`decimal`], which makes whole units of a decimal fraction. Also texts made safe for
//! terminals and logs, with the same escapes.

pub mod decimal;
pub mod edit;
pub mod pointer;
pub mod printable;
mod scanner;
pub mod tokenizer;
mod write;

pub use scanner::JsonError;
pub use write::write_escaped;
