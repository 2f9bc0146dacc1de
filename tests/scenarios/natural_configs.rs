//! Configs as somebody writes them at first: each need is met after few tries, and a try that fails shows
//! the next one what to write.

use std::collections::BTreeMap;
use std::path::Path;

use egret_tests::egret::egret;
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, run};

/// Maximum number of tries for so many needs: 1.2 for each.
const TRIES_MAX: usize = 6;
const NEEDS: usize = 5;

/// Checks a config without its secrets. Returns the messages, if there are any.
fn messages(directory: &Directory, name: &str) -> Option<String> {
    let mut check = egret(["check", "--no-secrets", name]);
    let output = run(check.current_dir(directory.path()).env("NO_COLOR", "1"));
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let is_silent =
        output.status.success() && text.starts_with(&format!("{name}: OK")) && text.lines().count() == 1;
    (!is_silent).then_some(text)
}

/// The tries of each need, in order: `NAME.1.yaml`, `NAME.2.yaml`.
fn needs(directory: &Directory) -> BTreeMap<String, Vec<String>> {
    let mut needs = BTreeMap::<String, Vec<String>>::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/needs");
    for entry in std::fs::read_dir(fixtures).unwrap().map(Result::unwrap) {
        let file = entry.file_name().into_string().unwrap();
        directory.write(&file, std::fs::read(entry.path()).unwrap());
        needs.entry(file.split('.').next().unwrap().to_owned()).or_default().push(file);
    }
    for tries in needs.values_mut() {
        tries.sort();
    }
    needs
}

/// Returns `true` if a message quotes what the next try has and this one has not.
fn is_shown(message: &str, this: &str, next: &str) -> bool {
    message.split('`').skip(1).step_by(2).any(|quoted| next.contains(quoted) && !this.contains(quoted))
}

#[test]
fn each_need_is_met_after_few_tries() {
    let (directory, authority) = (Directory::default(), Authority::default());
    let leaf = authority.leaf(&["client.example"]);
    directory.write("ca.pem", authority.certificate());
    directory.write("client.pem", &leaf.certificate);
    directory.write_secret("client.key", &leaf.key);
    let needs = needs(&directory);
    let text = |name: &String| std::fs::read_to_string(directory.join(name)).unwrap();
    for tries in needs.values() {
        for pair in tries.windows(2) {
            let message = messages(&directory, &pair[0]).unwrap_or_else(|| panic!("{} passes", pair[0]));
            assert!(is_shown(&message, &text(&pair[0]), &text(&pair[1])), "{message}");
        }
        let last = tries.last().unwrap();
        assert_eq!(messages(&directory, last), None, "{last}");
    }
    let tries: usize = needs.values().map(Vec::len).sum();
    assert!(
        needs.len() >= 17 && NEEDS * tries <= TRIES_MAX * needs.len(),
        "{tries} tries for {} needs",
        needs.len()
    );
}

const SHORT: &str = "\
gateway: { listen: 127.0.0.1:0, egress: { default: deny, allow: [api.github.com] } }
control: { listen: 127.0.0.1:0 }
log: debug
providers: { bank: https://bank.example, shop: { url: https://shop.example, timeouts: 10s } }
accounts: { shop: { provider: shop, bearer: \"${env:SHOP}\" } }
quotas: { shop: { limit: 5, window: 1s } }
flows:
  - name: shop
    match: { provider: shop, method: GET }
    remedies:
      - transform: { request: { headers: { set: { x-id: \"${request.id}\", idempotency-key: \"${uuid}\" } } } }
      - timeout: 10s
      - circuit-breaker
      - retry: 3
      - authenticate: shop
      - concurrency: 5
      - queue: { quota: shop, priority: { by: consumer, classes: [checkout, batch] } }
    diagnoses: [metrics]
  - { name: bank, match: { provider: bank }, remedies: [retry: { on: 5xx }] }
";

#[test]
fn short_forms_that_mean_one_thing_are_accepted() {
    let directory = Directory::default();
    directory.write("short.yaml", SHORT);
    assert_eq!(messages(&directory, "short.yaml"), None);
}
