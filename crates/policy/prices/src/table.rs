//! The file of prices: dated, with the source and the SHA-256 of what was imported.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::model::ModelPrices;

/// Maximum size of a file of prices, in bytes, and of a file that is imported.
pub const TABLE_BYTES_MAX: u64 = 64 << 20;

/// The version of the file's format.
const FORMAT: u32 = 1;

/// Prices of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    format: u32,
    /// The source of the prices, for people.
    pub source: String,
    /// The date of the import, `YYYY-MM-DD` in UTC.
    pub date: String,
    /// SHA-256 of the imported file, in hexadecimal digits.
    pub sha256: String,
    /// The models by name.
    pub models: BTreeMap<String, ModelPrices>,
}

/// The reason why a file of prices cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file is not a table of prices.
    #[error("not a file that `egret prices import` has written: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Another version of Egret has written the file.
    #[error("its format is {0}, and this version of Egret reads {FORMAT}: import the prices again")]
    Format(u32),
}

impl PriceTable {
    /// A table of these models.
    pub fn new(source: String, date: String, sha256: String, models: BTreeMap<String, ModelPrices>) -> Self {
        Self { format: FORMAT, source, date, sha256, models }
    }

    /// Reads a table.
    pub fn read(json: &[u8]) -> Result<Self, TableError> {
        let table: Self = serde_json::from_slice(json)?;
        if table.format == FORMAT { Ok(table) } else { Err(TableError::Format(table.format)) }
    }

    /// Writes the table as JSON, a model in a line, so that versions of the file can be compared.
    pub fn write(&self) -> Result<String, TableError> {
        let head = [
            ("format", serde_json::to_string(&self.format)?),
            ("source", serde_json::to_string(&self.source)?),
            ("date", serde_json::to_string(&self.date)?),
            ("sha256", serde_json::to_string(&self.sha256)?),
        ];
        let mut text = "{\n".to_owned();
        for (name, value) in head {
            let _ = writeln!(text, "\"{name}\": {value},");
        }
        text.push_str("\"models\": {");
        for (index, (name, model)) in self.models.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let (name, model) = (serde_json::to_string(name)?, serde_json::to_string(model)?);
            let _ = write!(text, "{comma}\n{name}: {model}");
        }
        text.push_str("\n}}\n");
        Ok(text)
    }

    /// The names that contain a text, at most `count`, the shortest first.
    pub fn similar(&self, text: &str, count: usize) -> Vec<&str> {
        let text = text.to_ascii_lowercase();
        let names = self.models.keys().filter(|name| name.to_ascii_lowercase().contains(&text));
        let mut names: Vec<&str> = names.map(String::as_str).collect();
        names.sort_by_key(|name| name.len());
        names.truncate(count);
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PriceSet, Rate};

    fn table() -> PriceTable {
        let set = PriceSet { tier: "flex".into(), above: 5, picodollars: [(Rate::CacheWrite1h, 7)].into() };
        let model = ModelPrices { prices: vec![set], output_max: Some(9), ..ModelPrices::default() };
        let models = [("a/one\"".to_owned(), model.clone()), ("one".to_owned(), model)].into();
        PriceTable::new("a source".into(), "2026-11-28".into(), "00".into(), models)
    }

    #[test]
    fn a_table_is_written_as_it_is_read() {
        let text = table().write().unwrap();
        assert_eq!(PriceTable::read(text.as_bytes()).unwrap(), table());
        let line = r#""one": {"output_max":9,"prices":[{"tier":"flex","above":5,"picodollars":{"cache_write_1h":7}}]}"#;
        assert!(text.lines().any(|found| found == line), "{text}");
        assert_eq!(table().similar("ON", 1), ["one"]);
    }

    #[test]
    fn a_table_of_another_format_is_refused() {
        let newer = table().write().unwrap().replace("\"format\": 1", "\"format\": 2");
        assert!(matches!(PriceTable::read(newer.as_bytes()), Err(TableError::Format(2))));
        assert!(matches!(PriceTable::read(b"[]"), Err(TableError::Malformed(_))));
    }
}
