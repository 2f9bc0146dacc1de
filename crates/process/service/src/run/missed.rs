//! Lines for the user of a command that has ended: calls that went past the gateway, and hosts whose
//! certificate the command refused. How to fix that depends on the command's runtime.

use std::path::Path;

use egret_observe::refusals::TlsRefusal;
use egret_observe::stats::{InterceptionSnapshot, StatsSnapshot};

/// A program that reads proxies and authorities in a way of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runtime {
    Node,
    Python,
    Php,
    Java,
    Deno,
    Curl,
    Git,
    Wget,
    Container,
    Other,
}

impl Runtime {
    /// Returns the runtime of a program, by the name of its file, without a version.
    fn of(program: &str) -> Self {
        let file = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match file.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.' || last == '-') {
            "node" | "nodejs" | "npm" | "npx" | "yarn" | "pnpm" | "tsx" | "ts-node" => Self::Node,
            "python" | "pypy" | "ipython" | "jupyter" | "uvicorn" | "gunicorn" | "celery" | "pytest" => {
                Self::Python
            }
            "php" | "composer" => Self::Php,
            "java" | "mvn" | "gradle" => Self::Java,
            "deno" => Self::Deno,
            "curl" => Self::Curl,
            "git" => Self::Git,
            "wget" => Self::Wget,
            "docker" | "podman" | "docker-compose" => Self::Container,
            _ => Self::Other,
        }
    }

    /// Says why its calls may go past a proxy, and how to catch them.
    fn catch(self) -> &'static str {
        match self {
            Self::Node => {
                "Node reads proxy variables from 22.21 and 24.5 on: run it with `egret exec --isolate`, or change the API's \
                 base URL (`--base-urls`)"
            }
            Self::Python => {
                "Python's aiohttp reads proxy variables with `trust_env=True` only: set that, or run it with \
                 `egret exec --isolate`"
            }
            Self::Php => {
                "PHP's streams read no proxy variable, its curl extension does: run it with `egret exec --isolate`"
            }
            Self::Java => {
                "Java reads its proxy from `JAVA_TOOL_OPTIONS`, unless the code chooses one: run it with \
                 `egret exec --isolate`"
            }
            Self::Curl => {
                "curl does not use a proxy for hosts in `NO_PROXY`, to which this machine belongs, nor with `--noproxy`"
            }
            Self::Container => {
                "containers do not get the variables: `egret exec --print-env=docker` prints them for an image"
            }
            Self::Deno | Self::Git | Self::Wget | Self::Other => {
                "If the program made any, it does not read the variables that name a proxy: run it with \
                 `egret exec --isolate`"
            }
        }
    }

    /// The setting by which `egret exec` has it trust the authority, if it has one.
    fn trust(self) -> Option<&'static str> {
        match self {
            Self::Node => Some("NODE_EXTRA_CA_CERTS"),
            Self::Python => Some("SSL_CERT_FILE` and `REQUESTS_CA_BUNDLE"),
            Self::Php => Some("PHP_INI_SCAN_DIR"),
            Self::Java => Some("JAVA_TOOL_OPTIONS"),
            Self::Deno => Some("DENO_CERT"),
            Self::Curl => Some("CURL_CA_BUNDLE"),
            Self::Git => Some("GIT_SSL_CAINFO"),
            Self::Other => Some("SSL_CERT_FILE"),
            Self::Wget | Self::Container => None,
        }
    }

    /// Says how a program that refuses the authority can be made to trust it.
    fn convince(self) -> String {
        match self.trust() {
            Some(setting) => format!(
                "`{setting}` names it, so an option or the code chooses other authorities: let it read the file in \
                 `$SSL_CERT_FILE`, or list the host in `interception.tunnel`"
            ),
            None if self == Self::Wget => {
                "wget reads no variable for it: add `--ca-certificate=$SSL_CERT_FILE`".to_owned()
            }
            None => "add Egret's root certificate to the image (`egret ca export`)".to_owned(),
        }
    }
}

