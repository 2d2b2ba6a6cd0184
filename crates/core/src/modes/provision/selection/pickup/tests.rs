use tokio::sync::OnceCell;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::model::heartbeat::Heartbeat;
use crate::model::ids::RunId;
use crate::model::machine_label::MachineLabel;
use crate::model::readiness::{IdleRegistration, Readiness, ReadinessNote};
use crate::model::record::MachineSpec;
use crate::model::requirements::TypePatterns;
use crate::model::settings::Settings;
use crate::modes::provision::selection::beside_deletes;
use crate::modes::provision::{Origin, Request};
use crate::ports::AgentStore;
use crate::testkit;

fn request() -> Request {
    let mut request = Request::of_run(RunId::new("1").unwrap());
    request.options.usage = UsageClass::Spot;
    request
}

fn ticket(plane: &Plane, request: &Request) -> Ticket {
    let spec = MachineSpec {
        resource_class: request.options.class.clone(),
        instance_type: "c6i.large".to_owned(),
        usage_class: request.options.usage,
        cpu: 2,
        mem: 4096,
    };
    let threshold = plane.now() + Duration::from_secs(600);
    let (instance_id, generation, runs) = (InstanceId::new("i-1").unwrap(), 1, Some(1));
    Ticket { instance_id, spec, threshold, generation, runs }
}

fn attempt<'a>(plane: &'a Plane, request: &'a Request) -> Attempt<'a> {
    let settings = Settings::default();
    let requirements = request.requirements(&settings, TypePatterns::any()).unwrap();
    let (times, holdings) = (Times::default(), Holdings::new(plane.clock.steady()));
    let (label, reuse) = (request.label(), request.reuse(&settings));
    let (journal, owned) = (Journal::begin(plane), None);
    Attempt {
        plane,
        request,
        label,
        settings,
        requirements,
        times,
        reuse,
        holdings,
        journal,
        owned,
        noted: OnceCell::new(),
    }
}

static NEEDED: AtomicBool = AtomicBool::new(true);

fn pickup<'a>(attempt: &'a Attempt<'_>, wanted: u32) -> Pickup<'a> {
    Pickup::new(attempt, wanted, unbounded_channel().0, unbounded_channel().0)
}

/// Deletes a ticket, and waits until it is gone.
async fn delete(pickup: &mut Pickup<'_>, attempt: &Attempt<'_>, candidate: &Candidate) {
    let (deletes, spent) = unbounded_channel();
    let before = std::mem::replace(&mut pickup.deletes, deletes);
    pickup.delete(candidate);
    assert_eq!(attempt.holdings.spent().len(), 1, "known before it is deleted");
    pickup.deletes = before;
    beside_deletes(attempt, async { Ok(()) }, spent).await.unwrap();
    assert_eq!(attempt.holdings.spent().len(), 0);
}

#[tokio::test]
async fn an_empty_answer_is_final_unless_another_receiver_holds_a_ticket() {
    let (plane, memory) = testkit::plane();
    let (request, hold) = (request(), Duration::from_secs(30));
    let attempt = attempt(&plane, &request);
    let queue = Queue::new(&attempt);
    let asked = |hidden_by_us| {
        let (queue, clock) = (&queue, plane.clock.clone());
        async move {
            let begun = clock.steady();
            let found = queue.receive(1, || hidden_by_us).await.unwrap().len();
            (found, clock.steady() - begun)
        }
    };
    assert_eq!(asked(0).await, (0, Duration::ZERO));
    plane.pool.send(&[ticket(&plane, &request)], Duration::ZERO).await.unwrap();
    assert_eq!(asked(0).await, (1, Duration::ZERO), "it is there to be had");
    assert_eq!(asked(1).await, (0, Duration::ZERO), "a worker of ours has it");
    assert_eq!(asked(0).await, (0, attempt.times.pickup_patience), "another receiver has it");
    let receives = memory.pool.calls()["receive"];
    plane.pool.send(&[ticket(&plane, &request)], hold).await.unwrap();
    assert_eq!(asked(1).await, (0, Duration::ZERO));
    assert_eq!(memory.pool.calls()["receive"], receives + 1 + 3, "confirmed by three more");
}

