//! Messages by a grammar: a well-formed request or response, and the mutations drawn for it.

use egret_tests::random::Random;

use super::mutate::{Kind, Messages, Mutation, kinds};

/// A message in parts. The lines have no line ends, and the body is framed already.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) before: Vec<u8>,
    /// The three parts of the start line. One that is empty is left out.
    pub(crate) start: [Vec<u8>; 3],
    pub(crate) lines: Vec<Vec<u8>>,
    pub(crate) body: Vec<u8>,
    /// The line end after each line whose number is here, instead of CRLF.
    pub(crate) ends: Vec<(usize, &'static [u8])>,
}

impl Draft {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let start: Vec<&[u8]> =
            self.start.iter().map(|part| &part[..]).filter(|part| !part.is_empty()).collect();
        let start = start.join(&b' ');
        let mut bytes = self.before.clone();
        for (number, line) in [&start].into_iter().chain(&self.lines).chain([&Vec::new()]).enumerate() {
            bytes.extend_from_slice(line);
            let end = self.ends.iter().find(|(of, _)| *of == number).map_or(&b"\r\n"[..], |(_, end)| end);
            bytes.extend_from_slice(end);
        }
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A message: the function of a seed, a number, and the mutations that shrinking has left.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) seed: u64,
    pub(crate) number: u64,
    pub(crate) mutations: Vec<Mutation>,
}

/// A name of the message's own that its requests carry, so that a server's report is known as its own.
pub(crate) fn mark(number: u64) -> String {
    format!("q{number}-")
}

impl Message {
    /// The request with this number. One in four has no mutation, and half have one.
    pub(crate) fn request(seed: u64, number: u64) -> Self {
        Self::with(seed, number, &kinds(Messages::Requests))
    }

    /// The response with this number.
    pub(crate) fn response(seed: u64, number: u64) -> Self {
        Self::with(seed, number, &kinds(Messages::Responses))
    }

    fn with(seed: u64, number: u64, kinds: &[Kind]) -> Self {
        let mut random = Random::of(seed, number);
        let count = [0, 0, 1, 1, 1, 1, 2, 3][random.below(8)];
        let mutations = (0..count).map(|_| Mutation::draw(&mut random, kinds)).collect();
        Self { seed, number, mutations }
    }

    /// The numbers of its draft, which do not depend on those of its mutations.
    fn random(&self) -> Random {
        Random::of(self.seed ^ (1 << 40), self.number)
    }

    /// The bytes of a request, followed by a well-formed one: whatever a server takes for the end of the
    /// first shows in how it reads the second.
    pub(crate) fn request_bytes(&self) -> Vec<u8> {
        let mark = mark(self.number);
        let inner = format!("GET /{mark}in HTTP/1.1\r\nHost: garden\r\nx-case: {mark}in\r\n\r\n");
        let mut draft = request(&mut self.random(), &mark, inner.as_bytes());
        for mutation in &self.mutations {
            mutation.apply(&mut draft, &mark, inner.as_bytes());
        }
        [draft.bytes(), end(&mark)].concat()
    }

    /// The bytes of a response.
    pub(crate) fn response_bytes(&self) -> Vec<u8> {
        let mark = mark(self.number);
        let inner = format!("HTTP/1.1 200 OK\r\nx-case: {mark}in\r\nContent-Length: 2\r\n\r\nin");
        let mut draft = response(&mut self.random(), &mark, inner.as_bytes());
        for mutation in &self.mutations {
            mutation.apply(&mut draft, &mark, inner.as_bytes());
        }
        draft.bytes()
    }
}

/// The request that follows each message.
pub(crate) fn end(mark: &str) -> Vec<u8> {
    format!("GET /{mark}end HTTP/1.1\r\nHost: garden\r\nx-case: {mark}end\r\n\r\n").into_bytes()
}

