//! Parses `multipart/form-data` (RFC 7578) in memory.

use egret_har::multipart::{self, MultipartError, RawPart};

use crate::query::Values;

/// Maximum number of parts in a form.
const PARTS_MAX: usize = 1_000;

/// A form: fields and files, each by field name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub fields: Values,
    pub files: Values,
}

/// The reason why a form is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormError {
    /// Content-Type has no boundary.
    #[error("no multipart boundary param in Content-Type")]
    NoBoundary,
    /// The content is malformed or has too many parts.
    #[error("{0}")]
    Content(MultipartError),
}

/// Parses the content of a message with this Content-Type.
pub(crate) fn parse(content_type: &str, content: &[u8]) -> Result<Form, FormError> {
    let boundary = parameter(content_type, "boundary").filter(|boundary| !boundary.is_empty());
    let boundary = boundary.ok_or(FormError::NoBoundary)?;
    let mut form = Form::default();
    for part in multipart::read(content, &boundary, PARTS_MAX).map_err(FormError::Content)? {
        form.add(&part);
    }
    Ok(form)
}

impl Form {
    fn add(&mut self, part: &RawPart<'_>) {
        let is_disposition = |name: &[u8]| name.eq_ignore_ascii_case(b"content-disposition");
        let disposition = part.fields.iter().find(|(name, _)| is_disposition(name));
        let disposition = disposition.map(|(_, value)| String::from_utf8_lossy(value)).unwrap_or_default();
        // A part without a name is not a field and is skipped.
        if let Some(name) = parameter(&disposition, "name") {
            let kind = if parameter(&disposition, "filename").is_some() {
                &mut self.files
            } else {
                &mut self.fields
            };
            kind.entry(name).or_default().push(String::from_utf8_lossy(part.content).into_owned());
        }
    }
}

/// The value of a field's parameter, without quotes.
fn parameter(field: &str, name: &str) -> Option<String> {
    field.split(';').skip(1).find_map(|parameter| {
        let (found, value) = parameter.split_once('=')?;
        found.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"').to_owned())
    })
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
    fn a_malformed_form_is_refused() {
        assert_eq!(parse("multipart/form-data", b"x"), Err(FormError::NoBoundary));
        let malformed = Err(FormError::Content(MultipartError::Malformed));
        for content in [&b"x"[..], b"--xx", b"--xx\r\n\r\n", b"--xx\r\nno head\r\n--xx--", b"--xxjunk"] {
            assert_eq!(parse(TYPE, content), malformed, "{content:?}");
        }
        let many = b"--xx\r\n\r\n\r\n\r\n".repeat(PARTS_MAX + 1);
        let error = parse(TYPE, &[&many[..], b"--xx--"].concat()).unwrap_err();
        assert_eq!(error.to_string(), "more than 1000 parts");
        assert_eq!(parse(TYPE, &[&many[12..], b"--xx--"].concat()).map(|form| form.fields.len()), Ok(0));
    }

    #[test]
    fn names_that_are_not_text_are_shown_as_far_as_they_are() {
        let content = b"--xx\r\nContent-Disposition: form-data; name=\"\xe4\"\r\n\r\n\xff\r\n--xx--";
        assert_eq!(parse(TYPE, content).unwrap().fields["\u{fffd}"], ["\u{fffd}"]);
    }
}
