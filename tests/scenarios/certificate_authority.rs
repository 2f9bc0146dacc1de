//! `egret ca`: making, showing and distributing the authority, and what its key is worth to a thief.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use egret_tests::authority::Place;
use egret_tests::clock::Clock;
use egret_tests::egret::egret;
use egret_tests::process::{Process, run, run_checked};

#[test]
fn init_makes_an_authority_for_the_hosts_of_the_config() {
    let place = Place::default();
    let printed = place.printed(["init", "--host", "extra.example", "--host", "deep.two.example"]);
    assert!(printed.contains("Egret root "), "{printed}");
    assert!(printed.contains(" api.one.example, extra.example, two.example, 10.0.0.1\n"), "{printed}");
    assert!(printed.contains("egret ca install --config egret.yaml"), "{printed}");
    assert!(printed.starts_with(&place.printed(["show"])), "{printed}");
    let names = ["ca.key", "ca.pem", "chain.pem", "bundle.pem", "ca.jks"];
    assert_eq!(names.map(|name| place.mode(name)), [0o600, 0o644, 0o644, 0o644, 0o644]);
    assert_eq!(place.mode("."), 0o700);
    let key = std::fs::read_to_string(place.file("ca.key")).unwrap();
    let secret = key.lines().nth(1).unwrap();
    assert!(!printed.contains(secret));
    // The fingerprint is the one that others compute.
    let other = place.openssl(&["x509", "-in", "data/ca/ca.pem", "-noout", "-fingerprint", "-sha256"]);
    let other = String::from_utf8(other.stdout).unwrap();
    assert!(printed.contains(other.trim().split_once('=').unwrap().1), "{printed}{other}");
}

