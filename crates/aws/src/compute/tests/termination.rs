use super::*;

const ENDED: &str = "<TerminateInstancesResponse><instancesSet/></TerminateInstancesResponse>";

fn unknown(names: &str) -> Reply {
    let message = format!("The instance IDs '{names}' do not exist");
    Reply::Say(400, error("InvalidInstanceID.NotFound", &message))
}

#[tokio::test]
async fn machines_are_terminated_in_batches_without_foreign_ids() {
    let server = Loopback::saying([ENDED, ENDED, ENDED].map(str::to_owned)).await;
    let mut ids: Vec<InstanceId> = (0..1_001).map(id).collect();
    ids.push(InstanceId::new("local-1").unwrap());
    compute(&server).terminate(&ids).await.unwrap();
    models::check(&server.asked());
    let counts: Vec<usize> = server.asked().iter().map(|asked| asked.params().len() - 2).collect();
    assert_eq!(counts, [500, 500, 1]);
    let server = Loopback::replying([]).await;
    compute(&server).terminate(&[InstanceId::new("local-1").unwrap()]).await.unwrap();
    assert!(server.asked().is_empty(), "no request for no machines");
}

#[tokio::test]
async fn unknown_machines_are_left_out_together() {
    let (first, second) = (id(1), id(2));
    let named = unknown(&format!("{first}, {second}"));
    let server = Loopback::replying([named, Reply::Say(200, ENDED.to_owned())]).await;
    compute(&server).terminate(&[id(0), first, second, id(3)]).await.unwrap();
    let again = &server.asked()[1];
    assert_eq!(again.param("InstanceId.1"), id(0).as_str());
    assert_eq!(again.param("InstanceId.2"), id(3).as_str());
    assert_eq!(again.param("InstanceId.3"), "");
}

#[tokio::test]
async fn many_unknown_machines_do_not_cost_a_call_each() {
    let known = "<DescribeInstancesResponse><reservationSet><item><instancesSet><item>\
                 <instanceId>i-00000000000000009</instanceId></item></instancesSet></item>\
                 </reservationSet></DescribeInstancesResponse>";
    let server = Loopback::replying([
        unknown(id(0).as_str()),
        unknown(id(1).as_str()),
        unknown(id(2).as_str()),
        Reply::Say(200, known.to_owned()),
        Reply::Say(200, ENDED.to_owned()),
    ])
    .await;
    let ids: Vec<InstanceId> = (0..100).map(id).collect();
    compute(&server).terminate(&ids).await.unwrap();
    models::check(&server.asked());
    assert_eq!(server.actions()[3..], ["DescribeInstances", "TerminateInstances"]);
    let last = &server.asked()[4];
    assert_eq!((last.param("InstanceId.1").as_str(), last.params().len()), (id(9).as_str(), 3));
}

fn protected(id: &InstanceId) -> Reply {
    let message = format!(
        "The instance '{id}' may not be terminated. Modify its 'disableApiTermination' instance \
         attribute and try again."
    );
    Reply::Say(400, error("OperationNotPermitted", &message))
}

#[tokio::test]
async fn a_protected_machine_does_not_keep_others_alive() {
    let server = Loopback::replying([
        protected(&id(1)),
        unknown(id(2).as_str()),
        protected(&id(3)),
        Reply::Say(200, ENDED.to_owned()),
    ])
    .await;
    let ids: Vec<InstanceId> = (0..5).map(id).collect();
    let failed = compute(&server).terminate(&ids).await.unwrap_err();
    let PortError::Unusable { reason, hint, .. } = failed else { panic!("{failed}") };
    assert!(reason.contains(id(1).as_str()), "{reason}");
    assert!(hint.contains("termination protection"), "{hint}");
    let last = &server.asked()[3];
    assert_eq!(last.param("InstanceId.1"), id(0).as_str());
    assert_eq!(last.param("InstanceId.2"), id(4).as_str());
    assert_eq!(last.param("InstanceId.3"), "");
}

