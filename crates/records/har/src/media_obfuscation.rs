//! Obfuscates media types (RFC 9110 §8.3.1).

use crate::key::Key;
use crate::media::{essence, is_token, parameters};
use crate::names::may_reveal_value;

/// Obfuscates a media type. Type, subtype and `charset` are kept; the values of other parameters are
/// obfuscated, including the boundary of a multipart body.
pub(crate) fn obfuscate(key: &Key, media_type: &str) -> String {
    let essence = essence(media_type);
    if essence.is_empty() {
        return if media_type.trim().is_empty() {
            String::new()
        } else {
            key.text(media_type.as_bytes()).to_string()
        };
    }
    // Some recorders write types without a slash, such as `x-unknown`.
    if essence.len() > 100 || !essence.split('/').all(is_token) || may_reveal_value(essence) {
        return key.text(media_type.as_bytes()).to_string();
    }
    let mut text = essence.to_owned();
    for (name, value) in parameters(media_type) {
        if !is_token(&name) || may_reveal_value(&name) {
            continue;
        }
        let is_charset = name.eq_ignore_ascii_case("charset") && is_token(&value) && value.len() <= 20;
        let value = if is_charset { value } else { key.text(value.as_bytes()).to_string() };
        text.push_str("; ");
        text.push_str(&name);
        text.push('=');
        text.push_str(&value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_and_its_charset_stay() {
        let key = Key::new(&[1; 32]);
        let x = key.text(b"x");
        for (media_type, expected) in [
            ("application/json", "application/json".to_owned()),
            ("text/html;charset=\"utf-8\" ; q", "text/html; charset=utf-8".to_owned()),
            ("multipart/form-data; boundary=x", format!("multipart/form-data; boundary={x}")),
            ("", String::new()),
            ("x-unknown", "x-unknown".to_owned()),
            ("text/plain; charsetAHMAcwB3AG8AcgBkACIAOgAiAHggABAA9I=x; q=x", format!("text/plain; q={x}")),
        ] {
            assert_eq!(obfuscate(&key, media_type), expected);
        }
        assert!(!obfuscate(&key, "my secret/text").contains("secret"));
        assert!(!obfuscate(&key, "; a=secret").contains("secret"));
    }
}
