//! Templates of configs and commands: `@{port}` and its like are filled in when a turn starts.
//!
//! `@{` is in none of the languages that proxies are configured in, so that templates need no escapes.

use std::collections::BTreeMap;

use egret_config::Problem;

/// What can be filled in.
pub const PLACEHOLDERS: [&str; 11] = [
    "port",          // where the proxy listens, or the provider in its own template
    "provider_port", // where the provider listens
    "provider_ca",   // the authority that signed the provider's certificate, where it speaks TLS
    "control_port",  // one more free port
    "scheme",        // `http`, or `https` where the provider speaks TLS
    "directory",     // the part's working directory
    "config",        // the filled-in config
    "here",          // the directory of the experiment's file
    "egret",         // Egret's own program
    "user",          // who runs the experiment
    "delay_s",       // the case's delay in seconds, such as `0.15`
];

/// A placeholder that nothing fills in.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Its name.
    pub name: String,
    /// Its line in the template, from 1.
    pub line: usize,
}

impl Unknown {
    /// As a problem at this path, with what was probably meant.
    pub fn problem(&self, path: impl Into<String>) -> Problem {
        Problem::new(path, format!("nothing fills in `@{{{}}}`", self.name)).suggest(&self.name, PLACEHOLDERS)
    }
}

/// What is filled in for each placeholder.
pub type Values = BTreeMap<&'static str, String>;

/// Finds a placeholder that nothing fills in.
pub fn check(text: &str) -> Result<(), Unknown> {
    walk(text, |_, name| PLACEHOLDERS.contains(&name).then_some(()))
}

/// The text with every placeholder filled in.
pub fn fill(text: &str, values: &Values) -> Result<String, Unknown> {
    let mut filled = String::with_capacity(text.len());
    let mut end = 0;
    walk(text, |start, name| {
        filled.push_str(&text[end..start]);
        filled.push_str(values.get(name)?);
        end = start + name.len() + "@{}".len();
        Some(())
    })?;
    filled.push_str(&text[end..]);
    Ok(filled)
}

/// Calls `seen` with each placeholder's place and name; ends where it says that there is no such name.
fn walk<'a>(text: &'a str, mut seen: impl FnMut(usize, &'a str) -> Option<()>) -> Result<(), Unknown> {
    let mut from = 0;
    while let Some(start) = text[from..].find("@{").map(|at| from + at) {
        let rest = &text[start + 2..];
        let closed = rest.split_once('}').map(|(name, _)| name);
        let name = closed.unwrap_or(rest.lines().next().unwrap_or_default());
        if closed.and_then(|name| seen(start, name)).is_none() {
            let line = 1 + text[..start].matches('\n').count();
            return Err(Unknown { name: name.to_owned(), line });
        }
        from = start + 2 + name.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        assert_eq!(unknown, Unknown { name: "prot".into(), line: 2 });
        assert_eq!(unknown.problem("x").suggestion.as_deref(), Some("port"));
        assert_eq!(check("@{port").unwrap_err().line, 1);
        assert_eq!(check("@{never closed"), Err(Unknown { name: "never closed".into(), line: 1 }));
    }
}
