//! The presentation of a report.

use crate::options::Options;

/// Presentation of a report.
#[derive(Debug, Clone, Default)]
pub struct Style {
    /// ab's `-w`, with the attributes of `-x`, `-y` and `-z`.
    pub html: Option<Attributes>,
    /// ab's `-d`: no table of percentiles.
    pub no_percentiles: bool,
    /// ab's `-S`: no standard deviation, median and warnings.
    pub no_confidence: bool,
    /// Reproduces ab's report, bugs included.
    pub ab_compat: bool,
}

/// HTML attributes of ab's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Attributes of `table`.
    pub table: String,
    /// Attributes of `tr`.
    pub row: String,
    /// Attributes of `td` and `th`.
    pub cell: String,
}

impl Default for Attributes {
    fn default() -> Self {
        Self { table: String::new(), row: String::new(), cell: "bgcolor=white".to_owned() }
    }
}

impl From<&Options> for Style {
    fn from(options: &Options) -> Self {
        let default = Attributes::default();
        let attributes = || Attributes {
            table: options.table_attributes.clone().unwrap_or(default.table),
            row: options.row_attributes.clone().unwrap_or(default.row),
            cell: options.cell_attributes.clone().unwrap_or(default.cell),
        };
        Self {
            html: options.wants_html().then(attributes),
            no_percentiles: options.no_percentiles,
            no_confidence: options.no_confidence,
            ab_compat: options.ab_compat,
        }
    }
}
