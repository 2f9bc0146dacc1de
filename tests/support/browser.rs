//! Pages in headless Chromium: that of the control port, and files.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config_api::ConfigApi;
use crate::egret::Egret;
use crate::node::ask;
use crate::permits::Permits;

/// Pages at once: a page that is drawn takes most of a processor.
static PAGES: Permits = Permits::new(4);

/// Imports HAR files into Chromium's developer tools. Returns the requests of each file as listed there.
pub fn opened_in_devtools(files: &[PathBuf]) -> Vec<Vec<Value>> {
    let files: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let _permit = PAGES.take();
    serde_json::from_value(ask("devtools", &files)).unwrap()
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
    let _permit = PAGES.take();
    ask("page", &[&script, &control, &token, &egret.url()])
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
    let _permit = PAGES.take();
    ask("page", &[&script, &url])
}
