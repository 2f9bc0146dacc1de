//! Load clients: their command lines, and the parsing of their output.

mod ab;
mod bench;
mod oha;
mod output_error;
mod percentiles;
mod siege;
mod task;
mod wrk;

use std::ffi::OsString;
use std::path::Path;

use crate::client_settings::ClientKind;
use crate::figures::Figures;

pub(crate) use output_error::OutputError;
pub(crate) use task::ClientTask;

impl ClientKind {
    /// Builds the arguments, and writes the files they refer to into the task's directory.
    pub(crate) fn arguments(self, task: &ClientTask<'_>) -> std::io::Result<Vec<OsString>> {
        match self {
            Self::Bench => bench::arguments(task),
            Self::Ab => ab::arguments(task),
            Self::Siege => siege::arguments(task),
            Self::Wrk => wrk::arguments(task),
            Self::Oha => oha::arguments(task),
        }
    }

    /// Parses the client's output and files.
    pub(crate) fn figures(self, directory: &Path, printed: &str) -> Result<Figures, OutputError> {
        let figures = match self {
            Self::Bench => bench::figures(directory),
            Self::Ab => ab::figures(directory, printed),
            Self::Siege => siege::figures(printed),
            Self::Wrk => wrk::figures(printed),
            Self::Oha => oha::figures(printed),
        }?;
        let all = [figures.duration_s, figures.requests_per_second]
            .into_iter()
            .chain(figures.percentiles_ms.iter().copied());
        match all.into_iter().find(|figure| !figure.is_finite() || *figure < 0.0) {
            Some(figure) => Err(OutputError::InvalidFigure(figure)),
            None => Ok(figures),
        }
    }
}

#[cfg(test)]
mod tests;
