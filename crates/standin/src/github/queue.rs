//! How a test queues runs and jobs, and waits for them.

use std::time::Duration;

use super::GitHub;
use super::jobs::{Conclusion, Job, JobId, JobState, RunState, latest};
use super::state::{State, Work};

impl GitHub {
    /// Queues a job that runs a bash script on a runner with these labels. Creates the run
    /// if it is new.
    pub fn queue_job(&self, repository: &str, run: &str, labels: &[&str], script: &str) -> JobId {
        self.queue_named_job(repository, run, None, labels, script)
    }

    /// Like [`queue_job`](GitHub::queue_job), with the name of the job.
    pub fn queue_named_job(
        &self,
        repository: &str,
        run: &str,
        name: Option<&str>,
        labels: &[&str],
        script: &str,
    ) -> JobId {
        self.shared.change(|state| state.queue(repository, run, name, labels, script))
    }

    /// Completes a job without a runner program, as if a runner of this name had taken it.
    pub fn conclude(&self, id: JobId, conclusion: Conclusion, runner: Option<&str>) {
        self.shared.change(|state| {
            if let Some(work) = state.jobs.get_mut(&id) {
                work.job.runner_name = runner.map(str::to_owned);
            }
            state.finish(id, conclusion);
        });
    }

    /// Sets the state of a run, which then does not depend on its jobs. Creates the run
    /// if it is new.
    pub fn add_run(&self, repository: &str, run: &str, how_far: RunState) {
        self.shared.change(|state| state.run(repository, run).pinned = Some(how_far));
    }

    /// Adds a run that was completed some time ago: how long ago it was created, and for each job after
    /// how long it began and how long it took.
    pub fn add_past_run(
        &self,
        repository: &str,
        run: &str,
        ago: Duration,
        jobs: &[(Duration, Duration)],
    ) {
        self.shared.change(|state| state.add_past_run(repository, run, ago, jobs));
    }

    /// The current state of a job; `None` if there is no such job.
    pub fn job(&self, id: JobId) -> Option<Job> {
        self.shared.look(|state| state.jobs.get(&id).map(|work| work.job.clone()))
    }

    /// The jobs of a run, in the order in which they were queued.
    pub fn jobs(&self, repository: &str, run: &str) -> Vec<Job> {
        let of = |job: &Job| job.run_id == run && job.repository.eq_ignore_ascii_case(repository);
        self.shared.look(|state| {
            state.jobs.values().map(|work| work.job.clone()).filter(|job| of(job)).collect()
        })
    }

    /// Blocks until a job is completed, and returns it.
    ///
    /// # Panics
    /// If that takes longer than `at_most`, or there is no such job.
    pub fn wait_for_job(&self, id: JobId, at_most: Duration) -> Job {
        self.wait_until(id, at_most, |job| job.state == JobState::Completed)
    }

    /// Blocks until a job satisfies a condition, and returns it.
    ///
    /// # Panics
    /// If that takes longer than `at_most`, or there is no such job.
    pub fn wait_until(&self, id: JobId, at_most: Duration, suits: impl Fn(&Job) -> bool) -> Job {
        let found = self.shared.wait(at_most, |state| {
            let job = &state.jobs.get(&id)?.job;
            suits(job).then(|| job.clone())
        });
        found.unwrap_or_else(|| panic!("the job does not get there: {:?}", self.job(id)))
    }

    /// Cancels the jobs of a run that are not completed.
    pub fn cancel_run(&self, repository: &str, run: &str) {
        let jobs = self.jobs(repository, run);
        self.shared.change(|state| {
            for job in jobs {
                match job.state {
                    JobState::Queued => state.finish(job.id, Conclusion::Cancelled),
                    JobState::InProgress => {
                        if let Some(work) = state.jobs.get_mut(&job.id) {
                            work.cancelled = true;
                        }
                    }
                    JobState::Completed => {}
                }
            }
        });
    }

    /// Does what "Re-run failed jobs" does: queues the jobs that did not succeed again, in the
    /// run's next attempt. Returns the new jobs.
    pub fn rerun_failed(&self, repository: &str, run: &str) -> Vec<JobId> {
        let bad =
            |job: &Job| matches!(job.conclusion, Some(Conclusion::Failure | Conclusion::Cancelled));
        self.shared.change(|state| state.run_again(repository, run, bad))
    }
}

impl State {
    /// Queues a job, and creates its run if that is new.
    pub(super) fn queue(
        &mut self,
        repository: &str,
        run: &str,
        name: Option<&str>,
        labels: &[&str],
        script: &str,
    ) -> JobId {
        let run_attempt = self.run(repository, run).attempt;
        let id = JobId(self.new_id());
        let job = Job {
            id,
            repository: repository.to_owned(),
            run_id: run.to_owned(),
            run_attempt,
            name: name.map_or_else(|| format!("job-{}", id.0), str::to_owned),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            state: JobState::Queued,
            conclusion: None,
            runner_name: None,
            runner_id: None,
            log: String::new(),
            annotations: Vec::new(),
            created: self.now(),
            started: None,
            completed: None,
        };
        self.jobs.insert(id, Work { job, script: script.to_owned(), cancelled: false });
        id
    }

    fn add_past_run(
        &mut self,
        repository: &str,
        run: &str,
        ago: Duration,
        jobs: &[(Duration, Duration)],
    ) {
        let created = self.now() - ago;
        self.run(repository, run).created = created;
        for (after, took) in jobs {
            let id = self.queue(repository, run, None, &[run], "true");
            if let Some(work) = self.jobs.get_mut(&id) {
                let started = created + *after;
                work.job.state = JobState::Completed;
                work.job.conclusion = Some(Conclusion::Success);
                (work.job.created, work.job.started) = (created, Some(started));
                work.job.completed = Some(started + *took);
            }
        }
    }

    /// Queues these jobs of a run again, in its next attempt. Returns the new jobs.
    pub(super) fn run_again(
        &mut self,
        repository: &str,
        run: &str,
        chosen: impl Fn(&Job) -> bool,
    ) -> Vec<JobId> {
        let of = |job: &Job| job.run_id == run && job.repository.eq_ignore_ascii_case(repository);
        let jobs: Vec<Job> =
            self.jobs.values().map(|work| work.job.clone()).filter(|job| of(job)).collect();
        let again = self.run(repository, run);
        again.attempt += 1;
        again.pinned = None;
        let (run_attempt, now) = (again.attempt, self.now());
        let mut queued = Vec::new();
        for job in latest(jobs.iter()).into_iter().filter(|job| chosen(job)) {
            let id = JobId(self.new_id());
            let script = self.jobs.get(&job.id).map(|it| it.script.clone());
            let job = Job {
                id,
                run_attempt,
                state: JobState::Queued,
                conclusion: None,
                runner_name: None,
                runner_id: None,
                log: String::new(),
                annotations: Vec::new(),
                created: now,
                started: None,
                completed: None,
                ..job.clone()
            };
            let script = script.unwrap_or_default();
            self.jobs.insert(id, Work { job, script, cancelled: false });
            queued.push(id);
        }
        queued
    }
}
