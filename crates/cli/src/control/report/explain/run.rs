//! The story of a run.

use std::time::Duration;

use ondeck_core::model::ids::RunId;
use ondeck_core::model::readiness::ClaimWay;
use ondeck_core::model::record::{EventRow, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::summary::{
    CallOrigin, CallResult, CandidateNote, CandidateOutcome, LONGEST_LIST, LaunchNote,
    ProvisionSummary, SearchCounts, WaitCause, WaitNote,
};
use ondeck_core::modes::explain::{MachineOfRun, RunStory, Step};
use ondeck_core::modes::provision::{ProvisionOptions, SourcePolicy};

use super::words::{because, clock, counted, listed, machines, millis, one_line};
use super::{INTERRUPTED, Line, LineKind, gap, saw_late, when};

/// Everything that is known about the run, oldest first. What has no time is at the end.
pub(super) fn timeline(story: &RunStory) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(first) = story.unread_before {
        let text = "The run has earlier events that were not read.";
        lines.push(Line::new(first, LineKind::Unknown, text));
    }
    for demand in story.unfinished() {
        let asked = asked(CallOrigin::Run, &demand.options);
        lines.push(Line::new(demand.at, LineKind::Request, asked));
        let text = "What this call did is unknown: no summary of it is stored. It is still at work, it \
                    was killed, or its summary was lost or has been deleted since.";
        lines.push(Line::new(demand.at, LineKind::Unknown, text));
    }
    for call in &story.calls {
        lines.extend(of_call(story, call));
    }
    lines.extend(of_machines(&story.machines));
    lines.extend(story.calls.iter().flat_map(|call| after_claims(story, call)));
    let sights = story.machines.iter().filter_map(|it| Some((it.sight.as_ref()?, it.id.as_str())));
    lines.extend(sights.filter_map(|(sight, id)| saw_late(sight, id)));
    for launch in &story.open_launches {
        let text = format!(
            "A launch of {} {} was intended (intent {}), and what came of it is unknown. Refresh settles \
             it after {}.",
            launch.count,
            of_usage(launch.usage, launch.count),
            launch.id,
            clock(launch.deadline)
        );
        lines.push(Line::new(None, LineKind::Unknown, text));
    }
    // Stable: what happened in the same millisecond stays in this order.
    lines.sort_by_key(Line::order);
    lines
}

fn asked(origin: CallOrigin, options: &ProvisionOptions) -> String {
    let who = match origin {
        CallOrigin::Run => "The run asked for",
        CallOrigin::KeepWarm => "Refresh wanted, to keep machines warm,",
        CallOrigin::Rescue => "Refresh found jobs of the run waiting and asked again for",
        CallOrigin::Unknown => "An unknown caller asked for",
    };
    let mut text = format!(
        "{who} {} {} of class {}",
        options.count,
        of_usage(options.usage, options.count),
        options.class
    );
    if let Some(types) = &options.types {
        text += &format!(", of the types {types}");
    }
    if let Some(suffix) = &options.label_suffix {
        text += &format!(", under the suffix {suffix}");
    }
    text += match options.machine_source {
        SourcePolicy::Any => "",
        SourcePolicy::Pool => ", from the pool only",
        SourcePolicy::New => ", newly launched only",
    };
    if options.capacity_fallback {
        text += ", with the capacity fallback";
    }
    text + "."
}

fn of_usage(usage: UsageClass, count: u32) -> String {
    format!("{usage} {}", if count == 1 { "machine" } else { "machines" })
}

