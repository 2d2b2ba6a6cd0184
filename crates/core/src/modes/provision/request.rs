//! The request that provision serves, and the inputs that state it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::inputs::times::TimeOverrides;
use crate::inputs::{Given, Input, InputValue, Mode, RUN_ID, input_struct};
use crate::model::excerpt::quoted;
use crate::model::failure::Failure;
use crate::model::ids::{ResourceClass, RunId};
use crate::model::label::{Label, LabelSuffix};
use crate::model::machine_label::MachineLabel;
use crate::model::requirements::{Requirements, TypePatterns, UsageClass};
use crate::model::reuse::Reuse;
use crate::model::settings::{REUSE, Settings};

/// The most machines that one call may ask for.
pub const MAX_COUNT: u32 = 1000;

/// What one call of provision is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The run that the machines are for.
    pub run: RunId,
    pub options: ProvisionOptions,
    /// Times that hold for this call only.
    pub times: TimeOverrides,
    pub origin: Origin,
    /// How long to wait for the first refresh; `None` for as long as for a registration token.
    pub set_up_patience: Option<Duration>,
    /// Whether new machines stay `created` when the call returns, for a refresh to hand over when they
    /// are ready. Then it is no failure that the provider had fewer than requested.
    pub leaves_new: bool,
    /// The label of a machine that jobs of the run wait for. A rescue that names it asks for one machine.
    pub named: Option<MachineLabel>,
}

/// Who asks provision for machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The run itself, by calling provision.
    Run,
    /// Refresh, to keep machines warm: idle machines stay in the pool.
    KeepWarm,
    /// Refresh, to give a run again what it asked for before.
    Rescue,
}

input_struct! {
    /// The machines that a run asks for.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub struct ProvisionOptions, rows INPUTS;

    count: u32, count,
        Input::call("instance-count", "COUNT", "Number of machines", &[Mode::Provision]).or("1");
    class: ResourceClass, parse,
        Input::call(
            "resource-class",
            "CLASS",
            "Resource class, as configured by refresh",
            &[Mode::Provision, Mode::Init],
        )
        .or("large");
    usage: UsageClass, parse,
        Input::call(
            "usage-class",
            "CLASS",
            "Purchase option: spot or on-demand",
            &[Mode::Provision, Mode::Init],
        )
        .or("on-demand");
    types: Option<TypePatterns> = None, |text| parse(text).map(Some),
        Input::call(
            "allowed-instance-types",
            "PATTERNS",
            "Instance types to accept, as patterns in which * matches any text",
            &[Mode::Provision],
        )
        .or_described("all that the compute backend recommends; on aws c* m* r*");
    capacity_fallback: bool, parse,
        Input::switch(
            "capacity-fallback",
            "Retry when capacity is short, and buy on-demand machines if spot is exhausted",
            &[Mode::Provision],
        )
        .or("false");
    label_suffix: Option<LabelSuffix> = None, |text| parse(text).map(Some),
        Input::call(
            "label-suffix",
            "SUFFIX",
            "Gives the machines the label RUN-SUFFIX, so that a run can have several kinds of machines",
            &[Mode::Provision],
        )
        .or_described("the label is the run id");
    machine_source: SourcePolicy, parse,
        Input::call(
            "machine-source",
            "",
            "Where machines come from: the pool and then new ones, only the pool, or only new ones",
            &[Mode::Provision],
        )
        .valued(InputValue::Choice("SOURCE", &["any", "pool", "new"]), None)
        .or("any");
    ; also {
        /// What the call asks for. The pool's setting may be stricter.
        reuse: Reuse;
    }
}

/// Where provision may take machines from. Machines that the run already has count in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourcePolicy {
    /// Idle machines first, then new ones.
    Any,
    /// Idle machines only; nothing is launched.
    Pool,
    /// New machines only; nothing is claimed.
    New,
}

impl std::str::FromStr for SourcePolicy {
    type Err = String;

    fn from_str(word: &str) -> Result<SourcePolicy, String> {
        match word {
            "any" => Ok(SourcePolicy::Any),
            "pool" => Ok(SourcePolicy::Pool),
            "new" => Ok(SourcePolicy::New),
            _ => Err(format!("is none of any, pool, new: {}", quoted(word))),
        }
    }
}

