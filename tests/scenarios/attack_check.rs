//! Configs that are made to take long: the time of `egret check` grows with the file, whatever is in it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret, binary};
use egret_tests::permits;
use egret_tests::process::{Directory, run};
use egret_tests::wait;

/// Length of a file.
const BYTES: usize = 1_000_000;
/// Length of a file with many entries. A longer one has more values than a config may have.
const MISTAKES_BYTES: usize = 300_000;
/// CPU time for a file in a release build, several times what it takes: machines differ, and a busy one takes
/// longer. A build without optimization takes up to twenty times as long, so it gets an eighth of the file.
const RELEASE_MAX: Duration = Duration::from_millis(1_500);
const DEBUG_FACTOR: u32 = 20;
const DEBUG_PART: u16 = 8;
/// Number of measurements of a kind, one of which must keep the bounds: what other programs do makes a run
/// slower than the next.
const MEASURED_MAX: usize = 3;
/// CPU time from which on a file is compared with a quarter of it. Below, starting the program counts most.
const COMPARED_MIN: Duration = Duration::from_millis(250);
/// Number of flows whose check takes longer than a reload.
const FLOWS: usize = 6_000;
/// CPU time after which the system ends the program.
const KILLED_AFTER_S: u64 = 12;

/// A kind of text: the beginning, the pieces in between, and the end.
struct Kind {
    name: &'static str,
    begin: &'static str,
    piece: fn(usize) -> String,
    end: &'static str,
}

fn kind(name: &'static str, begin: &'static str, piece: fn(usize) -> String, end: &'static str) -> Kind {
    Kind { name, begin, piece, end }
}

/// Every kind of value.
fn values() -> Vec<Kind> {
    vec![
        kind("level", "log: { level: '", |_| "a".into(), "' }\n"),
        kind("level, of many words", "log: { level: '", |_| "a ".into(), "' }\n"),
        kind("level, in another script", "log: { level: '", |_| "語".into(), "' }\n"),
        kind("number", "gateway: { workers: '", |_| "1".into(), "' }\n"),
        kind(
            "duration",
            "providers: { p: { url: 'http://h.test', timeouts: { connect: ",
            |_| "1".into(),
            "s } } }\n",
        ),
        kind("size", "gateway: { limits: { gathered: ", |_| "1".into(), "KiB } }\n"),
        kind("URL", "providers: { p: { url: 'http://", |_| "a.".into(), "' } }\n"),
        kind("user of a URL", "providers: { p: { url: 'http://", |_| "a:".into(), "@h.test' } }\n"),
        kind("several URLs", "log: { level: '", |_| "http://a:b@c ".into(), "' }\n"),
        kind("quotes", "log: { level: \"", |_| "'a".into(), "\" }\n"),
        kind("host", "gateway: { egress: { deny: [{ host: '", |_| "a*".into(), "' }] } }\n"),
        kind("address", "gateway: { listen: ['", |_| "1.".into(), "'] }\n"),
        kind("path", "flows: [{ name: f, match: { path: '", |_| "/{a}".into(), "' } }]\n"),
        kind(
            "template",
            "flows: [{ name: f, remedies: [fixed-response: { body: '",
            |_| "${request.path}".into(),
            "' }] }]\n",
        ),
        kind("expression", "flows: [{ name: f, match: { when: '", |_| "true && ".into(), "true' } }]\n"),
        kind("parentheses", "flows: [{ name: f, match: { when: '", |_| "(".into(), "' } }]\n"),
        kind("script", "flows: [{ name: f, remedies: [script: { source: '", |_| "a(".into(), "' }] }]\n"),
        kind(
            "regular expression",
            "flows: [{ name: f, match: { path: 'regex:",
            |_| "(a*)*".into(),
            "' } }]\n",
        ),
        kind("variables", "log: { level: '", |_| "${env:A:-b}".into(), "' }\n"),
        kind("variable, not closed", "log: { level: '", |_| "${env:A:-".into(), "' }\n"),
    ]
}

