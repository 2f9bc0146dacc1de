//! Redacts single values of an exchange for outputs other than HAR, by the rules of a recording.

use super::characters::utf8_or_latin1;
use crate::har::NameValue;
use crate::key::Key;
use crate::obfuscate::MessageKind;
use crate::recording::Recording;
use crate::redact::Redact;

/// Redacts values as a recording does: equal values have the same pseudonym in both.
#[derive(Debug)]
pub struct Mask {
    redaction: Box<dyn Redact>,
}

impl Mask {
    /// Returns a mask with the rules of `recording` and this key.
    pub fn new(key: Key, recording: &Recording) -> Self {
        Self { redaction: recording.redaction(key) }
    }

    /// Redacts the path and query of a URL. Segments are kept if `declared` accepts their position and text.
    pub fn target(&self, target: &[u8], declared: impl Fn(usize, &str) -> bool) -> String {
        let target = utf8_or_latin1(target);
        let Some(obfuscator) = self.redaction.as_obfuscator() else {
            let mut target = target.into_owned();
            self.redaction.url(&mut target, &mut []);
            return target;
        };
        let (path, query) =
            target.split_once('?').map_or((&*target, None), |(path, query)| (path, Some(query)));
        let mut obfuscated = String::with_capacity(target.len());
        // A path without a leading slash has no segments that can be declared.
        let (root, segments) = path.strip_prefix('/').map_or(("", path), |segments| ("/", segments));
        obfuscated.push_str(root);
        for (index, segment) in segments.split('/').enumerate() {
            if index > 0 {
                obfuscated.push('/');
            }
            let is_declared = !root.is_empty() && declared(index, segment);
            match obfuscator.segment(index, segment).filter(|_| !is_declared) {
                Some(hidden) => obfuscated.push_str(hidden.as_str()),
                None => obfuscated.push_str(segment),
            }
        }
        for (index, parameter) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
            obfuscated.push(if index > 0 { '&' } else { '?' });
            obfuscated.push_str(&obfuscator.url_parameter(parameter));
        }
        obfuscated
    }

    /// Redacts the value of a header field.
    pub fn field(&self, message: MessageKind, name: &str, value: &[u8]) -> String {
        let mut field = NameValue::new(name.to_owned(), utf8_or_latin1(value).into_owned());
        self.redaction.field(message, &mut field);
        field.value
    }

    /// Redacts a text that stays where all values are obfuscated, such as the name of a consumer.
    pub fn shown(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if self.redaction.as_obfuscator().is_none() {
            self.redaction.value(&mut text);
        }
        text
    }

    /// Redacts a method.
    pub fn word(&self, word: &[u8]) -> String {
        let mut word = utf8_or_latin1(word).into_owned();
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
    fn a_text_that_always_stays_is_masked_without_obfuscation() {
        let config = RecordingConfig {
            obfuscate: false,
            mask: vec!["phone".to_owned()],
            ..RecordingConfig::default()
        };
        let masked = Mask::new(Key::new(&[7; 32]), &Recording::compile(&config).unwrap());
        assert_eq!(masked.shown("shop"), "shop");
        assert!(masked.shown("+4930901820").starts_with("egr_"));
        for shown in [mask(true, true), mask(false, true), mask(false, false)] {
            assert_eq!(shown.shown("+4930901820"), "+4930901820");
        }
    }

    #[test]
    fn undeclared_values_are_obfuscated() {
        let pseudonym = |text: &str| Key::new(&[7; 32]).text(text.as_bytes());
        let obfuscated = mask(true, true)
            .target(b"/v1/users/ad%61/?page=2&token=s", |index, segment| (index, segment) == (0, "v1"));
        let expected =
            format!("/v1/{}/{}/?page=2&token={}", pseudonym("users"), pseudonym("ada"), pseudonym("s"));
        assert_eq!(obfuscated, expected);
        assert_eq!(mask(true, true).target(b"*", |_, _| true), pseudonym("*").to_string());
        assert_eq!(mask(true, true).field(MessageKind::Request, "Accept", b"text/html"), "text/html");
        assert_eq!(
            mask(true, true).field(MessageKind::Request, "X-Key", b"abc"),
            pseudonym("abc").to_string()
        );
        assert_eq!(mask(true, true).word(b"GET"), "GET");
    }

    #[test]
    fn detected_secrets_are_hidden_without_obfuscation() {
        let secret = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2));
        let target = format!("/v1/ada?token={secret}");
        let obfuscated = mask(false, true).target(target.as_bytes(), |_, _| false);
        assert!(
            obfuscated.starts_with("/v1/ada?token=egr_") && !obfuscated.contains(&secret),
            "{obfuscated}"
        );
        assert_eq!(mask(false, false).target(target.as_bytes(), |_, _| false), target);
    }
}
