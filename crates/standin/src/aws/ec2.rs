//! EC2 in memory, for the dozen actions that ondeck uses. Its machines are processes.

mod catalogue;
mod fleet;
mod images;
mod instances;
mod network;
mod parameters;
mod refusal;
mod state;
mod surroundings;
mod tags;
mod template_data;
mod templates;
mod terminate;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

use crate::aws::call::{Call, Service};
use crate::aws::faults::answers;
use crate::aws::gateway::GatewayOptions;
use crate::aws::iam::{self, Arns, Authorization};
use crate::aws::imds;
use crate::aws::machines::Machines;
use crate::aws::params::Params;
use crate::http::Answer;
use images::Image;
use refusal::Refusal;
use state::Given;

pub use catalogue::Architecture;
pub use network::{GroupFault, SubnetFault};
pub(crate) use parameters::named as image_parameter;
pub use state::{Capacity, Lifecycle, Machine, MachineState};
pub(crate) use state::{Instance, State, Surroundings};
pub use surroundings::ProfileFault;
pub(crate) use templates::{Template, Version};

/// The tag by which a machine belongs to a pool.
const POOL_TAG: &str = "ondeck:pool";

/// Direct access to the stand-in's EC2: its machines, and what a test does to them without the
/// API. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ec2(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    surroundings: Surroundings,
    machines: Machines,
}

/// The launch template that a request names by id or name; `None` if there is none.
pub(crate) fn find_template<'a>(state: &'a State, params: &Params) -> Option<&'a Template> {
    templates::find(state, params).ok()
}

/// The first instance type that fits requirements; `None` if none does or they are invalid.
pub(crate) fn first_fitting_type(requirements: &Params) -> Option<String> {
    let requirements = catalogue::Requirements::read(requirements).ok()?;
    let images = [Architecture::X86_64, Architecture::Arm64].into_iter();
    let mut fitting = images.flat_map(|image| requirements.matching(image, Lifecycle::Spot));
    fitting.next().map(|spec| spec.name)
}

/// The answer to an action, with the machines that it launched and those that it terminates.
struct Done {
    xml: String,
    launched: Vec<String>,
    ending: Vec<String>,
}

impl Done {
    fn answer(xml: String) -> Done {
        Done { xml, launched: Vec::new(), ending: Vec::new() }
    }
}

impl Ec2 {
    pub(crate) fn new(options: &GatewayOptions, machines: Machines) -> Ec2 {
        Ec2(Arc::new(Inner {
            state: Mutex::new(State::new(options.capacity)),
            changed: Condvar::new(),
            surroundings: Surroundings::of(options),
            machines,
        }))
    }

    /// All machines in the order of their launch, including those that were terminated recently.
    pub fn machines(&self) -> Vec<Machine> {
        self.state().instances().iter().map(|instance| instance.machine.clone()).collect()
    }

    /// The machine with this id; `None` if EC2 does not list it.
    pub fn machine(&self, id: &str) -> Option<Machine> {
        self.state().find(id).map(|instance| instance.machine.clone())
    }

    /// The process id of a machine's command; `None` if the command is not running.
    pub fn pid(&self, id: &str) -> Option<u32> {
        self.machine(id).and_then(|machine| machine.pid)
    }

