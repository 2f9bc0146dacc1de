//! Finds known words in bytes that come in pieces: as they stand, percent-encoded, or escaped as in JSON, whichever of their characters
//! are. In time that is linear in the bytes, whatever they are (Aho and Corasick, 1975).

use std::collections::{BTreeMap, VecDeque};

use zeroize::Zeroizing;

/// How a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// As it stands.
    Plain,
    /// `%41` is a letter (RFC 3986 §2.1).
    Percent,
    /// `\u0041` is (RFC 8259 §7).
    Json,
}

/// The longest escape: `\u0041`.
const ESCAPE_BYTES_MAX: usize = 6;

/// What breaks a text into lines of one length, as Base64 often is, makes none shorter: MIME has 76
/// characters in each (RFC 2045 §6.8), PEM 64 (RFC 7468 §2), others 60.
pub(super) const LINE_BYTES_MIN: usize = 60;

/// The longest line end: `\u000d\u000a`.
const LINE_END_BYTES_MAX: usize = 2 * ESCAPE_BYTES_MAX;

/// Stands for a character that is none of a word: no UTF-8 has it.
const NO_CHARACTER: u8 = 0xff;

/// Words that are looked for, as a tree of their beginnings; each knows which other beginning is the longest at its end.
pub(super) struct Words {
    nodes: Vec<Node>,
    /// What the edges from all nodes are labelled with, node after node, and where they lead.
    labels: Zeroizing<Vec<u8>>,
    targets: Vec<u32>,
    /// Where a byte leads from the root, which is where it leads mostly.
    from_root: Box<[u32; 256]>,
    /// Bytes of the longest of them.
    longest: usize,
    /// Whether they are found where lines break them.
    wrapped: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// Its edges among all.
    edges: (u32, u32),
    /// The node of the longest beginning of a word at the end of this one.
    shorter: u32,
    /// Bytes from the root.
    depth: u32,
    /// The longest word at the end of what has led here, in bytes; 0 where there is none.
    word: u32,
}

const ROOT: u32 = 0;

impl Words {
    /// Words to look for; none of them is empty.
    pub fn new<Word: AsRef<[u8]>>(words: impl IntoIterator<Item = Word>) -> Self {
        let mut nodes = vec![Node::default()];
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
                    nodes.push(Node { depth, ..Node::default() });
                    children.push(BTreeMap::new());
                }
            }
            nodes[at as usize].word = nodes[at as usize].depth;
        }
        let mut words = Self { longest, ..Self::with_edges(nodes, &children) };
        words.link(&children);
        words
    }

    /// Has them found where line ends break them, at most one in [`LINE_BYTES_MIN`] characters. Only for
    /// words without line ends.
    pub fn wrapped(self) -> Self {
        Self { wrapped: true, ..self }
    }

    /// The most bytes of a text that one of them takes, however it is written.
    pub fn text_bytes_max(&self) -> usize {
        let breaks = if self.wrapped { 1 + self.longest / LINE_BYTES_MIN } else { 0 };
        self.longest * ESCAPE_BYTES_MAX + breaks * LINE_END_BYTES_MAX
    }

    fn with_edges(mut nodes: Vec<Node>, children: &[BTreeMap<u8, u32>]) -> Self {
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

    /// Finds for each node the longest beginning at its end, those nearer to the root first.
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

    /// Where `byte` leads from `at`.
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

    /// Whether a word may begin with `byte`, however it is written.
    pub fn may_begin(&self, byte: u8) -> bool {
        matches!(byte, b'%' | b'\\') || self.from_root[usize::from(byte)] != ROOT
    }
}

