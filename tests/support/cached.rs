//! Reads and controls the cache of the first flow.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::egret::Egret;
use crate::http::{Client, Response, find};
use crate::wait::{DEADLINE, until_true};

/// Returns the YAML of a first flow with a cache that has these keys.
pub fn flow(cache: &str) -> String {
    format!("flows: [ {{ name: all, remedies: [ {{ cache: {cache} }} ] }} ]\n")
}

/// Returns a `200` response of a provider, with its length.
pub fn ok_response(fields: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Returns one figure, by JSON pointer: `counts/hit`, `disk/entries`.
pub fn figure(egret: &Egret, pointer: &str) -> u64 {
    let (flows, at) = shown(egret, pointer);
    flows.pointer(&at).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {at} in {flows}"))
}

fn shown(egret: &Egret, pointer: &str) -> (Value, String) {
    (egret.control_get("/api/v1/flows").json(), format!("/flows/0/remedies/0/cache/{pointer}"))
}

/// Waits until the content of the disk is known.
pub fn until_open(egret: &Egret) {
    until_true("the disk is open", || {
        let (flows, at) = shown(egret, "disk/is_open");
        flows.pointer(&at) == Some(&Value::Bool(true))
    });
}

/// Waits until `count` responses were written since the start.
pub fn until_written(egret: &Egret, count: u64) {
    until_true("it is written", || figure(egret, "disk/writes") >= count);
}

/// Returns the value of `Cache-Status`.
pub fn status(response: &Response) -> &str {
    response.field("cache-status").unwrap_or_else(|| panic!("no Cache-Status: {response:?}"))
}

/// Purges through the control port.
pub fn purge(egret: &Egret, query: &str) -> Value {
    let request = format!(
        "POST /api/v1/cache/purge?{query} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        egret.control()
    );
    Client::connect(egret.control()).send(request).response().json()
}

/// Opens a client with a small window. It requests a path of `origin`, reads 200 bytes of the response and
/// then stops. At 200 bytes per second, which no timeout limits, the rest would take hours.
pub fn slow(address: SocketAddr, path: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    write!(stream, "GET /origin{path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.read_exact(&mut [0; 200]).unwrap();
    stream
}

/// Requests a path and reads the body. Returns the bytes received and how the body ended.
pub fn taken(address: SocketAddr, path: &str) -> (usize, &'static str) {
    let mut stream = TcpStream::connect(address).unwrap();
    // HTTP/1.0, so the count contains no framing.
    write!(stream, "GET /origin{path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let (mut received, mut piece) = (Vec::new(), vec![0; 256 << 10]);
    let ended = loop {
        match stream.read(&mut piece) {
            Ok(0) => break "an orderly end",
            Ok(count) => received.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break "nothing more came";
            }
            Err(_) => break "a reset",
        }
    };
    let start = String::from_utf8_lossy(&received[..received.len().min(300)]);
    assert!(start.starts_with("HTTP/1.1 200 "), "{start:?}");
    let head = find(&received, b"\r\n\r\n").expect("a whole head") + 4;
    (received.len() - head, ended)
}
