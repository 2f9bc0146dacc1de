//! Stamps in a stream of events: the moments at which its provider sent them.

use memchr::memchr;

/// Beginning of a stamp: a line of comment in server-sent events, with a moment in nanoseconds of the
/// machine's monotonic clock, like `: sent 81726354`. `egret provider` writes it.
const SENT: &[u8] = b": sent ";

/// Maximum length of a stamp: that of the largest number.
const STAMP_BYTES_MAX: usize = SENT.len() + 20;

/// Reads the stamps of a stream, whatever pieces its bytes arrive in.
#[derive(Debug, Default)]
pub(crate) struct StampReader {
    /// The beginning of the line that has not ended, up to one byte more than a stamp has.
    line: Vec<u8>,
    /// Number of stamps read.
    pub count: u64,
}

impl StampReader {
    /// Begins another stream.
    pub fn clear(&mut self) {
        self.line.clear();
        self.count = 0;
    }

    /// Takes a piece of the stream. Calls `visit` with the moment of each stamp that ends in it.
    pub fn read(&mut self, mut piece: &[u8], mut visit: impl FnMut(u64)) {
        while let Some(end) = memchr(b'\n', piece) {
            let sent = if self.line.is_empty() {
                moment(&piece[..end])
            } else {
                self.keep(&piece[..end]);
                moment(&self.line)
            };
            if let Some(sent) = sent {
                self.count += 1;
                visit(sent);
            }
            self.line.clear();
            piece = &piece[end + 1..];
        }
        self.keep(piece);
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = (STAMP_BYTES_MAX + 1).saturating_sub(self.line.len());
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

/// The moment in a line, if that is a stamp.
fn moment(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(SENT).filter(|_| line.len() <= STAMP_BYTES_MAX)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moments(pieces: &[&[u8]]) -> Vec<u64> {
        let (mut reader, mut found) = (StampReader::default(), Vec::new());
        for piece in pieces {
            reader.read(piece, |sent| found.push(sent));
        }
        assert_eq!(reader.count, found.len() as u64);
        assert!(reader.line.len() <= STAMP_BYTES_MAX + 1);
        found
    }

    #[test]
    fn only_whole_lines_of_that_form_are_stamps() {
        for (text, expected) in [
            (": sent 7\ndata: {}\n\n: sent 18446744073709551615\ndata: {}\n\n", &[7, u64::MAX][..]),
            ("data: : sent 7\n :sent 7\n: sent\n: sent x\n: sent 7 \n: sent -7\n: sent 7", &[]),
            (": sent 18446744073709551616\n: sent 000000000000000000000000000000000007\n: sent 07\n", &[7]),
        ] {
            assert_eq!(moments(&[text.as_bytes()]), expected, "{text}");
        }
        // A line that arrives in two pieces is kept only as far as a stamp can reach.
        assert_eq!(moments(&[b": sent 0000000000000000000000000000", b"7\n: sent 8\n"]), [8]);
    }

    proptest! {
        #[test]
        fn stamps_are_read_alike_in_any_pieces(
            lines in prop::collection::vec("(: sent [0-9]{1,20}|[:sent 0-9]{0,40})\n", 0..8),
            cuts in prop::collection::vec(0_usize..200, 0..6),
        ) {
            let text = lines.concat();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(moments(&pieces), moments(&[text.as_bytes()]));
        }
    }
}
