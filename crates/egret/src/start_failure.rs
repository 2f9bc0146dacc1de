//! Failures to listen, with advice on what to change.

use std::io;

use egret_control::ControlError;
use egret_gateway::StartError;

use crate::failure::Failure;

/// Describes why the control port does not start, and what to do.
pub fn of_control(error: &ControlError) -> Failure {
    let cause = match error {
        ControlError::Bind { error, .. } => Some(error),
        ControlError::MissingToken { .. } | ControlError::Thread(_) => None,
    };
    Failure::Failed(format!("{error}{}", hint(cause, "control.listen")))
}

/// Describes why the gateway does not start, and what to do.
pub fn of_gateway(error: &StartError) -> Failure {
    let cause = match error {
        StartError::Listen(_, error) => Some(error),
        StartError::Config(_) | StartError::System(..) => None,
    };
    Failure::Failed(format!("the gateway {error}{}", hint(cause, "gateway.listen")))
}

/// Returns advice on an address that cannot be listened on.
fn hint(cause: Option<&io::Error>, key: &str) -> String {
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::AddrInUse) => format!(
            "\nAnother program, maybe another Egret, uses this address. Stop it, or set `{key}` in a config (port 0 selects a free port)."
        ),
        Some(io::ErrorKind::AddrNotAvailable) => {
            format!(
                "\nThis machine does not have this address. Set `{key}` in a config to an address of this machine."
            )
        }
        Some(io::ErrorKind::PermissionDenied) => {
            format!("\nPorts below 1024 require privileges. Set `{key}` in a config to a higher port.")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_use_names_the_key_to_change() {
        let error = io::Error::from(io::ErrorKind::AddrInUse);
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 8001));
        let failure = of_control(&ControlError::Bind { address, error });
        assert_eq!(failure.exit_code(), 1);
        let message = failure.to_string();
        assert!(message.contains("set `control.listen` in a config"), "{message}");
        assert_eq!(hint(None, "gateway.listen"), "");
    }
}
