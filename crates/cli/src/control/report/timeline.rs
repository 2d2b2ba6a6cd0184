//! A chart of a provision: a row for each machine, from the start of the call until it was ready.

use ondeck_core::modes::provision::{MachineSource, Provisioned};

use super::wire::millis;

/// The most machines of a chart.
pub(super) const BARS: usize = 20;

/// A label that shows nothing. Mermaid does not allow an empty one, and ignores spaces.
const UNNAMED: &str = "\u{200b}";

/// A label fits into a bar that has at least this part of the chart's width: a fifth.
const ROOMY: u64 = 5;

/// A Mermaid chart of the first [`BARS`] machines. The axis shows milliseconds since the start of
/// the call. Mermaid reads them as milliseconds since 1970, so that no time zone shifts them.
pub(super) fn chart(instances: &[Provisioned]) -> String {
    let shown = &instances[..instances.len().min(BARS)];
    let end = shown.iter().map(|one| millis(one.milestones.ready)).max().unwrap_or_default();
    let axis = if end < 10_000 { "%Q ms" } else { "%s s" };
    let mut lines = vec![
        "```mermaid".to_owned(),
        "---".to_owned(),
        "displayMode: compact".to_owned(),
        "config:".to_owned(),
        "  gantt:".to_owned(),
        "    leftPadding: 170".to_owned(),
        "---".to_owned(),
        "gantt".to_owned(),
        "    dateFormat x".to_owned(),
        format!("    axisFormat {axis}"),
    ];
    for one in shown {
        lines.push(format!("    section {}", one.id));
        lines.extend(bars(one, end));
    }
    lines.push("```\n".to_owned());
    lines.join("\n")
}

