//! Frames (RFC 9113 §4, §6): their heads, what is in their payloads, and how they are written.

/// Length of the head of a frame (RFC 9113 §4.1).
pub(crate) const HEAD_BYTES: usize = 9;
/// Maximum length of a payload, in both directions: every peer accepts it, and this side announces no other
/// (RFC 9113 §4.2).
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16_384;
/// The largest window, and the largest number of a stream (RFC 9113 §5.1.1, §6.9.1).
pub(crate) const MAX_31_BITS: u32 = (1 << 31) - 1;
/// The window that streams and connections begin with (RFC 9113 §6.9.2).
pub(crate) const DEFAULT_WINDOW_BYTES: u32 = 65_535;

/// The flag of an acknowledgement: of `SETTINGS` and `PING`.
pub(crate) const ACK: u8 = 1;
/// The flag of the last frame of a stream: of `DATA` and `HEADERS`.
pub(crate) const END_STREAM: u8 = 1;
/// The flag of the last frame of a block of fields: of `HEADERS` and `CONTINUATION`.
pub(crate) const END_HEADERS: u8 = 4;
/// The flag of a payload with padding: of `DATA` and `HEADERS`.
pub(crate) const PADDED: u8 = 8;
/// The flag of `HEADERS` with a priority.
pub(crate) const HAS_PRIORITY: u8 = 0x20;

/// Length of a priority (RFC 9113 §6.3).
const PRIORITY_BYTES: usize = 5;
/// Length of the payload of `PING` (RFC 9113 §6.7).
pub(crate) const PING_BYTES: usize = 8;

/// The type of a frame (RFC 9113 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Data = 0,
    Headers = 1,
    Priority = 2,
    Reset = 3,
    Settings = 4,
    PushPromise = 5,
    Ping = 6,
    GoAway = 7,
    WindowUpdate = 8,
    Continuation = 9,
    /// Any other. It is ignored (RFC 9113 §4.1).
    Unknown = 10,
}

impl Kind {
    fn of(code: u8) -> Self {
        const KINDS: [Kind; 10] = [
            Kind::Data,
            Kind::Headers,
            Kind::Priority,
            Kind::Reset,
            Kind::Settings,
            Kind::PushPromise,
            Kind::Ping,
            Kind::GoAway,
            Kind::WindowUpdate,
            Kind::Continuation,
        ];
        KINDS.get(usize::from(code)).copied().unwrap_or(Self::Unknown)
    }
}

/// The head of a frame (RFC 9113 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number of bytes of the payload.
    pub len: usize,
    pub kind: Kind,
    pub flags: u8,
    /// The stream that it belongs to; 0 is the connection.
    pub stream: u32,
}

impl Head {
    /// Reads it.
    #[inline]
    pub fn read(bytes: [u8; HEAD_BYTES]) -> Self {
        let [high, middle, low, kind, flags, stream @ ..] = bytes;
        Self {
            len: u32::from_be_bytes([0, high, middle, low]) as usize,
            kind: Kind::of(kind),
            flags,
            stream: u32::from_be_bytes(stream) & MAX_31_BITS,
        }
    }

