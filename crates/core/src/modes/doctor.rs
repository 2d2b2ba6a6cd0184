//! Doctor: asks everything that a pool needs to work, changes nothing, and says what is wrong.
//!
//! Adapters answer questions by [`Diagnosis`], and judge nothing. What cannot be asked is listed with
//! what it needs. A finding that follows from another one is reported with it.

pub mod facts;
mod finding;
mod machines;
mod network;
mod provider;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use self::facts::{Caller, Facts, ForgeFacts, Software, Told};
pub use self::finding::{Area, Finding, FindingKind, Findings, Severity, Unchecked};
use self::machines::{Compared, told};
use crate::model::ids::{InstanceId, ResourceClass, RunId};
use crate::model::label::Label;
use crate::model::machine_label::MachineLabel;
use crate::model::record::Record;
use crate::model::settings::{Settings, is_set_up};
use crate::model::signal::AgentStatus;
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::modes::status::judgement::{Judgement, judge};
use crate::modes::status::{Asked, Reading};
use crate::ports::{
    Diagnosis, Forge, PortError, PortResult, RecordScope, RequestBudget, WaitingJobs,
};

/// How many requests about runs one examination sends to the forge.
const FORGE_REQUESTS: u32 = 60;

/// The settings of the machines' proxy. With it they need no route to the internet.
const PROXY: &str = "https-proxy";

/// What a token needs for the checks of jobs.
const READS_RUNS: &str = "a token that may read runs (Actions: read), such as ONDECK_JOBS_TOKEN";

/// Whom to ask about jobs and runners.
pub enum ForgeAccess<'a> {
    /// This forge, with credentials.
    Open(&'a dyn Forge),
    /// None can be asked, with what it needs.
    Closed(String),
    /// The provider is the forge, or there is none.
    OfProvider,
}

impl fmt::Debug for ForgeAccess<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForgeAccess::Open(_) => f.write_str("Open"),
            ForgeAccess::Closed(needs) => write!(f, "Closed({needs})"),
            ForgeAccess::OfProvider => f.write_str("OfProvider"),
        }
    }
}

/// Examines a pool. `wall_clock` is this computer's own time.
///
/// Never fails: a part that does not answer is a finding or a check that could not be made.
pub async fn examine(
    plane: &Plane,
    diagnosis: &dyn Diagnosis,
    forge: ForgeAccess<'_>,
    wall_clock: impl Fn() -> Timestamp,
) -> Findings {
    let mut findings = Findings::default();
    match diagnosis.caller().await {
        Told::Known(Caller::Known(name)) => {
            findings.check(Area::Access, "credentials");
            findings.caller = Some(name);
        }
        Told::Known(Caller::Refused { reason, hint }) => {
            return Findings::only(Finding::new(FindingKind::Credentials, reason, hint));
        }
        Told::Nothing => {}
        Told::Untold(needs) => findings.skip(Area::Access, "identity", &needs),
    }
    let stored = match plane.retried(|| plane.store.settings()).await {
        Ok(stored) if is_set_up(&stored) => stored,
        Ok(_) => {
            let what = "a configuration is applied, but refresh has not run yet";
            findings.add([Finding::new(FindingKind::NotSetUp, what, "ondeck refresh")]);
            return findings;
        }
        Err(error) => {
            findings.add([of_store(error)]);
            return findings;
        }
    };
    findings.check(Area::Access, "store");
    let (now, here) = (plane.now(), wall_clock());
    findings.check(Area::Computer, "clock");
    findings.add(provider::of_clock(now.distance(here), here < now));
    let settings = match Settings::from_map(&stored) {
        Ok(settings) => settings,
        Err(invalid) => {
            let fix = format!("ondeck refresh --reset {}", invalid.name);
            findings.add([Finding::new(FindingKind::SettingsUnreadable, invalid.to_string(), fix)]);
            return findings.concluded();
        }
    };
    findings.check(Area::Settings, "contradictions");
    findings.add(settings::contradictions(&stored, &settings, now));
    findings.add(settings::unpaid_minimum(&*plane.compute, &settings, now));
    findings.add(settings::not_enforced(&stored));
    machines::judge_token(&settings, now, &mut findings);
    let facts = diagnosis.facts(&settings).await;
    provider::judge(&facts, &settings, now, &mut findings);
    let has_proxy = settings.backend.get(PROXY).is_some_and(|proxy| !proxy.is_empty());
    network::judge(&facts, has_proxy, &mut findings);
    if let Some(notice) = plane.compute.notice(&settings) {
        let fix = "ondeck refresh --agent-url URL --agent-sha256 HEX";
        findings.add([Finding::new(FindingKind::AgentMissing, notice, fix)]);
    }
    let patient = Patient { plane, settings: &settings, now };
    patient.examine_machines(&facts, forge, &mut findings).await;
    findings.concluded()
}

