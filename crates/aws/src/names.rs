//! What everything is called. All names and tags carry the pool's own, so that two repositories
//! in one account have nothing to do with each other.

use std::fmt;
use std::str::FromStr;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::ids::ResourceClass;

/// The tag that says whose a machine, queue or table is.
pub(crate) const POOL_TAG: &str = "ondeck:pool";
/// The tag with the launch that a machine came from.
pub(crate) const INTENT_TAG: &str = "ondeck:intent";
/// The tag with the run that a machine was launched for.
pub(crate) const RUN_TAG: &str = "ondeck:run";
/// The tag with the class that a machine was launched for.
pub(crate) const CLASS_TAG: &str = "ondeck:resource-class";
/// The tag that says who looks after a thing, for people and for cost reports.
pub(crate) const MANAGED_BY: (&str, &str) = ("managed-by", "ondeck");

/// Whose pool it is: `owner/repository`, or an owner alone for a pool that a whole organisation
/// shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolName(String);

/// A name that cannot be a pool's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPoolName(String);

impl fmt::Display for InvalidPoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool is not OWNER/REPOSITORY or OWNER: {}", quoted(&self.0))
    }
}

impl std::error::Error for InvalidPoolName {}

impl FromStr for PoolName {
    type Err = InvalidPoolName;

    fn from_str(text: &str) -> Result<PoolName, InvalidPoolName> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let part = |part: &str| !part.is_empty() && part.len() <= 100 && part.chars().all(plain);
        let mut parts = text.split('/');
        let sound = parts.by_ref().take(2).all(part) && parts.next().is_none();
        if sound { Ok(PoolName(text.to_owned())) } else { Err(InvalidPoolName(text.to_owned())) }
    }
}

impl PoolName {
    /// The name of the pool's table and launch template, and the beginning of its queues' names.
    pub fn resource_name(&self) -> String {
        Names::of(self).stem
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The names of one pool's things.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) pool: PoolName,
    stem: String,
}

impl Names {
    pub(crate) fn of(pool: &PoolName) -> Names {
        // Names of queues are short and know no dots. What is cut off or replaced is made up for
        // by a digest of the whole; GitHub's names ignore case, and so does the digest.
        let lower = pool.0.to_ascii_lowercase();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let legible: String = lower.chars().map(plain).take(40).collect();
        Names { pool: pool.clone(), stem: format!("ondeck-{legible}-{:08x}", digest(&lower)) }
    }

    /// The table.
    pub(crate) fn table(&self) -> &str {
        &self.stem
    }

    /// The launch template.
    pub(crate) fn launch_template(&self) -> &str {
        &self.stem
    }

    /// The queue of a class. At most 80 characters, or AWS refuses it.
    pub(crate) fn queue(&self, class: &ResourceClass) -> String {
        let class = class.as_str();
        let plain = class.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if plain && class.len() <= 20 {
            return format!("{}-{class}", self.stem);
        }
        let legible: String = class.chars().filter(char::is_ascii_alphanumeric).take(11).collect();
        format!("{}-{legible}-{:08x}", self.stem, digest(class))
    }
}

/// Thirty-two bits of FNV-1a: enough to keep similar names apart, and a caller
/// that makes two of its own names collide only mixes its own pools.
pub(crate) fn digest(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pool: &str) -> Names {
        Names::of(&pool.parse().unwrap())
    }

    #[test]
    fn names_carry_owner_and_repository() {
        let names = names("Acme/web.site");
        assert!(names.table().starts_with("ondeck-acme-web-site-"), "{}", names.table());
        let large = ResourceClass::new("large").unwrap();
        assert_eq!(names.queue(&large), format!("{}-large", names.table()));
    }

    #[test]
    fn names_that_look_alike_are_kept_apart() {
        assert_ne!(names("acme/web.site").table(), names("acme/web-site").table());
        assert_ne!(names("acme-web/site").table(), names("acme/web-site").table());
        assert_eq!(names("ACME/site").table(), names("acme/Site").table());
        let class = |name: &str| ResourceClass::new(name).unwrap();
        let names = names("acme/site");
        assert_ne!(names.queue(&class("a.b")), names.queue(&class("a_b")));
    }

    #[test]
    fn the_longest_names_are_short_enough() {
        let names = names(&format!("{}/{}", "o".repeat(100), "r".repeat(100)));
        let class = ResourceClass::new("c".repeat(40)).unwrap();
        assert!(names.queue(&class).len() <= 80, "{}", names.queue(&class));
    }

    #[test]
    fn what_is_no_pool_is_refused() {
        for bad in ["", "/", "a/", "/b", "a/b/c", "a b/c", "ä/b"] {
            assert_eq!(bad.parse::<PoolName>(), Err(InvalidPoolName(bad.to_owned())));
        }
        for good in ["acme", "acme/web.site", "A-1/_x"] {
            assert_eq!(good.parse::<PoolName>().unwrap().to_string(), good);
        }
    }
}
