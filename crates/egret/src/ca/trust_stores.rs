//! `egret ca install` and `egret ca uninstall`: the trust stores of the system and of Chromium.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use clap::Args;
use egret_ca::Root;
use egret_measure::streams::say;
use egret_settings::failure::Failure;
use egret_settings::output::print;

use super::place::{AuthorityPlace, quoted};

/// Directories of system commands that a user's `PATH` may lack.
const SYSTEM_PATH: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Directories from which a command of the system collects authorities, with that command. The first one that
/// exists is the system's.
const COLLECTED: [(&str, &[&str]); 3] = [
    ("/usr/local/share/ca-certificates", &["update-ca-certificates"]), // Debian, Ubuntu, Alpine
    ("/etc/pki/ca-trust/source/anchors", &["update-ca-trust", "extract"]), // Fedora, RHEL
    ("/etc/pki/trust/anchors", &["update-ca-certificates"]),           // openSUSE
];

/// Arguments of `egret ca install` and `egret ca uninstall`.
#[derive(Debug, Args)]
pub struct StoreChange {
    #[command(flatten)]
    place: AuthorityPlace,
    /// Print the commands without running them.
    #[arg(long)]
    dry_run: bool,
}

impl StoreChange {
    /// Adds the root to the trust stores.
    pub fn install(&self) -> Result<(), Failure> {
        let authority = self.place.authority()?;
        if authority.constraints().is_unconstrained() {
            say(
                "warning: a thief of this authority's key can impersonate every host to all programs of this system",
            );
        }
        let file = self.place.directory()?.root_path();
        self.apply(&Machine::this().install(&file, authority.root()))
    }

    /// Removes the root from the trust stores.
    pub fn uninstall(&self) -> Result<(), Failure> {
        let root = self.place.root()?;
        let file = self.place.directory()?.root_path();
        self.apply(&Machine::this().uninstall(&file, &root))
    }

    /// Runs the commands for each store. If one fails, the other stores are still changed.
    fn apply(&self, stores: &[Vec<TrustCommand>]) -> Result<(), Failure> {
        if stores.is_empty() {
            return Err(Failure::failed(
                "no trust store was found: `update-ca-certificates`, `update-ca-trust`, `trust` and `certutil` are not \
                 installed; use `egret ca export` and your system's own tool",
            ));
        }
        let mut failures = Vec::new();
        for commands in stores {
            for words in commands {
                print(&format!("{}\n", shown(words)))?;
                if self.dry_run {
                    continue;
                }
                if let Err(error) = run(words) {
                    failures.push(format!("`{}` failed: {error}", shown(words)));
                    break;
                }
            }
        }
        if failures.is_empty() {
            return Ok(());
        }
        Err(Failure::Failed(format!("{}; the system's store may need root", failures.join("; "))))
    }
}

/// A command and its arguments.
type TrustCommand = Vec<String>;

fn words<const N: usize>(words: [&str; N]) -> TrustCommand {
    words.map(str::to_owned).to_vec()
}

fn shown(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    /// It could not be started.
    #[error("{0}")]
    Start(io::Error),
    /// It ended with this status.
    #[error("{0}")]
    Status(ExitStatus),
}

fn run(words: &[String]) -> Result<(), CommandError> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", search_path());
    let status = command.status().map_err(CommandError::Start)?;
    if status.success() { Ok(()) } else { Err(CommandError::Status(status)) }
}

/// The user's `PATH`, then the directories of system commands.
fn search_path() -> OsString {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&own).chain(SYSTEM_PATH.map(PathBuf::from));
    std::env::join_paths(all).unwrap_or(own)
}

/// The parts of a machine that decide which stores it has.
struct Machine {
    /// `/`, or another directory in tests.
    root: PathBuf,
    /// Directories of commands.
    path: Vec<PathBuf>,
    home: Option<PathBuf>,
}

impl Machine {
    fn this() -> Self {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        Self { root: "/".into(), path: std::env::split_paths(&search_path()).collect(), home }
    }

    fn has(&self, command: &str) -> bool {
        self.path.iter().any(|directory| directory.join(command).is_file())
    }

    /// Returns the commands that add the root, a list for each store.
    fn install(&self, file: &Path, root: &Root) -> Vec<Vec<TrustCommand>> {
        let file = file.display().to_string();
        let system = match self.collected(root) {
            Some((copy, update)) => Some(vec![words(["install", "-m", "644", &file, &copy]), update]),
            None => self.has("trust").then(|| vec![words(["trust", "anchor", "--store", &file])]),
        };
        let chromium = self.nss_database().map(|database| {
            vec![words(["certutil", "-d", &database, "-A", "-t", "C,,", "-n", root.name(), "-i", &file])]
        });
        system.into_iter().chain(chromium).collect()
    }

