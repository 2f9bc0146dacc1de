//! The gateway's descriptors, by what they refer to.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use egret_tests::process::Process;
use egret_tests::sockets::{self, TcpSocket};

/// The server to which exporters keep a connection, for as long as it does.
pub(crate) const COLLECTOR: &str = "the collector";

/// The kinds of descriptors.
#[derive(Debug)]
struct Kinds<'a> {
    /// Names of servers by their ports.
    servers: &'a [(u16, &'static str)],
    /// Ports at which the process listens.
    own: Vec<u16>,
    sockets: HashMap<String, TcpSocket>,
}

/// Counts the descriptors of a process by kind. `servers` has the names of those that it calls.
pub(crate) fn by_kind(process: &Process, servers: &[(u16, &'static str)]) -> BTreeMap<String, u64> {
    let kinds = Kinds { servers, own: process.listening_ports(), sockets: sockets::all() };
    let mut counts = BTreeMap::new();
    for file in process.open_files() {
        *counts.entry(kinds.of(&file)).or_default() += 1;
    }
    counts
}

/// The kind of the connections to this server.
pub(crate) fn connections_to(server: &str) -> String {
    format!("connections to {server}")
}

impl Kinds<'_> {
    /// The kind of a descriptor by its file, as `Process::open_files` has it.
    fn of(&self, file: &str) -> String {
        if let Some(number) = file.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) {
            return self.of_socket(self.sockets.get(number));
        }
        // Files that are rotated have another name later, and each pipe has a number of its own.
        let directory = Path::new(file).parent().filter(|_| file.starts_with('/'));
        let name = file.strip_prefix("pipe:").map_or(file, |_| "pipes");
        directory.map_or_else(|| name.to_owned(), |directory| format!("files in {}", directory.display()))
    }

    fn of_socket(&self, socket: Option<&TcpSocket>) -> String {
        let Some(socket) = socket else { return "sockets without a connection".to_owned() };
        if socket.listens {
            return "listeners".to_owned();
        }
        if self.own.contains(&socket.port) {
            return "connections of clients".to_owned();
        }
        let server = self.servers.iter().find(|(port, _)| *port == socket.peer_port);
        server.map_or_else(
            || connections_to(&format!("port {}", socket.peer_port)),
            |(_, name)| connections_to(name),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_told_apart_by_their_files() {
        let socket = |port, peer_port, listens| TcpSocket { port, peer_port, listens };
        let sockets = [
            ("1", socket(8000, 0, true)),
            ("2", socket(8000, 50_000, false)),
            ("3", socket(50_001, 9000, false)),
            ("4", socket(50_002, 9001, false)),
        ];
        let kinds = Kinds {
            servers: &[(9000, COLLECTOR)],
            own: vec![8000],
            sockets: sockets.map(|(number, socket)| (number.to_owned(), socket)).into(),
        };
        for (file, kind) in [
            ("socket:[1]", "listeners"),
            ("socket:[2]", "connections of clients"),
            ("socket:[3]", "connections to the collector"),
            ("socket:[4]", "connections to port 9001"),
            ("socket:[5]", "sockets without a connection"),
            ("/a/har/1.har", "files in /a/har"),
            ("/a/har/2.har (deleted)", "files in /a/har"),
            ("pipe:[77]", "pipes"),
            ("anon_inode:[eventpoll]", "anon_inode:[eventpoll]"),
        ] {
            assert_eq!(kinds.of(file), kind, "{file}");
        }
    }
}
