//! The `Connection` field: connection options of a message (RFC 9110 §7.6.1, RFC 9112 §9).

use super::error::HeadError;
use super::fields::Field;
use super::known::KnownField;
use super::version::Version;
use crate::syntax::list;

/// Maximum number of options in all `Connection` lines of a head. Bounds the search for nominated fields.
pub const MAX_CONNECTION_OPTIONS: usize = 64;

/// The combined content of the `Connection` lines.
#[derive(Copy, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one option, and they are independent")]
pub(super) struct ConnectionOptions {
    pub close: bool,
    pub keep_alive: bool,
    pub upgrade: bool,
    /// `true` if an option nominates an unknown field; known hop-by-hop fields need no nomination.
    nominates: bool,
    options: usize,
}

impl ConnectionOptions {
    /// Parses one `Connection` line.
    pub fn read(&mut self, value: &[u8]) -> Result<(), HeadError> {
        // Almost always the value is exactly one of these.
        if value == b"keep-alive" || value == b"Keep-Alive" {
            self.keep_alive = true;
        } else if value == b"close" {
            self.close = true;
        } else {
            return self.read_list(value);
        }
        self.count()
    }

    fn count(&mut self) -> Result<(), HeadError> {
        self.options += 1;
        if self.options > MAX_CONNECTION_OPTIONS { Err(HeadError::TooManyConnectionOptions) } else { Ok(()) }
    }

    #[inline(never)]
    fn read_list(&mut self, value: &[u8]) -> Result<(), HeadError> {
        for option in list(value) {
            self.count()?;
            if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else {
                self.nominates |= KnownField::of(option).may_be_nominated();
            }
        }
        Ok(())
    }

    /// Marks the fields that the `Connection` lines nominate.
    pub fn mark_nominated(&self, buffer: &[u8], fields: &mut [Field]) {
        if self.nominates {
            mark_nominated(buffer, fields);
        }
    }

    /// Returns `true` if the sender keeps the connection open after this message (RFC 9112 §9.3).
    pub fn is_persistent(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

#[cold]
fn mark_nominated(buffer: &[u8], fields: &mut [Field]) {
    for at in 0..fields.len() {
        if fields[at].known != KnownField::Connection {
            continue;
        }
        for option in list(fields[at].value.of(buffer)) {
            for field in fields.iter_mut().filter(|field| field.known.may_be_nominated()) {
                field.hop_by_hop |= field.name.of(buffer).eq_ignore_ascii_case(option);
            }
        }
    }
}
