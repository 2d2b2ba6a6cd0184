//! The tag that tells the runners of one pool from others on the same list.

use sha2::{Digest, Sha256};

/// Returns six hexadecimal digits derived from the pool's name. Case is ignored.
pub fn pool_tag(pool: &str) -> String {
    let digest = Sha256::digest(pool.to_ascii_lowercase().as_bytes());
    digest.iter().take(3).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pool_has_its_own_tag() {
        assert_eq!(pool_tag("acme/web"), pool_tag("Acme/Web"));
        assert_ne!(pool_tag("acme/web"), pool_tag("acme/api"));
        assert_eq!(pool_tag("acme/web").len(), 6);
    }
}
