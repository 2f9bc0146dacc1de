//! Finds known words in bytes that arrive in pieces: verbatim, percent-encoded, or escaped as in JSON. Any of
//! their characters may be escaped. Takes time linear in the number of bytes (Aho and Corasick, 1975).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use zeroize::Zeroizing;

/// The encoding in which a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// Verbatim.
    Plain,
    /// Percent-encoding: `%41` is a letter (RFC 3986 §2.1).
    Percent,
    /// JSON escapes: `\u0041` is a letter (RFC 8259 §7).
    Json,
}

/// Length of the longest escape: `\u0041`.
const ESCAPE_BYTES_MAX: usize = 6;

/// Minimum length of a line in text that is wrapped at a fixed width, as Base64 often is: MIME has 76
/// characters (RFC 2045 §6.8), PEM 64 (RFC 7468 §2), others 60.
pub(super) const LINE_BYTES_MIN: usize = 60;

/// Length of the longest line end: `\u000d\u000a`.
const LINE_END_BYTES_MAX: usize = 2 * ESCAPE_BYTES_MAX;

/// A byte for a character that cannot belong to a word: UTF-8 never contains it.
const NO_CHARACTER: u8 = 0xff;

/// A trie of the words to find. Each node links to the longest other prefix that is a suffix of its own.
pub(super) struct WordTrie {
    nodes: Vec<TrieNode>,
    /// The labels of the edges of all nodes, node after node, and the nodes they lead to.
    labels: Zeroizing<Vec<u8>>,
    targets: Vec<u32>,
    /// The node after each byte from the root, which is the usual starting point.
    from_root: Box<[u32; 256]>,
    /// Length of the longest word, in bytes.
    longest: usize,
    /// `true` if words are found across line ends.
    wrapped: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct TrieNode {
    /// The node's range in the list of all edges.
    edges: (u32, u32),
    /// The node of the longest proper suffix that is a prefix of a word.
    shorter: u32,
    /// Distance from the root, in bytes.
    depth: u32,
    /// Length of the longest word that ends at this node, in bytes; 0 if none does.
    word: u32,
}

const ROOT: u32 = 0;

impl WordTrie {
    /// Compiles the words. None of them may be empty.
    pub fn new<Word: AsRef<[u8]>>(words: impl IntoIterator<Item = Word>) -> Self {
        let mut nodes = vec![TrieNode::default()];
        let mut children = vec![BTreeMap::<u8, u32>::new()];
        let mut longest = 0;
        for word in words {
            longest = longest.max(word.as_ref().len());
            let mut at = ROOT;
            for byte in word.as_ref() {
                let next = number(nodes.len());
                let depth = nodes[at as usize].depth + 1;
                at = *children[at as usize].entry(*byte).or_insert(next);
                if at == next {
                    nodes.push(TrieNode { depth, ..TrieNode::default() });
                    children.push(BTreeMap::new());
                }
            }
            nodes[at as usize].word = nodes[at as usize].depth;
        }
        let mut words = Self { longest, ..Self::with_edges(nodes, &children) };
        words.link(&children);
        words
    }

    /// Also finds words across line ends, at most one per [`LINE_BYTES_MIN`] characters. Only for words
    /// without line ends.
    pub fn wrapped(self) -> Self {
        Self { wrapped: true, ..self }
    }

    /// Maximum number of bytes of text that a word takes, in any encoding.
    pub fn text_bytes_max(&self) -> usize {
        let breaks = if self.wrapped { 1 + self.longest / LINE_BYTES_MIN } else { 0 };
        self.longest * ESCAPE_BYTES_MAX + breaks * LINE_END_BYTES_MAX
    }

    fn with_edges(mut nodes: Vec<TrieNode>, children: &[BTreeMap<u8, u32>]) -> Self {
        let (mut labels, mut targets) = (Zeroizing::new(Vec::with_capacity(nodes.len())), Vec::new());
        for (node, children) in nodes.iter_mut().zip(children) {
            let start = number(targets.len());
            labels.extend(children.keys());
            targets.extend(children.values());
            node.edges = (start, number(targets.len()));
        }
        let mut from_root = Box::new([ROOT; 256]);
        for (byte, target) in children.iter().take(1).flatten() {
            from_root[usize::from(*byte)] = *target;
        }
        Self { nodes, labels, targets, from_root, longest: 0, wrapped: false }
    }