    /// Returns the commands that remove the root, a list for each store.
    fn uninstall(&self, file: &Path, root: &Root) -> Vec<Vec<TrustCommand>> {
        let file = file.display().to_string();
        let system = match self.collected(root) {
            Some((copy, update)) => Some(vec![words(["rm", "-f", &copy]), update]),
            None => self.has("trust").then(|| vec![words(["trust", "anchor", "--remove", &file])]),
        };
        let chromium = self
            .nss_database()
            .map(|database| vec![words(["certutil", "-d", &database, "-D", "-n", root.name()])]);
        system.into_iter().chain(chromium).collect()
    }

    /// Returns the path of the root's copy in the system's directory, and the command to run after a change.
    fn collected(&self, root: &Root) -> Option<(String, TrustCommand)> {
        let exists = |directory: &str| self.root.join(directory.trim_start_matches('/')).is_dir();
        let (directory, update) =
            COLLECTED.iter().find(|(directory, update)| self.has(update[0]) && exists(directory))?;
        let name = root.name().to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        Some((format!("{directory}/{name}.crt"), update.iter().map(|&word| word.to_owned()).collect()))
    }

    /// Returns the database of Chromium, if it exists.
    fn nss_database(&self) -> Option<String> {
        let database = self.home.as_ref()?.join(".pki/nssdb");
        (self.has("certutil") && database.is_dir()).then(|| format!("sql:{}", database.display()))
    }
}

#[cfg(test)]
mod tests {
    use egret_ca::{Authority, Constraints, Owner};

    use super::*;

    /// A machine with these commands and directories.
    fn machine(commands: &[&str], directories: &[&str]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("bin");
        std::fs::create_dir(&path).unwrap();
        for command in commands {
            std::fs::write(path.join(command), "").unwrap();
        }
        for directory in directories {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let machine =
            Machine { root: root.path().into(), path: vec![path], home: Some(root.path().join("home")) };
        (root, machine)
    }

    fn lines(stores: &[Vec<TrustCommand>]) -> Vec<String> {
        stores.iter().flatten().map(|words| shown(words)).collect()
    }

    #[test]
    fn each_system_has_its_own_commands() {
        let authority =
            Authority::make(&Constraints::NONE, &Owner::new(""), 1, egret_settings::authority::now())
                .unwrap();
        let root = authority.root();
        let copy = format!("egret-root-{}.crt", &root.name()["Egret root ".len()..]);
        let file = Path::new("/data dir/ca.pem");
        let rows = [
            (
                &["update-ca-certificates", "trust"][..],
                &["usr/local/share/ca-certificates"][..],
                vec![
                    format!("install -m 644 '/data dir/ca.pem' /usr/local/share/ca-certificates/{copy}"),
                    "update-ca-certificates".to_owned(),
                ],
                vec![
                    format!("rm -f /usr/local/share/ca-certificates/{copy}"),
                    "update-ca-certificates".to_owned(),
                ],
            ),
            (
                &["update-ca-trust", "trust"],
                &["etc/pki/ca-trust/source/anchors"],
                vec![
                    format!("install -m 644 '/data dir/ca.pem' /etc/pki/ca-trust/source/anchors/{copy}"),
                    "update-ca-trust extract".to_owned(),
                ],
                vec![
                    format!("rm -f /etc/pki/ca-trust/source/anchors/{copy}"),
                    "update-ca-trust extract".to_owned(),
                ],
            ),
            (
                &["trust"],
                &[],
                vec!["trust anchor --store '/data dir/ca.pem'".to_owned()],
                vec!["trust anchor --remove '/data dir/ca.pem'".to_owned()],
            ),
            (&["update-ca-certificates"], &[], vec![], vec![]),
            (&["certutil"], &[], vec![], vec![]),
        ];
        for (commands, directories, install, uninstall) in rows {
            let (_directory, machine) = machine(commands, directories);
            assert_eq!(lines(&machine.install(file, root)), install);
            assert_eq!(lines(&machine.uninstall(file, root)), uninstall);
        }
        let (directory, machine) = machine(&["certutil"], &["home/.pki/nssdb"]);
        let database = format!("sql:{}/home/.pki/nssdb", directory.path().display());
        let (name, install) = (root.name(), lines(&machine.install(file, root)));
        assert_eq!(install, [format!("certutil -d {database} -A -t C,, -n '{name}' -i '/data dir/ca.pem'")]);
        let uninstall = lines(&machine.uninstall(file, root));
        assert_eq!(uninstall, [format!("certutil -d {database} -D -n '{name}'")]);
    }
}