/// Every kind of text around values.
fn texts() -> Vec<Kind> {
    vec![
        kind("keys that sound secret", "log: { level: x, ", |_| "key: a, ".into(), "}\n"),
        kind("references", "a: '", |_| "key: ${ ".into(), "'\n"),
        kind("escapes", "log: { level: \"", |_| "\\\"\\u0041".into(), "\" }\n"),
        kind("quote, not closed", "log: { level: \"", |_| "a ".into(), "\n"),
        kind("list of texts", "gateway: { listen: [", |at| format!("a{at},"), "] }\n"),
        kind("list of hosts", "interception: { hosts: [", |at| format!("a{at}.test,"), "] }\n"),
        kind("list in lines", "gateway:\n  listen:\n", |at| format!("    - a{at}\n"), ""),
        kind("unknown keys", "", |at| format!("key{at}: 1\n"), ""),
        kind("unknown keys of a section", "gateway:\n", |at| format!("  key{at}: 1\n"), ""),
        kind("a key twice", "", |at| format!("key{at}: 1\n"), "key1: 2\n"),
        kind("one long key", "", |_| "a".into(), ": 1\n"),
        kind("brackets", "a: ", |_| "[".into(), "\n"),
        kind("braces", "a: ", |_| "{a: ".into(), "\n"),
        kind("dashes", "", |_| "- ".into(), "\n"),
        kind("indentation", "", |at| format!("{:1$}a:\n", "", at % 1_000), ""),
        kind("colons", "a: ", |_| "b: ".into(), "\n"),
        kind("a comment", "# ", |_| "a".into(), "\nlog: { level: x }\n"),
        kind("comments", "", |_| "# a\n".into(), "log: { level: x }\n"),
        kind("empty lines", "", |_| "\n".into(), "log: { level: x }\n"),
        kind("spaces", "a: @", |_| " ".into(), "\n"),
        kind("spaces before", "", |_| " ".into(), "@\n"),
        kind("a text of lines", "log:\n  level: |\n", |at| format!("    a {at}\n"), ""),
        kind("aliases", "a: &a [1, 2, 3]\n", |at| format!("b{at}: *a\n"), ""),
        kind("anchors", "", |at| format!("b{at}: &x{at} 1\n"), ""),
        kind("tags", "a: ", |_| "!a ".into(), "\n"),
        kind("documents", "", |_| "---\n".into(), ""),
        kind("included files", "include: [", |at| format!("x{at}.yaml, "), "]\n"),
        kind("included patterns", "include: [", |at| format!("'x{at}*', "), "]\n"),
    ]
}

/// Many entries, most with the same mistake.
fn mistakes() -> Vec<Kind> {
    vec![
        kind("providers", "providers:\n", |at| format!("  p{at}: {{ url: 'http://h{at}.test' }}\n"), ""),
        kind("providers without a scheme", "providers:\n", |at| format!("  p{at}: {{ url: h.test }}\n"), ""),
        kind(
            "quotas that nothing uses",
            "quotas:\n",
            |at| format!("  q{at}: {{ limit: 1, window: 1s }}\n"),
            "",
        ),
        kind("flows with one name", "flows:\n", |_| "  - { name: f, remedies: [retry: {}] }\n".into(), ""),
        kind(
            "flows of no provider",
            PROVIDER_AND_FLOWS,
            |at| format!("  - {{ name: f{at}, match: {{ provider: x{at} }} }}\n"),
            "",
        ),
        kind("flows that do nothing", PROVIDER_AND_FLOWS, |at| format!("  - {{ name: f{at} }}\n"), ""),
        kind(
            "unknown quotas",
            PROVIDER_AND_FLOWS,
            |at| format!("  - {{ name: f{at}, remedies: [limit: {{ quota: quota-{at} }}] }}\n"),
            QUOTAS,
        ),
        kind(
            "exporters that nothing uses",
            "exporters:\n",
            |at| format!("  e{at}: {{ type: har, directory: ./h{at} }}\n"),
            "",
        ),
        kind(
            "accounts that nothing uses",
            ACCOUNTS,
            |at| format!("  a{at}: {{ provider: p, bearer: {{ token: '${{env:PATH}}' }} }}\n"),
            "",
        ),
    ]
}

