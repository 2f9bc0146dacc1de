//! Paths with parameters in the notation of other routers, which match nothing that clients call.

use egret_config::Problem;

use crate::config::Config;

/// Returns a warning for each path with a segment such as `:id`.
pub fn advise(config: &Config) -> Vec<Problem> {
    let mut advice = Vec::new();
    for (number, flow) in config.flows.iter().enumerate() {
        let segments = flow.matching.path.iter().filter(|path| !path.starts_with("regex:"));
        let Some(name) = segments.flat_map(|path| path.split('/')).find_map(parameter) else { continue };
        let message = format!("`:{name}` matches only itself: a parameter is written `{{{name}}}`");
        advice.push(Problem::new(format!("flows[{number}].match.path"), message));
    }
    advice
}

/// Returns the name of a parameter in the notation of other routers.
fn parameter(segment: &str) -> Option<&str> {
    let name = segment.strip_prefix(':')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!name.is_empty() && name.bytes().all(is_plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_in_another_notation_is_warned_of() {
        let warnings = |path: &str| -> Vec<String> {
            let text = format!("flows: [{{ name: a, match: {{ path: '{path}' }} }}]");
            let config = Config::parse("egret.yaml", &text).unwrap();
            advise(&config)
                .into_iter()
                .map(|problem| format!("{}: {}", problem.path, problem.message))
                .collect()
        };
        assert_eq!(
            warnings("/users/:id/orders"),
            ["flows[0].match.path: `:id` matches only itself: a parameter is written `{id}`"]
        );
        for path in ["/users/{id}", "/v1/models/a:predict", "/v1/:", "regex:/users/:id"] {
            assert!(warnings(path).is_empty(), "{path}");
        }
    }
}
