//! A lab that is killed leaves nothing running.

use std::path::Path;
use std::process::Command;

use egret_tests::egret::egret;
use egret_tests::process::{Directory, Process, run};
use egret_tests::wait;

/// The processes whose working directory or command line names this directory, by their ids.
fn processes(directory: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_here = |id: &u32| {
        let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let names = String::from_utf8_lossy(&command).contains(directory.to_str().unwrap());
        let works = std::fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd.starts_with(directory));
        names || works
    };
    numbers.filter(is_here).collect()
}

/// Kills what is left of a lab when a test fails.
struct Rest<'a>(&'a Path);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        for id in processes(self.0) {
            run(Command::new("kill").args(["-KILL", &id.to_string()]));
        }
    }
}

#[test]
fn a_killed_lab_leaves_no_part_running() {
    let directory = Directory::default();
    directory.write(
        "long.yaml",
        "title: A long run\nprovider: { path: /get }\nrounds: 1\n\
         client: { duration: 10m, concurrency: 2, keep_alive: true }\n\
         scenarios: [{ name: no-flow, egret: egret.yaml }]\n",
    );
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/configs/no-flow.yaml");
    directory.write("egret.yaml", std::fs::read(config).unwrap());
    let _rest = Rest(directory.path());
    let mut command = egret(["lab", "run", "long.yaml", "--out", "out"]);
    let mut lab = Process::start(command.current_dir(directory.path()));
    let (own, lab_id) = (directory.path().to_owned(), lab.id());
    let parts = || processes(&own).into_iter().filter(|id| *id != lab_id).count();
    wait::until_true("the provider, the gateway and the client run", || {
        assert!(lab.is_running(), "{}", lab.stderr());
        parts() >= 3
    });
    lab.signal("KILL");
    lab.until_ended();
    wait::until_true("no part runs any more", || parts() == 0);
}
