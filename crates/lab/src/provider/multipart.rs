//! Parses `multipart/form-data` (RFC 7578) in memory.

use std::fmt;

use super::query::Values;

/// Maximum number of parts in a form.
const PARTS_MAX: usize = 1_000;

/// A form: fields and files, each by field name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    pub fields: Values,
    pub files: Values,
}

/// The reason why a form is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormError {
    /// Content-Type has no boundary.
    NoBoundary,
    /// The final boundary is missing, or a part has no head.
    Broken,
    /// The form has too many parts.
    TooManyParts,
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBoundary => f.write_str("no multipart boundary param in Content-Type"),
            Self::Broken => f.write_str("the multipart content is broken or ends early"),
            Self::TooManyParts => write!(f, "more than {PARTS_MAX} parts"),
        }
    }
}

/// Parses the content of a message with this Content-Type.
pub(super) fn parse(content_type: &str, content: &[u8]) -> Result<Form, FormError> {
    let boundary = parameter(content_type, "boundary").filter(|boundary| !boundary.is_empty());
    let delimiter = format!("--{}", boundary.ok_or(FormError::NoBoundary)?).into_bytes();
    let mut form = Form::default();
    let mut rest = &content[find(content, &delimiter).ok_or(FormError::Broken)? + delimiter.len()..];
    let end = [b"\r\n".as_slice(), &delimiter].concat();
    for _ in 0..=PARTS_MAX {
        if rest.starts_with(b"--") {
            return Ok(form);
        }
        let part = rest.strip_prefix(b"\r\n").ok_or(FormError::Broken)?;
        let length = find(part, &end).ok_or(FormError::Broken)?;
        form.add(&part[..length])?;
        rest = &part[length + end.len()..];
    }
    Err(FormError::TooManyParts)
}

impl Form {
    fn add(&mut self, part: &[u8]) -> Result<(), FormError> {
        let head_end = find(part, b"\r\n\r\n").ok_or(FormError::Broken)?;
        let head = String::from_utf8_lossy(&part[..head_end]);
        let is_disposition = |line: &&str| {
            line.get(..20).is_some_and(|name| name.eq_ignore_ascii_case("content-disposition:"))
        };
        let disposition = head.split("\r\n").find(is_disposition).unwrap_or_default();
        // A part without a name is not a field and is skipped.
        if let Some(name) = parameter(disposition, "name") {
            let kind =
                if parameter(disposition, "filename").is_some() { &mut self.files } else { &mut self.fields };
            let value = String::from_utf8_lossy(&part[head_end + 4..]).into_owned();
            kind.entry(name).or_default().push(value);
        }
        Ok(())
    }
}

/// The value of a field's parameter, without quotes.
fn parameter(field: &str, name: &str) -> Option<String> {
    field.split(';').skip(1).find_map(|parameter| {
        let (found, value) = parameter.split_once('=')?;
        found.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"').to_owned())
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=\"xx\"";

    #[test]
    fn fields_and_files_are_told_apart() {
        let content = b"preamble\r\n--xx\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--xx\r\n\
            content-disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain\r\n\r\nline\r\nline\r\n--xx\r\n\
            Content-Disposition: form-data; name=\"a\"\r\n\r\n\r\n--xx--\r\n";
        let form = parse(TYPE, content).unwrap();
        assert_eq!(form.fields["a"], ["1", ""]);
        assert_eq!(form.files["f"], ["line\r\nline"]);
    }

    #[test]
    fn what_is_broken_is_refused() {
        assert_eq!(parse("multipart/form-data", b"x"), Err(FormError::NoBoundary));
        for content in [&b"x"[..], b"--xx", b"--xx\r\n\r\n", b"--xx\r\nno head\r\n--xx--", b"--xxjunk"] {
            assert_eq!(parse(TYPE, content), Err(FormError::Broken), "{content:?}");
        }
        let many = b"--xx\r\n\r\n\r\n\r\n".repeat(PARTS_MAX + 1);
        assert_eq!(parse(TYPE, &[&many[..], b"--xx--"].concat()), Err(FormError::TooManyParts));
    }
}
