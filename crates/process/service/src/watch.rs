//! Detects possible changes of the config file and of the secret files that it refers to.
//!
//! Editors and deployments replace files by renaming, and Kubernetes swaps a symbolic link above them.
//! Therefore not the file is watched, but its directory and the directories of every link that leads to it.
//! Other events in them are ignored: a config may be next to a log that grows all the time. The receiver of
//! an event reads the file itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, channel};

/// Maximum number of symbolic links that are followed.
const LINKS_MAX: usize = 16;

/// The watched directories of files.
pub struct Watch {
    /// The config file comes first.
    files: Vec<PathBuf>,
    watcher: RecommendedWatcher,
    watched: BTreeSet<PathBuf>,
    /// Directories in which any file matters.
    directories: Vec<PathBuf>,
    /// The paths that matter, for the thread that receives the events.
    chain: Arc<Mutex<Chain>>,
}

/// The paths that an event must concern to matter.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chain {
    /// The files and every link on their paths.
    steps: BTreeSet<PathBuf>,
    /// Directories in which any file matters.
    directories: Vec<PathBuf>,
}

impl Watch {
    /// Starts to watch. The receiver gets one item after any number of events.
    pub fn start(file: &Path) -> Result<(Self, Receiver<()>), notify::Error> {
        let (sender, receiver) = channel(1);
        let chain = Arc::new(Mutex::new(Chain::default()));
        let known = Arc::clone(&chain);
        let watcher = notify::recommended_watcher(move |event: Result<notify::Event, notify::Error>| {
            if event.is_ok_and(|event| is_unrelated(&event, &known.lock())) {
                return;
            }
            // A full channel means that the file will be read anyway.
            let _ = sender.try_send(());
        })?;
        let (files, watched) = (vec![file.to_owned()], BTreeSet::new());
        let mut watch = Self { files, watcher, watched, directories: Vec::new(), chain };
        watch.refresh()?;
        Ok((watch, receiver))
    }

    /// Watches these files besides the config file, and no others.
    pub fn set_others(&mut self, others: impl IntoIterator<Item = PathBuf>) {
        self.files.truncate(1);
        self.files.extend(others);
    }

    /// Watches all files in these directories, and in no others.
    pub fn set_directories(&mut self, directories: &[PathBuf]) {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        self.directories = directories.iter().map(absolute).collect();
    }

    /// Resolves the links again, which a change may have redirected. Returns `true` if the paths that matter
    /// are others than before: their changes until now have not been reported.
    pub fn refresh(&mut self) -> Result<bool, notify::Error> {
        let chain: BTreeSet<PathBuf> = self.files.iter().flat_map(|file| link_chain(file)).collect();
        let mut directories: BTreeSet<PathBuf> = chain.iter().map(|path| parent(path)).collect();
        directories.extend(self.directories.iter().cloned());
        let chain = Chain { steps: chain, directories: self.directories.clone() };
        let is_other = {
            let mut known = self.chain.lock();
            let is_other = *known != chain;
            *known = chain;
            is_other
        };
        for gone in self.watched.difference(&directories) {
            // A removed directory is no longer watched.
            let _ = self.watcher.unwatch(gone);
        }
        let mut result = Ok(());
        for directory in &directories {
            // Directories already watched are included: one may have been replaced by another of the same
            // name.
            result = result.and(self.watcher.watch(directory, RecursiveMode::NonRecursive));
        }
        self.watched = directories;
        result.map(|()| is_other)
    }
}

/// Returns `true` if the event does not concern a file with this `chain` of links. Reading the file is an
/// event as well.
fn is_unrelated(event: &notify::Event, chain: &Chain) -> bool {
    // The removal of a directory, and lost events, name no path on the way, or no path at all.
    let concerns = |path: &PathBuf| {
        chain.steps.iter().any(|step| step == path || parent(step) == *path)
            || chain.directories.contains(&parent(path))
    };
    event.kind.is_access()
        || !(event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(concerns))
}

