//! `egret check --fix`: obvious mistakes in a config file, and quotas outside of their retry.

use std::path::Path;

use egret_config::{Finding, Report, move_behind};
use egret_settings::config_file::ConfigSources;

/// Maximum number of list entries that are moved.
const MOVES_MAX: usize = 100;

/// Returns the text of a config file with its obvious mistakes fixed.
pub fn fix_text(file: &Path, text: &str) -> String {
    let load = |text: &str| ConfigSources::of(file, text.to_owned()).load();
    let check = |text: &str| match load(text) {
        Ok(_) => Report::unplaced("", Vec::new()),
        Err(report) => report,
    };
    let mut text = egret_config::fix_text(text, check);
    let Ok(mut loaded) = load(&text) else { return text };
    for _ in 0..MOVES_MAX {
        let moved = loaded.warnings.findings.iter().filter_map(|finding| reordered(&text, finding));
        let better = moved.into_iter().find_map(|moved| {
            let after = load(&moved).ok()?;
            is_better(&loaded.warnings, &after.warnings).then_some((moved, after))
        });
        let Some(better) = better else { break };
        (text, loaded) = better;
    }
    text
}

/// Returns `true` if there are fewer warnings, and no new ones.
fn is_better(before: &Report, after: &Report) -> bool {
    let is_known =
        |new: &Finding| before.findings.iter().any(|old| old.problem.message == new.problem.message);
    after.findings.len() < before.findings.len() && after.findings.iter().all(is_known)
}

/// Returns the text with a remedy behind the `retry` that its warning is related to, if both are in one flow.
fn reordered(text: &str, finding: &Finding) -> Option<String> {
    let (from, drawn) = remedy(&finding.problem.path)?;
    let (to, retry) = remedy(finding.problem.related.as_deref()?)?;
    let is_swap = matches!(drawn.key, "queue" | "limit") && retry.key == "retry" && from == to;
    let path = format!("{from}.remedies");
    is_swap.then(|| move_behind(text, &path, drawn.number, retry.number)).flatten()
}

/// A remedy of a flow.
struct Remedy<'a> {
    number: usize,
    key: &'a str,
}

/// Splits a path like `flows[0].remedies[1].retry`. Returns the path of the flow as well.
fn remedy(path: &str) -> Option<(&str, Remedy<'_>)> {
    let (flow, rest) = path.split_once(".remedies[")?;
    let (number, key) = rest.split_once("].")?;
    let number = number.parse().ok()?;
    (!key.contains('.')).then_some((flow, Remedy { number, key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "providers: { a: { url: 'https://a.example' } }\nquotas: { q: { limit: 5, window: 1s } }\n";

    fn fixed(text: &str) -> String {
        fix_text(Path::new("egret.yaml"), text)
    }

    #[test]
    fn a_quota_moves_behind_its_retry_with_its_comments() {
        let before = format!(
            "{HEAD}flows:\n  - name: f  # calls\n    remedies:\n      # wait\n      - queue: {{ quota: q }}  # here\n\
             \n      # first\n      - timeout: {{ total: 1s }}\n      - retry:\n          attempts: 3\n          # odd\n      # end\n"
        );
        let after = format!(
            "{HEAD}flows:\n  - name: f  # calls\n    remedies:\n      # first\n      - timeout: {{ total: 1s }}\n\
             \x20     - retry:\n          attempts: 3\n          # odd\n      # wait\n      - queue: {{ quota: q }}  # here\n\n\
             \x20     # end\n"
        );
        assert_eq!(fixed(&before), after);
        assert_eq!(fixed(&after), after);
    }

    #[test]
    fn a_list_in_brackets_is_reordered_as_well() {
        let before =
            format!("{HEAD}flows: [{{ name: f, remedies: [queue: {{ quota: q }}, retry: {{}}] }}]\n");
        let after = format!("{HEAD}flows: [{{ name: f, remedies: [retry: {{}}, queue: {{ quota: q }}] }}]\n");
        assert_eq!(fixed(&before), after);
        assert_eq!(fixed(&after), after);
    }

    #[test]
    fn mistakes_are_mended_with_their_comments() {
        let before = "provider:\n\ta:\n\t\turl:https://a.example # here\nquotas:\n  live: { limt: '5', window: 1s }\nflows:\n\
                      - name: f\n  remedies: [{ limit: { quota: 'liv' } }]\n";
        let after = "providers:\n  a:\n    url: https://a.example # here\nquotas:\n  live: { limit: 5, window: 1s }\nflows:\n\
                     - name: f\n  remedies: [{ limit: { quota: 'live' } }]\n";
        assert_eq!(fixed(before), after);
    }
}
