//! One call as its script sees it: copies of the messages, which it may change, and its decision.

use std::borrow::Cow;

use egret_clock::Random;
use egret_http1::Field;
use egret_match::form::{decode_form, is_same_decoded};
use egret_match::template::write_url;
use egret_message::{Changes, Fields};

/// Maximum length of a header field's value, and of a path with its query.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Maximum number of changes by one call.
const CHANGES_MAX: usize = 256;

/// Maximum length of all changed fields of one call.
const CHANGED_BYTES_MAX: usize = 64 << 10;

/// Maximum length of the body of a response that a script makes, and of a body that it replaces.
const SCRIPT_BODY_BYTES_MAX: usize = 16 << 20;

/// Maximum length of the detail of a refusal, in bytes.
const DETAIL_BYTES_MAX: usize = 1024;

/// The reason why a script may not do what it tries. The script sees it as a `TypeError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misuse(Cow<'static, str>);

impl From<&'static str> for Misuse {
    fn from(reason: &'static str) -> Self {
        Self(reason.into())
    }
}

impl From<String> for Misuse {
    fn from(reason: String) -> Self {
        Self(reason.into())
    }
}

/// The side of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptSide {
    /// `onRequest`: before the provider is called.
    Request,
    /// `onResponse`: after the provider has responded.
    Response,
}

/// The rules about names and paths that the caller has for all configured messages.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Returns the reason why a field of that name must not be set.
    pub field_problem: fn(&str) -> Option<String>,
    /// Returns `true` if the whole path, without a query, is valid and has no segment `.` or `..`.
    pub is_path: fn(&str) -> bool,
}

/// The decision of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Go on with the changes.
    Next,
    /// Send this response.
    Respond {
        /// Status code, 200 to 599.
        status: u16,
        /// Valid header fields.
        fields: Vec<(String, Vec<u8>)>,
        /// The body.
        body: String,
    },
    /// Refuse the request.
    Refuse {
        /// Status code, 400 to 599.
        status: u16,
        /// The reason, for the client.
        detail: String,
    },
}

/// The body of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopiedBody {
    /// The message has none.
    #[default]
    None,
    /// It was not made available, for this reason.
    Unavailable(&'static str),
    /// It is available.
    Available,
}

/// A copy of a message, in memory that is reused.
#[derive(Debug, Default)]
pub struct MessageCopy {
    fields: Vec<Field>,
    bytes: Vec<u8>,
    /// All changes of remedies, and those of the script after them.
    pub changes: Changes,
    before: usize,
    body_state: CopiedBody,
    body: Vec<u8>,
    new_body: Option<String>,
}

impl MessageCopy {
    /// Copies a head, whose fields are in `bytes`, and the `changes` to it so far.
    pub fn copy_head(&mut self, fields: &[Field], bytes: &[u8], changes: &Changes) {
        self.fields.clear();
        self.fields.extend_from_slice(fields);
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.changes.clone_from(changes);
        self.before = changes.len();
        self.body_state = CopiedBody::None;
        self.body.clear();
        self.new_body = None;
    }

    /// Copies the body, or says why there is none.
    pub fn copy_body(&mut self, body: Result<&[u8], CopiedBody>) {
        self.body.clear();
        match body {
            Ok(bytes) => {
                self.body.extend_from_slice(bytes);
                self.body_state = CopiedBody::Available;
            }
            Err(state) => self.body_state = state,
        }
    }

    /// Takes the body that the script has set.
    pub fn take_body(&mut self) -> Option<String> {
        self.new_body.take()
    }

    /// Returns the body that the script has set.
    pub fn new_body(&self) -> Option<&str> {
        self.new_body.as_deref()
    }

    /// Number of changes that were made before the script.
    pub fn changes_before(&self) -> usize {
        self.before
    }

    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields::new(&self.fields, &self.bytes, &self.changes)
    }

    /// Returns the body as the script sees it.
    pub(crate) fn body(&self) -> Result<Option<Cow<'_, str>>, Misuse> {
        if let Some(body) = &self.new_body {
            return Ok(Some(Cow::Borrowed(body)));
        }
        match self.body_state {
            CopiedBody::None => Ok(None),
            CopiedBody::Unavailable(why) => Err(Misuse::from(why)),
            CopiedBody::Available => match std::str::from_utf8(&self.body) {
                Ok(body) => Ok(Some(Cow::Borrowed(body))),
                Err(_) => Err(Misuse::from("the body is not UTF-8")),
            },
        }
    }

    pub(crate) fn set_body(&mut self, body: String) -> Result<(), Misuse> {
        match self.body_state {
            CopiedBody::None => return Err(Misuse::from("the message has no body to replace")),
            CopiedBody::Unavailable(why) => return Err(Misuse::from(why)),
            CopiedBody::Available => {}
        }
        if body.len() > SCRIPT_BODY_BYTES_MAX {
            return Err(Misuse::from("the body is longer than 16MiB"));
        }
        self.new_body = Some(body);
        Ok(())
    }

    fn check_room(&self, name: &str, value: &[u8]) -> Result<(), Misuse> {
        let changed: usize = self
            .changes
            .iter()
            .skip(self.before)
            .map(|change| change.name.len() + change.value.map_or(0, <[u8]>::len))
            .sum();
        if self.changes.len() - self.before >= CHANGES_MAX {
            return Err(Misuse::from(format!("more than {CHANGES_MAX} changes")));
        }
        if changed + name.len() + value.len() > CHANGED_BYTES_MAX {
            return Err(Misuse::from(format!(
                "the changed fields are longer than {CHANGED_BYTES_MAX} bytes in total"
            )));
        }
        Ok(())
    }
}

