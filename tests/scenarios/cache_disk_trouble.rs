//! Cache disks that fail, are damaged, belong to another process, or are no longer wanted: traffic is not
//! affected.

use std::process::Command;

use egret_tests::cached::{figure, flow, ok_response, status, until_open, until_written};
use egret_tests::clock::stop_clock;
use egret_tests::egret::{Config, Egret, egret};
use egret_tests::process::run;
use egret_tests::provider::Provider;
use egret_tests::wait::until_true;

fn telling() -> Provider {
    Provider::with_responses(|request| ok_response("Cache-Control: max-age=600", request.target()))
}

fn is_hit(egret: &Egret, path: &str) -> bool {
    let response = egret.get(path);
    assert_eq!(response.text(), path);
    status(&response).starts_with("egret; hit")
}

/// Returns the files of the only disk.
fn files(egret: &Egret) -> Vec<std::path::PathBuf> {
    let caches = std::fs::read_dir(egret.directory().join("egret-data/cache")).unwrap();
    let files = caches.flat_map(|cache| std::fs::read_dir(cache.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

fn is_entry(file: &std::path::Path) -> bool {
    file.file_name().is_some_and(|name| name.len() == 16)
}

#[test]
fn damaged_responses_are_asked_for_anew_and_the_others_stay() {
    let origin = telling();
    let config = Config::with_origin(origin.url()).flows(flow("{ disk: {} }"));
    let egret = config.start();
    let paths: Vec<String> = (0..12).map(|number| format!("/{number}")).collect();
    assert!(paths.iter().all(|path| !is_hit(&egret, path)));
    until_written(&egret, 12);
    let entries: Vec<_> = files(&egret).into_iter().filter(|file| is_entry(file)).collect();
    for (number, file) in entries.iter().enumerate() {
        let mut bytes = std::fs::read(file).unwrap();
        match number % 4 {
            0 => bytes.truncate(number),
            1 => bytes[30] ^= 1,
            2 => *bytes.last_mut().unwrap() ^= 1,
            _ => continue,
        }
        std::fs::write(file, bytes).unwrap();
    }
    let egret = egret.restart_with("KILL", &config, stop_clock);
    until_open(&egret);
    egret.until_logged("deleted damaged responses");
    assert_eq!(paths.iter().filter(|path| is_hit(&egret, path)).count(), 3);
    assert!(paths.iter().all(|path| is_hit(&egret, path)));
    assert_eq!(figure(&egret, "disk/dropped"), 9);
    egret.assert_well();
}

#[test]
fn a_disk_of_which_nobody_knows_whose_it_is_is_emptied() {
    let origin = telling();
    let config = Config::with_origin(origin.url()).flows(flow("{ disk: {} }"));
    let egret = config.start();
    assert!(!is_hit(&egret, "/a"));
    until_written(&egret, 1);
    let seal = files(&egret).into_iter().find(|file| file.ends_with("seal")).unwrap();
    std::fs::write(seal, "no seal").unwrap();
    let egret = egret.restart("KILL", &config);
    egret.until_logged("it was damaged");
    until_open(&egret);
    assert!(!is_hit(&egret, "/a") && is_hit(&egret, "/a"));
    // With other cache keys, stored responses would not be found, or wrongly shared.
    let shared = Config::with_origin(origin.url()).flows(flow("{ shared: true, disk: {} }"));
    let egret = egret.restart("TERM", &shared);
    egret.until_logged("it belonged to another config");
    until_open(&egret);
    assert!(!is_hit(&egret, "/a"));
}

#[test]
fn an_unwritable_disk_is_unused_until_a_reload() {
    let origin = telling();
    let base = || Config::with_origin(origin.url());
    let egret = base().start();
    egret.directory().write("taken", "");
    let directory = egret.directory().join("taken");
    let config = base().flows(flow(&format!("{{ disk: {{ directory: '{}' }} }}", directory.display())));
    egret.change_config(config.yaml());
    egret.until_logged("the disk of a cache is not used until the next reload");
    assert!(!is_hit(&egret, "/a") && is_hit(&egret, "/a"));
    assert_eq!(figure(&egret, "disk/entries"), 0);
    std::fs::remove_file(&directory).unwrap();
    egret.hang_up();
    until_open(&egret);
    assert!(is_hit(&egret, "/a"), "memory keeps its content");
    assert!(!is_hit(&egret, "/b"));
    until_written(&egret, 1);
    let egret = egret.restart_with("TERM", &config, stop_clock);
    until_open(&egret);
    assert!(is_hit(&egret, "/b"));
}

#[test]
fn a_failing_disk_is_turned_off_and_invalidated() {
    let origin = telling();
    let config = Config::with_origin(origin.url()).flows(flow("{ disk: {} }"));
    let egret = config.start();
    assert!(!is_hit(&egret, "/a"));
    until_written(&egret, 1);
    // A directory takes the place of the next entry's file, so the file cannot be written.
    let mut numbers: Vec<u64> = files(&egret)
        .iter()
        .filter(|file| is_entry(file))
        .map(|file| u64::from_str_radix(file.file_name().unwrap().to_str().unwrap(), 16).unwrap())
        .collect();
    numbers.sort_unstable();
    let next = format!("{:016x}", numbers.last().unwrap() + 1);
    let cache = files(&egret)[0].parent().unwrap().to_owned();
    std::fs::create_dir(cache.join(next)).unwrap();
    assert!(!is_hit(&egret, "/b"));
    egret.until_logged("the disk of a cache is not used until the next reload");
    assert!(is_hit(&egret, "/a") && is_hit(&egret, "/b") && !is_hit(&egret, "/c"));
    assert_eq!(figure(&egret, "disk/entries"), 0);
    assert!(!cache.join("seal").exists(), "what is left is nobody's");
    egret.assert_well();
}

#[test]
fn a_disk_that_another_gateway_has_is_left_alone() {
    let origin = telling();
    let directory = egret_tests::process::Directory::default();
    let cache = format!("{{ disk: {{ directory: '{}' }} }}", directory.path().display());
    let config = Config::with_origin(origin.url()).flows(flow(&cache));
    let first = config.start();
    until_open(&first);
    assert!(!is_hit(&first, "/a"));
    let second = config.start();
    second.until_logged("another process has it open: give each gateway its own `data_dir`");
    assert!(!is_hit(&second, "/a") && is_hit(&second, "/a"));
    drop(second);
    until_written(&first, 1);
    let first = first.restart_with("TERM", &config, stop_clock);
    until_open(&first);
    assert!(is_hit(&first, "/a"));
}

#[test]
fn a_config_that_is_checked_or_refused_makes_no_file() {
    let origin = telling();
    let config = Config::with_origin(origin.url()).flows(flow("{ disk: {} }"));
    let directory = egret_tests::process::Directory::default();
    let file = directory.write("egret.yaml", config.yaml());
    let mut check: Command = egret(["check"]);
    let output = run(check.arg(&file).current_dir(directory.path()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!directory.join("egret-data").exists());
    let egret = Config::with_origin(origin.url()).start();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("'{}'", taken.local_addr().unwrap());
    egret.rewrite(config.listen([&listen]).yaml());
    egret.hang_up();
    until_true("the config is rejected", || egret.stat("/reloads_refused") >= 1);
    assert!(!egret.directory().join("egret-data/cache").exists());
}

#[test]
fn a_disk_that_the_config_no_longer_has_is_deleted() {
    let origin = telling();
    let base = || Config::with_origin(origin.url());
    let config = base().flows(flow("{ disk: { size: 1GiB } }"));
    let egret = config.start();
    assert!(!is_hit(&egret, "/a"));
    until_written(&egret, 1);
    // A change of its size keeps the content.
    egret.change_config(base().flows(flow("{ disk: { size: 64MiB } }")).yaml());
    assert!(is_hit(&egret, "/a"));
    assert_eq!(figure(&egret, "disk/entries"), 1);
    egret.change_config(base().flows(flow("{}")).yaml());
    let caches = egret.directory().join("egret-data/cache");
    until_true("it is deleted", || std::fs::read_dir(&caches).unwrap().next().is_none());
    assert!(!is_hit(&egret, "/a"));
    // Invalidations may have been missed while the disk was off.
    egret.change_config(config.yaml());
    until_open(&egret);
    assert!(!is_hit(&egret, "/a"));
}
