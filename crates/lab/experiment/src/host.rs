//! The machine on which a part of an experiment runs: this one, or another one that is reached through ssh.
//!
//! Either way the same orders are carried out by the same code. On another machine it is part of an agent,
//! `egret lab agent`, which ends with its connection.

mod agent;
mod executor;
mod frame;
mod order;
mod quote;
mod ssh;

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use agent::serve;
pub(crate) use order::Introduction;

use crate::config::{MachineConfig, MachinesConfig};
use crate::http::Server;
use crate::process::{Launch, Usage};
use executor::{Executor, OrderError};
use order::{Order, Reply};
use ssh::{SshConnection, SshError};

/// Interval between checks of the processes on this machine.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The same for another machine, on which each check takes CPU time.
const LOOK_AGAIN_REMOTELY: Duration = Duration::from_millis(250);

/// The reason why a host did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    /// The order failed on this machine.
    #[error("{0}")]
    Order(OrderError),
    /// The order failed on another machine: name of the machine, and the reason.
    #[error("on {0}: {1}")]
    Remote(String, String),
    /// The other machine cannot be reached, or no longer.
    #[error("{0}: {1}")]
    Connection(String, SshError),
    /// The other machine sent a reply that does not fit the order.
    #[error("{0}: the reply does not fit the order")]
    Reply(String),
    /// A file of the other machine cannot be stored here.
    #[error("{0}: {1}")]
    Store(PathBuf, io::Error),
}

/// The machine of a part.
#[derive(Debug)]
pub(crate) struct Host {
    /// Name for messages: `the machine of the proxy (me@there)`.
    name: String,
    /// Name or address under which the other parts reach it.
    pub address: String,
    /// Address on which the part listens.
    pub listen: IpAddr,
    /// Description of the machine.
    pub about: Introduction,
    link: RefCell<Link>,
}

#[derive(Debug)]
enum Link {
    Local(Executor),
    Remote(SshConnection),
}

/// The machines of all parts.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// The load client's.
    pub client: Host,
    /// The proxy's.
    pub proxy: Host,
    /// The provider's.
    pub provider: Host,
}

impl Hosts {
    /// Connects to all machines. `egret` is Egret's program on this one, and `here` the directory of the
    /// experiment's file.
    pub fn connect(machines: &MachinesConfig, egret: &Path, here: &Path) -> Result<Self, HostError> {
        let here_by_default = MachineConfig::default();
        let open = |part: &str, machine: &Option<MachineConfig>| {
            Host::connect(part, machine.as_ref().unwrap_or(&here_by_default), egret, here)
        };
        Ok(Self {
            client: open("client", &machines.client)?,
            proxy: open("proxy", &machines.proxy)?,
            provider: open("provider", &machines.provider)?,
        })
    }

    /// The machines with the names of their parts.
    pub fn all(&self) -> [(&'static str, &Host); 3] {
        [("client", &self.client), ("proxy", &self.proxy), ("provider", &self.provider)]
    }

    /// Interval between checks of the processes.
    pub fn look_again(&self) -> Duration {
        let remote = self.all().iter().any(|(_, host)| host.is_remote());
        if remote { LOOK_AGAIN_REMOTELY } else { LOOK_AGAIN }
    }
}

impl Host {
    fn connect(part: &str, machine: &MachineConfig, egret: &Path, here: &Path) -> Result<Self, HostError> {
        let (name, link) = match &machine.ssh {
            Some(ssh) => {
                let name = format!("the machine of the {part} ({ssh})");
                let opened = SshConnection::open(machine, egret);
                (name.clone(), Link::Remote(opened.map_err(|error| HostError::Connection(name, error))?))
            }
            None => ("this machine".into(), Link::Local(Executor::new(egret.into(), here.into(), None))),
        };
        let link = RefCell::new(link);
        let Reply::Introduction(about) = ask(&name, &link, Order::Introduce, b"")?.0 else {
            return Err(HostError::Reply(name));
        };
        if about.scratch.is_some() != machine.ssh.is_some() {
            return Err(HostError::Reply(name));
        }
        Ok(Self { address: machine.address().into(), listen: machine.listen(), name, about: *about, link })
    }

    /// Returns `true` for another machine.
    pub fn is_remote(&self) -> bool {
        self.about.scratch.is_some()
    }

    fn ask(&self, order: Order) -> Result<Reply, HostError> {
        Ok(ask(&self.name, &self.link, order, b"")?.0)
    }

    fn unfitting<T>(&self) -> Result<T, HostError> {
        Err(HostError::Reply(self.name.clone()))
    }

    /// Prepares the directory for the files of a turn and returns it. On this machine it is the turn's folder
    /// in the results.
    pub fn begin_turn(&self, folder: &Path) -> Result<PathBuf, HostError> {
        let Some(scratch) = &self.about.scratch else { return Ok(folder.to_owned()) };
        self.empty_directory(scratch)?;
        Ok(scratch.clone())
    }

    /// Copies the files in a directory, without its subdirectories, to a folder of this machine. Does nothing
    /// if they are there already.
    pub fn fetch(&self, directory: &Path, folder: &Path) -> Result<(), HostError> {
        if !self.is_remote() {
            return Ok(());
        }
        let Reply::Names(names) = self.ask(Order::List(directory.to_owned()))? else {
            return self.unfitting();
        };
        let stored = |path: &Path, done: io::Result<()>| {
            done.map_err(|error| HostError::Store(path.to_owned(), error))
        };
        stored(folder, std::fs::create_dir_all(folder))?;
        for name in names {
            // The other machine must not choose where files are written.
            if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
                return self.unfitting();
            }
            let (path, content) = (folder.join(&name), self.read(&directory.join(&name))?);
            stored(&path, std::fs::write(&path, content))?;
        }
        Ok(())
    }

