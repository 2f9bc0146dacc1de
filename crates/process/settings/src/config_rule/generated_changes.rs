//! Generated changes of real configs: those that `tune` accepts alter nothing but listed values.
//!
//! This compares the configs that both texts are read into, not the trees that the rule compares. It takes
//! the listed keys from the reference page.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use egret_clock::{Random, mixed};
use egret_config::{Document, SourceSet};
use regex_lite::Regex;
use serde_json::Value;

use super::tune;
use crate::config::Config;

/// Number of changes that are generated for each case of a property test: 100,000 in `make properties`.
const CHANGES_PER_CASE: u64 = 25;
/// Number of cases if the environment has none.
const CASES: u64 = 300;

/// Number of threads that generate them.
const THREADS: u64 = 4;

/// A config that changes begin with.
struct Original {
    name: String,
    text: String,
    config: Config,
    written: Value,
    /// The words in the text, and those of them that are numbers with or without a unit.
    values: Vec<Range<usize>>,
    plain: Vec<Range<usize>>,
}

impl Original {
    fn of(name: &str, text: &str) -> Option<Self> {
        // Secrets are read, so they need a source that every machine has.
        let secrets = Regex::new(r"\$\{(file|env|exec|credential|vault|aws|gcp):[^}:]*\}").unwrap();
        let text = secrets.replace_all(text, "$${env:PATH}").into_owned();
        let config = read(name, &text)?;
        let find = |pattern: &str| {
            let pattern = Regex::new(pattern).unwrap();
            pattern.find_iter(&text).map(|found| found.range()).collect::<Vec<_>>()
        };
        let values = find(r"[A-Za-z0-9_.%/$-]+");
        let plain = find(r"\b([0-9.]+(ms|s|m|h|d|B|KiB|MiB|GiB)?\b|[0-9.]+%|true|false|enforce|report|info)");
        let written = serde_json::to_value(&config).unwrap();
        Some(Self { name: name.to_owned(), config, written, values, plain, text })
    }
}

impl Original {
    /// Picks a word of the text, more often than not a plain value.
    fn pick(&self, choice: &mut Choice) -> &Range<usize> {
        let all = if self.plain.is_empty() || choice.one_in(5) { &self.values } else { &self.plain };
        &all[choice.below(all.len())]
    }
}

fn read(name: &str, text: &str) -> Option<Config> {
    Config::document(&SourceSet::single(name, text)).ok()?.read().ok()
}

/// A config with every section.
const WHOLE: &str = include_str!("every_section.yaml");

/// Returns the sections of that config, and its remedies and diagnoses, each as a config of its own. They are
/// parsed in a tenth of the time of the whole.
fn parts() -> Vec<Original> {
    let split = |text: &'static str, start: &'static str| {
        let starts =
            move |line: &str| line.strip_prefix(start).is_some_and(|rest| !rest.starts_with([' ', '#']));
        let mut parts: Vec<String> = Vec::new();
        for line in text.lines() {
            if starts(line) || parts.is_empty() {
                parts.push(String::new());
            }
            parts.last_mut().unwrap().extend([line, "\n"]);
        }
        parts
    };
    let (sections, flows) = WHOLE.split_once("flows:\n").unwrap();
    let items = split(flows, "      - ").into_iter().flat_map(|item| {
        let item = item.split("    diagnoses:").next().unwrap().split("  - name:").next().unwrap().to_owned();
        ["remedies", "diagnoses"].map(|list| format!("flows:\n  - name: f\n    {list}:\n{item}"))
    });
    let parts = split(sections, "").into_iter().chain(items);
    parts
        .filter_map(|part| Original::of("every_section.yaml", &part))
        .filter(|part| !part.plain.is_empty())
        .collect()
}

/// Returns the examples, the configs on the pages of the documentation, and those that are packaged.
fn published() -> Vec<Original> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut texts = Vec::new();
    let mut directories = vec![root.join("examples"), root.join("docs"), root.join("packaging")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if path.is_dir() => directories.push(path),
                Some("yaml") => texts.push((name, std::fs::read_to_string(&path).unwrap())),
                Some("md") => {
                    let page = std::fs::read_to_string(&path).unwrap();
                    let blocks =
                        page.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
                    texts.extend(blocks.map(|block| (name.clone(), block.to_owned())));
                }
                _ => {}
            }
        }
    }
    texts.iter().filter_map(|(name, text)| Original::of(name, text)).collect()
}

