//! Shell completions and manual pages, generated from the definition of the command line and from the schema
//! of the config.

use std::fmt::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use egret_settings::failure::Failure;

use crate::cli::Cli;
use crate::reference;

/// Returns the completion script for a shell.
pub fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "egret", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes `egret.1`, a page for each command, and `egret.yaml.5` into `directory`.
pub fn write(directory: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::Failed(format!("{}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(failed)?;
    let egret =
        Cli::command().disable_help_flag(true).disable_version_flag(true).disable_help_subcommand(true);
    clap_mangen::generate_to(egret, directory).map_err(failed)?;
    std::fs::write(directory.join("egret.yaml.5"), config_page()).map_err(failed)
}

/// The manual page of the config: one section for each mapping, one tagged paragraph for each key.
fn config_page() -> String {
    let mut page = format!(
        ".TH egret.yaml 5 \"\" \"egret {}\" \"Egret\"\n.SH NAME\negret.yaml \\- the config of egret(1)\n\
         .SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    for line in reference::page(crate::cli::Page::Config).lines().skip(4) {
        write_line(line, &mut page);
    }
    page.push_str(".SH SEE ALSO\n.BR egret (1),\n.BR egret\\-check (1)\n");
    page
}

/// Adds a line of the reference page, which has headings, tables and plain lines.
fn write_line(line: &str, page: &mut String) {
    if let Some(heading) = line.strip_prefix("## ") {
        let _ = writeln!(page, ".SH \"{}\"", roff(heading));
    } else if let Some(row) = line.strip_prefix("| ") {
        write_row(row, page);
    } else if !line.is_empty() {
        let _ = writeln!(page, "{}", roff(line));
    }
}

/// Adds a row of a table: key, value, default and meaning.
fn write_row(row: &str, page: &mut String) {
    let escaped = row.replace("\\|", "\u{0}");
    let cells: Vec<String> = escaped.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect();
    let [key, value, default, meaning, ..] = &cells[..] else { return };
    if key == "key" || key.starts_with("---") {
        return;
    }
    let default = match default.as_str() {
        "" => String::new(),
        "required" => ", required".to_owned(),
        default => format!(", default {default}"),
    };
    let _ = writeln!(page, ".TP\n\\fB{}\\fR ({}{})", roff(key), roff(value), roff(&default));
    for (number, paragraph) in meaning.split("<br>").filter(|text| !text.is_empty()).enumerate() {
        let _ = writeln!(page, "{}{}", if number > 0 { ".br\n" } else { "" }, roff(paragraph));
    }
}

/// Escapes text, without the marks of code spans. A line must not begin with a control character of roff.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('`', "").replace('-', "\\-").replace('"', "\\(dq");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_completes_every_command() {
        for shell in Shell::value_variants() {
            let script = completions(*shell);
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }

    #[test]
    fn there_is_a_manual_page_for_every_command_and_for_the_config() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = directory.path().join(format!("egret-{}.1", command.get_name()));
            assert!(page.is_file(), "{}", page.display());
        }
        let page = std::fs::read_to_string(directory.path().join("egret.yaml.5")).unwrap();
        assert!(page.contains(".SH \"gateway\"\n") && page.contains("\\fBlisten\\fR ("), "{page}");
    }

    #[test]
    fn a_row_of_the_reference_becomes_a_tagged_paragraph() {
        let mut page = String::new();
        write_line("| `key` | text | `a-b` | Some \\| text.<br>.More |", &mut page);
        assert_eq!(page, ".TP\n\\fBkey\\fR (text, default a\\-b)\nSome | text.\n.br\n\\&.More\n");
    }
}
