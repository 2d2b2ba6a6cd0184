//! The law, as the design has it and not as the program does: which writes to an instance's row
//! there may be, whose a machine was when, and where jobs may have run.

use std::collections::{BTreeMap, BTreeSet};

/// A write to one instance's row, as the store itself has kept it. Those of one instance come in
/// the order in which they were made.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) id: String,
    /// `None` where there was no row.
    pub(super) before: Option<Row>,
    /// `None` where it was removed.
    pub(super) after: Option<Row>,
}

/// As much of a row as the law is about. Times are texts whose order is their order in time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) state: String,
    pub(super) run: String,
    pub(super) threshold: String,
    pub(super) updated_at: String,
}

/// Something that a job wrote down: that it was there.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    job: String,
    run: String,
    machine: String,
    at: String,
}

impl Proof {
    /// One line of a job's.
    pub(super) fn parse(line: &str) -> Option<Proof> {
        let [job, run, machine, at] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let [job, run, machine, at] = [job, run, machine, at].map(str::to_owned);
        Some(Proof { job, run, machine, at })
    }
}

/// Every write that the design does not know.
pub(super) fn unlawful(writes: &[Write]) -> Vec<String> {
    let mut standing = BTreeMap::<&str, Option<&Row>>::new();
    let mut problems = Vec::new();
    for write in writes {
        let before = standing.insert(&write.id, write.after.as_ref()).flatten();
        if before != write.before.as_ref() {
            problems.push(format!("out of order: {write:?}, where {before:?} stood"));
        }
        if let Err(why) = judge(write.before.as_ref(), write.after.as_ref()) {
            problems.push(format!("{why}: {write:?}"));
        }
    }
    problems
}

fn judge(before: Option<&Row>, after: Option<&Row>) -> Result<(), &'static str> {
    let (before, after) = match (before, after) {
        (None, Some(new)) => return must(new.state == "created" && new.is_owned(), "born wrong"),
        (Some(old), None) => return must(old.state == "terminated", "removed alive"),
        (None, None) => return Err("nothing"),
        (Some(before), Some(after)) => (before, after),
    };
    let same_run = before.run == after.run && before.is_owned();
    let in_time = before.threshold > after.updated_at;
    let (lawful, why) = match (before.state.as_str(), after.state.as_str()) {
        ("terminated", _) => (false, "changed after its end"),
        (_, "terminated") => (!in_time && !after.is_owned(), "ended before its time"),
        // An expiry, or the note that it was announced.
        (from, to) if from == to => {
            let expired = after.threshold <= after.updated_at;
            (before.run == after.run && (expired || before.threshold == after.threshold), "moved")
        }
        ("created" | "claimed", "running") => (same_run && in_time, "not to be had for this run"),
        ("idle", "claimed") => {
            (!before.is_owned() && after.is_owned() && in_time, "not to be claimed")
        }
        ("running" | "claimed", "idle") => {
            (before.is_owned() && !after.is_owned() && in_time, "not to be let go")
        }
        _ => (false, "no such transition"),
    };
    must(lawful, why)
}

fn must(lawful: bool, why: &'static str) -> Result<(), &'static str> {
    if lawful { Ok(()) } else { Err(why) }
}

impl Row {
    fn is_owned(&self) -> bool {
        !self.run.is_empty()
    }
}

/// Jobs that were where they may not be: on a machine that their run never had or that another
/// run had at that moment, or on one machine at the same time as another job.
pub(super) fn misplaced(writes: &[Write], proofs: &[Proof]) -> Vec<String> {
    let spans = spans(writes);
    let (mut problems, mut told) = (Vec::new(), BTreeSet::new());
    for proof in proofs {
        let spans = spans.get(proof.machine.as_str()).map_or(&[][..], Vec::as_slice);
        if !spans.iter().any(|span| span.run == proof.run && *span.from <= proof.at) {
            problems.push(format!("the run never had the machine: {proof:?}"));
        }
        // Where its run has let go of the machine, or the machine has ended, a job may live on
        // until somebody gets to it. That nobody else has the machine meanwhile is the point.
        let another = |span: &&Span<'_>| {
            span.run != proof.run
                && *span.from < proof.at
                && span.to.is_none_or(|to| proof.at < *to)
        };
        if let Some(span) = spans.iter().find(another)
            && told.insert((&proof.job, span.run))
        {
            problems.push(format!("on a machine of {}: {proof:?}", span.run));
        }
    }
    problems.extend(overlaps(proofs));
    problems
}

/// Machines that a run was told it has, and was never given.
pub(super) fn broken(writes: &[Write], promises: &[(String, Vec<String>)]) -> Vec<String> {
    let running = writes.iter().filter_map(|write| {
        let after = write.after.as_ref().filter(|after| after.state == "running")?;
        Some((after.run.as_str(), write.id.as_str()))
    });
    let given: BTreeSet<_> = running.collect();
    let promises = promises.iter().flat_map(|(run, ids)| ids.iter().map(move |id| (run, id)));
    let broken = promises.filter(|(run, id)| !given.contains(&(run.as_str(), id.as_str())));
    broken.map(|(run, id)| format!("{run} was never given {id}")).collect()
}

/// How long a run had a machine.
struct Span<'a> {
    run: &'a str,
    from: &'a String,
    to: Option<&'a String>,
}

