//! The completeness of a recorded body, which its entry and the metrics of a recording show.

use egret_items::words;

words! {
    /// Completeness of a recorded body. Its word is the name in metrics and logs, and in entries with a
    /// leading `_`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Completeness: word {
        /// The body is complete.
        Whole => "whole",
        /// The rest of the body was not kept, or its decoded size exceeds the limit.
        Truncated => "truncated",
        /// The content coding is invalid after this part.
        Corrupt => "corrupt",
        /// The content coding is unknown, so the body is still encoded.
        Coded => "coded",
        /// The body is complete, but is not JSON although its media type says so.
        Malformed => "malformed",
    }
}