#[tokio::test]
async fn a_ticket_that_the_quick_receives_miss_is_found_because_the_queue_counts_it() {
    let (plane, memory) = testkit::plane();
    let request = request();
    plane.pool.send(&[ticket(&plane, &request)], Duration::ZERO).await.unwrap();
    memory.pool.miss_on_quick_receives();
    let attempt = attempt(&plane, &request);
    let found = pickup(&attempt, 1).next(&NEEDED).await.unwrap();
    assert_eq!(found.unwrap().idle.id().as_str(), "i-1");
    assert_eq!(memory.pool.calls()["receive_thoroughly"], 1);
}

#[tokio::test]
async fn the_machine_that_expires_last_is_handed_out_first() {
    let (plane, _) = testkit::plane();
    let request = request();
    let tickets = [("i-1", 300), ("i-2", 900), ("i-3", 600)].map(|(id, seconds)| Ticket {
        instance_id: InstanceId::new(id).unwrap(),
        threshold: plane.now() + Duration::from_secs(seconds),
        ..ticket(&plane, &request)
    });
    plane.pool.send(&tickets, Duration::ZERO).await.unwrap();
    let attempt = attempt(&plane, &request);
    let pickup = pickup(&attempt, 3);
    let mut order = Vec::new();
    while order.len() < 3 {
        order.push(pickup.next(&NEEDED).await.unwrap().unwrap().idle.id().to_string());
    }
    assert_eq!(order, ["i-2", "i-3", "i-1"]);
}

/// Nothing that is read before a claim tells which machines are ready, so each look is a round trip.
#[tokio::test]
async fn readiness_is_looked_up_where_there_is_a_choice_and_once() {
    for (label, unsuitable, suitable, wanted, looks) in [
        (RunnerLabel::Run, 1, 3, 1, None),
        (RunnerLabel::Machine, 0, 3, 1, None),
        (RunnerLabel::Machine, 0, 3, 3, None),
        (RunnerLabel::Machine, 1, 3, 3, None),
        (RunnerLabel::Machine, 1, 3, 1, Some(1)),
        (RunnerLabel::Machine, 1, 30, 2, Some(1)),
    ] {
        let (plane, memory) = testkit::plane();
        let request = request();
        let mut attempt = attempt(&plane, &request);
        attempt.settings.runner_label = label;
        let tickets: Vec<Ticket> = (0..unsuitable + suitable)
            .map(|n| {
                let mut ticket = ticket(&plane, &request);
                ticket.instance_id = InstanceId::new(format!("i-{n}")).unwrap();
                ticket.spec.cpu = if n < unsuitable { 1 } else { 2 };
                ticket
            })
            .collect();
        plane.pool.send(&tickets, Duration::ZERO).await.unwrap();
        let pickup = pickup(&attempt, wanted);
        for _ in 0..wanted {
            pickup.next(&NEEDED).await.unwrap().expect("there are enough");
        }
        let found = memory.store.calls().get("agent_status").copied();
        assert_eq!(found, looks, "{label:?}, {unsuitable} and {suitable}, {wanted} wanted");
    }
}

