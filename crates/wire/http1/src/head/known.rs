//! Field names that the gateway treats specially, found with one look-up in a table built at compile time.

/// Rule for an intermediary that forwards a known field.
#[derive(Copy, Clone, PartialEq, Eq)]
enum ForwardingRule {
    /// Forwarded, even if a `Connection` option nominates it.
    EndToEnd,
    /// Forwarded, and harmless as a trailer.
    Trailing,
    /// For one connection only, never forwarded.
    HopByHop,
}

macro_rules! known_fields {
    ($($variant:ident = $name:literal, $rule:ident;)*) => {
        /// The known field that a name stands for.
        ///
        /// Fields that are not hop-by-hop are kept even if `Connection` nominates them, because dropping them
        /// would change the meaning of the message for the other side.
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum KnownField {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
            /// Any other name.
            #[default]
            Other,
        }

        /// The names in lower case, in the order of the variants.
        const NAMES: &[&[u8]] = &[$($name.as_bytes(),)*];
        /// The variants in the same order.
        const VARIANTS: &[KnownField] = &[$(KnownField::$variant,)*];
        const RULES: &[ForwardingRule] = &[$(ForwardingRule::$rule,)*];
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
    Http2Settings = "http2-settings", HopByHop;
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

/// Log2 of the number of slots: about eight slots per name, so a multiplier without collisions is found
/// quickly.
const SLOT_BITS: u32 = 9;
/// Marks an empty slot.
const EMPTY: u8 = u8::MAX;
/// The multiplier that gives each name its own slot.
const MULTIPLIER: u64 = find_multiplier();
/// Index into [`NAMES`] for each slot.
const SLOTS: [u8; 1 << SLOT_BITS] = build_slots();
/// The key of each name.
const KEYS: [NameKey; NAMES.len()] = build_keys();

/// Both ends of a name, eight bytes each, in lower case. Names of up to 16 bytes are covered completely; in
/// shorter names the ends overlap, or the rest is zero. Together with the length the key stands in for the
/// name.
///
/// Letters are lowered by or-ing 0x20. In a token this turns no other byte into a lower-case letter, a digit
/// or a hyphen, so no unknown name matches a known one.
#[derive(Copy, Clone, PartialEq, Eq)]
struct NameKey {
    first: u64,
    last: u64,
    len: usize,
}

impl NameKey {
    #[inline]
    const fn of(name: &[u8]) -> Self {
        const LOWER: u64 = 0x2020_2020_2020_2020;
        let len = name.len();
        if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            Self { first: u64::from_le_bytes(*first) | LOWER, last: u64::from_le_bytes(*last) | LOWER, len }
        } else if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            let both = (u32::from_le_bytes(*first) as u64) | ((u32::from_le_bytes(*last) as u64) << 32);
            Self { first: both | LOWER, last: 0, len }
        } else if let (Some(first), Some(last)) = (name.first_chunk::<2>(), name.last_chunk::<2>()) {
            let both = (u16::from_le_bytes(*first) as u64) | ((u16::from_le_bytes(*last) as u64) << 32);
            Self { first: both | LOWER, last: 0, len }
        } else {
            Self { first: 0, last: 0, len }
        }
    }

    #[inline]
    const fn slot(self, multiplier: u64) -> usize {
        let mixed = self.first ^ self.last.rotate_left(23) ^ ((self.len as u64) << 56);
        (mixed.wrapping_mul(multiplier) >> (u64::BITS - SLOT_BITS)) as usize
    }
}

const fn build_keys() -> [NameKey; NAMES.len()] {
    let mut keys = [NameKey { first: 0, last: 0, len: 0 }; NAMES.len()];
    let mut at = 0;
    while at < NAMES.len() {
        keys[at] = NameKey::of(NAMES[at]);
        at += 1;
    }
    keys
}

/// Tries multipliers until one gives each name its own slot. Fails to compile if there is none.
const fn find_multiplier() -> u64 {
    let mut multiplier = 0x9e37_79b9_7f4a_7c15_u64;
    loop {
        let mut used = [0_u64; (1 << SLOT_BITS) / 64];
        let mut at = 0;
        while at < KEYS.len() {
            let slot = KEYS[at].slot(multiplier);
            let bit = 1 << (slot % 64);
            if used[slot / 64] & bit != 0 {
                break;
            }
            used[slot / 64] |= bit;
            at += 1;
        }
        if at == KEYS.len() {
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
    while at < KEYS.len() {
        slots[KEYS[at].slot(MULTIPLIER)] = at as u8;
        at += 1;
    }
    slots
}

impl KnownField {
    /// Returns the field that `name`, a token in any case, stands for.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        let key = NameKey::of(name);
        let at = usize::from(SLOTS[key.slot(MULTIPLIER)]);
        // The key omits the middle of long names.
        match KEYS.get(at) {
            Some(known) if *known == key && (key.len <= 16 || name.eq_ignore_ascii_case(NAMES[at])) => {
                VARIANTS[at]
            }
            _ => Self::Other,
        }
    }

    /// The name in lower case, empty for [`Other`](Self::Other).
    pub fn name(self) -> &'static str {
        NAMES.get(self as usize).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
    }

    /// Returns `true` if the field is for one connection only (RFC 9110 §7.6.1, §11.7).
    pub fn is_hop_by_hop(self) -> bool {
        RULES.get(self as usize) == Some(&ForwardingRule::HopByHop)
    }

    /// Returns `true` if `Connection` may nominate the field as hop-by-hop: only unknown fields.
    pub(super) fn may_be_nominated(self) -> bool {
        self == Self::Other
    }

    /// Returns `true` if the field may be a trailer. Fields for framing, routing, authentication, conditions
    /// and content description may not (RFC 9110 §6.5.1).
    pub(crate) fn may_be_trailer(self) -> bool {
        self == Self::Other || RULES.get(self as usize) == Some(&ForwardingRule::Trailing)
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