fn parse<T: std::str::FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn count(text: &str) -> Result<u32, String> {
    let count: i128 = text.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
    let within = u32::try_from(count).ok().filter(|count| (1..=MAX_COUNT).contains(count));
    within.ok_or_else(|| format!("{count} is not in 1..={MAX_COUNT}"))
}

impl Request {
    /// A request of the run itself, for one machine with default options.
    pub fn of_run(run: RunId) -> Request {
        Request {
            run,
            options: ProvisionOptions::default(),
            times: TimeOverrides::default(),
            origin: Origin::Run,
            set_up_patience: None,
            leaves_new: false,
            named: None,
        }
    }

    /// The request that these inputs state for the run. Fails if one of them cannot be parsed.
    pub fn from_inputs(run: RunId, given: &Given) -> Result<Request, Failure> {
        let mut request = Request::of_run(run);
        for (name, text) in given.among(INPUTS) {
            let invalid = |problem| Failure::invalid(format!("{name}: {problem}"));
            request.options.set_input(name, text).map_err(invalid)?;
        }
        if let Some(text) = given.text(&REUSE).filter(|text| !text.is_empty()) {
            let invalid = |problem| Failure::invalid(format!("{}: {problem}", REUSE.name));
            request.options.reuse = text.parse().map_err(invalid)?;
        }
        request.times = TimeOverrides::from_inputs(given).map_err(Failure::invalid)?;
        Ok(request)
    }

    /// What the machines are labelled with.
    pub fn label(&self) -> Label {
        Label::new(self.run.clone(), self.options.label_suffix.clone())
    }

    /// Whether machines that the run already has count. A rescue asks for those that it lacks.
    pub(super) fn may_adopt(&self) -> bool {
        self.origin != Origin::Rescue && !self.leaves_new
    }

    /// Whether idle machines may be claimed.
    pub(super) fn may_claim(&self) -> bool {
        self.origin != Origin::KeepWarm && self.options.machine_source != SourcePolicy::New
    }

    /// Whether the machines may serve another run after this one: the stricter of the request and the
    /// setting. A machine that refresh only warms up is not used by its run.
    pub(super) fn reuse(&self, settings: &Settings) -> Reuse {
        match self.origin {
            Origin::KeepWarm => Reuse::Always,
            Origin::Run | Origin::Rescue => self.options.reuse.stricter(settings.reuse),
        }
    }

    /// Whether refresh asks and not the run itself.
    pub(super) fn is_of_refresh(&self) -> bool {
        self.origin != Origin::Run
    }

    /// What every machine must be, by the settings in force. Without patterns in the request,
    /// `default_types` apply. Fails if the count is out of range or the class is not configured.
    pub fn requirements(
        &self,
        settings: &Settings,
        default_types: TypePatterns,
    ) -> Result<Requirements, Failure> {
        let options = &self.options;
        if options.count == 0 || options.count > MAX_COUNT {
            let message = format!("instance count is not from 1 to {MAX_COUNT}: {}", options.count);
            return Err(Failure::invalid(message)
                .hint("ask for as many machines as the run has jobs at the same time"));
        }
        let size = settings.classes.get(&options.class).ok_or_else(|| {
            Failure::invalid(format!("resource class not configured: {}", options.class))
                .hint(format!("configured classes are {}", settings.classes.listing()))
        })?;
        Ok(Requirements {
            class: options.class.clone(),
            size,
            usage: options.usage,
            types: options.types.clone().unwrap_or(default_types),
        })
    }
}

/// The run that these inputs name, or else `run_of_process`, which is the text of GITHUB_RUN_ID.
/// Fails if there is neither, or if it is not a valid id.
pub fn run_from_inputs(given: &Given, run_of_process: Option<String>) -> Result<RunId, Failure> {
    let hint = "give --run-id, or set ONDECK_RUN_ID or GITHUB_RUN_ID";
    let text = given.text(&RUN_ID).map(str::to_owned).or(run_of_process);
    let run = text.ok_or_else(|| Failure::invalid("no run id given").hint(hint))?;
    RunId::new(run).map_err(|error| Failure::invalid(error.to_string()).hint(hint))
}
