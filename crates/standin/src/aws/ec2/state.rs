//! The state of the stand-in's EC2.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::aws::gateway::GatewayOptions;
use crate::aws::imds::Metadata;
use crate::aws::params::Params;

use super::catalogue::TypeSpec;
use super::images::Image;
use super::network::NetworkFaults;
use super::surroundings::ProfileFault;
use super::templates::Template;

/// The account's quota for the vCPUs of each purchase option, unless a test sets another. AWS raises
/// its low default for accounts that are in use; this is a common value then.
const VCPU_QUOTA: usize = 1_152;

/// How many machines can exist at a time. Terminated machines do not count; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// The limit for all machines together.
    pub total: Option<usize>,
    /// The limit for spot machines.
    pub spot: Option<usize>,
    /// The limit for on-demand machines.
    pub on_demand: Option<usize>,
    /// The account's quota for the vCPUs of on-demand machines, and for those of spot machines.
    pub vcpus: Option<usize>,
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity { total: None, spot: None, on_demand: None, vcpus: Some(VCPU_QUOTA) }
    }
}

/// Purchase option of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    Spot,
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

/// The state of a machine, by EC2's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineState {
    /// The machine is booting.
    Pending,
    /// The machine has booted. Its command may have exited.
    Running,
    /// The machine is being terminated, and its processes are being killed.
    ShuttingDown,
    /// The machine is terminated, and its processes are gone.
    Terminated,
    /// The machine has shut itself down, and its processes are being killed.
    Stopping,
    /// The machine is shut down but not terminated. AWS still charges for its disk.
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

    /// Whether AWS would charge for the machine's time.
    pub fn is_up(self) -> bool {
        matches!(self, MachineState::Pending | MachineState::Running)
    }
}

/// A machine, as a test sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub id: String,
    pub state: MachineState,
    /// Why it was terminated or stopped; empty before that.
    pub reason: String,
    /// How it is paid for.
    pub lifecycle: Lifecycle,
    pub instance_type: String,
    pub subnet: String,
    pub zone: String,
    pub tags: BTreeMap<String, String>,
    /// The id of the fleet that launched it.
    pub fleet: String,
    pub launched: SystemTime,
    /// The process id of its command; `None` if the command is not running.
    pub pid: Option<u32>,
    /// The URL of its metadata service; `None` until it has booted.
    pub metadata: Option<String>,
    /// The file with its command's output.
    pub log: PathBuf,
    /// The size in GiB of each volume of the launch, by device, without the image's own volume.
    pub volumes: BTreeMap<String, usize>,
    /// Whether the launch encrypts the image's own volume.
    pub root_is_encrypted: bool,
    /// What its metadata service answers to a question for user data.
    pub user_data: Option<Vec<u8>>,
}

/// A machine, with the state that only EC2 uses.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) machine: Machine,
    pub(crate) spec: TypeSpec,
    pub(crate) image: String,
    pub(crate) profile: Option<String>,
    /// Whether its metadata service serves its tags, which a launch has to enable.
    pub(crate) metadata_tags: bool,
    pub(crate) terminates_on_shutdown: bool,
    pub(crate) notice: Option<SystemTime>,
    pub(crate) rebalance: Option<SystemTime>,
    /// Its metadata service, which lives as long as the machine, not as long as its command.
    pub(crate) metadata: Option<Metadata>,
    pub(crate) ended: Option<SystemTime>,
    /// Whether listings do not contain it yet.
    pub(crate) unlisted: bool,
}

impl Instance {
    /// Starts to terminate the machine. Returns `false` if that had started before.
    pub(crate) fn begin_termination(&mut self, reason: &str) -> bool {
        if matches!(self.machine.state, MachineState::ShuttingDown | MachineState::Terminated) {
            return false;
        }
        self.machine.state = MachineState::ShuttingDown;
        self.machine.reason = format!("{reason} ({})", crate::timestamps::iso(SystemTime::now()));
        true
    }

    /// Handles a machine that shuts itself down: it is stopped, unless it is a spot machine or was
    /// launched to terminate on shutdown. Returns `false` if it was going down already.
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

    /// Completes the stop or termination, once the machine's processes are gone.
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

/// The request and the answer of a client token.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) params: Params,
    pub(crate) xml: String,
}

