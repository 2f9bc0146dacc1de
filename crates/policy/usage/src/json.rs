//! A resumable scanner of JSON (RFC 8259) that copies nothing but the names and values on its way.
//!
//! It follows the objects that may report usage, and knows of all else only how deep it is and whether it is
//! in a text. So nothing that a model writes is taken for a report: in a text it is skipped to the closing
//! quote, and in another place of the document to the closing bracket. Invalid JSON is read no further, but
//! need not be noticed in what is skipped.

use memchr::{memchr, memchr2};

use crate::names::{Node, Use, member};

/// Maximum length of a name, a number or a text that is read.
const TOKEN_MAX: usize = 64;

/// Maximum depth of the containers that are followed. The names allow no more.
const PATH_MAX: usize = 8;

/// Receives what is found.
pub(crate) trait Sink {
    /// The value of a member is a number.
    fn number(&mut self, wanted: Use, number: &[u8]);
    /// The value of a member is a text without escapes, and not longer than the buffer.
    fn text(&mut self, wanted: Use, text: &[u8]);
    /// The value of a member begins with this byte.
    fn flag(&mut self, wanted: Use, first: u8);
    /// Characters of a document in Base64.
    fn base64(&mut self, piece: &[u8]);
    /// A container is entered.
    fn open(&mut self, node: Node);
    /// A container within `parent` ends.
    fn close(&mut self, parent: Node, node: Node);
    /// A document ends.
    fn end(&mut self);
    /// `[DONE]`, the one event that is not JSON.
    fn done(&mut self);
}

/// The position in a JSON text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Json {
    state: State,
    /// The containers around the position that are followed, from the outermost.
    path: [Node; PATH_MAX],
    depth: u8,
    /// Number of open containers within these, which are skipped.
    skipped: u32,
    /// The use of the value at the position.
    wanted: Use,
    token: [u8; TOKEN_MAX],
    /// Length of the token; more than the maximum if it is too long or has an escape.
    len: u8,
}

/// The length of a token that cannot be read.
const UNREADABLE: u8 = u8::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a document.
    Document,
    /// Before a name, or the end of the object.
    Member,
    Name,
    NameEscape,
    Colon,
    Value,
    /// Before an element, or the end of the list.
    Element,
    Number,
    Text,
    TextEscape,
    /// Behind a value or in a word: before a comma or the end of the container.
    After,
    /// In a text, or a container, that is skipped.
    SkippedText,
    SkippedEscape,
    Skipped,
    /// This is no JSON.
    Broken,
}

impl Default for Json {
    fn default() -> Self {
        Self {
            state: State::Document,
            path: [Node::Top; PATH_MAX],
            depth: 0,
            skipped: 0,
            wanted: Use::Skip,
            token: [0; TOKEN_MAX],
            len: 0,
        }
    }
}

impl Json {
    /// Returns `true` between two documents.
    pub fn is_between(&self) -> bool {
        self.state == State::Document && self.depth == 0
    }

    /// Begins another document.
    pub fn reset(&mut self) {
        (self.state, self.depth, self.skipped) = (State::Document, 0, 0);
    }