    /// Creates a directory, and deletes what was in it.
    pub fn empty_directory(&self, path: &Path) -> Result<(), HostError> {
        self.ask(Order::EmptyDirectory(path.to_owned())).map(drop)
    }

    /// Writes a file.
    pub fn write(&self, path: &Path, content: &[u8]) -> Result<(), HostError> {
        ask(&self.name, &self.link, Order::Write(path.to_owned()), content).map(drop)
    }

    /// Reads a file; empty if there is none.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>, HostError> {
        Ok(ask(&self.name, &self.link, Order::Read(path.to_owned()), b"")?.1)
    }

    /// Finds a program: a path relative to the experiment's file (on another machine, to its directory), or a
    /// name in PATH.
    pub fn locate(&self, program: &str) -> Result<Option<PathBuf>, HostError> {
        let order = Order::Locate { program: program.into(), here: self.about.here.clone() };
        match self.ask(order)? {
            Reply::Path(path) => Ok(path),
            _ => self.unfitting(),
        }
    }

    /// The version of a program, if it prints one.
    pub fn version(&self, program: &Path) -> Result<Option<String>, HostError> {
        self.text(Order::Version(program.to_owned()))
    }

    /// A free port.
    pub fn free_port(&self) -> Result<Option<u16>, HostError> {
        match self.ask(Order::FreePort(self.listen))? {
            Reply::Number(port) => Ok(port.and_then(|port| u16::try_from(port).ok())),
            _ => self.unfitting(),
        }
    }

    /// Sends a request from this host. Returns status code and content, or `None` without a response.
    pub fn request(
        &self,
        to: &Server,
        method: &str,
        path: &str,
    ) -> Result<Option<(u16, Vec<u8>)>, HostError> {
        let order = Order::Request { to: to.clone(), method: method.into(), path: path.into() };
        match ask(&self.name, &self.link, order, b"")? {
            (Reply::Number(status), content) => {
                Ok(status.and_then(|status| u16::try_from(status).ok()).map(|status| (status, content)))
            }
            _ => self.unfitting(),
        }
    }

    /// Returns `true` if a server accepts connections from this host.
    pub fn reaches(&self, server: &Server) -> Result<bool, HostError> {
        match self.ask(Order::Listens(server.clone()))? {
            Reply::Answer(answer) => Ok(answer),
            _ => self.unfitting(),
        }
    }

    /// Number of calls that a Redis server has received; `None` if it does not answer.
    pub fn redis_calls(&self, server: &Server) -> Result<Option<u64>, HostError> {
        match self.ask(Order::RedisCalls(server.clone()))? {
            Reply::Count(count) => Ok(count),
            _ => self.unfitting(),
        }
    }

    /// CPU time of all processes that have ended.
    pub fn ended_cpu_s(&self) -> Result<f64, HostError> {
        self.real(Order::EndedCpuTime)
    }

    /// Starts a process.
    pub fn start(&self, launch: Launch) -> Result<HostProcess<'_>, HostError> {
        let name = launch.name.clone();
        match self.ask(Order::Start(launch))? {
            Reply::Number(Some(number)) => Ok(HostProcess { host: self, name, number }),
            _ => self.unfitting(),
        }
    }

    fn text(&self, order: Order) -> Result<Option<String>, HostError> {
        match self.ask(order)? {
            Reply::Text(text) => Ok(text),
            _ => self.unfitting(),
        }
    }

    fn real(&self, order: Order) -> Result<f64, HostError> {
        match self.ask(order)? {
            Reply::Real(real) => Ok(real),
            _ => self.unfitting(),
        }
    }
}

/// Has an order carried out.
fn ask(
    name: &str,
    link: &RefCell<Link>,
    order: Order,
    content: &[u8],
) -> Result<(Reply, Vec<u8>), HostError> {
    match &mut *link.borrow_mut() {
        Link::Local(executor) => executor.carry_out(order, content).map_err(HostError::Order),
        Link::Remote(connection) => match connection.order(&order, content) {
            Ok((Reply::Failed(why), _)) => Err(HostError::Remote(name.into(), why)),
            reply => reply.map_err(|error| HostError::Connection(name.into(), error)),
        },
    }
}

/// A running program with its children. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct HostProcess<'a> {
    host: &'a Host,
    name: String,
    number: u32,
}

impl HostProcess<'_> {
    /// Name used in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The exit status, if the process has ended.
    pub fn ended(&self) -> Result<Option<String>, HostError> {
        self.host.text(Order::Ended(self.number))
    }

    /// Resources used so far.
    pub fn usage(&self) -> Result<Usage, HostError> {
        match self.host.ask(Order::Usage(self.number))? {
            Reply::Used(usage) => Ok(usage),
            _ => self.host.unfitting(),
        }
    }

    /// CPU time only, which is cheaper to read.
    pub fn cpu_s(&self) -> Result<f64, HostError> {
        self.host.real(Order::CpuTime(self.number))
    }

    /// The last lines of its output, indented for a message.
    pub fn last_lines(&self) -> String {
        let lines = self.host.text(Order::LastLines(self.number));
        lines.ok().flatten().unwrap_or_else(|| "    (no output)".into())
    }
}

impl Drop for HostProcess<'_> {
    fn drop(&mut self) {
        // If the connection is lost, the agent ends the process by itself.
        let _ = self.host.ask(Order::Stop(self.number));
    }
}
