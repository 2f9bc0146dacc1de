//! Redacts the values of an exchange: obfuscates them, removes only secrets, or keeps everything.

use std::cell::RefCell;
use std::sync::Arc;

use egret_json::tokenizer as json;

use crate::har::{Content, Cookie, NameValue, PostData};
use crate::key::Key;
use crate::media::{self, Syntax};
use crate::memo::Memo;
use crate::obfuscate::{MessageKind, Obfuscator};
use crate::pseudonym::PREFIX;
use crate::recording::Recording;
use crate::secret_remover::SecretRemover;

/// The rules for values before they are written.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub(super) enum Redaction {
    /// Every value is replaced by its pseudonym unless it is excluded.
    Obfuscated(Obfuscator),
    /// Only values that look like secrets, or have the name of one, are replaced.
    SecretsRemoved(SecretRemover),
    /// All values are kept.
    None,
}

impl Redaction {
    /// Returns the redaction that a recording asks for, with this key.
    pub(super) fn new(key: Key, recording: &Recording) -> Self {
        if recording.obfuscate {
            Self::Obfuscated(Obfuscator::new(key, recording.exclusions.clone()))
        } else if recording.detect_secrets {
            Self::SecretsRemoved(SecretRemover::new(key, Arc::clone(&recording.secret_names)))
        } else {
            Self::None
        }
    }

    /// Redacts a header field.
    pub(super) fn field(&self, message: MessageKind, field: &mut NameValue) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.field(obfuscator.side(message), field),
            Self::SecretsRemoved(remover) => remover.field(field),
            Self::None => {}
        }
    }

    /// Redacts a cookie from the header fields of a message.
    pub(super) fn cookie(&self, message: MessageKind, cookie: &mut Cookie) {
        let header = match message {
            MessageKind::Request => "cookie",
            MessageKind::Response => "set-cookie",
        };
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.cookie(obfuscator.side(message), header, cookie),
            Self::SecretsRemoved(remover) => remover.cookie(cookie),
            Self::None => {}
        }
    }

    /// Redacts the URL of a request and its parameters.
    pub(super) fn url(&self, url: &mut String, parameters: &mut [NameValue]) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.url(url, parameters),
            Self::SecretsRemoved(remover) => {
                remover.reference(url);
                remover.url_parameters(parameters);
            }
            Self::None => {}
        }
    }

    /// Redacts the redirect URL of a response.
    pub(super) fn redirect_url(&self, url: &mut String) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.redirect_url(url),
            Self::SecretsRemoved(remover) => remover.reference(url),
            Self::None => {}
        }
    }

    /// Redacts a method.
    pub(super) fn word(&self, word: &mut String) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.word(word),
            Self::SecretsRemoved(remover) => remover.text(word),
            Self::None => {}
        }
    }

    /// Redacts a reason phrase.
    pub(super) fn phrase(&self, phrase: &mut String) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.phrase(phrase),
            Self::SecretsRemoved(remover) => remover.text(phrase),
            Self::None => {}
        }
    }

    /// Redacts a media type with its parameters.
    pub(super) fn media_type(&self, media_type: &mut String) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.media_type(media_type),
            Self::SecretsRemoved(remover) => remover.text(media_type),
            Self::None => {}
        }
    }

    /// Redacts the body of a request. Returns `true` if it was valid JSON.
    pub(super) fn post_data(&self, post_data: &mut PostData, memo: &RefCell<Memo>) -> bool {
        match self {
            Self::Obfuscated(obfuscator) => {
                obfuscator.post_data(post_data, Some(memo));
                is_no_pseudonym(post_data.text.as_deref())
            }
            Self::SecretsRemoved(remover) => remover.post_data(post_data),
            Self::None => is_json(&post_data.mime_type, post_data.text.as_deref()),
        }
    }

    /// Redacts the body of a response. Returns `true` if it was valid JSON.
    pub(super) fn content(&self, content: &mut Content, memo: &RefCell<Memo>) -> bool {
        match self {
            Self::Obfuscated(obfuscator) => {
                obfuscator.content(content, Some(memo));
                is_no_pseudonym(content.text.as_deref())
            }
            Self::SecretsRemoved(remover) => remover.content(content),
            Self::None => is_json(&content.mime_type, content.text.as_deref()),
        }
    }

    /// Redacts any other value.
    pub(super) fn value(&self, value: &mut String) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.value(value),
            Self::SecretsRemoved(remover) => remover.text(value),
            Self::None => {}
        }
    }
}

/// Returns `true` if a body was valid JSON: others become a single pseudonym, and no JSON text begins like
/// one.
fn is_no_pseudonym(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.as_bytes().starts_with(PREFIX))
}

fn is_json(media_type: &str, text: Option<&str>) -> bool {
    media::syntax(media_type) == Syntax::Json && text.is_some_and(|text| json::is_json(text.as_bytes()))
}
