//! Parses media types (RFC 9110 §8.3.1).

/// Syntax of a body, by its media type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `multipart/form-data` and similar, with this boundary.
    Multipart(String),
    /// Unknown syntax: the body is treated as one value.
    Opaque,
}

/// Maximum length of a boundary (RFC 2046 §5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;

/// Returns the syntax of bodies of a media type.
pub(crate) fn syntax(media_type: &str) -> Syntax {
    let essence = essence(media_type).to_ascii_lowercase();
    match &*essence {
        "application/json" | "text/json" => Syntax::Json,
        "application/x-www-form-urlencoded" => Syntax::Form,
        _ if essence.ends_with("+json") => Syntax::Json,
        _ if essence.starts_with("multipart/") => parameters(media_type)
            .find(|(name, _)| name.eq_ignore_ascii_case("boundary"))
            .map(|(_, value)| value)
            .filter(|boundary| (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len()))
            .map_or(Syntax::Opaque, Syntax::Multipart),
        _ => Syntax::Opaque,
    }
}

/// Returns the type and subtype, without parameters.
pub(crate) fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// Returns the parameters after the first semicolon, with values unquoted.
pub(crate) fn parameters(text: &str) -> impl Iterator<Item = (String, String)> {
    let mut rest = text.split_once(';').map_or("", |(_, rest)| rest);
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start_matches([' ', '\t', ';']);
            if rest.is_empty() {
                return None;
            }
            let end = rest.find(['=', ';']).unwrap_or(rest.len());
            let name = rest[..end].trim().to_owned();
            let Some(after) = rest[end..].strip_prefix('=') else {
                rest = &rest[end..];
                continue;
            };
            let (value, after) = value(after);
            rest = after;
            return Some((name, value));
        }
    })
}

/// Splits off a parameter's value, unquoted. Also returns the text after it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim().to_owned(), &text[end..]);
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, letter) in quoted.char_indices() {
        match letter {
            '"' if !is_escaped => return (value, &quoted[at + 1..]),
            '\\' if !is_escaped => is_escaped = true,
            _ => {
                value.push(letter);
                is_escaped = false;
            }
        }
    }
    (value, "")
}

/// Returns `true` if a text is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_says_how_values_are_found() {
        for (media_type, expected) in [
            ("application/json", Syntax::Json),
            ("Application/JSON; charset=utf-8", Syntax::Json),
            ("application/problem+json", Syntax::Json),
            ("application/x-www-form-urlencoded;charset=UTF-8", Syntax::Form),
            ("multipart/form-data; boundary=\"a b\\\"c\"", Syntax::Multipart("a b\"c".to_owned())),
            ("multipart/form-data; charset=a; Boundary=--x ; y=z", Syntax::Multipart("--x".to_owned())),
            ("multipart/form-data", Syntax::Opaque),
            ("application/jsonp", Syntax::Opaque),
            ("text/plain; a=application/json", Syntax::Opaque),
            ("", Syntax::Opaque),
        ] {
            assert_eq!(syntax(media_type), expected, "{media_type}");
        }
    }
}
