//! Orders to a machine that takes part in an experiment, and its replies. A message may be followed by
//! content, such as a file's.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::http::Server;
use crate::machine::Machine;
use crate::process::{Launch, Usage};

/// An order.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Describe the machine.
    Introduce,
    /// Create a directory, and delete what was in it.
    EmptyDirectory(PathBuf),
    /// Write the content to a file.
    Write(PathBuf),
    /// Return the content of a file; empty if there is no such file.
    Read(PathBuf),
    /// Return the names of the regular files in a directory, without hidden ones.
    List(PathBuf),
    /// Delete a directory with its content.
    Remove(PathBuf),
    /// Find a program.
    Locate {
        /// Name or path.
        program: String,
        /// The directory that a path is relative to.
        here: PathBuf,
    },
    /// Return a program's version.
    Version(PathBuf),
    /// Return a free port of this address.
    FreePort(IpAddr),
    /// Start a process.
    Start(Launch),
    /// Return the exit status of a process, if it has ended.
    Ended(u32),
    /// Return the resources that a process has used.
    Usage(u32),
    /// Return the CPU time of a process, in seconds.
    CpuTime(u32),
    /// Return the CPU time of all processes that have ended, in seconds.
    EndedCpuTime,
    /// Return the last lines of a process's output.
    LastLines(u32),
    /// End a process.
    Stop(u32),
    /// Send a request without content to a server.
    Request {
        /// The server.
        to: Server,
        /// The method.
        method: String,
        /// Path and query.
        path: String,
    },
    /// Check that a server accepts connections.
    Listens(Server),
    /// Return the number of calls that a Redis server has received.
    RedisCalls(Server),
    /// Return the load average.
    LoadAverage,
}

/// A reply.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// The order was carried out.
    Done,
    /// Description of the machine.
    Introduction(Box<Introduction>),
    /// Names of files.
    Names(Vec<String>),
    /// Path of a program.
    Path(Option<PathBuf>),
    /// A version, an exit status, or lines of output.
    Text(Option<String>),
    /// A port, a process, or a status code.
    Number(Option<u32>),
    /// A number of calls.
    Count(Option<u64>),
    /// Used resources.
    Used(Usage),
    /// A time in seconds, or a load average.
    Real(f64),
    /// The answer to a question.
    Answer(bool),
    /// The order could not be carried out.
    Failed(String),
}

/// Description of a machine and of Egret on it.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct Introduction {
    /// Egret's version.
    pub version: String,
    /// Egret's program.
    pub egret: PathBuf,
    /// The directory that paths of programs are relative to.
    pub here: PathBuf,
    /// An empty directory for the files of a turn, if they are not in the results folder.
    pub scratch: Option<PathBuf>,
    /// The user who runs the processes.
    pub user: String,
    /// The machine.
    pub machine: Machine,
    /// Identifies the running system, so that two roles on one machine get different cores.
    pub boot_id: String,
    /// The cores that the processes may use.
    pub cores: Vec<usize>,
    /// Load average now.
    pub load_average: f64,
}
