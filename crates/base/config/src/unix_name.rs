//! Users and groups of the system, by their name or their number.

use std::fmt;
use std::io;
use std::str::FromStr;

use nix::unistd::{Group, User};

use crate::text_value;

/// Maximum length of a name, in bytes: that of the system's.
const NAME_BYTES_MAX: usize = 256;

/// A user or a group of the system: its number, or its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnixName {
    /// The number.
    Id(u32),
    /// The name, which the system resolves.
    Name(String),
}

/// The reason why a [`UnixName`] cannot be read, or has no number.
#[derive(Debug, thiserror::Error)]
pub enum UnixNameError {
    /// It is no name.
    #[error("expected a name or a number of the system, like `checkout` or 1001")]
    NoName,
    /// The system does not know it.
    #[error("this machine has no {kind} `{name}`: write the name of one, or its number")]
    Unknown {
        /// `user` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The system does not respond.
    #[error("the {kind} `{name}` cannot be looked up: {error}")]
    LookUp {
        /// `user` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The error of the system.
        error: io::Error,
    },
}

impl UnixName {
    /// Returns the number of the user. Asks the system for that of a name, which may block.
    ///
    /// # Errors
    ///
    /// Fails if the system does not know the name or does not respond.
    pub fn user(&self) -> Result<u32, UnixNameError> {
        self.number("user", |name| Ok(User::from_name(name)?.map(|user| user.uid.as_raw())))
    }

    /// Returns the number of the group. Asks the system for that of a name, which may block.
    ///
    /// # Errors
    ///
    /// Fails if the system does not know the name or does not respond.
    pub fn group(&self) -> Result<u32, UnixNameError> {
        self.number("group", |name| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw())))
    }

    fn number(
        &self,
        kind: &'static str,
        look_up: impl FnOnce(&str) -> io::Result<Option<u32>>,
    ) -> Result<u32, UnixNameError> {
        let name = match self {
            Self::Id(id) => return Ok(*id),
            Self::Name(name) => name,
        };
        match look_up(name) {
            Ok(Some(id)) => Ok(id),
            Ok(None) => Err(UnixNameError::Unknown { kind, name: name.clone() }),
            Err(error) => Err(UnixNameError::LookUp { kind, name: name.clone(), error }),
        }
    }
}

impl FromStr for UnixName {
    type Err = UnixNameError;

    fn from_str(text: &str) -> Result<Self, UnixNameError> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        // The system's files separate fields by colons. A number that is too large is no name.
        let is_plain = |char: char| !char.is_control() && char != ':' && !char.is_whitespace();
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number || text.len() > NAME_BYTES_MAX || !text.chars().all(is_plain) {
            return Err(UnixNameError::NoName);
        }
        Ok(Self::Name(text.to_owned()))
    }
}

impl fmt::Display for UnixName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

text_value!(
    UnixName or number,
    "a name or a number of the system, like `checkout` or 1001",
    schemars::json_schema!({
        "description": "A name or a number of the system, like `checkout` or 1001.",
        "type": ["string", "integer"],
        "minimum": 0,
        "maximum": u32::MAX,
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_a_number_is_read_and_written() {
        for (json, expected) in [
            ("1001", UnixName::Id(1001)),
            ("\"1001\"", UnixName::Id(1001)),
            ("\"www-data\"", UnixName::Name("www-data".to_owned())),
        ] {
            let read: UnixName = serde_json::from_str(json).unwrap();
            assert_eq!(read, expected, "{json}");
            assert_eq!(serde_json::to_string(&read).unwrap(), format!("\"{expected}\""));
        }
        for text in ["", "a b", "a:b", "a\n", "4294967296", &"x".repeat(257)] {
            assert!(text.parse::<UnixName>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<UnixName>("-1").is_err());
    }

    #[test]
    fn the_system_tells_the_number_of_a_name() {
        let name = |text: &str| text.parse::<UnixName>().unwrap();
        assert_eq!((name("root").user().unwrap(), name("7").group().unwrap()), (0, 7));
        let unknown = name("egret-no-such-name");
        assert!(unknown.user().unwrap_err().to_string().contains("no user `egret-no-such-name`"));
        assert!(unknown.group().unwrap_err().to_string().contains("no group `egret-no-such-name`"));
    }
}
