//! The reference page of the presets.

use std::fmt::Write as _;

use crate::facts::{Counted, Credential, Preset, Wait};
use crate::name::PresetName;
use crate::refusal::RefusalRule;

/// The beginning of the page.
const INTRODUCTION: &str = "# Presets of providers

`preset` of a provider in the config tells Egret which API it is. The preset then sets what the config leaves out, and
remedies know the provider's own rules:

```yaml
providers:
  openai: { preset: openai }
```

- A key of the config wins. Only `retry` obeys the provider's advice, and repeats no refusal that time does not end, whatever
  its `on` says. `egret explain` shows what a preset has set, `egret check` names a provider that has a
  preset and does not use it, and `egret init --preset NAME` writes a config with one.
- The **base URL** and the **timeouts** are set unless the provider has its own.
- `retry` repeats a request of any method after a refusal by which the provider **has not acted**. It obeys the provider's
  **advice** on whether to repeat a call, waits as long as the provider asks in its own form, repeats the **further statuses**
  and **refusals** if `on` has its default, and repeats no refusal that **time does not end**.
- `accounts` does not cool an account after a refusal that **everybody** sees, and cools one for `cool_down.max` after a
  refusal that time does not end.
- `quotas.*.learn` and `accounts.by: most-remaining` read the **limits** in the provider's fields: those of tokens for a
  quota with `cost.usage`, otherwise those of requests.
- After each documented refusal `retry` does what the provider's own **SDK** does: it waits for the time that it is told, repeats
  the call after a back-off, or gives up. `make test-clients ONLY=sdk_refusals` compares them, and the exceptions are listed. Most
  SDKs also repeat a POST after 409, 500 and other errors of the server, or because the provider advises it. Egret does so only
  with an idempotency key: otherwise the provider may have acted on the request.
- The body of a refusal is read if a preset needs it, if it is JSON of at most 16 KiB without a content coding.

This page is generated: `egret reference presets`.
";

/// Returns the reference page of the presets as Markdown.
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    for name in PresetName::ALL {
        push(name, name.preset(), &mut page);
    }
    page
}

fn push(name: PresetName, preset: &Preset, page: &mut String) {
    let _ = writeln!(page, "\n## {}\n\n`preset: {name}`\n", preset.title);
    for (fact, value) in preset.lines() {
        let _ = writeln!(page, "- {fact}: {value}");
    }
    for unseen in &preset.unseen {
        let _ = writeln!(page, "- Not seen: {unseen}");
    }
    for action in &preset.unlike_sdk {
        let _ = writeln!(page, "- Unlike Egret, its SDK {action}");
    }
    let _ = writeln!(page, "- Read on {}:", preset.checked);
    for source in &preset.sources {
        let source = if source.starts_with("https://") { format!("<{source}>") } else { source.clone() };
        let _ = writeln!(page, "  - {source}");
    }
}

impl Preset {
    /// The facts as lines for people, each with what it is about.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        match (&self.url, &self.url_example) {
            (Some(url), _) => lines.push(("Base URL", format!("`{url}`"))),
            (None, Some(example)) => lines.push(("Base URL", format!("your own, like `{example}`"))),
            (None, None) => {}
        }
        lines.extend(self.credential.as_ref().map(|credential| ("Credential", credential.text())));
        let timeouts = [("first_byte", self.timeouts.first_byte), ("idle", self.timeouts.idle)];
        let timeouts = timeouts.into_iter().filter_map(|(key, time)| Some(format!("`{key}: {}`", time?)));
        push_list("Timeouts", timeouts, &mut lines);
        for limit in &self.limits {
            let counts =
                if limit.counts == Counted::Tokens { "Limit of tokens" } else { "Limit of requests" };
            let reset = limit.reset.as_ref().map_or_else(String::new, |reset| format!(", `{reset}`"));
            let form = limit.form.as_ref().map_or_else(String::new, |form| format!(" ({form})"));
            let unknown =
                limit.unknown.as_ref().map_or_else(String::new, |value| format!("; {value} is unknown"));
            lines.push((counts, format!("`{}`{reset}{form}{unknown}", limit.remaining)));
        }
        push_list("Time to wait", self.wait.iter().map(Wait::text), &mut lines);
        let advice = self.should_retry.iter().map(|name| format!("`{name}`, which is `true` or `false`"));
        push_list("Advice on repeating", advice, &mut lines);
        push_list("Has not acted after", statuses(&self.not_acted), &mut lines);
        push_list("Further statuses that `retry` repeats", statuses(&self.retry), &mut lines);
        push_list(
            "Further refusals that `retry` repeats",
            self.passing.iter().map(RefusalRule::text),
            &mut lines,
        );
        push_list("Refusals that everybody sees", statuses(&self.for_everybody), &mut lines);
        push_list("Time does not end", self.lasting.iter().map(RefusalRule::text), &mut lines);
        let key = self.idempotency_key.iter().map(|name| format!("`{name}`"));
        push_list("Idempotency key", key, &mut lines);
        if let Some(usage) = &self.usage {
            let dialects: Vec<String> = usage.dialects.iter().map(|dialect| format!("`{dialect}`")).collect();
            lines.push(("Usage", format!("{}. In streams: {}", dialects.join(", "), usage.streams)));
        }
        lines
    }
}