/// Why the settings cannot be read.
fn of_store(error: PortError) -> Finding {
    let what = error.to_string();
    match error {
        PortError::NotSetUp { .. } => Finding::new(FindingKind::NotSetUp, what, "ondeck refresh"),
        PortError::Unusable { hint, .. } => Finding::new(FindingKind::StoreRefused, what, hint),
        _ => Finding::new(FindingKind::StoreUnreachable, what, "check the network, and try again"),
    }
}

/// A pool whose settings can be read.
struct Patient<'a> {
    plane: &'a Plane,
    settings: &'a Settings,
    now: Timestamp,
}

/// The live machines, by their records.
#[derive(Debug, Default)]
struct Known {
    ids: BTreeSet<String>,
    /// The labels of runs that they serve.
    labels: BTreeSet<Label>,
    /// The labels of their own that they serve a run under.
    machine_labels: BTreeSet<MachineLabel>,
}

impl Known {
    /// The machines that were judged. Those whose records cannot be read may be live.
    fn of(judgement: &Judgement) -> Known {
        let mut known = Known::default();
        known.add(judgement.machines.iter().map(|it| (&it.record, &it.status)));
        known.ids.extend(judgement.unreadable.iter().map(|row| row.id.clone()));
        known
    }

    fn add<'a>(&mut self, machines: impl Iterator<Item = (&'a Record, &'a AgentStatus)>) {
        for (record, status) in machines {
            self.ids.insert(record.id.to_string());
            self.labels.extend(record.label());
            self.machine_labels.extend(status.machine_label(record));
        }
    }
}

