//! Config values that are written as one text, which their `FromStr` reads and their `Display` writes.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserializer, de};

struct TextVisitor<T> {
    /// The texts that are possible, for messages.
    expected: &'static str,
    may_be_number: bool,
    value: PhantomData<T>,
}

impl<T: FromStr<Err: Display>> de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        if self.may_be_number {
            return self.visit_str(&number.to_string());
        }
        Err(E::invalid_type(de::Unexpected::Unsigned(number), &self))
    }
}

/// Reads a value that is written as a text. If it `may_be_number`, a whole number stands for its text, which
/// then needs no quotes.
#[doc(hidden)]
pub fn read_text<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
    may_be_number: bool,
) -> Result<T, D::Error> {
    let visitor = TextVisitor { expected, may_be_number, value: PhantomData };
    if may_be_number { deserializer.deserialize_any(visitor) } else { deserializer.deserialize_str(visitor) }
}

/// Lets a type with `FromStr` and `Display` be a config value, which is read and written as a text. With `or
/// number`, it is read from a whole number as well. Behind the type are the texts that messages expect, and
/// the schema, unless the type derives it.
#[macro_export]
macro_rules! text_value {
    ($type:ident, $expected:expr) => {
        $crate::text_value!(@serde $type, $expected, false);
    };
    ($type:ident, $expected:expr, $schema:expr) => {
        $crate::text_value!(@serde $type, $expected, false);
        $crate::text_value!(@schema $type, $schema);
    };
    ($type:ident or number, $expected:expr, $schema:expr) => {
        $crate::text_value!(@serde $type, $expected, true);
        $crate::text_value!(@schema $type, $schema);
    };
    (@serde $type:ident, $expected:expr, $may_be_number:literal) => {
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::read_text(deserializer, $expected, $may_be_number)
            }
        }

        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
    (@schema $type:ident, $schema:expr) => {
        impl ::schemars::JsonSchema for $type {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $schema
            }
        }
    };
}
