//! What runners are called: a name tells the machine, the registration, and whose pool it is.

use ondeck_core::model::ids::InstanceId;
use sha2::{Digest, Sha256};

/// The longest instance id that fits beside any count and a mark into the 64 characters that
/// GitHub allows.
const LONGEST_ID: usize = 45;

/// The name of a machine's registration number `count`, as `<instance id>-<count>-<mark>`. An id
/// that is too long is cut to one character more than any that is not, by which it is known.
pub fn runner_name(id: &InstanceId, count: u32, mark: &str) -> String {
    let id = id.as_str();
    if id.len() <= LONGEST_ID {
        return format!("{id}-{count}-{mark}");
    }
    let digest = Sha256::digest(id.as_bytes());
    let tail = digest[..4].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    format!("{}.{tail}-{count}-{mark}", &id[..LONGEST_ID - tail.len()])
}

/// The machine and the registration behind a name; nothing if the name is not of this pool, or
/// holds no more than a part of the machine's id.
pub fn instance_of(name: &str, mark: &str) -> Option<(InstanceId, u32)> {
    let (rest, found) = name.rsplit_once('-')?;
    let (id, count) = rest.rsplit_once('-')?;
    if found != mark || id.len() > LONGEST_ID {
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
    fn a_name_gives_its_machine_back() {
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
    fn what_is_not_of_our_making_has_no_machine() {
        for name in
            ["", "a1b2c3", "-a1b2c3", "1-a1b2c3", "i-1-x-a1b2c3", "-1-a1b2c3", "i 1-1-a1b2c3"]
        {
            assert_eq!(instance_of(name, "a1b2c3"), None, "{name}");
        }
    }

    #[test]
    fn long_ids_are_cut_and_stay_apart() {
        let [one, other] = ["1", "2"].map(|end| id(&format!("{}{end}", "x".repeat(63))));
        let names = [&one, &other].map(|id| runner_name(id, u32::MAX, "a1b2c3"));
        assert_eq!(names.each_ref().map(String::len), [64, 64]);
        assert_ne!(names[0], names[1]);
        assert_eq!(instance_of(&names[0], "a1b2c3"), None);
    }
}
