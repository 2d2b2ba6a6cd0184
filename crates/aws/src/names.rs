//! What everything is called. All names and tags carry the pool's own, so that two repositories
//! in one account have nothing to do with each other.

use std::fmt;
use std::str::FromStr;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::ids::{InstanceId, ResourceClass};

/// The tag that says whose a machine, queue or table is.
pub(crate) const POOL_TAG: &str = "ondeck:pool";
/// The tag with the launch that a machine came from.
pub(crate) const INTENT_TAG: &str = "ondeck:intent";
/// The tag with the run that a machine was launched for.
pub(crate) const RUN_TAG: &str = "ondeck:run";
/// The tag with the class that a machine was launched for.
pub(crate) const CLASS_TAG: &str = "ondeck:resource-class";
/// The tag of a queue with the machine that it wakes, by what AWS knows the machine by.
pub(crate) const MACHINE_TAG: &str = "ondeck:machine";
/// The tag that says who looks after a thing, for people and for cost reports.
pub(crate) const MANAGED_BY: (&str, &str) = ("managed-by", "ondeck");

/// Whose pool it is: `owner/repository`, or an owner alone for a pool that a whole organisation
/// shares. Behind an `@`, which no name of GitHub has, may stand a trust level: each level is a pool of
/// its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolName {
    owner: String,
    trust: Option<String>,
}

/// A name that cannot be a pool's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPoolName(String);

impl fmt::Display for InvalidPoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pool is not OWNER/REPOSITORY or OWNER, with or without @TRUST: {}",
            quoted(&self.0)
        )
    }
}

impl std::error::Error for InvalidPoolName {}

impl FromStr for PoolName {
    type Err = InvalidPoolName;

    fn from_str(text: &str) -> Result<PoolName, InvalidPoolName> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let part = |part: &str| !part.is_empty() && part.len() <= 100 && part.chars().all(plain);
        let (owner, trust) = match text.split_once('@') {
            Some((owner, trust)) => (owner, Some(trust)),
            None => (text, None),
        };
        let mut parts = owner.split('/');
        let sound = parts.by_ref().take(2).all(part) && parts.next().is_none();
        let trust = trust.map(str::to_owned);
        let fits = sound && trust.as_deref().is_none_or(is_trust_level);
        let name = fits.then(|| PoolName { owner: owner.to_owned(), trust });
        name.ok_or_else(|| InvalidPoolName(text.to_owned()))
    }
}

/// Whether the text can name a trust level: it is part of the names of queues, which are short, and is
/// written in one way only, so that two levels are never mistaken for each other.
fn is_trust_level(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=20).contains(&text.len())
        && text.chars().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Checks a trust level. Fails with what is wrong with it.
pub(crate) fn check_trust(text: &str) -> Result<(), String> {
    let problem = "is not 1 to 20 lower-case letters, digits and inner hyphens";
    if is_trust_level(text) { Ok(()) } else { Err(format!("{problem}: {}", quoted(text))) }
}

impl PoolName {
    /// The pool of the same owner with this trust level. Fails if it has another level already, or if
    /// the text cannot name one.
    pub fn at_trust(self, level: &str) -> Result<PoolName, InvalidPoolName> {
        match &self.trust {
            Some(trust) if trust != level => Err(InvalidPoolName(format!("{self}@{level}"))),
            _ => format!("{}@{level}", self.owner).parse(),
        }
    }

