//! A reader of live traffic: its list, its details and its stream.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::config_api::ConfigApi;
use crate::egret::Egret;
use crate::http::Response;
use crate::wait::{self, DEADLINE};

/// A client with the token that Egret created at its start.
#[derive(Debug)]
pub struct LiveTraffic<'a> {
    egret: &'a Egret,
    api: ConfigApi<'a>,
}

/// The stream of exchanges.
#[derive(Debug)]
pub struct TrafficLines(BufReader<TcpStream>);

impl<'a> LiveTraffic<'a> {
    /// Opens live traffic: exchanges are recorded from now on, by all workers.
    pub fn open(egret: &'a Egret) -> Self {
        let traffic = Self { egret, api: ConfigApi::of(egret) };
        assert_eq!(traffic.get("").status, 200);
        // A worker opens it with its next message, which no response tells.
        wait::until_true("workers record exchanges", || {
            egret.client().get(egret.address(), "/no-such-provider/").response();
            traffic.list("error=unknown-provider")["exchanges"].as_array().unwrap().len() >= 3
        });
        traffic
    }

    /// Sends a GET for a path below that of live traffic.
    pub fn get(&self, path: &str) -> Response {
        self.api.call(&format!("GET /api/v1/traffic{path}"), "", "")
    }

    /// The list with this filter.
    pub fn list(&self, query: &str) -> Value {
        let response = self.get(&format!("?{query}"));
        assert_eq!(response.status, 200, "{query}: {}", response.text());
        response.json()
    }

    /// The exchanges with this filter, the newest first.
    pub fn exchanges(&self, query: &str) -> Vec<Value> {
        self.list(query)["exchanges"].as_array().unwrap().clone()
    }

    /// Waits until this many exchanges meet the filter, and returns them.
    pub fn until(&self, query: &str, count: usize) -> Vec<Value> {
        wait::until(&format!("{count} exchanges meet `{query}`"), || {
            Some(self.exchanges(query)).filter(|found| found.len() == count)
        })
    }

    /// The details of an exchange.
    pub fn details(&self, exchange: &Value) -> Value {
        let response = self.get(&format!("/{}", exchange["id"]));
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()
    }

    /// Reads the stream with this filter.
    pub fn stream(&self, query: &str) -> TrafficLines {
        self.stream_over(TcpStream::connect(self.egret.control()).unwrap(), query)
    }

    /// Does the same over a connection that has hardly any room for what is not read yet.
    pub fn narrow_stream(&self, query: &str) -> TrafficLines {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&self.egret.control().into()).unwrap();
        self.stream_over(socket.into(), query)
    }

    fn stream_over(&self, mut stream: TcpStream, query: &str) -> TrafficLines {
        let host = self.egret.control();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = format!(
            "GET /api/v1/traffic/stream?{query} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.api.token()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut lines = TrafficLines(BufReader::new(stream));
        assert!(lines.text().ends_with("200 OK\r\n"));
        while lines.text() != "\r\n" {}
        lines
    }
}

impl TrafficLines {
    fn text(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// The next line; `None` at the end.
    pub fn next_line(&mut self) -> Option<Value> {
        let line = self.text();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}")))
    }

    /// The next line of this type.
    pub fn until(&mut self, kind: &str) -> Value {
        loop {
            let line = self.next_line().unwrap_or_else(|| panic!("the stream ended before a line {kind}"));
            if line["type"] == kind {
                return line;
            }
        }
    }
}