/// Many entries that refer to each other, or are compared with each other.
fn entries() -> Vec<Kind> {
    vec![
        kind(
            "providers at one host",
            "providers:\n",
            |at| format!("  p{at}: {{ url: 'http://h.test/{}' }}\n", at % 9),
            "",
        ),
        kind(
            "listeners",
            "gateway:\n  listen:\n",
            |at| format!("    - 127.0.{}.1:{}\n", at / 60_000, at % 60_000 + 1),
            "",
        ),
        kind("names of the gateway", "gateway:\n  names:\n", |at| format!("    - a{at}.test\n"), ""),
        kind(
            "quotas in a line",
            "quotas:\n  q0: { limit: 1, window: 1s }\n",
            |at| format!("  q{}: {{ limit: 1, window: 1s, parent: q{at} }}\n", at + 1),
            "",
        ),
        kind(
            "quotas with unknown parents",
            "quotas:\n",
            |at| format!("  q{at}: {{ limit: 1, window: 1s, parent: x{at} }}\n"),
            "",
        ),
        kind(
            "accounts of unknown providers",
            "accounts:\n",
            |at| format!("  a{at}: {{ provider: x{at}, bearer: {{ token: '${{env:PATH}}' }} }}\n"),
            "",
        ),
        kind(
            "unknown accounts",
            PROVIDER_AND_FLOWS,
            |at| format!("  - {{ name: f{at}, remedies: [authenticate: {{ account: a{at} }}] }}\n"),
            "",
        ),
        kind(
            "quotas outside of a retry",
            PROVIDER_AND_FLOWS,
            |at| format!("  - {{ name: f{at}, remedies: [limit: {{ quota: quote-1 }}, retry: {{}}] }}\n"),
            QUOTAS,
        ),
        kind(
            "flows behind a fixed response",
            "flows:\n  - { name: first, remedies: [fixed-response: {}] }\n",
            |at| format!("  - {{ name: f{at}, remedies: [retry: {{}}] }}\n"),
            "",
        ),
        kind(
            "flows with expressions",
            PROVIDER_AND_FLOWS,
            |at| {
                let when = format!("match: {{ when: 'request.method == \"A{at}\"' }}");
                format!("  - {{ name: f{at}, {when}, remedies: [retry: {{}}] }}\n")
            },
            "",
        ),
        kind(
            "scripts",
            PROVIDER_AND_FLOWS,
            |at| {
                format!(
                    "  - {{ name: f{at}, remedies: [script: {{ source: 'function onRequest() {{}}' }}] }}\n"
                )
            },
            "",
        ),
        kind("limits of one flow", ONE_FLOW, |_| "    - limit: { quota: quote-1 }\n".into(), QUOTAS),
        kind(
            "header fields of a transform",
            "flows:\n- name: f\n  remedies:\n  - transform:\n      request:\n        headers:\n          set:\n",
            |at| format!("            x-{at}: b\n"),
            "",
        ),
    ]
}

const ONE_FLOW: &str = "flows:\n- name: f\n  remedies:\n";
const PROVIDER_AND_FLOWS: &str = "providers: { p: { url: 'http://h.test' } }\nflows:\n";
const ACCOUNTS: &str = "providers: { p: { url: 'http://h.test' } }\naccounts:\n";
const QUOTAS: &str = "quotas: { quote-1: { limit: 1, window: 1s } }\n";

impl Kind {
    fn text(&self, bytes: usize) -> String {
        let mut text = self.begin.to_owned();
        for at in 0.. {
            if text.len() + self.end.len() >= bytes {
                break;
            }
            text += &(self.piece)(at);
        }
        text + self.end
    }
}

/// CPU time of `egret check` for a file. It may be ended by the system.
fn cpu_time(file: &Path) -> Duration {
    let line = format!(
        "ulimit -t {KILLED_AFTER_S}; TIMEFORMAT='cpu %3U %3S'; time \"$0\" check \"$1\" >/dev/null 2>&1"
    );
    let output = run(Command::new("bash").arg("-c").arg(line).arg(binary()).arg(file));
    let printed = String::from_utf8(output.stderr).unwrap();
    let figures =
        printed.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_else(|| panic!("{printed}"));
    figures.split(' ').map(|seconds| Duration::from_secs_f64(seconds.parse().unwrap())).sum()
}

/// Returns `true` if the program was built with optimization, as its folder says.
fn is_optimized() -> bool {
    binary().components().any(|folder| ["quick", "release"].map(OsStr::new).contains(&folder.as_os_str()))
}

