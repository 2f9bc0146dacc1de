//! Reasons for rejecting a body: one variant per rule.

use std::fmt;

macro_rules! body_errors {
    ($($(#[$doc:meta])* $variant:ident => $slug:literal, $text:literal;)*) => {
        /// An invalid body. The connection it came on must be closed.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
        pub enum BodyError {
            $($(#[$doc])* $variant,)*
        }

        impl BodyError {
            /// Every error, for tables and documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// A short name in kebab-case, for metrics, logs and problem documents.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$variant => $slug,)* }
            }

            /// One English sentence, without any byte received.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

body_errors! {
    /// RFC 9112 §7.1: a chunk does not start with 1 to 16 hexadecimal digits followed by CRLF or `;`.
    ChunkSize => "chunk-size", "A chunk size is not a plain hexadecimal number.";
    /// A chunk of 2^63 bytes or more.
    ChunkTooLarge => "chunk-too-large", "A chunk is too large.";
    /// RFC 9112 §7.1.1: a chunk extension holds a control character, or its line does not end in CRLF.
    ChunkExtension => "chunk-extension", "A chunk extension holds a control character.";
    /// More than [`MAX_CHUNK_EXTENSIONS`](crate::MAX_CHUNK_EXTENSIONS) bytes of extensions in one body.
    ChunkExtensionsTooLong => "chunk-extensions-too-long", "The chunk extensions of the body are too long.";
    /// RFC 9112 §7.1: no CRLF after the data of a chunk.
    ChunkEnd => "chunk-end", "A chunk does not end where its size says.";
    /// RFC 9112 §7.1.2: a trailer line is not a well-formed field line.
    Trailer => "trailer", "A trailer field is not well-formed.";
    /// The trailers exceed [`MAX_TRAILER_BYTES`](crate::MAX_TRAILER_BYTES) or
    /// [`MAX_TRAILER_FIELDS`](crate::MAX_TRAILER_FIELDS).
    TrailersTooLong => "trailers-too-long", "The trailers are too long.";
    /// RFC 9112 §8: the connection ended before the body did.
    Incomplete => "incomplete", "The connection ended before the body was complete.";
}

impl fmt::Display for BodyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.sentence())
    }
}

impl std::error::Error for BodyError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn slugs_and_sentences_are_distinct() {
        let slugs: HashSet<_> = BodyError::ALL.iter().map(|error| error.slug()).collect();
        let sentences: HashSet<_> = BodyError::ALL.iter().map(ToString::to_string).collect();
        assert_eq!((slugs.len(), sentences.len()), (BodyError::ALL.len(), BodyError::ALL.len()));
    }
}
