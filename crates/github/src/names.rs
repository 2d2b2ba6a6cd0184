//! Names of runners. A name contains the machine, the registration and the pool.

use ondeck_core::model::ids::InstanceId;
use sha2::{Digest, Sha256};

/// The longest instance id that leaves room for any count and a tag in the 64 characters that GitHub
/// allows.
const LONGEST_ID: usize = 45;

/// Returns `<instance id>-<count>-<pool_tag>`, the name for a machine's registration number `count`.
/// An id of more than `LONGEST_ID` characters is shortened to one character more than that limit,
/// so that a shortened id is recognisable.
pub fn runner_name(id: &InstanceId, count: u32, pool_tag: &str) -> String {
    let id = id.as_str();
    if id.len() <= LONGEST_ID {
        return format!("{id}-{count}-{pool_tag}");
    }
    let digest = Sha256::digest(id.as_bytes());
    let tail = digest[..4].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    format!("{}.{tail}-{count}-{pool_tag}", &id[..LONGEST_ID - tail.len()])
}

/// Returns the machine and the registration number in a runner's name. `None` if the name belongs to
/// another pool or contains a shortened id.
pub fn instance_of(name: &str, pool_tag: &str) -> Option<(InstanceId, u32)> {
    let (rest, found) = name.rsplit_once('-')?;
    let (id, count) = rest.rsplit_once('-')?;
    if found != pool_tag || id.len() > LONGEST_ID {
        return None;
    }
    Some((InstanceId::new(id).ok()?, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> InstanceId {
        InstanceId::new(text).unwrap()
    }

    #[test]
    fn a_name_contains_its_machine() {
        let longest = "x".repeat(LONGEST_ID);
        for (instance, count) in
            [("i-0123456789abcdef0", 1), ("local-7", 0), (longest.as_str(), u32::MAX)]
        {
            let name = runner_name(&id(instance), count, "a1b2c3");
            assert!(name.len() <= 64, "{name}");
            assert_eq!(instance_of(&name, "a1b2c3"), Some((id(instance), count)), "{name}");
            assert_eq!(instance_of(&name, "a1b2c4"), None, "another pool's");
        }
        assert_eq!(runner_name(&id("i-1"), 3, "a1b2c3"), "i-1-3-a1b2c3");
    }

    #[test]
    fn a_foreign_name_has_no_machine() {
        for name in
            ["", "a1b2c3", "-a1b2c3", "1-a1b2c3", "i-1-x-a1b2c3", "-1-a1b2c3", "i 1-1-a1b2c3"]
        {
            assert_eq!(instance_of(name, "a1b2c3"), None, "{name}");
        }
    }

    #[test]
    fn long_ids_are_shortened_and_stay_distinct() {
        let [one, other] = ["1", "2"].map(|end| id(&format!("{}{end}", "x".repeat(63))));
        let names = [&one, &other].map(|id| runner_name(id, u32::MAX, "a1b2c3"));
        assert_eq!(names.each_ref().map(String::len), [64, 64]);
        assert_ne!(names[0], names[1]);
        assert_eq!(instance_of(&names[0], "a1b2c3"), None);
    }
}
