//! Usage of language models: the provider's own report, read while the response passes.
//!
//! [`UsageScan`] takes the bytes of a response in order, however they are cut. It reads events of
//! `text/event-stream`, JSON, lines of JSON, and AWS event streams. It holds no byte back, changes none, and
//! keeps none but the token that it is in. What it finds ends in one [`UsageRecord`], whatever the provider
//! calls it. [`ReportFilter`] is for clients that have not asked for a report: it leaves that event out.
//!
//! Memory: the state of reading is at most 256 bytes, with the buffer for one name, number or short text. The
//! figures found so far take at most 448 bytes, and an AWS event stream has them twice, because a message
//! counts only once its checksum was right. A content coding adds the window of its decoder.

mod aws_events;
mod base64;
mod content;
mod fast_path;
mod json;
mod names;
mod record;
mod report_filter;
mod scan;
mod shape;
mod sse;
mod tally;

pub use content::ContentScan;
pub use record::{CacheWrites, UsageDialect, UsageKind, UsageRecord, UsageSource};
pub use report_filter::ReportFilter;
pub use scan::UsageScan;
pub use sse::{Sse, SsePart};
