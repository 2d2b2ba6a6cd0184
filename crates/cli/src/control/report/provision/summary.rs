//! The job summary of a provision: which machines the run got, and how long each phase took.

use std::time::Duration;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::modes::provision::{MachineSource, Outcome, PoolSearch, Provisioned, Timings};

use crate::control::report::estimate::{self, Dollars};
use crate::control::report::failure::{exit_code, meaning, reason};
use crate::control::report::markdown::{
    ROWS, cell, code, counted, first_rows, machine_type, machines, plain, span, table,
};
use crate::control::report::timeline::{self, BARS};
use crate::inputs::Backend;

/// From the launch until the runner is registered, if this call launched no machine itself.
const USUAL_BOOT: Duration = Duration::from_secs(30);

/// Ends with a line break.
pub(super) fn markdown(outcome: &Outcome, backend: Backend) -> String {
    match &outcome.failure {
        Some(failure) => {
            let head = format!(
                "### ondeck provision failed for run {}: {}\n\n",
                code(outcome.run.as_str()),
                meaning(failure.kind)
            );
            let parts = [
                reason(failure),
                exit_code(failure),
                cleaned_up(outcome),
                search(outcome),
                phases(&outcome.timings),
            ];
            head + &joined(&parts)
        }
        None => joined(&[
            headline(outcome),
            each_machine(&outcome.instances),
            chart(&outcome.instances),
            phases(&outcome.timings),
            search(outcome),
            estimate(outcome, backend),
        ]),
    }
}

