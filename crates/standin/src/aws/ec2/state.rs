//! What EC2 remembers.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::aws::gateway::GatewayOptions;
use crate::aws::imds::Metadata;
use crate::aws::params::Params;

use super::catalogue::TypeSpec;
use super::templates::Template;

/// How many machines can be had. What there is counts, and what has ended does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    /// At the most, altogether.
    pub total: Option<usize>,
    /// At the most, of these on spot.
    pub spot: Option<usize>,
    /// At the most, of these on demand.
    pub on_demand: Option<usize>,
}

/// How a machine is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// May be taken away.
    Spot,
    /// May not.
    OnDemand,
}

impl Lifecycle {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Lifecycle::Spot => "spot",
            Lifecycle::OnDemand => "on-demand",
        }
    }
}

/// Where a machine is in its life, in EC2's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineState {
    /// Booting.
    Pending,
    /// Booted, whether or not its command still runs.
    Running,
    /// Its processes are being killed, and will not come back.
    ShuttingDown,
    /// Its processes are gone.
    Terminated,
    /// Its processes are being killed, because it has shut itself down.
    Stopping,
    /// Shut down and not terminated: somebody still pays for its disk.
    Stopped,
}

impl MachineState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            MachineState::Pending => "pending",
            MachineState::Running => "running",
            MachineState::ShuttingDown => "shutting-down",
            MachineState::Terminated => "terminated",
            MachineState::Stopping => "stopping",
            MachineState::Stopped => "stopped",
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            MachineState::Pending => 0,
            MachineState::Running => 16,
            MachineState::ShuttingDown => 32,
            MachineState::Terminated => 48,
            MachineState::Stopping => 64,
            MachineState::Stopped => 80,
        }
    }

    /// Whether somebody pays for its time.
    pub fn is_up(self) -> bool {
        matches!(self, MachineState::Pending | MachineState::Running)
    }
}

/// A machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its id.
    pub id: String,
    /// Where it is in its life.
    pub state: MachineState,
    /// Why it has ended, where it has.
    pub reason: String,
    /// How it is paid for.
    pub lifecycle: Lifecycle,
    /// Its type.
    pub instance_type: String,
    /// Its subnet.
    pub subnet: String,
    /// Its zone.
    pub zone: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// The fleet that it was launched by.
    pub fleet: String,
    /// When it was launched.
    pub launched: SystemTime,
    /// The process of its command, while that runs.
    pub pid: Option<u32>,
    /// Where its metadata service is, once it has booted.
    pub metadata: Option<String>,
    /// Where its command's output is.
    pub log: PathBuf,
    /// The volumes that it was launched with, in GiB by device, besides the image's own.
    pub volumes: BTreeMap<String, usize>,
}

/// A machine, with what only EC2 knows.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) machine: Machine,
    pub(crate) spec: TypeSpec,
    pub(crate) image: String,
    pub(crate) profile: Option<String>,
    /// Whether its metadata service tells its tags, which it does only where it was told to.
    pub(crate) metadata_tags: bool,
    pub(crate) terminates_on_shutdown: bool,
    pub(crate) notice: Option<SystemTime>,
    pub(crate) rebalance: Option<SystemTime>,
    /// Its metadata service, which goes with the machine and not with its command.
    pub(crate) metadata: Option<Metadata>,
    pub(crate) ended: Option<SystemTime>,
}

impl Instance {
    /// Says whether it had not begun before.
    pub(crate) fn begin_termination(&mut self, reason: &str) -> bool {
        if matches!(self.machine.state, MachineState::ShuttingDown | MachineState::Terminated) {
            return false;
        }
        self.machine.state = MachineState::ShuttingDown;
        self.machine.reason = format!("{reason} ({})", crate::timestamps::iso(SystemTime::now()));
        true
    }