    /// Takes the next bytes, and passes on what is found in them.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut dyn Sink) {
        while let [first, rest @ ..] = bytes {
            let first = *first;
            bytes = match self.state {
                State::Broken => return,
                State::Skipped => self.skip(bytes),
                State::SkippedText => self.skip_text(bytes),
                State::SkippedEscape => {
                    self.state = State::SkippedText;
                    rest
                }
                State::Name | State::Text => self.read_text(bytes, sink),
                State::NameEscape => {
                    self.len = UNREADABLE;
                    self.state = State::Name;
                    rest
                }
                State::TextEscape => {
                    self.escaped(first, sink);
                    rest
                }
                State::Number if is_of_number(first) => {
                    self.keep(&bytes[..1]);
                    rest
                }
                State::Number => {
                    if let Some(number) = self.token() {
                        sink.number(self.wanted, number);
                    }
                    self.state = State::After;
                    bytes
                }
                State::After => self.after(bytes, sink),
                _ if matches!(first, b' ' | b'\t' | b'\n' | b'\r') => rest,
                state => {
                    self.begin(state, first, sink);
                    rest
                }
            };
        }
    }

    /// Takes the first byte of something.
    fn begin(&mut self, state: State, first: u8, sink: &mut dyn Sink) {
        match (state, first) {
            (State::Document, b'{') => self.enter(Node::Top, sink),
            (State::Document, b'[') => self.enter(Node::Documents, sink),
            (State::Member, b'"') => (self.state, self.len) = (State::Name, 0),
            (State::Member, b'}') | (State::Element, b']') => self.leave(sink),
            (State::Colon, b':') => self.state = State::Value,
            (State::Value, _) => self.value(first, sink),
            (State::Element, _) => {
                if first == b'D' && self.depth == 1 && self.top() == Node::Documents {
                    sink.done();
                }
                self.wanted = self.top().element().map_or(Use::Skip, Use::Enter);
                self.value(first, sink);
            }
            _ => self.state = State::Broken,
        }
    }

    /// Takes the first byte of a value.
    fn value(&mut self, first: u8, sink: &mut dyn Sink) {
        if let Use::Flag(_) = self.wanted {
            sink.flag(self.wanted, first);
        }
        match (first, self.wanted) {
            (b'{', Use::Enter(node)) if node.element().is_none() => self.enter(node, sink),
            (b'[', Use::Enter(node)) if node.element().is_some() => self.enter(node, sink),
            (b'{' | b'[', _) => (self.state, self.skipped) = (State::Skipped, 1),
            (b'"', Use::Text(_) | Use::Document) => (self.state, self.len) = (State::Text, 0),
            (b'"', _) => self.state = State::SkippedText,
            (
                b'-' | b'0'..=b'9',
                Use::Sum(..) | Use::Part(_) | Use::Beside(_) | Use::Inside(_) | Use::Entry(_),
            ) => {
                self.len = 0;
                self.keep(&[first]);
                self.state = State::Number;
            }
            (b'-' | b'0'..=b'9' | b't' | b'f' | b'n', _) => self.state = State::After,
            _ => self.state = State::Broken,
        }
    }

    /// Behind a value. What else a skipped number or word has is not looked at.
    fn after<'b>(&mut self, bytes: &'b [u8], sink: &mut dyn Sink) -> &'b [u8] {
        let [first, rest @ ..] = bytes else { return bytes };
        let is_list = self.top().element().is_some();
        match first {
            b',' => self.state = if is_list { State::Element } else { State::Member },
            b'}' if !is_list => self.leave(sink),
            b']' if is_list => self.leave(sink),
            b'{' | b'}' | b'[' | b']' | b'"' | b':' => self.state = State::Broken,
            _ => {}
        }
        rest
    }

    /// Reads a name or a text up to its end.
    fn read_text<'b>(&mut self, bytes: &'b [u8], sink: &mut dyn Sink) -> &'b [u8] {
        let end = memchr2(b'"', b'\\', bytes);
        let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        let is_name = self.state == State::Name;
        match self.wanted {
            Use::Document if !is_name => sink.base64(piece),
            _ => self.keep(piece),
        }
        let [end, rest @ ..] = rest else { return rest };
        match (is_name, *end) {
            (true, b'\\') => self.state = State::NameEscape,
            (false, b'\\') => self.state = State::TextEscape,
            (true, _) => {
                let node = self.top();
                self.wanted = self.token().map_or(Use::Skip, |name| member(node, name));
                self.state = State::Colon;
            }
            (false, _) => {
                if let (Use::Text(_), Some(text)) = (self.wanted, self.token()) {
                    sink.text(self.wanted, text);
                }
                self.state = State::After;
            }
        }
        rest
    }

    /// Takes the character behind a backslash in a text that is read. A slash is the one that Base64 needs,
    /// and models have in their names.
    fn escaped(&mut self, first: u8, sink: &mut dyn Sink) {
        match (self.wanted, first) {
            (Use::Document, _) => sink.base64(&[first]),
            (_, b'/') => self.keep(b"/"),
            _ => self.len = UNREADABLE,
        }
        self.state = State::Text;
    }

    fn skip<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.state = State::SkippedText;
                    return &bytes[at + 1..];
                }
                b'{' | b'[' => {
                    let Some(skipped) = self.skipped.checked_add(1) else {
                        self.state = State::Broken;
                        return b"";
                    };
                    self.skipped = skipped;
                }
                b'}' | b']' => {
                    self.skipped -= 1;
                    if self.skipped == 0 {
                        self.state = State::After;
                        return &bytes[at + 1..];
                    }
                }
                _ => {}
            }
        }
        b""
    }

    fn skip_text<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        loop {
            let Some(end) = memchr2(b'"', b'\\', rest) else { return b"" };
            if rest[end] == b'"' {
                self.state = if self.skipped > 0 { State::Skipped } else { State::After };
                return &rest[end + 1..];
            }
            if end + 1 == rest.len() {
                self.state = State::SkippedEscape;
                return b"";
            }
            rest = &rest[end + 2..];
        }
    }

    fn enter(&mut self, node: Node, sink: &mut dyn Sink) {
        let Some(place) = self.path.get_mut(usize::from(self.depth)) else {
            self.state = State::Broken;
            return;
        };
        *place = node;
        self.depth += 1;
        self.state = if node.element().is_some() { State::Element } else { State::Member };
        sink.open(node);
    }

    fn leave(&mut self, sink: &mut dyn Sink) {
        let node = self.top();
        self.depth = self.depth.saturating_sub(1);
        if node == Node::Top {
            sink.end();
        }
        if self.depth == 0 {
            self.state = State::Document;
        } else {
            sink.close(self.top(), node);
            self.state = State::After;
        }
    }

    /// The innermost container that is followed.
    fn top(&self) -> Node {
        self.path[usize::from(self.depth.saturating_sub(1)).min(PATH_MAX - 1)]
    }

    fn keep(&mut self, piece: &[u8]) {
        let start = usize::from(self.len);
        match self.token.get_mut(start..start + piece.len()) {
            Some(place) => {
                place.copy_from_slice(piece);
                self.len = u8::try_from(start + piece.len()).unwrap_or(UNREADABLE);
            }
            None => self.len = UNREADABLE,
        }
    }

    fn token(&self) -> Option<&[u8]> {
        self.token.get(..usize::from(self.len))
    }
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
}

/// Returns what is behind the first LF of `bytes`, and what is before it.
pub(crate) fn line(bytes: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr(b'\n', bytes) {
        Some(end) => (&bytes[..end], Some(&bytes[end + 1..])),
        None => (bytes, None),
    }
}
