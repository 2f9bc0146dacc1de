//! A small server: behind servers that pass requests on, it records what they have sent; for clients, it is a
//! provider of any bytes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::record::{self, Record, Records};

/// Bound on a line and on a body, far above what messages have.
const MAX: u64 = 1 << 20;

/// The silence after which a response ends with its connection, if nothing else ends it.
const QUIET: Duration = Duration::from_millis(150);

/// Bytes that it sends in response to the target `/qN-r`, by N.
#[derive(Debug, Clone, Default)]
pub(crate) struct Responses(Arc<Mutex<HashMap<u64, Vec<u8>>>>);

impl Responses {
    /// Replaces all.
    pub(crate) fn set(&self, responses: HashMap<u64, Vec<u8>>) {
        *self.0.lock().unwrap() = responses;
    }

    fn of(&self, target: &[u8]) -> Option<(u64, Vec<u8>)> {
        let number = record::mark(target.strip_suffix(b"-r").map(|_| target)?)?;
        self.0.lock().unwrap().get(&number).map(|bytes| (number, bytes.clone()))
    }
}

/// Starts the server, on a thread for each connection, and returns its address.
pub(crate) fn start(records: &Records, responses: &Responses) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (records, responses) = (records.clone(), responses.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (records, responses) = (records.clone(), responses.clone());
            std::thread::spawn(move || serve(&stream, &records, &responses));
        }
    });
    address
}

fn serve(stream: &TcpStream, records: &Records, responses: &Responses) {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    let _ = stream.set_nodelay(true);
    while let Some(head) = head(&mut reader) {
        if head.value("expect").is_some() {
            let _ = writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        let Some(body) = body(&mut reader, &head) else { return };
        if let Some((number, bytes)) = responses.of(&head.target) {
            // One in two ends with its connection, the others if the client sends no other request.
            let _ = stream.set_read_timeout(Some(QUIET));
            if writer.write_all(&bytes).is_err() || number.is_multiple_of(2) {
                return;
            }
            continue;
        }
        let name = head.value("x-case").or_else(|| head.target.strip_prefix(b"/")).unwrap_or_default();
        let name: Vec<u8> =
            name.iter().copied().filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'-').collect();
        let content: &[u8] = if head.method == b"HEAD" { b"" } else { b"ok\n" };
        let start = &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nx-echo: "[..];
        let response = [start, &name, b"\r\n\r\n", content].concat();
        let is_kept = head.is_kept;
        records.add(Record::new(&head.method, &head.target, head.fields, &body));
        if writer.write_all(&response).is_err() || !is_kept {
            return;
        }
    }
}

struct Head {
    method: Vec<u8>,
    target: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// `false` if the connection ends with the response.
    is_kept: bool,
}

impl Head {
    fn value(&self, name: &str) -> Option<&[u8]> {
        let field = self.fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()));
        field.map(|(_, value)| &value[..])
    }
}

/// Reads a line with its CRLF, and returns it without.
fn line(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    reader.take(MAX).read_until(b'\n', &mut line).ok()?;
    line.strip_suffix(b"\r\n").map(<[u8]>::to_vec)
}

fn head(reader: &mut impl BufRead) -> Option<Head> {
    let start = line(reader)?;
    let mut parts = start.splitn(2, |byte| *byte == b' ');
    let method = parts.next()?.to_vec();
    let rest = parts.next()?;
    let target = rest.strip_suffix(b" HTTP/1.1").or_else(|| rest.strip_suffix(b" HTTP/1.0"))?.to_vec();
    let mut head = Head { method, target, fields: Vec::new(), is_kept: rest.ends_with(b" HTTP/1.1") };
    loop {
        let line = line(reader)?;
        if line.is_empty() {
            let options = head.value("connection").unwrap_or_default().to_ascii_lowercase();
            head.is_kept &= memchr::memmem::find(&options, b"close").is_none();
            return Some(head);
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        head.fields.push((line[..colon].to_vec(), line[colon + 1..].trim_ascii().to_vec()));
    }
}

fn body(reader: &mut impl BufRead, head: &Head) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    if head.value("transfer-encoding").is_some() {
        loop {
            let size = line(reader)?;
            let size =
                u64::from_str_radix(std::str::from_utf8(&size).ok()?, 16).ok().filter(|size| *size < MAX)?;
            if size == 0 {
                while !line(reader)?.is_empty() {}
                return Some(body);
            }
            exactly(reader, size, &mut body)?;
            line(reader)?;
        }
    }
    let length = std::str::from_utf8(head.value("content-length").unwrap_or(b"0")).ok()?.parse().ok()?;
    exactly(reader, length, &mut body)?;
    Some(body)
}

fn exactly(reader: &mut impl BufRead, length: u64, into: &mut Vec<u8>) -> Option<()> {
    let read = reader.take(length.min(MAX)).read_to_end(into).ok()?;
    (read as u64 == length).then_some(())
}