/// Adds a line with a list, unless it is empty.
fn push_list(
    about: &'static str,
    list: impl Iterator<Item = String>,
    lines: &mut Vec<(&'static str, String)>,
) {
    let list: Vec<String> = list.collect();
    if !list.is_empty() {
        lines.push((about, list.join(", ")));
    }
}

fn statuses(statuses: &[u16]) -> impl Iterator<Item = String> {
    statuses.iter().map(u16::to_string)
}

impl Credential {
    /// The credential for people.
    fn text(&self) -> String {
        match self {
            Self::Bearer => "a bearer token (`bearer`)".to_owned(),
            Self::Basic(what) => format!("a user and a password (`basic`): {what}"),
            Self::Header(name) => format!("a key in `{name}` (`api_key`)"),
            Self::Sigv4(service) => format!("a signature of AWS for the service `{service}` (`sigv4`)"),
        }
    }
}

impl Wait {
    /// The place for people.
    fn text(&self) -> String {
        match self {
            Self::Milliseconds(name) => format!("`{name}` in milliseconds"),
            Self::Field(name) => format!("`{name}`"),
            Self::Body(path) => format!("`{path}` of the body"),
            Self::FieldOf { field, refusal } => format!("`{field}` after {}", refusal.text()),
            Self::TimeOf { time, refusal } => format!("{time} after {}", refusal.text()),
        }
    }
}

impl RefusalRule {
    /// The rule for people.
    fn text(&self) -> String {
        let mut text = self.status.to_string();
        if let Some(name) = &self.with {
            let _ = write!(text, " with `{name}`");
        }
        if let Some(name) = &self.without {
            let _ = write!(text, " without `{name}`");
        }
        if let Some(path) = &self.at {
            let values: Vec<String> = self.is.iter().map(|value| format!("`{value}`")).collect();
            let part = self.contains.as_ref().map(|part| format!("“{part}” in it"));
            let values = part.into_iter().chain(values).collect::<Vec<_>>().join(" or ");
            let _ = write!(text, " whose `{path}` has {values}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_page_is_that_of_the_data() {
        let committed = include_str!("../../../../docs/reference/presets.md");
        assert!(committed == reference(), "stale: write what `egret reference presets` prints");
    }

    #[test]
    fn the_page_has_every_preset_and_its_facts() {
        let page = reference();
        for name in PresetName::ALL {
            assert!(page.contains(&format!("`preset: {name}`")), "{name}");
        }
        for line in [
            "- Limit of tokens: `x-ratelimit-remaining-tokens`, `x-ratelimit-reset-tokens` (seconds); -1 is unknown",
            "- Time does not end: 402, 429 without `retry-after` whose `/error/details/error_code` has \
             `enforced_spend_limit_reached`, 400 whose `/error/message` has “usage limits” in it",
            "- Idempotency key: `idempotency-key`",
            "- Time to wait: `retry-after-ms` in milliseconds, `retry-after`",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }
}
