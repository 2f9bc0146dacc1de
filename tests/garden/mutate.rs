//! Mutations of a message: each breaks or strains one rule of HTTP/1.1.

use egret_tests::random::Random;

use super::generate::Draft;

/// A mutation, with the seed of its choices: the same one does the same after others were left out.
#[derive(Debug, Clone)]
pub(crate) struct Mutation {
    kind: Kind,
    seed: u64,
}

/// The messages that a kind of mutation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Messages {
    All,
    Requests,
    Responses,
}

macro_rules! kinds {
    ($($messages:ident: $($kind:ident)+;)+) => {
        /// The kinds of mutations.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Kind {
            $($($kind,)+)+
        }

        const KINDS: &[(Messages, Kind)] = &[$($((Messages::$messages, Kind::$kind),)+)+];
    };
}

kinds! {
    All: Length Coding BothFramings Repeated Chunks Trailers Spaces LineEnds Controls Name HopByHop;
    Requests: Host Target Method Version;
    All: Huge Before Behind;
    Requests: Expect;
    All: ContentCoding;
    Responses: Status Informational;
}

/// The number of kinds about framing, which are the first ones. Its mistakes are the most dangerous.
const FRAMING: usize = 6;

/// Returns the kinds for requests or for responses, in the order by which messages are drawn.
pub(crate) fn kinds(of: Messages) -> Vec<Kind> {
    let fit = KINDS.iter().filter(|(messages, _)| [Messages::All, of].contains(messages));
    fit.map(|(_, kind)| *kind).collect()
}

/// Values of Content-Length; `N` stands for the length of the body.
const LENGTHS: &str = "¦+N¦-N¦-0¦0¦0N¦00000000000000000000N¦N,N¦N, N¦0xN¦N_0¦N.0¦N e¦\u{b}N¦N\t¦\"N\"¦\
    18446744073709551616¦9223372036854775807¦4294967296¦1";

/// Values of Transfer-Encoding.
const CODINGS: &str = "Chunked¦CHUNKED¦chunked,¦,chunked¦chunked, chunked¦identity¦identity, chunked¦chunked, identity¦\
    gzip¦gzip, chunked¦xchunked¦chunked;a=b¦\"chunked\"¦¦\u{b}chunked¦chunked\u{b}¦ chunked \t¦\
    chun ked";

/// Bodies that are chunked, and most of them not well.
const CHUNKS: &str = "5\r\nhello\r\n0\r\n\r\n¦5;a=b\r\nhello\r\n0;c\r\n\r\n¦5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n¦\
    5 ;a\r\nhello\r\n0\r\n\r\n¦5 \r\nhello\r\n0\r\n\r\n¦ 5\r\nhello\r\n0\r\n\r\n¦\
    05\r\nhello\r\n0\r\n\r\n¦0000000000000000000005\r\nhello\r\n0\r\n\r\n¦0x5\r\nhello\r\n0\r\n\r\n¦\
    +5\r\nhello\r\n0\r\n\r\n¦-5\r\nhello\r\n0\r\n\r\n¦5_\r\nhello\r\n0\r\n\r\n¦5\nhello\n0\n\n¦\
    5\nhello\r\n0\r\n\r\n¦5\r\nhello\n0\r\n\r\n¦5\r\nhello0\r\n\r\n¦5\r\nhelloXX0\r\n\r\n¦\
    5\r\nhelloo\r\n0\r\n\r\n¦5\rhello\r0\r\r¦5\r\r\nhello\r\n0\r\n\r\n¦5;a\nb\r\nhello\r\n0\r\n\r\n¦\
    5;\n\r\nhello\r\n0\r\n\r\n¦5;a\u{0}\r\nhello\r\n0\r\n\r\n¦A\r\nhellohello\r\n0\r\n\r\n¦\
    g\r\nhello\r\n0\r\n\r\n¦\r\nhello\r\n0\r\n\r\n¦ffffffffffffffff\r\nhello\r\n0\r\n\r\n¦\
    10000000000000005\r\nhello\r\n0\r\n\r\n¦5\r\nhello\r\n00\r\n\r\n¦5\r\nhello\r\n0\r\n¦\
    5\r\nhello\r\n0\n\n¦5\r\nhello\r\n0\r\n\n¦5\r\nhello\r\n¦0\r\n\r\n";