/// A well-formed request. `inner` is one that its body may be, which no server may take for one.
fn request(random: &mut Random, mark: &str, inner: &[u8]) -> Draft {
    let method =
        random.one(&["GET", "GET", "POST", "POST", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS"]);
    let rest = random.one(&["", "/a/b", "?x=1&y=2", "/a%20b?c=%41", "/~a;b=c", "/a//b", "/a/?q=a+b"]);
    let mut lines = vec![b"Host: garden".to_vec(), format!("x-case: {mark}m").into_bytes()];
    let more: &[&str] = &[
        "Accept: */*",
        "User-Agent: garden/1",
        "Cookie: a=b; c=d",
        "Accept-Encoding: gzip",
        "X-Empty:",
        "X-Spaces:  \t a  b \t",
        "X-Text: caf\u{e9}",
        "Authorization: Basic YTpi",
        "Content-Type: text/plain",
        "Cache-Control: no-store",
        "X-Twice: 1",
        "X-Twice: 2",
    ];
    for _ in 0..random.below(4) {
        lines.push(random.one(more).as_bytes().to_vec());
    }
    let has_body = matches!(method, "POST" | "PUT" | "PATCH") || random.once_in(12);
    let body = if has_body { framed(random, &mut lines, inner) } else { Vec::new() };
    let target = format!("/{mark}m{rest}");
    Draft {
        before: Vec::new(),
        start: [method, &target, "HTTP/1.1"].map(Vec::from),
        lines,
        body,
        ends: Vec::new(),
    }
}

/// A well-formed response. One in ten ends with its connection.
fn response(random: &mut Random, mark: &str, inner: &[u8]) -> Draft {
    let status = random.one(&["200", "200", "200", "201", "206", "404", "429", "500", "204", "304"]);
    let mut lines = vec![format!("x-case: {mark}r").into_bytes()];
    let more: &[&str] = &[
        "Content-Type: text/plain",
        "Content-Type: application/json",
        "Server: garden",
        "Set-Cookie: a=b; Path=/",
        "Set-Cookie: c=d",
        "X-Empty:",
        "X-Spaces:  \t a  b \t",
        "Cache-Control: no-store",
        "ETag: \"x\"",
        "Retry-After: 1",
        "X-Twice: 1",
        "X-Twice: 2",
    ];
    for _ in 0..random.below(4) {
        lines.push(random.one(more).as_bytes().to_vec());
    }
    let body = match status {
        "204" | "304" => Vec::new(),
        _ if random.once_in(10) => content(random, inner),
        _ => framed(random, &mut lines, inner),
    };
    let start = ["HTTP/1.1", status, "Fine"].map(Vec::from);
    Draft { before: Vec::new(), start, lines, body, ends: Vec::new() }
}

/// A body, with a length or in chunks, for which a line is added.
fn framed(random: &mut Random, lines: &mut Vec<Vec<u8>>, inner: &[u8]) -> Vec<u8> {
    let content = content(random, inner);
    if random.once_in(2) {
        lines.push(format!("Content-Length: {}", content.len()).into_bytes());
        return content;
    }
    lines.push(b"Transfer-Encoding: chunked".to_vec());
    chunked(random, &content)
}

fn content(random: &mut Random, inner: &[u8]) -> Vec<u8> {
    match random.below(6) {
        0 => Vec::new(),
        1 => b"{\"a\":[1,2]}".to_vec(),
        2 => inner.to_vec(),
        3 => vec![b'x'; 5_000],
        4 => (0..=255).collect(),
        _ => b"hello".to_vec(),
    }
}

fn chunked(random: &mut Random, content: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for piece in content.chunks(1 + random.below(content.len().max(1))) {
        body.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        body.extend_from_slice(piece);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

#[test]
fn messages_are_the_same_each_time() {
    let all = |seed: u64| -> Vec<Vec<u8>> {
        let both = |number| {
            [Message::request(seed, number).request_bytes(), Message::response(seed, number).response_bytes()]
        };
        (1..200).flat_map(both).collect()
    };
    assert_eq!(all(7), all(7));
    assert_ne!(all(7), all(8));
}
