//! The `Via` field of this instance.

use egret_http1::Version;

/// The name of this instance in `Via` (RFC 9110 §7.6.3). A request that carries the name has come back in a
/// loop.
#[derive(Debug)]
pub struct Via {
    name: Box<[u8]>,
    /// The whole line for a message received as HTTP/1.0, as HTTP/1.1, and as HTTP/2.
    lines: [Box<[u8]>; 3],
}

impl Via {
    /// Creates the lines of an instance called `name`, which must be a token.
    pub fn new(name: &str) -> Self {
        let line = |version| format!("Via: {version} {name}\r\n").into_bytes().into_boxed_slice();
        Self { name: name.as_bytes().into(), lines: [line("1.0"), line("1.1"), line("2.0")] }
    }

    /// Returns the line for a message of that version, or one that arrived in HTTP/2 and was translated.
    pub fn line(&self, version: Version, is_http2: bool) -> &[u8] {
        match version {
            _ if is_http2 => &self.lines[2],
            Version::Http10 => &self.lines[0],
            Version::Http11 => &self.lines[1],
        }
    }

    /// Returns `true` if `value`, a `Via` field, names this instance.
    pub fn is_in(&self, value: &[u8]) -> bool {
        memchr::memmem::find(value, &self.name).is_some()
    }
}
