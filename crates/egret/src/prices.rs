//! `egret prices`: imports a table of prices of language models, and shows what a call costs.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand};
use egret_clock::rfc3339;
use egret_config::reason;
use egret_measure::streams::say;
use egret_prices::{ModelPrices, PriceSet, PriceTable, TABLE_BYTES_MAX, litellm};
use egret_settings::failure::Failure;
use egret_settings::output::print;
use egret_usage::{CacheWrites, UsageRecord};

/// Import and show prices of language models.
#[derive(Debug, Subcommand)]
pub enum Prices {
    /// Import `LiteLLM`'s `model_prices_and_context_window.json`, and write a dated table of prices.
    ///
    /// Prices are kept as whole pico-dollars (10⁻¹² US dollars) for a token. The file states its source, its
    /// date and the SHA-256 of what was imported. The report goes to standard error.
    Import(ImportArguments),
    /// Show the prices of a model, and what an example call costs.
    Show(ShowArguments),
}

/// Arguments of `egret prices import`.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The table to import.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File to write. It is replaced if it exists.
    #[arg(long, value_name = "FILE", default_value = "prices.json")]
    output: PathBuf,
    /// Source of the table, for people: where it is from, or its version. The name of the file by default.
    #[arg(long, value_name = "TEXT")]
    source: Option<String>,
}

/// Arguments of `egret prices show`.
#[derive(Debug, Args)]
pub struct ShowArguments {
    /// Name of the model, as the table has it.
    #[arg(value_name = "MODEL")]
    model: String,
    /// Table of prices, which `egret prices import` has written.
    #[arg(long, value_name = "FILE", default_value = "prices.json")]
    prices: PathBuf,
    /// Input tokens of the example, all parts included.
    #[arg(long, value_name = "TOKENS", default_value_t = 10_000)]
    input: u64,
    /// Input tokens of the example that are read from the provider's cache.
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    cached: u64,
    /// Input tokens of the example that are written to the provider's cache.
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    written: u64,
    /// Output tokens of the example, reasoning included.
    #[arg(long, value_name = "TOKENS", default_value_t = 1_000)]
    output: u64,
    /// Tier of service of the example, such as `flex` or `priority`. The standard one by default.
    #[arg(long, value_name = "TIER", default_value = "")]
    tier: String,
}

impl Prices {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Import(arguments) => arguments.run(),
            Self::Show(arguments) => arguments.run(),
        }
    }
}

impl ImportArguments {
    fn run(&self) -> Result<(), Failure> {
        let json = bounded(&self.file, "`LiteLLM` publishes it as `model_prices_and_context_window.json`")?;
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        let source = self.source.as_deref().unwrap_or(&name);
        let now = rfc3339::write(SystemTime::now());
        let date = now.split('T').next().unwrap_or_default();
        let import = litellm::import(&json, source, date).map_err(|error| misused(&self.file, &error))?;
        let text = import.table.write().map_err(Failure::failed)?;
        replace(&self.output, &text)?;
        say(format!("{}: {}", self.output.display(), import.report().trim_end()));
        Ok(())
    }
}

impl ShowArguments {
    fn run(&self) -> Result<(), Failure> {
        let bytes = bounded(&self.prices, "`egret prices import FILE` writes it")?;
        let table = PriceTable::read(&bytes).map_err(|error| misused(&self.prices, &error))?;
        let Some(model) = table.models.get(&self.model) else { return Err(self.unknown(&table)) };
        let mut text = format!("{}\n", self.model);
        let _ = writeln!(text, "source  {}, {}, SHA-256 {}", table.source, table.date, table.sha256);
        for (name, value) in [("input", model.input_max), ("output", model.output_max)] {
            if let Some(value) = value {
                let _ = writeln!(text, "{name} at most {value} tokens");
            }
        }
        for set in &model.prices {
            push_set(set, &mut text);
        }
        text.push_str(&self.example(model)?);
        print(&text)
    }

    fn unknown(&self, table: &PriceTable) -> Failure {
        let similar = table.similar(&self.model, 5).join(", ");
        let hint = if similar.is_empty() { String::new() } else { format!("; similar: {similar}") };
        Failure::Failed(format!(
            "no prices for the model {:?} in {}{hint}",
            self.model,
            self.prices.display()
        ))
    }

    fn example(&self, model: &ModelPrices) -> Result<String, Failure> {
        let usage = UsageRecord {
            input: self.input,
            cache_read: self.cached,
            cache_write: CacheWrites { other: self.written, ..CacheWrites::default() },
            output: self.output,
            tier: Some(self.tier.as_str().into()),
            ..UsageRecord::default()
        };
        if self.cached.saturating_add(self.written) > self.input {
            return Err(Failure::Misused(
                "--cached and --written are parts of --input, and exceed it".to_owned(),
            ));
        }
        let cost = model.cost(&usage).map_err(|error| {
            Failure::Misused(format!("the example with {} tokens of input: {error}", self.input))
        })?;
        let Self { input, cached, written, output, .. } = self;
        let parts =
            format!("{input} tokens of input ({cached} cached, {written} written), {output} of output");
        Ok(format!("\nexample: {parts}\ncosts   ${} ({cost} nano-dollars)\n", decimal(cost, 9)))
    }
}

/// Adds the prices that apply together, in US dollars for a million tokens.
fn push_set(set: &PriceSet, text: &mut String) {
    let tier = if set.tier.is_empty() { "standard" } else { &set.tier };
    let _ = match set.above {
        0 => writeln!(text, "\n{tier}, per million tokens"),
        above => writeln!(text, "\n{tier}, per million tokens, if the input has more than {above}"),
    };
    for (rate, picodollars) in &set.picodollars {
        // A pico-dollar for a token is a micro-dollar for a million.
        let _ = writeln!(text, "  {:<26} ${}", rate.name(), decimal(*picodollars, 6));
    }
}

/// Writes a number of small units as a decimal number, with at least two places.
fn decimal(units: u64, places: u32) -> String {
    let one = 10_u64.pow(places);
    let fraction = format!("{:0>width$}", units % one, width = places as usize);
    let shown = fraction.trim_end_matches('0').len().max(2);
    format!("{}.{}", units / one, &fraction[..shown])
}

/// Reads a file of a bounded size. `origin` says where one that is missing comes from.
fn bounded(path: &Path, origin: &str) -> Result<Vec<u8>, Failure> {
    let cannot = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => misused(path, &format!("no such file; {origin}")),
        _ => misused(path, &format!("cannot read the file: {}", reason(error))),
    };
    let file = File::open(path).map_err(|error| cannot(&error))?;
    let mut bytes = Vec::new();
    file.take(TABLE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    if bytes.len() as u64 > TABLE_BYTES_MAX {
        return Err(misused(path, &format!("larger than {TABLE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// Replaces a file at once: a reader has the old table or the new one.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| Failure::Failed(format!("{}: cannot write the file: {error}", path.display())))
}

fn misused(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Misused(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_written_without_needless_zeros() {
        for (units, places, text) in
            [(5_000_000, 6, "5.00"), (2_500_001, 6, "2.500001"), (0, 9, "0.00"), (3_500_000, 9, "0.0035")]
        {
            assert_eq!(decimal(units, places), text);
        }
    }
}