impl Patient<'_> {
    async fn examine_machines(&self, facts: &Facts, forge: ForgeAccess<'_>, into: &mut Findings) {
        let has_queues = self.examine_queues(into).await;
        let known = match self.judgement(has_queues).await {
            Ok(judgement) => {
                let compared = self.compared(facts, &judgement, into).await;
                machines::judge(&judgement, &compared, into);
                into.add(machines::unreadable(&*self.plane.store, &judgement.unreadable));
                Ok(Known::of(&judgement))
            }
            Err(error) => {
                let needs = error.to_string();
                machines::skip(&facts.machines, &needs, into);
                Err(needs)
            }
        };
        self.examine_forge(facts, forge, known, into).await;
    }

    /// Whether all queues exist and answer.
    async fn examine_queues(&self, into: &mut Findings) -> bool {
        let (missing, unanswered) = self.queues().await;
        let is_complete = missing.is_none() && unanswered.is_none();
        into.add(missing);
        match unanswered {
            Some(error) => into.skip(Area::SetUp, "queues", &error),
            None => into.check(Area::SetUp, "queues"),
        }
        is_complete
    }

    /// The queues that are missing, as one finding; and why one cannot be asked, after which no other is.
    async fn queues(&self) -> (Option<Finding>, Option<String>) {
        let (mut missing, mut other): (Vec<&ResourceClass>, Option<String>) = (Vec::new(), None);
        for class in self.settings.classes.names() {
            match self.plane.retried(|| self.plane.pool.depth(class)).await {
                Ok(_) => {}
                Err(PortError::NotSetUp { .. }) => missing.push(class),
                // The others are asked of the same service.
                Err(error) => {
                    other = Some(error.to_string());
                    break;
                }
            }
        }
        let names = missing.iter().map(|class| class.as_str()).collect::<Vec<_>>().join(", ");
        let what = format!("classes without a queue: {names}");
        let finding = Finding::new(FindingKind::QueueMissing, what, "ondeck refresh");
        ((!missing.is_empty()).then(|| finding.about(missing)), other)
    }

    /// What status judges. Unless all queues answer, only the records are read.
    async fn judgement(&self, has_queues: bool) -> Result<Judgement, PortError> {
        let asked = Asked { scope: RecordScope::Live, hand_overs: false, retries: true };
        if has_queues && let Ok(reading) = Reading::take(self.plane, asked).await {
            return Ok(judge(reading));
        }
        let store = &self.plane.store;
        let listing = self.plane.retried(|| store.list(RecordScope::Live)).await?;
        let ids: Vec<InstanceId> = listing.records.iter().map(|it| it.id.clone()).collect();
        let status = match ids.as_slice() {
            [] => Vec::new(),
            ids => self.plane.retried(|| store.agent_status(ids)).await?,
        };
        Ok(judge(Reading {
            at: self.plane.now(),
            settings: self.settings.clone(),
            machines: listing.records.into_iter().zip(status).collect(),
            unreadable: listing.unreadable,
            tickets: Vec::new(),
            count: None,
            hand_overs: None,
        }))
    }

    /// Compares machines with records. What seems to be missing is looked up again.
    async fn compared(
        &self,
        facts: &Facts,
        judgement: &Judgement,
        into: &mut Findings,
    ) -> Compared {
        let machines = match &facts.machines {
            Told::Known(machines) => machines,
            Told::Nothing => return Compared::default(),
            Told::Untold(needs) => {
                into.skip(Area::Machines, "machines against records", needs);
                return Compared::default();
            }
        };
        let live: BTreeSet<InstanceId> =
            judgement.machines.iter().map(|it| it.record.id.clone()).collect();
        let suspicious = machines::suspicious(&live, machines);
        let again = match suspicious.as_slice() {
            [] => Ok(crate::ports::Listing::default()),
            ids => self.plane.retried(|| self.plane.store.records(ids)).await,
        };
        let again = match again {
            Ok(again) => again,
            Err(error) => {
                into.skip(Area::Machines, "machines against records", &error.to_string());
                return Compared::default();
            }
        };
        into.check(Area::Machines, "machines against records");
        let unreadable = judgement.unreadable.iter().chain(&again.unreadable);
        let unreadable: BTreeSet<String> = unreadable.map(|row| row.id.clone()).collect();
        let around = (self.settings, self.plane.compute.listing_lag(), self.now);
        machines::compare(&again.records, &unreadable, machines, &suspicious, around)
    }

    async fn examine_forge(
        &self,
        facts: &Facts,
        forge: ForgeAccess<'_>,
        known: Result<Known, String>,
        into: &mut Findings,
    ) {
        let mut forge = match forge {
            ForgeAccess::Open(forge) => self.ask(forge).await,
            ForgeAccess::Closed(needs) => ForgeFacts::untold(&needs),
            ForgeAccess::OfProvider => match &facts.forge {
                Some(forge) => forge.clone(),
                None => return,
            },
        };
        let mut known = known.unwrap_or_else(|needs| {
            // Without records nothing follows from jobs and runners.
            forge.runners.withhold(&needs);
            forge.waiting.withhold(&needs);
            Known::default()
        });
        let demands = match forge.waiting.known() {
            Some(waiting) if !waiting.is_empty() => self.demands_of(waiting, &mut known).await,
            _ => Ok(Vec::new()),
        };
        let demands = demands.unwrap_or_else(|error| {
            forge.waiting.withhold(&error.to_string());
            Vec::new()
        });
        machines::judge_forge(&forge, &known, &demands, self.now, into);
    }

    /// What these runs have asked for. Their machines are read again: they may be newer than the list.
    async fn demands_of(
        &self,
        waiting: &BTreeMap<RunId, WaitingJobs>,
        known: &mut Known,
    ) -> PortResult<Vec<crate::model::demand::Demand>> {
        let store = &self.plane.store;
        // A machine whose label its record does not name yet is of a run that has just asked for it.
        let unread = AgentStatus::default();
        for run in waiting.keys() {
            let of_run = self.plane.retried(|| store.of_run(run)).await?;
            known.add(of_run.records.iter().map(|record| (record, &unread)));
        }
        let runs: Vec<_> = waiting.keys().cloned().collect();
        self.plane.retried(|| store.demands(&runs)).await
    }

    /// Asks a forge that accepts requests. None of them changes anything.
    async fn ask(&self, forge: &dyn Forge) -> ForgeFacts {
        let runners = self.plane.retried(|| forge.runners()).await;
        if let Err(PortError::Forge { reason, hint }) = runners {
            return ForgeFacts { refused: Some((reason, hint)), ..ForgeFacts::default() };
        }
        let software = match self.plane.retried(|| forge.set_up(self.settings)).await {
            Ok(_) => Told::Known(forge.notice().map_or(Software::Usable, Software::Warned)),
            Err(PortError::Setting(invalid)) => {
                Told::Known(Software::Unusable(invalid.to_string()))
            }
            Err(error) => Told::Untold(error.to_string()),
        };
        let waiting = match self.waiting(forge).await {
            Ok(_) if !forge.reads_runs() => Told::Untold(READS_RUNS.to_owned()),
            waiting => told(waiting),
        };
        ForgeFacts { runners: told(runners), waiting, software, refused: None }
    }

    /// The waiting jobs of all open runs, as far as the budget suffices.
    async fn waiting(&self, forge: &dyn Forge) -> PortResult<BTreeMap<RunId, WaitingJobs>> {
        let budget = RequestBudget::new(FORGE_REQUESTS);
        let open = self.plane.retried(|| forge.open_runs(0, &budget)).await?;
        let mut all = BTreeMap::new();
        for run in open.runs {
            let waiting = match run.waiting {
                Some(waiting) => waiting,
                None => self.plane.retried(|| forge.waiting_jobs(&run.run, &budget)).await?,
            };
            if !waiting.is_empty() {
                all.insert(run.run, waiting);
            }
        }
        Ok(all)
    }
}
