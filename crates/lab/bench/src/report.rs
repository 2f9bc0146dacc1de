//! The report of a run: ab's formats, and those that ab does not have.

mod files;
mod html;
mod run_report;
mod style;
pub(crate) mod summary;
mod text;

pub(crate) use run_report::RunReport;
pub(crate) use style::Style;

impl RunReport<'_> {
    /// Renders the report, as text or as an HTML table. It suits people and parsers of ab's report.
    pub fn render(&self) -> String {
        match &self.style.html {
            Some(attributes) => html::render(self, attributes),
            None => text::render(self),
        }
    }
}

#[cfg(test)]
mod tests;
