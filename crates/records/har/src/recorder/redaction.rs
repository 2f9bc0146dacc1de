//! What may be told of the values of an exchange: their pseudonyms, all but their secrets, or all.

use std::cell::RefCell;
use std::sync::Arc;

use crate::guard::Guard;
use crate::har::{Content, Cookie, NameValue, PostData};
use crate::key::Key;
use crate::media::{self, Syntax};
use crate::memo::Memo;
use crate::obfuscate::{Message, Obfuscator};
use crate::pseudonym::PREFIX;
use crate::recording::Recording;
use egret_json::tokenizer as json;

/// Stands between values and what is written.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub(super) enum Redaction {
    /// Every value becomes its pseudonym unless it is excluded.
    Obfuscated(Obfuscator),
    /// What looks like a secret does, or is one by its name.
    Guarded(Guard),
    /// Nothing does.
    None,
}

impl Redaction {
    /// As a recording wants it, by this key.
    pub(super) fn new(key: Key, recording: &Recording) -> Self {
        if recording.obfuscate {
            Self::Obfuscated(Obfuscator::new(key, recording.exclusions.clone()))
        } else if recording.detect_secrets {
            Self::Guarded(Guard::new(key, Arc::clone(&recording.secret_names)))
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
                    guard.parameter(parameter);
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

    /// The content of a request. Says whether it has been read as JSON.
    pub(super) fn post_data(&self, post_data: &mut PostData, memo: &RefCell<Memo>) -> bool {
        match self {
            Self::Obfuscated(obfuscator) => {
                obfuscator.post_data(post_data, Some(memo));
                is_no_pseudonym(post_data.text.as_deref())
            }
            Self::Guarded(guard) => guard.post_data(post_data),
            Self::None => is_json(&post_data.mime_type, post_data.text.as_deref()),
        }
    }

    /// The content of a response. Says whether it has been read as JSON.
    pub(super) fn content(&self, content: &mut Content, memo: &RefCell<Memo>) -> bool {
        match self {
            Self::Obfuscated(obfuscator) => {
                obfuscator.content(content, Some(memo));
                is_no_pseudonym(content.text.as_deref())
            }
            Self::Guarded(guard) => guard.content(content),
            Self::None => is_json(&content.mime_type, content.text.as_deref()),
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

/// JSON stays JSON. What is none has become one pseudonym, with which no JSON begins.
fn is_no_pseudonym(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.as_bytes().starts_with(PREFIX))
}

fn is_json(media_type: &str, text: Option<&str>) -> bool {
    media::syntax(media_type) == Syntax::Json && text.is_some_and(|text| json::is_json(text.as_bytes()))
}
