//! The reason why a client's output cannot be used.

use std::io;

/// The reason why a client's output cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// The report has no line with this label.
    #[error("its report has no `{0}`")]
    NoLine(&'static str),
    /// The file of percentiles cannot be read.
    #[error("its percentiles cannot be read: {0}")]
    Percentiles(io::Error),
    /// The file of percentiles is not in ab's format.
    #[error("percentiles.csv does not have the 101 rows that ab writes")]
    PercentileRows,
    /// The file with the JSON cannot be read.
    #[error("its JSON cannot be read: {0}")]
    File(io::Error),
    /// The JSON does not have the expected form, which the text names.
    #[error("{expected}: {error}")]
    Json {
        /// The document, and the form that it should have.
        expected: &'static str,
        /// The cause.
        error: serde_json::Error,
    },
    /// The log cannot be read.
    #[error("its log cannot be read: {0}")]
    Log(io::Error),
    /// The output has no CSV.
    #[error("it printed no rows")]
    NoRows,
    /// The CSV lacks this column.
    #[error("its rows have no column `{0}`")]
    NoColumn(&'static str),
    /// A row of the CSV is malformed.
    #[error("invalid row `{0}`")]
    InvalidRow(String),
    /// A figure is negative or not a number.
    #[error("invalid figure {0}")]
    InvalidFigure(f64),
}