/// Trailers, between the last chunk and the end.
const TRAILERS: &str = "X-Trailer: a\r\n¦Content-Length: 5\r\n¦Transfer-Encoding: chunked\r\n¦Host: other\r\n¦\
    x-case: other\r\n¦X-Trailer : a\r\n¦ folded\r\n¦X-Trailer: a\n¦no colon\r\n¦: a\r\n¦\
    X-Trailer: a\rb\r\n¦X-Trailer: a\u{0}\r\n";

/// Options of Connection, and the fields that they may take away.
const OPTIONS: &str = "close¦keep-alive¦Keep-Alive, x-hop¦x-hop¦host¦content-length¦transfer-encoding¦x-case¦\
    close, close¦upgrade¦,¦\"x-hop\"¦x-hop close¦TE";

const HOSTS: &str = "Host:¦Host: garden:80¦Host: garden:¦Host: gar den¦Host: garden/x¦Host: a@garden¦\
    Host: garden, garden¦Host: [::1]¦Host: [::1¦Host: garden:8o¦Host: gard\u{e9}n¦HOST: garden¦\
    Host: GARDEN.¦Host: garden\tx";

const TARGETS: &str = "/MARK#f¦//MARK¦/MARK//¦/./MARK¦/a/../MARK¦/MARK/..%2f¦/MARK%¦/MARK%zz¦/MARK%00¦/MARK%0d%0a¦\
    /MARK\"¦/MARK<>¦/MARK\\¦/MARK|^`{}¦/MARK\u{e9}¦/MARK\u{7f}¦/MARK\u{1}¦/MARK\tx¦/MARK x¦MARK¦¦*¦\
    http://garden/MARK¦http://garden¦http://garden?MARK¦HTTP://garden/MARK¦http://a@garden/MARK¦\
    http:///MARK¦https://garden/MARK¦ftp://garden/MARK¦garden:80¦http://garden:80/MARK¦/MARK?a?b#c¦\
    ?MARK";

const METHODS: &str = "get¦TRACE¦CONNECT¦OPTIONS¦FOO¦M-SEARCH¦G(T¦GET ¦ GET¦GE\tT¦\u{e9}¦QUERY¦PRI¦PURGE";

const VERSIONS: &str = "HTTP/1.0¦HTTP/1.0¦HTTP/1.2¦HTTP/2.0¦HTTP/0.9¦http/1.1¦HTTP/1.1 ¦ HTTP/1.1¦HTTP/01.1¦HTTP/1.10¦\
    HTTP/1,1¦¦HTTP/1¦ICAP/1.1";

const NAMES: &str = ": a¦X-A¦X A: b¦X-A\t: b¦X-A : b¦(X): b¦X_A: b¦X.A: b¦\u{e9}: b¦X-\u{0}: b¦X@: b¦\"X\": b¦\
    !#$%&'*+.^_`|~0aZ: b¦X-Colon:a:b";

/// Parts of a status line: version, status and reason.
const STATUS_LINES: [&str; 3] = [
    "HTTP/1.0¦HTTP/1.0¦HTTP/1.2¦HTTP/2.0¦HTTP/0.9¦http/1.1¦HTTP/1.1 ¦ HTTP/1.1¦HTTP¦ICY¦HTTP/1¦",
    "99¦099¦1000¦2x0¦¦+200¦200 ¦599¦999¦204¦304¦205",
    "¦ ¦a  b¦\u{e9}¦\u{0}¦a\tb¦a\u{7f}b¦a\rb¦OK:¦\u{1}¦Fine ¦x",
];

/// Informational responses before the final one.
const INFORMATIONAL: &str = "HTTP/1.1 100 Continue\r\n\r\n¦HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n¦\
    HTTP/1.1 102 Processing\r\n\r\n¦HTTP/1.1 199 x\r\n\r\n¦\
    HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n¦\
    HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\nab¦\
    HTTP/1.1 103 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n¦\
    HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n¦\
    HTTP/1.1 100\r\n\r\n¦HTTP/1.0 100 Continue\r\n\r\n";