    /// Links each node to its longest suffix, in breadth-first order.
    fn link(&mut self, children: &[BTreeMap<u8, u32>]) {
        let mut waiting = VecDeque::from([ROOT]);
        while let Some(at) = waiting.pop_front() {
            for (byte, child) in &children[at as usize] {
                let shorter =
                    if at == ROOT { ROOT } else { self.next(self.nodes[at as usize].shorter, *byte) };
                let word = self.nodes[shorter as usize].word;
                let node = &mut self.nodes[*child as usize];
                node.shorter = shorter;
                node.word = node.word.max(word);
                waiting.push_back(*child);
            }
        }
    }

    /// Returns the node after `byte` from `at`.
    fn next(&self, mut at: u32, byte: u8) -> u32 {
        while at != ROOT {
            let node = &self.nodes[at as usize];
            let edges = node.edges.0 as usize..node.edges.1 as usize;
            if let Some(edge) = memchr::memchr(byte, &self.labels[edges.clone()]) {
                return self.targets[edges.start + edge];
            }
            at = node.shorter;
        }
        self.from_root[usize::from(byte)]
    }

    /// Returns `true` if a word may begin with `byte`, in any encoding.
    pub fn may_begin(&self, byte: u8) -> bool {
        matches!(byte, b'%' | b'\\') || self.from_root[usize::from(byte)] != ROOT
    }
}

fn number(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The state of a search in one text.
#[derive(Debug)]
pub(super) struct Finder {
    coding: Coding,
    at: u32,
    /// Positions in the text of the characters on the path to the current node, in bytes.
    starts: VecDeque<u64>,
    /// A possible escape, and its position.
    escape: [u8; ESCAPE_BYTES_MAX],
    escape_len: usize,
    escape_start: u64,
    /// Characters since a line end within a possible word; the minimum line length if there was no line end.
    since_line_end: usize,
    /// `true` after a CR that may begin a line end.
    has_cr: bool,
}

/// The state of a begun escape after the next byte.
enum Escape {
    /// More bytes are needed.
    Open,
    /// An escape of a character below 128.
    Byte(u8),
    /// An escape of another character.
    Character(u32),
    /// Not an escape.
    None,
}

impl Finder {
    /// Creates the state for the beginning of a text.
    pub fn new(coding: Coding) -> Self {
        Self {
            coding,
            at: ROOT,
            starts: VecDeque::new(),
            escape: [0; ESCAPE_BYTES_MAX],
            escape_len: 0,
            escape_start: 0,
            since_line_end: LINE_BYTES_MIN,
            has_cr: false,
        }
    }

    /// Returns `true` if no byte read so far may belong to a word.
    pub fn is_idle(&self) -> bool {
        self.at == ROOT && self.escape_len == 0
    }

    /// Position of the first byte that may belong to a word.
    #[cfg(test)]
    pub fn start(&self) -> Option<u64> {
        let escape = (self.escape_len > 0).then_some(self.escape_start);
        self.starts.front().copied().or(escape)
    }

    /// Reads the next byte, at `position`. Calls `found` with the start and end of each word. Of words that
    /// end at the same position, only the longest is reported.
    pub fn read(&mut self, words: &WordTrie, byte: u8, position: u64, found: &mut impl FnMut(u64, u64)) {
        if self.escape_len == 0 {
            return self.read_first(words, byte, position, found);
        }
        self.escape[self.escape_len] = byte;
        self.escape_len += 1;
        let (start, end) = (self.escape_start, position + 1);
        match self.escape_state() {
            Escape::Open => {}
            Escape::Byte(byte) => {
                self.escape_len = 0;
                self.take(words, byte, start..end, found);
            }
            Escape::Character(code) => {
                self.escape_len = 0;
                let mut utf8 = [0; 4];
                let character =
                    char::from_u32(code).map(|character| character.encode_utf8(&mut utf8).as_bytes());
                for byte in character.unwrap_or(&[NO_CHARACTER]) {
                    self.take(words, *byte, start..end, found);
                }
            }
            Escape::None => {
                self.escape_len -= 1;
                self.flush_escape(words, found);
                self.read_first(words, byte, position, found);
            }
        }
    }

    /// Ends the text, or the part of it that a word can span.
    pub fn finish(&mut self, words: &WordTrie, found: &mut impl FnMut(u64, u64)) {
        self.flush_escape(words, found);
        self.reset();
    }

    fn reset(&mut self) {
        self.at = ROOT;
        self.starts.clear();
        self.since_line_end = LINE_BYTES_MIN;
        self.has_cr = false;
    }

    /// Reads a byte outside an escape.
    fn read_first(&mut self, words: &WordTrie, byte: u8, position: u64, found: &mut impl FnMut(u64, u64)) {
        let begins = match self.coding {
            Coding::Plain => false,
            Coding::Percent => byte == b'%',
            Coding::Json => byte == b'\\',
        };
        if begins {
            self.escape[0] = byte;
            (self.escape_len, self.escape_start) = (1, position);
        } else {
            self.take(words, byte, position..position + 1, found);
        }
    }

    fn escape_state(&self) -> Escape {
        let hexadecimal = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits)
                .ok()
                .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
            u32::from_str_radix(digits, 16).ok()
        };
        match (self.coding, &self.escape[1..self.escape_len]) {
            (Coding::Percent, [digit]) if digit.is_ascii_hexdigit() => Escape::Open,
            (Coding::Percent, digits @ [_, _]) => hexadecimal(digits)
                .and_then(|code| u8::try_from(code).ok())
                .map_or(Escape::None, Escape::Byte),
            (Coding::Json, [byte @ (b'"' | b'\\' | b'/')]) => Escape::Byte(*byte),
            (Coding::Json, [b'b']) => Escape::Byte(8),
            (Coding::Json, [b'f']) => Escape::Byte(12),
            (Coding::Json, [b'n']) => Escape::Byte(b'\n'),
            (Coding::Json, [b'r']) => Escape::Byte(b'\r'),
            (Coding::Json, [b't']) => Escape::Byte(b'\t'),
            (Coding::Json, [b'u']) => Escape::Open,
            (Coding::Json, [b'u', digits @ ..]) => match hexadecimal(digits) {
                None => Escape::None,
                Some(_) if digits.len() < 4 => Escape::Open,
                Some(code) => {
                    u8::try_from(code).ok().filter(u8::is_ascii).map_or(Escape::Character(code), Escape::Byte)
                }
            },
            _ => Escape::None,
        }
    }