/// The bars of one machine, each beginning where the one before ended. The label is on the longest
/// bar if it fits there, and otherwise on the last, where it has room to the right.
fn bars(one: &Provisioned, end: u64) -> Vec<String> {
    let reached = &one.milestones;
    let found = reached.found.unwrap_or_default();
    let (before, ours) = match one.source {
        MachineSource::Warm => ("done, ", "active, "),
        MachineSource::Cold | MachineSource::Adopted => ("done, ", "done, "),
    };
    let moments = [
        (before, millis(found)),
        (ours, millis(reached.owned)),
        ("", millis(reached.registered)),
        ("active, ", millis(reached.ready)),
    ];
    let starts = [0].into_iter().chain(moments.iter().map(|(_, at)| *at));
    let parts: Vec<(&str, u64, u64)> = starts
        .zip(&moments)
        .map(|(from, (tag, to))| (*tag, from, to.saturating_sub(from)))
        .filter(|(_, _, long)| *long > 0)
        .collect();
    let longest = (0..parts.len()).max_by_key(|n| parts[*n].2).unwrap_or_default();
    let roomy = parts.get(longest).is_some_and(|part| part.2 * ROOMY >= end);
    let labelled = if roomy { longest } else { parts.len().saturating_sub(1) };
    let label = format!("{} after {} ms", one.source.as_str(), millis(reached.ready));
    let mut lines = Vec::new();
    for (n, (tag, from, long)) in parts.iter().enumerate() {
        let name = if n == labelled { &label } else { UNNAMED };
        lines.push(format!("    {name} :{tag}{from}, {long}ms"));
    }
    if lines.is_empty() {
        lines.push(format!("    {label} :milestone, 0, 0ms"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ondeck_core::model::ids::{InstanceId, ResourceClass};
    use ondeck_core::model::record::MachineSpec;
    use ondeck_core::model::requirements::UsageClass;
    use ondeck_core::modes::provision::Milestones;

    use super::*;

    fn machine(
        id: String,
        source: MachineSource,
        [found, owned, registered, ready]: [u64; 4],
    ) -> Provisioned {
        let after = Duration::from_millis;
        Provisioned {
            id: InstanceId::new(id).unwrap(),
            label: "7".to_owned(),
            source,
            spec: MachineSpec {
                resource_class: ResourceClass::new("large").unwrap(),
                instance_type: "c6i.large".to_owned(),
                usage_class: UsageClass::Spot,
                cpu: 2,
                mem: 4096,
            },
            milestones: Milestones {
                found: (source == MachineSource::Warm).then(|| after(found)),
                owned: after(owned),
                registered: after(registered),
                ready: after(ready),
            },
            why: String::new(),
        }
    }

    /// The grammar that we use, line by line: what Mermaid takes for a section or a task.
    fn assert_valid(chart: &str) {
        let mut lines = chart.lines();
        let head: Vec<&str> = lines.by_ref().take(9).collect();
        assert_eq!(head[0], "```mermaid");
        assert_eq!(head[1], head[6], "the front matter ends");
        assert_eq!(&head[7..], ["gantt", "    dateFormat x"]);
        let axis = lines.next().unwrap();
        assert!(["    axisFormat %Q ms", "    axisFormat %s s"].contains(&axis), "{axis}");
        let mut sections = 0;
        for line in lines.by_ref() {
            if line == "```" {
                assert!(sections > 0);
                assert_eq!(lines.next(), None);
                return;
            }
            let text = line.strip_prefix("    ").unwrap();
            if let Some(name) = text.strip_prefix("section ") {
                sections += 1;
                assert!(!name.is_empty() && !name.contains([':', '#', ';', '%', ' ']), "{line}");
                continue;
            }
            let (name, data) = text.split_once(" :").unwrap();
            assert!(!name.trim().is_empty() && !name.contains([':', '#', ';', '%']), "{line}");
            let mut data = data.split(", ").peekable();
            data.next_if(|tag| ["done", "active", "milestone"].contains(tag));
            let number = |text: &str| text.parse::<u64>().is_ok();
            assert!(number(data.next().unwrap()), "{line}");
            assert!(number(data.next().unwrap().strip_suffix("ms").unwrap()), "{line}");
            assert_eq!(data.next(), None, "{line}");
        }
        panic!("no end: {chart}");
    }

    #[test]
    fn a_chart_shows_each_machine_in_a_row() {
        let machines = [
            machine("i-0a".into(), MachineSource::Warm, [12, 20, 110, 130]),
            machine("i-0b".into(), MachineSource::Cold, [0, 90, 2250, 2300]),
            machine("i-0c".into(), MachineSource::Adopted, [0, 0, 0, 0]),
        ];
        insta::assert_snapshot!(chart(&machines).replace(UNNAMED, "_"), @"
        ```mermaid
        ---
        displayMode: compact
        config:
          gantt:
            leftPadding: 170
        ---
        gantt
            dateFormat x
            axisFormat %Q ms
            section i-0a
            _ :done, 0, 12ms
            _ :active, 12, 8ms
            _ :20, 90ms
            warm after 130 ms :active, 110, 20ms
            section i-0b
            _ :done, 0, 90ms
            cold after 2300 ms :90, 2160ms
            _ :active, 2250, 50ms
            section i-0c
            adopted after 0 ms :milestone, 0, 0ms
        ```
        ");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn every_chart_is_valid(
            machines in proptest::collection::vec(
                ("[a-zA-Z0-9_][a-zA-Z0-9._-]{0,63}", 0..3usize, proptest::array::uniform4(0..40_000u64)),
                1..30,
            )
        ) {
            let made = machines.into_iter().map(|(id, source, mut at)| {
                at.sort_unstable();
                machine(id, [MachineSource::Warm, MachineSource::Cold, MachineSource::Adopted][source], at)
            });
            let made: Vec<Provisioned> = made.collect();
            let chart = chart(&made);
            assert_valid(&chart);
            proptest::prop_assert_eq!(chart.matches("section ").count(), made.len().min(BARS));
        }
    }
}
