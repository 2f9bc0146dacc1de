//! One Node for all scenarios, since its start takes longer than most of what it does. It runs modules of
//! `tests/peers/node`, and has the Chromium whose pages they open.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;

use serde_json::{Value, json};

use crate::peers::{found, node_script};
use crate::process::RUN_DEADLINE;

/// For each request that has no answer yet, where that is waited for.
type Waiting = Arc<Mutex<HashMap<u64, mpsc::Sender<Value>>>>;

/// The process. It ends with its input, and so with this one.
#[derive(Debug)]
struct Host {
    input: Mutex<ChildStdin>,
    waiting: Waiting,
    asked: AtomicU64,
}

impl Host {
    fn start() -> Self {
        // The one without windows takes half of the processor's time.
        let chromium = ["chromium-headless-shell", "chromium"].into_iter().find_map(found);
        let mut command = node_script("host.mjs");
        command.arg(chromium.expect("`make test` installs chromium-headless-shell"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let waiting = Waiting::default();
        let answered = Arc::clone(&waiting);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(answer) = serde_json::from_str::<Value>(&line) else { continue };
                let asker = answer["id"].as_u64().and_then(|id| answered.lock().unwrap().remove(&id));
                // The scenario may have failed meanwhile.
                let _ = asker.map(|asker| asker.send(answer));
            }
            let _ = child.wait();
            answered.lock().unwrap().clear();
        });
        Self { input: Mutex::new(input), waiting, asked: AtomicU64::new(0) }
    }

    fn ask(&self, module: &str, args: &[&str]) -> Value {
        let id = self.asked.fetch_add(1, Ordering::Relaxed);
        let (sender, answered) = mpsc::channel();
        self.waiting.lock().unwrap().insert(id, sender);
        let request = json!({ "id": id, "module": module, "args": args });
        writeln!(self.input.lock().unwrap(), "{request}").unwrap();
        let answer = answered.recv_timeout(RUN_DEADLINE);
        let mut answer = answer.unwrap_or_else(|error| panic!("{module}.mjs has no answer: {error}"));
        assert!(answer["error"].is_null(), "{module}.mjs: {}", answer["error"].as_str().unwrap_or_default());
        answer["result"].take()
    }
}

/// Calls the function `run` of a module of `tests/peers/node`, and returns what it returns. Its error fails
/// the test.
pub fn ask(module: &str, args: &[&str]) -> Value {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(Host::start).ask(module, args)
}

/// Asserts that files are valid by the JSON Schema of `format`: `har`, or a version of ALF.
pub fn assert_fits_schema(format: &str, files: &[PathBuf]) {
    let arguments = std::iter::once(format).chain(files.iter().map(|file| file.to_str().unwrap()));
    let problems = ask("schema", &arguments.collect::<Vec<_>>());
    let problems: Vec<Vec<Value>> = serde_json::from_value(problems).unwrap();
    for (file, problems) in files.iter().zip(&problems) {
        assert!(problems.is_empty(), "{} is no {format}: {problems:?}", file.display());
    }
    assert_eq!(problems.len(), files.len());
}