    /// Returns `true` if it has this flag.
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The reason why a stream or a connection ends (RFC 9113 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reason(pub u32);

impl Reason {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    pub const REFUSED_STREAM: Self = Self(7);
    pub const CANCEL: Self = Self(8);
    pub const COMPRESSION_ERROR: Self = Self(9);
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    pub const HTTP_1_1_REQUIRED: Self = Self(13);

    /// The name of the error code.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        let code = usize::try_from(self.0).unwrap_or(usize::MAX);
        NAMES.get(code).copied().unwrap_or("an unknown error")
    }
}

/// Takes the padding off a payload (RFC 9113 §6.1). An error is one of the connection.
#[inline]
pub(crate) fn unpadded(head: Head, payload: &[u8]) -> Result<&[u8], Reason> {
    if !head.has(PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(Reason::FRAME_SIZE_ERROR)?;
    let len = rest.len().checked_sub(usize::from(padding)).ok_or(Reason::PROTOCOL_ERROR)?;
    Ok(&rest[..len])
}

/// The part of a block of fields that is in `HEADERS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstFields<'a> {
    pub bytes: &'a [u8],
    /// `true` if the stream is to depend on itself, which is an error of the stream (RFC 7540 §5.3.1).
    pub depends_on_itself: bool,
}

/// Takes the block of fields out of the payload of `HEADERS` (RFC 9113 §6.2). An error is one of the
/// connection.
pub(crate) fn first_fields(head: Head, payload: &[u8]) -> Result<FirstFields<'_>, Reason> {
    let bytes = unpadded(head, payload)?;
    if !head.has(HAS_PRIORITY) {
        return Ok(FirstFields { bytes, depends_on_itself: false });
    }
    let (priority, bytes) = bytes.split_at_checked(PRIORITY_BYTES).ok_or(Reason::FRAME_SIZE_ERROR)?;
    Ok(FirstFields { bytes, depends_on_itself: number(priority) & MAX_31_BITS == head.stream })
}

/// Checks `PRIORITY` (RFC 9113 §6.3), which has no effect. An error is one of the stream.
pub(crate) fn check_priority(head: Head, payload: &[u8]) -> Result<(), Reason> {
    if payload.len() != PRIORITY_BYTES {
        return Err(Reason::FRAME_SIZE_ERROR);
    }
    if number(payload) & MAX_31_BITS == head.stream { Err(Reason::PROTOCOL_ERROR) } else { Ok(()) }
}

/// Returns the number in the first four bytes. 0 if there are fewer.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// A setting of the peer (RFC 9113 §6.5.2, RFC 8441 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    HeaderTableBytes(u32),
    EnablePush(bool),
    StreamsMax(u32),
    InitialWindow(u32),
    EnableConnect(bool),
    /// It has no effect on this side.
    Other,
}

impl Setting {
    /// Code of the size of the table for the compression of fields.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Code of the permission to push.
    pub const ENABLE_PUSH: u16 = 2;
    /// Code of the maximum number of streams.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Code of the window that streams begin with.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Code of the maximum length of a payload.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Code of the maximum size of a list of fields.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// Code of the permission for extended CONNECT (RFC 8441).
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;

    /// Reads one. An error is one of the connection.
    fn read(entry: [u8; 6]) -> Result<Self, Reason> {
        let [high, low, value @ ..] = entry;
        let value = u32::from_be_bytes(value);
        let flag = || if value <= 1 { Ok(value == 1) } else { Err(Reason::PROTOCOL_ERROR) };
        Ok(match u16::from_be_bytes([high, low]) {
            Self::HEADER_TABLE_SIZE => Self::HeaderTableBytes(value),
            Self::ENABLE_PUSH => Self::EnablePush(flag()?),
            Self::MAX_CONCURRENT_STREAMS => Self::StreamsMax(value),
            Self::INITIAL_WINDOW_SIZE if value > MAX_31_BITS => return Err(Reason::FLOW_CONTROL_ERROR),
            Self::INITIAL_WINDOW_SIZE => Self::InitialWindow(value),
            // No longer payload is sent than every peer accepts.
            Self::MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => {
                return Err(Reason::PROTOCOL_ERROR);
            }
            Self::ENABLE_CONNECT_PROTOCOL => Self::EnableConnect(flag()?),
            _ => Self::Other,
        })
    }
}

/// Reads `SETTINGS` (RFC 9113 §6.5). An error is one of the connection.
pub(crate) fn settings(payload: &[u8]) -> Result<impl Iterator<Item = Result<Setting, Reason>>, Reason> {
    let (entries, rest) = payload.as_chunks::<6>();
    if rest.is_empty() {
        Ok(entries.iter().map(|entry| Setting::read(*entry)))
    } else {
        Err(Reason::FRAME_SIZE_ERROR)
    }
}