/// Returns the keys that the reference page lists, as patterns of whole paths.
fn listed_keys() -> Vec<Regex> {
    let page = include_str!("../../../../../docs/reference/control-api.md");
    let (_, section) = page.split_once("### Accepted changes").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let codes = rows.flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|code| code.contains('.'));
    let pattern = |code: &str| {
        // An element that no word names may be any.
        let mut pattern = code.replace("[]", "[*]");
        for (from, to) in
            [(".", r"\."), ("[", r"\["), ("]", r"\]"), ("*", "[^.]*"), ("{", "("), ("}", ")"), (",", "|")]
        {
            pattern = pattern.replace(from, to);
        }
        Regex::new(&format!("^{pattern}$")).unwrap()
    };
    codes.map(pattern).collect()
}

/// Adds the paths at which two written configs differ. An element of a list of remedies has the remedy's name
/// in place of a number.
fn differences(path: &str, before: &Value, now: &Value, found: &mut Vec<String>) {
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => {
            if !before.keys().eq(now.keys()) {
                found.push(format!("{path} (keys)"));
            }
            for (name, value) in before {
                let path = format!("{path}.{}", name.replace('.', "_"));
                differences(&path, value, now.get(name).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(before), Value::Array(now)) if before.len() == now.len() => {
            for (before, now) in before.iter().zip(now) {
                let name = before.as_object().and_then(|remedy| {
                    remedy.keys().find(|key| !["mode", "on_error", "on_pressure"].contains(&key.as_str()))
                });
                differences(&format!("{path}[{}]", name.map_or("", |name| name)), before, now, found);
            }
        }
        (before, now) if before != now => found.push(path.to_owned()),
        _ => {}
    }
}

/// Returns the paths at which a config differs from the original one. Only the sections that differ are
/// written.
fn changed_paths(original: &Original, now: &Config) -> Vec<String> {
    let mut found = Vec::new();
    macro_rules! compare {
        ($($section:ident),*) => {{
            let Config { $($section),* } = now;
            $(if *$section != original.config.$section {
                let before = original.written.get(stringify!($section)).unwrap_or(&Value::Null);
                let now = serde_json::to_value($section).unwrap();
                differences(stringify!($section), before, &now, &mut found);
            })*
        }};
    }
    compare!(
        include,
        gateway,
        control,
        secrets,
        data_dir,
        log,
        providers,
        cluster,
        quotas,
        alerts,
        accounts,
        prices,
        interception,
        exporters,
        flows
    );
    found
}

/// A source of choices.
struct Choice(Random);

impl Choice {
    fn below(&mut self, count: usize) -> usize {
        let max = u64::try_from(count).unwrap().saturating_sub(1);
        usize::try_from(self.0.up_to(max)).unwrap()
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// Texts that must never become a value.
const HOSTILE: [&str; 24] = [
    "${env:PATH}",
    "'${env:HOME:-5s}'",
    "'${file:/etc/passwd}'",
    "$${env:PATH}",
    "'cel:env(\"PATH\")'",
    "'env(\"PATH\") > \"a\"'",
    "\"${request.headers.x}\"",
    "http://169.254.169.254",
    "'http://evil.example/'",
    "/etc/shadow",
    "../../x",
    "'*'",
    "evil.example",
    "dangerously-off",
    "off",
    "all",
    "allow",
    "trace",
    "[5s]",
    "{ a: 5s }",
    "!!binary aGVsbG8=",
    "!include /etc/passwd",
    "~",
    "''",
];

/// Lines that would add something.
const ADDED: [&str; 12] = [
    "url: 'http://evil.example'",
    "open_proxy: true",
    "forward_credentials: true",
    "obfuscate: false",
    "when: 'env(\"PATH\") > \"a\"'",
    "file: /etc/passwd",
    "mode: report",
    "<<: { mode: report }",
    "<<: *anchor",
    "? complex\n: key",
    "limit: 7",
    "- retry: { attempts: 9 }",
];

/// Returns another value of the same kind, in one of its spellings; `None` if the value is of no plain kind.
fn similar(value: &str, choice: &mut Choice) -> Option<String> {
    let number = choice.below(5_000);
    let units: &[&str] = match value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.') {
        "" => &[""],
        "ms" | "s" | "m" | "h" | "d" => &["ms", "s", "m", "h", "d"],
        "B" | "KiB" | "MiB" | "GiB" => &["B", "KiB", "MiB", "GiB"],
        "%" => &["%"],
        "true" | "false" => {
            return Some(choice.of(&["true", "false", "True", "yes", "!!bool true", "'true'"]).to_owned());
        }
        "enforce" | "report" => {
            return Some(choice.of(&["enforce", "report", "Report", "'report'"]).to_owned());
        }
        "error" | "warn" | "info" | "debug" => {
            return Some(choice.of(&["error", "debug", "trace"]).to_owned());
        }
        _ => return None,
    };
    let unit = choice.of(units);
    Some(match choice.below(48) {
        0 => format!("\"{number}{unit}\""),
        1 => format!("'{number}{unit}'"),
        2 => format!("!!str {number}{unit}"),
        3 => format!("!!int {number}{unit}"),
        4 => format!("{number}.0{unit}"),
        5 => format!("{number}e0{unit}"),
        6 => format!("0x{number:x}{unit}"),
        7 => format!("0o{number:o}{unit}"),
        8 => format!("+{number}{unit}"),
        9 => format!("-{number}{unit}"),
        10 => format!("{number}_000{unit}"),
        11 => format!("\"\\x35{unit}\""),
        12 => format!("&anchor {number}{unit}"),
        13 => format!("{number} {unit}"),
        14 => format!("{number}{unit} # {number}"),
        15 => "*anchor".to_owned(),
        16 => format!("\"{number}{unit}\\n\""),
        _ => format!("{number}{unit}"),
    })
}

/// Returns a changed text.
fn changed(original: &Original, choice: &mut Choice) -> String {
    let mut text = original.text.clone();
    let mut values = vec![original.pick(choice)];
    if choice.one_in(3) {
        values.push(original.pick(choice));
    }
    values.sort_by_key(|range| std::cmp::Reverse(range.start));
    values.dedup();
    for range in values {
        let value = &original.text[range.clone()];
        let new = match similar(value, choice) {
            Some(similar) if !choice.one_in(8) => similar,
            _ => choice.of(&HOSTILE).to_owned(),
        };
        text.replace_range(range.clone(), &new);
    }
    if choice.one_in(10) { restructured(&text, choice) } else { text }
}

/// Returns the text with other lines, or other layout.
fn restructured(text: &str, choice: &mut Choice) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (at, other) = (choice.below(lines.len()), choice.below(lines.len()));
    let indent = " ".repeat(lines[at].len() - lines[at].trim_start().len());
    match choice.below(12) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => lines.swap(at, other),
        3 => lines.insert(at, format!("{indent}{}", choice.of(&ADDED))),
        4 => lines.insert(at, format!("{indent}# {}", choice.of(&HOSTILE))),
        5 => lines.insert(at, String::new()),
        6 => lines[at] = format!("{}  # a comment", lines[at]),
        7 => lines[at] = lines[at].replacen(": ", ": &anchor ", 1),
        8 => lines[at] = lines[at].replacen(": ", ":    ", 1),
        9 => lines.push(choice.of(&ADDED).to_owned()),
        10 => lines[at] = lines[at].replacen(':', "_:", 1),
        _ => lines[at] = format!("  {}", lines[at]),
    }
    lines.join("\n") + "\n"
}

