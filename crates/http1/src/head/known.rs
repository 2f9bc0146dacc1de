//! Field names the gateway treats in some special way, found by one look into a table built at compile time.

/// What an intermediary may do with a known field.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Nature {
    /// Forwarded, and no `Connection` option takes it away.
    EndToEnd,
    /// Forwarded, and harmless when it comes after the body.
    Trailing,
    /// For one connection only, never forwarded.
    HopByHop,
}

macro_rules! known_fields {
    ($($variant:ident = $name:literal, $nature:ident;)*) => {
        /// Which field a name stands for.
        ///
        /// Every field here that is not hop-by-hop is kept even if `Connection` nominates it, since taking it away
        /// would change what the message means to the other side.
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum KnownField {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
            /// Any other name.
            #[default]
            Other,
        }

        /// The names, lower case, each at the place of its variant.
        const NAMES: &[&[u8]] = &[$($name.as_bytes(),)*];
        /// The variants in the same order.
        const VARIANTS: &[KnownField] = &[$(KnownField::$variant,)*];
        const NATURES: &[Nature] = &[$(Nature::$nature,)*];
    };
}

known_fields! {
    Accept = "accept", EndToEnd;
    AcceptCharset = "accept-charset", EndToEnd;
    AcceptEncoding = "accept-encoding", EndToEnd;
    AcceptLanguage = "accept-language", EndToEnd;
    AcceptRanges = "accept-ranges", EndToEnd;
    Age = "age", EndToEnd;
    Allow = "allow", EndToEnd;
    AuthenticationInfo = "authentication-info", EndToEnd;
    Authorization = "authorization", EndToEnd;
    CacheControl = "cache-control", EndToEnd;
    Connection = "connection", HopByHop;
    ContentDisposition = "content-disposition", EndToEnd;
    ContentEncoding = "content-encoding", EndToEnd;
    ContentLanguage = "content-language", EndToEnd;
    ContentLength = "content-length", EndToEnd;
    ContentLocation = "content-location", EndToEnd;
    ContentRange = "content-range", EndToEnd;
    ContentSecurityPolicy = "content-security-policy", EndToEnd;
    ContentType = "content-type", EndToEnd;
    Cookie = "cookie", EndToEnd;
    Date = "date", EndToEnd;
    Etag = "etag", Trailing;
    Expect = "expect", EndToEnd;
    Expires = "expires", EndToEnd;
    Forwarded = "forwarded", EndToEnd;
    Host = "host", EndToEnd;
    IdempotencyKey = "idempotency-key", EndToEnd;
    IfMatch = "if-match", EndToEnd;
    IfModifiedSince = "if-modified-since", EndToEnd;
    IfNoneMatch = "if-none-match", EndToEnd;
    IfRange = "if-range", EndToEnd;
    IfUnmodifiedSince = "if-unmodified-since", EndToEnd;
    KeepAlive = "keep-alive", HopByHop;
    LastModified = "last-modified", EndToEnd;
    Location = "location", EndToEnd;
    MaxForwards = "max-forwards", EndToEnd;
    Origin = "origin", EndToEnd;
    Pragma = "pragma", EndToEnd;
    ProxyAuthenticate = "proxy-authenticate", HopByHop;
    ProxyAuthenticationInfo = "proxy-authentication-info", HopByHop;
    ProxyAuthorization = "proxy-authorization", HopByHop;
    ProxyConnection = "proxy-connection", HopByHop;
    ProxyStatus = "proxy-status", EndToEnd;
    Range = "range", EndToEnd;
    Referer = "referer", EndToEnd;
    RetryAfter = "retry-after", EndToEnd;
    SecWebSocketAccept = "sec-websocket-accept", EndToEnd;
    SecWebSocketKey = "sec-websocket-key", EndToEnd;
    SecWebSocketProtocol = "sec-websocket-protocol", EndToEnd;
    SecWebSocketVersion = "sec-websocket-version", EndToEnd;
    Server = "server", EndToEnd;
    SetCookie = "set-cookie", EndToEnd;
    StrictTransportSecurity = "strict-transport-security", EndToEnd;
    Te = "te", HopByHop;
    Traceparent = "traceparent", EndToEnd;
    Tracestate = "tracestate", EndToEnd;
    Trailer = "trailer", EndToEnd;
    TransferEncoding = "transfer-encoding", HopByHop;
    Upgrade = "upgrade", HopByHop;
    UserAgent = "user-agent", EndToEnd;
    Vary = "vary", EndToEnd;
    Via = "via", EndToEnd;
    WwwAuthenticate = "www-authenticate", EndToEnd;
    XApiKey = "x-api-key", EndToEnd;
    XForwardedFor = "x-forwarded-for", EndToEnd;
    XForwardedHost = "x-forwarded-host", EndToEnd;
    XForwardedProto = "x-forwarded-proto", EndToEnd;
}

/// The table has 2^this slots: about eight for each name, so that a multiplier without collisions is soon found.
const SLOT_BITS: u32 = 9;
/// Marks a slot without name.
const EMPTY: u8 = u8::MAX;
/// The multiplier under which no two names share a slot.
const MULTIPLIER: u32 = find_multiplier();
/// Place in [`NAMES`] for each slot.
const SLOTS: [u8; 1 << SLOT_BITS] = build_slots();
/// No known name is longer.
const MAX_NAME: usize = 32;

