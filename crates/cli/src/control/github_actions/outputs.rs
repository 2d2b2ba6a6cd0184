//! Writes step outputs. They are written after a failure too, so that a later step with
//! `if: failure()` can read `result`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use ondeck_core::ports::Random;

use crate::surroundings::Entropy;

/// Appends outputs, each a name and a value, to the step's file.
pub(super) fn append(file: &Path, outputs: &[(&'static str, String)]) -> std::io::Result<()> {
    let text: String = outputs.iter().map(|(name, value)| entry(name, value, &Entropy)).collect();
    OpenOptions::new().create(true).append(true).open(file)?.write_all(text.as_bytes())
}

/// One output. A value of several lines is enclosed in a random delimiter, so that no value can
/// end itself and begin another output.
fn entry(name: &str, value: &str, random: &dyn Random) -> String {
    if !value.contains(['\r', '\n']) {
        return format!("{name}={value}\n");
    }
    loop {
        let delimiter = format!("ondeck_{:016x}{:016x}", random.number(), random.number());
        if !value.contains(&delimiter) {
            return format!("{name}<<{delimiter}\n{value}\n{delimiter}\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;

    struct Counting(AtomicU64);

    impl Random for Counting {
        fn number(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed) / 2
        }
    }

    /// The runner's reading of the file, from its documented forms.
    fn read(file: &str) -> Vec<(String, String)> {
        let mut lines = file.split('\n');
        let mut outputs = Vec::new();
        while let Some(line) = lines.next() {
            if line.is_empty() {
                continue;
            }
            let (equals, here) = (line.find('='), line.find("<<"));
            let plain = equals.filter(|equals| here.is_none_or(|here| *equals < here));
            let (name, value) = match plain {
                Some(at) => (&line[..at], line[at + 1..].to_owned()),
                None => {
                    let (name, delimiter) = line.split_once("<<").expect("one of the two forms");
                    let value = lines.by_ref().take_while(|line| *line != delimiter);
                    (name, value.collect::<Vec<_>>().join("\n"))
                }
            };
            outputs.push((name.to_owned(), value));
        }
        outputs
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn the_runner_reads_back_every_value(
            values in prop::collection::vec(
                prop_oneof!["(?s).{0,30}", "[\r\n=<a]{0,12}", "label<<x\nlabel=8\nx\n"], 0..5
            )
        ) {
            let random = Counting(AtomicU64::new(0));
            let file: String = values.iter().map(|value| entry("label", value, &random)).collect();
            let expected: Vec<(String, String)> =
                values.into_iter().map(|value| ("label".to_owned(), value)).collect();
            prop_assert_eq!(read(&file), expected);
        }
    }

    #[test]
    fn a_value_cannot_end_itself() {
        let random = || Counting(AtomicU64::new(0));
        assert_eq!(entry("label", "7", &random()), "label=7\n");
        assert_eq!(entry("label", "", &random()), "label=\n");
        let zeros = format!("ondeck_{}", "0".repeat(32));
        let ones = format!("ondeck_{0}1{0}1", "0".repeat(15));
        assert_eq!(
            entry("result", &format!("a\n{zeros}\nlabel=8"), &random()),
            format!("result<<{ones}\na\n{zeros}\nlabel=8\n{ones}\n")
        );
    }
}
