//! `egret archiver`: HARchiver's command line on Egret's engine. It is translated into an ordinary config,
//! which is then run.

mod args;
mod translation;

use std::ffi::OsString;

use args::{TOKEN_VARIABLE, secret};
use clap::Args;
use egret_service::run::overrides::Overrides;
use egret_service::run::{Beginning, Origin, Run};
use egret_settings::failure::Failure;
use egret_settings::output::print;
use translation::Translation;

pub use args::ArchiverArgs;

/// The subcommand. Only the program's name precedes it. `import harchiver` takes the same arguments.
pub const NAME: &str = "archiver";

impl ArchiverArgs {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        if self.version || self.build_info {
            let version = env!("CARGO_PKG_VERSION");
            let printed = if self.version { version.to_owned() } else { format!("egret {version}") };
            return print(&format!("{printed}\n"));
        }
        if self.print_config {
            return self.print();
        }
        let translation = self.translation()?;
        let config = translation.config().map_err(Failure::misused)?;
        print(&translation.banner())?;
        Run {
            origin: Origin::Translated(Box::new(config)),
            demo: None,
            overrides: Overrides::default(),
            beginning: Beginning::New,
            attached: None,
        }
        .run()
    }

    /// Prints the config that the command line stands for.
    pub fn print(&self) -> Result<(), Failure> {
        print(&self.translation()?.yaml())
    }

    fn translation(&self) -> Result<Translation<'_>, Failure> {
        let in_environment = || std::env::var(TOKEN_VARIABLE).ok().and_then(|token| secret(&token).ok());
        let token = self.service_token.clone().or_else(in_environment);
        let token = token.filter(|token| !token.expose().is_empty());
        let translation = Translation { arguments: self, token };
        translation.check().map_err(Failure::misused)?;
        Ok(translation)
    }
}

/// Converts the command line for clap: HARchiver's long options have one dash, clap's have two.
pub fn with_two_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let Some(words) = words_before(&arguments) else { return arguments };
    let mut is_value = false;
    for argument in arguments.iter_mut().skip(words) {
        let Some(text) = argument.to_str().filter(|_| !is_value) else {
            is_value = false;
            continue;
        };
        if let Some(word) = text.strip_prefix('-').filter(|word| is_word(word) || is_cut_short(word)) {
            *argument = format!("--{word}").into();
        }
        is_value = takes_value(argument.to_str().unwrap_or_default());
    }
    arguments
}

/// Returns `true` for more than one character, the first of them a letter.
fn is_word(text: &str) -> bool {
    text.len() > 1 && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
}

/// Returns `true` for the first letter of a long option that is no short option itself.
fn is_cut_short(word: &str) -> bool {
    let mut characters = word.chars();
    let (Some(letter), None) = (characters.next(), characters.next()) else { return false };
    let archiver = ArchiverArgs::augment_args(clap::Command::new(NAME));
    let is_short = letter == 'h' || archiver.get_arguments().any(|known| known.get_short() == Some(letter));
    !is_short && !long_options(word).is_empty()
}

/// The long options that begin with this word, as HARchiver writes them.
fn long_options(word: &str) -> Vec<String> {
    let archiver = ArchiverArgs::augment_args(clap::Command::new(NAME));
    let longs = archiver.get_arguments().filter_map(clap::Arg::get_long);
    longs.filter(|long| long.starts_with(word)).map(|long| format!("-{long}")).collect()
}

/// Returns the message about an option that is cut so short that it may be several. `arguments` are those of
/// [`with_two_dashes`].
pub fn ambiguous(arguments: &[OsString]) -> Option<String> {
    let words = words_before(arguments)?;
    let mut is_value = false;
    for argument in arguments.iter().skip(words) {
        let text = argument.to_str().unwrap_or_default();
        if let Some(word) = text.strip_prefix("--").filter(|word| !is_value && !word.is_empty()) {
            let options = long_options(word);
            if options.len() > 1 && !options.contains(&format!("-{word}")) {
                return Some(format!("error: -{word} is ambiguous: it may be {}", options.join(" or ")));
            }
        }
        is_value = !is_value && takes_value(text);
    }
    None
}

/// The number of words before HARchiver's arguments; `None` if there are none of them.
fn words_before(arguments: &[OsString]) -> Option<usize> {
    let is = |number: usize, name: &str| arguments.get(number).is_some_and(|argument| argument == name);
    if is(1, NAME) { Some(2) } else { (is(1, "import") && is(2, "harchiver")).then_some(3) }
}

/// Returns `true` if the next argument is the value of this one.
fn takes_value(argument: &str) -> bool {
    let archiver = ArchiverArgs::augment_args(clap::Command::new(NAME));
    let is_it = |known: &clap::Arg| match argument.strip_prefix("--") {
        // Long options may be abbreviated.
        Some(word) => known.get_long().is_some_and(|long| long.starts_with(word)),
        None => known
            .get_short()
            .is_some_and(|short| argument.strip_prefix('-') == Some(short.encode_utf8(&mut [0; 4]))),
    };
    archiver.get_arguments().find(|known| is_it(known)).is_some_and(|known| known.get_action().takes_values())
}

#[cfg(test)]
mod tests;
