//! Archives that are compressed with gzip (RFC 1952).

use std::io::Read;

use flate2::read::MultiGzDecoder;

/// The first bytes of a compressed file. No JSON text begins with them.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The reason why a compressed archive cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GzipError {
    /// It has more bytes than allowed once it is decompressed.
    #[error("too large once it is decompressed")]
    TooLarge,
    /// It is damaged or incomplete, for this reason.
    #[error("the gzip data is damaged or incomplete: {0}")]
    Damaged(String),
}

/// Decompresses the bytes of a file if they are compressed: one gzip member, or several in a row. At most
/// `bytes_max` bytes are produced, whatever the file says.
pub fn decompressed(bytes: Vec<u8>, bytes_max: u64) -> Result<Vec<u8>, GzipError> {
    if !bytes.starts_with(&MAGIC) {
        return Ok(bytes);
    }
    let mut out = Vec::new();
    let mut decoder = MultiGzDecoder::new(&*bytes).take(bytes_max.saturating_add(1));
    let read = decoder.read_to_end(&mut out);
    if out.len() as u64 > bytes_max {
        return Err(GzipError::TooLarge);
    }
    read.map_err(|error| GzipError::Damaged(error.to_string()))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn members_in_a_row_are_one_text_and_plain_text_stays() {
        let both = [compressed(b"{\"log\":"), compressed(b" {}}")].concat();
        assert_eq!(decompressed(both, 100).unwrap(), b"{\"log\": {}}");
        assert_eq!(decompressed(b"{}".to_vec(), 1).unwrap(), b"{}");
    }

    #[test]
    fn a_bomb_stops_at_the_bound_and_damage_is_reported() {
        let bomb = compressed(&vec![b' '; 10 << 20]);
        assert!(bomb.len() < 20_000);
        assert_eq!(decompressed(bomb.clone(), 1 << 20), Err(GzipError::TooLarge));
        let mut damaged = compressed(b"{\"log\": {}}");
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0xff;
        let cut = &bomb[..bomb.len() - 9];
        let followed = [&*compressed(b"{}"), b"{}"].concat();
        for bytes in [&*damaged, cut, &followed, &MAGIC] {
            let error = decompressed(bytes.to_vec(), 100 << 20).unwrap_err();
            assert!(matches!(error, GzipError::Damaged(_)), "{error}");
        }
    }
}
