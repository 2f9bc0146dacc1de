//! `egret ca`: the certificate authority for intercepted hosts, as files.

mod export;
pub mod init;
pub mod place;
mod show;
mod trust_stores;

use clap::Subcommand;
use egret_settings::failure::Failure;
use egret_settings::output::print;
use place::AuthorityPlace;

/// The commands of `egret ca`.
#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Make a certificate authority for the hosts to intercept.
    ///
    /// It may speak for the configured providers, `interception.hosts`, and the hosts given here, and for no
    /// others. Prints its fingerprint and the next step. A gateway that runs uses it after a restart.
    Init(init::Init),
    /// Print the authority's root certificate, or a file with it and all authorities that are trusted anyway.
    ///
    /// The authority's key is never printed.
    Export(export::Export),
    /// Print the path of a file that makes a program trust the authority: `curl --cacert "$(egret ca path)"`
    Path(export::PathArguments),
    /// Add the root certificate to the trust stores of this system and of Chromium.
    ///
    /// Prints each command before it runs. Every program that uses these stores then trusts the authority, so
    /// prefer `egret ca path` where one program is enough.
    Install(trust_stores::StoreChange),
    /// Remove the root certificate from the trust stores.
    Uninstall(trust_stores::StoreChange),
    /// Show the authority's hosts, the end of its validity and its fingerprint.
    Show(AuthorityPlace),
}

impl CaCommand {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Init(init) => init.run(),
            Self::Export(export) => export.run(),
            Self::Path(path) => path.run(),
            Self::Install(change) => change.install(),
            Self::Uninstall(change) => change.uninstall(),
            Self::Show(place) => print(&show::text(&place.authority()?, &place.directory()?)),
        }
    }
}
