//! Carries out orders on this machine: in the lab itself, or in the agent on another machine.

use std::collections::BTreeMap;
use std::io;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::frame::CONTENT_BYTES_MAX;
use super::order::{Introduction, Order, Reply};
use crate::machine::Machine;
use crate::process::{self, Launch, MeasuredProcess};
use crate::{affinity, http, machine, part, programs, redis};

/// Maximum number of files of a directory that are listed.
const LIST_MAX: usize = 1_000;

/// The reason why an order cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    /// A file, directory or program that cannot be used.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
}

/// Carries out orders. Dropping it ends all processes that it has started.
#[derive(Debug)]
pub(crate) struct Executor {
    processes: BTreeMap<u32, MeasuredProcess>,
    started: u32,
    egret: PathBuf,
    here: PathBuf,
    scratch: Option<PathBuf>,
}

impl Executor {
    /// Creates it. `egret` is Egret's program, `here` the directory that paths of programs are relative to,
    /// and `scratch` the directory for the files of a turn, if they are not in the results folder.
    pub fn new(egret: PathBuf, here: PathBuf, scratch: Option<PathBuf>) -> Self {
        Self { processes: BTreeMap::new(), started: 0, egret, here, scratch }
    }

    /// Returns the launch of a process that ends with this one, by whatever cause.
    fn bound(&self, launch: &Launch) -> Launch {
        // Both are missing in an experiment that cannot run. The error is that of the program then.
        if !self.egret.is_file() || !launch.program.is_file() {
            return launch.clone();
        }
        let lab = std::process::id();
        let arguments = part::arguments(lab, launch.program.as_os_str(), launch.arguments.clone());
        Launch { program: self.egret.clone(), arguments, ..launch.clone() }
    }

    /// Carries out an order. Returns the reply and its content.
    pub fn carry_out(&mut self, order: Order, content: &[u8]) -> Result<(Reply, Vec<u8>), OrderError> {
        let reply = match order {
            Order::Introduce => Reply::Introduction(Box::new(self.introduction())),
            Order::EmptyDirectory(path) => empty_directory(&path)?,
            Order::Write(path) => std::fs::write(&path, content).map(|()| Reply::Done).map_err(at(&path))?,
            Order::Read(path) => return Ok((Reply::Done, read(&path)?)),
            Order::List(path) => Reply::Names(list(&path)?),
            Order::Remove(path) => remove(&path)?,
            Order::Locate { program, here } => Reply::Path(programs::locate(&program, &here)),
            Order::Version(program) => {
                let option = programs::version_option(&program);
                Reply::Text(
                    option.and_then(|option| programs::version_output(&program, &[option], &self.here)),
                )
            }
            Order::FreePort(address) => Reply::Number(http::free_port(address).map(u32::from)),
            Order::Start(launch) => {
                let process = MeasuredProcess::start(&self.bound(&launch)).map_err(at(&launch.program))?;
                self.started += 1;
                self.processes.insert(self.started, process);
                Reply::Number(Some(self.started))
            }
            Order::Ended(number) => {
                Reply::Text(self.process(number)?.ended().map(|status| status.to_string()))
            }
            Order::Usage(number) => Reply::Used(self.process(number)?.usage()),
            Order::CpuTime(number) => Reply::Real(self.process(number)?.cpu_s()),
            Order::EndedCpuTime => Reply::Real(process::ended_cpu_s()),
            Order::LastLines(number) => Reply::Text(Some(self.process(number)?.last_lines())),
            Order::Stop(number) => {
                drop(self.processes.remove(&number));
                Reply::Done
            }
            Order::Request { to, method, path } => {
                let (status, content) = to.request(&method, &path).unzip();
                return Ok((Reply::Number(status.map(u32::from)), content.unwrap_or_default()));
            }
            Order::Listens(server) => Reply::Answer(server.listens()),
            Order::RedisCalls(server) => Reply::Count(redis::calls(&server)),
            Order::LoadAverage => Reply::Real(machine::load_average()),
        };
        Ok((reply, Vec::new()))
    }

    fn process(&mut self, number: u32) -> Result<&mut MeasuredProcess, OrderError> {
        self.processes.get_mut(&number).ok_or(OrderError::NoProcess(number))
    }

    fn introduction(&self) -> Introduction {
        Introduction {
            version: env!("CARGO_PKG_VERSION").into(),
            egret: self.egret.clone(),
            here: self.here.clone(),
            scratch: self.scratch.clone(),
            user: machine::user(),
            machine: Machine::detect(),
            boot_id: machine::boot_id(),
            cores: affinity::cores(),
            load_average: machine::load_average(),
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> OrderError + '_ {
    |error| OrderError::Io(path.to_owned(), error)
}

fn remove(path: &Path) -> Result<Reply, OrderError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(OrderError::Io(path.to_owned(), error)),
        _ => Ok(Reply::Done),
    }
}

fn empty_directory(path: &Path) -> Result<Reply, OrderError> {
    remove(path)?;
    std::fs::create_dir_all(path).map(|()| Reply::Done).map_err(at(path))
}

fn read(path: &Path) -> Result<Vec<u8>, OrderError> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file.map_err(at(path))?,
    };
    let mut content = Vec::new();
    file.take(CONTENT_BYTES_MAX + 1).read_to_end(&mut content).map_err(at(path))?;
    if u64::try_from(content.len()).unwrap_or(u64::MAX) > CONTENT_BYTES_MAX {
        return Err(at(path)(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(content)
}

fn list(path: &Path) -> Result<Vec<String>, OrderError> {
    let entries = std::fs::read_dir(path).map_err(at(path))?.flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| !name.starts_with('.')).take(LIST_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_listed_read_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("turn");
        let mut executor = Executor::new("/egret".into(), root.path().into(), None);
        let mut done = |order: Order, content: &[u8]| executor.carry_out(order, content).unwrap();
        done(Order::EmptyDirectory(directory.clone()), b"");
        done(Order::Write(directory.join("a")), b"one");
        done(Order::Write(directory.join(".hidden")), b"two");
        std::fs::create_dir(directory.join("sub")).unwrap();
        let (reply, _) = done(Order::List(directory.clone()), b"");
        assert!(matches!(reply, Reply::Names(names) if names == ["a"]));
        assert_eq!(done(Order::Read(directory.join("a")), b"").1, b"one");
        assert_eq!(done(Order::Read(directory.join("none")), b"").1, b"");
        done(Order::EmptyDirectory(directory.clone()), b"");
        assert!(!directory.join("a").exists() && directory.exists());
        done(Order::Remove(directory.clone()), b"");
        done(Order::Remove(directory.clone()), b"");
        let error = executor.carry_out(Order::List(directory), b"").unwrap_err().to_string();
        assert!(error.contains("/turn: No such file"), "{error}");
        assert_eq!(
            executor.carry_out(Order::Ended(7), b"").unwrap_err().to_string(),
            "there is no process 7"
        );
    }
}
