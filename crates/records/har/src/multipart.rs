//! Parses multipart bodies (RFC 2046 §5.1, RFC 7578) strictly. A malformed body is not treated as multipart.

/// Maximum number of parts.
const PARTS_MAX: usize = 1024;

/// Maximum number of header fields of a part.
const FIELDS_MAX: usize = 32;

/// The header fields and content of a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FormPart<'a> {
    pub(crate) fields: Vec<(&'a str, &'a str)>,
    pub(crate) content: &'a [u8],
}

/// Parses the parts of a body. Returns `None` if it is malformed or exceeds the limits. The preamble and
/// epilogue are ignored.
pub(crate) fn parts<'a>(body: &'a [u8], boundary: &str) -> Option<Vec<FormPart<'a>>> {
    let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
    // The first delimiter may be at the very beginning, without a line end before it.
    let first = &delimiter[2..];
    let mut rest = match body.strip_prefix(first) {
        Some(rest) => rest,
        None => after(body, &delimiter)?.1,
    };
    let mut parts = Vec::new();
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            let line = end.split(|byte| *byte == b'\r').next()?;
            return line.iter().all(|byte| matches!(byte, b' ' | b'\t')).then_some(parts);
        }
        let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let (part, next) = after(&rest[padding..], &delimiter)?;
        parts.push(read(part.strip_prefix(b"\r\n")?)?);
        if parts.len() > PARTS_MAX {
            return None;
        }
        rest = next;
    }
}

/// Returns the text before and after the first `delimiter`.
fn after<'a>(text: &'a [u8], delimiter: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(delimiter.len()).position(|window| window == delimiter)?;
    Some((&text[..at], &text[at + delimiter.len()..]))
}

/// Parses header fields, an empty line, and the content.
fn read(mut rest: &[u8]) -> Option<FormPart<'_>> {
    let mut fields = Vec::new();
    loop {
        if let Some(content) = rest.strip_prefix(b"\r\n") {
            return Some(FormPart { fields, content });
        }
        let (line, next) = after(rest, b"\r\n")?;
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        fields.push((name, value.trim()));
        if fields.len() > FIELDS_MAX {
            return None;
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found() {
        let body = b"preamble\r\n--b \r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\ny\r\n--b\r\n\r\n\r\n--b--\r\nepilogue";
        assert_eq!(
            parts(body, "b").unwrap(),
            [
                FormPart {
                    fields: vec![("Content-Disposition", "form-data; name=\"a\"")],
                    content: b"x\r\ny"
                },
                FormPart { fields: vec![], content: b"" },
            ]
        );
        assert_eq!(parts(b"--b--", "b").unwrap(), []);
    }

    #[test]
    fn what_is_not_well_formed_has_no_parts() {
        for body in [
            &b""[..],
            b"--b",
            b"--b\r\n",
            b"--b\r\n\r\nx",
            b"--b\r\n\r\nx\r\n--b",
            b"--bc\r\n\r\nx\r\n--b--",
            b"--b\n\nx\n--b--",
            b"--b\r\nno colon\r\n\r\nx\r\n--b--",
            b"--b\r\na: b\r\nx\r\n--b--",
            b"--b\r\na: \xff\r\n\r\nx\r\n--b--",
            b"--b--x",
        ] {
            assert_eq!(parts(body, "b"), None, "{body:?}");
        }
    }
}