/// Measures a file of this length. Returns its time, or the reason why that is too long.
fn judge(time: &impl Fn(usize) -> Duration, bytes: usize, max: Duration) -> Result<Duration, String> {
    let whole = time(bytes);
    if whole > max {
        return Err(format!("{whole:?} of CPU time for {bytes} bytes"));
    }
    if whole > COMPARED_MIN {
        let part = time(bytes / 4);
        // Twice what a linear one takes: caches are smaller than the file.
        if whole > part * 8 {
            return Err(format!("{part:?} for a quarter of what takes {whole:?}"));
        }
    }
    Ok(whole)
}

/// Bounds the time of kinds, in files of this length.
fn bound(kinds: &[Kind], bytes: usize) {
    let (_permit, directory) = (permits::busy(), Directory::default());
    let (bytes, max) = if is_optimized() {
        (bytes, RELEASE_MAX)
    } else {
        (bytes / usize::from(DEBUG_PART), RELEASE_MAX * DEBUG_FACTOR / u32::from(DEBUG_PART))
    };
    let mut table = String::new();
    for kind in kinds {
        let time = |bytes| cpu_time(&directory.write("egret.yaml", kind.text(bytes)));
        let mut judged = judge(&time, bytes, max);
        for _ in 1..MEASURED_MAX {
            judged = judged.or_else(|_| judge(&time, bytes, max));
        }
        let whole = judged.unwrap_or_else(|reason| panic!("{}: {reason}\n{table}", kind.name));
        let _ = writeln!(table, "{:32} {:6.3} s", kind.name, whole.as_secs_f64());
    }
    println!("CPU time of `egret check` for {bytes} bytes, at most {max:?}:\n{table}");
}

#[test]
fn check_takes_linear_time_for_every_kind_of_value() {
    bound(&values(), BYTES);
}

#[test]
fn check_takes_linear_time_for_every_kind_of_text() {
    bound(&texts(), BYTES);
}

#[test]
fn the_time_of_check_is_linear_in_the_number_of_mistakes() {
    bound(&mistakes(), MISTAKES_BYTES);
}

#[test]
fn the_time_of_check_is_linear_in_the_number_of_entries() {
    bound(&entries(), MISTAKES_BYTES);
}

/// Reloads a config with this limit, and returns the time until it is in effect.
fn reload(egret: &Egret, limit: u64) -> Duration {
    let began = Instant::now();
    egret.rewrite(with_limit(limit).yaml());
    egret.hang_up();
    wait::until_true("the new config is in effect", || {
        egret.control_get("/api/v1/config").json()["quotas"]["live"]["limit"] == limit
    });
    began.elapsed()
}

fn with_limit(limit: u64) -> Config {
    Config::default().flows(format!("quotas: {{ live: {{ limit: {limit}, window: 1h }} }}\n"))
}

#[test]
fn a_reload_does_not_wait_for_a_check_over_the_api() {
    let egret = with_limit(1).start();
    let api = ConfigApi::of(&egret);
    let flows =
        |at| format!("  - {{ name: f{at}, match: {{ path: '/a/{at}' }}, remedies: [retry: {{}}] }}\n");
    let long: String = (0..FLOWS).map(flows).collect();
    let text = with_limit(1).flows(format!("flows:\n{long}")).yaml();
    let alone = reload(&egret, 2);
    let mut limit = 2;
    // A round in which a busy machine holds up the test or the reload for as long as the check shows nothing.
    wait::until_true(&format!("a reload is over before a check of {FLOWS} flows"), || {
        limit += 1;
        let is_checked = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // It may come while another one below is checked.
                let checked = wait::until("the check begins", || {
                    let response = api.call("POST /api/v1/config/validate", "", &text);
                    (response.status != 503).then_some(response.status)
                });
                is_checked.store(true, Ordering::Release);
                assert_eq!(checked, 200);
            });
            let refused = wait::until("another check is refused meanwhile, or the first one is over", || {
                let response = api.call("POST /api/v1/config/validate", "", "log: { level: info }\n");
                (response.status == 503 || is_checked.load(Ordering::Acquire)).then_some(response)
            });
            let beside = reload(&egret, limit);
            if is_checked.load(Ordering::Acquire) {
                return false;
            }
            assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
            println!("a reload takes {alone:?}, and {beside:?} beside a check of {FLOWS} flows");
            true
        })
    });
    assert_eq!(api.validate(&with_limit(4).yaml())["valid"], true);
}
