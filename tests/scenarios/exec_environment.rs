//! The environment of a command: what `egret exec` sets, what it extends, and what it leaves to the user.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use egret_tests::egret::Config;
use egret_tests::exec::{FREE_PORTS, Place, refused};
use egret_tests::process::{run, run_checked};
use egret_tests::provider::Provider;

/// Returns the variables that `env -0` prints.
fn variables(printed: &str) -> BTreeMap<String, String> {
    let pairs = printed.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the environment of a command by `egret exec` with these options and these variables of the user's.
fn environment<const O: usize>(
    place: &Place,
    options: [&str; O],
    own: &[(&str, &str)],
) -> BTreeMap<String, String> {
    let mut exec = place.exec(options, ["env", "-0"]);
    variables(&run_checked(exec.envs(own.iter().copied())))
}

#[test]
fn every_runtime_finds_the_proxy() {
    let place = Place::new();
    let set = environment(&place, [], &[]);
    let proxy = &set["http_proxy"];
    assert!(proxy.starts_with("http://127.0.0.1:"), "{proxy}");
    for name in [
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "ws_proxy",
        "WS_PROXY",
        "wss_proxy",
        "WSS_PROXY",
        "grpc_proxy",
    ] {
        assert_eq!(&set[name], proxy, "{name}");
    }
    assert_eq!(set["NODE_USE_ENV_PROXY"], "1");
    let port = proxy.rsplit(':').next().unwrap();
    for property in ["-Dhttp.proxyHost=127.0.0.1", &format!("-Dhttps.proxyPort={port}")] {
        assert!(set["JAVA_TOOL_OPTIONS"].contains(property), "{}", set["JAVA_TOOL_OPTIONS"]);
    }
    for name in ["no_proxy", "NO_PROXY"] {
        assert_eq!(set[name], "localhost,127.0.0.1,::1,169.254.169.254", "{name}");
    }
    for absent in ["ALL_PROXY", "all_proxy", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE"] {
        assert!(!set.contains_key(absent), "{absent}");
    }
}

#[test]
fn every_runtime_trusts_the_authority_of_interception() {
    let place = Place::new();
    let set = environment(&place, ["--intercept=api.example.com"], &[]);
    for name in [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "PIP_CERT",
        "CARGO_HTTP_CAINFO",
        "AWS_CA_BUNDLE",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    ] {
        assert_eq!(set[name], set["SSL_CERT_FILE"], "{name}");
    }
    // The gateway ends with the command, and removes the files of its authority.
    place.until_gateways_gone();
    assert!(!Path::new(&set["SSL_CERT_FILE"]).exists());
    let running = Config::default().flows("interception: { hosts: [api.example.com] }").start();
    let place = Place::of(&running);
    let set = environment(&place, ["--intercept=api.example.com"], &[]);
    let root = std::fs::read_to_string(&set["NODE_EXTRA_CA_CERTS"]).unwrap();
    assert_eq!(root.matches("BEGIN CERTIFICATE").count(), 1);
    let bundle = std::fs::read_to_string(&set["SSL_CERT_FILE"]).unwrap();
    assert!(bundle.starts_with(&root) && bundle.matches("BEGIN CERTIFICATE").count() > 50);
    let java = set["JAVA_TOOL_OPTIONS"].split("trustStore=").nth(1).unwrap().split(' ').next().unwrap();
    assert!(std::fs::read(java).unwrap().starts_with(&[0xfe, 0xed, 0xfe, 0xed]));
    let directory = set["PHP_INI_SCAN_DIR"].trim_start_matches(':');
    let ini = std::fs::read_to_string(Path::new(directory).join("egret.ini")).unwrap();
    assert!(ini.contains(&set["SSL_CERT_FILE"]), "{ini}");
    for file in [&set["SSL_CERT_FILE"], &set["NODE_EXTRA_CA_CERTS"], java] {
        let path = Path::new(file);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(path), mode(path.parent().unwrap())), (0o600, 0o700), "{file}");
        assert!(!std::fs::read(path).unwrap().windows(7).any(|bytes| bytes == b"PRIVATE"));
    }
}

