use std::collections::{BTreeMap, BTreeSet};

use super::ownership::Ownership;
use crate::model::ids::{InstanceId, RunId};
use crate::model::timestamp::Timestamp;

/// A job was seen on an instance at this moment.
#[derive(Debug, Clone)]
pub struct JobSighting {
    pub job: String,
    pub run: RunId,
    pub instance: InstanceId,
    pub at: Timestamp,
}

impl JobSighting {
    /// Reads `job run instance time`. `None` if the line is incomplete or a word is invalid.
    pub fn parse(line: &str) -> Option<JobSighting> {
        let [job, run, instance, at] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(JobSighting {
            job: job.to_owned(),
            run: RunId::new(run).ok()?,
            instance: InstanceId::new(instance).ok()?,
            at: Timestamp::parse(at).ok()?,
        })
    }
}

/// The sightings at which the job's run did not own the instance.
pub fn jobs_outside_ownership(ownership: &Ownership, sightings: &[JobSighting]) -> Vec<String> {
    let outside =
        sightings.iter().filter(|seen| !ownership.is_owner(&seen.instance, &seen.run, seen.at));
    outside.map(|seen| format!("the run did not own the instance: {seen:?}")).collect()
}

/// The jobs that were where the design does not allow them even under faults: on an instance that
/// their run never owned, on one that another run owned at that moment, or on the same instance
/// as another job at the same time.
///
/// After its run released the instance, or the instance was terminated, a job may still be seen
/// there until its process is killed. Only another owner must not meet it.
pub fn jobs_with_another_owner(ownership: &Ownership, sightings: &[JobSighting]) -> Vec<String> {
    let (mut violations, mut reported) = (Vec::new(), BTreeSet::new());
    for seen in sightings {
        if !ownership.has_been_owner(&seen.instance, &seen.run, seen.at) {
            violations.push(format!("the run never owned the instance: {seen:?}"));
        }
        if let Some(other) = ownership.other_owner(&seen.instance, &seen.run, seen.at)
            && reported.insert((&seen.job, other))
        {
            violations.push(format!("on an instance of {other}: {seen:?}"));
        }
    }
    violations.extend(overlaps(sightings));
    violations
}

fn overlaps(sightings: &[JobSighting]) -> Vec<String> {
    // The first and the last sighting of each job on each instance.
    let mut stays = BTreeMap::<(&InstanceId, &str), (&JobSighting, &JobSighting)>::new();
    for seen in sightings {
        let stay = stays.entry((&seen.instance, &seen.job)).or_insert((seen, seen));
        if seen.at < stay.0.at {
            stay.0 = seen;
        }
        if seen.at > stay.1.at {
            stay.1 = seen;
        }
    }
    let mut stays: Vec<_> = stays.into_values().collect();
    stays.sort_by_key(|(first, _)| (&first.instance, first.at));
    let overlapping = stays.windows(2).filter(|pair| {
        let [(_, last), (first, _)] = pair else { return false };
        last.instance == first.instance && first.at < last.at
    });
    overlapping.map(|pair| format!("two jobs at once: {pair:?}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::writes::history::{WHOLE_LIFE, at, of_one_instance};
    use super::*;

    fn seen(words: &str) -> JobSighting {
        let [job, run, instance, seconds] = words.split(' ').collect::<Vec<_>>()[..] else {
            panic!("not four words: {words}");
        };
        JobSighting {
            job: job.to_owned(),
            run: RunId::new(run).unwrap(),
            instance: InstanceId::new(instance).unwrap(),
            at: at(seconds),
        }
    }

    #[test]
    fn a_job_meets_no_other_run_and_no_other_job() {
        let ownership = Ownership::from_writes(&of_one_instance(&WHOLE_LIFE));
        for (lines, violation) in [
            (&["x a i-1 1", "x a i-1 2"][..], None),
            // After its run released the instance, and before another run owns it.
            (&["x a i-1 2", "x a i-1 3.5"], None),
            (&["x a i-1 2", "x a i-1 4.5"], Some("on an instance of b")),
            (&["x b i-1 2"], Some("never owned")),
            (&["x a i-2 2"], Some("never owned")),
            (&["x a i-1 1", "x a i-1 3", "y a i-1 2"], Some("two jobs at once")),
        ] {
            let sightings: Vec<_> = lines.iter().map(|line| seen(line)).collect();
            let found = jobs_with_another_owner(&ownership, &sightings);
            match violation {
                None => assert_eq!(found, Vec::<String>::new(), "{lines:?}"),
                Some(violation) => assert!(found.concat().contains(violation), "{found:?}"),
            }
        }
    }

    #[test]
    fn an_undisturbed_job_stays_within_its_runs_ownership() {
        let ownership = Ownership::from_writes(&of_one_instance(&WHOLE_LIFE));
        for (line, owned) in [
            ("x a i-1 0.9", false),
            ("x a i-1 1", true),
            ("x a i-1 2.9", true),
            ("x a i-1 3", false),
            ("x b i-1 4", true),
            ("x b i-1 7", false),
            ("x b i-2 5", false),
        ] {
            let found = jobs_outside_ownership(&ownership, &[seen(line)]);
            assert_eq!(found.is_empty(), owned, "{line}: {found:?}");
        }
    }

    #[test]
    fn only_a_complete_line_is_a_sighting() {
        let seen = JobSighting::parse("x a i-1 2026-11-16T00:00:00.250Z").unwrap();
        assert_eq!((seen.run.as_str(), seen.instance.as_str()), ("a", "i-1"));
        for line in ["half a line", "x a i-1 2026-11-16T00:0", "x a i-1 2026-11-16T00:00:00.250Z y"]
        {
            assert!(JobSighting::parse(line).is_none(), "{line}");
        }
    }
}
