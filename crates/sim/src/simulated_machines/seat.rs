//! Registrations with labels of machines: what the forge lists, what a machine has of them, and the hook in
//! which jobs wait until its agent has named the owner.

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::ListedRunner;

use super::{Job, JobState, SimulatedMachines};
use crate::audit::Listening;
use crate::kernel::{Micros, digest, timestamp};
use crate::plan::SECOND;

/// How long a job waits for the owner before it is refused.
pub(crate) const HOOK_WAITS: Micros = 10 * SECOND;

/// How long the forge may take to notice that a runner is gone, or that its job is.
const NOTICES_WITHIN: Micros = 90 * SECOND;

/// How long it may say that a runner is online whose machine is gone.
const ONLINE_WITHIN: Micros = 600 * SECOND;

/// A registration, as the forge lists it.
#[derive(Debug, Clone)]
pub(super) struct OwnRunner {
    name: String,
    instance: InstanceId,
    label: MachineLabel,
    number: u32,
    /// Until when it counts as online, and as busy, although its machine is gone.
    online_until: Micros,
    busy_until: Micros,
}

/// What a machine has of its registrations.
#[derive(Debug, Default, Clone)]
pub(super) struct Seat {
    count: u32,
    /// The numbers of the registrations whose files are on the machine, the latest last.
    files: Vec<u32>,
    listener: Option<Listener>,
    /// The run that the hook's file names.
    owner: Option<RunId>,
    /// The registration whose listener was killed last, and until when the forge keeps its session.
    session: Option<(u32, Micros)>,
    cut_off_until: Micros,
    notes_stopped_until: Micros,
}

#[derive(Debug, Clone)]
struct Listener {
    number: u32,
    dies_at: Option<Micros>,
    /// How long the forge keeps its session after that.
    keeps_session: Micros,
}

/// The registration under which a machine's runner listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeatView {
    pub(crate) label: MachineLabel,
    pub(crate) number: u32,
    /// The run whose jobs are let in.
    pub(crate) owner: Option<RunId>,
}

/// What became of a job that waited in the hook of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hooked {
    LetIn(usize, InstanceId),
    Refused(usize, InstanceId),
}

impl SimulatedMachines {
    pub(crate) fn set_forge_outages(&mut self, outages: Vec<(Micros, Micros)>) {
        self.forge_outages = outages;
    }

    /// The forge is out of reach for one machine.
    pub(crate) fn cut_off(&mut self, id: &InstanceId, until: Micros) {
        if let Some(machine) = self.machines.get_mut(id) {
            machine.seat.cut_off_until = until;
        }
    }

    pub(crate) fn reaches_forge(&self, id: &InstanceId, now: Micros) -> bool {
        let is_cut_off = self.machines.get(id).is_none_or(|it| now < it.seat.cut_off_until);
        !is_cut_off && !self.forge_outages.iter().any(|(from, to)| (*from..*to).contains(&now))
    }

    /// The listener of a machine is killed. It is found dead with the next event. The forge keeps half of
    /// the sessions for a while.
    pub(crate) fn kill_listener(&mut self, id: &InstanceId, now: Micros) {
        let listener = self.machines.get_mut(id).and_then(|it| it.seat.listener.as_mut());
        if let Some(listener) = listener {
            listener.dies_at = Some(now);
            let drawn = digest(&[id, &"session", &now]);
            let is_kept = drawn.is_multiple_of(2);
            listener.keeps_session = if is_kept { drawn / 2 % (240 * SECOND) } else { 0 };
        }
    }

    /// What the agent of a machine says of its registration is not answered.
    pub(crate) fn stop_notes(&mut self, id: &InstanceId, until: Micros) {
        if let Some(machine) = self.machines.get_mut(id) {
            machine.seat.notes_stopped_until = until;
        }
    }

    pub(crate) fn has_stopped_notes(&self, id: &InstanceId, now: Micros) -> bool {
        self.machines.get(id).is_some_and(|it| now < it.seat.notes_stopped_until)
    }

    pub(crate) fn refuse_version(&mut self, until: Micros) {
        self.refuses_version_until = self.refuses_version_until.max(until);
    }