    /// Reads the bytes of a failed escape as plain characters.
    fn flush_escape(&mut self, words: &WordTrie, found: &mut impl FnMut(u64, u64)) {
        let (escape, len) = (self.escape, std::mem::take(&mut self.escape_len));
        for (byte, start) in escape[..len].iter().zip(self.escape_start..) {
            self.take(words, *byte, start..start + 1, found);
        }
    }

    /// Reads a character that spans `start` to `end`.
    fn take(&mut self, words: &WordTrie, byte: u8, span: Range<u64>, found: &mut impl FnMut(u64, u64)) {
        if words.wrapped && self.at != ROOT && self.passes_over(byte) {
            return;
        }
        self.at = words.next(self.at, byte);
        let TrieNode { depth, word, .. } = words.nodes[self.at as usize];
        if depth == 0 {
            return self.reset();
        }
        self.since_line_end += 1;
        self.starts.push_back(span.start);
        while self.starts.len() > depth as usize {
            self.starts.pop_front();
        }
        if word > 0
            && let Some(start) = self.starts.get((depth - word) as usize)
        {
            found(*start, span.end);
        }
    }

    /// Returns `true` if `byte` belongs to a line end within a possible word.
    fn passes_over(&mut self, byte: u8) -> bool {
        let is_due = self.since_line_end >= LINE_BYTES_MIN;
        match byte {
            b'\r' if is_due && !self.has_cr => self.has_cr = true,
            b'\n' if is_due => {
                self.has_cr = false;
                self.since_line_end = 0;
            }
            _ => {
                if self.has_cr {
                    self.reset();
                }
                return false;
            }
        }
        true
    }
}

