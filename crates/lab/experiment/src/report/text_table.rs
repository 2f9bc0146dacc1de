//! A table of texts.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A table of texts, ready to print.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct TextTable {
    /// Title of the table.
    pub title: String,
    /// Column headings.
    pub head: Vec<String>,
    /// One row per scenario.
    pub rows: Vec<Vec<String>>,
}

/// Writes the title, and the table as Markdown with aligned columns.
impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        writeln!(f, "{}\n", self.title)?;
        for (index, row) in all().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if index == 0 {
                let rules = widths.iter().map(|width| format!("| {} ", "-".repeat(*width)));
                writeln!(f, "{}|", rules.collect::<String>())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let table = TextTable {
            title: "T".into(),
            head: row(["µs", "name"]),
            rows: vec![row(["1", "a"]), row(["1,000", "–"])],
        };
        let expected = "T\n\n| µs    | name |\n| ----- | ---- |\n| 1     | a    |\n| 1,000 | –    |\n";
        assert_eq!(table.to_string(), expected);
    }
}
