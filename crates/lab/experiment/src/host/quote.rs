//! Quoting of words for the shell of another machine.

/// Quotes a word, so that a POSIX shell takes it as one word and expands nothing in it. The word contains no
/// NUL, which a command line cannot carry.
pub(crate) fn quoted(word: &str) -> String {
    // Within single quotes only the single quote itself is special.
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Builds a command line that runs a script with these arguments, whatever the user's login shell is.
pub(crate) fn script_line(script: &str, arguments: &[&str]) -> String {
    let words = ["-c", script, "sh"].into_iter().chain(arguments.iter().copied());
    words.fold("sh".to_owned(), |line, word| line + " " + &quoted(word))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// Returns the output of a command line in a shell.
    fn run(line: &str) -> Vec<u8> {
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_shell_takes_quoted_words_as_they_are(words in prop::collection::vec(r#"[^\x00]{0,12}|[-'"\\$`;&|<>()*?~#! \n]{0,8}"#, 1..4)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let expected = words.iter().fold(String::new(), |text, word| text + word + "\u{1}");
            let line = words.iter().fold("printf '%s\\001'".to_owned(), |line, word| line + " " + &quoted(word));
            prop_assert_eq!(run(&line), expected.as_bytes());
            // The words pass two shells: the login shell and the script's.
            let line = script_line("printf '%s\\001' \"$@\"", &words);
            prop_assert_eq!(run(&line), expected.as_bytes());
        }
    }

    #[test]
    fn quoted_words_are_not_expanded() {
        assert_eq!(quoted("a'; rm -rf $HOME '"), r"'a'\''; rm -rf $HOME '\'''");
        assert_eq!(script_line("x \"$1\"", &["it's"]), r#"sh '-c' 'x "$1"' 'sh' 'it'\''s'"#);
    }
}
