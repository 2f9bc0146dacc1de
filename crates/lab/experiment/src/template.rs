//! Templates of configs and commands: placeholders like `@{port}` are filled in when a turn starts.
//!
//! `@{` does not occur in the configuration languages of the proxies, so templates need no escaping.

use std::collections::BTreeMap;

use egret_config::Problem;

/// The placeholders that every template may use.
const PLACEHOLDERS: [&str; 16] = [
    "listen",           // address on which the process listens
    "port",             // port of the proxy, or of the provider in its own template
    "provider_address", // address or name of the provider
    "provider_port",    // port of the provider
    "provider_ca",      // certificate of the authority that signed the provider's certificate, if it uses TLS
    "certificate",      // certificate for localhost, made for the turn, which may sign others
    "key",              // its key, of P-256
    "control_port",     // another free port
    "instance",         // number of the instance, from 1
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

/// Placeholders that only some templates may use.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Additional<'a> {
    /// Names of the services: each has `NAME_address` and `NAME_port`.
    pub services: &'a [String],
    /// Number of instances of the proxy: each has `control_port_NUMBER`.
    pub instances: u32,
}

impl Additional<'_> {
    fn has(self, name: &str) -> bool {
        let of_service = name.strip_suffix("_address").or_else(|| name.strip_suffix("_port"));
        let is_of_service =
            of_service.is_some_and(|service| self.services.iter().any(|known| known == service));
        is_of_service || (1..=self.instances).any(|instance| control_port_of(instance) == name)
    }
}

/// The placeholder for the control port of an instance.
pub(crate) fn control_port_of(instance: u32) -> String {
    format!("control_port_{instance}")
}

/// The value of each placeholder.
pub(crate) type Values = BTreeMap<String, String>;

/// Collects values.
pub(crate) fn values<const N: usize>(values: [(&str, String); N]) -> Values {
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Checks a text for unknown placeholders.
pub(crate) fn check(text: &str, additional: Additional<'_>) -> Result<(), UnknownPlaceholder> {
    for_each_placeholder(text, |_, name| (PLACEHOLDERS.contains(&name) || additional.has(name)).then_some(()))
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
        let values = values([("port", "8000".to_owned()), ("user", "me".to_owned())]);
        let filled = fill("listen @{port};\nuser @{user}@{port}; $x ${y} @ {", &values).unwrap();
        assert_eq!(filled, "listen 8000;\nuser me8000; $x ${y} @ {");
    }

    #[test]
    fn an_unknown_placeholder_is_named_with_its_line_and_what_was_meant() {
        let unknown = check("a\nb @{prot}\n", Additional::default()).unwrap_err();
        assert_eq!(unknown, UnknownPlaceholder { name: "prot".into(), line: 2 });
        assert_eq!(unknown.problem("x").suggestion.as_deref(), Some("port"));
        assert_eq!(check("@{port", Additional::default()).unwrap_err().line, 1);
        assert_eq!(
            check("@{never closed", Additional::default()),
            Err(UnknownPlaceholder { name: "never closed".into(), line: 1 })
        );
    }

    #[test]
    fn services_and_instances_have_placeholders_of_their_own() {
        let services = ["redis".to_owned()];
        let additional = Additional { services: &services, instances: 2 };
        let known = |text: &str| check(text, additional).is_ok();
        assert!(known("@{redis_address}:@{redis_port} @{control_port_1} @{control_port_2}"));
        for text in ["@{redis}", "@{other_port}", "@{control_port_3}", "@{control_port_0}"] {
            assert!(!known(text), "{text}");
        }
        assert!(check("@{redis_port}", Additional::default()).is_err());
    }

    proptest! {
        #[test]
        fn a_text_without_placeholders_is_left_as_it_is(text in "[^@]{0,40}") {
            prop_assert_eq!(fill(&text, &Values::new()), Ok(text.clone()));
            prop_assert_eq!(check(&text, Additional::default()), Ok(()));
        }

        #[test]
        fn an_accepted_template_can_be_filled_in(parts in prop::collection::vec("[ a-z@{}$\n]{0,6}|@\\{port\\}", 0..8)) {
            let text = parts.concat();
            let values = values([("port", "8000".to_owned())]);
            match check(&text, Additional::default()) {
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
