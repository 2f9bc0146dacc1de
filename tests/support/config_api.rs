//! A client of the paths of the control port that read and change the config's files.

use serde_json::Value;

use crate::egret::Egret;
use crate::http::{Client, Response};

/// A client with the token that Egret created at its start.
#[derive(Debug)]
pub struct ConfigApi<'a> {
    egret: &'a Egret,
    token: String,
}

impl<'a> ConfigApi<'a> {
    /// Reads the token in the data directory, as the owner of Egret's files can.
    pub fn of(egret: &'a Egret) -> Self {
        let file = egret.directory().path().join("egret-data/control-token");
        let token = std::fs::read_to_string(file).unwrap().trim_end().to_owned();
        Self { egret, token }
    }

    /// The token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Sends a request with these field lines and this content.
    pub fn call(&self, line: &str, fields: &str, content: &str) -> Response {
        self.offer(line, fields, content).response()
    }

    /// Sends the request without waiting for the response.
    pub fn offer(&self, line: &str, fields: &str, content: &str) -> Client {
        let (host, token, length) = (self.egret.control(), &self.token, content.len());
        let mut client = Client::connect(host);
        client.offer(format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Length: {length}\r\n{fields}\r\n{content}"
        ));
        client
    }

    /// The tag over the config's files.
    pub fn etag(&self) -> String {
        let response = self.call("GET /api/v1/config/files", "", "");
        response.field("etag").unwrap().to_owned()
    }

    /// Replaces the config file, if it is as it is now.
    pub fn put(&self, text: &str) -> Response {
        self.call("PUT /api/v1/config/files/egret.yaml", &format!("If-Match: {}\r\n", self.etag()), text)
    }

    /// Checks a text.
    pub fn validate(&self, text: &str) -> Value {
        self.call("POST /api/v1/config/validate", "", text).json()
    }

    /// The versions, the newest first.
    pub fn versions(&self) -> Vec<Value> {
        self.call("GET /api/v1/config/versions", "", "").json()["versions"].as_array().unwrap().clone()
    }

    /// Returns to a version.
    pub fn roll_back(&self, version: u64) -> Response {
        self.call(&format!("POST /api/v1/config/rollback?version={version}"), "", "")
    }
}
