//! Load clients: their command lines, and the parsing of their output.

mod ab;
mod bench;
mod grpc;
mod h2load;
mod oha;
mod output_error;
mod percentiles;
mod siege;
mod task;
mod wrk;

use std::path::Path;

use crate::client_settings::ClientKind;
use crate::figures::Figures;

pub(crate) use output_error::OutputError;
pub(crate) use task::{ClientCommand, ClientTask};

impl ClientKind {
    /// Builds the arguments, and the files that they refer to.
    pub(crate) fn command(self, task: &ClientTask<'_>) -> ClientCommand {
        match self {
            Self::Bench => bench::command(task),
            Self::Ab => ab::command(task),
            Self::Siege => siege::command(task),
            Self::Wrk => wrk::command(task),
            Self::Oha => oha::command(task),
            Self::H2load => h2load::command(task),
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
            Self::H2load => h2load::figures(directory, printed),
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

/// Converts a count that a load client prints.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a load client prints whole counts; the cast saturates"
)]
fn count(figure: f64) -> u64 {
    figure as u64
}

#[cfg(test)]
mod tests;