    /// A machine that shuts itself down stops, unless it was launched to terminate then. Spot
    /// machines have no choice.
    pub(crate) fn begin_shutdown(&mut self) -> bool {
        const REASON: &str = "Client.InstanceInitiatedShutdown: Instance initiated shutdown";
        if self.terminates_on_shutdown || self.machine.lifecycle == Lifecycle::Spot {
            return self.begin_termination(REASON);
        }
        let up = self.machine.state.is_up();
        if up {
            self.machine.state = MachineState::Stopping;
            self.machine.reason = REASON.to_owned();
        }
        up
    }

    /// Its processes are gone.
    pub(crate) fn processes_gone(&mut self) {
        self.machine.pid = None;
        if self.machine.state == MachineState::Stopping {
            self.machine.state = MachineState::Stopped;
        } else {
            self.machine.state = MachineState::Terminated;
            self.metadata = None;
            self.ended = Some(SystemTime::now());
        }
    }
}

/// What a client token has given.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) params: Params,
    pub(crate) xml: String,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) instances: Vec<Instance>,
    pub(crate) templates: BTreeMap<String, Template>,
    pub(crate) given: HashMap<(String, String), Given>,
    pub(crate) capacity: Capacity,
    /// How many fleets are still to be turned away for having launched too much.
    pub(crate) throttled_fleets: usize,
}

impl State {
    pub(crate) fn new(capacity: Capacity) -> State {
        State {
            instances: Vec::new(),
            templates: BTreeMap::new(),
            given: HashMap::new(),
            capacity,
            throttled_fleets: 0,
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Instance> {
        self.instances.iter().find(|instance| instance.machine.id == id)
    }

    pub(crate) fn find_mut(&mut self, id: &str) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|instance| instance.machine.id == id)
    }

    /// Drops what has been terminated for long enough.
    pub(crate) fn forget(&mut self, stay: Duration) {
        let now = SystemTime::now();
        self.instances.retain(|instance| {
            instance
                .ended
                .is_none_or(|ended| now.duration_since(ended).is_ok_and(|since| since < stay))
        });
    }

    /// How many more machines of a kind can be had.
    pub(crate) fn room(&self, lifecycle: Lifecycle) -> usize {
        let up = || self.instances.iter().filter(|instance| instance.machine.state.is_up());
        let left = |limit: Option<usize>, used: usize| {
            limit.map_or(usize::MAX, |limit| limit.saturating_sub(used))
        };
        let of_kind = up().filter(|instance| instance.machine.lifecycle == lifecycle).count();
        let limit = match lifecycle {
            Lifecycle::Spot => self.capacity.spot,
            Lifecycle::OnDemand => self.capacity.on_demand,
        };
        left(self.capacity.total, up().count()).min(left(limit, of_kind))
    }
}

/// What EC2 is told once.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) region: String,
    pub(crate) subnets: BTreeMap<String, String>,
    pub(crate) page: usize,
    pub(crate) terminated_stay: Duration,
}

impl Surroundings {
    pub(crate) fn of(options: &GatewayOptions) -> Surroundings {
        Surroundings {
            region: options.region.clone(),
            subnets: options.subnets.clone(),
            page: options.page.max(1),
            terminated_stay: options.terminated_stay,
        }
    }

    /// The zone of a subnet, if that exists.
    pub(crate) fn zone(&self, subnet: Option<&str>) -> Option<String> {
        match subnet {
            Some(subnet) if !self.subnets.is_empty() => self.subnets.get(subnet).cloned(),
            _ => Some(format!("{}a", self.region)),
        }
    }
}

/// An id, as EC2 makes them since 2016.
pub(crate) fn new_id(prefix: &str) -> String {
    format!("{prefix}-0{:016x}", fastrand::u64(..))
}

/// Whether it is one: eight hexadecimal digits once, seventeen today.
pub(crate) fn is_id(prefix: &str, id: &str) -> bool {
    id.strip_prefix(prefix).is_some_and(|digits| {
        matches!(digits.len(), 8 | 17)
            && digits.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
    })
}