/// Joins paragraphs, without the empty ones.
fn joined(parts: &[String]) -> String {
    let parts: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn headline(outcome: &Outcome) -> String {
    let sources = [MachineSource::Warm, MachineSource::Cold, MachineSource::Adopted];
    let counts = sources.map(|source| (outcome.count(source), source.as_str()));
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    format!(
        "### ondeck provisioned {} in {}: {}\n\n{}\n",
        machines(outcome.instances.len()),
        span(outcome.timings.total),
        counts.join(", "),
        runs_on(outcome),
    )
}

/// What the jobs of the run name.
fn runs_on(outcome: &Outcome) -> String {
    match outcome.runs_on() {
        Some(label) => format!("Jobs of this run use {}.", code(&format!("runs-on: {label}"))),
        None => "Each machine has a label of its own. Jobs of a matrix use \
                 `runs-on: ${{ fromJSON(needs.provision.outputs.labels)[strategy.job-index] }}`."
            .to_owned(),
    }
}

fn each_machine(instances: &[Provisioned]) -> String {
    let header =
        ["machine", "type", "source", "reason", "found ", "owned ", "registered ", "ready "];
    let rows = instances.iter().map(|one| {
        let at = &one.milestones;
        vec![
            code(one.id.as_str()),
            // In two lines, as the reason; in one line the column would break the type's name.
            machine_type(&one.spec).replace(' ', "<br>"),
            format!("**{}**", one.source.as_str()),
            plain(&one.why),
            at.found.map(cell).unwrap_or_default(),
            cell(at.owned),
            cell(at.registered),
            cell(at.ready),
        ]
    });
    first_rows(&header, rows.collect(), ROWS)
}

fn chart(instances: &[Provisioned]) -> String {
    let more = match instances.len().saturating_sub(BARS) {
        0 => String::new(),
        more => format!(" {} not shown.", machines(more)),
    };
    format!(
        "{}\n<sub>Grey: waiting for a machine. Light: claiming. Dark: runner registering. Light: \
         confirming.{more}</sub>\n",
        timeline::chart(instances)
    )
}

fn phases(timings: &Timings) -> String {
    let phases = [
        ("looking for machines of this run", timings.adoption),
        ("claiming from the pool", timings.selection),
        ("launching", timings.creation),
        ("waiting for new machines", timings.validation),
        ("committing or cleaning up", timings.post_provision),
    ];
    let total = timings.total.as_secs_f64();
    let rows: Vec<Vec<String>> = phases
        .iter()
        .filter(|(_, took)| !took.is_zero())
        .map(|(phase, took)| {
            let share = took.as_secs_f64() / total.max(0.001);
            vec![(*phase).to_owned(), cell(*took), format!("{:.0} %", share * 100.0), bar(share)]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["phase", "took ", "share ", ""], &rows)
}

/// A share as a bar of up to twenty blocks.
fn bar(share: f64) -> String {
    let blocks = (share * 20.0).round().clamp(0.0, 20.0);
    (0..20).take_while(|n| f64::from(*n) < blocks).map(|_| '█').collect()
}

fn search(outcome: &Outcome) -> String {
    let search = &outcome.search;
    if !search.asked {
        return String::new();
    }
    if search.tickets == 0 {
        return "The pool had no tickets.\n".to_owned();
    }
    let looked = counted(search.tickets, "ticket", "tickets");
    format!("The search checked {looked}: {}.\n", results(search))
}

fn results(search: &PoolSearch) -> String {
    let unsuitable: Vec<String> =
        search.unsuitable.iter().map(|(what, n)| format!("{n} by {}", what.about())).collect();
    let counts = [
        (search.claimed, "claimed".to_owned()),
        (search.unsuitable_count(), format!("did not match ({})", unsuitable.join(", "))),
        (search.lost, "lost to other runs".to_owned()),
        (search.unhealthy, "unhealthy and terminated".to_owned()),
        (search.given_back, "given back".to_owned()),
        (search.void, "void".to_owned()),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    if words.is_empty() { "none could be used".to_owned() } else { words.join(", ") }
}

fn cleaned_up(outcome: &Outcome) -> String {
    let ids = |ids: &[InstanceId]| {
        let shown: Vec<String> = ids.iter().take(ROWS).map(|id| code(id.as_str())).collect();
        let more = if ids.len() > ROWS { " …" } else { "" };
        format!("{}{more}", shown.join(" "))
    };
    let mut lines = Vec::new();
    if !outcome.terminated.is_empty() {
        let count = machines(outcome.terminated.len());
        lines.push(format!("- {count} terminated: {}", ids(&outcome.terminated)));
    }
    if !outcome.returned.is_empty() {
        let count = machines(outcome.returned.len());
        lines.push(format!("- {count} returned to the pool: {}", ids(&outcome.returned)));
    }
    let left = outcome.clean_up_failures.iter().take(ROWS);
    lines.extend(left.map(|left| format!("- not cleaned up: {}", plain(left))));
    if lines.is_empty() {
        return "Nothing had to be cleaned up.\n".to_owned();
    }
    format!("Cleaned up:\n{}\n", lines.join("\n"))
}

fn estimate(outcome: &Outcome, backend: Backend) -> String {
    let hour = Duration::from_secs(3600);
    let specs = || outcome.instances.iter().map(|one| &one.spec);
    let Some(spent) = specs().map(|spec| estimate::on_ec2(spec, hour)).sum::<Option<Dollars>>()
    else {
        return String::new();
    };
    let hosted = specs().map(|spec| estimate::on_github(spec, hour)).sum::<Option<Dollars>>();
    let hosted = hosted.map(|hosted| format!("; GitHub-hosted runners of the same size: {hosted}"));
    let mut text =
        format!("Cost of these machines per hour: {spent}{}.", hosted.unwrap_or_default());
    text += &saved(outcome);
    format!("{text}\n\n{}", estimate::assumption(backend))
}

/// The boot time that warm machines saved.
fn saved(outcome: &Outcome) -> String {
    let warm: Vec<&Provisioned> =
        outcome.instances.iter().filter(|one| one.source == MachineSource::Warm).collect();
    if warm.is_empty() {
        return String::new();
    }
    let measured = boot(outcome);
    let boot = measured.unwrap_or(USUAL_BOOT);
    let worth: Dollars = warm.iter().filter_map(|one| estimate::on_ec2(&one.spec, boot)).sum();
    let all = boot * u32::try_from(warm.len()).unwrap_or(u32::MAX);
    let how = if measured.is_some() { "as measured in this call" } else { "usual on EC2" };
    format!(
        " {} saved {} of boot time, worth {worth}, at {} per boot ({how}).",
        counted(warm.len(), "warm start", "warm starts"),
        span(all),
        span(boot),
    )
}

/// How long new machines took from their launch until they were ready, on average. `None` if there
/// are none.
fn boot(outcome: &Outcome) -> Option<Duration> {
    let launch = outcome.timings.adoption + outcome.timings.selection;
    let cold = outcome.instances.iter().filter(|one| one.source == MachineSource::Cold);
    let boots: Vec<Duration> =
        cold.map(|one| one.milestones.ready.saturating_sub(launch)).collect();
    let count = u32::try_from(boots.len()).ok()?;
    boots.iter().sum::<Duration>().checked_div(count)
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::failure::{Failure, FailureKind};
    use ondeck_core::model::ids::{ResourceClass, RunId};
    use ondeck_core::model::record::MachineSpec;
    use ondeck_core::model::requirements::{Mismatch, UsageClass};
    use ondeck_core::modes::provision::Milestones;

    use super::*;
    use crate::control::github_actions::LONGEST_SUMMARY;

    fn outcome(count: usize) -> Outcome {
        let instance = |n: usize| Provisioned {
            id: InstanceId::new(format!("i-{n:017x}")).unwrap(),
            label: "7".to_owned(),
            source: if n.is_multiple_of(2) { MachineSource::Warm } else { MachineSource::Cold },
            spec: MachineSpec {
                resource_class: ResourceClass::new("large").unwrap(),
                instance_type: "c6i.large".to_owned(),
                usage_class: UsageClass::OnDemand,
                cpu: 2,
                mem: 4096,
            },
            milestones: Milestones::default(),
            why: "<script>".repeat(100),
        };
        Outcome {
            run: RunId::new("7").unwrap(),
            label: (&RunId::new("7").unwrap()).into(),
            requested: 1,
            usage: UsageClass::OnDemand,
            instances: (0..count).map(instance).collect(),
            timings: Timings { total: Duration::from_millis(1949), ..Timings::default() },
            search: PoolSearch::default(),
            failure: None,
            terminated: Vec::new(),
            returned: Vec::new(),
            kept: Vec::new(),
            clean_up_failures: Vec::new(),
        }
    }

    #[test]
    fn a_thousand_machines_fit() {
        let summary = markdown(&outcome(1000), Backend::Aws);
        assert!(summary.len() < LONGEST_SUMMARY, "{}", summary.len());
        assert!(
            summary
                .starts_with("### ondeck provisioned 1000 machines in 1.9 s: 500 warm, 500 cold\n")
        );
        assert!(summary.contains("\n900 more are not shown.\n"));
        assert!(summary.contains(" 980 machines not shown.</sub>"));
        assert!(!summary.contains("<script>"));
    }

    #[test]
    fn jobs_name_the_only_label_or_that_of_each_machine() {
        for (count, own, named) in [
            (1, false, "Jobs of this run use `runs-on: 7`."),
            (2, false, "Jobs of this run use `runs-on: 7`."),
            (1, true, "Jobs of this run use `runs-on: m0`."),
            (2, true, "Jobs of a matrix use `runs-on: ${{ fromJSON("),
        ] {
            let mut outcome = outcome(count);
            for (n, one) in outcome.instances.iter_mut().enumerate().filter(|_| own) {
                one.label = format!("m{n}");
            }
            let summary = markdown(&outcome, Backend::Aws);
            assert!(summary.contains(named), "{summary}");
        }
    }

    #[test]
    fn a_failure_shows_reason_clean_up_search_and_phases() {
        let id = |name: &str| InstanceId::new(name).unwrap();
        let failed = Outcome {
            timings: Timings {
                selection: Duration::from_millis(500),
                validation: Duration::from_millis(1500),
                total: Duration::from_secs(2),
                ..Timings::default()
            },
            search: PoolSearch {
                asked: true,
                tickets: 9,
                claimed: 1,
                unsuitable: [(Mismatch::Type, 4), (Mismatch::Usage, 1)].into(),
                void: 1,
                lost: 1,
                unhealthy: 1,
                given_back: 0,
                hedges: 0,
            },
            failure: Some(Failure::new(
                FailureKind::NotReady,
                "machine i-2 did not become ready: a|b",
            )),
            terminated: vec![id("i-2"), id("i-3")],
            returned: vec![id("i-1")],
            kept: Vec::new(),
            clean_up_failures: vec!["i-4 was expired: no answer".to_owned()],
            ..outcome(0)
        };
        insta::assert_snapshot!(markdown(&failed, Backend::Aws), @"
        ### ondeck provision failed for run `7`: machines did not become ready

        > machine i-2 did not become ready: a&#124;b

        Exit code 5: machines did not become ready.

        Cleaned up:
        - 2 machines terminated: `i-2` `i-3`
        - 1 machine returned to the pool: `i-1`
        - not cleaned up: i-4 was expired: no answer

        The search checked 9 tickets: 1 claimed, 5 did not match (1 by usage class, 4 by type), 1 lost to other runs, 1 unhealthy and terminated, 1 void.

        | phase | took | share |  |
        | --- | ---: | ---: | --- |
        | claiming from the pool | 500&nbsp;ms | 25 % | █████ |
        | waiting for new machines | 1.5&nbsp;s | 75 % | ███████████████ |
        ");
    }

    #[test]
    fn machines_without_a_known_price_have_no_estimate() {
        let mut two = outcome(2);
        assert!(
            markdown(&two, Backend::Aws)
                .contains("Cost of these machines per hour: about USD 0.17")
        );
        two.instances[1].spec.instance_type = "z99.large".to_owned();
        assert!(!markdown(&two, Backend::Aws).contains("USD"));
    }
}
