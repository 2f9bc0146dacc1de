//! Attacks by other users of the machine through the files that Egret writes.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use egret_tests::egret::Config;
use egret_tests::provider::Provider;
use egret_tests::wait;

/// Returns a file's permissions for its group and for others.
fn others(file: &Path) -> u32 {
    std::fs::metadata(file).unwrap().permissions().mode() & 0o077
}

#[test]
fn an_access_log_is_for_its_owner_alone() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("access_log: { output: access.log }").start();
    assert_eq!(others(&egret.directory().join("access.log")), 0);
}

#[test]
fn counts_of_quotas_are_for_their_owner_alone() {
    let origin = Provider::plain();
    let quotas = "quotas: { daily: { kind: calendar, period: day, limit: 20, store: file } }\n\
                  flows: [{ name: all, remedies: [limit: { quota: daily }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(quotas).start();
    egret.get("/").assert_forwarded(200);
    assert_eq!(others(&egret.directory().join("egret-data/quotas.redb")), 0);
}

#[test]
fn an_access_log_is_not_written_where_a_symbolic_link_leads() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let victim = egret.directory().write("victim", "");
    symlink(&victim, egret.directory().join("access.log")).unwrap();
    egret.rewrite(Config::with_origin(origin.url()).gateway("access_log: { output: access.log }").yaml());
    let written = || std::fs::metadata(&victim).unwrap().len() > 0;
    wait::until_true("the log is refused or written", || {
        egret.get("/").assert_forwarded(200);
        written() || egret.log().contains("symbolic link")
    });
    assert!(!written(), "the file behind the link was written to");
    egret.assert_well();
}
