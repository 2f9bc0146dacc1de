//! Attacks by another user of the machine through files that Egret finds: a config in the working directory,
//! the data directory, and the authority in it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use egret_tests::egret::egret;
use egret_tests::exec::{FREE_PORTS, Place};
use egret_tests::impostor::{Impostor, OTHER_USER, give_all, give_away};
use egret_tests::process::run;

const SECRET: &str = "s3cret-of-the-user-that-runs-egret";

/// The ways in which another user chooses what a found config says.
const WAYS: [fn(&Path) -> bool; 3] = [
    |file| {
        fs::set_permissions(file, Permissions::from_mode(0o666)).unwrap();
        true
    },
    |file| {
        fs::set_permissions(file.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
        true
    },
    give_away,
];

fn in_place<const N: usize>(place: &Place, arguments: [&str; N]) -> Command {
    let mut command = egret(arguments);
    place.prepare(&mut command);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_found_config_of_another_user_gets_no_secret_sent() {
    for way in WAYS {
        for command in ["tail", "discover", "doctor", "health"] {
            let impostor = Impostor::start();
            let place = Place::new();
            let secret = place.directory.write_secret("secret", SECRET);
            let config = format!(
                "control: {{ listen: '{}', token: '${{file:{}}}' }}\n",
                impostor.address(),
                secret.display()
            );
            if way(&place.directory.write("egret.yaml", config)) {
                let output = run(&mut in_place(&place, [command]));
                impostor.assert_got_no_token(command, &[SECRET]);
                assert!(
                    !output.status.success() && said(&output).len() + output.stdout.len() > 0,
                    "{command}"
                );
            }
        }
    }
}

#[test]
fn a_found_config_of_another_user_runs_no_command() {
    for way in WAYS {
        let place = Place::with(&format!("{FREE_PORTS}interception: {{ hosts: ['*.example.com'] }}\n"));
        if way(&place.directory.join("egret.yaml")) {
            let output = run(&mut in_place(&place, ["exec", "--", "echo", "it ran"]));
            assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]), "{}", said(&output));
            assert!(said(&output).contains("--config egret.yaml"), "{}", said(&output));
            place.until_gateways_gone();
        }
    }
}

#[test]
fn an_authority_of_another_user_is_not_used() {
    let place = Place::with(&format!("{FREE_PORTS}interception: {{ hosts: ['*.example.com'] }}\n"));
    let made = run(&mut in_place(&place, ["ca", "init", "--config", "egret.yaml"]));
    assert!(made.status.success(), "{}", said(&made));
    for name in ["egret-data/ca/ca.key", "egret-data/ca", "egret-data"] {
        if give_away(&place.directory.join(name)) {
            let output = run(&mut in_place(&place, ["ca", "show", "--config", "egret.yaml"]));
            assert!(!output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
            assert!(said(&output).contains(&format!("it belongs to user {OTHER_USER}")), "{}", said(&output));
            give_all(&place.directory.join("egret-data"), 0);
        }
    }
}

#[test]
fn a_data_directory_of_another_user_is_not_used() {
    let place = Place::new();
    let data_dir = place.directory.join("egret-data");
    fs::create_dir(&data_dir).unwrap();
    fs::set_permissions(&data_dir, Permissions::from_mode(0o777)).unwrap();
    if !give_away(&data_dir) {
        return;
    }
    let output = run(&mut place.exec([], ["echo", "it ran"]));
    assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]), "{}", said(&output));
    assert!(said(&output).contains("sudo -u"), "{}", said(&output));
    assert_eq!(fs::read_dir(&data_dir).unwrap().count(), 0, "nothing was written there");
}
