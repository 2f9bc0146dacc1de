//! A text that is wiped when it is dropped, as a member of JSON.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroizing;

pub(super) struct WipedText(pub Zeroizing<String>);

impl Serialize for WipedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for WipedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Taker;

        impl Visitor<'_> for Taker {
            type Value = WipedText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<WipedText, E> {
                Ok(WipedText(Zeroizing::new(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Taker)
    }
}
