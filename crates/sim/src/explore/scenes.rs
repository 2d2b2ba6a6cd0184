//! The scenes of the exhaustive search.

use std::collections::BTreeMap;

use super::{Scene, SceneFault, run_in_order, run_until_done};
use crate::harness::IDLE_TIME;
use crate::kernel::Micros;
use crate::plan::{Ask, SECOND};

const ALL: &[SceneFault] = &[
    SceneFault::Dies,
    SceneFault::AnswerLost,
    SceneFault::Fails,
    SceneFault::Late,
    SceneFault::Slow,
];

/// All scenes of the exhaustive search.
pub const SCENES: &[Scene] = &[
    Scene {
        name: "race",
        participants: "two runs, one idle machine announced twice",
        brief: false,
        max_faults: 1,
        faults: &[SceneFault::Dies, SceneFault::AnswerLost],
        set_up: |harness| {
            harness.add_idle("i-0901", 2);
            run_until_done(harness);
            harness.provision("1", &Ask::of(1));
            harness.provision("2", &Ask::of(1));
        },
    },
    Scene {
        name: "pool",
        participants: "two runs, two idle machines, one of them announced twice",
        brief: false,
        max_faults: 1,
        faults: &[SceneFault::Dies],
        set_up: |harness| {
            harness.add_idle("i-0901", 2);
            harness.add_idle("i-0902", 1);
            run_until_done(harness);
            harness.provision("1", &Ask::of(1));
            harness.provision("2", &Ask::of(1));
        },
    },
    Scene {
        name: "tended",
        participants: "the same, and a refresh",
        brief: false,
        max_faults: 0,
        faults: &[],
        set_up: |harness| {
            harness.add_idle("i-0901", 2);
            harness.add_idle("i-0902", 1);
            run_until_done(harness);
            harness.provision("1", &Ask::of(1));
            harness.provision("2", &Ask::of(1));
            harness.refresh(BTreeMap::new());
        },
    },
    Scene {
        name: "return",
        participants: "a run that releases, another that looks for a machine, an old ticket of it",
        brief: false,
        max_faults: 1,
        faults: ALL,
        set_up: |harness| {
            harness.add_idle("i-0901", 2);
            run_until_done(harness);
            harness.provision("1", &Ask::of(1));
            run_until_done(harness);
            harness.release("1");
            harness.provision("2", &Ask::of(1));
        },
    },
    Scene {
        name: "again",
        participants: "two provisions of the same run, one idle machine",
        brief: false,
        max_faults: 1,
        faults: &[SceneFault::Dies, SceneFault::AnswerLost],
        set_up: |harness| {
            harness.add_idle("i-0901", 1);
            run_until_done(harness);
            harness.provision("1", &Ask::of(1));
            harness.provision("1", &Ask::of(1));
        },
    },
    Scene {
        name: "leave",
        participants: "a provision and the release of its own run, one idle machine",
        brief: false,
        max_faults: 1,
        faults: ALL,
        set_up: |harness| {
            harness.add_idle("i-0901", 1);
            run_until_done(harness);
            harness.provision("1", &Ask::of(1));
            harness.release("1");
        },
    },
    Scene {
        name: "twins",
        participants: "a run that wants two machines, and one that an old ticket announces as well",
        brief: true,
        max_faults: 1,
        faults: ALL,
        set_up: |harness| {
            harness.add_idle("i-0901", 1);
            harness.send_stale("i-0901");
            run_until_done(harness);
            harness.world.compute.set_capacity(1);
            harness.provision("1", &Ask::of(2));
        },
    },
    Scene {
        name: "launch",
        participants: "a run that must launch, and a refresh",
        brief: true,
        max_faults: 1,
        faults: &[SceneFault::Dies],
        set_up: |harness| {
            harness.provision("1", &Ask::of(1));
            harness.refresh(BTreeMap::new());
        },
    },
    Scene {
        name: "home",
        participants: "a release and a refresh",
        brief: true,
        max_faults: 1,
        faults: ALL,
        set_up: |harness| {
            harness.add_idle("i-0901", 1);
            run_until_done(harness);
            harness.provision("1", &Ask::of(1));
            run_until_done(harness);
            harness.release("1");
            harness.refresh(BTreeMap::new());
        },
    },
    Scene {
        name: "ready",
        participants: "a run, and an idle machine that is registered under a label of its own",
        brief: true,
        max_faults: 1,
        faults: &[SceneFault::Dies, SceneFault::AnswerLost],
        set_up: |harness| {
            harness.register_idle_machines();
            harness.add_idle("i-0901", 1);
            run_in_order(harness, |_| false, 10 * SECOND);
            harness.provision("1", &Ask::of(1));
        },
    },
    Scene {
        name: "patient",
        participants: "a run, a machine that has been idle for longer than heartbeats may be missing",
        brief: true,
        max_faults: 0,
        faults: &[],
        set_up: |harness| {
            harness.add_idle("i-0901", 1);
            run_in_order(harness, |_| false, 400 * SECOND);
            harness.provision("1", &Ask::of(1));
        },
    },
    Scene {
        name: "overdue",
        participants: "a run, a refresh, and an idle machine past its time",
        brief: true,
        max_faults: 0,
        faults: &[],
        set_up: |harness| {
            harness.add_idle("i-0901", 1);
            run_until_done(harness);
            let idle_time = Micros::try_from(IDLE_TIME.as_micros()).unwrap_or(Micros::MAX);
            harness.kernel.advance_to(harness.kernel.now() + idle_time + SECOND);
            harness.provision("1", &Ask::of(1));
            harness.refresh(BTreeMap::new());
        },
    },
    Scene {
        name: "tidy",
        participants: "two refreshes at once, after a release that died before its ticket",
        brief: true,
        max_faults: 1,
        faults: ALL,
        set_up: |harness| {
            harness.add_idle("i-0901", 0);
            run_until_done(harness);
            harness.refresh(BTreeMap::new());
            harness.refresh(BTreeMap::new());
        },
    },
];
