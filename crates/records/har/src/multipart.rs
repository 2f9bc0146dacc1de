//! Parses multipart bodies (RFC 2046 §5.1, RFC 7578) strictly. A malformed body is not treated as multipart.

/// Maximum number of parts of a recorded body.
const PARTS_MAX: usize = 1024;

/// Maximum number of header fields of a part.
const FIELDS_MAX: usize = 32;

/// The header fields and content of a part whose head is text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FormPart<'a> {
    pub(crate) fields: Vec<(&'a str, &'a str)>,
    pub(crate) content: &'a [u8],
}

/// The header fields and content of a part, as received.
#[derive(Debug, PartialEq, Eq)]
pub struct RawPart<'a> {
    /// Names and values, without the colon and the line end.
    pub fields: Vec<(&'a [u8], &'a [u8])>,
    /// The bytes after the empty line.
    pub content: &'a [u8],
}

/// The reason why a body is not accepted as multipart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MultipartError {
    /// The final delimiter is missing, or a part has no head.
    #[error("the multipart content is broken or ends early")]
    Malformed,
    /// The body has more parts than this.
    #[error("more than {0} parts")]
    TooManyParts(usize),
}

/// Parses the parts of a body. Returns `None` if it is malformed, if a head is not text, or if the body
/// exceeds the limits.
pub(crate) fn parts<'a>(body: &'a [u8], boundary: &str) -> Option<Vec<FormPart<'a>>> {
    read(body, boundary, PARTS_MAX).ok()?.into_iter().map(FormPart::of).collect()
}

impl<'a> FormPart<'a> {
    fn of(part: RawPart<'a>) -> Option<Self> {
        let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).ok();
        let fields = part.fields.into_iter().map(|(name, value)| Some((text(name)?, text(value)?.trim())));
        Some(Self { fields: fields.collect::<Option<_>>()?, content: part.content })
    }
}

/// Parses the parts of a body, at most `parts_max`. The preamble and epilogue are ignored.
pub fn read<'a>(
    body: &'a [u8],
    boundary: &str,
    parts_max: usize,
) -> Result<Vec<RawPart<'a>>, MultipartError> {
    let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
    // The first delimiter may be at the very beginning, without a line end before it.
    let first = &delimiter[2..];
    let mut rest = match body.strip_prefix(first) {
        Some(rest) => rest,
        None => after(body, &delimiter).ok_or(MultipartError::Malformed)?.1,
    };
    let mut parts = Vec::new();
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            let line = end.split(|byte| *byte == b'\r').next().unwrap_or_default();
            let is_blank = line.iter().all(|byte| matches!(byte, b' ' | b'\t'));
            return if is_blank { Ok(parts) } else { Err(MultipartError::Malformed) };
        }
        if parts.len() == parts_max {
            return Err(MultipartError::TooManyParts(parts_max));
        }
        let (part, next) = next_part(rest, &delimiter).ok_or(MultipartError::Malformed)?;
        parts.push(part);
        rest = next;
    }
}

/// Parses the part after a delimiter, and returns the text after the delimiter that ends it.
fn next_part<'a>(rest: &'a [u8], delimiter: &[u8]) -> Option<(RawPart<'a>, &'a [u8])> {
    let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let (part, next) = after(&rest[padding..], delimiter)?;
    Some((fields_and_content(part.strip_prefix(b"\r\n")?)?, next))
}

/// Returns the text before and after the first `delimiter`.
fn after<'a>(text: &'a [u8], delimiter: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(delimiter.len()).position(|window| window == delimiter)?;
    Some((&text[..at], &text[at + delimiter.len()..]))
}

/// Parses header fields, an empty line, and the content.
fn fields_and_content(mut rest: &[u8]) -> Option<RawPart<'_>> {
    let mut fields = Vec::new();
    loop {
        if let Some(content) = rest.strip_prefix(b"\r\n") {
            return Some(RawPart { fields, content });
        }
        let (line, next) = after(rest, b"\r\n")?;
        let colon = line.iter().position(|byte| *byte == b':')?;
        fields.push((&line[..colon], &line[colon + 1..]));
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
    fn a_malformed_body_has_no_parts() {
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

    #[test]
    fn heads_that_are_not_text_and_limits_are_left_to_the_caller() {
        let body = b"--b\r\na: \xff\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--";
        let found = read(body, "b", 2).unwrap();
        assert_eq!(
            found,
            [
                RawPart { fields: vec![(b"a", b" \xff")], content: b"x" },
                RawPart { fields: vec![], content: b"y" },
            ]
        );
        assert_eq!(read(body, "b", 1), Err(MultipartError::TooManyParts(1)));
        assert_eq!(read(b"--b\r\n", "b", 1), Err(MultipartError::Malformed));
    }
}
