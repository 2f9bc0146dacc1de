//! Programs: finds them, and asks them for their version.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directories for daemons on Debian, which a user's PATH may omit.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Maximum number of characters kept of a program's version output.
pub(crate) const VERSION_CHARS_MAX: usize = 200;

/// Finds a program. A path is relative to `here`; a plain name is searched in PATH.
pub(crate) fn locate(program: &str, here: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        let file = here.join(program);
        return file.is_file().then_some(file);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = SYSTEM_DIRECTORIES.map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// The option that prints a program's version. A program without such an option prints an error, which serves
/// as well. `None` if it would start to serve.
pub(crate) fn version_option(program: &Path) -> Option<&'static str> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    match name.as_ref() {
        "nginx" | "haproxy" | "wrk" => Some("-v"),
        "ab" | "siege" => Some("-V"),
        "egret" => Some("version"),
        // Portkey's gateway reads its port and ignores other options.
        "gateway" => None,
        _ => Some("--version"),
    }
}

/// The first line with a digit in a program's output, on either stream: its version.
pub(crate) fn version_output(program: &Path, arguments: &[&str], directory: &Path) -> Option<String> {
    // siege would write its settings file into the caller's home.
    let home = std::env::temp_dir().join(format!("egret-lab-home-{}", std::process::id()));
    std::fs::create_dir_all(&home).ok()?;
    let mut command = Command::new(program);
    let output =
        command.args(arguments).env("HOME", &home).current_dir(directory).stdin(Stdio::null()).output();
    // If this fails, a few files remain in the temporary directory.
    let _ = std::fs::remove_dir_all(&home);
    let output = output.ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let of_home = home.display().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.contains(&of_home));
    let line = lines.find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    Some(line.chars().take(VERSION_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_beside_the_experiment_or_in_the_path() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("tool"), "").unwrap();
        assert_eq!(locate("./tool", root.path()), Some(root.path().join("./tool")));
        assert_eq!(locate("./none", root.path()), None);
        assert!(locate("sh", root.path()).is_some_and(|path| path.is_absolute()));
        assert_eq!(locate("no-such-program", root.path()), None);
        for (program, option) in [
            ("/usr/sbin/nginx", Some("-v")),
            ("ab", Some("-V")),
            ("egret", Some("version")),
            ("envoy", Some("--version")),
            ("bin/gateway", None),
        ] {
            assert_eq!(version_option(Path::new(program)), option);
        }
    }

    #[test]
    fn the_version_of_a_program_is_its_first_line_with_a_digit() {
        let directory = tempfile::tempdir().unwrap();
        let version = |script: &str| version_output(Path::new("/bin/sh"), &["-c", script], directory.path());
        assert_eq!(version("echo usage; echo '  tool 1.2.3  '; echo 9"), Some("tool 1.2.3".into()));
        assert_eq!(version("echo tool 4 >&2; exit 1"), Some("tool 4".into()), "on either stream");
        assert_eq!(version("echo none"), None);
        let long = version("printf '1%.0s' $(seq 500)").unwrap();
        assert_eq!(long.len(), VERSION_CHARS_MAX);
        // siege prints the settings file that it creates in the home directory.
        assert_eq!(version("echo $HOME/1; echo v2"), Some("v2".into()));
    }
}