/// All that EC2 keeps between requests.
#[derive(Debug)]
pub(crate) struct State {
    /// In the order of their launch.
    instances: Vec<Instance>,
    /// The places of machines among `instances`, by their ids.
    places: HashMap<String, usize>,
    pub(crate) templates: BTreeMap<String, Template>,
    pub(crate) given: HashMap<(String, String), Given>,
    pub(crate) capacity: Capacity,
    /// How many more fleets are throttled.
    pub(crate) throttled_fleets: usize,
    /// The instance types without capacity.
    pub(crate) exhausted: BTreeSet<String>,
    /// Images that a test has registered; `None` for one that was deregistered.
    pub(crate) images: BTreeMap<String, Option<Image>>,
    /// The ids of images by the name of the parameter that a test has put.
    pub(crate) parameters: BTreeMap<String, String>,
    /// Whether listings lag behind launches.
    pub(crate) listing_lags: bool,
    /// What is wrong with subnets and security groups.
    pub(crate) network: NetworkFaults,
    /// What is wrong with instance profiles, by their names.
    pub(crate) profiles: BTreeMap<String, ProfileFault>,
}

impl State {
    pub(crate) fn new(capacity: Capacity) -> State {
        State {
            instances: Vec::new(),
            places: HashMap::new(),
            templates: BTreeMap::new(),
            given: HashMap::new(),
            capacity,
            throttled_fleets: 0,
            exhausted: BTreeSet::new(),
            images: BTreeMap::new(),
            parameters: BTreeMap::new(),
            listing_lags: false,
            network: NetworkFaults::default(),
            profiles: BTreeMap::new(),
        }
    }

    /// An image by its id; `None` if it does not exist.
    pub(crate) fn image(&self, id: &str) -> Option<Image> {
        self.images.get(id).copied().unwrap_or(Some(Image::default()))
    }

    /// All machines, in the order of their launch.
    pub(crate) fn instances(&self) -> &[Instance] {
        &self.instances
    }

    pub(crate) fn instances_mut(&mut self) -> &mut [Instance] {
        &mut self.instances
    }

    pub(crate) fn add(&mut self, instance: Instance) {
        self.places.insert(instance.machine.id.clone(), self.instances.len());
        self.instances.push(instance);
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Instance> {
        self.instances.get(*self.places.get(id)?)
    }

    pub(crate) fn find_mut(&mut self, id: &str) -> Option<&mut Instance> {
        self.instances.get_mut(*self.places.get(id)?)
    }

    /// Removes machines that have been terminated for at least `stay`.
    pub(crate) fn forget(&mut self, stay: Duration) {
        let (now, before) = (SystemTime::now(), self.instances.len());
        self.instances.retain(|instance| {
            // The clock may have been set back since.
            let since = |ended| now.duration_since(ended).unwrap_or_default();
            instance.ended.is_none_or(|ended| since(ended) < stay)
        });
        if self.instances.len() != before {
            let ids = self.instances.iter().map(|instance| instance.machine.id.clone());
            self.places = ids.zip(0..).collect();
        }
    }

    /// How many more machines with so many vCPUs the account's quota for a purchase option allows.
    pub(crate) fn quota(&self, lifecycle: Lifecycle, vcpus: usize) -> usize {
        let counts = |instance: &&Instance| {
            instance.machine.state.is_up() && instance.machine.lifecycle == lifecycle
        };
        let used: usize = self.instances.iter().filter(counts).map(|it| it.spec.vcpus).sum();
        let left = |limit: usize| limit.saturating_sub(used) / vcpus.max(1);
        self.capacity.vcpus.map_or(usize::MAX, left)
    }

    /// How many more machines of a purchase option EC2 has.
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

/// The part of the gateway's options that EC2 uses. It does not change.
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

    /// The zone of a subnet; `None` if the subnet does not exist.
    pub(crate) fn zone(&self, subnet: Option<&str>) -> Option<String> {
        match subnet {
            Some(subnet) if !self.subnets.is_empty() => self.subnets.get(subnet).cloned(),
            _ => Some(format!("{}a", self.region)),
        }
    }

    /// The zone of a subnet that the options name; `None` for any other.
    pub(crate) fn known_zone(&self, subnet: Option<&str>) -> Option<&str> {
        subnet.and_then(|subnet| self.subnets.get(subnet)).map(String::as_str)
    }
}

/// Makes a random id in the format that EC2 uses since 2016.
pub(crate) fn new_id(prefix: &str) -> String {
    format!("{prefix}-0{:016x}", fastrand::u64(..))
}

/// Whether a text is an id of EC2: eight hexadecimal digits before 2016, seventeen since.
pub(crate) fn is_id(prefix: &str, id: &str) -> bool {
    id.strip_prefix(prefix).is_some_and(|digits| {
        matches!(digits.len(), 8 | 17)
            && digits.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
    })
}
