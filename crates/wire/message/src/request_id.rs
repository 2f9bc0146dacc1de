//! The id of a request: the client's own, or one that the gateway makes.

use egret_clock::{Random, Timestamp};
use smallvec::SmallVec;
use uuid::Builder;
use uuid::fmt::Hyphenated;

/// The id of a request. Empty if requests have no ids, and for the gateway's own calls.
#[derive(Debug, Default)]
pub struct RequestId {
    /// Visible ASCII characters. A UUID fits without an allocation.
    text: SmallVec<[u8; 36]>,
    is_made: bool,
}

impl RequestId {
    /// Returns the id; empty if there is none.
    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// Returns the id as text, for logs and error responses. `None` if there is none.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.text).ok().filter(|text| !text.is_empty())
    }

    /// Returns the id if the gateway has made it.
    pub fn made(&self) -> Option<&[u8]> {
        self.is_made.then_some(&*self.text)
    }

    /// Removes the id.
    pub fn clear(&mut self) {
        self.text.clear();
        self.is_made = false;
    }

    /// Uses the client's id, which routing has found usable.
    pub fn set(&mut self, id: &[u8]) {
        self.clear();
        self.text.extend_from_slice(id);
    }

    /// Makes a UUID of version 7 (RFC 9562 §5.7).
    pub fn make(&mut self, now: Timestamp, random: &mut Random) {
        let (high, low) = (random.draw().to_be_bytes(), random.draw().to_be_bytes());
        let mut bits = [0; 10];
        bits[..8].copy_from_slice(&high);
        bits[8..].copy_from_slice(&low[..2]);
        let uuid = Builder::from_unix_timestamp_millis(now.as_micros() / 1_000, &bits).into_uuid();
        self.text.resize(Hyphenated::LENGTH, 0);
        uuid.as_hyphenated().encode_lower(&mut self.text);
        self.is_made = true;
    }
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
        assert!("89ab".contains(&first[19..20]), "the variant of RFC 9562: {first}");
        assert_eq!(id.made(), Some(first.as_bytes()));
        id.make(Timestamp::from_secs(1_700_000_000), &mut random);
        assert_ne!(id.text(), Some(&*first));
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
