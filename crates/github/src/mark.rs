//! What tells the runners of one pool from those of others in the same list.

use sha2::{Digest, Sha256};

/// A mark for the pool of this name, whose case does not count.
pub fn mark(pool: &str) -> String {
    let digest = Sha256::digest(pool.to_ascii_lowercase().as_bytes());
    digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_have_marks_of_their_own() {
        assert_eq!(mark("acme/web"), mark("Acme/Web"));
        assert_ne!(mark("acme/web"), mark("acme/api"));
        assert_eq!(mark("acme/web").len(), 6);
    }
}
