//! Writing of JSON texts.

/// Appends `text` as it has to be within the quotes of a JSON text. It may be cut within a character.
pub fn write_escaped(text: &[u8], out: &mut Vec<u8>) {
    let is_special = |byte: u8| byte < 0x20 || matches!(byte, b'"' | b'\\');
    // A loop without an early exit lets the compiler check many bytes at once.
    if !text.iter().fold(false, |found, byte| found | is_special(*byte)) {
        return out.extend_from_slice(text);
    }
    let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit & 15)];
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0..0x20 => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(*byte)]),
            _ => out.push(*byte),
        }
    }
}