#[test]
fn variables_set_by_the_user_are_kept() {
    let place =
        Place::with(&format!("{FREE_PORTS}providers: {{ a: {{ url: 'https://api.example.com' }} }}\n"));
    let own = [
        ("HTTPS_PROXY", "http://user:the-password@proxy.example:3128"),
        ("NODE_USE_ENV_PROXY", "0"),
        ("NO_PROXY", "db.internal,*.example.com,api.example.com"),
        ("JAVA_TOOL_OPTIONS", "-Xmx1g -Dhttp.proxyHost=mine"),
    ];
    let mut exec = place.exec(["-v"], ["env", "-0"]);
    let output = run(exec.envs(own));
    let said = String::from_utf8(output.stderr).unwrap();
    let set = variables(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(set["HTTPS_PROXY"], own[0].1);
    assert!(!set.contains_key("https_proxy"), "the other spelling is the same decision");
    assert_eq!(set["NODE_USE_ENV_PROXY"], "0");
    assert_eq!(set["NO_PROXY"], "localhost,127.0.0.1,::1,169.254.169.254,db.internal");
    assert_eq!(set["NO_PROXY"], set["no_proxy"]);
    assert!(set["JAVA_TOOL_OPTIONS"].starts_with("-Xmx1g -Dhttp.proxyHost=mine -Dhttp.proxyPort="));
    assert!(said.contains("HTTPS_PROXY is set already and stays"), "{said}");
    assert!(!said.contains("the-password"), "{said}");
}

/// Java takes the last of two values, so an inner command must tell the user's from the outer one's.
#[test]
fn a_property_of_the_user_stays_in_an_inner_command_too() {
    let place = Place::new();
    let egret = egret_tests::egret::binary().display();
    let own = "-Xmx1g -Dhttp.proxyHost=mine";
    let inner = format!("{egret} exec --config egret.yaml --intercept=api.example.com -v -- env -0");
    let outer = format!("printf '%s\\n' \"$JAVA_TOOL_OPTIONS\" >outer; {inner}");
    let mut exec = place.exec([], ["sh", "-c", &outer]);
    let output = run(exec.env("JAVA_TOOL_OPTIONS", own));
    let said = String::from_utf8(output.stderr).unwrap();
    let set = variables(&String::from_utf8(output.stdout).unwrap());
    let options = &set["JAVA_TOOL_OPTIONS"];
    let proxy = &set["http_proxy"];
    let port = proxy.rsplit(':').next().unwrap();
    assert!(options.starts_with(&format!("{own} -Dhttp.proxyPort={port} ")), "{options}");
    for property in ["http.proxyHost", "http.proxyPort", "https.proxyHost", "javax.net.ssl.trustStore"] {
        assert_eq!(options.matches(&format!("-D{property}=")).count(), 1, "{property}: {options}");
    }
    assert!(said.contains("Java's property http.proxyHost is set already and stays"), "{said}");
    let before = std::fs::read_to_string(place.directory.join("outer")).unwrap();
    assert!(before.starts_with(own) && !before.contains(&format!("Port={port} ")), "{before}");
}

#[test]
fn a_users_file_of_authorities_is_part_of_the_bundle() {
    let running = Config::default().flows("interception: { hosts: [api.example.com] }").start();
    let place = Place::of(&running);
    let own = egret_tests::pki::Authority::default().certificate();
    let file = place.directory.write("own.pem", &own);
    let file = file.to_str().unwrap();
    let set = environment(&place, [], &[("REQUESTS_CA_BUNDLE", file), ("NODE_EXTRA_CA_CERTS", file)]);
    for name in ["REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"] {
        let text = std::fs::read_to_string(&set[name]).unwrap();
        assert!(text.contains(&own) && text.matches("BEGIN CERTIFICATE").count() == 2, "{name}");
    }
    assert!(!std::fs::read_to_string(&set["SSL_CERT_FILE"]).unwrap().contains(&own));
    let missing = [("SSL_CERT_FILE", "/not/there.pem"), ("GIT_SSL_CAINFO", "/not/there.pem")];
    let output = run(place.exec(["-v"], ["true"]).envs(missing));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("/not/there.pem"), "{said}");
}

