//! Failures to listen, with advice on what to change.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;

use egret_control::ControlError;
use egret_gateway::StartError;
use egret_settings::failure::Failure;

use crate::run::overrides::is_taken;

/// Means by which the user of a command can choose other addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// By an option of `egret run`, or in the config.
    Options,
    /// By the arguments of the command alone.
    Arguments,
}

/// The addresses of a part of Egret, in the config and on the command line.
#[derive(Debug, Clone, Copy)]
struct Setting {
    key: &'static str,
    option: &'static str,
}

const CONTROL: Setting = Setting { key: "control.listen", option: "--control" };
const GATEWAY: Setting = Setting { key: "gateway.listen", option: "--listen" };

/// Describes why the control port does not start, and what to do. It starts first, so `others` are the
/// addresses of the gateway.
pub fn of_control(error: &ControlError, remedy: Remedy, others: &[SocketAddr]) -> Failure {
    let cause = match error {
        ControlError::Bind { error, .. } => Some(error),
        ControlError::MissingToken { .. } | ControlError::Thread(_) => None,
    };
    Failure::Failed(format!("{error}{}{}", hint(cause, CONTROL, remedy), also_taken(cause, others)))
}

/// Describes why the gateway does not start, and what to do.
pub fn of_gateway(error: &StartError, remedy: Remedy) -> Failure {
    let hint = match error {
        StartError::Listen(address, error) if address.unix().is_some() => unix_hint(error).to_owned(),
        StartError::Listen(_, error) => hint(Some(error), GATEWAY, remedy),
        StartError::Config(_) | StartError::System(..) => String::new(),
    };
    Failure::Failed(format!("the gateway {error}{hint}"))
}

/// Returns advice on a Unix socket that cannot be listened on.
fn unix_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "\nStop that process, or choose another path with `gateway.listen`.",
        io::ErrorKind::NotFound => "\nThe directory is missing: make it, or choose another path.",
        io::ErrorKind::PermissionDenied => {
            "\nEgret must be allowed to write to the directory, and be a member of the group in `unix_group`."
        }
        _ => "",
    }
}

/// Returns a line on each of the gateway's addresses that another program uses as well.
fn also_taken(cause: Option<&io::Error>, others: &[SocketAddr]) -> String {
    let mut lines = String::new();
    if cause.is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
        let Setting { key, option } = GATEWAY;
        for address in others.iter().filter(|address| is_taken(**address)) {
            let _ = write!(lines, "\n{address} (`{option}`, `{key}`) is used as well.");
        }
    }
    lines
}

/// Returns advice on an address that cannot be listened on.
fn hint(cause: Option<&io::Error>, Setting { key, option }: Setting, remedy: Remedy) -> String {
    let choose = |address: &str| match remedy {
        Remedy::Options => format!("choose {address} with `{option} IP:PORT`, or with `{key}` in the config"),
        Remedy::Arguments => format!("choose {address}"),
    };
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::AddrInUse) => format!(
            "\nAnother program, maybe another Egret, uses this address. Stop it, or {} (port 0 selects a free port).",
            choose("another address")
        ),
        Some(io::ErrorKind::AddrNotAvailable) => {
            format!("\nThis machine does not have this address: {}.", choose("one of its own"))
        }
        Some(io::ErrorKind::PermissionDenied) => {
            format!("\nPorts below 1024 require privileges: {}.", choose("a higher port"))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_names_the_option_and_the_key() {
        let error = io::Error::from(io::ErrorKind::AddrInUse);
        let address = SocketAddr::from(([127, 0, 0, 1], 8001));
        let other = SocketAddr::from(([127, 0, 0, 1], 0));
        let failure = of_control(&ControlError::Bind { address, error }, Remedy::Options, &[other]);
        assert_eq!(failure.exit_code(), 1);
        let message = failure.to_string();
        assert!(
            message.contains(
                "choose another address with `--control IP:PORT`, or with `control.listen` in the config"
            ),
            "{message}"
        );
        assert!(!message.contains("as well"), "nobody uses the other one: {message}");
        assert_eq!(hint(None, GATEWAY, Remedy::Options), "");
    }

    #[test]
    fn other_addresses_in_use_are_named_too() {
        let used = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let others = [used.local_addr().unwrap()];
        let error = io::Error::from(io::ErrorKind::AddrInUse);
        assert_eq!(
            also_taken(Some(&error), &others),
            format!("\n{} (`--listen`, `gateway.listen`) is used as well.", others[0])
        );
        assert_eq!(also_taken(None, &others), "");
    }
}