/// Returns the file and every link on the way to it.
fn link_chain(file: &Path) -> BTreeSet<PathBuf> {
    let mut chain = BTreeSet::new();
    // Events carry absolute paths.
    let mut file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    for _ in 0..LINKS_MAX {
        chain.insert(file.clone());
        // The link nearest to the file; links above it are on the path that it leads to.
        let link = file.ancestors().find_map(|path| Some((path, std::fs::read_link(path).ok()?)));
        let Some((link, target)) = link else { break };
        let directory = parent(link);
        let rest = file.strip_prefix(link).unwrap_or(Path::new(""));
        let target = directory.join(target);
        chain.insert(link.to_owned());
        // An empty rest would append a `/` to a file's name.
        file = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
    }
    chain
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A separate directory for each test, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("egret-watch-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path.canonicalize().unwrap())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Creates the layout of a config map mounted by Kubernetes.
    fn mounted(name: &str) -> (Scratch, PathBuf) {
        let scratch = Scratch::new(name);
        for version in ["..v1", "..v2"] {
            std::fs::create_dir(scratch.0.join(version)).unwrap();
            std::fs::write(scratch.0.join(version).join("egret.yaml"), version).unwrap();
        }
        symlink("..v1", scratch.0.join("..data")).unwrap();
        symlink("..data/egret.yaml", scratch.0.join("egret.yaml")).unwrap();
        let file = scratch.0.join("egret.yaml");
        (scratch, file)
    }

    #[test]
    fn every_step_on_the_way_is_found() {
        let (scratch, file) = mounted("way");
        let expected = ["egret.yaml", "..data", "..v1/egret.yaml"].map(|step| scratch.0.join(step));
        assert!(expected.iter().all(|step| link_chain(&file).contains(step)), "{:?}", link_chain(&file));
        let bare = std::env::current_dir().unwrap().join("egret-no-such.yaml");
        assert_eq!(link_chain(Path::new("egret-no-such.yaml")), BTreeSet::from([bare]));
    }

    #[test]
    fn links_in_a_circle_end() {
        let scratch = Scratch::new("circle");
        symlink("b", scratch.0.join("a")).unwrap();
        symlink("a", scratch.0.join("b")).unwrap();
        assert!(link_chain(&scratch.0.join("a")).contains(&scratch.0.join("a")));
    }

    #[test]
    fn events_of_unrelated_files_are_ignored() {
        use notify::EventKind;
        use notify::event::{AccessKind, CreateKind, ModifyKind, RemoveKind};
        let steps = BTreeSet::from([PathBuf::from("/etc/egret/egret.yaml")]);
        let chain = Chain { steps, directories: vec!["/etc/egret/flows".into()] };
        let unrelated =
            |kind, path: &str| is_unrelated(&notify::Event::new(kind).add_path(path.into()), &chain);
        assert!(unrelated(EventKind::Modify(ModifyKind::Any), "/etc/egret/egret.log"));
        assert!(unrelated(EventKind::Access(AccessKind::Any), "/etc/egret/egret.yaml"));
        assert!(!unrelated(EventKind::Modify(ModifyKind::Any), "/etc/egret/egret.yaml"));
        assert!(!unrelated(EventKind::Create(CreateKind::File), "/etc/egret/egret.yaml"));
        assert!(!unrelated(EventKind::Remove(RemoveKind::Folder), "/etc/egret"));
        assert!(!unrelated(EventKind::Create(CreateKind::File), "/etc/egret/flows/new.yaml"));
        assert!(unrelated(EventKind::Create(CreateKind::File), "/etc/egret/flows/old/new.yaml"));
        assert!(!is_unrelated(&notify::Event::new(EventKind::Any), &chain));
    }

    #[test]
    fn a_file_watched_for_the_first_time_may_have_changed_before() {
        let (scratch, file) = mounted("first");
        let (mut watch, _changes) = Watch::start(&file).unwrap();
        assert!(!watch.refresh().unwrap());
        watch.set_others([scratch.0.join("other.yaml")]);
        assert!(watch.refresh().unwrap());
        assert!(!watch.refresh().unwrap());
    }

    #[test]
    fn a_swapped_link_and_a_file_renamed_into_place_are_seen() {
        let (scratch, file) = mounted("swap");
        let (mut watch, mut changes) = Watch::start(&file).unwrap();
        symlink("..v2", scratch.0.join("..data_new")).unwrap();
        std::fs::rename(scratch.0.join("..data_new"), scratch.0.join("..data")).unwrap();
        assert_eq!(changes.blocking_recv(), Some(()));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "..v2");
        watch.refresh().unwrap();
        std::fs::write(scratch.0.join("..v2").join("new"), "v3").unwrap();
        std::fs::rename(scratch.0.join("..v2").join("new"), scratch.0.join("..v2").join("egret.yaml"))
            .unwrap();
        assert_eq!(changes.blocking_recv(), Some(()));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "v3");
    }
}
