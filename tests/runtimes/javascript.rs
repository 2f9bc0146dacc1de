//! Runtimes of JavaScript: Node of several versions, Bun and Deno.

use super::trial::{EXPECTED, Trial, URL};

/// Returns a program of the packages that `make test-clients` installs.
pub fn installed(program: &str) -> String {
    format!("{}/peers/javascript/node_modules/{program}", env!("CARGO_MANIFEST_DIR"))
}

/// A program that prints the response to a call of its last argument.
pub const FETCH: &str =
    "const response = await fetch(process.argv.at(-1)); console.log(await response.text())";

const HTTPS: &str = "require('https').get(process.argv.at(-1), (response) => response.pipe(process.stdout).on('unpipe', () => console.log()))";

/// These versions use the proxy because `egret exec` sets `NODE_USE_ENV_PROXY`.
#[test]
fn node_22_24_and_26() {
    for version in ["node-22", "node-24", "node-26"] {
        let node = installed(&format!("{version}/bin/node"));
        for program in [
            [&*node, "--input-type=module", "--eval", FETCH, URL],
            [&*node, "--no-warnings", "--eval", HTTPS, URL],
        ] {
            Trial::of(&program)
                .reaches(EXPECTED)
                .reaches_isolated(EXPECTED)
                .is_explained(&["NODE_EXTRA_CA_CERTS"])
                .is_explained_isolated(&["NODE_EXTRA_CA_CERTS"]);
        }
    }
}

/// Node 20 knows no proxy, so it is caught in a namespace only.
#[test]
fn node_20() {
    for program in [
        ["node", "--input-type=module", "--eval", FETCH, URL],
        ["node", "--no-warnings", "--eval", HTTPS, URL],
    ] {
        Trial::of(&program).reaches_isolated(EXPECTED).is_explained_isolated(&["NODE_EXTRA_CA_CERTS"]);
    }
}

#[test]
fn bun() {
    let bun = installed("bun/bin/bun");
    Trial::of(&[&bun, "--eval", FETCH, URL])
        .reaches(EXPECTED)
        .reaches_isolated(EXPECTED)
        .is_explained(&["NODE_EXTRA_CA_CERTS"]);
}

#[test]
fn deno() {
    let deno = installed("deno/deno");
    let script = "const response = await fetch(Deno.args[0]); console.log(await response.text())";
    let neutral = ["env", "DENO_NO_UPDATE_CHECK=1", "DENO_DIR=deno"];
    Trial::of(&[&neutral[..], &[&deno, "eval", script, URL]].concat())
        .reaches(EXPECTED)
        .reaches_isolated(EXPECTED)
        .is_explained(&["DENO_CERT"]);
}
