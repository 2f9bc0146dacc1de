//! The TCP sockets of this network namespace, by the system's tables.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};

/// The tables of `proc_net_tcp(5)`.
const TABLES: [&str; 2] = ["tcp", "tcp6"];
/// The state of a socket that listens.
const LISTEN: &str = "0A";

/// A TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSocket {
    /// Its own port.
    pub port: u16,
    /// The port at the other end; 0 if it listens.
    pub peer_port: u16,
    /// `true` if it listens.
    pub listens: bool,
}

/// All sockets by their number, as the names of descriptors have it: `socket:[4026]`.
pub fn all() -> HashMap<String, TcpSocket> {
    TABLES.into_iter().flat_map(rows).collect()
}

/// The number and the port of each socket that listens. They are the first rows of a table. Those of
/// connections, of which there can be thousands, are not read.
pub(crate) fn listening() -> impl Iterator<Item = (String, u16)> {
    let rows = TABLES.into_iter().flat_map(|table| rows(table).take_while(|(_, socket)| socket.listens));
    rows.map(|(number, socket)| (number, socket.port))
}

fn rows(table: &str) -> impl Iterator<Item = (String, TcpSocket)> {
    let file = File::open(format!("/proc/net/{table}")).ok().map(BufReader::new);
    let rows = file.into_iter().flat_map(|file| file.lines().map_while(Result::ok).skip(1));
    rows.map_while(|row| {
        let columns: Vec<&str> = row.split_ascii_whitespace().collect();
        let port = |column: usize| u16::from_str_radix(columns.get(column)?.rsplit(':').next()?, 16).ok();
        let socket = TcpSocket { port: port(1)?, peer_port: port(2)?, listens: *columns.get(3)? == LISTEN };
        Some(((*columns.get(9)?).to_owned(), socket))
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;
    use crate::wait;

    #[test]
    fn both_ends_of_a_connection_are_listed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let own = stream.local_addr().unwrap().port();
        let ends = [
            TcpSocket { port, peer_port: 0, listens: true },
            TcpSocket { port: own, peer_port: port, listens: false },
        ];
        // The system skips rows now and then while others come and go.
        wait::until_true("both ends are listed", || {
            let sockets: Vec<TcpSocket> = all().into_values().collect();
            ends.iter().all(|end| sockets.contains(end))
        });
        wait::until_true("the port is listed", || listening().any(|(_, listens)| listens == port));
    }
}
