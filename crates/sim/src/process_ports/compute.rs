//! The provider, as a simulated process reaches it.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::ids::{InstanceId, InvalidId, ProviderName};
use ondeck_core::model::requirements::{Requirements, TypePatterns};
use ondeck_core::model::settings::Settings;
use ondeck_core::ports::{Compute, Launched, Machine, Order, PortError, PortResult, Store};
use ondeck_core::testkit::PartialLaunch;

use super::{ProcessPorts, SetUpService, listed, lost};
use crate::faults::Fault;
use crate::kernel::digest;
use crate::world::at_once;

impl ProcessPorts {
    /// Decides whether the provider throttles an order. The decision is derived from the intent,
    /// because a draw from the process's random source would change all later ones.
    fn throttled_part(&self, order: &Order) -> Option<PartialLaunch> {
        let seed = digest(&[&self.policy.seed, &order.intent.as_str()]);
        let mut random = fastrand::Rng::with_seed(seed);
        let now = self.world.kernel.now();
        let busy = self.policy.injects(Fault::Busy, now, &mut random);
        busy.then(|| {
            self.world.kernel.count(Fault::Busy);
            PartialLaunch::Throttled(random.u32(0..order.count))
        })
    }

    /// Decides whether an order fails as a whole, however often it is repeated. The decision is
    /// derived from the intent, as for [`ProcessPorts::throttled_part`].
    fn refusal_of(&self, order: &Order) -> Option<LaunchFailure> {
        let seed = digest(&[&self.policy.seed, &"refusal", &order.intent.as_str()]);
        let mut random = fastrand::Rng::with_seed(seed);
        let now = self.world.kernel.now();
        for (fault, failures) in [
            (Fault::LaunchRefused, [LaunchFailure::Refused, LaunchFailure::Refused]),
            (Fault::LaunchUnheard, [LaunchFailure::Lost, LaunchFailure::Unheard]),
        ] {
            if self.policy.injects(fault, now, &mut random) {
                self.world.kernel.count(fault);
                return Some(failures[random.usize(0..2)]);
            }
        }
        None
    }
}

/// How an order fails as a whole.
#[derive(Debug, Clone, Copy)]
enum LaunchFailure {
    /// The provider refuses it, until a person changes something.
    Refused,
    Lost,
    /// The machines are launched, and no answer arrives.
    Unheard,
}

fn refused(reason: &str) -> PortError {
    let hint = "change something".to_owned();
    PortError::Unusable { service: "compute", reason: reason.to_owned(), hint }
}

#[async_trait]
impl Compute for ProcessPorts {
    async fn set_up(&self, _settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        let refuses = self.refuses_set_up(SetUpService::Compute);
        let set_up = move || match refuses {
            true => Err(refused("a role is missing")),
            false => Ok(BTreeMap::new()),
        };
        self.call("compute", "set up compute", String::new, set_up).await
    }

    fn launchable(
        &self,
        requirements: &Requirements,
        settings: &Settings,
        types: &[&str],
    ) -> Vec<String> {
        self.world.compute.launchable(requirements, settings, types)
    }

    fn default_types(&self) -> TypePatterns {
        self.world.compute.default_types()
    }

    fn identity(&self, name: &ProviderName) -> Result<InstanceId, InvalidId> {
        self.world.compute.identity(name)
    }

    async fn launch(&self, order: &Order, _settings: &Settings) -> PortResult<Launched> {
        let (order, shown) = (order.clone(), order.clone());
        let (world, pid) = (self.world.clone(), self.pid);
        let short = self.injects(Fault::NoCapacity).then(|| self.random().u32(0..order.count));
        let partial = short.map(PartialLaunch::NoCapacity).or_else(|| self.throttled_part(&order));
        let refusal = self.refusal_of(&order);
        let launch = move || {
            if let Some(LaunchFailure::Refused) = refusal {
                return Err(refused("the image does not exist"));
            }
            if let Some(LaunchFailure::Lost) = refusal {
                return Err(lost("compute"));
            }
            let known = world.compute.alive();
            let mut launched = world.compute.launch_partially(&order, partial)?;
            // A fleet may be served in full by one zone although another has refused.
            let is_full = launched.machines.len() == order.count as usize;
            if is_full && digest(&[&order.intent.as_str(), &"zone"]).is_multiple_of(5) {
                launched.passing.push("one zone is busy".to_owned());
            }
            world.machines().launched(&launched.machines);
            let now = world.kernel.true_time();
            let news: Vec<Machine> =
                launched.machines.iter().filter(|it| !known.contains(&it.id)).cloned().collect();
            let existing = at_once(world.compute.machines()).unwrap_or_default();
            world.audit().launched(pid, &order, &launched.machines, now);
            world.audit().within_ceiling(pid, &news, &existing);
            if !news.is_empty() {
                let removed = world.machines().removals();
                world.audit().keeps_cap((pid, &order.intent), &removed, now);
            }
            let counted = at_once(Store::machine_count(&world.store)).ok().flatten();
            if let Some(counted) = counted.filter(|_| !news.is_empty()) {
                let removed = world.machines().removals();
                world.audit().counts(pid, &counted, &existing);
                world.audit().reserves_enough(&counted, &removed, now);
            }
            match refusal {
                None => Ok(launched),
                Some(_) => Err(lost("compute")),
            }
        };
        self.call("compute", "launch", move || format!("{} x{}", shown.intent, shown.count), launch)
            .await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        let (ids, shown, world) = (ids.to_vec(), ids.to_vec(), self.world.clone());
        let by = self.pid;
        let terminate = move || {
            world.audit().note_terminated(by, &ids);
            let now = world.kernel.true_time();
            for id in ids.iter().filter(|id| world.machines().view(id).is_some()) {
                let machine = world.compute.machine(id.as_str());
                // A machine that compute no longer lists may still be shutting down.
                let age = machine.map_or(Duration::MAX, |m| now.since(m.launched_at));
                world.audit().terminated(id, age);
            }
            at_once(world.compute.terminate(&ids))?;
            world.machines().mark_terminating(&ids);
            Ok(())
        };
        self.call("compute", "terminate", move || listed(&shown), terminate).await
    }

    async fn machines(&self) -> PortResult<Vec<Machine>> {
        let (world, policy) = (self.world.clone(), self.policy.clone());
        let ask = move || {
            let mut machines = at_once(world.compute.machines())?;
            let now = world.kernel.true_time();
            machines.retain(|machine| {
                let lag = Duration::from_micros(policy.machine_lag(machine.id.as_str()));
                machine.launched_at + lag <= now
            });
            Ok(machines)
        };
        self.call("compute", "machines", String::new, ask).await
    }

    fn listing_lag(&self) -> Duration {
        Duration::from_micros(self.policy.listing_lag)
    }
}
