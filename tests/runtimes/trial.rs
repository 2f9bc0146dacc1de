//! One program, run with the authority, without it, and isolated.

use std::process::Output;

use egret_tests::exec::{AUTHORITIES, NamedProvider};
use egret_tests::process::run;

/// The line that the provider responds with to every program.
pub const EXPECTED: &str = "GET /program HTTP/1.1";

/// The URL that programs call.
pub const URL: &str = "https://origin.test/program";

/// A program, with the provider that it calls.
pub struct Trial<'a> {
    provider: NamedProvider,
    command: &'a [&'a str],
}

impl<'a> Trial<'a> {
    /// Prepares the program with its arguments.
    pub fn of(command: &'a [&'a str]) -> Self {
        Self { provider: NamedProvider::start(), command }
    }

    /// Does the same with a provider of its own.
    pub fn at(provider: NamedProvider, command: &'a [&'a str]) -> Self {
        Self { provider, command }
    }

    /// Asserts that the program prints `expected` when it uses the proxy and trusts the authority.
    pub fn reaches(&self, expected: &str) -> &Self {
        let output = self.run(&["--intercept"], &[]);
        self.assert_printed(&output, expected);
        self
    }

    /// Asserts that the program prints `expected` when it knows no proxy and is isolated.
    pub fn reaches_isolated(&self, expected: &str) -> &Self {
        let output = self.run(&["--isolate", "--intercept"], &without_proxy());
        self.assert_printed(&output, expected);
        self
    }

    /// Asserts that the program fails without the variables of authorities, and that the log then names one
    /// of these.
    pub fn is_explained(&self, variables: &[&str]) -> &Self {
        let dropped: Vec<String> = AUTHORITIES.map(|name| format!("--unset={name}")).to_vec();
        // Java's proxy is in the same variable as its authorities.
        let java = ["JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=$PORT".to_owned()];
        let is_java = self.command.first().is_some_and(|program| program.ends_with("java"));
        let words = dropped.iter().chain(java.iter().filter(|_| is_java)).map(String::as_str);
        let words: Vec<&str> = words.collect();
        for _ in 0..2 {
            let output = self.run(&["--intercept", "--linger=200ms"], &words);
            assert!(!output.status.success(), "{:?} trusts everything: {output:?}", self.command);
        }
        self.provider.place.until_gateways_gone();
        let logs: String =
            self.provider.place.logs().iter().map(|log| std::fs::read_to_string(log).unwrap()).collect();
        assert!(
            variables.iter().any(|variable| logs.contains(variable)),
            "{:?}: no line names one of {variables:?}:\n{logs}",
            self.command
        );
        self
    }

    /// Runs the program, behind words for env(1) and twice in one command, so a refusal is recognized.
    fn run(&self, options: &[&str], environment: &[&str]) -> Output {
        let mut exec = self.provider.place.options([]);
        exec.args(options).args([
            "--",
            "sh",
            "-c",
            "PORT=${http_proxy##*:}; export PORT; \"$@\"; \"$@\"",
            "sh",
        ]);
        exec.args(["sh", "-c", RUN, "sh"]);
        exec.arg(environment.join("\n")).args(self.command);
        run(&mut exec)
    }

    fn assert_printed(&self, output: &Output, expected: &str) {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(printed.matches(expected).count(), 2, "{:?} printed\n{printed}\n{trouble}", self.command);
        let requests = self.provider.origin.requests();
        assert!(!requests.is_empty() && requests.iter().all(|request| !request.values("via").is_empty()));
    }
}

/// Runs a program behind the lines of words for env(1), in which `$PORT` is the proxy's.
const RUN: &str = "words=$1; shift; IFS='\n'; set -f; \
    words=$(printf %s \"$words\" | sed \"s/\\$PORT/$PORT/g\"); exec env $words \"$@\"";

/// Returns words for env(1) that remove all variables of proxies.
fn without_proxy() -> Vec<&'static str> {
    vec![
        "--unset=http_proxy",
        "--unset=HTTP_PROXY",
        "--unset=https_proxy",
        "--unset=HTTPS_PROXY",
        "--unset=NODE_USE_ENV_PROXY",
    ]
}
