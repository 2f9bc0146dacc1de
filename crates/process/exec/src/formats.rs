//! The formats of `egret exec --print-env`.

use std::fmt::Write;

use clap::ValueEnum;

use super::environment::Change;
use super::inherited::MARK;

/// A format of variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VariableFormat {
    /// Commands for a shell: `eval "$(egret exec --print-env)"`.
    Shell,
    /// Instructions for a Dockerfile.
    Docker,
    /// Lines for the section `[Service]` of a unit of systemd.
    Systemd,
}

impl VariableFormat {
    /// Returns one line for each variable. The mark of commands is left out, because there is no command.
    pub fn render(self, changes: &[Change]) -> String {
        let mut text = String::new();
        for change in changes.iter().filter(|change| change.name != MARK) {
            let (name, value) = (&change.name, change.value.to_string_lossy());
            let _ = match self {
                Self::Shell => writeln!(text, "export {name}='{}'", value.replace('\'', r"'\''")),
                Self::Docker => writeln!(text, "ENV {name}=\"{}\"", escaped(&value, &['\\', '"', '$'])),
                Self::Systemd => {
                    let value = escaped(&value, &['\\', '"']).replace('%', "%%");
                    writeln!(text, "Environment=\"{name}={value}\"")
                }
            };
        }
        text
    }
}

/// Returns the text with a backslash before each of these characters.
fn escaped(text: &str, special: &[char]) -> String {
    text.chars().flat_map(|c| special.contains(&c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_quotes_values() {
        let change = |name: &str, value: &str| Change::new(name, value);
        let changes = [change("A", r#"it's $5, "100%" \o/"#), change(MARK, "127.0.0.1:1 A")];
        for (format, expected) in [
            (VariableFormat::Shell, r#"export A='it'\''s $5, "100%" \o/'"#),
            (VariableFormat::Docker, r#"ENV A="it's \$5, \"100%\" \\o/""#),
            (VariableFormat::Systemd, r#"Environment="A=it's $5, \"100%%\" \\o/""#),
        ] {
            assert_eq!(format.render(&changes), format!("{expected}\n"));
        }
    }
}
