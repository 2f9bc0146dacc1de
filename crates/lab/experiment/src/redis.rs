//! The number of calls that a Redis server has received.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};

use crate::http::Server;

/// Maximum length of the reply to `INFO stats`. Redis 7 sends 2 KiB.
const INFO_BYTES_MAX: u64 = 64 << 10;

/// Returns how often the server has read from its clients. A call is read at once, however many commands it
/// has, unless it is long. The question itself counts as a call. `None` without an answer of Redis.
pub(crate) fn calls(server: &Server) -> Option<u64> {
    let mut stream = server.connect()?;
    stream.write_all(b"INFO stats\r\n").ok()?;
    let mut reader = BufReader::new(stream.take(INFO_BYTES_MAX));
    let mut head = String::new();
    reader.read_line(&mut head).ok()?;
    let length: u64 = head.strip_prefix('$')?.trim_end().parse().ok()?;
    let mut info = String::new();
    reader.take(length).read_to_string(&mut info).ok()?;
    parse(&info)
}

fn parse(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("total_reads_processed:")?.trim_end().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn the_reads_are_taken_from_the_statistics() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = Server::at(IpAddr::V4(Ipv4Addr::LOCALHOST), listener.local_addr().unwrap().port());
        let answering = std::thread::spawn(move || {
            for reply in ["$47\r\n# Stats\r\ntotal_reads_processed:12\r\nexpired:0\r\n\r\n", "-NOAUTH\r\n"] {
                let (stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream);
                let mut asked = String::new();
                reader.read_line(&mut asked).unwrap();
                assert_eq!(asked, "INFO stats\r\n");
                reader.get_mut().write_all(reply.as_bytes()).unwrap();
            }
        });
        assert_eq!([calls(&server), calls(&server)], [Some(12), None]);
        answering.join().unwrap();
    }
}