#[test]
fn openssl_enforces_the_constraints_on_a_stolen_key() {
    let place = Place::default();
    place.printed(["init"]);
    for file in ["data/ca/ca.pem", "data/ca/chain.pem"] {
        let text = place.openssl(&["x509", "-in", file, "-noout", "-text"]).stdout;
        let text = String::from_utf8(text).unwrap();
        for part in ["X509v3 Name Constraints: critical", "DNS:two.example", "IP:10.0.0.1/255.255.255.255"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("bank.example"), "{text}");
        assert!(text.contains("O = tester@"), "{text}");
    }
    for good in ["api.one.example", "a.two.example", "10.0.0.1"] {
        let output = place.forged(good);
        assert!(output.status.success(), "{good}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for bad in ["bank.example", "one.example", "evil.example", "10.0.0.2", "::1"] {
        let output = place.forged(bad);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // 47: permitted subtree violation, 48: excluded subtree violation.
        assert!(errors.contains("error 47 ") || errors.contains("error 48 "), "{bad}: {errors}");
    }
}

#[test]
fn paths_and_exports_are_the_files_that_programs_need() {
    let place = Place::default();
    place.printed(["init"]);
    for (arguments, name) in [(&[][..], "ca.pem"), (&["--bundle"], "bundle.pem"), (&["--jks"], "ca.jks")] {
        let path = run_checked(place.command(["path"]).args(arguments));
        let canonical = |path: PathBuf| path.canonicalize().unwrap();
        assert_eq!(canonical(path.trim_end().into()), canonical(place.file(name)));
        assert!(path.starts_with('/') && path.lines().count() == 1, "{path}");
    }
    let root = std::fs::read_to_string(place.file("ca.pem")).unwrap();
    assert_eq!(place.printed(["export"]), root);
    let bundle = place.printed(["export", "--format", "bundle"]);
    assert_eq!(bundle, std::fs::read_to_string(place.file("bundle.pem")).unwrap());
    assert!(bundle.starts_with(&root) && bundle.matches("BEGIN CERTIFICATE").count() > 50);
    for (format, file) in [("der", "root.der"), ("jks", "root.jks")] {
        assert_eq!(place.printed(["export", "--format", format, "--out", file]), "");
    }
    let der = place.openssl(&["x509", "-inform", "DER", "-in", "root.der"]);
    assert_eq!(String::from_utf8(der.stdout).unwrap(), root);
    let jks = std::fs::read(place.directory.join("root.jks")).unwrap();
    assert_eq!(jks, std::fs::read(place.file("ca.jks")).unwrap());
    assert!(!jks.windows(7).any(|bytes| bytes == b"PRIVATE") && jks.starts_with(&[0xfe, 0xed, 0xfe, 0xed]));
}

#[test]
fn an_inherited_list_of_authorities_replaces_that_of_the_system() {
    let (place, other) = (Place::default(), Place::default());
    other.printed(["init"]);
    let own = std::fs::read_to_string(other.file("ca.pem")).unwrap();
    place.printed(["init"]);
    let root = std::fs::read_to_string(place.file("ca.pem")).unwrap();
    let path = run_checked(place.command(["path", "--bundle"]).env("SSL_CERT_FILE", other.file("ca.pem")));
    assert_eq!(std::fs::read_to_string(path.trim_end()).unwrap(), root.clone() + &own);
    // The variable may already name the bundle itself: it is not taken for its own source.
    run_checked(place.command(["path", "--bundle"]).env("SSL_CERT_FILE", path.trim_end()));
    let bundle = std::fs::read_to_string(path.trim_end()).unwrap();
    assert!(bundle.matches("BEGIN CERTIFICATE").count() > 50 && !bundle.contains(&own));
    let missing = run(place.command(["path", "--bundle"]).env("SSL_CERT_FILE", "/not/there"));
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn a_second_authority_needs_force() {
    let place = Place::default();
    place.printed(["init"]);
    let (first, root) = (place.printed(["show"]), place.printed(["export"]));
    assert!(place.refused(1, ["init"]).contains("egret ca init --force"));
    assert_eq!((place.printed(["show"]), place.printed(["export"])), (first.clone(), root));
    let forced = run(&mut place.command(["init", "--force", "--days", "30"]));
    let (name, warning) = (first.lines().next().unwrap(), String::from_utf8(forced.stderr).unwrap());
    assert!(forced.status.success() && warning.contains(name.trim_start_matches("name").trim()), "{warning}");
    assert_ne!(place.printed(["show"]), first);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let place = Place::default();
    place.printed(["init"]);
    for mode in [0o640, 0o604] {
        place.set_mode("ca.key", mode);
        for command in ["show", "path", "export", "install"] {
            let message = place.refused(1, [command]);
            assert!(message.contains("other users can read") && message.contains("chmod 600"), "{message}");
        }
    }
    place.set_mode("ca.key", 0o600);
    place.set_mode(".", 0o777);
    assert!(place.refused(1, ["show"]).contains("other users can replace"));
    place.set_mode(".", 0o700);
    place.printed(["show"]);
    let other = Place::default();
    other.printed(["init"]);
    std::fs::copy(other.file("ca.key"), place.file("ca.key")).unwrap();
    assert!(place.refused(1, ["show"]).contains("does not belong to the issuing certificate"));
}

#[test]
fn an_expired_authority_is_refused_and_can_still_be_uninstalled() {
    let mut place = Place::default();
    let Some(clock) = Clock::new(&place.directory, 2_000_000_000) else { return };
    place.clock = Some(clock.clone());
    let shown = place.printed(["init", "--days", "2"]);
    assert!(shown.contains("valid until  2033-05-20 03:33:20 UTC"), "{shown}");
    clock.pass(2 * 86_400 - 1);
    place.printed(["show"]);
    clock.pass(1);
    let message = place.refused(1, ["show"]);
    assert!(
        message.contains("expired on 2033-05-20") && message.contains("egret ca init --force"),
        "{message}"
    );
    let uninstalled = run(&mut place.command(["uninstall", "--dry-run"]));
    assert!(!String::from_utf8_lossy(&uninstalled.stderr).contains("expired"));
}

#[test]
fn an_authority_for_every_host_must_be_asked_for() {
    let place = Place::default();
    assert!(place.refused(2, ["init", "--host", "*"]).contains("--unconstrained"));
    assert!(place.refused(2, ["init", "--host", "https://a.example"]).contains("--host"));
    assert!(place.refused(1, ["show"]).contains("run `egret ca init --config egret.yaml`"));
    place.directory.write("egret.yaml", "data_dir: data\n");
    assert!(place.refused(2, ["init"]).contains("no host is to be intercepted"));
    assert!(place.printed(["init", "--unconstrained"]).contains("every host"));
    for name in ["bank.example", "10.0.0.2"] {
        assert!(place.forged(name).status.success(), "{name}");
    }
}

#[test]
fn install_shows_each_command_and_a_dry_run_runs_none() {
    let place = Place::default();
    place.printed(["init"]);
    for directory in ["bin", "home/.pki/nssdb"] {
        std::fs::create_dir_all(place.directory.join(directory)).unwrap();
    }
    // Stands in for the tool. The system's own tool is not run by a test.
    let tool = place.directory.write("certutil", "#!/bin/sh\ntouch \"$HOME/changed\"\n");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(tool, place.directory.join("bin/certutil")).unwrap();
    for command in ["install", "uninstall"] {
        let mut command = place.command([command, "--dry-run"]);
        command.env("HOME", place.directory.join("home")).env("PATH", place.directory.join("bin"));
        let printed = run_checked(&mut command);
        assert!(printed.contains("certutil -d sql:") && printed.contains("'Egret root "), "{printed}");
    }
    assert!(!place.directory.join("home/changed").exists());
}

#[test]
fn a_bad_key_of_the_config_is_refused_with_its_place() {
    let place = Place::default();
    place.directory.write("egret.yaml", "interception: { hosts: [a.example, 'https://b.example'] }\n");
    let output = run(egret(["check", "egret.yaml"]).current_dir(place.directory.path()));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("egret.yaml:1:") && errors.contains("interception.hosts[1]"), "{errors}");
}

#[test]
fn check_names_hosts_for_which_the_authority_was_not_made() {
    let place = Place::default();
    let check = |yaml: &str| {
        place.directory.write("egret.yaml", yaml);
        run_checked(egret(["check", "egret.yaml"]).current_dir(place.directory.path()))
    };
    let config = |hosts: &str| {
        format!("providers: {{ p: {{ url: 'https://p.example' }} }}\ninterception: {{ hosts: [{hosts}] }}\n")
    };
    assert_eq!(check(&config("a.example")).lines().count(), 1, "there is no authority yet");
    run_checked(egret(["ca", "init", "--config", "egret.yaml"]).current_dir(place.directory.path()));
    assert_eq!(check(&config("a.example, '*.a.example'")).lines().count(), 1);
    let told = check(&config("a.example, b.example"));
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines[1].starts_with("egret.yaml: interception: `b.example`: "), "{told}");
    assert!(lines[1].contains("`egret ca init --force`"), "{told}");
    // The gateway says the same.
    let listen = "gateway: { listen: ['127.0.0.1:0'] }\ncontrol: { listen: 127.0.0.1:0 }\n";
    place.directory.write("egret.yaml", format!("{listen}{}", config("b.example")));
    let mut start = egret(["run", "--config", "egret.yaml"]);
    let gateway = Process::start(start.current_dir(place.directory.path()));
    gateway.until_prints("its warning", |lines| {
        lines
            .iter()
            .any(|line| line.contains("was not made for this host") && line.contains("b.example"))
            .then_some(())
    });
    // Without the key, providers are not intercepted either.
    let without = check("providers: { p: { url: 'https://other.example' } }\n");
    assert_eq!(without.lines().count(), 1, "{without}");
}
