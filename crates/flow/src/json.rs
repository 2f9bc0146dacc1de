//! JSON that is edited in its text: what pointers (RFC 6901) name is put in, added or taken out, and everything else stays byte for
//! byte: order, spellings of numbers, white space, escapes.
//!
//! The text is read once and strictly (RFC 8259); no number is computed, no value built. Where a name stands several times in an
//! object, an edit covers all of them, so that no two readers see different things; a name written with escapes is the same name.

mod find;

use std::fmt;

use crate::template::write_json;

pub use find::{Pointers, pointer_problem};

/// Deeper nesting is refused. The scanner keeps a bit for each container.
const DEPTH_MAX: usize = 127;

/// Pointers with more parts are refused, which bounds the recursion into what pointers name.
const PARTS_MAX: usize = 32;

/// Longer pointers are refused.
const POINTER_BYTES_MAX: usize = 1024;

/// What all edits together may add to a text: with names that stand in it many times, a value is inserted many times.
const GROWTH_BYTES_MAX: usize = 1 << 20;

/// What is done at a place. A value is named by its number among those given to [`JsonEdits::apply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The value stands there, in place of what did; objects that are missing on the way are made.
    Set(usize),
    /// A list gets the value as its last element; where nothing is, the value stands; anything else stays.
    Add(usize),
    /// Nothing stands there.
    Remove,
}

/// Edits of JSON texts, at places of which none lies within another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JsonEdits {
    root: Node,
}

/// A place in a text on the way to edits, or the place of one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Node {
    action: Option<Action>,
    /// What lies within it, sorted by name.
    children: Vec<(Box<str>, Self)>,
}

/// Why a text cannot be edited. Says nothing of what stands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonError {
    /// It is no JSON from this byte on.
    Malformed(usize),
    /// It is nested too deeply.
    TooDeep,
    /// There is no place for a value that is set: what would hold it is a text, a number or a list.
    NoPlace,
    /// The edits would add too much to it.
    TooLong,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(at) => write!(f, "it is no JSON from byte {at} on"),
            Self::TooDeep => write!(f, "it is nested more than {DEPTH_MAX} deep"),
            Self::NoPlace => f.write_str("it has no place for a value that is set"),
            Self::TooLong => write!(f, "it would become more than {GROWTH_BYTES_MAX} bytes longer"),
        }
    }
}

impl std::error::Error for JsonError {}

impl JsonEdits {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.root == Node::default()
    }

    /// Has `action` be done at `pointer`. Says what is wrong with it, if it is no pointer or lies within another one's place.
    pub fn insert(&mut self, pointer: &str, action: Action) -> Result<(), String> {
        let mut node = &mut self.root;
        for part in parts(pointer)? {
            if node.action.is_some() {
                return Err(format!("`{pointer}` lies within what another pointer names"));
            }
            let place = node.children.binary_search_by(|(name, _)| (**name).cmp(&part));
            let at = place.unwrap_or_else(|at| {
                node.children.insert(at, (part.into(), Node::default()));
                at
            });
            node = &mut node.children[at].1;
        }
        if node.action.is_some() || !node.children.is_empty() {
            return Err(format!("another pointer names the place `{pointer}`, or one within it"));
        }
        if pointer.is_empty() && action == Action::Remove {
            return Err("the whole body cannot be taken out".to_owned());
        }
        node.action = Some(action);
        Ok(())
    }

    /// What `text` becomes, or nothing where it stays as it is. Each of `values` is JSON.
    pub fn apply(&self, text: &[u8], values: &[&[u8]]) -> Result<Option<Vec<u8>>, JsonError> {
        if let Err(error) = std::str::from_utf8(text) {
            return Err(JsonError::Malformed(error.valid_up_to()));
        }
        let scanner = Scanner { text, at: 0, depth: 0 };
        let mut editor = Editor { scanner, values, edited: Vec::new(), copied: 0, name: Vec::new() };
        editor.scanner.space();
        editor.value(&self.root)?;
        editor.scanner.space();
        if editor.scanner.at < text.len() {
            return Err(editor.scanner.malformed());
        }
        if editor.copied == 0 && editor.edited.is_empty() {
            return Ok(None);
        }
        editor.replace(text.len()..text.len(), b"")?;
        Ok(Some(editor.edited).filter(|edited| edited != text))
    }
}

