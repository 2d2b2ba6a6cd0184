//! Every metric, in one table: the reference page, the Grafana dashboard and the text are checked
//! against it.
//!
//! No label has a run or a machine as its value: each value of a label is a series that a server keeps.

#[derive(Debug)]
pub(crate) struct Metric {
    /// With its unit, as Prometheus has it.
    pub(crate) name: &'static str,
    /// One sentence, without a full stop.
    pub(crate) help: &'static str,
    /// Beside `pool`, which each metric has.
    pub(crate) labels: &'static [&'static str],
    #[cfg_attr(not(test), expect(dead_code, reason = "the reference is divided by it"))]
    pub(crate) subject: Subject,
}

/// What a metric is about, and so where it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The pool as it is now.
    Pool,
    /// The last call of a mode.
    Refresh,
    Provision,
    Release,
}

#[cfg(test)]
impl Subject {
    /// In the order of the text.
    pub(crate) const ALL: [Subject; 4] =
        [Subject::Pool, Subject::Refresh, Subject::Provision, Subject::Release];
}

macro_rules! metrics {
    ($($subject:ident {
        $($constant:ident $name:literal [$($label:literal),*] $help:literal;)*
    })*) => {
        $($(pub(super) const $constant: &Metric = &Metric {
            name: $name,
            help: $help,
            labels: &[$($label),*],
            subject: Subject::$subject,
        };)*)*

        /// All of them, in the order of the text. All are gauges: a call is a process of its own, and
        /// none of them can count what others did.
        #[cfg(test)]
        pub(crate) const METRICS: &[&Metric] = &[$($($constant),*),*];
    };
}

metrics! {
    Pool {
    IDLE_MACHINES "ondeck_idle_machines" []
        "Idle machines of all classes; 0 if there is none";
    MACHINES "ondeck_machines" ["class", "usage", "state"]
        "Live machines by resource class, purchase option and state; 0 in a state only of a class and option that have machines";
    MARKED_MACHINES "ondeck_marked_machines" ["mark"]
        "Live machines that are silent, failed, overdue, unready, retiring or preserved";
    TICKETS "ondeck_pool_tickets" ["class"]
        "Tickets in the pool, each of which announces an idle machine unless it is out of date";
    HAND_OVERS "ondeck_recent_hand_overs" ["source"]
        "Machines that runs were given of late, at most 100 within 24 hours: warm from the pool, cold launched";
    OLDEST_IDLE "ondeck_oldest_idle_seconds" []
        "Age of the idle machine whose state has not changed for the longest time";
    CHECKED "ondeck_refresh_checked_timestamp_seconds" []
        "When refresh checked everything last; absent if it has failed since";
    OVERDUE "ondeck_refresh_overdue" [] "1 if refresh is overdue, otherwise 0";
    CEILING "ondeck_ceiling_machines" ["class"]
        "Machines that count against max-machines; without a class against the number of the pool";
    CEILING_MAX "ondeck_ceiling_max_machines" ["class"]
        "Numbers of max-machines; without a class the number of the pool";
    SPEND "ondeck_spend_dollars" ["kind"]
        "What machines cost on this day in UTC below max-spend-per-day: spent, reserved until midnight, and the cap";
    PROBLEMS "ondeck_problems" ["kind"] "Kinds of problems that ondeck status reports, each 1";
    UNREADABLE "ondeck_unreadable_records" [] "Records that cannot be read";
    }

    Refresh {
    REFRESH_SUCCESS "ondeck_refresh_success" [] "1 if the refresh succeeded, otherwise 0";
    REFRESH_ENDED "ondeck_refresh_end_timestamp_seconds" [] "When the refresh ended";
    REFRESH_DURATION "ondeck_refresh_duration_seconds" [] "How long the refresh took";
    REFRESH_TERMINATED "ondeck_refresh_terminated_machines" ["reason"]
        "Machines that the refresh terminated, or expired because they did not respond";
    REFRESH_LAUNCHED "ondeck_refresh_launched_machines" []
        "Machines that the refresh launched for min-idle";
    REFRESH_STARTING "ondeck_refresh_starting_machines" []
        "Machines for min-idle that are starting, with a time limit";
    REFRESH_DEAD "ondeck_refresh_dead_machines" ["cause"]
        "Machines of runs that are silent, or failing as their agents report";
    REFRESH_RUNS "ondeck_refresh_runs" ["result"]
        "Runs that were rescued, released after their end or re-run, and that are stranded";
    REFRESH_REQUEUED "ondeck_refresh_requeued_machines" []
        "Idle machines that the refresh announced again";
    REFRESH_PRUNED "ondeck_refresh_pruned_tickets" [] "Void tickets that the refresh deleted";
    REFRESH_LISTED "ondeck_refresh_listed_machines" []
        "Machines that the provider listed, orphans included; absent if it did not answer";
    REFRESH_ORPHAN "ondeck_refresh_oldest_orphan_seconds" []
        "Age of the oldest machine without a live record, 0 if there is none";
    REFRESH_WARNINGS "ondeck_refresh_warnings" [] "Warnings of the refresh";
    }

    Provision {
    PROVISION_SUCCESS "ondeck_provision_success" [] "1 if the provision succeeded, otherwise 0";
    PROVISION_ENDED "ondeck_provision_end_timestamp_seconds" [] "When the provision ended";
    PROVISION_DURATION "ondeck_provision_duration_seconds" [] "How long the provision took";
    PROVISION_REQUESTED "ondeck_provision_requested_machines" []
        "Machines that the run asked for";
    PROVISION_MACHINES "ondeck_provision_machines" ["source"]
        "Machines that the run got: warm from the pool, cold launched, adopted if it had them";
    PROVISION_PHASE "ondeck_provision_phase_seconds" ["phase"] "How long each phase took";
    PROVISION_READY "ondeck_provision_slowest_ready_seconds" ["source"]
        "When the slowest machine was ready, since the beginning of the call";
    }

    Release {
    RELEASE_SUCCESS "ondeck_release_success" [] "1 if the release succeeded, otherwise 0";
    RELEASE_ENDED "ondeck_release_end_timestamp_seconds" [] "When the release ended";
    RELEASE_DURATION "ondeck_release_duration_seconds" [] "How long the release took";
    RELEASE_MACHINES "ondeck_release_machines" ["result"]
        "Machines of the run, by where the release left them";
    }
}
