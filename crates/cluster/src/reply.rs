//! The bounds of a server's replies, found while their bytes arrive: before the client of Redis, which has
//! none, makes values of them.

/// Maximum number of bytes of a reply. The longest are those about all marks and about all units of a gateway
/// that leaves.
pub(super) const REPLY_BYTES_MAX: usize = 512 << 10;
/// Maximum number of bytes of a line, which is an error, a status or a number.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Maximum number of values in a reply, also of those that are announced. The client makes room for them.
const VALUES_MAX: usize = 8_192;
/// Maximum number of lists inside of each other.
const DEPTH_MAX: usize = 8;
/// Maximum number of bytes of the name of a message's kind, with its line end.
const KIND_BYTES_MAX: usize = 16;
/// Maximum number of digits of a length.
const DIGITS_MAX: u8 = 10;

/// The reason why no more is read from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReplyFault {
    /// The reply has too many bytes.
    #[error("the server sent a reply of more than {REPLY_BYTES_MAX} bytes")]
    Long,
    /// The reply has too many values, or they are too deep inside of each other.
    #[error("the server sent a reply of more than {VALUES_MAX} values, or a deep one")]
    Complex,
    /// The bytes are no reply.
    #[error("the server does not speak Redis's protocol")]
    Malformed,
    /// A message of a kind that nobody has asked for.
    #[error("the server sent a message that nobody has asked for")]
    Unasked,
}

