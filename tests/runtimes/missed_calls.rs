//! Programs whose calls go past Egret, or that refuse its certificates: the terminal says why, and what fixes
//! it for that runtime.

use egret_tests::exec::NamedProvider;

use super::javascript::{FETCH, installed};
use super::peers::PYTHON;

/// Runs a program in a terminal under `egret exec --intercept`. Returns what the terminal shows.
fn shown(program: &str, word: &str) -> String {
    let provider = NamedProvider::start();
    let (shown, _) = provider.place.in_terminal("--intercept", program, word);
    println!("$ egret exec --intercept -- {program}\n{shown}");
    shown
}

#[test]
fn node_20_goes_past_and_is_told_of() {
    let shown = shown(
        &format!("node --input-type=module --eval '{FETCH}' https://origin.test/program"),
        "no call went",
    );
    assert!(shown.contains("no call went through Egret. Node reads proxy variables from 22.21"), "{shown}");
}

#[test]
fn aiohttp_goes_past_and_is_told_of() {
    let script = r#"
import aiohttp, asyncio
async def call():
    async with aiohttp.ClientSession() as session:
        await session.get("https://origin.test/program")
asyncio.run(call())
"#;
    let provider = NamedProvider::start();
    provider.place.directory.write("call.py", script);
    let (shown, _) = provider.place.in_terminal("--intercept", &format!("{PYTHON} call.py"), "no call went");
    println!("{shown}");
    assert!(shown.contains("aiohttp reads proxy variables with `trust_env=True` only"), "{shown}");
}

#[test]
fn programs_with_certificates_of_their_own_are_told_of() {
    let request = r#"import requests; requests.get("https://origin.test/program", verify="provider.pem")"#;
    let python = format!("{PYTHON} -c '{request}'");
    let curl = "curl --silent --cacert provider.pem https://origin.test/program".to_owned();
    let wget = "wget --quiet --ca-certificate=provider.pem https://origin.test/program".to_owned();
    let node = format!(
        "{} --input-type=module --eval 'import https from \"https\"; import fs from \"fs\"; \
         https.get(\"https://origin.test/program\", {{ ca: fs.readFileSync(\"provider.pem\"), agent: new https.Agent({{ proxyEnv: process.env }}) }})'",
        installed("node-24/bin/node")
    );
    for (program, setting) in [
        (python, "SSL_CERT_FILE` and `REQUESTS_CA_BUNDLE"),
        (curl, "CURL_CA_BUNDLE"),
        (wget, "--ca-certificate=$SSL_CERT_FILE"),
        (node, "NODE_EXTRA_CA_CERTS"),
    ] {
        let shown = shown(&program, "were refused by the program");
        assert!(shown.contains("to origin.test ("), "{shown}");
        assert!(shown.contains(setting), "{shown}");
    }
}
