//! What may be told of the values of an exchange: their pseudonyms, all but their secrets, or all.

use std::cell::RefCell;

use super::guard::Guard;
use crate::har::{Content, Cookie, NameValue, PostData};
use crate::key::Key;
use crate::memo::Memo;
use crate::obfuscate::{Message, Obfuscator};
use crate::recording::Recording;

/// Stands between values and what is written.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub(super) enum Veil {
    /// Every value becomes its pseudonym unless it is excluded.
    Obfuscated(Obfuscator),
    /// What looks like a secret does.
    Guarded(Guard),
    /// Nothing does.
    None,
}

impl Veil {
    /// As a recording wants it, by this key.
    pub(super) fn new(key: Key, recording: &Recording) -> Self {
        if recording.obfuscate {
            Self::Obfuscated(Obfuscator::new(key, recording.exclusions.clone()))
        } else if recording.detect_secrets {
            Self::Guarded(Guard::new(key))
        } else {
            Self::None
        }
    }

    /// A header field.
    pub(super) fn field(&self, message: Message, field: &mut NameValue) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.field(obfuscator.side(message), field),
            Self::Guarded(guard) => guard.field(field),
            Self::None => {}
        }
    }

    /// A cookie of such a header field.
    pub(super) fn cookie(&self, message: Message, cookie: &mut Cookie) {
        let header = match message {
            Message::Request => "cookie",
            Message::Response => "set-cookie",
        };
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.cookie(obfuscator.side(message), header, cookie),
            Self::Guarded(guard) => guard.cookie(cookie),
            Self::None => {}
        }
    }

    /// The URL of the request, with the parameters in it.
    pub(super) fn url(&self, url: &mut String, parameters: &mut [NameValue]) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.url(url, parameters),
            Self::Guarded(guard) => {
                guard.reference(url);
                for parameter in parameters {
                    guard.field(parameter);
                }
            }
            Self::None => {}
        }
    }

    /// Where a response leads.
    pub(super) fn redirect_url(&self, url: &mut String) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.redirect_url(url),
            Self::Guarded(guard) => guard.reference(url),
            Self::None => {}
        }
    }

    /// A method.
    pub(super) fn word(&self, word: &mut String) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.word(word),
            Self::Guarded(guard) => guard.text(word),
            Self::None => {}
        }
    }

    /// A reason phrase.
    pub(super) fn phrase(&self, phrase: &mut String) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.phrase(phrase),
            Self::Guarded(guard) => guard.text(phrase),
            Self::None => {}
        }
    }

    /// A media type with its parameters.
    pub(super) fn media_type(&self, media_type: &mut String) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.media_type(media_type),
            Self::Guarded(guard) => guard.text(media_type),
            Self::None => {}
        }
    }

    /// The content of a request.
    pub(super) fn post_data(&self, post_data: &mut PostData, memo: &RefCell<Memo>) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.post_data(post_data, Some(memo)),
            Self::Guarded(guard) => guard.post_data(post_data),
            Self::None => {}
        }
    }

    /// The content of a response.
    pub(super) fn content(&self, content: &mut Content, memo: &RefCell<Memo>) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.content(content, Some(memo)),
            Self::Guarded(guard) => guard.content(content),
            Self::None => {}
        }
    }

    /// Any other value.
    pub(super) fn value(&self, value: &mut String) {
        match self {
            Self::Obfuscated(obfuscator) => obfuscator.value(value),
            Self::Guarded(guard) => guard.text(value),
            Self::None => {}
        }
    }
}
