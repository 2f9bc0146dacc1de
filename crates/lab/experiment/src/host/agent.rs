//! The agent: carries out the orders of a lab on another machine, over the connection that started it. It
//! ends with the connection, and all processes end with it.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::executor::Executor;
use super::frame;
use super::order::{Order, Reply};
use crate::interrupt::Interrupt;
use crate::process;

/// First line of the agent's output. A login shell may print other lines before it. The number is the version
/// of the protocol.
pub(crate) const GREETING: &str = "egret-lab-agent 1";

/// Time without an order after which the lab counts as lost. A running lab asks several times a second.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// Interval between checks for an interrupt while no order arrives.
const LOOK_UP: Duration = Duration::from_millis(500);

/// An order with its content, or the error that ended the connection.
type Received = io::Result<(Order, Vec<u8>)>;

/// Serves a lab until the connection ends, the lab falls silent, or the agent is interrupted. Files are in
/// `directory`, which is created; `egret` is Egret's program.
pub fn serve(
    directory: &Path,
    egret: PathBuf,
    input: impl Read + Send + 'static,
    output: &mut impl Write,
    interrupt: &Interrupt,
) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let directory = directory.canonicalize()?;
    let scratch = directory.join(format!("run-{}", std::process::id()));
    let executor = Executor::new(egret, directory, Some(scratch.clone()));
    process::allow_many_files();
    let orders = received(input)?;
    let ended = execute(executor, &orders, output, interrupt);
    // If this fails, the files of the last turn remain.
    let _ = std::fs::remove_dir_all(&scratch);
    ended
}

/// Reads orders on a thread of their own, so that waiting for one can end.
fn received(input: impl Read + Send + 'static) -> io::Result<Receiver<Received>> {
    let (sender, receiver) = sync_channel(1);
    let read = move || {
        let mut input = BufReader::new(input);
        while let Some(order) = frame::read(&mut input).transpose() {
            let is_last = order.is_err();
            if sender.send(order).is_err() || is_last {
                return;
            }
        }
    };
    std::thread::Builder::new().name("egret-orders".into()).spawn(read)?;
    Ok(receiver)
}

fn execute(
    mut executor: Executor,
    orders: &Receiver<Received>,
    output: &mut impl Write,
    interrupt: &Interrupt,
) -> io::Result<()> {
    writeln!(output, "{GREETING}")?;
    output.flush()?;
    let mut last = Instant::now();
    loop {
        match orders.recv_timeout(LOOK_UP) {
            Ok(order) => {
                let (order, content) = order?;
                let (reply, content) = executor
                    .carry_out(order, &content)
                    .unwrap_or_else(|error| (Reply::Failed(error.to_string()), Vec::new()));
                frame::write(output, &reply, &content)?;
                last = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) if last.elapsed() > SILENCE_MAX => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the lab sent no order for a minute"));
            }
            Err(RecvTimeoutError::Timeout) if interrupt.wait(Duration::ZERO).is_err() => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Launch;

    /// Input that ends once a line has been written to a file.
    struct UntilWritten(PathBuf);

    impl Read for UntilWritten {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            while !std::fs::read(&self.0).is_ok_and(|text| text.ends_with(b"\n")) {
                std::thread::yield_now();
            }
            Ok(0)
        }
    }

    /// Writes orders as a lab sends them.
    fn sent(orders: &[Order]) -> io::Cursor<Vec<u8>> {
        let mut input = Vec::new();
        for order in orders {
            frame::write(&mut input, order, b"").unwrap();
        }
        io::Cursor::new(input)
    }

    /// Has an agent carry out the orders in `input`. Returns its replies.
    fn replies(directory: &Path, input: impl Read + Send + 'static) -> Vec<Reply> {
        let mut output = Vec::new();
        let (_interrupter, interrupt) = Interrupt::new();
        serve(directory, "/egret".into(), input, &mut output, &interrupt).unwrap();
        let mut output = output.strip_prefix(format!("{GREETING}\n").as_bytes()).unwrap();
        let mut replies = Vec::new();
        while let Some((reply, _)) = frame::read(&mut output).unwrap() {
            replies.push(reply);
        }
        replies
    }

    #[test]
    fn a_connection_that_ends_takes_all_processes_and_files_with_it() {
        let root = tempfile::tempdir().unwrap();
        let pid = root.path().join("pid");
        let launch = Launch {
            environment: std::collections::BTreeMap::new(),
            name: "the shell".into(),
            program: "/bin/sh".into(),
            arguments: vec![
                "-c".into(),
                format!("echo $$ > '{}'; while :; do sleep 60; done", pid.display()).into(),
            ],
            directory: root.path().into(),
            stdout: root.path().join("log"),
            stderr: root.path().join("log"),
            core: None,
            home: root.path().into(),
        };
        let scratch = root.path().canonicalize().unwrap().join(format!("run-{}", std::process::id()));
        let orders = [Order::Introduce, Order::EmptyDirectory(scratch.join("turn")), Order::Start(launch)];
        let input = sent(&orders).chain(UntilWritten(pid.clone()));
        let input = input.chain(sent(&[Order::LastLines(1), Order::Stop(9)]));
        let replies = replies(root.path(), input);
        let [
            Reply::Introduction(introduction),
            Reply::Done,
            Reply::Number(Some(1)),
            Reply::Text(_),
            Reply::Done,
        ] = replies.as_slice()
        else {
            panic!("{replies:?}")
        };
        assert_eq!(introduction.scratch.as_deref(), Some(scratch.as_path()));
        assert!(!scratch.exists());
        let pid: u32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        assert!(!Path::new("/proc").join(pid.to_string()).exists(), "the process outlived the connection");
    }

    #[test]
    fn a_failed_order_is_reported_and_the_agent_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let replies = replies(root.path(), sent(&[Order::List("/no/such".into()), Order::EndedCpuTime]));
        assert!(matches!(&replies[0], Reply::Failed(why) if why.starts_with("/no/such: ")), "{replies:?}");
        assert!(matches!(replies[1], Reply::Real(_)));
    }
}