#[test]
fn sdks_find_their_provider_by_base_url() {
    let place = Place::with(&format!(
        "{FREE_PORTS}providers:\n  ai: {{ url: 'https://api.openai.com' }}\n  claude: {{ url: 'https://api.anthropic.com' }}\n"
    ));
    let set = environment(&place, ["--base-urls"], &[("ANTHROPIC_BASE_URL", "http://mine.example")]);
    assert_eq!(set["OPENAI_BASE_URL"], format!("{}/ai/v1", set["http_proxy"]));
    assert_eq!(set["ANTHROPIC_BASE_URL"], "http://mine.example");
    assert!(!environment(&place, [], &[]).contains_key("OPENAI_BASE_URL"));
}

#[test]
fn printed_variables_work_in_a_shell() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let place = Place::of(&egret);
    let printed = run_checked(&mut place.options(["--print-env"]));
    assert!(printed.lines().all(|line| line.starts_with("export ")), "{printed}");
    assert!(!printed.contains("EGRET_EXEC"), "there is no command to mark");
    let mut shell = Command::new("sh");
    place.prepare(shell.args([
        "-c",
        &format!("eval \"$1\"; curl --silent --fail {}/", origin.url()),
        "sh",
        &printed,
    ]));
    assert_eq!(run_checked(&mut shell), "hello");
    assert_eq!(origin.only_request().values("via").len(), 1);
    let docker = run_checked(&mut place.options(["--print-env=docker"]));
    assert!(docker.contains(&format!("ENV http_proxy=\"{}\"\n", egret.url())), "{docker}");
    let systemd = run_checked(&mut place.options(["--print-env=systemd"]));
    assert!(systemd.contains(&format!("Environment=\"http_proxy={}\"\n", egret.url())), "{systemd}");
}

#[test]
fn without_a_gateway_only_a_config_with_ports_can_be_printed() {
    let place = Place::new();
    let message = refused(&mut place.options(["--print-env"]), 125);
    assert!(message.contains("fixed port"), "{message}");
    let fixed = "gateway: { listen: ['127.0.0.1:7999'] }\ncontrol: { listen: 127.0.0.1:0 }\n";
    place.directory.write("egret.yaml", fixed);
    let printed = run_checked(&mut place.options(["--print-env"]));
    assert!(printed.contains("export http_proxy='http://127.0.0.1:7999'\n"), "{printed}");
    let intercepting = "interception: { hosts: [api.example.com] }\n";
    place.directory.write("egret.yaml", format!("{fixed}{intercepting}"));
    let message = refused(&mut place.options(["--print-env"]), 125);
    assert!(message.contains("egret ca init"), "{message}");
    let mut init = egret_tests::egret::egret(["ca", "init", "--config", "egret.yaml"]);
    place.prepare(&mut init);
    run_checked(&mut init);
    let printed = run_checked(&mut place.options(["--print-env"]));
    assert!(printed.contains("export SSL_CERT_FILE='/"), "{printed}");
    assert!(place.gateways().is_empty() && place.logs().is_empty());
}

#[test]
fn a_client_name_that_no_gateway_asks_for_is_told_of() {
    let place = Place::new();
    let told = run(&mut place.exec(["--client", "web"], ["true"]));
    place.until_gateways_gone();
    let stderr = String::from_utf8(told.stderr).unwrap();
    assert!(told.status.success() && stderr.contains("`--client web` has no effect"), "{stderr}");
}
