//! Obfuscates a body that arrives in pieces, which may be cut anywhere.
//!
//! JSON is rewritten as it arrives. Only forms are buffered. A body that does not match its media type, or is
//! cut off, is treated as one value and replaced by its pseudonym. The caller limits the size.

use egret_json::tokenizer::Tokenizer;

use crate::exclusions::MessageExclusions;
use crate::key::Key;
use crate::media::{self, Syntax};
use crate::memo::Pseudonymizer;
use crate::multipart::{self, FormPart};
use crate::parameters::{self, Encodings};
use crate::pseudonym::TextDigest;
use crate::rewrite::Rewriter;
use crate::{media_obfuscation, names};

/// Obfuscates a body that is pushed in pieces.
pub struct Body<'a> {
    key: &'a Key,
    side: &'a MessageExclusions,
    reader: BodyReader<'a>,
    /// Pseudonym of the whole body, used if the body does not match its media type. `None` if the whole body
    /// is available at once.
    whole: Option<TextDigest>,
    is_empty: bool,
}

enum BodyReader<'a> {
    Json(Box<(Tokenizer, Rewriter<'a>)>),
    /// A buffered form, or a body that is kept as it is.
    Held(Syntax, Vec<u8>),
    Opaque,
}

impl<'a> Body<'a> {
    pub(crate) fn new(key: &'a Key, side: &'a MessageExclusions, media_type: &str) -> Self {
        Self {
            whole: Some(key.text_digest()),
            ..Self::whole(Pseudonymizer { key, memo: None }, side, media_type)
        }
    }

    fn whole(pseudonymizer: Pseudonymizer<'a>, side: &'a MessageExclusions, media_type: &str) -> Self {
        let reader = match media::syntax(media_type) {
            Syntax::Json => {
                BodyReader::Json(Box::new((Tokenizer::new(), Rewriter::new(pseudonymizer, &side.body))))
            }
            Syntax::Opaque if !side.body.root() => BodyReader::Opaque,
            held => BodyReader::Held(held, Vec::new()),
        };
        Self { key: pseudonymizer.key, side, reader, whole: None, is_empty: true }
    }

    /// Obfuscates a body that is available as a whole. Adds the parameters of a form to `spellings`.
    pub(crate) fn obfuscate(
        pseudonymizer: Pseudonymizer<'a>,
        side: &'a MessageExclusions,
        media_type: &str,
        bytes: &[u8],
        encodings: &mut Encodings,
    ) -> Vec<u8> {
        let mut body = Self::whole(pseudonymizer, side, media_type);
        body.push(bytes);
        body.obfuscated(encodings).unwrap_or_else(|| pseudonymizer.key.text(bytes).as_bytes().to_vec())
    }

    /// Obfuscates the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.is_empty &= piece.is_empty();
        if let Some(whole) = &mut self.whole {
            whole.push(piece);
        }
        match &mut self.reader {
            BodyReader::Json(json) => {
                let (tokenizer, rewriter) = &mut **json;
                if tokenizer.push(piece, rewriter).is_err() {
                    self.reader = BodyReader::Opaque;
                }
            }
            BodyReader::Held(_, held) => held.extend_from_slice(piece),
            BodyReader::Opaque => {}
        }
    }

    /// Returns the obfuscated body.
    pub fn finish(mut self) -> Vec<u8> {
        let whole = self.whole.take();
        let obfuscated = self.obfuscated(&mut Encodings::default());
        obfuscated.or_else(|| Some(whole?.finish().as_bytes().to_vec())).unwrap_or_default()
    }

    /// Returns the obfuscated body, or `None` if the body has to be replaced as one value.
    fn obfuscated(self, encodings: &mut Encodings) -> Option<Vec<u8>> {
        if self.is_empty {
            return Some(Vec::new());
        }
        match self.reader {
            BodyReader::Json(mut json) => {
                let (tokenizer, rewriter) = &mut *json;
                tokenizer.finish(rewriter).is_ok().then(|| std::mem::take(&mut rewriter.out))
            }
            BodyReader::Held(Syntax::Form, held) => std::str::from_utf8(&held).ok().map(|form| {
                let is_kept = |name: &str| self.side.body.field(name);
                parameters::obfuscate(self.key, form, is_kept, encodings).into_bytes()
            }),
            BodyReader::Held(Syntax::Multipart(boundary), held) => multipart::parts(&held, &boundary)
                .map(|parts| write_parts(self.key, self.side, &boundary, &parts)),
            BodyReader::Held(Syntax::Json | Syntax::Opaque, held) => Some(held),
            BodyReader::Opaque => None,
        }
    }
}

fn write_parts(key: &Key, side: &MessageExclusions, boundary: &str, parts: &[FormPart<'_>]) -> Vec<u8> {
    let boundary = key.text(boundary.as_bytes());
    let mut body = Vec::new();
    for part in parts {
        body.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
        write_part(key, side, part, &mut body);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

fn write_part(key: &Key, side: &MessageExclusions, part: &FormPart<'_>, body: &mut Vec<u8>) {
    let (mut field, mut media_type) = (None, "");
    for (name, value) in &part.fields {
        let value = match name.to_ascii_lowercase().as_str() {
            "content-disposition" => {
                let (written, of_field) = disposition(key, value);
                field = of_field;
                written
            }
            "content-type" => {
                media_type = value;
                media_obfuscation::obfuscate(key, value)
            }
            _ => key.text(value.as_bytes()).to_string(),
        };
        let name =
            if media::is_token(name) { (*name).to_owned() } else { key.text(name.as_bytes()).to_string() };
        body.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    body.extend_from_slice(b"\r\n");
    if field.is_some_and(|field| side.body.field(&field)) {
        body.extend_from_slice(part.content);
    } else {
        body.extend_from_slice(&field_value(key, media_type, part.content));
    }
}

/// Obfuscates the value of a form field, or a file in a form. Nested forms are not parsed: they are one
/// value.
pub(crate) fn field_value(key: &Key, media_type: &str, content: &[u8]) -> Vec<u8> {
    let side = MessageExclusions::default();
    let media_type = if media::syntax(media_type) == Syntax::Json { media_type } else { "" };
    Body::obfuscate(Pseudonymizer { key, memo: None }, &side, media_type, content, &mut Encodings::default())
}

/// Obfuscates a `Content-Disposition`, except for the disposition type and the name of the field. Also
/// returns that name.
fn disposition(key: &Key, value: &str) -> (String, Option<String>) {
    let kind = value.split(';').next().unwrap_or_default().trim();
    let mut written =
        if media::is_token(kind) { kind.to_owned() } else { key.text(kind.as_bytes()).to_string() };
    let mut field = None;
    for (name, value) in media::parameters(value).filter(|(name, _)| media::is_token(name)) {
        let is_field = name.eq_ignore_ascii_case("name");
        let obfuscated = if is_field && !names::is_unusual_name(&value) {
            value.clone()
        } else {
            key.text(value.as_bytes()).to_string()
        };
        written.extend(["; ", &name, "=\"", &obfuscated, "\""]);
        if is_field {
            field = Some(value);
        }
    }
    (written, field)
}