    /// Blocks until the machines satisfy a condition, and returns them. Fails with the current
    /// machines if that takes longer than `at_most`.
    pub fn wait(
        &self,
        at_most: Duration,
        mut until: impl FnMut(&[Machine]) -> bool,
    ) -> Result<Vec<Machine>, Vec<Machine>> {
        let deadline = Instant::now() + at_most;
        let mut state = self.state();
        loop {
            let machines: Vec<Machine> =
                state.instances().iter().map(|instance| instance.machine.clone()).collect();
            if until(&machines) {
                return Ok(machines);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(machines);
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Changes how many machines can be launched. Existing machines stay.
    pub fn set_capacity(&self, capacity: Capacity) {
        self.state().capacity = capacity;
    }

    /// Launches no machine of this type from now on: EC2 has no capacity for it.
    pub fn exhaust_type(&self, instance_type: &str) {
        self.state().exhausted.insert(instance_type.to_owned());
    }

    /// Launches nothing for the next `count` fleets, as EC2 does for an account that launches too
    /// fast. The calls succeed, and their answers list the error.
    pub fn throttle_fleets(&self, count: usize) {
        self.state().throttled_fleets = count;
    }

    /// Makes an image exist with this architecture. Images that no test mentions exist for x86-64.
    pub fn register_image(&self, id: &str, architecture: Architecture) {
        let image = Image { architecture, ..Image::default() };
        self.state().images.insert(id.to_owned(), Some(image));
    }

    /// Makes an image for x86-64 exist whose root volume is this device.
    pub fn register_image_with_root_device(&self, id: &str, root_device: &'static str) {
        let image = Image { root_device, ..Image::default() };
        self.state().images.insert(id.to_owned(), Some(image));
    }

    /// Puts the parameter of Systems Manager with the id of an image, as its publisher would. The
    /// public parameters of AWS exist without that.
    pub fn put_image_parameter(&self, parameter: &str, image: &str) {
        self.state().parameters.insert(parameter.to_owned(), image.to_owned());
    }

    /// Deregisters an image, as its owner would.
    pub fn deregister_image(&self, id: &str) {
        self.state().images.insert(id.to_owned(), None);
    }

    /// Makes an image for x86-64 exist that is so many days old, and deprecated or not.
    pub fn register_image_of_age(&self, id: &str, age_days: u32, is_deprecated: bool) {
        let image = Image { age_days, is_deprecated, ..Image::default() };
        self.state().images.insert(id.to_owned(), Some(image));
    }

    /// Plants a fault in a subnet, in place of an earlier one.
    pub fn break_subnet(&self, id: &str, fault: SubnetFault) {
        self.state().network.subnets.insert(id.to_owned(), fault);
    }

    /// Plants a fault in a security group, in place of an earlier one.
    pub fn break_group(&self, id: &str, fault: GroupFault) {
        self.state().network.groups.insert(id.to_owned(), fault);
    }

    /// Plants a fault in an instance profile, in place of an earlier one.
    pub fn break_profile(&self, name: &str, fault: ProfileFault) {
        self.state().profiles.insert(name.to_owned(), fault);
    }

    /// Repairs what is broken in subnets, security groups and instance profiles.
    pub fn repair(&self) {
        let mut state = self.state();
        state.network = network::NetworkFaults::default();
        state.profiles.clear();
    }

    /// Lets listings lag behind launches: machines that are launched from now on are not in them,
    /// until this is called with `false`. EC2 is eventually consistent for some seconds; documented
    /// in the EC2 Developer Guide, "Eventual consistency in the Amazon EC2 API".
    pub fn lag_listings(&self, lag: bool) {
        let mut state = self.state();
        state.listing_lags = lag;
        if !lag {
            state.instances_mut().iter_mut().for_each(|instance| instance.unlisted = false);
        }
    }

    /// Kills the process group of a machine's command. The machine keeps running, as if its agent
    /// had crashed. Returns whether there was a process to kill.
    pub fn kill_agent(&self, id: &str) -> bool {
        self.pid(id).is_some_and(crate::processes::kill_group)
    }

    /// Terminates a machine, as a user of the console would.
    pub fn terminate(&self, id: &str) {
        self.terminate_with_reason(&[id], "User initiated");
    }

    /// Announces a spot interruption in the machine's metadata, and terminates the machine when the
    /// notice is over. AWS gives two minutes.
    pub fn interrupt(&self, id: &str, notice: Duration) {
        if let Some(instance) = self.state().find_mut(id) {
            instance.notice = Some(SystemTime::now() + notice);
        }
        let (ec2, id) = (self.clone(), id.to_owned());
        self.0.machines.spawn(async move {
            tokio::time::sleep(notice).await;
            ec2.terminate_with_reason(
                &[&id],
                "Server.SpotInstanceTermination: Spot instance termination",
            );
        });
    }

    /// Announces a rebalance recommendation in the machine's metadata.
    pub fn recommend_rebalance(&self, id: &str) {
        if let Some(instance) = self.state().find_mut(id) {
            instance.rebalance = Some(SystemTime::now());
        }
    }

    /// The names of all launch templates.
    pub fn launch_templates(&self) -> Vec<String> {
        self.state().templates.keys().cloned().collect()
    }

    /// Deletes a launch template, as a user of the console would.
    pub fn delete_launch_template(&self, name: &str) {
        self.state().templates.remove(name);
    }

    /// Performs GetServiceQuota of Service Quotas and returns its answer.
    pub(crate) fn quota(&self, call: &Call) -> Answer {
        surroundings::quota(&self.state(), call.json().unwrap_or(&serde_json::Value::Null))
    }

    /// Performs GetInstanceProfile of IAM and returns its answer.
    pub(crate) fn profile(&self, call: &Call) -> Answer {
        surroundings::profile(&self.state(), call.params().unwrap_or(&Params::default()))
    }

    /// Performs GetParameters of Systems Manager and returns its answer.
    pub(crate) fn image_parameters(&self, call: &Call) -> Answer {
        parameters::get(&self.state(), call.json().unwrap_or(&serde_json::Value::Null))
    }

    /// Performs an EC2 request and returns its answer.
    pub(crate) fn answer(&self, call: &Call) -> Answer {
        let none = Params::default();
        match self.perform(&call.operation, call.params().unwrap_or(&none)) {
            Ok(xml) => {
                let mut headers = HeaderMap::new();
                let kind = HeaderValue::from_static("text/xml;charset=UTF-8");
                headers.insert(CONTENT_TYPE, kind);
                Answer { status: StatusCode::OK, headers, body: xml.into() }
            }
            Err(Refusal { status, code, message }) => {
                answers::refusal(Service::Ec2, status, code, &message)
            }
        }
    }

    fn perform(&self, action: &str, params: &Params) -> Result<String, Refusal> {
        let mut state = self.state();
        state.forget(self.0.surroundings.terminated_stay);
        // A repeated client token gets the answer of the first request, if the requests are equal.
        let token = params.text("ClientToken").map(|token| (action.to_owned(), token.to_owned()));
        if let Some(given) = token.as_ref().and_then(|token| state.given.get(token)) {
            return if given.params == *params {
                Ok(given.xml.clone())
            } else {
                Err(Refusal::new(
                    "IdempotentParameterMismatch",
                    "The client token you have provided is associated with a different request",
                ))
            };
        }
        let done = self.dispatch(&mut state, action, params)?;
        if let Some(token) = token {
            let given = Given { params: params.clone(), xml: done.xml.clone() };
            state.given.insert(token, given);
        }
        drop(state);
        self.0.changed.notify_all();
        self.boot(done.launched);
        self.kill_processes(done.ending);
        Ok(done.xml)
    }

    fn dispatch(&self, state: &mut State, action: &str, params: &Params) -> Result<Done, Refusal> {
        let around = &self.0.surroundings;
        if params.text("DryRun") == Some("true") {
            let message = "Request would have succeeded, but DryRun flag is set.";
            return Err(Refusal { status: 412, ..Refusal::new("DryRunOperation", message) });
        }
        match action {
            "CreateFleet" => fleet::create(state, around, params),
            "DescribeImages" => images::describe(state, params).map(Done::answer),
            "DescribeRouteTables" => network::route_tables(state, params).map(Done::answer),
            "DescribeSecurityGroups" => network::groups(state, params).map(Done::answer),
            "DescribeSubnets" => network::subnets(state, around, params).map(Done::answer),
            "DescribeInstances" => instances::describe(state, around, params).map(Done::answer),
            "TerminateInstances" => terminate::terminate(state, params),
            "CreateLaunchTemplate" => templates::create(state, params).map(Done::answer),
            "CreateLaunchTemplateVersion" => {
                templates::create_version(state, params).map(Done::answer)
            }
            "DescribeLaunchTemplates" => {
                templates::describe(state, around, params).map(Done::answer)
            }
            "DescribeLaunchTemplateVersions" => {
                templates::describe_versions(state, around, params).map(Done::answer)
            }
            "ModifyLaunchTemplate" => templates::modify(state, params).map(Done::answer),
            "DeleteLaunchTemplate" => templates::delete(state, params).map(Done::answer),
            "DeleteLaunchTemplateVersions" => {
                templates::delete_versions(state, params).map(Done::answer)
            }
            other => {
                let message = format!("The action {other} is not valid for this web service.");
                Err(Refusal::new("InvalidAction", message))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        crate::sync::locked(&self.0.state)
    }
}

/// The parts that machines and the metadata service use.
impl Ec2 {
    pub(crate) fn surroundings(&self) -> &Surroundings {
        &self.0.surroundings
    }

    pub(crate) fn host(&self) -> &Machines {
        &self.0.machines
    }

    /// Reads or changes a machine, and wakes those that wait for a change. Returns `None` if there
    /// is no such machine.
    pub(crate) fn with<T>(&self, id: &str, look: impl FnOnce(&mut Instance) -> T) -> Option<T> {
        let looked = self.state().find_mut(id).map(look);
        self.0.changed.notify_all();
        looked
    }

    /// Completes the stop or termination of machines whose processes are gone.
    pub(crate) fn processes_gone(&self, ids: &[String]) {
        let mut state = self.state();
        for id in ids {
            if let Some(instance) = state.find_mut(id) {
                instance.processes_gone();
            }
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// What IAM is asked about a call.
    pub(crate) fn authorizations(&self, call: &Call, arns: &Arns) -> Vec<Authorization> {
        let none = Params::default();
        let params = call.params().unwrap_or(&none);
        iam::ec2::authorizations(&self.state(), &call.operation, params, arns)
    }

    /// The id and the pool of the machine whose metadata service hands out an access key; `None` if
    /// there is no such machine, or it has no pool or no role.
    pub(crate) fn holder_of(&self, key: &str) -> Option<(String, String)> {
        let state = self.state();
        let holds = |instance: &&Instance| {
            instance.profile.is_some() && imds::access_key(&instance.machine.id) == key
        };
        let machine = &state.instances().iter().find(holds)?.machine;
        Some((machine.id.clone(), machine.tags.get(POOL_TAG)?.clone()))
    }

    /// Starts to terminate those of the machines that are not terminated yet.
    pub(crate) fn terminate_with_reason(&self, ids: &[&str], reason: &str) {
        let mut state = self.state();
        let ending: Vec<String> = ids
            .iter()
            .filter(|id| {
                state.find_mut(id).is_some_and(|instance| instance.begin_termination(reason))
            })
            .map(|id| (*id).to_owned())
            .collect();
        drop(state);
        self.0.changed.notify_all();
        self.kill_processes(ending);
    }

    /// Terminates or stops a machine that shuts itself down, depending on its launch options.
    pub(crate) fn shut_down(&self, id: &str) {
        let mut state = self.state();
        let ending = state.find_mut(id).is_some_and(Instance::begin_shutdown);
        drop(state);
        self.0.changed.notify_all();
        if ending {
            self.kill_processes(vec![id.to_owned()]);
        }
    }

    fn boot(&self, ids: Vec<String>) {
        for id in ids {
            self.0.machines.spawn(crate::aws::machines::live(self.clone(), id));
        }
    }

    fn kill_processes(&self, ids: Vec<String>) {
        if !ids.is_empty() {
            self.0.machines.spawn(crate::aws::machines::kill_processes(self.clone(), ids));
        }
    }

    pub(crate) fn watch_shutdowns(&self) {
        self.0.machines.spawn(crate::aws::machines::watch_shutdowns(self.clone()));
    }

    pub(crate) fn terminate_all(&self) {
        let mut ids = Vec::new();
        for instance in self.state().instances_mut() {
            instance.begin_termination("the gateway is closed");
            ids.push(instance.machine.id.clone());
        }
        self.0.machines.terminate_all(&ids);
    }
}
