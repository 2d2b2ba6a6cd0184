//! The scenes that are explored.

use std::collections::BTreeMap;

use super::{Blow, Scene, plainly, settle};
use crate::harness::IDLE_TIME;
use crate::kernel::Micros;
use crate::plan::SECOND;

const ALL: &[Blow] = &[Blow::Dies, Blow::AnswerLost, Blow::Fails, Blow::Late, Blow::Slow];

/// All scenes that can be explored.
pub const SCENES: &[Scene] = &[
    Scene {
        name: "race",
        cast: "two runs, one idle machine announced twice",
        brief: false,
        faults: 1,
        blows: &[Blow::Dies, Blow::AnswerLost],
        set: |stage| {
            stage.plant_idle("i-0901", 2);
            settle(stage);
            stage.provision("1", 1);
            stage.provision("2", 1);
        },
    },
    Scene {
        name: "pool",
        cast: "two runs, two idle machines, one of them announced twice",
        brief: false,
        faults: 1,
        blows: &[Blow::Dies],
        set: |stage| {
            stage.plant_idle("i-0901", 2);
            stage.plant_idle("i-0902", 1);
            settle(stage);
            stage.provision("1", 1);
            stage.provision("2", 1);
        },
    },
    Scene {
        name: "tended",
        cast: "the same, and a refresh",
        brief: false,
        faults: 0,
        blows: &[],
        set: |stage| {
            stage.plant_idle("i-0901", 2);
            stage.plant_idle("i-0902", 1);
            settle(stage);
            stage.provision("1", 1);
            stage.provision("2", 1);
            stage.refresh(BTreeMap::new());
        },
    },
    Scene {
        name: "return",
        cast: "a run that releases, another that looks for a machine, and an old ticket of it",
        brief: true,
        faults: 1,
        blows: ALL,
        set: |stage| {
            stage.plant_idle("i-0901", 2);
            settle(stage);
            stage.provision("1", 1);
            settle(stage);
            stage.release("1");
            stage.provision("2", 1);
        },
    },
    Scene {
        name: "again",
        cast: "two provisions of the same run, one idle machine",
        brief: false,
        faults: 1,
        blows: &[Blow::Dies, Blow::AnswerLost],
        set: |stage| {
            stage.plant_idle("i-0901", 1);
            settle(stage);
            stage.provision("1", 1);
            stage.provision("1", 1);
        },
    },
    Scene {
        name: "leave",
        cast: "a provision and the release of its own run, one idle machine",
        brief: false,
        faults: 1,
        blows: ALL,
        set: |stage| {
            stage.plant_idle("i-0901", 1);
            settle(stage);
            stage.provision("1", 1);
            stage.release("1");
        },
    },
    Scene {
        name: "twins",
        cast: "a run that wants two machines, and one that an old ticket announces as well",
        brief: true,
        faults: 1,
        blows: ALL,
        set: |stage| {
            stage.plant_idle("i-0901", 1);
            stage.send_stale("i-0901");
            settle(stage);
            stage.world.compute.set_capacity(1);
            stage.provision("1", 2);
        },
    },
    Scene {
        name: "launch",
        cast: "a run that must launch, and a refresh",
        brief: true,
        faults: 1,
        blows: &[Blow::Dies],
        set: |stage| {
            stage.provision("1", 1);
            stage.refresh(BTreeMap::new());
        },
    },
    Scene {
        name: "home",
        cast: "a release and a refresh",
        brief: true,
        faults: 1,
        blows: ALL,
        set: |stage| {
            stage.plant_idle("i-0901", 1);
            settle(stage);
            stage.provision("1", 1);
            settle(stage);
            stage.release("1");
            stage.refresh(BTreeMap::new());
        },
    },
    Scene {
        name: "patient",
        cast: "a run, and a machine that has been idle for longer than a heart may stand still",
        brief: true,
        faults: 0,
        blows: &[],
        set: |stage| {
            stage.plant_idle("i-0901", 1);
            plainly(stage, |_| false, 400 * SECOND);
            stage.provision("1", 1);
        },
    },
    Scene {
        name: "overdue",
        cast: "a run, a refresh, and an idle machine past its time",
        brief: true,
        faults: 0,
        blows: &[],
        set: |stage| {
            stage.plant_idle("i-0901", 1);
            settle(stage);
            let idle_time = Micros::try_from(IDLE_TIME.as_micros()).unwrap_or(Micros::MAX);
            stage.kernel.pass(stage.kernel.now() + idle_time + SECOND);
            stage.provision("1", 1);
            stage.refresh(BTreeMap::new());
        },
    },
    Scene {
        name: "tidy",
        cast: "two refreshes at once, after a release that died before its ticket",
        brief: true,
        faults: 1,
        blows: ALL,
        set: |stage| {
            stage.plant_idle("i-0901", 0);
            settle(stage);
            stage.refresh(BTreeMap::new());
            stage.refresh(BTreeMap::new());
        },
    },
];
