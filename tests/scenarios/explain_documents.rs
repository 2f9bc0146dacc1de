//! `egret explain` over every config of the documentation and every example.

use std::path::{Path, PathBuf};

use egret_tests::egret::egret;
use egret_tests::process::{Directory, run};

/// Number of configs that are explained at least.
const CONFIGS_MIN: usize = 60;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|name| name == extension) {
            found.push(path);
        }
    }
}

/// Returns the YAML blocks of a page, with the numbers of their first lines.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let text = line.trim_start();
        if text != "```yaml" {
            continue;
        }
        let indentation = line.len() - text.len();
        let body = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
        let body = body.map(|line| line.get(indentation..).unwrap_or_default());
        blocks.push((number + 2, body.collect::<Vec<_>>().join("\n") + "\n"));
    }
    blocks
}

/// Returns the names below the key `providers`.
fn providers(config: &str) -> Vec<String> {
    let mut lines = config.lines().skip_while(|line| !line.starts_with("providers:"));
    let inline = lines.next().and_then(|line| line.split_once('{')).map(|(_, names)| names);
    let below = lines.take_while(|line| line.is_empty() || line.starts_with([' ', '#']));
    let below = below.filter(|line| line.starts_with("  ") && !line[2..].starts_with([' ', '#']));
    let names = inline.into_iter().chain(below).filter_map(|line| line.trim().split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Explains requests by the config in a file, if it is valid. Returns `true` if it is, or what is wrong.
fn explain(name: &str, file: &Path, config: &str) -> Result<bool, String> {
    let command = |words: &[&str]| run(egret([]).args(words).current_dir(root()));
    let path = file.to_str().unwrap();
    let is_valid = command(&["check", "--no-secrets", path]).status.code() == Some(0);
    let base_urls = providers(config).into_iter().map(|provider| format!("/{provider}/v1/things?limit=3"));
    let urls = ["https://api.example.com/v1/things".to_owned(), "/".to_owned()].into_iter().chain(base_urls);
    // One call shows that a block which is part of a config is none.
    for url in urls.take(if is_valid { usize::MAX } else { 1 }) {
        let output = command(&["explain", path, "POST", &url, "--no-secrets", "--data", "{\"item\": 7}"]);
        let (code, stderr) = (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned());
        let is_stated = code == Some(1) && stderr.contains("the gateway answers ");
        let is_good = if is_valid { code == Some(0) || is_stated } else { code == Some(2) };
        if !is_good || stderr.contains("panicked") || stderr.contains("just changed") {
            return Err(format!("{name}: {url}: {code:?}: {stderr}"));
        }
        // A client that has to prove its name has none here, and this call has no price.
        let told = ["warning: ", "client-unproven", "needs the price of a call"];
        let is_served = stderr.is_empty() || told.iter().any(|part| stderr.contains(part));
        if is_valid && url.starts_with('/') && url != "/" && !is_served {
            return Err(format!("{name}: {url}: {stderr}"));
        }
    }
    Ok(is_valid)
}

#[test]
fn every_config_of_the_documentation_can_be_explained() {
    let directory = Directory::default();
    let (mut pages, mut examples) = (vec![root().join("README.md")], Vec::new());
    files(&root().join("docs"), "md", &mut pages);
    files(&root().join("examples"), "yaml", &mut examples);
    let mut configs: Vec<(String, PathBuf, String)> = Vec::new();
    for path in examples.into_iter().filter(|path| !path.ends_with("lunar/policies.yaml")) {
        let text = std::fs::read_to_string(&path).unwrap();
        configs.push((path.display().to_string(), path, text));
    }
    let examples = configs.len();
    for page in pages {
        for (line, text) in blocks(&std::fs::read_to_string(&page).unwrap()) {
            let file = directory.write(&format!("block-{}.yaml", configs.len()), &text);
            configs.push((format!("{}:{line}", page.display()), file, text));
        }
    }
    let explain_all = |configs: &[(String, PathBuf, String)]| {
        configs.iter().map(|(name, file, text)| explain(name, file, text)).collect::<Vec<_>>()
    };
    let (first, rest) = configs.split_at(configs.len() / 2);
    let results = std::thread::scope(|scope| {
        let rest = scope.spawn(|| explain_all(rest));
        let mut results = explain_all(first);
        results.extend(rest.join().unwrap());
        results
    });
    let failures: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(failures.is_empty(), "{failures:#?}");
    let valid = results.iter().filter(|result| **result == Ok(true)).count();
    println!("{valid} configs explained, {} blocks are parts of one", results.len() - valid);
    assert!(results[..examples].iter().all(|result| *result == Ok(true)), "an example is invalid");
    assert!(valid >= CONFIGS_MIN, "only {valid} configs");
}
