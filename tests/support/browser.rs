//! Pages in headless Chromium: that of the control port, and files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::Value;

use crate::config_api::ConfigApi;
use crate::egret::Egret;
use crate::peers::{client, found, node_script};
use crate::permits::Permits;
use crate::process::{Directory, Process, run_checked};

/// Pages at once: a page that is drawn takes most of a processor.
static PAGES: Permits = Permits::new(4);

/// A headless Chromium. Its start takes longer than most pages, so scenarios that run at the same time share
/// one, and it ends with the last of them. Each has a context of its own, with its own storage.
#[derive(Debug)]
struct Chromium {
    _process: Process,
    address: String,
    _profile: Directory,
}

impl Chromium {
    fn shared() -> Arc<Self> {
        static RUNNING: Mutex<Weak<Chromium>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.upgrade().unwrap_or_else(|| {
            let started = Arc::new(Self::start());
            *running = Arc::downgrade(&started);
            started
        })
    }

    fn start() -> Self {
        let profile = Directory::default();
        // The one without windows takes half of the processor's time.
        let program = ["chromium-headless-shell", "chromium"].into_iter().find_map(found);
        let mut command = client(program.expect("`make test` installs chromium-headless-shell"));
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-port=0",
        ]);
        // One page hides another, and all are to be drawn.
        command.args([
            "--disable-background-timer-throttling",
            "--disable-backgrounding-occluded-windows",
            "--disable-renderer-backgrounding",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        let process = Process::start(command.arg("about:blank"));
        let address = process.until_prints("DevTools listen", |lines| {
            lines.iter().find_map(|line| Some(line.strip_prefix("DevTools listening on ")?.to_owned()))
        });
        Self { _process: process, address, _profile: profile }
    }
}

/// Calls `act` with the address of a Chromium's developer tools.
fn in_chromium<T>(act: impl FnOnce(&str) -> T) -> T {
    // Those that wait for a permit keep it running.
    let chromium = Chromium::shared();
    let _permit = PAGES.take();
    act(&chromium.address)
}

/// Imports HAR files into Chromium's developer tools. Returns the requests of each file as listed there.
pub fn opened_in_devtools(files: &[PathBuf]) -> Vec<Vec<Value>> {
    in_chromium(|address| {
        let printed = run_checked(node_script("devtools.mjs").arg(address).args(files));
        serde_json::from_str(&printed).unwrap()
    })
}

/// Runs a script on the page of `egret`, and returns its result. The script has `page` of
/// `tests/peers/node/page.mjs`, and `open(view)`, which shows a view with the token that Egret has created.
/// Requests of the page to anything but the control port, and errors in the page, fail the test.
pub fn browse(egret: &Egret, script: &str) -> Value {
    let (control, token) = (format!("http://{}", egret.control()), ConfigApi::of(egret).token().to_owned());
    let script = format!(
        r##"const [control, token, gateway] = args;
        const open = async (view, marker) => {{
          if (page.width === undefined) await page.look(1440);
          await page.open(`${{control}}/#token=${{token}}`);
          await page.until("document.querySelector('nav a[aria-current]')");
          await page.evaluate(`location.hash = "#/${{view}}"`);
          if (marker) await page.shows(marker);
        }};
        // Repeats an act until an expression is true: a worker opens live traffic with its next message.
        const until = async (expression, act) => {{
          for (let left = 200; left > 0 && !(await page.evaluate(expression).catch(() => false)); left--) {{
            await act();
            await new Promise((resolve) => setTimeout(resolve, 100));
          }}
          return page.until(expression);
        }};
        const result = await (async () => {{ {script} }})();
        const elsewhere = page.requested.filter((url) => !url.startsWith(control) && !url.startsWith("data:") && !url.startsWith("blob:"));
        if (elsewhere.length > 0) throw new Error("requests to elsewhere: " + elsewhere);
        if (page.errors.length > 0) throw new Error("errors in the page: " + page.errors.join("\n"));
        return result;"##
    );
    let printed = in_chromium(|address| {
        run_checked(node_script("page.mjs").args([address, &script, &control, &token, &egret.url()]))
    });
    serde_json::from_str(&printed).unwrap()
}

/// Runs a script on the page in a file, in a window of this width, and returns its result. The script has
/// `page` of `tests/peers/node/page.mjs`. A request or an error of the page fails the test.
pub fn browse_file(file: &Path, width: u32, script: &str) -> Value {
    let script = format!(
        r#"const [url] = args;
        await page.look({width});
        await page.open(url);
        const result = await (async () => {{ {script} }})();
        const elsewhere = page.requested.filter((requested) => requested !== url);
        if (elsewhere.length > 0) throw new Error("requests: " + elsewhere);
        if (page.errors.length > 0) throw new Error("errors in the page: " + page.errors.join("\n"));
        return result;"#
    );
    let url = format!("file://{}", file.display());
    let printed = in_chromium(|address| run_checked(node_script("page.mjs").args([address, &script, &url])));
    serde_json::from_str(&printed).unwrap()
}