/// The parts of a pointer, unescaped (RFC 6901 §3, §4).
fn parts(pointer: &str) -> Result<Vec<String>, String> {
    if pointer.len() > POINTER_BYTES_MAX {
        return Err(format!("a pointer has at most {POINTER_BYTES_MAX} bytes"));
    }
    let mut parts = pointer.split('/');
    if parts.next() != Some("") {
        return Err(format!("`{pointer}` is no JSON pointer (RFC 6901): one begins with `/`"));
    }
    let parts = parts.map(|part| {
        let is_escaped = part.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        is_escaped.then(|| part.replace("~1", "/").replace("~0", "~"))
    });
    let parts: Option<Vec<String>> = parts.collect();
    match parts {
        Some(parts) if parts.len() > PARTS_MAX => Err(format!("a pointer has at most {PARTS_MAX} parts")),
        Some(parts) => Ok(parts),
        None => Err(format!("in `{pointer}`, `~` stands without `0` or `1`: `~0` is `~`, and `~1` is `/`")),
    }
}

/// The number of an element that `part` names (RFC 6901 §4).
fn index(part: &str) -> Option<usize> {
    let is_number = part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    part.parse().ok().filter(|_| is_number)
}

impl Node {
    fn is_removed(&self) -> bool {
        self.action == Some(Action::Remove)
    }

    /// Whether a value has to come to stand here or within.
    fn sets(&self) -> bool {
        matches!(self.action, Some(Action::Set(_))) || self.children.iter().any(|(_, child)| child.sets())
    }

    /// Appends what comes to stand here where nothing is; says whether anything does.
    fn write(&self, values: &[&[u8]], out: &mut Vec<u8>) -> bool {
        match self.action {
            Some(Action::Set(value) | Action::Add(value)) => {
                out.extend_from_slice(values[value]);
                return true;
            }
            Some(Action::Remove) => return false,
            None => {}
        }
        // Nothing but `-` says that it is a list.
        let is_list = matches!(&*self.children, [(name, _)] if &**name == "-");
        let start = out.len();
        for (name, child) in &self.children {
            let before = out.len();
            out.push(if before > start {
                b','
            } else if is_list {
                b'['
            } else {
                b'{'
            });
            if !is_list {
                write_name(name, out);
            }
            if !child.write(values, out) {
                out.truncate(before);
            }
        }
        if out.len() > start {
            out.push(if is_list { b']' } else { b'}' });
        }
        out.len() > start
    }
}

fn write_name(name: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_json(name, out);
    out.extend_from_slice(b"\":");
}

/// What becomes of the members of one object, or the elements of one list, with the commas between them.
struct Members {
    /// Where the last one that stays ends.
    kept_end: Option<usize>,
    /// Those after it that go.
    gone: std::ops::Range<usize>,
}

impl Members {
    /// Of a container that has been opened just before `at`.
    fn new(at: usize) -> Self {
        Self { kept_end: None, gone: at..at }
    }

    fn remove(&mut self, start: usize, end: usize) {
        if self.gone.is_empty() {
            self.gone.start = self.kept_end.unwrap_or(start);
        }
        self.gone.end = end;
    }

    /// What goes before one that stays and begins at `start`.
    fn before(&mut self, start: usize) -> std::ops::Range<usize> {
        let gone = std::mem::replace(&mut self.gone, start..start);
        // The first one that stays has no comma before it; others keep their own.
        match self.kept_end {
            None if !gone.is_empty() => gone.start..start,
            _ => gone,
        }
    }
}

/// Goes through a text along what is to be edited in it.
struct Editor<'a> {
    scanner: Scanner<'a>,
    values: &'a [&'a [u8]],
    /// The new text, up to what corresponds to `copied` in the old one.
    edited: Vec<u8>,
    copied: usize,
    /// Where names are unescaped.
    name: Vec<u8>,
}

