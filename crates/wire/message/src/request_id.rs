//! The id of a request: the client's own, or one that the gateway makes.

use egret_clock::{Random, Timestamp};
use uuid::{Builder, Variant, Version};

/// The response field with the id of the request. It is the only one: an `x-request-id` in a response is the
/// provider's own.
pub const OWN_REQUEST_ID: &str = "x-egret-request-id";
/// The request field with an id, which many providers and applications use.
pub const REQUEST_ID: &str = "x-request-id";

/// Separator of the name of a field from its value.
const COLON: &str = ": ";
const LINE_END: &str = "\r\n";
/// Place of the id in its line.
const ID_AT: usize = OWN_REQUEST_ID.len() + COLON.len();
/// Length of all but the id in the line.
const FRAME_LEN: usize = ID_AT + LINE_END.len();
/// Length of a UUID as text.
const UUID_LEN: usize = 36;

/// The id of a request. Empty if requests have no ids, and for the gateway's own calls.
///
/// It is kept in the form in which every response carries it, so a response only copies it.
#[derive(Debug, Default)]
pub struct RequestId {
    /// The line `x-egret-request-id`. It outlasts [`RequestId::clear`]: the next UUID replaces only the
    /// digits.
    line: Vec<u8>,
    id_len: usize,
    is_made: bool,
}

impl RequestId {
    /// Returns the id, which is visible ASCII; empty if there is none.
    pub fn bytes(&self) -> &[u8] {
        self.line.get(ID_AT..ID_AT + self.id_len).unwrap_or_default()
    }

    /// Returns the id as text, for logs and error responses. `None` if there is none.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()).ok().filter(|text| !text.is_empty())
    }

    /// Returns the id if the gateway has made it.
    pub fn made(&self) -> Option<&[u8]> {
        self.is_made.then(|| self.bytes())
    }

    /// Returns the field line of a response, `x-egret-request-id`, with its line end. Empty if there is none.
    pub fn response_line(&self) -> &[u8] {
        if self.id_len == 0 { &[] } else { &self.line }
    }

    /// Removes the id.
    pub fn clear(&mut self) {
        self.id_len = 0;
        self.is_made = false;
    }

    /// Uses the client's id, which routing has found usable.
    pub fn set(&mut self, id: &[u8]) {
        self.line.clear();
        for part in [OWN_REQUEST_ID.as_bytes(), COLON.as_bytes(), id, LINE_END.as_bytes()] {
            self.line.extend_from_slice(part);
        }
        self.id_len = id.len();
        self.is_made = false;
    }

    /// Makes a UUID of version 7 (RFC 9562 §5.7): the time in milliseconds, then microseconds, then
    /// 62 random bits.
    pub fn make(&mut self, now: Timestamp, random: &mut Random) {
        let (millis, micros) = (now.as_micros() / 1_000, now.as_micros() % 1_000);
        let time = millis << 16 | micros;
        let bits = u128::from(time) << 64 | u128::from(random.draw());
        let builder = Builder::from_u128(bits).with_version(Version::SortRand);
        let uuid = builder.with_variant(Variant::RFC4122).into_uuid();
        let text = hyphenated(uuid.as_bytes());
        if self.line.len() == FRAME_LEN + UUID_LEN {
            self.line[ID_AT..ID_AT + UUID_LEN].copy_from_slice(&text);
        } else {
            self.set(&text);
        }
        self.id_len = UUID_LEN;
        self.is_made = true;
    }
}

/// Returns the text of a UUID (RFC 9562 §4).
fn hyphenated(uuid: &[u8; 16]) -> [u8; UUID_LEN] {
    let digits = digits(uuid);
    let mut text = [b'-'; UUID_LEN];
    text[..8].copy_from_slice(&digits[..8]);
    text[9..13].copy_from_slice(&digits[8..12]);
    text[14..18].copy_from_slice(&digits[12..16]);
    text[19..23].copy_from_slice(&digits[16..20]);
    text[24..].copy_from_slice(&digits[20..]);
    text
}

/// Returns the hexadecimal digits of a UUID. Every request needs them, so eight are computed in one number.
fn digits(uuid: &[u8; 16]) -> [u8; 32] {
    let mut digits = [0; 32];
    for (eight, four) in digits.as_chunks_mut::<8>().0.iter_mut().zip(uuid.as_chunks::<4>().0) {
        *eight = eight_digits(u32::from_be_bytes(*four)).to_be_bytes();
    }
    digits
}

/// Returns the hexadecimal digits of a number, one in each byte.
fn eight_digits(number: u32) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Each step separates the halves of a group, until each byte has four bits.
    let mut digits = u64::from(number);
    digits = (digits << 16 | digits) & 0x0000_ffff_0000_ffff;
    digits = (digits << 8 | digits) & 0x00ff_00ff_00ff_00ff;
    digits = (digits << 4 | digits) & 0x0f0f_0f0f_0f0f_0f0f;
    // Six more than nine carries into the upper half of a byte.
    let letters = (digits + 6 * EACH) >> 4 & EACH;
    digits + u64::from(b'0') * EACH + letters * u64::from(b'a' - b'0' - 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_id_is_a_uuid_that_begins_with_the_time() {
        let (mut id, mut random) = (RequestId::default(), Random::new(1));
        assert_eq!((id.text(), id.made()), (None, None));
        id.make(Timestamp::from_secs(1_700_000_000), &mut random);
        let first = id.text().unwrap().to_owned();
        assert_eq!((first.len(), &first[..15]), (36, "018bcfe5-6800-7"));
        assert_eq!(&first[15..18], "000", "microseconds");
        assert!("89ab".contains(&first[19..20]), "the variant of RFC 9562: {first}");
        assert_eq!(id.made(), Some(first.as_bytes()));
        id.make(Timestamp::from_secs(1_700_000_000), &mut random);
        assert_ne!(id.text(), Some(&*first));
    }

    fn assert_text(number: u128) {
        let uuid = uuid::Uuid::from_u128(number);
        assert_eq!(&hyphenated(uuid.as_bytes()), uuid.to_string().as_bytes());
    }

    #[test]
    fn a_uuid_is_written_as_its_crate_writes_it() {
        let mut random = Random::new(7);
        for number in [0, u128::MAX, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210] {
            assert_text(number);
        }
        for _ in 0..1_000 {
            assert_text(u128::from(random.draw()) << 64 | u128::from(random.draw()));
        }
    }

    #[test]
    fn a_response_carries_the_id_in_one_field() {
        let (mut id, mut random) = (RequestId::default(), Random::new(1));
        assert_eq!(id.response_line(), b"");
        let line = |id: &RequestId| String::from_utf8(id.response_line().to_vec()).unwrap();
        for _ in 0..2 {
            id.make(Timestamp::from_secs(1), &mut random);
            let made = id.text().unwrap().to_owned();
            assert_eq!(line(&id), format!("x-egret-request-id: {made}\r\n"));
            id.set(b"mine");
            assert_eq!(line(&id), "x-egret-request-id: mine\r\n");
            id.make(Timestamp::from_secs(1), &mut random);
            id.clear();
            assert_eq!(line(&id), "");
        }
    }

    #[test]
    fn the_clients_id_is_not_made() {
        let mut id = RequestId::default();
        id.make(Timestamp::default(), &mut Random::new(1));
        id.set(&[b'x'; 128]);
        assert_eq!((id.bytes().len(), id.made()), (128, None));
        id.clear();
        assert_eq!(id.text(), None);
    }
}