/// The fate of the generated changes.
#[derive(Debug, Default)]
struct Counts {
    no_yaml: u64,
    refused: u64,
    /// Accepted: only the layout differs.
    same: u64,
    /// Accepted by the rule, but then invalid, such as a limit of 0.
    invalid: u64,
    accepted: u64,
    /// Number of changes of each listed key.
    by_key: BTreeMap<usize, u64>,
    /// The listed key of each path that was changed.
    key_of: BTreeMap<String, usize>,
}

impl Counts {
    fn add(&mut self, other: Self) {
        let Self { no_yaml, refused, same, invalid, accepted, by_key, .. } = other;
        self.no_yaml += no_yaml;
        self.refused += refused;
        self.same += same;
        self.invalid += invalid;
        self.accepted += accepted;
        for (key, count) in by_key {
            *self.by_key.entry(key).or_default() += count;
        }
    }

    fn judge(&mut self, original: &Original, approved: &Document<'_>, text: &str, listed: &[Regex]) {
        let Ok(new) = Document::parse(&original.name, text) else { return self.no_yaml += 1 };
        if !tune(approved.root(), new.root()).is_empty() {
            return self.refused += 1;
        }
        let Ok(config) = new.with_variables().read::<Config>() else { return self.invalid += 1 };
        let found = changed_paths(original, &config);
        if found.is_empty() {
            assert_eq!(config, original.config, "{}:\n{text}", original.name);
            return self.same += 1;
        }
        self.accepted += 1;
        for path in found {
            let find = || listed.iter().position(|key| key.is_match(&path));
            let key = self.key_of.get(&path).copied().or_else(find);
            let key = key.unwrap_or_else(|| panic!("{path} of {} was changed by:\n{text}", original.name));
            *self.by_key.entry(key).or_default() += 1;
            self.key_of.entry(path).or_insert(key);
        }
    }
}

