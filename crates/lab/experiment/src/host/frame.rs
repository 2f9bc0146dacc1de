//! Messages on the connection to another machine: a line of JSON, then the content whose length it states.

use std::io::{self, BufRead, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum length of a line.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Maximum length of the content: oha prints a line for each request.
pub(crate) const CONTENT_BYTES_MAX: u64 = 256 << 20;

/// The line of a message.
#[derive(Debug, Deserialize, Serialize)]
struct FrameLine<T> {
    message: T,
    /// Length of the content that follows, in bytes.
    #[serde(default)]
    content: u64,
}

/// Writes a message.
pub(crate) fn write(output: &mut impl Write, message: &impl Serialize, content: &[u8]) -> io::Result<()> {
    let line = FrameLine { message, content: u64::try_from(content.len()).unwrap_or(u64::MAX) };
    let mut bytes = serde_json::to_vec(&line)?;
    bytes.push(b'\n');
    output.write_all(&bytes)?;
    output.write_all(content)?;
    output.flush()
}

/// Reads a message. Returns `None` at the end of the connection.
pub(crate) fn read<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<(T, Vec<u8>)>> {
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was cut off or is too long"));
    }
    let FrameLine { message, content: length } = serde_json::from_slice(&line)?;
    if length > CONTENT_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the content of a message is too long"));
    }
    let mut content = Vec::new();
    input.take(length).read_to_end(&mut content)?;
    if u64::try_from(content.len()).is_ok_and(|received| received < length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((message, content)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_arrive_as_they_were_sent(sent in prop::collection::vec((".{0,20}", prop::collection::vec(any::<u8>(), 0..40)), 0..5)) {
            let mut wire = Vec::new();
            for (message, content) in &sent {
                write(&mut wire, message, content).unwrap();
            }
            let mut input = wire.as_slice();
            let mut received = Vec::new();
            while let Some(message) = read::<String>(&mut input).unwrap() {
                received.push(message);
            }
            prop_assert_eq!(received, sent);
        }
    }

    #[test]
    fn a_message_that_is_cut_off_or_too_long_is_an_error() {
        let error = |bytes: &[u8]| read::<String>(&mut &*bytes).unwrap_err().to_string();
        assert!(error(b"{\"message\":\"a\"").contains("cut off"));
        assert!(error(b"{\"message\":\"a\",\"content\":9}\nshort").contains("unexpected end of file"));
        assert!(error(b"{\"message\":\"a\",\"content\":999999999999}\n").contains("too long"));
        assert!(error(b"{\"message\":1}\n").contains("expected a string"));
    }
}