impl Mutation {
    /// Draws one of these kinds. Those about framing are drawn twice as often.
    pub(crate) fn draw(random: &mut Random, kinds: &[Kind]) -> Self {
        let among = if random.once_in(3) { &kinds[..FRAMING] } else { kinds };
        Self { kind: among[random.below(among.len())], seed: random.draw() }
    }

    /// Applies it. `mark` is the message's own name, and `inner` another message, for bodies.
    pub(crate) fn apply(&self, draft: &mut Draft, mark: &str, inner: &[u8]) {
        let random = &mut Random::of(self.seed, 0);
        match self.kind {
            Kind::Length | Kind::Coding | Kind::BothFramings | Kind::Chunks | Kind::Trailers => {
                framing(self.kind, draft, inner, random);
            }
            Kind::Repeated => repeat(draft, random),
            Kind::Spaces => space(draft, random),
            Kind::LineEnds => {
                let end: &'static [u8] =
                    [&b"\n"[..], b"\r", b"\r\r\n", b"\n\r\n", b"", b"\r\n "][random.below(6)];
                let at = random.below(draft.lines.len() + 2);
                draft.ends.push((at, end));
            }
            Kind::Controls => {
                let byte = [0, 1, 8, 11, 12, 13, 10, 0x1b, 0x7f, 0x80, 0xff][random.below(11)];
                let at = random.below(draft.lines.len());
                let place = random.below(draft.lines[at].len() + 1);
                draft.lines[at].insert(place, byte);
            }
            Kind::Name => draft.lines.push(latin(random.part(NAMES))),
            Kind::HopByHop => hop_by_hop(draft, random),
            Kind::Host => host(draft, random),
            Kind::Target => {
                draft.start[1] = latin(&random.part(TARGETS).replace("MARK", &format!("{mark}m")));
            }
            Kind::Method => draft.start[0] = latin(random.part(METHODS)),
            Kind::Version => draft.start[2] = latin(random.part(VERSIONS)),
            Kind::Huge => huge(draft, random),
            Kind::Before => {
                draft.before = latin(random.one(&["\r\n", "\n", "\r\n\r\n", "\r", " ", "\u{0}", "x"]))
            }
            Kind::Behind => {
                let more = [&b"\r\n"[..], b"\n", b"x", b"\0", b"0\r\n\r\n", b"\r\n\r\n", inner];
                draft.body.extend_from_slice(more[random.below(more.len())]);
            }
            Kind::Expect => {
                let value = random.one(&["100-continue", "100-Continue", "100-continue, x", "x", ""]);
                draft.lines.push(latin(&format!("Expect: {value}")));
            }
            Kind::Status => {
                let at = random.below(3);
                draft.start[at] = latin(random.part(STATUS_LINES[at]));
            }
            Kind::Informational => {
                draft.before = latin(&random.part(INFORMATIONAL).repeat(1 + random.below(3)))
            }
            Kind::ContentCoding => {
                let value = random.one(&["gzip", "identity", "x-unknown", "gzip, gzip", ""]);
                draft.lines.push(latin(&format!("Content-Encoding: {value}")));
            }
        }
    }
}

/// The bytes of a text whose characters stand for one byte each.
fn latin(text: &str) -> Vec<u8> {
    text.chars().filter_map(|character| u8::try_from(u32::from(character)).ok()).collect()
}

/// Removes all lines of a field.
fn remove(draft: &mut Draft, name: &str) {
    draft.lines.retain(|line| {
        line.get(..name.len()).is_none_or(|start| !start.eq_ignore_ascii_case(name.as_bytes()))
    });
}