/// Calls `found` with the position of each word in `text`, decoded as `coding`, in the order of their ends.
pub(super) fn find_all(words: &WordTrie, coding: Coding, text: &[u8], mut found: impl FnMut(u64, u64)) {
    let mut finder = Finder::new(coding);
    for (byte, position) in text.iter().zip(0..) {
        finder.read(words, *byte, position, &mut found);
    }
    finder.finish(words, &mut found);
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes a complete text to its characters, each with its start and end.
    pub fn characters(coding: Coding, text: &[u8]) -> Vec<(u8, usize, usize)> {
        let (mut characters, mut at) = (Vec::new(), 0);
        while at < text.len() {
            let (bytes, len) = character(coding, &text[at..]);
            characters.extend(bytes.into_iter().map(|byte| (byte, at, at + len)));
            at += len;
        }
        characters
    }

    fn character(coding: Coding, text: &[u8]) -> (Vec<u8>, usize) {
        let digits = |digits: Option<&[u8]>| {
            let digits = std::str::from_utf8(digits?).ok().filter(|digits| !digits.contains(['+', '-']))?;
            u32::from_str_radix(digits, 16).ok()
        };
        let percent =
            (coding == Coding::Percent && text[0] == b'%').then(|| digits(text.get(1..3))).flatten();
        let escape = (coding == Coding::Json && text[0] == b'\\').then(|| text.get(1)).flatten();
        match (percent, escape) {
            (Some(code), _) => (vec![u8::try_from(code).unwrap()], 3),
            (_, Some(byte @ (b'"' | b'\\' | b'/'))) => (vec![*byte], 2),
            (_, Some(b'b')) => (vec![8], 2),
            (_, Some(b'f')) => (vec![12], 2),
            (_, Some(b'n')) => (vec![b'\n'], 2),
            (_, Some(b'r')) => (vec![b'\r'], 2),
            (_, Some(b't')) => (vec![b'\t'], 2),
            (_, Some(b'u')) => match digits(text.get(2..6)) {
                Some(code) => {
                    let character = char::from_u32(code).map(|character| character.to_string().into_bytes());
                    (character.unwrap_or(vec![NO_CHARACTER]), 6)
                }
                None => (vec![b'\\'], 1),
            },
            _ => (vec![text[0]], 1),
        }
    }

    /// Returns the position of each word by brute force: of words that end at the same position, the longest.
    pub fn occurrences(words: &[Vec<u8>], coding: Coding, text: &[u8]) -> Vec<(usize, usize)> {
        let characters = characters(coding, text);
        let at = |end: usize| {
            let found = words.iter().filter(|word| {
                let bytes = characters[..=end].iter().map(|(byte, ..)| *byte);
                bytes.rev().take(word.len()).eq(word.iter().rev().copied())
            });
            let word = found.max_by_key(|word| word.len())?;
            Some((characters[end + 1 - word.len()].1, characters[end].2))
        };
        (0..characters.len()).filter_map(at).collect()
    }

    fn found(words: &[Vec<u8>], coding: Coding, text: &[u8]) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        let index = |at: u64| usize::try_from(at).unwrap();
        find_all(&WordTrie::new(words), coding, text, |start, end| all.push((index(start), index(end))));
        all
    }

    #[test]
    fn words_are_found_however_they_are_written() {
        let words = [b"a/b\"c".to_vec(), "ä€".as_bytes().to_vec()];
        for (coding, text, expected) in [
            (Coding::Plain, r#"xa/b"c a%2Fb"c"#, vec![(1, 6)]),
            (Coding::Percent, "a/b\"c%61%2fb%22ca%2Fb%2", vec![(0, 5), (5, 16)]),
            (
                Coding::Json,
                r#"a\/b\"c a/b\u0022\u0063 \u00e4\u20AC \ud83d\ude00ä€"#,
                vec![(0, 7), (8, 23), (24, 36), (49, 54)],
            ),
            (Coding::Json, r#"\a/b\"c\u00a/b\"c\"#, vec![(1, 7), (11, 17)]),
            (Coding::Percent, "%a/b%22c%%61/b\"c", vec![(1, 8), (9, 16)]),
        ] {
            assert_eq!(found(&words, coding, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_word_within_a_word_and_one_that_overlaps_are_found() {
        let words = ["abcab", "bca", "ca", "abx"].map(|word| word.as_bytes().to_vec());
        assert_eq!(found(&words, Coding::Plain, b"abcabcabx"), [(1, 4), (0, 5), (4, 7), (3, 8), (6, 9)]);
    }

    proptest! {
        #[test]
        fn found_occurrences_equal_those_of_a_simple_search(
            words in prop::collection::vec("[ab%\\\\4u0\"]{1,6}", 1..4),
            text in prop::collection::vec(prop::sample::select(vec!["a", "b", "%", "%61", "%4", "4", "1", "\\", "\\u0061", "\\\"", "\\u", "0", "\"", "u"]), 0..40),
        ) {
            let words: Vec<Vec<u8>> = words.into_iter().map(String::into_bytes).collect();
            let text = text.concat().into_bytes();
            for coding in [Coding::Plain, Coding::Percent, Coding::Json] {
                prop_assert_eq!(found(&words, coding, &text), occurrences(&words, coding, &text));
            }
        }
    }
}
