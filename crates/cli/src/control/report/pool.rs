//! The outcome of `ondeck pool list` and `ondeck pool repair`.

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::modes::operate::tickets::{ClassTickets, Outcome, SeenTicket, Truth};
use serde::Serialize;

use super::failure::ErrorJson;
use super::wire::{ResultStatus, SchemaVersion, to_json};
use super::{Report, table};

/// The tickets of the pool, and what was done about them.
#[derive(Debug)]
pub(crate) struct PoolReport {
    /// Whether it is the report of a repair, or of one that would be.
    pub(crate) repairs: bool,
    pub(crate) outcome: Outcome,
}

/// Printed by `ondeck pool list --json` and `ondeck pool repair --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PoolJson {
    schema_version: SchemaVersion,
    status: ResultStatus,
    /// Whether nothing was changed.
    dry_run: bool,
    classes: Vec<ClassJson>,
    /// Only after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
}

/// The tickets of one class.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ClassJson {
    resource_class: String,
    /// How many tickets could be received before the look. The number may be out of date.
    visible: usize,
    /// How many tickets runs held, or were sent with a delay. They were not looked at.
    hidden: usize,
    tickets: Vec<TicketJson>,
    /// Idle machines that no ticket announces.
    unannounced: Vec<String>,
    /// How many tickets were deleted.
    deleted: usize,
    /// Machines that were announced.
    announced: Vec<String>,
}

/// One ticket.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TicketJson {
    /// The machine that it announces. Absent if the ticket cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_class: Option<String>,
    /// Until when it announces that the machine is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<String>,
    /// Which idle period of the machine it announces.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    /// `true`, or why it is not: `duplicate`, `expired`, `stale-generation`, `not-idle`, `drained`,
    /// `unknown-machine`, `unreadable` or `unreadable-record`.
    truth: String,
}

impl From<&SeenTicket> for TicketJson {
    fn from(seen: &SeenTicket) -> TicketJson {
        let ticket = seen.ticket.as_ref();
        TicketJson {
            instance_id: ticket.map(|it| it.instance_id.to_string()),
            instance_type: ticket.map(|it| it.spec.instance_type.clone()),
            usage_class: ticket.map(|it| it.spec.usage_class.to_string()),
            threshold: ticket.map(|it| it.threshold.to_string()),
            generation: ticket.map(|it| it.generation),
            truth: seen.truth.as_str().to_owned(),
        }
    }
}

impl From<&ClassTickets> for ClassJson {
    fn from(it: &ClassTickets) -> ClassJson {
        ClassJson {
            resource_class: it.class.to_string(),
            visible: it.depth.visible,
            hidden: it.depth.held + it.depth.delayed,
            tickets: it.tickets.iter().map(TicketJson::from).collect(),
            unannounced: it.unannounced.iter().map(InstanceId::to_string).collect(),
            deleted: it.deleted,
            announced: it.announced.iter().map(InstanceId::to_string).collect(),
        }
    }
}

impl PoolReport {
    fn rows(&self) -> Vec<Vec<String>> {
        let of_class = |class: &ClassTickets| {
            let name = class.class.to_string();
            let ticket = |seen: &SeenTicket| {
                let id = seen.ticket.as_ref().map_or("?", |it| it.instance_id.as_str());
                let until =
                    seen.ticket.as_ref().map(|it| it.threshold.to_string()).unwrap_or_default();
                vec![name.clone(), id.to_owned(), until, words(&seen.truth)]
            };
            let missing = |id: &InstanceId| {
                vec![
                    name.clone(),
                    id.to_string(),
                    String::new(),
                    "idle without a ticket".to_owned(),
                ]
            };
            let tickets = class.tickets.iter().map(ticket);
            tickets.chain(class.unannounced.iter().map(missing)).collect::<Vec<_>>()
        };
        self.outcome.classes.iter().flat_map(of_class).collect()
    }

    fn headline(&self) -> String {
        let classes = &self.outcome.classes;
        let tickets = || classes.iter().flat_map(|class| &class.tickets);
        let surplus = tickets().filter(|seen| seen.truth.is_surplus()).count();
        let missing: usize = classes.iter().map(|class| class.unannounced.len()).sum();
        let hidden: usize = classes.iter().map(|it| it.depth.held + it.depth.delayed).sum();
        let seen = tickets().count();
        let found = match (self.repairs, self.outcome.is_plan) {
            (false, _) => format!(
                "tickets: {seen}, of which not true: {surplus}; idle machines without one: {missing}"
            ),
            (true, true) => {
                format!("repair would delete {surplus} of {seen} tickets and send {missing}")
            }
            (true, false) => format!("deleted {surplus} of {seen} tickets and sent {missing}"),
        };
        match hidden {
            0 => found,
            hidden => format!("{found}; not looked at, because runs hold them: {hidden}"),
        }
    }
}

fn words(truth: &Truth) -> String {
    match truth {
        Truth::True => "true".to_owned(),
        Truth::Duplicate => "another ticket announces the same".to_owned(),
        Truth::Expired => "its time is over".to_owned(),
        Truth::StaleGeneration => "the machine has served a run since".to_owned(),
        Truth::NotIdle(state) => format!("the machine is {state}"),
        Truth::Drained => "the machine is drained".to_owned(),
        Truth::UnknownMachine => "there is no record of the machine".to_owned(),
        Truth::Unreadable(why) => format!("unreadable: {why}"),
        Truth::UnreadableRecord => "the machine's record is unreadable".to_owned(),
    }
}

impl Report for PoolReport {
    fn json(&self) -> String {
        let Outcome { is_plan, classes, failure } = &self.outcome;
        to_json(&PoolJson {
            schema_version: SchemaVersion,
            status: failure.as_ref().into(),
            dry_run: *is_plan,
            classes: classes.iter().map(ClassJson::from).collect(),
            error: failure.as_ref().map(ErrorJson::from),
        })
    }

    fn text(&self) -> String {
        let rows = self.rows();
        match rows.is_empty() {
            true => self.headline(),
            false => {
                let rows = table(&["class", "machine", "idle until", "ticket"], rows);
                format!("{}\n{rows}", self.headline())
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.outcome.failure.clone()
    }
}