fn of_call(story: &RunStory, call: &ProvisionSummary) -> Vec<Line> {
    let at = |ms: u64| call.began + Duration::from_millis(ms);
    let mut lines = vec![Line::new(call.began, LineKind::Request, asked(call.origin, &call.asked))];
    lines.extend(
        call.waits.iter().map(|wait| Line::new(at(wait.after_ms), LineKind::Wait, waited(wait))),
    );
    let searched = call.phases.preparation_ms.unwrap_or_default()
        + call.phases.adoption_ms.unwrap_or_default();
    lines.extend(search(call).map(|text| Line::new(at(searched), LineKind::Search, text)));
    let adopted = call.machines.iter().filter(|note| note.source == "adopted");
    let adopted: Vec<String> = adopted.map(|note| note.machine.to_string()).collect();
    if !adopted.is_empty() {
        let prepared = at(call.phases.preparation_ms.unwrap_or_default());
        let text =
            format!("The run had {} already, and keeps {}.", listed(&adopted), them(&adopted));
        lines.push(Line::new(prepared, LineKind::Search, text).about(&adopted));
    }
    let unclaimed = call.candidates.iter().filter(|note| !is_claimed(note));
    lines.extend(unclaimed.filter_map(|note| {
        Some(
            Line::new(at(note.after_ms), LineKind::Search, candidate(note)?).about([&note.machine]),
        )
    }));
    lines.extend(call.hedges.iter().map(|note| {
        let slow = match note.way {
            Some(ClaimWay::Ready) => "was online and slow to answer",
            Some(ClaimWay::Registers) | None => "was slow to register",
        };
        let text =
            format!("{} {slow}, so a second machine was looked for beside it.", note.machine);
        Line::new(at(note.after_ms), LineKind::Wait, text).about([&note.machine])
    }));
    lines.extend(
        call.launches
            .iter()
            .map(|note| Line::new(at(note.after_ms), LineKind::Launch, launch(note))),
    );
    lines.extend(ways(call).map(|(ms, text)| Line::new(at(ms), LineKind::Search, text)));
    lines.extend(readiness(call).map(|(ms, text)| Line::new(at(ms), LineKind::Wait, text)));
    lines.extend(ending(story, call).map(|(kind, text)| Line::new(call.at, kind, text)));
    if call.omitted > 0 {
        let text = format!(
            "The summary of this call leaves out {}.",
            counted(call.omitted, "detail", "details")
        );
        lines.push(Line::new(call.at, LineKind::Unknown, text));
    }
    lines
}

fn them(ids: &[String]) -> &'static str {
    if ids.len() == 1 { "it" } else { "them" }
}

fn waited(wait: &WaitNote) -> String {
    let cause = match wait.cause {
        WaitCause::SetUp => "the first refresh to set up the pool",
        WaitCause::Token => "a refresh to renew the registration token",
        WaitCause::Tickets => "tickets that other calls held",
        WaitCause::Room => "room below max-machines",
        WaitCause::Provider => "the provider, which was too busy to launch machines",
        WaitCause::Unknown => "an unknown cause",
    };
    format!("Waited {} for {cause}{}.", millis(wait.took_ms), because(&wait.why))
}