/// The configs that changes begin with.
struct Originals {
    published: Vec<Original>,
    parts: Vec<Original>,
    whole: Original,
}

impl Originals {
    /// Judges change number `first` and those after it.
    fn judge(&self, numbers: Range<u64>, listed: &[Regex]) -> Counts {
        let mut counts = Counts::default();
        let all: Vec<&Original> = self.published.iter().chain(&self.parts).chain([&self.whole]).collect();
        let documents: Vec<_> =
            all.iter().map(|each| Document::parse(&each.name, &each.text).unwrap()).collect();
        for number in numbers {
            let mut choice = Choice(Random::new(mixed(number + 1)));
            let at = match choice.below(200) {
                0 => all.len() - 1,
                1..16 => choice.below(self.published.len()),
                _ => self.published.len() + choice.below(self.parts.len()),
            };
            let text = changed(all[at], &mut choice);
            counts.judge(all[at], &documents[at], &text, listed);
        }
        counts
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the counts tell what the test covers")]
fn generated_changes_alter_only_listed_values() {
    let originals = Originals {
        published: published(),
        parts: parts(),
        whole: Original::of("every_section.yaml", WHOLE).unwrap(),
    };
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    let changes = cases * CHANGES_PER_CASE;
    let listed = listed_keys();
    assert!(originals.published.len() >= 60 && originals.parts.len() >= 25, "configs are missing");
    let mut counts = Counts::default();
    std::thread::scope(|scope| {
        let (originals, listed) = (&originals, &listed);
        let share = changes / THREADS;
        let run = |number| scope.spawn(move || originals.judge(number * share..(number + 1) * share, listed));
        let runs: Vec<_> = (0..THREADS).map(run).collect();
        for run in runs {
            counts.add(run.join().unwrap());
        }
    });
    let Counts { no_yaml, refused, same, invalid, accepted, by_key, .. } = &counts;
    println!(
        "{changes} changes of {} configs: {accepted} accepted, of {} of {} keys; {refused} refused, {no_yaml} \
         without a tree, {invalid} invalid, {same} of the layout alone",
        originals.published.len() + originals.parts.len() + 1,
        by_key.len(),
        listed.len()
    );
    assert!(*accepted >= changes / 10 && *refused >= changes / 5, "{counts:?}");
    // A few of the keys are in one config alone. 20,000 changes reach every key.
    let reached = if changes >= 20_000 { listed.len() } else { listed.len() * 9 / 10 };
    assert!(by_key.len() >= reached, "some keys were not changed: {by_key:?}");
}
