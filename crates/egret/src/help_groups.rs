//! The commands in groups, for `egret --help`: clap lists them in one column.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::{CommandFactory, FromArgMatches};

use crate::cli::Cli;

/// Each group, with its commands by how often they are used.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Run", &["run", "init", "exec", "reload", "ca"]),
    ("Look at a running gateway", &["status", "tail", "discover", "doctor", "health"]),
    ("Check a config", &["check", "explain", "schema"]),
    ("Measure and imitate", &["provider", "bench", "lab"]),
    ("Move and convert", &["import", "archiver", "har", "prices"]),
    ("Read", &["reference", "completions", "man", "version"]),
];

/// Columns of a line, as in the help of the commands.
const WIDTH: usize = 100;
/// Column in which the description of a command begins.
const INDENT: usize = 15;

/// The style of headings in clap's own help. It is removed where the output is no terminal.
const HEADING: &str = "\x1b[1m\x1b[4m";
const PLAIN: &str = "\x1b[0m";

/// Parses a command line.
pub fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command = grouped(Cli::command());
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns the command with a help that has its subcommands in groups.
fn grouped(command: clap::Command) -> clap::Command {
    let mut list = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(list, "{HEADING}{title}:{PLAIN}");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            write_row(name, &about.map(ToString::to_string).unwrap_or_default(), &mut list);
        }
        list.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{HEADING}Options:{PLAIN}\n{{options}}\n\n\
         `egret help COMMAND` prints the help of a command."
    ))
}

/// Writes a command and its description, within the width.
fn write_row(name: &str, about: &str, list: &mut String) {
    let mut line = format!("  {name:width$}", width = INDENT - 2);
    for word in about.split(' ') {
        if line.trim_end().len() + 1 + word.len() > WIDTH {
            let _ = writeln!(list, "{}", line.trim_end());
            line = " ".repeat(INDENT);
        }
        line += word;
        line.push(' ');
    }
    let _ = writeln!(list, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let command = Cli::command();
        let mut shown: Vec<&str> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
    }

    #[test]
    fn the_help_has_the_groups_within_its_width() {
        let help = parse(vec!["egret".into(), "--help".into()]).unwrap_err().to_string();
        for (title, names) in GROUPS {
            let (_, rest) = help.split_once(&format!("{title}:\n")).unwrap();
            for name in names {
                assert!(
                    rest.contains(&format!("\n  {name} ")) || rest.starts_with(&format!("  {name} ")),
                    "{help}"
                );
            }
        }
        assert!(help.lines().all(|line| line.len() <= WIDTH), "{help}");
        assert!(help.contains("Usage: egret <COMMAND>") && help.contains("--version"), "{help}");
    }
}
