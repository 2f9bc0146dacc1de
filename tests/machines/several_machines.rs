//! Experiments whose parts run on three machines, which the lab reaches through ssh.

use std::path::{Path, PathBuf};
use std::process::Command;

use egret_tests::egret::binary;
use egret_tests::process::{Directory, Process, run};
use egret_tests::wait;
use serde_json::Value;

use super::namespaces::{Network, PARTS};

const NO_FLOW: &str = include_str!("../../experiments/configs/no-flow.yaml");

fn experiment(directory: &Directory, text: &str) -> PathBuf {
    directory.write("no-flow.yaml", NO_FLOW);
    directory.write("three.yaml", format!("title: Three machines\n{text}"))
}

fn json(file: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// The command that runs an experiment on the machines in `on`.
fn lab(network: &Network, file: &Path, on: &Path, out: &Path) -> Command {
    let mut command = network.command(binary());
    command.args(["lab", "run"]).arg(file).arg("--on").arg(on).arg("--out").arg(out);
    command.current_dir(file.parent().unwrap());
    command
}

/// Runs it. Returns exit code and standard error.
fn outcome(mut command: Command) -> (i32, String) {
    let output = run(&mut command);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The files in a machine's directory of the lab.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn client_proxy_and_provider_run_on_three_machines() {
    let (network, directory) = (Network::start(), Directory::default());
    let file = experiment(
        &directory,
        "provider: { path: /delay/0.01 }\n\
         client: { kind: bench, requests: 400, concurrency: 5, warm_up_requests: 10, keep_alive: true }\nrounds: 2\n\
         scenarios: [{ name: direct }, { name: no-flow, egret: no-flow.yaml }]\n",
    );
    let on = directory.write("on.yaml", network.on(""));
    let out = directory.join("out");
    let (code, stderr) = outcome(lab(&network, &file, &on, &out));
    assert_eq!(code, 0, "{stderr}");

    let metadata = json(out.join("metadata.json"));
    for (part, machine) in PARTS.into_iter().zip(&network.machines) {
        let about = &metadata["machines"][part];
        assert!(about["ssh"].as_str().unwrap().ends_with(&machine.address), "{about}");
        assert!(about["kernel"].as_str().unwrap().starts_with("Linux "), "{about}");
        // Only the program is left, under the name of its checksum.
        let names = names(&machine.directory);
        assert!(names.len() == 1 && names[0].starts_with("egret-"), "{names:?}");
        assert!(machine.processes().is_empty(), "{:?}", machine.processes());
    }
    let turn = out.join("turns/02-default-no-flow");
    let figures = json(turn.join("turn.json"));
    assert_eq!((&figures["requests"], &figures["failed"]), (&400.into(), &0.into()));
    assert_eq!(figures["percentiles_ms"].as_array().unwrap().len(), 101);
    assert!(figures["percentiles_ms"][0].as_f64().unwrap() >= 10.0, "{figures}");
    for part in PARTS {
        assert!(figures["processes"][part]["cpu_s"].as_f64().unwrap() > 0.0, "{part}: {figures}");
    }
    assert!(figures["processes"]["proxy"]["memory_bytes_max"].as_u64().unwrap() > 1 << 20);
    assert_eq!(figures["counted"]["calls"], 400);
    for (name, content) in [
        ("proxy.log", "10.77.0.2:"),
        ("proxy-no-flow.yaml", "http://10.77.0.3:"),
        ("provider.log", "10.77.0.3:"),
        ("latency.hdr", "#"),
        ("client.err", ""),
    ] {
        let text = std::fs::read_to_string(turn.join(name)).unwrap();
        assert!(text.contains(content), "{name}: {text}");
    }
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("machine of the proxy") && report.contains("@10.77.0.2"), "{report}");
    assert!(!directory.join("injected").exists());

    // The program is not copied again.
    let copied = |machine: &super::namespaces::Machine| {
        let program = machine.directory.join(&names(&machine.directory)[0]);
        std::fs::metadata(program).unwrap().modified().unwrap()
    };
    let before: Vec<_> = network.machines.iter().map(copied).collect();
    let (code, stderr) = outcome(lab(&network, &file, &on, &directory.join("again")));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(network.machines.iter().map(copied).collect::<Vec<_>>(), before);
}

#[test]
fn a_lost_connection_ends_the_run_and_leaves_no_process_behind() {
    let (network, directory) = (Network::start(), Directory::default());
    let file = experiment(
        &directory,
        "provider: { path: /delay/0.2 }\nclient: { kind: bench, requests: 2000, concurrency: 5, warm_up_requests: 0 }\nrounds: 1\n\
         scenarios: [{ name: no-flow, egret: no-flow.yaml }]\n",
    );
    // No program is copied if its path is given.
    let on = directory.write("on.yaml", network.on(&format!(", egret: {:?}", binary())));
    let out = directory.join("out");
    let mut lab = Process::start(&mut lab(&network, &file, &on, &out));
    let [client, proxy, _] = network.machines.as_slice() else { panic!("three machines") };
    wait::until_true("it is measured", || client.processes().iter().any(|line| line.contains(" bench ")));
    assert!(proxy.processes().iter().any(|line| line.contains(" run --config ")));
    proxy.drop_connections();
    assert_eq!(lab.until_ended().code(), Some(1));
    let stderr = lab.stderr();
    assert!(
        stderr.contains("@10.77.0.2): the connection was lost: ssh ended (exit status: 255)"),
        "{stderr}"
    );
    assert!(stderr.contains("0 of 1 turns are stored; continue with: egret lab run --resume"), "{stderr}");
    for machine in &network.machines {
        wait::until_true("all processes have ended", || machine.processes().is_empty());
        assert_eq!(names(&machine.directory), Vec::<String>::new());
    }

    // An interrupted run ends all processes too.
    let mut resumed = network.command(binary());
    let mut resumed =
        Process::start(resumed.args(["lab", "run", "--resume"]).arg(directory.join("out.partial")));
    wait::until_true("it is measured", || client.processes().iter().any(|line| line.contains(" bench ")));
    resumed.signal("INT");
    assert_eq!(resumed.until_ended().code(), Some(1));
    assert!(resumed.stderr().contains("Stopped: 0 of 1 turns are stored"), "{}", resumed.stderr());
    for machine in &network.machines {
        assert_eq!(machine.processes(), Vec::<String>::new());
    }
}

#[test]
fn a_machine_that_cannot_be_used_is_named_with_the_reason() {
    let (network, directory) = (Network::start(), Directory::default());
    let file = experiment(&directory, "provider: {}\nscenarios: [{ name: direct }]\n");
    let out = directory.join("out");
    let on = directory.write("given.yaml", network.on(", egret: /no/such/egret"));
    let (code, stderr) = outcome(lab(&network, &file, &on, &out));
    assert_eq!(code, 1, "{stderr}");
    let expected = "the machine of the client (root@10.77.0.1): `egret lab agent` did not start there: ssh ended (exit status: 127)";
    assert!(stderr.contains(expected) && stderr.contains("/no/such/egret: not found"), "{stderr}");

    network.forget_host_keys();
    let on = directory.write("on.yaml", network.on(""));
    let (code, stderr) = outcome(lab(&network, &file, &on, &out));
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("Egret's program cannot be copied there: ssh ended (exit status: 255)"),
        "{stderr}"
    );
    assert!(stderr.contains("Host key verification failed"), "{stderr}");
    assert!(!directory.join("out.partial").exists());
}
