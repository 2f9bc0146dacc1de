//! The reason why a client's output cannot be used.

use std::{fmt, io};

/// The reason why a client's output cannot be used.
#[derive(Debug)]
pub(crate) enum OutputError {
    /// The report has no line with this label.
    NoLine(&'static str),
    /// The file of percentiles cannot be read.
    Percentiles(io::Error),
    /// The file of percentiles is not in ab's format.
    PercentileRows,
    /// The file with the JSON cannot be read.
    File(io::Error),
    /// The JSON does not have the expected form, which the text names.
    Json {
        /// The document, and the form that it should have.
        expected: &'static str,
        /// The cause.
        error: serde_json::Error,
    },
    /// The output has no CSV.
    NoRows,
    /// The CSV lacks this column.
    NoColumn(&'static str),
    /// A row of the CSV is malformed.
    InvalidRow(String),
    /// A figure is negative or not a number.
    InvalidFigure(f64),
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLine(label) => write!(f, "its report has no `{label}`"),
            Self::Percentiles(error) => write!(f, "its percentiles cannot be read: {error}"),
            Self::PercentileRows => f.write_str("percentiles.csv does not have the 101 rows that ab writes"),
            Self::File(error) => write!(f, "its JSON cannot be read: {error}"),
            Self::Json { expected, error } => write!(f, "{expected}: {error}"),
            Self::NoRows => f.write_str("it printed no rows"),
            Self::NoColumn(name) => write!(f, "its rows have no column `{name}`"),
            Self::InvalidRow(line) => write!(f, "invalid row `{line}`"),
            Self::InvalidFigure(figure) => write!(f, "invalid figure {figure}"),
        }
    }
}

impl std::error::Error for OutputError {}