fn number(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Where a reader is in a text.
#[derive(Debug)]
pub(super) struct Finder {
    coding: Coding,
    at: u32,
    /// Where the characters begin that have led there, counted in bytes from the beginning of the text.
    starts: VecDeque<u64>,
    /// What may become an escape, and where it begins.
    escape: [u8; ESCAPE_BYTES_MAX],
    escape_len: usize,
    escape_start: u64,
    /// Characters since a line end within what may be a word; as many as a line has at least where there was
    /// none.
    since_line_end: usize,
    /// Whether a CR has come that may be half a line end.
    has_cr: bool,
}

/// What becomes of a begun escape with the next byte.
enum Escape {
    /// More has to come.
    Open,
    /// It is one of a character below 128.
    Byte(u8),
    /// It is one of another character.
    Character(u32),
    /// It is none.
    None,
}

impl Finder {
    /// One that reads a text from its beginning.
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

    /// Whether nothing of what it has read may belong to a word.
    pub fn is_idle(&self) -> bool {
        self.at == ROOT && self.escape_len == 0
    }

    /// Where what it has read begins that may belong to a word.
    #[cfg(test)]
    pub fn start(&self) -> Option<u64> {
        let escape = (self.escape_len > 0).then_some(self.escape_start);
        self.starts.front().copied().or(escape)
    }

    /// Reads the next byte, which is the one at `position`. Tells `found` where each word begins and ends, the longest of those that end
    /// in one place.
    pub fn read(&mut self, words: &Words, byte: u8, position: u64, found: &mut impl FnMut(u64, u64)) {
        if self.escape_len == 0 {
            return self.read_first(words, byte, position, found);
        }
        self.escape[self.escape_len] = byte;
        self.escape_len += 1;
        let (start, end) = (self.escape_start, position + 1);
        match self.judge() {
            Escape::Open => {}
            Escape::Byte(byte) => {
                self.escape_len = 0;
                self.take(words, byte, (start, end), found);
            }
            Escape::Character(code) => {
                self.escape_len = 0;
                let mut utf8 = [0; 4];
                let character =
                    char::from_u32(code).map(|character| character.encode_utf8(&mut utf8).as_bytes());
                for byte in character.unwrap_or(&[NO_CHARACTER]) {
                    self.take(words, *byte, (start, end), found);
                }
            }
            Escape::None => {
                self.escape_len -= 1;
                self.take_escape(words, found);
                self.read_first(words, byte, position, found);
            }
        }
    }

    /// Nothing follows, or nothing that could belong to a word with what was read.
    pub fn finish(&mut self, words: &Words, found: &mut impl FnMut(u64, u64)) {
        self.take_escape(words, found);
        self.begin_anew();
    }

    fn begin_anew(&mut self) {
        self.at = ROOT;
        self.starts.clear();
        self.since_line_end = LINE_BYTES_MIN;
        self.has_cr = false;
    }

    /// Reads a byte that no escape has begun before.
    fn read_first(&mut self, words: &Words, byte: u8, position: u64, found: &mut impl FnMut(u64, u64)) {
        let begins = match self.coding {
            Coding::Plain => false,
            Coding::Percent => byte == b'%',
            Coding::Json => byte == b'\\',
        };
        if begins {
            self.escape[0] = byte;
            (self.escape_len, self.escape_start) = (1, position);
        } else {
            self.take(words, byte, (position, position + 1), found);
        }
    }

    fn judge(&self) -> Escape {
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

    /// Takes what looked like an escape for what it is: characters that stand for themselves.
    fn take_escape(&mut self, words: &Words, found: &mut impl FnMut(u64, u64)) {
        let (escape, len) = (self.escape, std::mem::take(&mut self.escape_len));
        for (byte, start) in escape[..len].iter().zip(self.escape_start..) {
            self.take(words, *byte, (start, start + 1), found);
        }
    }

    /// Takes a character that stands from `start` to `end`.
    fn take(&mut self, words: &Words, byte: u8, (start, end): (u64, u64), found: &mut impl FnMut(u64, u64)) {
        if words.wrapped && self.at != ROOT && self.passes_over(byte) {
            return;
        }
        self.at = words.next(self.at, byte);
        let Node { depth, word, .. } = words.nodes[self.at as usize];
        if depth == 0 {
            return self.begin_anew();
        }
        self.since_line_end += 1;
        self.starts.push_back(start);
        while self.starts.len() > depth as usize {
            self.starts.pop_front();
        }
        if word > 0
            && let Some(start) = self.starts.get((depth - word) as usize)
        {
            found(*start, end);
        }
    }

    /// Whether `byte` belongs to a line end within what may be a word.
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
                    self.begin_anew();
                }
                return false;
            }
        }
        true
    }
}

/// Where `words` stand in `text`, read as `coding` has it, in the order of their ends.
pub(super) fn find_all(words: &Words, coding: Coding, text: &[u8], mut found: impl FnMut(u64, u64)) {
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

    /// The characters of a text, each with where it begins and ends, by looking at it as a whole.
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

    /// Where each word stands, by looking for it everywhere: of those that end in one place, the longest.
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
        let place = |at: u64| usize::try_from(at).unwrap();
        find_all(&Words::new(words), coding, text, |start, end| all.push((place(start), place(end))));
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
        fn what_is_found_is_what_is_there(
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
