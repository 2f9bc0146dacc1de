//! HPACK, the compression of fields in HTTP/2 (RFC 7541).
//!
//! Both directions of a connection have a table of the fields that the sender has asked to remember. The
//! decoder writes a block's fields one after the other into one buffer, and a field of a table costs one
//! copy.

mod decoder;
mod encoder;
mod error;
mod fields;
mod huffman;
mod name;
#[cfg(test)]
mod properties;
mod static_table;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use decoder::Decoder;
pub(crate) use encoder::{Encoder, Indexing};
pub(crate) use error::Error;
pub(crate) use fields::{Field, FieldList, ValueForm};
pub(crate) use name::FieldName;
