//! Edits JSON in its text: sets, adds or removes values at pointers (RFC 6901), and keeps everything else
//! byte for byte: order, spelling of numbers, white space, escapes.
//!
//! The text is parsed once and strictly (RFC 8259), without computing numbers or building values. If a name
//! occurs several times in an object, an edit covers all of them, so all parsers see the same result. A name
//! written with escapes is the same name.

use crate::pointer::{PointerError, index, parts};
use crate::scanner::{GROWTH_BYTES_MAX, JsonError, Scanner, unescape};
use crate::write_escaped;

/// The edit at a place. A value is given by its index in the list for [`JsonEdits::apply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Replaces the value, or adds it; missing parent objects are created.
    Set(usize),
    /// Appends the value to a list, or adds it if the place is empty. Any other value stays.
    Add(usize),
    /// Removes the value.
    Remove,
    /// Replaces the value by what the caller of [`JsonEdits::apply_with`] makes of it, if it exists.
    Rewrite,
}

/// Appends the replacement of a value, both as JSON.
pub type Rewrite<'r> = dyn FnMut(&[u8], &mut Vec<u8>) -> Result<(), JsonError> + 'r;

/// The reason why an edit cannot be added to others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The pointer is invalid.
    #[error("{0}")]
    Pointer(#[source] PointerError),
    /// The place at this pointer lies within that of another edit.
    #[error("`{0}` lies within the value of another pointer")]
    Within(String),
    /// The place at this pointer is, or contains, that of another edit.
    #[error("another pointer names the same value as `{0}`, or one within it")]
    Contains(String),
    /// The edit would remove the whole text.
    #[error("the whole body cannot be removed")]
    RemovesAll,
}

/// Edits of JSON texts, at places of which none contains another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JsonEdits {
    root: EditNode,
}

/// A node in the tree of edited places.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct EditNode {
    action: Option<Action>,
    /// The places within it, sorted by name.
    children: Vec<(Box<str>, Self)>,
}

impl JsonEdits {
    /// Returns `true` if there are no edits.
    pub fn is_empty(&self) -> bool {
        self.root == EditNode::default()
    }

    /// Adds `action` at `pointer`. Returns an error if the pointer is invalid, or if its place contains that
    /// of another edit or lies within it.
    pub fn insert(&mut self, pointer: &str, action: Action) -> Result<(), EditError> {
        let mut node = &mut self.root;
        for part in parts(pointer).map_err(EditError::Pointer)? {
            if node.action.is_some() {
                return Err(EditError::Within(pointer.to_owned()));
            }
            let found = node.children.binary_search_by(|(name, _)| (**name).cmp(&part));
            let at = found.unwrap_or_else(|at| {
                node.children.insert(at, (part.into(), EditNode::default()));
                at
            });
            node = &mut node.children[at].1;
        }
        if node.action.is_some() || !node.children.is_empty() {
            return Err(EditError::Contains(pointer.to_owned()));
        }
        if pointer.is_empty() && action == Action::Remove {
            return Err(EditError::RemovesAll);
        }
        node.action = Some(action);
        Ok(())
    }

    /// Applies the edits to `text`, with `values` as JSON. Returns `None` if nothing changes.
    /// [`Action::Rewrite`] keeps the value.
    pub fn apply(&self, text: &[u8], values: &[&[u8]]) -> Result<Option<Vec<u8>>, JsonError> {
        self.apply_with(text, values, &mut |value, new| {
            new.extend_from_slice(value);
            Ok(())
        })
    }

