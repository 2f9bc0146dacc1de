//! Makes a message whose ways differ smaller.

use super::generate::Message;
use super::verdict::Verdict;

/// Maximum number of plays to shrink a message.
const PLAYS: usize = 150;

/// Leaves out mutations, then bytes, as long as the verdict stays. `bytes` makes the message, `judge` plays
/// it.
pub(crate) fn shrink(
    message: &Message,
    verdict: Verdict,
    bytes: fn(&Message) -> Vec<u8>,
    judge: impl Fn(&[u8]) -> Verdict,
) -> Vec<u8> {
    let mut plays = 0;
    let mut stays = |bytes: &[u8]| {
        plays += 1;
        plays <= PLAYS && judge(bytes) == verdict
    };
    let mut message = message.clone();
    let mut at = 0;
    while at < message.mutations.len() {
        let mut fewer = message.clone();
        fewer.mutations.remove(at);
        if stays(&bytes(&fewer)) {
            message = fewer;
        } else {
            at += 1;
        }
    }
    let mut bytes = bytes(&message);
    let mut size = bytes.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at + size <= bytes.len() {
            let fewer = [&bytes[..at], &bytes[at + size..]].concat();
            if stays(&fewer) {
                bytes = fewer;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    bytes
}
