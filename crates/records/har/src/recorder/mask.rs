//! Redacts single values of an exchange for outputs other than HAR, by the rules of a recording.

use super::decoded;
use super::redaction::Redaction;
use crate::har::NameValue;
use crate::key::Key;
use crate::obfuscate::Message;
use crate::recording::Recording;

/// Redacts values as a recording does: equal values have the same pseudonym in both.
#[derive(Debug)]
pub struct Mask {
    redaction: Redaction,
}

impl Mask {
    /// Returns a mask with the rules of `recording` and this key.
    pub fn new(key: Key, recording: &Recording) -> Self {
        Self { redaction: Redaction::new(key, recording) }
    }

    /// Redacts the path and query of a URL. Segments are kept if `declared` accepts their position and text.
    pub fn target(&self, target: &[u8], declared: impl Fn(usize, &str) -> bool) -> String {
        let target = decoded(target);
        let Redaction::Obfuscated(obfuscator) = &self.redaction else {
            let mut target = target.into_owned();
            self.redaction.url(&mut target, &mut []);
            return target;
        };
        let (path, query) =
            target.split_once('?').map_or((&*target, None), |(path, query)| (path, Some(query)));
        let mut told = String::with_capacity(target.len());
        // A path without a leading slash has no segments that can be declared.
        let (root, segments) = path.strip_prefix('/').map_or(("", path), |segments| ("/", segments));
        told.push_str(root);
        for (place, segment) in segments.split('/').enumerate() {
            if place > 0 {
                told.push('/');
            }
            let is_declared = !root.is_empty() && declared(place, segment);
            match obfuscator.segment(place, segment).filter(|_| !is_declared) {
                Some(hidden) => told.push_str(hidden.as_str()),
                None => told.push_str(segment),
            }
        }
        for (place, parameter) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
            told.push(if place > 0 { '&' } else { '?' });
            told.push_str(&obfuscator.url_parameter(parameter));
        }
        told
    }

    /// Redacts the value of a header field.
    pub fn field(&self, message: Message, name: &str, value: &[u8]) -> String {
        let mut field = NameValue::new(name.to_owned(), decoded(value).into_owned());
        self.redaction.field(message, &mut field);
        field.value
    }

    /// Redacts a method.
    pub fn word(&self, word: &[u8]) -> String {
        let mut word = decoded(word).into_owned();
        self.redaction.word(&mut word);
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::RecordingConfig;

    fn mask(obfuscate: bool, detect_secrets: bool) -> Mask {
        let exclude = vec!["request.query.page".to_owned(), "request.headers.accept".to_owned()];
        let config = RecordingConfig { obfuscate, exclude, detect_secrets, ..RecordingConfig::default() };
        Mask::new(Key::new(&[7; 32]), &Recording::compile(&config).unwrap())
    }

    #[test]
    fn what_is_not_declared_is_hidden() {
        let hide = |text: &str| Key::new(&[7; 32]).text(text.as_bytes());
        let told = mask(true, true)
            .target(b"/v1/users/ad%61/?page=2&token=s", |place, segment| (place, segment) == (0, "v1"));
        let expected = format!("/v1/{}/{}/?page=2&token={}", hide("users"), hide("ada"), hide("s"));
        assert_eq!(told, expected);
        assert_eq!(mask(true, true).target(b"*", |_, _| true), hide("*").to_string());
        assert_eq!(mask(true, true).field(Message::Request, "Accept", b"text/html"), "text/html");
        assert_eq!(mask(true, true).field(Message::Request, "X-Key", b"abc"), hide("abc").to_string());
        assert_eq!(mask(true, true).word(b"GET"), "GET");
    }

    #[test]
    fn what_looks_like_a_secret_is_hidden_where_nothing_else_is() {
        let secret = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
        let target = format!("/v1/ada?token={secret}");
        let told = mask(false, true).target(target.as_bytes(), |_, _| false);
        assert!(told.starts_with("/v1/ada?token=egr_") && !told.contains(&secret), "{told}");
        assert_eq!(mask(false, false).target(target.as_bytes(), |_, _| false), target);
    }
}
