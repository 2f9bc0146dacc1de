//! The service manager that has started the process, such as systemd: messages about the state, the watchdog,
//! and sockets that it listens on already.
//!
//! Without a service manager nothing here has an effect. The protocols are those of `sd_notify(3)` and
//! `sd_listen_fds(3)`.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use egret_gateway::Gateway;
use egret_message::ListenAddress;
use egret_net::listen;
use egret_settings::failure::Failure;
use listenfd::ListenFd;
use rustix::time::{ClockId, clock_gettime};

/// The watchdog is fed that often within its period, so one late answer of a worker is harmless.
const FEEDS_PER_PERIOD: u32 = 3;

/// Time beyond the drain that the service manager waits for the process to end.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Returns the listening sockets that the process was started with. They are used by the listeners of the
/// config that have the same address. Call it before any thread starts, since it changes the environment.
pub fn inherited_sockets() -> Result<Vec<TcpListener>, Failure> {
    let mut passed = ListenFd::from_env();
    let count = passed.len();
    let take = |number| match passed.take_unix_listener(number) {
        Ok(socket) => Ok(socket.map(|socket| TcpListener::from(OwnedFd::from(socket)))),
        Err(_) => passed.take_tcp_listener(number),
    };
    let sockets: Result<Vec<_>, _> = (0..count).map(take).collect();
    let sockets = sockets.map_err(|error| {
        let message = "the service manager has passed a socket that is no listener of TCP or a Unix socket";
        Failure::Misused(format!("{message}: {error}"))
    })?;
    Ok(sockets.into_iter().flatten().collect())
}

/// Logs the inherited sockets that no listener uses. Their clients would wait forever.
pub fn warn_unused(sockets: &[TcpListener], used: &[ListenAddress]) {
    for address in sockets.iter().filter_map(|socket| listen::address(socket).ok()) {
        if !used.contains(&address) {
            tracing::warn!(
                %address,
                "the service manager has passed a socket that no listener of the config uses: set `gateway.listen` or `control.listen` to this address"
            );
        }
    }
}

/// The way to the service manager.
#[derive(Debug, Clone, Default)]
pub struct Supervisor {
    socket: Option<Arc<(UnixDatagram, UnixAddress)>>,
}

impl Supervisor {
    /// Finds the service manager by the environment.
    pub fn from_env() -> Self {
        let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Self::default();
        };
        match connect(&path) {
            Ok(socket) => Self { socket: Some(Arc::new(socket)) },
            Err(error) => {
                tracing::warn!(%error, ?path, "cannot report to the service manager");
                Self::default()
            }
        }
    }

    /// Reports that the gateway listens.
    pub fn ready(&self) {
        self.send("READY=1\nSTATUS=Serving");
    }

    /// Reports that a reload has begun. [`reloaded`](Self::reloaded) ends it.
    pub fn reloading(&self) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_us()));
    }

    /// Reports that a reload has ended.
    pub fn reloaded(&self, is_applied: bool) {
        let status = if is_applied { "Serving" } else { "Serving; the last config was refused, see the log" };
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports that the gateway drains, for at most this long; 0 has no limit but the service manager's own.
    pub fn stopping(&self, drain: egret_config::Duration) {
        let within_us = drain.get().saturating_add(STOP_GRACE).as_micros();
        let extend =
            if drain.is_zero() { String::new() } else { format!("\nEXTEND_TIMEOUT_USEC={within_us}") };
        self.send(&format!("STOPPING=1\nSTATUS=Draining{extend}"));
    }

    /// Reports that another process has taken over. From now on the service manager follows that one.
    pub fn replaced(&self, pid: i32) {
        self.send(&format!("MAINPID={pid}\nSTATUS=Serving"));
    }

    /// Feeds the watchdog, if the service manager has one, as long as every worker handles its messages. The
    /// thread ends with the process.
    #[expect(clippy::disallowed_methods, reason = "the thread has nothing else to do between two feeds")]
    pub fn watch(&self, gateway: &Arc<Gateway>) -> io::Result<()> {
        let Some(period) = watchdog_period().filter(|_| self.socket.is_some()) else { return Ok(()) };
        let (supervisor, gateway) = (self.clone(), Arc::clone(gateway));
        let feed = move || {
            loop {
                let pulse = gateway.pulse();
                std::thread::sleep(period / FEEDS_PER_PERIOD);
                if pulse.is_answered() {
                    supervisor.send("WATCHDOG=1");
                } else {
                    tracing::warn!("a worker does not respond: the watchdog is not fed");
                }
            }
        };
        std::thread::Builder::new().name("egret-watchdog".into()).spawn(feed).map(drop)
    }

    fn send(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        let (socket, address) = &**socket;
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::debug!(%error, "the service manager receives no messages");
        }
    }
}

/// Opens a socket to the address, which is a path, or `@` and an abstract name.
fn connect(path: &OsStr) -> io::Result<(UnixDatagram, UnixAddress)> {
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not stop the gateway.
    socket.set_nonblocking(true)?;
    let address = match path.as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => <UnixAddress as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)?,
        _ => UnixAddress::from_pathname(path)?,
    };
    Ok((socket, address))
}

/// The period of the watchdog, if there is one for this process.
fn watchdog_period() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let is_own = number("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|period_us| *period_us > 0 && is_own).map(Duration::from_micros)
}

/// The system's monotonic clock, by which the service manager orders a reload and the command that asked for
/// it.
fn monotonic_us() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000)
}