/// Follows the replies of a connection (RESP3), and keeps none of their bytes.
#[derive(Debug)]
pub(super) struct ReplyScanner {
    state: ReplyState,
    /// Number of values to come in each list that has begun.
    open: Vec<usize>,
    /// Bytes of the reply so far.
    bytes: usize,
    /// Values of the reply, with those that are announced.
    values: usize,
    /// The kind of the message that has begun, as far as it has arrived.
    kind: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyState {
    /// The first byte of a value comes next.
    First,
    /// Inside of a line.
    Line { bytes: usize, was_cr: bool },
    /// Inside of a line that is a length.
    Length(Length),
    /// Inside of a text with a length. Its line end counts.
    Text { left: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Length {
    first: u8,
    is_negative: bool,
    digits: u8,
    number: usize,
    was_cr: bool,
}

impl ReplyScanner {
    /// Creates the scanner of a new connection.
    pub(super) fn new() -> Self {
        Self {
            state: ReplyState::First,
            open: Vec::with_capacity(DEPTH_MAX),
            bytes: 0,
            values: 0,
            kind: None,
        }
    }

    /// Follows the next bytes. `is_asked` tells if a subscription was asked for, once for each.
    pub(super) fn read(
        &mut self,
        mut bytes: &[u8],
        mut is_asked: impl FnMut() -> bool,
    ) -> Result<(), ReplyFault> {
        while let Some(first) = bytes.first() {
            let count = if let ReplyState::Text { left } = self.state { left.min(bytes.len()) } else { 1 };
            let (now, rest) = bytes.split_at(count);
            bytes = rest;
            self.bytes += count;
            if self.bytes > REPLY_BYTES_MAX {
                return Err(ReplyFault::Long);
            }
            let is_over = match self.state {
                ReplyState::First => self.begin(*first)?,
                ReplyState::Line { bytes, was_cr } => self.line(*first, bytes + 1, was_cr)?,
                ReplyState::Length(length) => self.length(*first, length)?,
                ReplyState::Text { left } => {
                    self.note(now)?;
                    self.state = ReplyState::Text { left: left - count };
                    left == count
                }
            };
            if is_over {
                self.end(&mut is_asked)?;
            }
        }
        Ok(())
    }

    /// Returns `true` between two replies.
    #[cfg(test)]
    fn is_idle(&self) -> bool {
        self.state == ReplyState::First && self.open.is_empty()
    }

    /// Begins a value. It is never over here.
    fn begin(&mut self, first: u8) -> Result<bool, ReplyFault> {
        if self.open.is_empty() {
            (self.bytes, self.values, self.kind) = (1, 1, None);
        }
        let is_kind = self.kind.is_some();
        self.state = match first {
            b'+' => ReplyState::Line { bytes: 0, was_cr: false },
            b'-' | b':' | b'_' | b',' | b'#' | b'(' if !is_kind => {
                ReplyState::Line { bytes: 0, was_cr: false }
            }
            b'$' => ReplyState::Length(Length::of(first)),
            b'!' | b'=' | b'*' | b'~' | b'%' if !is_kind => ReplyState::Length(Length::of(first)),
            // A message is in no list.
            b'>' if self.open.is_empty() => ReplyState::Length(Length::of(first)),
            _ => return Err(ReplyFault::Malformed),
        };
        Ok(false)
    }

    fn line(&mut self, byte: u8, bytes: usize, was_cr: bool) -> Result<bool, ReplyFault> {
        if bytes > LINE_BYTES_MAX {
            return Err(ReplyFault::Long);
        }
        self.note(&[byte])?;
        self.state = ReplyState::Line { bytes, was_cr: byte == b'\r' };
        Ok(was_cr && byte == b'\n')
    }

    fn length(&mut self, byte: u8, length: Length) -> Result<bool, ReplyFault> {
        if length.was_cr && byte == b'\n' {
            return self.list_or_text(length);
        }
        self.state = ReplyState::Length(length.with(byte).ok_or(ReplyFault::Malformed)?);
        Ok(false)
    }

    /// Begins what has a length. Returns `true` if it is over at once.
    fn list_or_text(
        &mut self,
        Length { first, is_negative, number, .. }: Length,
    ) -> Result<bool, ReplyFault> {
        if is_negative {
            let is_nothing = number == 1 && matches!(first, b'$' | b'*') && self.kind.is_none();
            return if is_nothing { Ok(true) } else { Err(ReplyFault::Malformed) };
        }
        match first {
            b'$' | b'!' | b'=' if number > REPLY_BYTES_MAX => Err(ReplyFault::Long),
            b'$' | b'!' | b'=' => {
                self.state = ReplyState::Text { left: number + 2 };
                Ok(false)
            }
            b'>' if number == 0 => Err(ReplyFault::Malformed),
            _ if number == 0 => Ok(true),
            _ => {
                let count = if first == b'%' { number.saturating_mul(2) } else { number };
                self.values = self.values.saturating_add(count);
                if self.values > VALUES_MAX || self.open.len() >= DEPTH_MAX {
                    return Err(ReplyFault::Complex);
                }
                self.open.push(count);
                self.kind = (first == b'>').then(Vec::new);
                self.state = ReplyState::First;
                Ok(false)
            }
        }
    }

    /// Keeps the kind of a message.
    fn note(&mut self, bytes: &[u8]) -> Result<(), ReplyFault> {
        let Some(kind) = &mut self.kind else { return Ok(()) };
        if kind.len() + bytes.len() > KIND_BYTES_MAX {
            return Err(ReplyFault::Unasked);
        }
        kind.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends a value, and the lists that end with it.
    fn end(&mut self, is_asked: &mut impl FnMut() -> bool) -> Result<(), ReplyFault> {
        if let Some(kind) = self.kind.take() {
            // The client remembers the channels of all subscriptions that are confirmed.
            let is_known = match kind.trim_ascii_end() {
                b"message" => true,
                b"subscribe" => is_asked(),
                _ => false,
            };
            if !is_known {
                return Err(ReplyFault::Unasked);
            }
        }
        self.state = ReplyState::First;
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                break;
            }
            self.open.pop();
        }
        Ok(())
    }
}

impl Length {
    fn of(first: u8) -> Self {
        Self { first, is_negative: false, digits: 0, number: 0, was_cr: false }
    }

    /// Adds the next byte. The client also takes spaces and signs, which no server sends.
    fn with(self, byte: u8) -> Option<Self> {
        match byte {
            _ if self.was_cr => None,
            b'-' if self.digits == 0 && !self.is_negative => Some(Self { is_negative: true, ..self }),
            b'0'..=b'9' if self.digits < DIGITS_MAX => {
                let number = self.number.checked_mul(10)?.checked_add(usize::from(byte - b'0'))?;
                Some(Self { digits: self.digits + 1, number, ..self })
            }
            b'\r' if self.digits > 0 => Some(Self { was_cr: true, ..self }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a text byte by byte. Returns the number of bytes after which the first reply was over.
    fn first_reply(text: &[u8]) -> Result<Option<usize>, (usize, ReplyFault)> {
        let mut scanner = ReplyScanner::new();
        for (at, byte) in text.iter().enumerate() {
            scanner.read(&[*byte], || true).map_err(|refusal| (at + 1, refusal))?;
            if scanner.is_idle() {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }

    fn refused(text: &str) -> Option<ReplyFault> {
        ReplyScanner::new().read(text.as_bytes(), || false).err()
    }

    #[test]
    fn replies_beyond_the_bounds_are_refused_by_what_they_announce() {
        assert_eq!(refused("$2000000000\r\n"), Some(ReplyFault::Long));
        assert_eq!(refused("=600000\r\n"), Some(ReplyFault::Long));
        assert_eq!(refused("*1000000000\r\n"), Some(ReplyFault::Complex));
        assert_eq!(refused("%9000\r\n"), Some(ReplyFault::Complex));
        assert_eq!(refused("~9999999999\r\n"), Some(ReplyFault::Complex));
        assert_eq!(refused(&"*1\r\n".repeat(9)), Some(ReplyFault::Complex));
        assert_eq!(refused(&"*4096\r\n".repeat(2)), Some(ReplyFault::Complex));
        assert_eq!(refused(&format!("+{}", "a".repeat(5_000))), Some(ReplyFault::Long));
        assert_eq!(refused(&format!("${}\r\n{}", 1 << 19, "a".repeat(1 << 19))), Some(ReplyFault::Long));
        assert_eq!(
            refused(&"*8\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n$3\r\nabc\r\n".repeat(100_000)),
            None
        );
    }

    #[test]
    fn a_reply_that_no_server_sends_is_refused() {
        for text in [
            "HTTP/1.1",
            "$+5\r\n",
            "$ 5\r\n",
            "$?\r\n",
            "$-2\r\n",
            "*--1\r\n",
            "%-1\r\n",
            "|1\r\n",
            "$\r\n",
            "*1\r\n>1\r\n",
            ">0\r\n",
            ">-1\r\n",
            ">1\r\n:1\r\n",
            "$1\rx",
            "$99999999999\r\n",
        ] {
            assert_eq!(refused(text), Some(ReplyFault::Malformed), "{text:?}");
        }
    }

    #[test]
    fn only_messages_and_subscriptions_that_were_asked_for_arrive() {
        let push = |kind: &str| format!(">3\r\n${}\r\n{kind}\r\n$1\r\na\r\n$1\r\nb\r\n", kind.len());
        assert_eq!(refused(&push("message")), None);
        assert_eq!(refused(&push("message").replace("$7\r\n", "+")), None);
        for kind in [
            "subscribe",
            "psubscribe",
            "unsubscribe",
            "pmessage",
            "invalidate",
            "",
            "a kind with a long name",
        ] {
            assert_eq!(refused(&push(kind)), Some(ReplyFault::Unasked), "{kind}");
        }
        let mut left = 1;
        let mut is_asked = || std::mem::replace(&mut left, 0) > 0;
        let mut scanner = ReplyScanner::new();
        assert_eq!(scanner.read(push("subscribe").as_bytes(), &mut is_asked), Ok(()));
        assert_eq!(scanner.read(push("subscribe").as_bytes(), &mut is_asked), Err(ReplyFault::Unasked));
    }

    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            "[a-zA-Z \r]{0,12}".prop_map(|text| format!("+{text}\r\n")),
            any::<i64>().prop_map(|number| format!(":{number}\r\n")),
            "[\\x00-\\x7f]{0,20}".prop_map(|text| format!("${}\r\n{text}\r\n", text.len())),
            Just("$-1\r\n".to_owned()),
            Just("_\r\n".to_owned()),
            Just("#t\r\n".to_owned()),
            Just("-ERR no\r\n".to_owned()),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop::collection::vec(inner, 0..5).prop_flat_map(|values| {
                let list = |first: char, count: usize| format!("{first}{count}\r\n{}", values.concat());
                let map = (values.len() % 2 == 0).then(|| list('%', values.len() / 2));
                let (array, set) = (list('*', values.len()), list('~', values.len()));
                prop::sample::select([Some(array), Some(set), map].into_iter().flatten().collect::<Vec<_>>())
            })
        })
    }

    proptest! {
        #[test]
        fn a_reply_ends_where_the_client_ends_it(text in value()) {
            prop_assert_eq!(first_reply(text.as_bytes()), Ok(Some(text.len())));
            prop_assert!(redis::parse_redis_value(text.as_bytes()).is_ok(), "{:?}", text);
        }

        #[test]
        fn no_bytes_end_a_reply_elsewhere_than_the_client_does(
            soup in prop::collection::vec(
                prop::sample::select(&["\r\n", "\r", "\n", "$", "*", "+", "-", ":", ">", "%", "_", "0", "1", "2", "a", "#t"][..]),
                0..24,
            ),
        ) {
            let soup = soup.concat();
            let client = (1..=soup.len()).find(|end| redis::parse_redis_value(&soup.as_bytes()[..*end]).is_ok());
            match (first_reply(soup.as_bytes()), client) {
                (Ok(scanned), client) => prop_assert!(scanned == client || client.is_none(), "{soup:?}: {scanned:?}, {client:?}"),
                (Err((at, _)), client) => prop_assert!(client.is_none_or(|end| at <= end), "{soup:?}: {at}, {client:?}"),
            }
        }
    }
}
