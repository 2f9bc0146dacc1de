//! Templates of configs and commands: placeholders like `@{port}` are filled in when a turn starts.
//!
//! `@{` does not occur in the configuration languages of the proxies, so templates need no escaping.

use std::collections::BTreeMap;

use egret_config::Problem;

/// The placeholders.
pub(crate) const PLACEHOLDERS: [&str; 13] = [
    "listen",           // address on which the process listens
    "port",             // port of the proxy, or of the provider in its own template
    "provider_address", // address or name of the provider
    "provider_port",    // port of the provider
    "provider_ca",      // certificate of the authority that signed the provider's certificate, if it uses TLS
    "control_port",     // another free port
    "scheme",           // `http`, or `https` if the provider uses TLS
    "directory",        // working directory of the process
    "config",           // path of the filled-in config
    "here",             // directory of the experiment's file; on another machine, the lab's directory
    "egret",            // Egret's program
    "user",             // the user who runs the process
    "delay_s",          // delay of the case in seconds, such as `0.15`
];

/// An unknown placeholder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownPlaceholder {
    /// Name of the placeholder.
    pub name: String,
    /// Line in the template, from 1.
    pub line: usize,
}

impl UnknownPlaceholder {
    /// Converts to a problem at this path, with a suggestion.
    pub fn problem(&self, path: impl Into<String>) -> Problem {
        Problem::new(path, format!("unknown placeholder `@{{{}}}`", self.name))
            .suggest(&self.name, PLACEHOLDERS)
    }
}

/// The value of each placeholder.
pub(crate) type Values = BTreeMap<&'static str, String>;

/// Checks a text for unknown placeholders.
pub(crate) fn check(text: &str) -> Result<(), UnknownPlaceholder> {
    for_each_placeholder(text, |_, name| PLACEHOLDERS.contains(&name).then_some(()))
}

/// Fills in every placeholder of a text.
pub(crate) fn fill(text: &str, values: &Values) -> Result<String, UnknownPlaceholder> {
    let mut filled = String::with_capacity(text.len());
    let mut end = 0;
    for_each_placeholder(text, |start, name| {
        filled.push_str(&text[end..start]);
        filled.push_str(values.get(name)?);
        end = start + name.len() + "@{}".len();
        Some(())
    })?;
    filled.push_str(&text[end..]);
    Ok(filled)
}

/// Calls `visit` with the position and name of each placeholder, until `visit` returns `None` for an unknown
/// name.
fn for_each_placeholder<'a>(
    text: &'a str,
    mut visit: impl FnMut(usize, &'a str) -> Option<()>,
) -> Result<(), UnknownPlaceholder> {
    let mut from = 0;
    while let Some(start) = text[from..].find("@{").map(|at| from + at) {
        let rest = &text[start + 2..];
        let closed = rest.split_once('}').map(|(name, _)| name);
        let name = closed.unwrap_or(rest.lines().next().unwrap_or_default());
        if closed.and_then(|name| visit(start, name)).is_none() {
            let line = 1 + text[..start].matches('\n').count();
            return Err(UnknownPlaceholder { name: name.to_owned(), line });
        }
        from = start + 2 + name.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn placeholders_are_filled_in_and_the_rest_is_left() {
        let values = Values::from([("port", "8000".to_owned()), ("user", "me".to_owned())]);
        let filled = fill("listen @{port};\nuser @{user}@{port}; $x ${y} @ {", &values).unwrap();
        assert_eq!(filled, "listen 8000;\nuser me8000; $x ${y} @ {");
    }

    #[test]
    fn an_unknown_placeholder_is_named_with_its_line_and_what_was_meant() {
        let unknown = check("a\nb @{prot}\n").unwrap_err();
        assert_eq!(unknown, UnknownPlaceholder { name: "prot".into(), line: 2 });
        assert_eq!(unknown.problem("x").suggestion.as_deref(), Some("port"));
        assert_eq!(check("@{port").unwrap_err().line, 1);
        assert_eq!(check("@{never closed"), Err(UnknownPlaceholder { name: "never closed".into(), line: 1 }));
    }

    proptest! {
        #[test]
        fn a_text_without_placeholders_is_left_as_it_is(text in "[^@]{0,40}") {
            prop_assert_eq!(fill(&text, &Values::new()), Ok(text.clone()));
            prop_assert_eq!(check(&text), Ok(()));
        }

        #[test]
        fn what_is_accepted_can_be_filled_in_completely(parts in prop::collection::vec("[ a-z@{}$\n]{0,6}|@\\{port\\}", 0..8)) {
            let text = parts.concat();
            let values = Values::from([("port", "8000".to_owned())]);
            match check(&text) {
                Ok(()) => {
                    let expected = text.replace("@{port}", "8000");
                    prop_assert_eq!(fill(&text, &values), Ok(expected));
                }
                Err(unknown) => {
                    prop_assert!(!PLACEHOLDERS.contains(&unknown.name.as_str()) || !text.contains('}'), "{unknown:?}");
                    prop_assert!((1..=1 + text.matches('\n').count()).contains(&unknown.line));
                }
            }
        }
    }
}
