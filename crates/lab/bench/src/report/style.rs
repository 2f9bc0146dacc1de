//! The presentation of a report.

/// Presentation of a report.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line, and they are independent"
)]
pub struct Style {
    /// ab's `-w`, with the attributes of `-x`, `-y` and `-z`.
    pub html: Option<Attributes>,
    /// ab's `-d`: no table of percentiles.
    pub no_percentiles: bool,
    /// ab's `-S`: no standard deviation, median and warnings.
    pub no_confidence: bool,
    /// ab's `-q`: no progress.
    pub quiet: bool,
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