impl Editor<'_> {
    /// Puts `new` in the place of a range that lies behind all those before.
    fn replace(&mut self, old: std::ops::Range<usize>, new: &[u8]) -> Result<(), JsonError> {
        let text = self.scanner.text;
        self.edited.extend_from_slice(&text[self.copied..old.start]);
        self.edited.extend_from_slice(new);
        self.copied = old.end;
        if self.edited.len() > text.len() + GROWTH_BYTES_MAX { Err(JsonError::TooLong) } else { Ok(()) }
    }

    /// The value that begins here, with what is to be done within it.
    fn value(&mut self, node: &Node) -> Result<(), JsonError> {
        let values = self.values;
        match (node.action, self.scanner.peek()) {
            (Some(Action::Set(value)), _) => {
                let start = self.scanner.at;
                self.scanner.skip()?;
                self.replace(start..self.scanner.at, values[value])
            }
            (Some(Action::Add(value)), Some(b'[')) => self.list(&[], Some(values[value])),
            (Some(Action::Add(_) | Action::Remove), _) => self.scanner.skip(),
            (None, Some(b'{')) => self.object(&node.children),
            (None, Some(b'[')) => self.list(&node.children, None),
            (None, _) => self.scalar(node),
        }
    }

    /// A value that can hold no other. `null` is as good as nothing; the rest is in the way of what is set.
    fn scalar(&mut self, node: &Node) -> Result<(), JsonError> {
        let start = self.scanner.at;
        self.scanner.skip()?;
        let end = self.scanner.at;
        let mut new = Vec::new();
        if &self.scanner.text[start..end] == b"null" {
            if node.write(self.values, &mut new) { self.replace(start..end, &new) } else { Ok(()) }
        } else if node.sets() {
            Err(JsonError::NoPlace)
        } else {
            Ok(())
        }
    }

    fn object(&mut self, children: &[(Box<str>, Node)]) -> Result<(), JsonError> {
        self.scanner.open()?;
        let mut members = Members::new(self.scanner.at);
        let mut seen = vec![false; children.len()];
        let mut more = self.scanner.first(b'}');
        while more {
            let start = self.scanner.at;
            let name = self.scanner.name()?;
            let found = self.find(children, name);
            let child = found.map(|at| &children[at].1);
            let is_again = found.is_some_and(|at| std::mem::replace(&mut seen[at], true));
            let is_set_again =
                is_again && child.is_some_and(|child| matches!(child.action, Some(Action::Set(_))));
            let goes = is_set_again || child.is_some_and(Node::is_removed);
            self.member(child, goes, start, &mut members)?;
            more = self.scanner.next(b'}')?;
        }
        let mut new = Vec::new();
        for ((name, child), _) in children.iter().zip(seen).filter(|(_, seen)| !seen) {
            self.put(&mut new, |values, new| {
                write_name(name, new);
                child.write(values, new)
            });
        }
        self.close(&members, new)
    }

    /// A list, of which `children` name elements; `last` becomes one more.
    fn list(&mut self, children: &[(Box<str>, Node)], last: Option<&[u8]>) -> Result<(), JsonError> {
        self.scanner.open()?;
        let mut members = Members::new(self.scanner.at);
        let mut named: Vec<(usize, &Node)> =
            children.iter().filter_map(|(name, child)| Some((index(name)?, child))).collect();
        named.sort_unstable_by_key(|(index, _)| *index);
        let mut named = named.into_iter().peekable();
        let mut len = 0;
        let mut more = self.scanner.first(b']');
        while more {
            let child = named.next_if(|(index, _)| *index == len).map(|(_, child)| child);
            self.member(child, child.is_some_and(Node::is_removed), self.scanner.at, &mut members)?;
            len += 1;
            more = self.scanner.next(b']')?;
        }
        let mut new = Vec::new();
        while let Some((_, child)) = named.next_if(|(index, child)| *index == len && !child.is_removed()) {
            self.put(&mut new, |values, new| child.write(values, new));
            len += 1;
        }
        let is_nowhere = |(name, child): &(Box<str>, Node)| {
            &**name != "-" && child.sets() && index(name).is_none_or(|index| index >= len)
        };
        if children.iter().any(is_nowhere) {
            return Err(JsonError::NoPlace);
        }
        if let Some((_, child)) = children.iter().find(|(name, _)| &**name == "-") {
            self.put(&mut new, |values, new| child.write(values, new));
        }
        if let Some(last) = last {
            self.put(&mut new, |_, new| {
                new.extend_from_slice(last);
                true
            });
        }
        self.close(&members, new)
    }

    /// What `write` appends to `new`, with a comma before it; nothing if it says so.
    fn put(&self, new: &mut Vec<u8>, write: impl FnOnce(&[&[u8]], &mut Vec<u8>) -> bool) {
        let before = new.len();
        if before > 0 {
            new.push(b',');
        }
        if !write(self.values, new) {
            new.truncate(before);
        }
    }

    /// A member that begins at `start`, whose value is here.
    fn member(
        &mut self,
        child: Option<&Node>,
        goes: bool,
        start: usize,
        members: &mut Members,
    ) -> Result<(), JsonError> {
        if goes {
            self.scanner.skip()?;
            members.remove(start, self.scanner.at);
            return Ok(());
        }
        let gone = members.before(start);
        if !gone.is_empty() {
            self.replace(gone, b"")?;
        }
        match child {
            Some(child) => self.value(child)?,
            None => self.scanner.skip()?,
        }
        members.kept_end = Some(self.scanner.at);
        members.gone = self.scanner.at..self.scanner.at;
        Ok(())
    }

    /// Ends a container with `new` behind those that stay.
    fn close(&mut self, members: &Members, mut new: Vec<u8>) -> Result<(), JsonError> {
        if new.is_empty() && members.gone.is_empty() {
            return Ok(());
        }
        if !new.is_empty() && members.kept_end.is_some() {
            new.insert(0, b',');
        }
        self.replace(members.gone.clone(), &new)
    }

    /// The one of `children` that `raw`, a name as it is written, stands for.
    fn find(&mut self, children: &[(Box<str>, Node)], raw: &[u8]) -> Option<usize> {
        let mut name = raw;
        if memchr::memchr(b'\\', raw).is_some() {
            self.name.clear();
            unescape(raw, &mut self.name)?;
            name = &self.name;
        }
        children.binary_search_by(|(other, _)| other.as_bytes().cmp(name)).ok()
    }
}