/// Slot of a name, from its length and three of its letters. Or-ing 0x20 lowers letters; what it does to other
/// bytes does not matter, as the whole name is compared afterwards.
#[expect(clippy::cast_possible_truncation, reason = "the length was checked against MAX_NAME")]
const fn slot(name: &[u8], multiplier: u32) -> usize {
    let last = name.len() - 1;
    let letters = (name[0] as u32) | ((name[last / 2] as u32) << 8) | ((name[last] as u32) << 16) | 0x20_2020;
    ((letters | ((last as u32) << 24)).wrapping_mul(multiplier) >> (u32::BITS - SLOT_BITS)) as usize
}

/// Tries multipliers until one gives every name a slot of its own; a name that makes this fail does not compile.
const fn find_multiplier() -> u32 {
    let mut multiplier = 0x9e37_79b1_u32;
    loop {
        let mut used = [0_u64; (1 << SLOT_BITS) / 64];
        let mut at = 0;
        while at < NAMES.len() {
            let slot = slot(NAMES[at], multiplier);
            let bit = 1 << (slot % 64);
            if used[slot / 64] & bit != 0 {
                break;
            }
            used[slot / 64] |= bit;
            at += 1;
        }
        if at == NAMES.len() {
            return multiplier;
        }
        multiplier = multiplier.wrapping_mul(5).wrapping_add(2);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 255 names, asserted here")]
const fn build_slots() -> [u8; 1 << SLOT_BITS] {
    assert!(NAMES.len() < EMPTY as usize);
    let mut slots = [EMPTY; 1 << SLOT_BITS];
    let mut at = 0;
    while at < NAMES.len() {
        assert!(NAMES[at].len() <= MAX_NAME);
        slots[slot(NAMES[at], MULTIPLIER)] = at as u8;
        at += 1;
    }
    slots
}

/// Whether `name`, a token, equals `lower` but for case. Lengths must agree.
///
/// In a token no byte but an upper-case letter becomes a lower-case letter, digit or hyphen by or-ing 0x20, so
/// eight bytes are compared at a time.
fn equals_lower(name: &[u8], lower: &[u8]) -> bool {
    let (words, rest) = name.as_chunks::<8>();
    let (lower_words, lower_rest) = lower.as_chunks::<8>();
    let lowered = |word: &[u8; 8]| u64::from_ne_bytes(*word) | 0x2020_2020_2020_2020;
    words.iter().zip(lower_words).all(|(word, lower)| lowered(word) == u64::from_ne_bytes(*lower))
        && rest.iter().zip(lower_rest).all(|(byte, lower)| byte | 0x20 == *lower)
}

impl KnownField {
    /// The field that `name`, a token of any case, stands for.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        if name.is_empty() || name.len() > MAX_NAME {
            return Self::Other;
        }
        let at = usize::from(SLOTS[slot(name, MULTIPLIER)]);
        match NAMES.get(at) {
            Some(lower) if lower.len() == name.len() && equals_lower(name, lower) => VARIANTS[at],
            _ => Self::Other,
        }
    }

    /// The name in lower case, empty for [`Other`](Self::Other).
    pub fn name(self) -> &'static str {
        NAMES.get(self as usize).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
    }

    /// Whether the field is for one connection only (RFC 9110 §7.6.1, §11.7).
    pub fn is_hop_by_hop(self) -> bool {
        NATURES.get(self as usize) == Some(&Nature::HopByHop)
    }

    /// Whether `Connection` may nominate the field as hop-by-hop: only those the gateway knows nothing of.
    pub(super) fn may_be_nominated(self) -> bool {
        self == Self::Other
    }

    /// Whether the field may come as a trailer: framing, routing, authentication, conditions and what describes the
    /// content may not (RFC 9110 §6.5.1).
    pub(crate) fn may_be_trailer(self) -> bool {
        self == Self::Other || NATURES.get(self as usize) == Some(&Nature::Trailing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case() {
        for (name, variant) in NAMES.iter().zip(VARIANTS) {
            assert_eq!(KnownField::of(name), *variant);
            assert_eq!(KnownField::of(&name.to_ascii_uppercase()), *variant);
            assert_eq!(variant.name().as_bytes(), *name);
        }
        assert_eq!(KnownField::Other.name(), "");
    }

    #[test]
    fn names_off_by_one_byte_are_not_found() {
        for name in NAMES {
            for at in 0..name.len() {
                for byte in (0..=u8::MAX).filter(|&byte| crate::syntax::is_token(&[byte])) {
                    let mut changed = name.to_vec();
                    changed[at] = byte;
                    let expected = NAMES
                        .iter()
                        .position(|known| known.eq_ignore_ascii_case(&changed))
                        .map(|at| VARIANTS[at]);
                    assert_eq!(KnownField::of(&changed), expected.unwrap_or_default());
                }
            }
            assert_eq!(KnownField::of(&[name, &b"x"[..]].concat()), KnownField::Other);
        }
        assert_eq!(KnownField::of(b""), KnownField::Other);
        assert_eq!(KnownField::of(&[b'a'; 300]), KnownField::Other);
    }
}
