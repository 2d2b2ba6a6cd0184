//! Copies a text by the terminal, also over ssh: the escape sequence OSC 52. Not every terminal has it,
//! and none says so.

/// The sequence that puts the text on the clipboard.
pub(super) fn sequence(text: &str) -> String {
    format!("\x1b]52;c;{}\x07", base64(text.as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| -> [char; 4] {
        let byte = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        std::array::from_fn(|n| match n <= chunk.len() {
            true => char::from(DIGITS[(bits >> (18 - 6 * n) & 63) as usize]),
            false => '=',
        })
    };
    bytes.chunks(3).flat_map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_encoded_as_rfc_4648_has_it() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, encoded) in cases {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
        assert_eq!(sequence("i-1"), "\x1b]52;c;aS0x\x07");
    }
}
