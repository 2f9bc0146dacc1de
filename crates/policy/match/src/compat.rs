//! Other products whose clients keep their fields and parameters. The config lists those that are read.
//!
//! Each further name for a host is one more way to smuggle a host past somebody who knows another name.
//! Whatever reads such a name asks [`Compat`], the one place that decides.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use egret_items::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::warn;

words! {
    /// A product whose clients may keep the fields that they send.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum OtherProduct: word {
        /// Lunar Proxy.
        Lunar => "lunar",
        /// HARchiver.
        Harchiver => "harchiver",
    }
}

/// Fields in which clients of Lunar send the id of a request.
const LUNAR_REQUEST_IDS: [&[u8]; 2] = [b"x-lunar-req-id", b"x-lunar-sequence-id"];

impl OtherProduct {
    /// Returns the product that sends the id of a request in the field `name`.
    pub(crate) fn of_request_id(name: &[u8]) -> Option<Self> {
        LUNAR_REQUEST_IDS.iter().any(|id| id.eq_ignore_ascii_case(name)).then_some(Self::Lunar)
    }

    /// Logs that a client has sent one of its fields, once in the life of the process.
    fn warn_once(self) {
        static LUNAR: AtomicBool = AtomicBool::new(false);
        static HARCHIVER: AtomicBool = AtomicBool::new(false);
        let warned = match self {
            Self::Lunar => &LUNAR,
            Self::Harchiver => &HARCHIVER,
        };
        // The load keeps the line of the cache shared between the workers.
        if !warned.load(Relaxed) && !warned.swap(true, Relaxed) {
            warn!(
                product = self.word(),
                "a client has sent a field of another product, which is read because the config has no `gateway.compat`: \
                 list the product there, because later versions of Egret read the listed ones alone"
            );
        }
    }
}

/// The products whose fields and parameters are read, as `gateway.compat` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compat {
    /// The key is missing: all are read, each with a warning at its first use.
    #[default]
    Missing,
    /// Only those of the list are read.
    Listed {
        /// `true` if Lunar is in the list.
        lunar: bool,
        /// `true` if HARchiver is in the list.
        harchiver: bool,
    },
}

impl Compat {
    /// Compiles the value of the key. `None` if it is missing.
    pub fn new(listed: Option<&[OtherProduct]>) -> Self {
        listed.map_or(Self::Missing, |listed| Self::Listed {
            lunar: listed.contains(&OtherProduct::Lunar),
            harchiver: listed.contains(&OtherProduct::Harchiver),
        })
    }

    /// Returns `true` if the config lists the products, so that it may exclude some.
    #[inline]
    pub const fn is_listed(self) -> bool {
        matches!(self, Self::Listed { .. })
    }

    /// Returns `true` if a field or parameter of `product` that a client has sent is read. Logs the first one
    /// if the config does not say so.
    pub(crate) fn reads(self, product: OtherProduct) -> bool {
        if self == Self::Missing {
            product.warn_once();
        }
        !self.excludes(product)
    }

    /// Returns `true` if no field or parameter of `product` is read.
    pub(crate) const fn excludes(self, product: OtherProduct) -> bool {
        match (self, product) {
            (Self::Missing, _) => false,
            (Self::Listed { lunar, .. }, OtherProduct::Lunar) => !lunar,
            (Self::Listed { harchiver, .. }, OtherProduct::Harchiver) => !harchiver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_products_are_read_unless_the_key_is_missing() {
        use OtherProduct::{Harchiver, Lunar};
        for (listed, reads) in [
            (None, [true, true]),
            (Some(&[][..]), [false, false]),
            (Some(&[Lunar][..]), [true, false]),
            (Some(&[Harchiver][..]), [false, true]),
            (Some(&[Harchiver, Lunar, Lunar][..]), [true, true]),
        ] {
            let compat = Compat::new(listed);
            assert_eq!([Lunar, Harchiver].map(|product| compat.reads(product)), reads, "{listed:?}");
        }
    }

    #[test]
    fn a_product_has_the_same_word_in_config_and_log() {
        for product in [OtherProduct::Lunar, OtherProduct::Harchiver] {
            assert_eq!(serde_json::to_value(product).unwrap(), product.word());
        }
    }
}