/// What the search of the pool met, in one sentence.
fn search(call: &ProvisionSummary) -> Option<String> {
    let search: &SearchCounts = &call.search;
    if !search.asked {
        let is_new = call.asked.machine_source == SourcePolicy::New;
        let text = "The pool was not searched, as the call asked for new machines only.";
        return is_new.then(|| text.to_owned());
    }
    if search.tickets == 0 {
        let is_held = call.waits.iter().any(|wait| wait.cause == WaitCause::Tickets);
        let met = match is_held {
            true => "The pool was searched and gave no ticket: other calls held them.",
            false => "The pool was searched and announced no idle machine of the class.",
        };
        return Some(met.to_owned());
    }
    let unsuitable: usize = search.unsuitable.values().sum();
    let mut met = Vec::new();
    if search.claimed > 0 {
        met.push(format!("{} claimed and ready", search.claimed));
    }
    if unsuitable > 0 {
        let kinds = search.unsuitable.iter().map(|(why, count)| format!("{count}: {why}"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        met.push(format!("{unsuitable} did not fit ({kinds})"));
    }
    for (count, what) in [
        (search.lost, "lost to other runs"),
        (search.unhealthy, "unhealthy and terminated"),
        (search.given_back, "given back unused"),
        (search.void, "gone or expired"),
    ] {
        if count > 0 {
            met.push(format!("{count} {what}"));
        }
    }
    let looked = counted(search.tickets, "idle machine was", "idle machines were");
    Some(match met.is_empty() {
        true => format!("{looked} looked at."),
        false => format!("{looked} looked at: {}.", met.join("; ")),
    })
}

/// Whether the call had claimed the machine.
fn is_claimed(note: &CandidateNote) -> bool {
    match note.outcome {
        CandidateOutcome::Ready
        | CandidateOutcome::Unhealthy
        | CandidateOutcome::Unregistered
        | CandidateOutcome::TooNew
        | CandidateOutcome::LostToHedge => true,
        CandidateOutcome::Unsuitable
        | CandidateOutcome::Expired
        | CandidateOutcome::Lost
        | CandidateOutcome::Gone
        | CandidateOutcome::Unknown => false,
    }
}

/// What became of the machines that the call had claimed. Not before the event of the claim: a summary
/// and an event may be dated by different clocks.
fn after_claims(story: &RunStory, call: &ProvisionSummary) -> Vec<Line> {
    let claim = |note: &CandidateNote| {
        let machine = story.machines.iter().find(|machine| machine.id == note.machine)?;
        let events = machine.steps.iter().filter_map(|step| match step {
            Step::Event { event, .. } => Some(event),
            Step::Gap(_) => None,
        });
        let in_call = |event: &&EventRow| (call.began..=call.at).contains(&event.at);
        events
            .filter(|event| event.transition == "claim")
            .filter(in_call)
            .map(|it| it.at)
            .next_back()
    };
    let line = |note: &CandidateNote| {
        let noted = call.began + Duration::from_millis(note.after_ms);
        let at = claim(note).map_or(noted, |claimed| claimed.max(noted));
        Some(Line::new(at, LineKind::Search, candidate(note)?).about([&note.machine]))
    };
    call.candidates.iter().filter(|note| is_claimed(note)).filter_map(line).collect()
}

/// What became of one machine; `None` if events tell it.
fn candidate(note: &CandidateNote) -> Option<String> {
    let (id, why) = (&note.machine, because(&note.why));
    Some(match note.outcome {
        CandidateOutcome::Ready => return None,
        CandidateOutcome::Unsuitable => format!("{id} did not fit{why}."),
        CandidateOutcome::Expired => format!("{id} was not taken, since its ticket had expired."),
        CandidateOutcome::Lost => match &note.winner {
            Some(winner) => format!("{id} was lost to run {winner}, which claimed it first."),
            None => format!("{id} was lost to an unknown run."),
        },
        CandidateOutcome::Gone => format!("{id} was gone or expired when it was to be claimed."),
        CandidateOutcome::Unhealthy => {
            format!("{id} failed its checks and was terminated{why}.")
        }
        CandidateOutcome::Unregistered => {
            format!("{id} did not register in time and was given back{why}.")
        }
        CandidateOutcome::TooNew => {
            format!("{id} was given back, since its agent is newer than the caller.")
        }
        CandidateOutcome::LostToHedge => {
            format!("{id} was given back, since another machine was ready first.")
        }
        CandidateOutcome::Unknown => format!("What became of {id} is unknown{why}."),
    })
}

fn launch(note: &LaunchNote) -> String {
    let ordered = format!("{} {}", note.count, of_usage(note.usage, note.count));
    let why = because(&note.why);
    match note.launched {
        Some(launched) if launched >= note.count => {
            let all = if note.count == 1 { "it was" } else { "all were" };
            format!("Ordered {ordered}, and {all} launched within {}.", millis(note.took_ms))
        }
        Some(0) => format!("Ordered {ordered}, and none was launched{why}."),
        Some(launched) => format!("Ordered {ordered}, and {launched} launched{why}."),
        None => format!("Ordered {ordered}, and the provider's answer is missing{why}."),
    }
}

/// Which of the claimed machines were registered before, in a pool where that differs.
fn ways(call: &ProvisionSummary) -> Option<(u64, String)> {
    let of = |way: ClaimWay| -> Vec<String> {
        let notes = call.machines.iter().filter(|note| note.way == Some(way));
        notes.map(|note| note.machine.to_string()).collect()
    };
    let (ready, registers) = (of(ClaimWay::Ready), of(ClaimWay::Registers));
    let were = |ids: &[String]| if ids.len() == 1 { "was" } else { "were" };
    let text = match (ready.as_slice(), registers.as_slice()) {
        ([], []) => return None,
        (ready, []) => format!("{} {} online already.", listed(ready), were(ready)),
        ([], some) => format!("{} had to register when claimed.", listed(some)),
        (ready, some) => format!(
            "{} {} online already; {} had to register when claimed.",
            listed(ready),
            were(ready),
            listed(some)
        ),
    };
    let claimed = call.machines.iter().filter(|note| note.way.is_some());
    Some((claimed.map(|note| note.owned_ms).max()?, text))
}

/// How long the slowest machine took to be ready, and what it waited for.
fn readiness(call: &ProvisionSummary) -> Option<(u64, String)> {
    let note = call.machines.iter().find(|note| note.source != "adopted")?;
    let (registered, ready) = (note.registered_ms?, note.ready_ms?);
    let what = match (note.source.as_str(), note.way) {
        ("warm", Some(ClaimWay::Ready)) => "let in the run's jobs",
        ("warm", _) => "register its runner",
        _ => "boot and register its runner",
    };
    let took = millis(registered.saturating_sub(note.owned_ms));
    let slowest = if call.machines.len() > 1 { ", the slowest machine," } else { "" };
    Some((ready, format!("{}{slowest} took {took} to {what}.", note.machine)))
}

fn ending(story: &RunStory, call: &ProvisionSummary) -> Option<(LineKind, String)> {
    let ending = &call.ending;
    Some(match ending.result {
        CallResult::HandingOver if is_adopted(call) => {
            (LineKind::Ending, "The run has all machines that it asked for.".to_owned())
        }
        CallResult::HandingOver if story.handed_over(call) > 0 => {
            let (told, all) = (story.handed_over(call), expected(call));
            // The events of the machines tell it.
            if told >= all {
                return None;
            }
            let others = match story.is_unread(call) {
                true => "Earlier events, which were not read, may tell of the others.",
                false => "What became of the others is unknown, unless it is said below.",
            };
            let all = machines(all);
            (
                LineKind::Unknown,
                format!("Events tell that {told} of {all} were handed to the run. {others}"),
            )
        }
        CallResult::HandingOver if story.is_unread(call) => {
            let text = "The machines were about to be handed to the run. Earlier events, which were not \
                        read, may tell whether that was done.";
            (LineKind::Unknown, text.to_owned())
        }
        CallResult::HandingOver if call.origin == CallOrigin::KeepWarm => {
            let text = "No event tells that the machines were handed over. A refresh does that when they \
                        are ready.";
            (LineKind::Unknown, text.to_owned())
        }
        CallResult::HandingOver => {
            let text = "The machines were about to be handed to the run. Whether that was done is \
                        unknown: no event tells it.";
            (LineKind::Unknown, text.to_owned())
        }
        CallResult::Failed => {
            let mut done = Vec::new();
            for (count, what) in [
                (ending.terminated, "terminated"),
                (ending.returned, "returned to the pool"),
                (ending.kept, "kept by the run"),
            ] {
                if count > 0 {
                    done.push(format!("{} {what}", machines(count)));
                }
            }
            let done = match done.is_empty() {
                true => String::new(),
                false => format!(" Cleaned up: {}.", done.join(", ")),
            };
            let unfinished = ending.unfinished.iter().map(|text| format!(" {}.", one_line(text)));
            let unfinished = unfinished.collect::<String>();
            let (kind, message) = (&ending.kind, one_line(&ending.message));
            (LineKind::Ending, format!("The call failed ({kind}): {message}.{done}{unfinished}"))
        }
        CallResult::Unknown => (LineKind::Unknown, "How the call ended is unknown.".to_owned()),
    })
}

/// Whether the run had all machines before the call.
fn is_adopted(call: &ProvisionSummary) -> bool {
    let mut machines = call.machines.iter();
    !call.machines.is_empty() && machines.all(|note| note.source == "adopted")
}

/// How many machines the call was about to hand over.
fn expected(call: &ProvisionSummary) -> usize {
    let adopted = call.machines.iter().filter(|note| note.source == "adopted").count();
    match call.machines.len() < LONGEST_LIST {
        true => call.machines.len() - adopted,
        // The list is cut.
        false => usize::try_from(call.asked.count).unwrap_or(usize::MAX).saturating_sub(adopted),
    }
}

/// The events of the run's machines. Those that are alike and happened together share a line.
fn of_machines(of_run: &[MachineOfRun]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut groups: Vec<(&EventRow, Vec<String>)> = Vec::new();
    for machine in of_run {
        for step in &machine.steps {
            match step {
                Step::Gap(missing) => lines.push(gap(missing, machine.id.as_str())),
                Step::Event { event, .. } => {
                    let alike = groups.iter_mut().find(|(other, _)| is_alike(other, event));
                    match alike {
                        Some((_, ids))
                            if ids.last().is_some_and(|id| *id == machine.id.as_str()) => {}
                        Some((_, ids)) => ids.push(machine.id.to_string()),
                        None => groups.push((event, vec![machine.id.to_string()])),
                    }
                }
            }
        }
    }
    lines.extend(groups.into_iter().map(|(event, ids)| {
        Line::new(event.at, LineKind::Event, sentence(event, &ids)).about(&ids)
    }));
    lines
}

/// Whether two events differ by nothing but the machine, and happened within a second.
fn is_alike(one: &EventRow, other: &EventRow) -> bool {
    one.transition == other.transition
        && one.to == other.to
        && one.why == other.why
        && one.at.distance(other.at) < Duration::from_secs(1)
}

fn sentence(event: &EventRow, ids: &[String]) -> String {
    let (who, why) = (listed(ids), because(&event.why));
    let were = if ids.len() == 1 { "was" } else { "were" };
    match event.transition.as_str() {
        "register" => format!("{who} {were} launched and registered for the run{why}."),
        "activate" => format!("{who} {were} ready, and {were} handed to the run{why}."),
        "claim" => format!("The run claimed {who} from the pool{why}."),
        "commit" => format!("{who} passed the checks and {were} handed to the run{why}."),
        "release" => format!("{who} {were} released into the pool{why}."),
        "give-back" => format!("{who} went back to the pool{why}."),
        "renew" => format!("{who} got more time{why}."),
        "preserve" => format!("{who} {were} kept for people to examine{why}."),
        "retire" => format!("{who} {were} marked to be replaced{why}."),
        "drain" => format!("{who} {were} marked to serve no further run{why}."),
        "expire" => format!("The time of {who} was declared over{why}."),
        "reap" => format!("{who} {were} given up: the record was set to terminated{why}."),
        other => format!("{} made {who} {}{why}.", one_line(other), event.to),
    }
}

/// What the run has now.
pub(super) fn present(story: &RunStory) -> Vec<String> {
    let owned = |machine: &&MachineOfRun| is_owned(machine, &story.label.run);
    let mut lines: Vec<String> = story
        .machines
        .iter()
        .filter(owned)
        .filter_map(|machine| {
            let record = machine.record.as_ref()?;
            let until = record.threshold.map(|at| when(at, story.now)).unwrap_or_default();
            let state = if record.is_preserved() { "preserved" } else { record.state.as_str() };
            let over =
                if record.is_expired(story.now) { ", past its time, which was" } else { " until" };
            let interrupted = match machine.status.is_interrupted() {
                true => format!(" {INTERRUPTED}"),
                false => String::new(),
            };
            Some(format!("{} is {state} for the run{over} {until}.{interrupted}", machine.id))
        })
        .collect();
    if lines.is_empty() {
        lines.push("The run owns no machine now.".to_owned());
    }
    lines
}

fn is_owned(machine: &MachineOfRun, run: &RunId) -> bool {
    let owns = |state: State, owner: Option<&RunId>| state.is_owned() && owner == Some(run);
    machine.record.as_ref().is_some_and(|record| owns(record.state, record.run.as_ref()))
}