#[tokio::test]
async fn protected_machines_do_not_cost_a_call_each() {
    let server = Loopback::replying((0..50).map(|n| protected(&id(n)))).await;
    let ids: Vec<InstanceId> = (0..50).map(id).collect();
    compute(&server).terminate(&ids).await.unwrap_err();
    assert_eq!(server.asked().len(), 11);
}

#[tokio::test]
async fn unknown_machines_count_as_terminated() {
    let nothing = "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>";
    let nameless = Reply::Say(400, error("InvalidInstanceID.NotFound", "Some do not exist."));
    let server = Loopback::replying([nameless, Reply::Say(200, nothing.to_owned())]).await;
    compute(&server).terminate(&[id(1), id(2)]).await.unwrap();
    assert_eq!(server.asked().len(), 2);
    let server = Loopback::replying([unknown(id(1).as_str())]).await;
    compute(&server).terminate(&[id(1)]).await.unwrap();
    assert_eq!(server.asked().len(), 1);
}

/// Machines of the pool that run.
fn listed(ids: &[InstanceId]) -> Reply {
    let of: Vec<_> = ids.iter().map(|id| (id.clone(), "running", "acme/web")).collect();
    described(&of)
}

/// Machines, each with its state and with what the tag of its pool says, if it has one.
fn described(machines: &[(InstanceId, &str, &str)]) -> Reply {
    let item = |(id, state, pool): &(InstanceId, &str, &str)| {
        let tag = format!("<item><key>ondeck:pool</key><value>{pool}</value></item>");
        let tag = if pool.is_empty() { "" } else { &tag };
        format!(
            "<item><instanceId>{id}</instanceId><instanceState><name>{state}</name>\
             </instanceState><tagSet>{tag}</tagSet></item>"
        )
    };
    let items: String = machines.iter().map(item).collect();
    let body = format!(
        "<DescribeInstancesResponse><reservationSet><item><instancesSet>{items}</instancesSet>\
         </item></reservationSet></DescribeInstancesResponse>"
    );
    Reply::Say(200, body)
}

fn denied() -> Reply {
    Reply::Say(403, error("UnauthorizedOperation", "You are not authorized."))
}

#[tokio::test]
async fn a_denial_for_a_missing_machine_does_not_keep_others_alive() {
    let server =
        Loopback::replying([denied(), listed(&[id(1)]), Reply::Say(200, ENDED.to_owned())]).await;
    compute(&server).terminate(&[id(1), id(2)]).await.unwrap();
    let last = &server.asked()[2];
    assert_eq!(
        (last.param("InstanceId.1"), last.param("InstanceId.2")),
        (id(1).to_string(), String::new())
    );
    let server = Loopback::replying([denied(), listed(&[])]).await;
    compute(&server).terminate(&[id(1)]).await.unwrap();

    for says in [listed(&[id(1)]), denied()] {
        let server = Loopback::replying([denied(), says]).await;
        let failed = compute(&server).terminate(&[id(1)]).await.unwrap_err();
        let PortError::Unusable { hint, .. } = failed else { panic!("{failed}") };
        assert!(hint.ends_with("allow ec2:TerminateInstances"), "{hint}");
        assert_eq!(server.actions(), ["TerminateInstances", "DescribeInstances"]);
    }
}