/// Returns the head of a frame. `len` is at most [`PAYLOAD_BYTES_MAX`].
#[inline]
fn head_of(len: usize, kind: Kind, flags: u8, stream: u32) -> [u8; HEAD_BYTES] {
    debug_assert!(len <= PAYLOAD_BYTES_MAX && stream <= MAX_31_BITS);
    let [_, high, middle, low] = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
    let [first, second, third, fourth] = stream.to_be_bytes();
    [high, middle, low, kind as u8, flags, first, second, third, fourth]
}

/// Writes the head of a frame. `len` is at most [`PAYLOAD_BYTES_MAX`].
#[inline]
pub(crate) fn put_head(out: &mut Vec<u8>, len: usize, kind: Kind, flags: u8, stream: u32) {
    out.extend_from_slice(&head_of(len, kind, flags, stream));
}

/// Writes a frame whose payload is one number: `RST_STREAM` or `WINDOW_UPDATE`.
pub(crate) fn put_number(out: &mut Vec<u8>, kind: Kind, stream: u32, number: u32) {
    put_head(out, 4, kind, 0, stream);
    out.extend_from_slice(&number.to_be_bytes());
}

/// Writes `SETTINGS`.
pub(crate) fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    put_head(out, 6 * settings.len(), Kind::Settings, 0, 0);
    for (code, value) in settings {
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Writes `PING`, or the answer to one.
pub(crate) fn put_ping(out: &mut Vec<u8>, flags: u8, payload: [u8; PING_BYTES]) {
    put_head(out, PING_BYTES, Kind::Ping, flags, 0);
    out.extend_from_slice(&payload);
}

/// Writes `GOAWAY`: streams above `last` are not processed.
pub(crate) fn put_go_away(out: &mut Vec<u8>, last: u32, reason: Reason) {
    put_head(out, 8, Kind::GoAway, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&reason.0.to_be_bytes());
}

/// Writes the frames of a block of fields around it. The block is the end of `out`, and `start` is the place
/// of its first head, for which there is room.
pub(crate) fn close_block(out: &mut Vec<u8>, start: usize, flags: u8, stream: u32) {
    let len = out.len() - start - HEAD_BYTES;
    if len <= PAYLOAD_BYTES_MAX {
        let head = head_of(len, Kind::Headers, flags | END_HEADERS, stream);
        out[start..start + HEAD_BYTES].copy_from_slice(&head);
        return;
    }
    let block = out.split_off(start);
    let mut kind = Kind::Headers;
    let mut pieces = block[HEAD_BYTES..].chunks(PAYLOAD_BYTES_MAX).peekable();
    while let Some(piece) = pieces.next() {
        let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        let other = if kind == Kind::Headers { flags } else { 0 };
        put_head(out, piece.len(), kind, other | end, stream);
        out.extend_from_slice(piece);
        kind = Kind::Continuation;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(flags: u8, stream: u32) -> Head {
        Head { len: 0, kind: Kind::Headers, flags, stream }
    }

    #[test]
    fn padding_is_taken_off_or_refused() {
        assert_eq!(unpadded(head(0, 1), b"\x02ab"), Ok(&b"\x02ab"[..]));
        assert_eq!(unpadded(head(PADDED, 1), b"\x02ab\0\0"), Ok(&b"ab"[..]));
        assert_eq!(unpadded(head(PADDED, 1), b"\x02ab"), Ok(&b""[..]));
        assert_eq!(unpadded(head(PADDED, 1), b"\x03ab"), Err(Reason::PROTOCOL_ERROR));
        assert_eq!(unpadded(head(PADDED, 1), b""), Err(Reason::FRAME_SIZE_ERROR));
    }

    #[test]
    fn a_priority_is_skipped_and_one_on_itself_noticed() {
        let fields = |stream, payload| first_fields(head(HAS_PRIORITY, stream), payload);
        let expected = FirstFields { bytes: b"ab", depends_on_itself: false };
        assert_eq!(fields(1, b"\x80\0\0\x03\xffab"), Ok(expected));
        assert_eq!(fields(3, b"\x80\0\0\x03\xffab").map(|fields| fields.depends_on_itself), Ok(true));
        assert_eq!(fields(1, b"\0\0\0\x03"), Err(Reason::FRAME_SIZE_ERROR));
        assert_eq!(check_priority(head(0, 1), &[0, 0, 0, 3, 1]), Ok(()));
        assert_eq!(check_priority(head(0, 3), &[0, 0, 0, 3, 1]), Err(Reason::PROTOCOL_ERROR));
        assert_eq!(check_priority(head(0, 1), &[0, 0, 0, 3]), Err(Reason::FRAME_SIZE_ERROR));
    }

    #[test]
    fn a_setting_out_of_range_is_refused() {
        for (code, value, expected) in [
            (1, 0, Ok(Setting::HeaderTableBytes(0))),
            (2, 0, Ok(Setting::EnablePush(false))),
            (2, 2, Err(Reason::PROTOCOL_ERROR)),
            (3, 7, Ok(Setting::StreamsMax(7))),
            (4, MAX_31_BITS, Ok(Setting::InitialWindow(MAX_31_BITS))),
            (4, MAX_31_BITS + 1, Err(Reason::FLOW_CONTROL_ERROR)),
            (5, 16_383, Err(Reason::PROTOCOL_ERROR)),
            (5, 16_384, Ok(Setting::Other)),
            (5, 1 << 24, Err(Reason::PROTOCOL_ERROR)),
            (6, 1, Ok(Setting::Other)),
            (8, 1, Ok(Setting::EnableConnect(true))),
            (8, 2, Err(Reason::PROTOCOL_ERROR)),
            (0xbb, 9, Ok(Setting::Other)),
        ] {
            let mut bytes = Vec::new();
            put_settings(&mut bytes, &[(code, value)]);
            let read: Result<Vec<_>, _> = settings(&bytes[HEAD_BYTES..]).unwrap().collect();
            assert_eq!(read, expected.map(|setting| vec![setting]), "{code} {value}");
        }
        assert_eq!(settings(&[0; 7]).err(), Some(Reason::FRAME_SIZE_ERROR));
    }

    proptest! {
        #[test]
        fn heads_are_read_as_they_are_written(
            len in 0..=PAYLOAD_BYTES_MAX,
            kind in 0_u8..10,
            flags: u8,
            stream in 0..=MAX_31_BITS,
        ) {
            let mut bytes = Vec::new();
            put_head(&mut bytes, len, Kind::of(kind), flags, stream);
            let read = Head::read(*bytes.first_chunk().unwrap());
            prop_assert_eq!(read, Head { len, kind: Kind::of(kind), flags, stream });
        }

        #[test]
        fn a_block_of_any_length_is_whole_in_its_frames(len in 0_usize..100_000) {
            let mut bytes = b"before".to_vec();
            let block: Vec<u8> = (0..=250).cycle().take(len).collect();
            bytes.extend([0; HEAD_BYTES]);
            bytes.extend(&block);
            close_block(&mut bytes, 6, END_STREAM, 3);
            let (mut rest, mut joined, mut kinds) = (&bytes[6..], Vec::new(), Vec::new());
            while let Some((head, after)) = rest.split_first_chunk() {
                let head = Head::read(*head);
                joined.extend_from_slice(&after[..head.len]);
                rest = &after[head.len..];
                prop_assert_eq!((head.stream, head.has(END_HEADERS)), (3, rest.is_empty()));
                prop_assert_eq!(head.has(END_STREAM), kinds.is_empty());
                kinds.push(head.kind);
            }
            prop_assert_eq!(joined, block);
            prop_assert_eq!(kinds[0], Kind::Headers);
            prop_assert!(kinds[1..].iter().all(|kind| *kind == Kind::Continuation));
        }
    }
}
