//! What a text names: a machine, a run, or a label of a run.

use futures_util::future::join3;

use super::{CALLS_OF_RUN, EVENTS_OF_MACHINE};
use crate::model::excerpt::quoted;
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::Label;
use crate::modes::plane::Plane;
use crate::ports::{Events, History};

/// The most runs whose summaries are read to find out which of them a label belongs to.
const RUNS_OF_LABEL: usize = 3;

pub(super) enum Subject {
    /// With its events, which were read to find out.
    Machine(InstanceId, Events),
    Run(Label),
}

/// Finds out what the text names. What is no machine and no label with a suffix is taken for a run,
/// whether one is known or not.
pub(super) async fn find(
    plane: &Plane,
    history: &dyn History,
    text: &str,
) -> Result<Subject, Failure> {
    let run = RunId::new(text).map_err(|error| {
        Failure::invalid(format!("neither a run nor a machine: {error}")).hint(HINT)
    })?;
    // A long one can be a run only.
    if let Ok(id) = InstanceId::new(text) {
        let ids = std::slice::from_ref(&id);
        let runs: Vec<RunId> =
            labels(text).into_iter().map(|label| label.run).chain([run.clone()]).collect();
        let (listing, events, demands) = join3(
            plane.retried(|| plane.store.records(ids)),
            plane.retried(|| history.events_of_machine(&id, EVENTS_OF_MACHINE)),
            plane.retried(|| plane.store.demands(&runs)),
        )
        .await;
        let (listing, events, demands) = (listing?, events?, demands?);
        let has_record = !listing.records.is_empty() || !listing.unreadable.is_empty();
        if has_record || !events.rows.is_empty() {
            return Ok(Subject::Machine(id, events));
        }
        let named = demands.into_iter().map(|demand| demand.label());
        if let Some(label) = named.into_iter().find(|label| label.to_string() == text) {
            return Ok(Subject::Run(label));
        }
    }
    for label in labels(text).into_iter().take(RUNS_OF_LABEL) {
        let calls = plane.retried(|| history.summaries_of_run(&label.run, CALLS_OF_RUN)).await?;
        if calls.iter().any(|call| call.label() == label) {
            return Ok(Subject::Run(label));
        }
    }
    Ok(Subject::Run(Label::from(&run)))
}

const HINT: &str = "ondeck status --all lists machines and the runs that own them";

/// The failure for a text that nothing stored is about.
pub(super) fn unknown(text: &str) -> Failure {
    let message = format!("the pool knows no such run, label or machine: {}", quoted(text));
    Failure::invalid(message).hint(HINT)
}

/// The labels with a suffix that a text may be, those with the shortest suffix first.
fn labels(text: &str) -> Vec<Label> {
    let ends = text.match_indices('-').map(|(at, _)| at).rev();
    let runs = ends.filter_map(|at| RunId::new(&text[..at]).ok());
    let labels = runs.filter_map(|run| Label::of_run(&run, text));
    labels.filter(|label| label.suffix.is_some()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_may_be_several_labels() {
        let named = |text: &str| -> Vec<(String, String)> {
            let parts = |label: Label| (label.run.to_string(), label.suffix.unwrap().to_string());
            labels(text).into_iter().map(parts).collect()
        };
        let pair = |run: &str, suffix: &str| (run.to_owned(), suffix.to_owned());
        assert_eq!(named("7"), []);
        assert_eq!(named("7-large"), [pair("7", "large")]);
        assert_eq!(named("7-a-b"), [pair("7-a", "b"), pair("7", "a-b")]);
        assert_eq!(named("-a"), []);
        assert_eq!(named("7-"), []);
        assert_eq!(named("7-Large"), [], "a suffix has no capitals");
    }
}
