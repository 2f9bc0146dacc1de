//! JSON as bytes: read as a stream, edited in its text, and written. No value is built and no number is
//! computed.

pub mod edit;
pub mod pointer;
mod scanner;
pub mod tokenizer;
mod write;

pub use scanner::JsonError;
pub use write::write_escaped;
