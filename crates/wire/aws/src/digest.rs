//! SHA-256 digests, as signatures write them.

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;

/// Returns the SHA-256 digest of `bytes`, as hexadecimal digits in lower case.
pub fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest(&SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_an_empty_body_is_the_one_in_every_example() {
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
