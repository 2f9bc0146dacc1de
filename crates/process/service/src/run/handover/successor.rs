//! The running Egret starts the process that takes over, on SIGUSR2.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;

/// The option that makes a process take over.
const OPTION: &str = "--take-over";

/// The end of the path of a program that was replaced, as Linux shows it.
const DELETED: &[u8] = b" (deleted)";

/// Starts the program again, with the same arguments. A new version that is installed at the same path is the
/// one that starts. Logs if it ends without success: then this process has not handed over.
pub fn start() {
    let started = program().and_then(|program| {
        // The watchdog of this process is that of the next one.
        let child = Command::new(&program).args(arguments()).env_remove("WATCHDOG_PID").spawn()?;
        std::thread::Builder::new().name("egret-successor".into()).spawn(move || {
            let mut child = child;
            match child.wait() {
                Ok(status) if status.success() => {}
                Ok(status) => tracing::error!("the new process did not take over: it ended with {status}"),
                Err(error) => tracing::error!(%error, "the new process is not watched"),
            }
        })?;
        tracing::info!(program = %program.display(), "started a new process, which takes over");
        Ok(())
    });
    if let Err(error) = started {
        tracing::error!("no process can take over: {error}");
    }
}

fn program() -> std::io::Result<PathBuf> {
    let path = env::current_exe()?.into_os_string();
    let path = path.as_bytes().strip_suffix(DELETED).unwrap_or(path.as_bytes());
    Ok(OsString::from_vec(path.to_vec()).into())
}

fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = env::args_os().skip(1).collect();
    if !arguments.iter().any(|argument| argument == OPTION) {
        arguments.push(OPTION.into());
    }
    arguments
}