#[tokio::test]
async fn a_denial_for_a_terminated_machine_does_not_keep_others_alive() {
    let ended = || Reply::Say(200, ENDED.to_owned());
    let machines = [
        (id(1), "terminated", ""),
        (id(2), "running", "acme/web"),
        (id(3), "shutting-down", ""),
        (id(4), "stopped", "acme/web"),
    ];
    let server = Loopback::replying([denied(), described(&machines), ended()]).await;
    compute(&server).terminate(&[1, 2, 3, 4].map(id)).await.unwrap();
    models::check(&server.asked());
    let last = &server.asked()[2];
    let asked = [1, 2, 3].map(|n| last.param(&format!("InstanceId.{n}")));
    assert_eq!(asked, [id(2).to_string(), id(4).to_string(), String::new()]);

    let server = Loopback::replying([denied(), described(&machines[..1])]).await;
    compute(&server).terminate(&[id(1)]).await.unwrap();
    assert_eq!(server.asked().len(), 2, "there is nothing left to end");

    // One that lives and is not the pool's is no reason to spare the others, nor to be silent.
    for foreign in ["", "acme/other"] {
        let machines = [(id(1), "running", foreign), (id(2), "running", "acme/web")];
        let server = Loopback::replying([denied(), described(&machines), ended()]).await;
        let failed = compute(&server).terminate(&[id(1), id(2)]).await.unwrap_err();
        let PortError::Unusable { hint, .. } = failed else { panic!("{failed}") };
        assert!(hint.ends_with("allow ec2:TerminateInstances"), "{hint}");
        let last = &server.asked()[2];
        let asked = [1, 2].map(|n| last.param(&format!("InstanceId.{n}")));
        assert_eq!(asked, [id(2).to_string(), String::new()]);
    }
}

/// A process that has just launched the first machine, and what it is told from there on.
async fn having_launched(replies: impl IntoIterator<Item = Reply>) -> (Loopback, Ec2Compute) {
    let launched = "<CreateFleetResponse><fleetInstanceSet><item><lifecycle>spot</lifecycle>\
                    <instanceIds><item>i-00000000000000001</item></instanceIds>\
                    <instanceType>c6i.large</instanceType></item></fleetInstanceSet>\
                    </CreateFleetResponse>";
    let launched = Reply::Say(200, launched.to_owned());
    let server = Loopback::replying([launched].into_iter().chain(replies)).await;
    let compute = Ec2Compute::new(&server.cloud());
    compute.launch(&order(), &settings(&[])).await.unwrap();
    (server, compute)
}

#[tokio::test]
async fn termination_of_a_new_machine_is_retried_until_it_is_listed() {
    let ended = described(&[(id(1), "terminated", "")]);
    let (server, compute) = having_launched([denied(), described(&[]), denied(), ended]).await;
    let failed = compute.terminate(&[id(1)]).await.unwrap_err();
    assert!(matches!(failed, PortError::Unavailable { .. }), "{failed}");
    compute.terminate(&[id(1)]).await.unwrap();
    assert_eq!(server.asked().len(), 5);
}

#[tokio::test]
async fn a_machine_that_ec2_does_not_know_yet_is_not_taken_for_gone() {
    let both = unknown(&format!("{}, {}", id(1), id(2)));
    let replies = [both, unknown(id(2).as_str()), Reply::Say(200, ENDED.to_owned())];
    let (server, compute) = having_launched(replies).await;
    let failed = compute.terminate(&[id(1), id(2)]).await.unwrap_err();
    let PortError::Unavailable { reason, .. } = failed else { panic!("{failed}") };
    assert_eq!(
        reason,
        format!("TerminateInstances: launched, but not known yet: {}", id(1)),
        "the other one was not launched here and may well be gone"
    );
    compute.terminate(&[id(1), id(2)]).await.unwrap();
    assert_eq!(server.asked().len(), 4);
}

#[tokio::test]
async fn what_only_a_part_of_ec2_knows_is_tried_again() {
    let nameless = Reply::Say(400, error("InvalidInstanceID.NotFound", "Some do not exist."));
    let server = Loopback::replying([nameless, listed(&[id(1)])]).await;
    let failed = compute(&server).terminate(&[id(1)]).await.unwrap_err();
    assert!(matches!(failed, PortError::Unavailable { .. }), "{failed}");
}

#[tokio::test]
async fn a_batch_that_fails_does_not_keep_the_next_from_being_tried() {
    let server = Loopback::replying([
        Reply::Say(503, error("RequestLimitExceeded", "Too many.")),
        Reply::Say(200, ENDED.to_owned()),
    ])
    .await;
    let ids: Vec<InstanceId> = (0..600).map(id).collect();
    let failed = compute(&server).terminate(&ids).await.unwrap_err();
    assert!(matches!(failed, PortError::Unavailable { .. }), "{failed}");
    assert_eq!(server.asked().len(), 2);
}