    /// The name of the pool's table and launch template, and the beginning of its queues' names.
    pub fn resource_name(&self) -> String {
        Names::of(self).stem
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.owner)?;
        match &self.trust {
            Some(trust) => write!(f, "@{trust}"),
            None => Ok(()),
        }
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
        let lower = pool.to_string().to_ascii_lowercase();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let level = pool.trust.as_ref().map(|trust| format!("-{trust}")).unwrap_or_default();
        let owner = pool.owner.to_ascii_lowercase();
        let legible: String = owner.chars().map(plain).take(40 - level.len()).collect();
        let legible = legible + &level;
        Names { pool: pool.clone(), stem: format!("ondeck-{legible}-{:08x}", digest(&lower)) }
    }

    pub(crate) fn table(&self) -> &str {
        &self.stem
    }

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

    /// The queue by which a machine is woken. At most 80 characters, or AWS refuses it. The underscore is
    /// in no name of another queue, so that neither people nor policies take one for the other.
    pub(crate) fn wake_queue(&self, machine: &InstanceId) -> String {
        let prefix = self.wake_queue_prefix();
        let id = machine.as_str();
        let plain = id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if plain && id.len() <= 20 {
            return format!("{prefix}{id}");
        }
        let legible: String = id.chars().filter(char::is_ascii_alphanumeric).take(11).collect();
        format!("{prefix}{legible}_{:08x}", digest(id))
    }

    /// What the names of all queues begin with by which machines are woken.
    pub(crate) fn wake_queue_prefix(&self) -> String {
        format!("{}_", self.stem)
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
    fn no_queue_of_a_class_is_taken_for_that_of_a_machine() {
        let names = names("acme/site");
        let (machine, prefix) = (InstanceId::new("i-0123456789abcdef0").unwrap(), "_");
        let queue = names.wake_queue(&machine);
        assert_eq!(queue, format!("{}_i-0123456789abcdef0", names.table()));
        for class in ["i-0123456789abcdef0", "_i-0123456789abcdef0", "_", "a_b", "wake"] {
            let Ok(class) = ResourceClass::new(class) else { continue };
            let of_class = names.queue(&class);
            assert!(of_class.starts_with(&format!("{}-", names.table())), "{of_class}");
            assert!(!of_class.contains(prefix) && of_class != queue, "{of_class}");
        }
        // A policy allows the queues of machines by this beginning of their names.
        let other = Names::of(&format!("acme/site-{:08x}", 0).parse().unwrap());
        assert!(!other.table().starts_with(&names.wake_queue_prefix()));
        let id = |text: &str| InstanceId::new(text).unwrap();
        assert_ne!(names.wake_queue(&id("a.b")), names.wake_queue(&id("a_b")));
    }

    #[test]
    fn each_trust_level_has_names_of_its_own() {
        let levels =
            ["acme/site", "acme/site@release", "acme/site@pull-request", "acme/site-release"];
        let stems: Vec<String> = levels.map(|pool| names(pool).table().to_owned()).into();
        for (at, stem) in stems.iter().enumerate() {
            // A policy allows the queues of a pool by this beginning of their names.
            let others = stems.iter().enumerate().filter(|(other, _)| *other != at);
            for (_, other) in others {
                assert!(!other.starts_with(&format!("{stem}-")), "{stem} {other}");
                assert_ne!(stem, other);
            }
        }
        assert!(stems[1].starts_with("ondeck-acme-site-release-"), "{}", stems[1]);
        let long = names(&format!("{}/{}@release", "o".repeat(100), "r".repeat(100)));
        assert!(long.table().contains("-release-"), "{}", long.table());
    }

    #[test]
    fn a_trust_level_is_part_of_the_name_or_given_beside_it() {
        let pool = |text: &str| text.parse::<PoolName>().unwrap();
        assert_eq!(pool("acme/site").at_trust("release"), Ok(pool("acme/site@release")));
        assert_eq!(pool("acme/site@release").at_trust("release"), Ok(pool("acme/site@release")));
        assert!(pool("acme/site@release").at_trust("pull-request").is_err());
        for bad in ["", "Release", "a b", "-a", "a-", "a@b", "a/b", &"a".repeat(21)] {
            assert!(format!("acme/site@{bad}").parse::<PoolName>().is_err(), "{bad}");
            assert!(pool("acme/site").at_trust(bad).is_err() && check_trust(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_longest_names_are_short_enough() {
        let level = "t".repeat(20);
        let names = names(&format!("{}/{}@{level}", "o".repeat(100), "r".repeat(100)));
        let class = ResourceClass::new("c".repeat(40)).unwrap();
        assert!(names.queue(&class).len() <= 80, "{}", names.queue(&class));
        for machine in ["i-0123456789abcdef0".to_owned(), "m".repeat(20), "m".repeat(64)] {
            let queue = names.wake_queue(&InstanceId::new(machine).unwrap());
            assert!(queue.len() <= 80, "{queue}");
        }
    }

    #[test]
    fn what_is_no_pool_is_refused() {
        for bad in ["", "/", "a/", "/b", "a/b/c", "a b/c", "ä/b"] {
            assert_eq!(bad.parse::<PoolName>(), Err(InvalidPoolName(bad.to_owned())));
        }
        for good in ["acme", "acme/web.site", "A-1/_x", "acme@release", "acme/site@pull-request"] {
            assert_eq!(good.parse::<PoolName>().unwrap().to_string(), good);
        }
    }
}
