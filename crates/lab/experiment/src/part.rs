//! The hidden command that starts a part of an experiment: it becomes the part, and ends with the lab.
//!
//! A lab that is killed cannot end its parts. Therefore the system ends them: with a signal when the parent
//! dies (`PR_SET_PDEATHSIG`), which only the child itself can ask for. It outlives the change to another
//! program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The command's name.
pub const NAME: &str = "__lab-part";

/// Returns the arguments by which Egret becomes a part of the lab with this process id.
pub(crate) fn arguments(lab: u32, program: &OsStr, arguments: Vec<OsString>) -> Vec<OsString> {
    let own = [NAME.into(), lab.to_string().into(), "--".into(), program.to_owned()];
    own.into_iter().chain(arguments).collect()
}

/// Becomes the part: a program and its arguments. Returns only if that fails, or if the lab has ended.
pub fn run(lab: u32, part: &[OsString]) -> io::Error {
    if let Err(error) = end_with(lab) {
        return error;
    }
    match part.split_first() {
        Some((program, arguments)) => Command::new(program).args(arguments).exec(),
        None => io::ErrorKind::InvalidInput.into(),
    }
}

/// Makes this process end with its parent. Servers end their own children on this signal, which they could
/// not do if they were killed.
#[cfg(target_os = "linux")]
fn end_with(lab: u32) -> io::Result<()> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The lab may have ended before. Then another process is the parent by now.
    match getppid() {
        Some(parent) if parent.as_raw_pid().unsigned_abs() == lab => Ok(()),
        _ => Err(io::Error::other("the lab has ended")),
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with(_: u32) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_part_does_not_run_without_its_lab() {
        let words = arguments(7, OsStr::new("/bin/sh"), vec!["-c".into()]);
        assert_eq!(words, ["__lab-part", "7", "--", "/bin/sh", "-c"]);
        // This process is not the parent of itself.
        let error = run(std::process::id(), &["true".into()]);
        assert_eq!(error.to_string(), "the lab has ended");
        rustix::process::set_parent_process_death_signal(None).unwrap();
    }
}