/// Replaces the body, and the lines that frame it.
fn framing(kind: Kind, draft: &mut Draft, inner: &[u8], random: &mut Random) {
    let payload = if random.once_in(2) { b"hello" } else { inner };
    let length = |value: &str, of: &[u8]| {
        latin(&format!("Content-Length: {}", value.replace('N', &of.len().to_string())))
    };
    remove(draft, "content-length");
    remove(draft, "transfer-encoding");
    match kind {
        Kind::Length => {
            draft.lines.push(length(random.part(LENGTHS), payload));
            draft.body = payload.to_vec();
        }
        Kind::Coding => {
            draft.lines.push(latin(&format!("Transfer-Encoding: {}", random.part(CODINGS))));
            draft.body = latin("5\r\nhello\r\n0\r\n\r\n");
        }
        Kind::BothFramings => {
            let body = [&b"0\r\n\r\n"[..], payload].concat();
            let coding = latin(&format!(
                "Transfer-Encoding: {}",
                random.one(&["chunked", "chunked", "identity", "xchunked"])
            ));
            let both =
                if random.once_in(2) { [coding, length("N", &body)] } else { [length("N", &body), coding] };
            draft.lines.extend(both);
            draft.body = body;
        }
        Kind::Trailers => {
            draft.lines.push(b"Transfer-Encoding: chunked".to_vec());
            if random.once_in(2) {
                draft.lines.push(b"Trailer: X-Trailer".to_vec());
            }
            draft.body = latin(&format!("5\r\nhello\r\n0\r\n{}\r\n", random.part(TRAILERS)));
        }
        _ => {
            draft.lines.push(b"Transfer-Encoding: chunked".to_vec());
            draft.body = latin(random.part(CHUNKS));
        }
    }
}

/// Repeats a line, the same or with another value, beside it or at the end.
fn repeat(draft: &mut Draft, random: &mut Random) {
    let at = random.below(draft.lines.len());
    let mut line = draft.lines[at].clone();
    match random.below(3) {
        0 => {}
        1 => line.make_ascii_uppercase(),
        _ => line.push(b'1'),
    }
    let place = if random.once_in(2) { at + 1 } else { draft.lines.len() };
    draft.lines.insert(place, line);
}

/// Puts white space where it does not belong.
fn space(draft: &mut Draft, random: &mut Random) {
    let at = random.below(draft.lines.len());
    let line = &mut draft.lines[at];
    let space = random.one(&[" ", "\t", "  "]).as_bytes().to_vec();
    let colon = line.iter().position(|byte| *byte == b':').unwrap_or_default();
    match random.below(5) {
        0 => drop(line.splice(colon..colon, space)),
        1 => drop(line.splice(0..0, space)),
        2 => line.extend(space),
        // A folded field: the value continues on the next line.
        3 => drop(line.splice(line.len().., [&b"\r\n"[..], &space, b"folded"].concat())),
        _ => drop(line.splice(colon + 1..=(colon + 1).min(line.len() - 1), [])),
    }
}

fn hop_by_hop(draft: &mut Draft, random: &mut Random) {
    draft.lines.push(b"X-Hop: 1".to_vec());
    let more = [
        "Keep-Alive: timeout=5",
        "Proxy-Connection: close",
        "TE: trailers",
        "TE: gzip",
        "Upgrade: h2c",
        "Upgrade: foo",
        "Proxy-Authorization: Basic YTpi",
        "Via: 1.1 other",
        "Max-Forwards: 0",
        "Trailer: x-case",
    ];
    if random.once_in(2) {
        draft.lines.push(latin(random.one(&more)));
    }
    draft.lines.push(latin(&format!("Connection: {}", random.part(OPTIONS))));
}

fn host(draft: &mut Draft, random: &mut Random) {
    match random.below(4) {
        0 => remove(draft, "host"),
        1 => draft.lines.push(latin(random.part(HOSTS))),
        _ => {
            remove(draft, "host");
            draft.lines.insert(0, latin(random.part(HOSTS)));
        }
    }
}

/// Makes a part large: around the bounds of 8 KiB, 32 KiB and 128 fields, and beyond.
fn huge(draft: &mut Draft, random: &mut Random) {
    let size = [2_000, 7_000, 8_200, 20_000, 40_000][random.below(5)];
    match random.below(4) {
        0 => draft.start[1].extend(vec![b'a'; size]),
        1 => draft.lines.push([&b"X-Huge: "[..], &vec![b'a'; size]].concat()),
        2 => draft.lines.extend(
            (0..[50, 90, 110, 140, 300][random.below(5)]).map(|number| latin(&format!("X-{number}: a"))),
        ),
        _ => draft.lines.push([&vec![b'n'; size][..], b": a"].concat()),
    }
}