/// One call of a script.
#[derive(Debug)]
pub struct Call {
    rules: Rules,
    /// The side of the exchange. The request can be changed only on its own side.
    pub side: ScriptSide,
    /// The request.
    pub request: MessageCopy,
    /// The response, on the response's side.
    pub response: MessageCopy,
    /// Status code of the response.
    pub status: u16,
    /// Method of the request.
    pub method: Vec<u8>,
    /// `true` if the provider is called over TLS.
    pub tls: bool,
    /// Host of the provider.
    pub host: Vec<u8>,
    /// Path, relative to the provider's URL.
    pub path: Vec<u8>,
    /// Query, without the `?`.
    pub query: Option<Vec<u8>>,
    /// `true` if the script has changed the path or the query.
    pub has_changed_target: bool,
    /// Name of the provider.
    pub provider: String,
    /// Name of the consumer, if the request has one.
    pub consumer: Option<Vec<u8>>,
    /// Parameters of the flow's path.
    pub params: Vec<(String, Vec<u8>)>,
    /// Milliseconds since 1970, UTC.
    pub now_ms: i64,
    /// Random numbers of the call.
    pub random: Random,
    /// The decision. It counts only if the function returns it.
    pub(crate) decision: Decision,
}

impl Call {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            side: ScriptSide::Request,
            request: MessageCopy::default(),
            response: MessageCopy::default(),
            status: 0,
            method: Vec::new(),
            tls: false,
            host: Vec::new(),
            path: Vec::new(),
            query: None,
            has_changed_target: false,
            provider: String::new(),
            consumer: None,
            params: Vec::new(),
            now_ms: 0,
            random: Random::new(0),
            decision: Decision::Next,
        }
    }

    pub(crate) fn message(&self, is_response: bool) -> &MessageCopy {
        if is_response { &self.response } else { &self.request }
    }

    /// Returns the message, if the function may change it.
    pub(crate) fn message_mut(&mut self, is_response: bool) -> Result<&mut MessageCopy, Misuse> {
        if is_response { Ok(&mut self.response) } else { self.check_request().map(|()| &mut self.request) }
    }

    fn check_request(&self) -> Result<(), Misuse> {
        match self.side {
            ScriptSide::Request => Ok(()),
            ScriptSide::Response => {
                Err(Misuse::from("the request has been sent, so it can no longer be changed"))
            }
        }
    }

    pub(crate) fn set_field(
        &mut self,
        is_response: bool,
        name: &str,
        value: &str,
        keeps_others: bool,
    ) -> Result<(), Misuse> {
        let value = self.checked_field(name, value)?;
        let message = self.message_mut(is_response)?;
        message.check_room(name, &value)?;
        if keeps_others {
            message.changes.add(name.as_bytes(), &value);
        } else {
            message.changes.set(name.as_bytes(), &value);
        }
        Ok(())
    }

    pub(crate) fn remove_field(&mut self, is_response: bool, name: &str) -> Result<(), Misuse> {
        if let Some(problem) = (self.rules.field_problem)(name) {
            return Err(Misuse::from(problem));
        }
        let message = self.message_mut(is_response)?;
        message.check_room(name, b"")?;
        message.changes.remove(name.as_bytes());
        Ok(())
    }

    fn checked_field(&self, name: &str, value: &str) -> Result<Vec<u8>, Misuse> {
        if let Some(problem) = (self.rules.field_problem)(name) {
            return Err(Misuse::from(problem));
        }
        let value = to_latin1(value.trim_matches([' ', '\t'])).filter(|value| {
            value.len() <= TEXT_BYTES_MAX
                && value.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f))
        });
        value.ok_or_else(|| {
            Misuse::from(format!(
                "the value of `{name}` is longer than {TEXT_BYTES_MAX} bytes, or has a line end, another \
                 control character, or a character above U+00FF"
            ))
        })
    }

    pub(crate) fn set_path(&mut self, path: &str) -> Result<(), Misuse> {
        self.check_request()?;
        if !self.path.starts_with(b"/") {
            return Err(Misuse::from("this request has no path that could be changed"));
        }
        if path.len() > TEXT_BYTES_MAX || !path.starts_with('/') || !(self.rules.is_path)(path) {
            return Err(Misuse::from(
                "a path must begin with `/`, without a query, `.` or `..`; other characters than \
                        letters, digits and signs must be percent-encoded",
            ));
        }
        self.path.clear();
        self.path.extend_from_slice(path.as_bytes());
        self.has_changed_target = true;
        Ok(())
    }

    fn pairs(&self) -> impl Iterator<Item = &[u8]> {
        self.query.as_deref().into_iter().flat_map(|query| query.split(|byte| *byte == b'&'))
    }

    /// Returns the decoded values of a query parameter.
    pub(crate) fn parameters(&self, name: &str) -> Vec<String> {
        let named = self.pairs().filter(|pair| is_same_decoded(split_pair(pair).0, name.as_bytes()));
        named.map(|pair| decoded(split_pair(pair).1)).collect()
    }

    /// Returns the decoded names of all query parameters, each once.
    pub(crate) fn parameter_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.pairs().filter(|pair| !pair.is_empty()).map(|pair| decoded(split_pair(pair).0)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Sets, adds or removes a query parameter. Other parameters stay as sent.
    pub(crate) fn change_parameter(
        &mut self,
        name: &str,
        value: Option<&str>,
        keeps_others: bool,
    ) -> Result<(), Misuse> {
        self.check_request()?;
        if !self.path.starts_with(b"/") {
            return Err(Misuse::from("this request has no query that could be changed"));
        }
        if name.is_empty() {
            return Err(Misuse::from("a parameter must have a name"));
        }
        let mut value = value.map(|value| {
            let mut pair = Vec::new();
            write_url(name.as_bytes(), &mut pair);
            pair.push(b'=');
            write_url(value.as_bytes(), &mut pair);
            pair
        });
        let mut pairs: Vec<Vec<u8>> = Vec::new();
        for pair in self.pairs() {
            let is_named = !keeps_others && is_same_decoded(split_pair(pair).0, name.as_bytes());
            if is_named {
                pairs.extend(value.take());
            } else {
                pairs.push(pair.to_vec());
            }
        }
        pairs.extend(value);
        let query = (!pairs.is_empty()).then(|| pairs.join(&b'&'));
        if query.as_ref().is_some_and(|query| query.len() > TEXT_BYTES_MAX) {
            return Err(Misuse::from(format!("the query is longer than {TEXT_BYTES_MAX} bytes")));
        }
        self.query = query;
        self.has_changed_target = true;
        Ok(())
    }

    pub(crate) fn respond(&mut self, status: f64, body: String) -> Result<(), Misuse> {
        let status = whole(status, 200, 599)
            .ok_or("the status of a response must be a whole number from 200 to 599")?;
        if body.len() > SCRIPT_BODY_BYTES_MAX {
            return Err(Misuse::from("the body is longer than 16MiB"));
        }
        self.decision = Decision::Respond { status, fields: Vec::new(), body };
        Ok(())
    }

    pub(crate) fn respond_field(&mut self, name: &str, value: &str) -> Result<(), Misuse> {
        let value = self.checked_field(name, value)?;
        let Decision::Respond { fields, .. } = &mut self.decision else { return Ok(()) };
        let total: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        if fields.len() >= CHANGES_MAX || total + name.len() + value.len() > CHANGED_BYTES_MAX {
            return Err(Misuse::from("the response has too many header fields"));
        }
        fields.push((name.to_owned(), value));
        Ok(())
    }

    pub(crate) fn refuse(&mut self, status: f64, detail: String) -> Result<(), Misuse> {
        let status = whole(status, 400, 599)
            .ok_or("the status of a refusal must be a whole number from 400 to 599")?;
        if detail.len() > DETAIL_BYTES_MAX || detail.chars().any(char::is_control) {
            return Err(Misuse::from(format!(
                "the detail is longer than {DETAIL_BYTES_MAX} bytes or has a control character"
            )));
        }
        self.decision = Decision::Refuse { status, detail };
        Ok(())
    }
}

fn whole(number: f64, least: u16, max: u16) -> Option<u16> {
    (least..=max).find(|candidate| (f64::from(*candidate) - number).abs() < f64::EPSILON)
}

fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(at) => (&pair[..at], &pair[at + 1..]),
        None => (pair, b""),
    }
}

fn decoded(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&decode_form(bytes)).into_owned()
}

/// Each character is one byte (ISO 8859-1), as header fields are read. `None` for any other character.
pub(crate) fn to_latin1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

/// The text whose characters are these bytes.
pub(crate) fn from_latin1(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.is_ascii() => Cow::Borrowed(text),
        _ => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}
