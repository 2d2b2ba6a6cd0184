//! What a drill expects of a pool, with why it matters and what to do if it is not met.

macro_rules! expectations {
    ($($kind:ident, $id:literal, $what:literal, $why:literal, $fix:literal;)*) => {
        /// What should happen after a disturbance.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Expectation {
            $(
                #[doc = $what]
                $kind,
            )*
        }

        impl Expectation {
            pub const ALL: &[Expectation] = &[$(Expectation::$kind,)*];

            /// The id in reports and in the documentation.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Expectation::$kind => $id,)*
                }
            }

            /// The expectation as a sentence, without a full stop.
            pub fn what(self) -> &'static str {
                match self {
                    $(Expectation::$kind => $what,)*
                }
            }

            pub fn why(self) -> &'static str {
                match self {
                    $(Expectation::$kind => $why,)*
                }
            }

            /// What to do if it is not met.
            pub fn fix(self) -> &'static str {
                match self {
                    $(Expectation::$kind => $fix,)*
                }
            }
        }
    };
}

expectations! {
    Claimed, "claimed", "a run gets an idle machine from the pool",
        "runs wait for new machines although idle ones are paid for",
        "ondeck explain MACHINE; check the permissions of the roles of provision and of the machines with ondeck permissions check";
    Launched, "launched", "a run gets a new machine",
        "runs that find no idle machine fail",
        "ondeck doctor; check the permissions of the role of provision with ondeck permissions check";
    Released, "released", "a release returns the machine to the pool",
        "a machine that does not return is terminated, and the next run waits for a new one",
        "ondeck explain MACHINE; check the permissions of the roles of release and of the machines with ondeck permissions check";
    Announced, "announced", "an idle machine has a ticket in the pool",
        "no run finds an idle machine without a ticket, and it costs money",
        "check that the roles of provision and release may send messages to the pool's queues, with ondeck permissions check; ondeck pool repair announces the machine";
    Silent, "silent", "the heartbeat of a dead machine stops, and its provider no longer lists it",
        "a machine that only seems to be dead costs money and may still take jobs",
        "look at the machine in the provider's console; check the limit with heartbeat-period-sec";
    Noticed, "noticed", "the agent reports the interruption",
        "a run gets a machine that its provider takes away within two minutes",
        "read the agent's log on the machine: it asks the metadata service; check that the command of the drill has interrupted it";
    NotHandedOut, "not-handed-out", "no run gets the machine afterwards",
        "jobs of a run that gets a dead machine wait for ever",
        "report it with the output of ondeck explain MACHINE";
    Cancelled, "cancelled", "a provision that is interrupted ends in time, with exit code 130",
        "GitHub kills a cancelled step 10 seconds after its SIGINT",
        "check that the store answers, with ondeck doctor";
    CleanedUp, "cleaned-up", "a provision that is interrupted returns what it claimed and terminates what it launched",
        "until a release or a refresh repairs it, the machines serve no run and cost money",
        "check the permissions of the role of provision with ondeck permissions check";
    Refreshed, "refreshed", "refresh succeeds",
        "while refresh fails, machines stay that no run uses, and registration tokens expire",
        "run ondeck refresh with the same credentials; check the permissions of its role with ondeck permissions check";
    Gone, "gone", "nothing is left of the machine: no live record, and its provider does not list it",
        "a machine without a use costs money, and a record without a machine makes runs try it",
        "ondeck explain MACHINE; run ondeck refresh and see what it reports";
    GivenBack, "given-back", "a machine that a cancelled run had claimed is idle again, or terminated",
        "no run can use the machine until its threshold",
        "ondeck explain MACHINE; check the permissions of the roles of provision and release with ondeck permissions check";
    NothingOwned, "nothing-owned", "no run of the drill owns a machine after its release",
        "machines of a run that has ended serve no other run until their threshold",
        "ondeck release --run-id RUN; check the permissions of the role of release with ondeck permissions check";
    OneOwner, "one-owner", "no machine is registered for another run than its record names",
        "jobs of two runs could meet on one machine",
        "ondeck terminate MACHINE, and report it with the output of ondeck explain MACHINE";
    NoOrphan, "no-orphan", "each machine at the provider has a live record",
        "a machine without a record serves no run and costs money",
        "ondeck refresh; check that its role may terminate machines, with ondeck permissions check";
    MachineForEachRecord, "machine-for-each-record", "each live record has a machine at the provider",
        "runs try machines that are gone, and lose time",
        "ondeck refresh; ondeck explain MACHINE";
    NoTicketForDeadMachine, "no-ticket-for-dead-machine", "no ticket announces a machine that is gone as idle",
        "runs try machines that are gone, and lose time",
        "ondeck pool repair";
    NoOfflineRunner, "no-offline-runner", "GitHub lists no offline runner of a machine that is gone",
        "GitHub keeps offline runners for days, and lists become long",
        "ondeck refresh; check the permissions of its token";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_expectation_has_an_id_of_its_own_and_says_what_to_do() {
        let ids: BTreeSet<&str> = Expectation::ALL.iter().map(|it| it.as_str()).collect();
        assert_eq!(ids.len(), Expectation::ALL.len());
        for one in Expectation::ALL {
            for text in [one.what(), one.why(), one.fix()] {
                assert!(!text.is_empty() && !text.ends_with('.'), "{}: {text}", one.as_str());
            }
        }
    }
}