/// Appends what a text stands for, of which the scanner has found that it is one. Nothing where half of a surrogate pair is in it, which
/// stands for no character.
fn unescape(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = raw;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let (escape, after) = rest.split_first()?;
        rest = after;
        out.push(match escape {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut unit = hex(&mut rest)?;
                if (0xd800..0xdc00).contains(&unit) {
                    rest = rest.strip_prefix(b"\\u")?;
                    let low = hex(&mut rest).filter(|low| (0xdc00..0xe000).contains(low))?;
                    unit = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                }
                out.extend_from_slice(char::from_u32(unit)?.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            other => *other,
        });
    }
    Some(())
}

/// The number in the next four digits.
fn hex(rest: &mut &[u8]) -> Option<u32> {
    let (digits, after) = rest.split_at_checked(4)?;
    *rest = after;
    digits.iter().try_fold(0, |number, digit| Some(number * 16 + char::from(*digit).to_digit(16)?))
}

/// Reads JSON (RFC 8259) from one end to the other.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// Containers that are open.
    depth: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn malformed(&self) -> JsonError {
        JsonError::Malformed(self.at)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.eat(byte) { Ok(()) } else { Err(self.malformed()) }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Enters the container whose bracket is here.
    fn open(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(JsonError::TooDeep) } else { Ok(()) }
    }

    /// Whether a container that has been opened has any member; if not, it is left.
    fn first(&mut self, end: u8) -> bool {
        self.space();
        let is_empty = self.eat(end);
        self.depth -= usize::from(is_empty);
        !is_empty
    }

    /// Whether a container has another member after the one that ends here; if not, it is left.
    fn next(&mut self, end: u8) -> Result<bool, JsonError> {
        self.space();
        if self.eat(b',') {
            self.space();
            return Ok(true);
        }
        self.expect(end)?;
        self.depth -= 1;
        Ok(false)
    }

    /// A name with its colon: as written, without the quotes.
    fn name(&mut self) -> Result<&'a [u8], JsonError> {
        let start = self.at + 1;
        self.string()?;
        let name = &self.text[start..self.at - 1];
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(name)
    }

    /// Goes over the value that begins here, whatever it is.
    fn skip(&mut self) -> Result<(), JsonError> {
        let outside = self.depth;
        // Of each container that is open: whether it is an object.
        let mut objects = 0_u128;
        let end = |objects: u128| if objects & 1 == 1 { b'}' } else { b']' };
        loop {
            let mut is_within = false;
            if let Some(bracket @ (b'{' | b'[')) = self.peek() {
                self.open()?;
                objects = (objects << 1) | u128::from(bracket == b'{');
                is_within = self.first(end(objects));
                objects >>= u32::from(!is_within);
            } else {
                self.scalar()?;
            }
            while !is_within {
                if self.depth == outside {
                    return Ok(());
                }
                is_within = self.next(end(objects))?;
                objects >>= u32::from(!is_within);
            }
            if objects & 1 == 1 {
                self.name()?;
            }
        }
    }

    /// A text, a number or a word.
    fn scalar(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => Err(self.malformed()),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.malformed());
        }
        self.at += word.len();
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.expect(b'"')?;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(0x20..) => self.at += 1,
                Some(_) | None => return Err(self.malformed()),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                let digits = self.text.get(self.at + 1..self.at + 5);
                if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    return Err(self.malformed());
                }
                self.at += 5;
            }
            _ => return Err(self.malformed()),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.malformed()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
