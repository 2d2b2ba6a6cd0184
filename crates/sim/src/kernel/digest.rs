//! One number for much.

/// One number for several things, by how they are shown.
pub(crate) fn digest(things: &[&dyn std::fmt::Debug]) -> u64 {
    use std::fmt::Write as _;
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    for thing in things {
        write!(hash, "{thing:?}\u{1}").expect("hashing cannot fail");
    }
    hash.0
}

/// Hashes what is shown, without keeping it.
struct Fnv(u64);

impl std::fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}