fn spans(writes: &[Write]) -> BTreeMap<&str, Vec<Span<'_>>> {
    let mut spans = BTreeMap::<&str, Vec<Span<'_>>>::new();
    for write in writes {
        let Some(after) = &write.after else { continue };
        let of = spans.entry(&write.id).or_default();
        let owner = of.last().filter(|span| span.to.is_none()).map_or("", |span| span.run);
        if owner == after.run {
            continue;
        }
        if let Some(last) = of.last_mut().filter(|span| span.to.is_none()) {
            last.to = Some(&after.updated_at);
        }
        if after.is_owned() {
            of.push(Span { run: &after.run, from: &after.updated_at, to: None });
        }
    }
    spans
}

fn overlaps(proofs: &[Proof]) -> Vec<String> {
    let mut stays = BTreeMap::<(&str, &str), (&Proof, &Proof)>::new();
    for proof in proofs {
        let stay = stays.entry((&proof.machine, &proof.job)).or_insert((proof, proof));
        if proof.at < stay.0.at {
            stay.0 = proof;
        }
        if proof.at > stay.1.at {
            stay.1 = proof;
        }
    }
    let mut stays: Vec<_> = stays.into_values().collect();
    stays.sort_by_key(|(first, _)| (&first.machine, &first.at));
    let together = stays.windows(2).filter(|pair| {
        let [(_, last), (first, _)] = pair else { return false };
        last.machine == first.machine && first.at < last.at
    });
    together.map(|pair| format!("two jobs at once: {pair:?}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(words: &str) -> Option<Row> {
        let [state, run, threshold, updated_at] = words.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let run = if run == "-" { "" } else { run };
        let [state, run, threshold, updated_at] =
            [state, run, threshold, updated_at].map(str::to_owned);
        Some(Row { state, run, threshold, updated_at })
    }

    fn life(rows: &[&str]) -> Vec<Write> {
        let rows: Vec<_> = ["absent"].iter().chain(rows).map(|words| row(words)).collect();
        let write = |pair: &[Option<Row>]| Write {
            id: "i-1".to_owned(),
            before: pair[0].clone(),
            after: pair[1].clone(),
        };
        rows.windows(2).map(write).collect()
    }

    const WHOLE: [&str; 9] = [
        "created a 5 1",
        "running a 5 2",
        "idle - 5 3",
        "idle - 5 3",
        "claimed b 6 4",
        "running b 9 5",
        "running b 6 6",
        "terminated - - 7",
        "removed",
    ];

    #[test]
    fn a_whole_life_is_lawful_and_each_breach_is_found() {
        assert_eq!(unlawful(&life(&WHOLE)), Vec::<String>::new());
        for (breach, why) in [
            (&["running a 5 1"][..], "born wrong"),
            (&["created - 5 1"], "born wrong"),
            (&["created a 5 1", "running b 9 2"], "not to be had"),
            (&["created a 5 1", "running a 9 5"], "not to be had"),
            (&["created a 5 1", "idle - 9 2"], "no such transition"),
            (&["created a 5 1", "created b 5 2"], "moved"),
            (&["created a 5 1", "created a 7 2"], "moved"),
            (&["created a 5 1", "terminated - - 4"], "ended before its time"),
            (&["created a 5 1", "removed"], "removed alive"),
            (&["created a 5 1", "running a 5 2", "idle a 9 3"], "not to be let go"),
            (&["created a 5 1", "running a 5 2", "idle - 9 3", "claimed b 9 9"], "to be claimed"),
            (&["created a 5 1", "terminated - - 5", "idle - 9 6"], "changed after its end"),
        ] {
            let problems = unlawful(&life(breach));
            assert!(problems.len() == 1 && problems[0].contains(why), "{breach:?}: {problems:?}");
        }
        let mut torn = life(&WHOLE);
        torn.remove(2);
        assert!(unlawful(&torn)[0].starts_with("out of order"));
    }

    #[test]
    fn a_job_is_where_its_run_is_and_alone() {
        let writes = life(&WHOLE);
        for (lines, problem) in [
            (&["x a i-1 1", "x a i-1 2"][..], None),
            // After its run has let go, and before anybody else has it.
            (&["x a i-1 2", "x a i-1 35"], None),
            (&["x a i-1 2", "x a i-1 45"], Some("on a machine of b")),
            (&["x b i-1 2"], Some("never had")),
            (&["x a i-2 2"], Some("never had")),
            (&["x a i-1 1", "x a i-1 3", "y a i-1 2"], Some("two jobs at once")),
        ] {
            let proofs: Vec<_> = lines.iter().map(|line| Proof::parse(line).unwrap()).collect();
            let problems = misplaced(&writes, &proofs);
            match problem {
                None => assert_eq!(problems, Vec::<String>::new(), "{lines:?}"),
                Some(problem) => assert!(problems.concat().contains(problem), "{problems:?}"),
            }
        }
        assert!(Proof::parse("half a line").is_none());
        let promise = |run: &str| [(run.to_owned(), vec!["i-1".to_owned()])];
        assert_eq!(broken(&writes, &promise("a")), Vec::<String>::new());
        assert_eq!(broken(&writes, &promise("c")), ["c was never given i-1"]);
    }
}