#[tokio::test]
async fn a_ready_machine_goes_before_one_that_expires_later_unless_its_label_is_of_no_use() {
    let named = MachineLabel::new(format!("m{}", "8".repeat(32))).unwrap();
    for (second_choice, origin, named, expected) in [
        (false, Origin::Run, None, "i-3"),
        (true, Origin::Run, None, "i-3"),
        (false, Origin::Rescue, None, "i-4"),
        (true, Origin::Rescue, Some(named), "i-4"),
    ] {
        let (plane, memory) = testkit::plane();
        let mut request = Request { origin, named, ..request() };
        request.options.capacity_fallback = second_choice;
        let mut attempt = attempt(&plane, &request);
        attempt.settings.runner_label = RunnerLabel::Machine;
        let usage = if second_choice { UsageClass::OnDemand } else { UsageClass::Spot };
        let mut tickets =
            [("i-1", 300), ("i-2", 950), ("i-3", 600), ("i-4", 900)].map(|(id, seconds)| {
                let mut ticket = ticket(&plane, &request);
                ticket.instance_id = InstanceId::new(id).unwrap();
                ticket.threshold = plane.now() + Duration::from_secs(seconds);
                ticket.spec.usage_class = usage;
                ticket
            });
        // With an unsuitable one before them, the others are received together.
        tickets[0].spec.mem = 1;
        plane.pool.send(&tickets, Duration::ZERO).await.unwrap();
        let label = MachineLabel::new(format!("m{}", "7".repeat(32))).unwrap();
        for (id, generation) in [("i-3", 1), ("i-4", 0)] {
            let id = InstanceId::new(id).unwrap();
            let registration = IdleRegistration { generation, label: label.clone(), number: 1 };
            let readiness = Readiness::Ready(registration);
            let note = ReadinessNote { readiness, at: plane.now() };
            memory.store.note_readiness(&id, &note).await.unwrap();
            let beat = Heartbeat::new(plane.now(), Duration::from_secs(5));
            memory.store.beat(&id, &beat).await.unwrap();
        }
        let pickup = pickup(&attempt, 1);
        let found = pickup.next(&NEEDED).await.unwrap().unwrap();
        // That of i-2 has sent no heartbeat, and i-4 was ready in an earlier idle state.
        assert_eq!(found.idle.id().as_str(), expected, "{:?}", request.origin);
    }
}

#[tokio::test]
async fn a_worker_that_got_no_candidate_no_longer_counts() {
    let (plane, _) = testkit::plane();
    let request = request();
    let class = &request.options.class;
    plane.pool.send(&[ticket(&plane, &request)], Duration::ZERO).await.unwrap();
    let attempt = attempt(&plane, &request);
    let mut pickup = pickup(&attempt, 3);
    let first = pickup.next(&NEEDED).await.unwrap().expect("there is a ticket");
    for _ in 0..2 {
        assert!(pickup.next(&NEEDED).await.unwrap().is_none(), "there is only one");
    }
    let another = |id| Ticket { instance_id: id, ..ticket(&plane, &request) };
    let more = ["i-2", "i-3", "i-4"].map(|id| another(InstanceId::new(id).unwrap()));
    plane.pool.send(&more, Duration::ZERO).await.unwrap();
    delete(&mut pickup, &attempt, &first).await;
    pickup.ask_again().await;
    pickup.next(&NEEDED).await.unwrap().expect("there are three now");
    let depth = plane.pool.depth(class).await.unwrap();
    assert_eq!((depth.visible, depth.held), (2, 1), "one worker is left, and needs one");
}

#[tokio::test]
async fn a_worker_that_needs_none_any_more_leaves_tickets_to_others() {
    let (plane, memory) = testkit::plane();
    let request = request();
    plane.pool.send(&[ticket(&plane, &request)], Duration::ZERO).await.unwrap();
    let attempt = attempt(&plane, &request);
    let pickup = pickup(&attempt, 2);
    assert!(pickup.next(&AtomicBool::new(false)).await.unwrap().is_none());
    assert_eq!(memory.pool.calls().get("receive"), None);
    pickup.next(&NEEDED).await.unwrap().expect("the other worker still needs it");
}

#[tokio::test]
async fn a_ticket_stays_hidden_while_its_instance_is_being_claimed() {
    let (plane, memory) = testkit::plane();
    let request = request();
    plane.pool.send(&[ticket(&plane, &request)], Duration::ZERO).await.unwrap();
    let attempt = attempt(&plane, &request);
    let hold = attempt.times.ticket_hold;
    let mut pickup = pickup(&attempt, 1);
    let candidate = pickup.next(&NEEDED).await.unwrap().expect("there is a ticket");
    let slow_claim = async {
        plane.clock.sleep(hold * 3).await;
        plane.pool.depth(&request.options.class).await.unwrap()
    };
    let depth = pickup.holding(&candidate, slow_claim).await;
    assert_eq!((depth.visible, depth.held), (0, 1), "three holds later");
    assert!((5..=6).contains(&memory.pool.calls()["extend"]), "{:?}", memory.pool.calls());
    delete(&mut pickup, &attempt, &candidate).await;
    assert_eq!(plane.pool.depth(&request.options.class).await.unwrap().total(), 0);
}
