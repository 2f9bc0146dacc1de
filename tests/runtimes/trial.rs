//! One program, run without Egret, with the authority, without it, and isolated.

use std::cell::OnceCell;
use std::process::{Command, Output};

use egret_tests::exec::{NamedProvider, authorities};
use egret_tests::process::{run, run_checked};
use egret_tests::provider::Request;

/// The line that the provider responds with to every program.
pub const EXPECTED: &str = "GET /program HTTP/1.1";

/// The URL that programs call.
pub const URL: &str = "https://origin.test/program";

/// Fields of a request that are not compared: those of one connection, and those that name its way.
const NOT_COMPARED: [&str; 4] = ["connection", "host", "via", "upgrade"];

/// Fields of a request with another value each time: only their presence is compared.
const CHANGING: [&str; 5] =
    ["authorization", "amz-sdk-invocation-id", "x-amz-date", "idempotency-key", "x-stripe-client-telemetry"];

/// A program, with the provider that it calls.
pub struct Trial<'a> {
    provider: NamedProvider,
    command: &'a [&'a str],
    baseline: OnceCell<Baseline>,
}

/// The output and the calls of the program without Egret.
struct Baseline {
    printed: String,
    calls: Vec<Call>,
}

/// A request as it is compared: its line, fields and body.
#[derive(Debug, PartialEq, Eq)]
struct Call(String, Vec<(String, String)>, Vec<u8>);

impl From<&Request> for Call {
    fn from(request: &Request) -> Self {
        let is = |field: &str, names: &[&str]| names.iter().any(|name| field.eq_ignore_ascii_case(name));
        let compared = request.fields.iter().filter(|(name, _)| !is(name, &NOT_COMPARED));
        let fields = compared.map(|(name, value)| {
            let value = if is(name, &CHANGING) { String::new() } else { value.clone() };
            (name.clone(), value)
        });
        Self(request.line.clone(), fields.collect(), request.body.clone())
    }
}

impl Call {
    /// Returns the call as `direct` shows it if it can have come over HTTP/2, which the provider does not
    /// speak: its names are in lower case, fields of different names have no order, and an empty body needs
    /// no length.
    fn without_http2(self, direct: &Self) -> Self {
        if self.1.iter().any(|(name, _)| name.bytes().any(|byte| byte.is_ascii_uppercase())) {
            return self;
        }
        let shape = |call: &Self| {
            let is_kept = |(name, value): &&(String, String)| {
                !name.eq_ignore_ascii_case("content-length") || value != "0"
            };
            let lower = |(name, value): &(String, String)| {
                (name.to_ascii_lowercase(), value.replace("Go-http-client/2.0", "Go-http-client/1.1"))
            };
            let mut fields: Vec<_> = call.1.iter().filter(is_kept).map(lower).collect();
            fields.sort();
            (call.0.clone(), fields, call.2.clone())
        };
        if shape(&self) == shape(direct) {
            Self(direct.0.clone(), direct.1.clone(), direct.2.clone())
        } else {
            self
        }
    }
}

