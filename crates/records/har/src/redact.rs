//! The rules for values before they are written. Recorders know the trait alone. Its implementations
//! obfuscate all values, remove secrets, or keep everything.

use std::fmt;

use egret_json::tokenizer as json;

use crate::har::{Content, Cookie, NameValue, PostData};
use crate::media::{self, Syntax};
use crate::memo::Memory;
use crate::obfuscate::Obfuscator;

/// A request or a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// The request.
    Request,
    /// The response.
    Response,
}

/// Redacts the parts of an exchange. By default a part is treated as any other value, or is kept.
pub(crate) trait Redact: fmt::Debug + Send + Sync {
    /// Redacts a value of no known syntax.
    fn value(&self, _value: &mut String) {}

    /// Redacts a method or version.
    fn word(&self, word: &mut String) {
        self.value(word);
    }

    /// Redacts a reason phrase.
    fn phrase(&self, phrase: &mut String) {
        self.value(phrase);
    }

    /// Redacts a media type with its parameters.
    fn media_type(&self, media_type: &mut String) {
        self.value(media_type);
    }

    /// Redacts the redirect URL of a response.
    fn redirect_url(&self, _url: &mut String) {}

    /// Redacts the URL of a request and its parameters.
    fn url(&self, _url: &mut String, _parameters: &mut [NameValue]) {}

    /// Redacts a header field.
    fn field(&self, _message: MessageKind, _field: &mut NameValue) {}

    /// Redacts a cookie from the header fields of a message.
    fn cookie(&self, _message: MessageKind, _cookie: &mut Cookie) {}

    /// Redacts the body of a request. Returns `true` if it was valid JSON.
    fn post_data(&self, post_data: &mut PostData, _memo: Memory<'_>) -> bool {
        is_json(&post_data.mime_type, post_data.text.as_deref())
    }

    /// Redacts the body of a response. Returns `true` if it was valid JSON.
    fn content(&self, content: &mut Content, _memo: Memory<'_>) -> bool {
        is_json(&content.mime_type, content.text.as_deref())
    }

    /// The obfuscator, if it is one.
    fn as_obfuscator(&self) -> Option<&Obfuscator> {
        None
    }
}

/// Keeps all values.
#[derive(Debug)]
pub(crate) struct Unredacted;

impl Redact for Unredacted {}

fn is_json(media_type: &str, text: Option<&str>) -> bool {
    media::syntax(media_type) == Syntax::Json && text.is_some_and(|text| json::is_json(text.as_bytes()))
}
