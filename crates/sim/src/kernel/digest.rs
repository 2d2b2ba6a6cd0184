//! Digests of values, by which states are told apart and random sources are seeded.

/// Returns a 64-bit digest of the `Debug` texts of these values.
pub(crate) fn digest(values: &[&dyn std::fmt::Debug]) -> u64 {
    use std::fmt::Write as _;
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    for value in values {
        write!(hash, "{value:?}\u{1}").expect("hashing cannot fail");
    }
    hash.0
}

/// FNV-1a over everything that is written.
struct Fnv(u64);

impl std::fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}