/// Returns a line for each reason why calls of `program` were not served. Nothing of an isolated one goes
/// past the gateway.
pub(super) fn lines(program: &str, stats: &StatsSnapshot, is_isolated: bool) -> Vec<String> {
    let (runtime, interception) = (Runtime::of(program), &stats.interception);
    let mut lines = Vec::new();
    if stats.clients.accepted == 0 && !is_isolated {
        lines.push(format!("no call went through Egret. {}", runtime.catch()));
    }
    if interception.provider_tunnels > 0 {
        let count = interception.provider_tunnels;
        lines.push(format!(
            "{count} {} to configured providers passed unread, so flows did not apply: add `--intercept`",
            if count == 1 { "tunnel" } else { "tunnels" }
        ));
    }
    if interception.refused > 0 {
        lines.push(refused(runtime, interception));
    }
    lines
}

fn refused(runtime: Runtime, interception: &InterceptionSnapshot) -> String {
    let InterceptionSnapshot { refused, connections, refusing, .. } = interception;
    let hosts: Vec<String> =
        refusing.iter().map(|known| format!("{} ({})", known.host, known.refusal.slug())).collect();
    let is_of_clock = |refusal: TlsRefusal| refusal == TlsRefusal::Alert(TlsRefusal::EXPIRED);
    let advice = match refusing.first() {
        Some(known) if is_of_clock(known.refusal) => known.refusal.advice().to_owned(),
        _ => runtime.convince(),
    };
    let to = if hosts.is_empty() { String::new() } else { format!(" to {}", hosts.join(", ")) };
    format!(
        "{refused} of {} connections{to} were refused by the program, which does not trust Egret's authority. {advice}",
        refused + connections
    )
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use egret_observe::refusals::RefusedHost;

    use super::*;

    #[test]
    fn a_command_without_calls_is_told_what_its_runtime_reads() {
        let stats = StatsSnapshot::default();
        let programs = [
            ("/usr/bin/node", "22.21"),
            ("python3.11", "trust_env=True"),
            ("php8.2", "streams"),
            ("java", "JAVA_TOOL_OPTIONS"),
            ("docker", "--print-env=docker"),
            ("./app", "--isolate"),
        ];
        for (program, part) in programs {
            let lines = lines(program, &stats, false);
            assert!(lines[0].starts_with("no call went through Egret. "), "{lines:?}");
            assert!(lines.len() == 1 && lines[0].contains(part), "{lines:?}");
        }
        assert!(lines("node", &stats, true).is_empty(), "nothing of an isolated command goes past it");
    }

    #[test]
    fn tunnels_that_passed_unread_are_counted() {
        let mut stats = StatsSnapshot::default();
        (stats.clients.accepted, stats.interception.provider_tunnels) = (3, 2);
        assert!(lines("curl", &stats, false)[0].starts_with("2 tunnels to configured providers"));
    }

    #[test]
    fn a_refused_host_is_named_with_the_setting_of_the_runtime() {
        let mut stats = StatsSnapshot::default();
        stats.clients.accepted = 3;
        assert!(lines("curl", &stats, false).is_empty());
        let mut refuse = |alert, program| {
            let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let refusal = TlsRefusal::Alert(alert);
            let interception = &mut stats.interception;
            (interception.refused, interception.connections) = (2, 1);
            interception.refusing = vec![RefusedHost { host: "a.example".to_owned(), client, refusal }];
            lines(program, &stats, true).remove(0)
        };
        let line = refuse(48, "curl");
        assert!(line.starts_with("2 of 3 connections to a.example (unknown_ca) were refused"), "{line}");
        for (program, setting) in [("curl", "CURL_CA_BUNDLE"), ("node", "NODE_EXTRA_CA_CERTS")] {
            assert!(refuse(48, program).contains(setting), "{program}");
        }
        assert!(refuse(48, "wget").contains("--ca-certificate"));
        assert!(refuse(45, "curl").contains("clocks"));
    }
}
