//! Values of responses and of secrets in JSON, as text.

use egret_config::FetchedSecret;
use egret_json::pointer::Pointers;
use egret_json::write_escaped;
use zeroize::Zeroizing;

/// Returns the value at a pointer (RFC 6901) as it is written; `None` if there is none, and for a text that
/// is not JSON, or has the name twice.
fn raw_at<'t>(text: &'t [u8], pointer: &str) -> Option<&'t [u8]> {
    Pointers::new([pointer]).find(text)?.pop()?
}

/// Returns the object at a pointer as it is written.
pub fn object_at(text: &[u8], pointer: &str) -> Option<Zeroizing<String>> {
    let object = raw_at(text, pointer).filter(|object| object.starts_with(b"{"))?;
    Some(Zeroizing::new(str::from_utf8(object).ok()?.to_owned()))
}

/// Returns the string at a pointer.
pub fn text_at(text: &[u8], pointer: &str) -> Option<Zeroizing<String>> {
    serde_json::from_slice(raw_at(text, pointer)?).ok().map(Zeroizing::new)
}

/// Returns the one of these words that is at a pointer.
pub fn word_at(text: &[u8], pointer: &str, words: &[&'static str]) -> Option<&'static str> {
    let found = text_at(text, pointer)?;
    // AWS may put a name space before it.
    let word = found.rsplit('#').next()?;
    words.iter().find(|known| **known == word).copied()
}

/// Returns a field of a secret: a string as it is meant, any other value as it is written.
///
/// # Errors
///
/// Fails if the secret is not an object in JSON, if it has no such field or several, and if the field is
/// `null`.
pub fn field(secret: &str, name: &str) -> FetchedSecret {
    let missing = || Err(format!("the secret is not JSON with one field `{name}`"));
    let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    let is_object = secret.trim_ascii_start().starts_with('{');
    let Some(raw) = raw_at(secret.as_bytes(), &pointer).filter(|raw| is_object && *raw != b"null") else {
        return missing();
    };
    let text = if raw.starts_with(b"\"") {
        serde_json::from_slice(raw).ok()
    } else {
        str::from_utf8(raw).ok().map(str::to_owned)
    };
    text.map_or_else(missing, |text| Ok(Zeroizing::new(text)))
}

/// Returns an object with these members.
pub fn object(members: &[(&str, &str)]) -> Zeroizing<Vec<u8>> {
    // An escaped byte takes six at most. All memory is allocated at once: growing would leave a copy of a
    // secret behind.
    let bytes_max: usize = members.iter().map(|(name, value)| 6 * (name.len() + value.len()) + 6).sum();
    let mut object = Zeroizing::new(Vec::with_capacity(bytes_max + 2));
    for (number, (name, value)) in members.iter().enumerate() {
        object.extend_from_slice(if number == 0 { b"{\"" } else { b",\"" });
        write_escaped(name.as_bytes(), &mut object);
        object.extend_from_slice(b"\":\"");
        write_escaped(value.as_bytes(), &mut object);
        object.push(b'"');
    }
    object.push(b'}');
    object
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_field_is_read_as_text() {
        let secret = r#" {"a":"x\n\u00e9","b/~":"y","n":1.50,"t":true,"o":{"k": [1]},"z":null,"d":1,"d":2} "#;
        for (name, value) in
            [("a", "x\né"), ("b/~", "y"), ("n", "1.50"), ("t", "true"), ("o", r#"{"k": [1]}"#)]
        {
            assert_eq!(&**field(secret, name).unwrap(), value, "{name}");
        }
        for (secret, name) in [
            (secret, "none"),
            (secret, "z"),
            (secret, "d"),
            (secret, ""),
            ("hunter2", "a"),
            ("\"hunter2\"", "a"),
            ("[\"hunter2\"]", "0"),
            ("{\"a\":\"hunter2\"", "a"),
        ] {
            let error = field(secret, name).unwrap_err();
            assert_eq!(error, format!("the secret is not JSON with one field `{name}`"), "{secret}");
        }
    }

    proptest! {
        #[test]
        fn any_field_comes_back_as_text(name in "[^\u{0}]{1,12}", value: String, other: String) {
            prop_assume!(name != "other");
            let secret = object(&[(&name, &value), ("other", &other)]);
            let secret = str::from_utf8(&secret).unwrap();
            prop_assert_eq!(field(secret, &name).unwrap().to_string(), value);
            prop_assert_eq!(text_at(secret.as_bytes(), "/other").unwrap().to_string(), other);
        }

        #[test]
        fn any_bytes_are_a_response_or_none(bytes: Vec<u8>, text in "[{}\\[\\]\",:a\\\\ 01]{0,24}") {
            for bytes in [&*bytes, text.as_bytes()] {
                let found = [text_at(bytes, "/a"), object_at(bytes, "/a/a")];
                prop_assert!(found.into_iter().flatten().all(|found| found.len() <= bytes.len()));
                let _ = word_at(bytes, "/a", &["a"]);
            }
        }
    }
}
