//! The blocks of a page: commands, and files that they need.

use std::path::Path;

/// A block and the number of its first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub line: usize,
    pub kind: Kind,
}

/// Use of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Commands.
    Commands(String),
    /// A file by its name, and its text.
    File(String, String),
    /// Commands that are not run, for this reason.
    LeftOut(String),
}

impl Block {
    /// Returns `true` for commands to run.
    pub fn runs(&self) -> bool {
        matches!(self.kind, Kind::Commands(_))
    }
}

/// The languages of blocks with commands.
const SHELLS: [&str; 3] = ["sh", "bash", "console"];

/// Programs that begin a command: a block without a language must not begin with one.
const PROGRAMS: [&str; 14] = [
    "egret", "curl", "make", "export", "source", "sudo", "cat", "openssl", "docker", "npm", "pip", "pipx",
    "helm", "skopeo",
];

/// Begins the comment before a block that is not run.
const NOT_RUN: &str = "<!-- not run: ";

/// Returns the blocks of a page, in order.
///
/// # Errors
///
/// Fails for commands without a language, and for a block that does not end.
pub fn blocks_of(page: &Path, text: &str) -> Result<Vec<Block>, String> {
    if page.extension().is_some_and(|extension| extension == "yaml") {
        return Ok(header(text));
    }
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut reason = None;
    while let Some((index, line)) = lines.next() {
        let trimmed = line.trim_start();
        if let Some(found) = trimmed.strip_prefix(NOT_RUN) {
            reason = Some(found.trim_end_matches("-->").trim().to_owned());
            continue;
        }
        let Some(language) = trimmed.strip_prefix("```") else {
            if !trimmed.is_empty() {
                reason = None;
            }
            continue;
        };
        let indentation = line.len() - trimmed.len();
        let mut body = Vec::new();
        loop {
            let (_, line) =
                lines.next().ok_or_else(|| format!("the block of line {} has no end", index + 1))?;
            if line.trim() == "```" {
                break;
            }
            body.push(line.get(indentation..).unwrap_or_default());
        }
        blocks.extend(block(index + 2, language, &body, reason.take())?);
    }
    Ok(blocks)
}

fn block(
    line: usize,
    language: &str,
    body: &[&str],
    reason: Option<String>,
) -> Result<Option<Block>, String> {
    let first = body.first().copied().unwrap_or_default();
    if SHELLS.contains(&language) {
        let kind = match reason {
            Some(reason) => Kind::LeftOut(reason),
            None => Kind::Commands(body.join("\n") + "\n"),
        };
        return Ok(Some(Block { line, kind }));
    }
    let program = first.split_whitespace().next().unwrap_or_default();
    if language.is_empty() && PROGRAMS.contains(&program) {
        return Err(format!("the block of line {line} has commands, but is not marked as `sh`"));
    }
    let name =
        first.strip_prefix("# ").and_then(|rest| rest.split([' ', ',', ':']).next()).unwrap_or_default();
    let is_file =
        language == "yaml" && Path::new(name).extension().is_some_and(|extension| extension == "yaml");
    Ok(is_file.then(|| Block { line, kind: Kind::File(name.to_owned(), body.join("\n") + "\n") }))
}

/// Returns the commands in the first comment of an example: lines with three spaces after the `#`. Other
/// lines separate blocks.
fn header(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate().take_while(|(_, line)| line.starts_with('#')) {
        let command = line.strip_prefix("#   ").filter(|command| !command.starts_with(' '));
        match (command, blocks.last_mut()) {
            (Some(command), Some(Block { kind: Kind::Commands(commands), .. })) if is_open => {
                commands.push_str(command);
                commands.push('\n');
            }
            (Some(command), _) => {
                blocks.push(Block { line: index + 1, kind: Kind::Commands(format!("{command}\n")) });
            }
            (None, _) => {}
        }
        is_open = command.is_some();
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_files_and_reasons_are_found_in_order() {
        let text = "a\n```sh\nls\n```\n\n```yaml\n# a.yaml\nx: 1\n```\n\n```\nout\n```\n<!-- not run: it is far away -->\n\n```sh\nrm\n```\n";
        let commands = |text: &str| Kind::Commands(text.to_owned());
        let expected = [
            Block { line: 3, kind: commands("ls\n") },
            Block { line: 7, kind: Kind::File("a.yaml".into(), "# a.yaml\nx: 1\n".into()) },
            Block { line: 17, kind: Kind::LeftOut("it is far away".into()) },
        ];
        assert_eq!(blocks_of(Path::new("a.md"), text).unwrap(), expected);
        assert!(blocks_of(Path::new("a.md"), "```\negret run\n```\n").is_err());
        assert!(blocks_of(Path::new("a.md"), "```sh\nls\n").is_err());
        let example = "# About\n#\n#   one &\n#   two\n#\n#   three\n# end\nkey: 1 #   none\n";
        let expected =
            [Block { line: 3, kind: commands("one &\ntwo\n") }, Block { line: 6, kind: commands("three\n") }];
        assert_eq!(blocks_of(Path::new("a.yaml"), example).unwrap(), expected);
    }
}