    /// Like [`apply`](Self::apply), with `rewrite` for the values of [`Action::Rewrite`].
    pub fn apply_with(
        &self,
        text: &[u8],
        values: &[&[u8]],
        rewrite: &mut Rewrite<'_>,
    ) -> Result<Option<Vec<u8>>, JsonError> {
        if let Err(error) = std::str::from_utf8(text) {
            return Err(JsonError::Malformed(error.valid_up_to()));
        }
        let scanner = Scanner { text, at: 0, depth: 0 };
        let mut editor = Editor { scanner, values, rewrite, edited: Vec::new(), copied: 0, name: Vec::new() };
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

impl EditNode {
    fn is_removed(&self) -> bool {
        self.action == Some(Action::Remove)
    }

    /// Returns `true` if a value is set here or within.
    fn sets(&self) -> bool {
        matches!(self.action, Some(Action::Set(_))) || self.children.iter().any(|(_, child)| child.sets())
    }

    /// Appends the value for an empty place; returns `true` if there is one.
    fn write(&self, values: &[&[u8]], out: &mut Vec<u8>) -> bool {
        match self.action {
            Some(Action::Set(value) | Action::Add(value)) => {
                out.extend_from_slice(values[value]);
                return true;
            }
            Some(Action::Remove | Action::Rewrite) => return false,
            None => {}
        }
        // Only `-` identifies a list.
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
    write_escaped(name.as_bytes(), out);
    out.extend_from_slice(b"\":");
}

/// The removals from one object or list, including the commas.
struct Members {
    /// End of the last member that stays.
    kept_end: Option<usize>,
    /// The range of removed members after it.
    removed: std::ops::Range<usize>,
}

impl Members {
    /// Creates the state for a container that is opened just before `at`.
    fn new(at: usize) -> Self {
        Self { kept_end: None, removed: at..at }
    }

    fn remove(&mut self, start: usize, end: usize) {
        if self.removed.is_empty() {
            self.removed.start = self.kept_end.unwrap_or(start);
        }
        self.removed.end = end;
    }

    /// Returns the range to remove before a member that stays and begins at `start`.
    fn before(&mut self, start: usize) -> std::ops::Range<usize> {
        let removed = std::mem::replace(&mut self.removed, start..start);
        // The first member that stays has no comma before it; others keep theirs.
        match self.kept_end {
            None if !removed.is_empty() => removed.start..start,
            _ => removed,
        }
    }
}

/// Walks through a text and applies the edits.
struct Editor<'a, 'r> {
    scanner: Scanner<'a>,
    values: &'a [&'a [u8]],
    rewrite: &'a mut Rewrite<'r>,
    /// The new text; it corresponds to the old text up to `copied`.
    edited: Vec<u8>,
    copied: usize,
    /// Buffer for unescaped names.
    name: Vec<u8>,
}

impl Editor<'_, '_> {
    /// Replaces a range, which must follow all earlier ones, by `new`.
    fn replace(&mut self, old: std::ops::Range<usize>, new: &[u8]) -> Result<(), JsonError> {
        let text = self.scanner.text;
        self.edited.extend_from_slice(&text[self.copied..old.start]);
        self.edited.extend_from_slice(new);
        self.copied = old.end;
        if self.edited.len() > text.len() + GROWTH_BYTES_MAX { Err(JsonError::TooLong) } else { Ok(()) }
    }

    /// Edits the value that begins here.
    fn value(&mut self, node: &EditNode) -> Result<(), JsonError> {
        let values = self.values;
        match (node.action, self.scanner.peek()) {
            (Some(Action::Set(value)), _) => {
                let start = self.scanner.at;
                self.scanner.skip()?;
                self.replace(start..self.scanner.at, values[value])
            }
            (Some(Action::Rewrite), _) => {
                let start = self.scanner.at;
                self.scanner.skip()?;
                let mut new = Vec::new();
                (self.rewrite)(&self.scanner.text[start..self.scanner.at], &mut new)?;
                self.replace(start..self.scanner.at, &new)
            }
            (Some(Action::Add(value)), Some(b'[')) => self.list(&[], Some(values[value])),
            (Some(Action::Add(_) | Action::Remove), _) => self.scanner.skip(),
            (None, Some(b'{')) => self.object(&node.children),
            (None, Some(b'[')) => self.list(&node.children, None),
            (None, _) => self.scalar(node),
        }
    }

    /// Edits a scalar value. `null` counts as empty; any other scalar prevents values from being set within
    /// it.
    fn scalar(&mut self, node: &EditNode) -> Result<(), JsonError> {
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

    fn object(&mut self, children: &[(Box<str>, EditNode)]) -> Result<(), JsonError> {
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
            let is_dropped = is_set_again || child.is_some_and(EditNode::is_removed);
            self.member(child, is_dropped, start, &mut members)?;
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

    /// Edits a list; `children` name its elements, and `last` is appended.
    fn list(&mut self, children: &[(Box<str>, EditNode)], last: Option<&[u8]>) -> Result<(), JsonError> {
        self.scanner.open()?;
        let mut members = Members::new(self.scanner.at);
        let mut named: Vec<(usize, &EditNode)> =
            children.iter().filter_map(|(name, child)| Some((index(name)?, child))).collect();
        named.sort_unstable_by_key(|(index, _)| *index);
        let mut named = named.into_iter().peekable();
        let mut len = 0;
        let mut more = self.scanner.first(b']');
        while more {
            let child = named.next_if(|(index, _)| *index == len).map(|(_, child)| child);
            self.member(child, child.is_some_and(EditNode::is_removed), self.scanner.at, &mut members)?;
            len += 1;
            more = self.scanner.next(b']')?;
        }
        let mut new = Vec::new();
        while let Some((_, child)) = named.next_if(|(index, child)| *index == len && !child.is_removed()) {
            self.put(&mut new, |values, new| child.write(values, new));
            len += 1;
        }
        let has_no_place = |(name, child): &(Box<str>, EditNode)| {
            &**name != "-" && child.sets() && index(name).is_none_or(|index| index >= len)
        };
        if children.iter().any(has_no_place) {
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

    /// Appends a comma and the output of `write` to `new`; nothing if `write` returns `false`.
    fn put(&self, new: &mut Vec<u8>, write: impl FnOnce(&[&[u8]], &mut Vec<u8>) -> bool) {
        let before = new.len();
        if before > 0 {
            new.push(b',');
        }
        if !write(self.values, new) {
            new.truncate(before);
        }
    }

    /// Edits or removes the member that begins at `start`; the scanner is at its value.
    fn member(
        &mut self,
        child: Option<&EditNode>,
        is_dropped: bool,
        start: usize,
        members: &mut Members,
    ) -> Result<(), JsonError> {
        if is_dropped {
            self.scanner.skip()?;
            members.remove(start, self.scanner.at);
            return Ok(());
        }
        let removed = members.before(start);
        if !removed.is_empty() {
            self.replace(removed, b"")?;
        }
        match child {
            Some(child) => self.value(child)?,
            None => self.scanner.skip()?,
        }
        members.kept_end = Some(self.scanner.at);
        members.removed = self.scanner.at..self.scanner.at;
        Ok(())
    }

    /// Ends a container, with `new` after the members that stay.
    fn close(&mut self, members: &Members, mut new: Vec<u8>) -> Result<(), JsonError> {
        if new.is_empty() && members.removed.is_empty() {
            return Ok(());
        }
        if !new.is_empty() && members.kept_end.is_some() {
            new.insert(0, b',');
        }
        self.replace(members.removed.clone(), &new)
    }

    /// Returns the index of the child whose name equals `raw`, a name in its escaped form.
    fn find(&mut self, children: &[(Box<str>, EditNode)], raw: &[u8]) -> Option<usize> {
        let mut name = raw;
        if memchr::memchr(b'\\', raw).is_some() {
            self.name.clear();
            unescape(raw, &mut self.name)?;
            name = &self.name;
        }
        children.binary_search_by(|(other, _)| other.as_bytes().cmp(name)).ok()
    }
}

#[cfg(test)]
mod tests;