    pub(crate) fn refuses_version(&self, now: Micros) -> bool {
        now < self.refuses_version_until
    }

    /// The number of the next registration of a machine.
    pub(crate) fn next_registration(&mut self, id: &InstanceId) -> u32 {
        let Some(machine) = self.machines.get_mut(id) else { return 0 };
        machine.seat.count += 1;
        machine.seat.count
    }

    /// Lists a runner, unless one of this name was listed already.
    pub(crate) fn register_own(&mut self, id: &InstanceId, label: &MachineLabel, number: u32) {
        let name = format!("{id}-own-{number}");
        self.changed = true;
        if self.own_runners.iter().any(|runner| runner.name == name) {
            return;
        }
        self.own_runners.push(OwnRunner {
            name,
            instance: id.clone(),
            label: label.clone(),
            number,
            online_until: 0,
            busy_until: 0,
        });
    }

    /// The machine has the files of a registration.
    pub(crate) fn has_registered_own(
        &mut self,
        id: &InstanceId,
        label: &MachineLabel,
        number: u32,
    ) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        machine.seat.files.push(number);
        machine.condition.own_label = Some(label.clone());
        machine.condition.registered = None;
        machine.condition.registration_took = None;
    }

    /// Removes the registrations whose files are on the machine, and those files.
    pub(super) fn remove_own(&mut self, id: &InstanceId) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        let files = std::mem::take(&mut machine.seat.files);
        machine.seat.owner = None;
        let is_meant = |it: &OwnRunner| it.instance == *id && files.contains(&it.number);
        self.own_runners.retain(|runner| !is_meant(runner));
        self.changed = true;
    }

    /// Removes the registrations of the machine before this one. Of some, the forge says that it is in use:
    /// the machine removes them later.
    pub(crate) fn forget_earlier(&mut self, id: &InstanceId, number: u32) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        let is_kept = |earlier: &u32| digest(&[id, &number, earlier]).is_multiple_of(2);
        let (kept, removed): (Vec<u32>, Vec<u32>) =
            std::mem::take(&mut machine.seat.files).into_iter().partition(is_kept);
        machine.seat.files = kept;
        self.own_runners.retain(|it| it.instance != *id || !removed.contains(&it.number));
        self.runners.retain(|runner| runner.instance != *id);
    }

    /// Whether the forge lists this registration, and the machine has its files.
    pub(crate) fn is_registered_own(&self, id: &InstanceId, number: u32) -> bool {
        let has_files = self.machines.get(id).is_some_and(|it| it.seat.files.contains(&number));
        has_files && self.own_runners.iter().any(|it| it.instance == *id && it.number == number)
    }

    /// The registration of which the forge still has the session of an earlier listener. Another
    /// registration is not refused for that.
    pub(crate) fn keeps_session(&self, id: &InstanceId, now: Micros) -> Option<u32> {
        let (number, until) = self.machines.get(id)?.seat.session?;
        (now < until).then_some(number)
    }

    /// The listener of a registration listens from now on, until it dies.
    pub(crate) fn listen(&mut self, id: &InstanceId, number: u32, dies: Option<(Micros, Micros)>) {
        self.changed = true;
        let Some(machine) = self.machines.get_mut(id) else { return };
        let (dies_at, keeps_session) = dies.unzip();
        let keeps_session = keeps_session.unwrap_or_default();
        machine.seat.listener = Some(Listener { number, dies_at, keeps_session });
        machine.seat.session = None;
        machine.condition.silent_since = None;
        machine.condition.listeners += 1;
    }

    /// Ends the listener. A job that runs goes on.
    pub(crate) fn end_listener(&mut self, id: &InstanceId, now: Micros) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        if machine.seat.listener.take().is_some() {
            machine.condition.silent_since = Some(now);
            self.changed = true;
        }
    }

    /// When the listener of a machine will die, if one lives: `Some(None)` is never.
    pub(crate) fn listener(&self, id: &InstanceId, now: Micros) -> Option<(u32, Option<Micros>)> {
        let listener = self.machines.get(id)?.seat.listener.as_ref()?;
        let lives = listener.dies_at.is_none_or(|at| now < at);
        lives.then_some((listener.number, listener.dies_at))
    }

    /// What is true of the listener of a machine now.
    pub(crate) fn listening(&self, id: &InstanceId, now: Micros) -> Listening {
        let number = self.listener(id, now).map(|(number, _)| number);
        let condition = self.condition(id);
        let silent_since = condition.and_then(|condition| condition.silent_since);
        let frozen_until = condition.map_or(0, |condition| condition.frozen_until);
        Listening { number, silent_since, frozen_until, at: now }
    }

    /// Lets listeners die whose time has come, whose registration is gone, or whose version is refused.
    /// Returns their machines.
    pub(crate) fn end_dead_listeners(&mut self, now: Micros) -> Vec<InstanceId> {
        let mut ended = Vec::new();
        for (id, machine) in &self.machines {
            let Some(listener) = &machine.seat.listener else { continue };
            let is_listed = self
                .own_runners
                .iter()
                .any(|it| it.instance == *id && it.number == listener.number);
            let hears = self.reaches_forge(id, now);
            let is_refused = self.refuses_version(now) && machine.job.is_none();
            let is_killed = listener.dies_at.is_some_and(|at| at <= now);
            if is_killed || hears && (!is_listed || is_refused) {
                ended.push((id.clone(), is_killed, is_listed));
            }
        }
        for (id, is_killed, is_listed) in &ended {
            self.lose_job(id);
            let Some(machine) = self.machines.get_mut(id) else { continue };
            let Some(listener) = machine.seat.listener.take() else { continue };
            if *is_killed {
                machine.seat.session = Some((listener.number, now + listener.keeps_session));
            } else if !is_listed {
                machine.seat.files.retain(|number| *number != listener.number);
            }
            machine.condition.silent_since = Some(now);
            self.changed = true;
        }
        ended.into_iter().map(|(id, ..)| id).collect()
    }

    /// Lets in jobs of this run, and refuses others.
    pub(crate) fn name_owner(&mut self, id: &InstanceId, run: &RunId, now: Micros) {
        self.changed = true;
        let Some(machine) = self.machines.get_mut(id) else { return };
        machine.seat.owner = Some(run.clone());
        machine.condition.is_dirty = true;
        machine.condition.named = Some((run.clone(), now));
    }

    /// Lets in no further job.
    pub(crate) fn withdraw_owner(&mut self, id: &InstanceId) {
        if let Some(machine) = self.machines.get_mut(id) {
            machine.seat.owner = None;
        }
    }

    pub(super) fn seat_view(&self, id: &InstanceId) -> Option<SeatView> {
        let seat = &self.machines.get(id)?.seat;
        let number = seat.listener.as_ref()?.number;
        let listed =
            self.own_runners.iter().find(|it| it.instance == *id && it.number == number)?;
        Some(SeatView { label: listed.label.clone(), number, owner: seat.owner.clone() })
    }

    /// An administrator deletes the runner that listens on a machine. Returns whether there is one.
    pub(crate) fn delete_own(&mut self, id: &InstanceId) -> bool {
        let Some(view) = self.seat_view(id) else { return false };
        self.changed = true;
        self.own_runners.retain(|it| it.instance != *id || it.number != view.number);
        true
    }

    /// What the forge says of the runners of a machine that is gone.
    pub(super) fn leave_listed(&mut self, id: &InstanceId, now: Micros) {
        let (is_busy, listens) = (self.is_busy(id), self.seat_view(id).map(|view| view.number));
        for runner in self.own_runners.iter_mut().filter(|it| Some(it.number) == listens) {
            if runner.instance == *id {
                let drawn = digest(&[&runner.name, &now]);
                let late = drawn % NOTICES_WITHIN;
                let is_long = (drawn / NOTICES_WITHIN).is_multiple_of(3);
                runner.online_until = now + if is_long { drawn % ONLINE_WITHIN } else { late };
                runner.busy_until = if is_busy { now + late } else { 0 };
            }
        }
    }

    fn takes_jobs(&self, runner: &OwnRunner, now: Micros) -> bool {
        let id = &runner.instance;
        let listens = self.listener(id, now).is_some_and(|(number, _)| number == runner.number);
        listens && self.reaches_forge(id, now)
    }

    fn is_busy_runner(&self, runner: &OwnRunner, now: Micros) -> bool {
        let listens = self.takes_jobs(runner, now) && self.is_busy(&runner.instance);
        listens || now < runner.busy_until
    }

    pub(super) fn own_runners_listed(&self, now: Micros) -> impl Iterator<Item = ListedRunner> {
        self.own_runners.iter().map(move |runner| ListedRunner {
            name: runner.name.clone(),
            instance: runner.instance.clone(),
            number: runner.number,
            online: self.takes_jobs(runner, now) || now < runner.online_until,
        })
    }

    /// The names of the listed runners that are not busy, with their machines and numbers.
    pub(crate) fn own_runners_free(&self, now: Micros) -> Vec<(String, InstanceId, u32)> {
        let free = self.own_runners.iter().filter(|it| !self.is_busy_runner(it, now));
        free.map(|it| (it.name.clone(), it.instance.clone(), it.number)).collect()
    }

    /// Removes a runner from the list unless it is busy. Returns whether it is gone.
    pub(super) fn remove_own_runner(&mut self, name: &str, now: Micros) -> bool {
        let Some(at) = self.own_runners.iter().position(|it| it.name == name) else { return true };
        if self.is_busy_runner(&self.own_runners[at], now) {
            return false;
        }
        self.own_runners.remove(at);
        self.changed = true;
        true
    }

    /// Queues a job that asks for the label of a machine.
    pub(crate) fn queue_for(
        &mut self,
        own: MachineLabel,
        label: impl Into<Label>,
        takes: Micros,
        now: Micros,
    ) {
        let (label, own, state) = (label.into(), Some(own), JobState::Queued);
        self.jobs.push(Job { label, own, takes, queued_at: now, state, failed_on: None });
    }

    /// Gives queued jobs to listening runners with labels of machines, where they wait in the hook. Returns
    /// whether there are any.
    pub(crate) fn assign_own(&mut self, now: Micros) -> bool {
        let mut any = false;
        for at in 0..self.jobs.len() {
            let (Some(own), JobState::Queued) = (&self.jobs[at].own, &self.jobs[at].state) else {
                continue;
            };
            let is_free = |runner: &&OwnRunner| {
                let machine = self.machines.get(&runner.instance);
                runner.label == *own
                    && machine.is_some_and(|machine| machine.job.is_none())
                    && self.takes_jobs(runner, now)
            };
            let Some(runner) = self.own_runners.iter().find(is_free) else { continue };
            let id = runner.instance.clone();
            self.jobs[at].state = JobState::InHook(id.clone(), now);
            if let Some(machine) = self.machines.get_mut(&id) {
                machine.job = Some(at);
                machine.condition.has_worked = true;
            }
            (self.changed, any) = (true, true);
        }
        any
    }

    /// Lets in or refuses the jobs that wait in hooks.
    pub(crate) fn settle_hooks(&mut self, now: Micros) -> Vec<Hooked> {
        let mut settled = Vec::new();
        for at in 0..self.jobs.len() {
            let JobState::InHook(id, since) = self.jobs[at].state.clone() else { continue };
            let owner = self.machines.get(&id).and_then(|machine| machine.seat.owner.clone());
            if owner.as_ref() == Some(&self.jobs[at].label.run) {
                self.jobs[at].state = JobState::On(id.clone());
                if let Some(machine) = self.machines.get_mut(&id) {
                    machine.condition.is_dirty = true;
                }
                settled.push(Hooked::LetIn(at, id));
            } else if owner.is_some() || since + HOOK_WAITS <= now {
                self.end_job(at);
                settled.push(Hooked::Refused(at, id));
            } else {
                continue;
            }
            self.changed = true;
        }
        settled
    }

    /// The labels of machines that jobs have been waiting for since before `time`, each with the label of
    /// the run.
    pub(crate) fn waiting_for_machines_since(&self, time: Timestamp) -> Vec<(MachineLabel, Label)> {
        let waits = |job: &&Job| job.state == JobState::Queued && timestamp(job.queued_at) < time;
        let waiting = self.jobs.iter().filter(waits);
        waiting.filter_map(|job| Some((job.own.clone()?, job.label.clone()))).collect()
    }
}
