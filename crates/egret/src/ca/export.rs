//! `egret ca export` and `egret ca path`: the files that make programs trust the authority.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use egret_ca::jks;
use egret_measure::streams::Stdout;
use egret_settings::failure::Failure;
use egret_settings::output::print_exact;

use super::place::{AuthorityPlace, bundle};

/// A format of `egret ca export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrustFormat {
    /// The root in PEM, for programs that add it to the authorities they trust.
    Pem,
    /// The root in DER.
    Der,
    /// The root and the authorities that are trusted anyway, as a trust store of Java with the password
    /// `changeit`.
    Jks,
    /// The root and the authorities that are trusted anyway, in PEM, for programs that then trust no others.
    Bundle,
}

/// Arguments of `egret ca export`.
#[derive(Debug, Args)]
pub struct Export {
    #[command(flatten)]
    place: AuthorityPlace,
    /// The format.
    #[arg(long, value_enum, default_value_t = TrustFormat::Pem)]
    format: TrustFormat,
    /// Write to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Export {
    /// Writes the file.
    pub fn run(self) -> Result<(), Failure> {
        let directory = self.place.directory()?;
        let authority = self.place.authority()?;
        let root = authority.root();
        let bundle = || bundle(&directory).map_err(Failure::failed);
        let bytes = match self.format {
            TrustFormat::Pem => root.pem().into_bytes(),
            TrustFormat::Der => root.der().to_vec(),
            TrustFormat::Jks => jks::trust_store(bundle()?.with_root(root.der()), authority.not_before()),
            TrustFormat::Bundle => bundle()?.pem(root.der()).into_bytes(),
        };
        match &self.out {
            Some(file) => write_file(file, &bytes),
            None if matches!(self.format, TrustFormat::Der | TrustFormat::Jks)
                && std::io::stdout().is_terminal() =>
            {
                Err(Failure::misused("this format is binary: name a file with `--out`"))
            }
            None => write_stdout(&bytes),
        }
    }
}

fn write_file(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error| Failure::Failed(format!("cannot write {}: {error}", file.display()));
    std::fs::write(file, bytes).map_err(failed)
}

fn write_stdout(bytes: &[u8]) -> Result<(), Failure> {
    let written = Stdout.write_all(bytes).and_then(|()| Stdout.flush());
    written.map_err(|error| Failure::Failed(format!("cannot write to standard output: {error}")))
}

/// Arguments of `egret ca path`.
#[derive(Debug, Args)]
pub struct PathArguments {
    #[command(flatten)]
    place: AuthorityPlace,
    /// The file with the root and the authorities that are trusted anyway, in PEM, for programs that then
    /// trust no others. It is written again if those authorities have changed.
    #[arg(long, conflicts_with = "jks")]
    bundle: bool,
    /// The same as a trust store of Java, with the password `changeit`.
    #[arg(long)]
    jks: bool,
}

impl PathArguments {
    /// Prints the path.
    pub fn run(self) -> Result<(), Failure> {
        let directory = self.place.directory()?;
        let authority = self.place.authority()?;
        if self.bundle || self.jks {
            let bundle = bundle(&directory).map_err(Failure::failed)?;
            directory.update_bundle(&authority, &bundle).map_err(Failure::failed)?;
        }
        let path = match (self.bundle, self.jks) {
            (true, _) => directory.bundle_path(),
            (_, true) => directory.trust_store_path(),
            _ => directory.root_path(),
        };
        print_exact(&format!("{}\n", path.display()))
    }
}