impl<'a> Trial<'a> {
    /// Prepares the program with its arguments.
    pub fn of(command: &'a [&'a str]) -> Self {
        Self::at(NamedProvider::start(), command)
    }

    /// Does the same with a provider of its own.
    pub fn at(provider: NamedProvider, command: &'a [&'a str]) -> Self {
        Self { provider, command, baseline: OnceCell::new() }
    }

    /// The provider.
    pub fn provider(&self) -> &NamedProvider {
        &self.provider
    }

    /// Asserts that the program prints `expected` when it uses the proxy and trusts the authority.
    pub fn reaches(&self, expected: &str) -> &Self {
        self.assert_as_without_egret(&["--intercept"], &[], expected)
    }

    /// Asserts that the program prints `expected` when it knows no proxy and is isolated.
    pub fn reaches_isolated(&self, expected: &str) -> &Self {
        self.assert_as_without_egret(&["--isolate", "--intercept"], &without_proxy(), expected)
    }

    /// Asserts that the program fails without the variables of authorities, and that the log then names one
    /// of these.
    pub fn is_explained(&self, variables: &[&str]) -> &Self {
        self.assert_explained(&["--intercept"], &[], variables)
    }

    /// Does the same with a program that knows no proxy and is isolated.
    pub fn is_explained_isolated(&self, variables: &[&str]) -> &Self {
        self.assert_explained(&["--isolate", "--intercept"], &without_proxy(), variables)
    }

    fn assert_explained(&self, options: &[&str], environment: &[&str], variables: &[&str]) -> &Self {
        let dropped: Vec<String> = authorities().map(|name| format!("--unset={name}")).collect();
        // Java's proxy is in the same variable as its authorities.
        let java = ["JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=$PORT".to_owned()];
        let is_java = self.command.first().is_some_and(|program| program.ends_with("java"));
        let added = dropped.iter().chain(java.iter().filter(|_| is_java)).map(String::as_str);
        let words: Vec<&str> = environment.iter().copied().chain(added).collect();
        let output = self.run(&[options, &["--linger=200ms"]].concat(), &words);
        assert!(!output.status.success(), "{:?} trusts everything: {output:?}", self.command);
        self.provider.place.until_gateways_gone();
        let logs: String =
            self.provider.place.logs().iter().map(|log| std::fs::read_to_string(log).unwrap()).collect();
        let mut refusals = logs.lines().filter(|line| line.contains("a client refuses the certificate"));
        assert!(
            refusals.any(|line| variables.iter().any(|variable| line.contains(variable))),
            "{:?}: no line names one of {variables:?}:\n{output:?}\n{logs}",
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

    /// Asserts that the program does twice what it does once without Egret, and that all its calls go through
    /// Egret.
    fn assert_as_without_egret(&self, options: &[&str], environment: &[&str], expected: &str) -> &Self {
        let baseline = self.baseline.get_or_init(|| self.without_egret());
        assert_eq!(baseline.printed.matches(expected).count(), 1, "{:?}: {}", self.command, baseline.printed);
        let before = self.provider.origin.requests().len();
        let output = self.run(options, environment);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(printed, baseline.printed.repeat(2), "{:?} {options:?}: {trouble}", self.command);
        let requests = self.provider.origin.requests().split_off(before);
        assert!(requests.iter().all(|request| !request.values("via").is_empty()), "{requests:?}");
        let direct = baseline.calls.iter().cycle();
        let calls: Vec<Call> = requests
            .iter()
            .map(Call::from)
            .zip(direct)
            .map(|(call, direct)| call.without_http2(direct))
            .collect();
        for (number, calls) in calls.chunks(baseline.calls.len()).enumerate() {
            assert_eq!(calls, baseline.calls, "{:?} {options:?}, run {number}", self.command);
        }
        assert_eq!(calls.len(), 2 * baseline.calls.len());
        self
    }

    /// Runs the program once in namespaces of its own, in which the provider's names lead to the provider.
    fn without_egret(&self) -> Baseline {
        let mut direct = self.provider.direct();
        if self.command.iter().any(|argument| argument.split(' ').any(|word| word == "java")) {
            direct.env("JAVA_TOOL_OPTIONS", self.java_trust());
        }
        let printed = run_checked(direct.args(self.command));
        let requests = self.provider.origin.requests();
        assert!(requests.iter().all(|request| request.values("via").is_empty()), "{requests:?}");
        let calls: Vec<Call> = requests.iter().map(Call::from).collect();
        assert!(!calls.is_empty(), "{:?} calls nobody: {printed}", self.command);
        Baseline { printed, calls }
    }

    /// Makes a trust store for Java with the provider's authority, and returns the options that name it.
    fn java_trust(&self) -> String {
        let directory = &self.provider.place.directory;
        let mut keytool = Command::new("keytool");
        keytool.args(["-importcert", "-noprompt", "-alias", "provider", "-storepass", "changeit"]);
        keytool.args(["-file", "provider.pem", "-keystore", "provider.jks"]);
        run_checked(keytool.current_dir(directory.path()));
        let store = directory.join("provider.jks");
        let property = "-Djavax.net.ssl.trustStore";
        format!("{property}={} {property}Password=changeit", store.display())
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
