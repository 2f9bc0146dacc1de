//! What the cache of the first flow says of itself.

use serde_json::Value;

use crate::egret::Egret;
use crate::http::{Client, Response};
use crate::wait::until_true;

/// The first flow, with a cache of these keys alone.
pub fn flow(cache: &str) -> String {
    format!("flows: [ {{ name: all, remedies: [ {{ cache: {cache} }} ] }} ]\n")
}

/// A `200` that a provider gives, with its length.
pub fn answer(fields: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// One figure, by JSON pointer: `counts/hit`, `disk/entries`.
pub fn figure(egret: &Egret, pointer: &str) -> u64 {
    let (flows, at) = shown(egret, pointer);
    flows.pointer(&at).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {at} in {flows}"))
}

fn shown(egret: &Egret, pointer: &str) -> (Value, String) {
    (egret.control_get("/api/v1/flows").json(), format!("/flows/0/remedies/0/cache/{pointer}"))
}

/// Waits until it is known what is on the disk.
pub fn until_open(egret: &Egret) {
    until_true("the disk is open", || {
        let (flows, at) = shown(egret, "disk/is_open");
        flows.pointer(&at) == Some(&Value::Bool(true))
    });
}

/// Waits until so many answers have been written since it started.
pub fn until_written(egret: &Egret, count: u64) {
    until_true("it is written", || figure(egret, "disk/writes") >= count);
}

/// What `Cache-Status` says.
pub fn status(answer: &Response) -> &str {
    answer.field("cache-status").unwrap_or_else(|| panic!("no Cache-Status: {answer:?}"))
}

/// Has the control port purge.
pub fn purge(egret: &Egret, query: &str) -> Value {
    let request = format!(
        "POST /api/v1/cache/purge?{query} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        egret.control()
    );
    Client::connect(egret.control()).send(request).response().json()
}
