//! Terminating machines. EC2 terminates all machines of a request or none, so one that is unknown or
//! protected from termination has to be found and left out.

use std::collections::BTreeSet;
use std::time::Instant;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{PortError, PortResult};

use super::recent_launches::RecentLaunches;
use super::{filter, listing, pool_tag};
use crate::ec2::{Done, Ec2, Failed, Instance, Params, Query, Refusal};
use crate::error::{EC2, unavailable};
use crate::names::Names;

const ACTION: &str = "TerminateInstances";

/// Machines per request. EC2 accepts twice as many, and advises against it.
const BATCH: usize = 500;
/// The most values that one filter takes.
const FILTER: usize = 200;
/// How often to assume that a refusal names every unknown machine, as it nearly always does. After
/// that, EC2 is asked which it knows.
const BELIEVED: usize = 2;
/// How many machines of a batch may have termination protection. People switch it on to look into
/// one or two. EC2 names one at a time, and terminates none of its zone while it is in the request.
const PROTECTED: usize = 10;

/// Terminates these machines. A batch that fails does not keep the next from being tried; the first
/// error is returned.
pub(super) async fn terminate(
    ec2: &Ec2,
    names: &Names,
    recent: &RecentLaunches,
    ids: &[InstanceId],
) -> PortResult<()> {
    let ids: Vec<&str> = ids.iter().map(InstanceId::as_str).filter(|id| is_ec2_id(id)).collect();
    let mut outcome = Ok(());
    for batch in ids.chunks(BATCH) {
        if let Err(error) = terminate_batch(ec2, names, recent, batch.to_vec()).await {
            outcome = outcome.and(Err(error));
        }
    }
    outcome
}

async fn terminate_batch(
    ec2: &Ec2,
    names: &Names,
    recent: &RecentLaunches,
    mut ids: Vec<&str>,
) -> PortResult<()> {
    let mut round = 0;
    let mut protected = Vec::new();
    let mut denied = None;
    let mut unknown = Vec::new();
    while !ids.is_empty() {
        let query = Query::new(ACTION, Params::new().list("InstanceId", &ids));
        let refusal = match ec2.call::<Done>(&query).await {
            Ok(Done {}) => break,
            Err(Failed::Refused(refusal)) => refusal,
            Err(failed) => return Err(failed.into()),
        };
        let named = named(&refusal.message);
        let mut rest = ids.clone();
        rest.retain(|id| !named.contains(id));
        if is_protection(&refusal) && rest.len() < ids.len() && protected.len() < PROTECTED {
            protected.push(refusal);
        } else if is_denial(&refusal) {
            // Without the permission to list them, this refusal is all that is known.
            let Ok(sorted) = sorted(ec2, names, &ids).await else {
                return Err(refusal.into_error());
            };
            if sorted.of_pool.len() == ids.len() {
                return Err(refusal.into_error());
            }
            unknown.extend(sorted.unknown);
            if sorted.foreign {
                denied = Some(refusal);
            }
            rest = sorted.of_pool;
        } else if names_ids(&refusal) {
            if round >= BELIEVED || rest.len() == ids.len() {
                rest = known(ec2, &ids).await?;
            }
            if rest.len() == ids.len() {
                // One part of EC2 knows them, and another does not yet.
                return Err(unavailable(EC2, ACTION, &refusal.said()));
            }
            unknown.extend(ids.iter().copied().filter(|id| !rest.contains(id)));
            round += 1;
        } else {
            return Err(refusal.into_error());
        }
        ids = rest;
    }
    let now = Instant::now();
    unknown.retain(|id| recent.has(id, now));
    if !unknown.is_empty() {
        let early = format!("launched, but not known yet: {}", unknown.join(", "));
        return Err(unavailable(EC2, ACTION, &early));
    }
    if let Some(refusal) = denied {
        return Err(refusal.into_error());
    }
    protected.into_iter().next().map_or(Ok(()), |refusal| Err(unprotect(&refusal)))
}

/// The machines that EC2 knows, in any state.
async fn known<'a>(ec2: &Ec2, ids: &[&'a str]) -> PortResult<Vec<&'a str>> {
    let found = found(ec2, ids).await?;
    let known: BTreeSet<&str> = found.iter().map(|it| it.instance_id.as_str()).collect();
    Ok(ids.iter().copied().filter(|id| known.contains(*id)).collect())
}

/// What EC2 lists of these machines. A filter, unlike a list of ids, may name unknown ones.
async fn found(ec2: &Ec2, ids: &[&str]) -> PortResult<Vec<Instance>> {
    let mut found = Vec::new();
    for some in ids.chunks(FILTER) {
        let params = Params::new().each("Filter", [filter("instance-id", some)]);
        found.extend(listing::pages(ec2, &params).await?);
    }
    Ok(found)
}

/// The machines of a request that was denied, by what EC2 lists of them.
#[derive(Default)]
struct Sorted<'a> {
    /// Not terminated, and tagged with the pool.
    of_pool: Vec<&'a str>,
    unknown: Vec<&'a str>,
    /// Whether there are others that are not terminated and not tagged with the pool.
    foreign: bool,
}

async fn sorted<'a>(ec2: &Ec2, names: &Names, ids: &[&'a str]) -> PortResult<Sorted<'a>> {
    let found = found(ec2, ids).await?;
    let mut sorted = Sorted::default();
    for id in ids {
        match found.iter().find(|instance| instance.instance_id == *id) {
            None => sorted.unknown.push(id),
            Some(instance) if !is_alive(instance) => {}
            Some(instance) if is_of_pool(names, instance) => sorted.of_pool.push(id),
            Some(_) => sorted.foreign = true,
        }
    }
    Ok(sorted)
}

/// Whether it is still to be terminated. EC2 lists a terminated one for an hour.
fn is_alive(instance: &Instance) -> bool {
    !matches!(instance.instance_state.name.as_str(), "shutting-down" | "terminated")
}

fn is_of_pool(names: &Names, instance: &Instance) -> bool {
    let (tag, pool) = pool_tag(names);
    instance.tag(tag) == Some(pool.as_str())
}

/// Whether permissions are missing. A role that may terminate only machines with the pool's tag is
/// also denied a machine that does not exist, which has no tags, and a terminated one, which loses
/// its tags long before EC2 forgets it.
fn is_denial(refusal: &Refusal) -> bool {
    refusal.code == "UnauthorizedOperation"
}

/// Whether the machine has termination protection.
fn is_protection(refusal: &Refusal) -> bool {
    refusal.code == "OperationNotPermitted"
}

fn unprotect(refusal: &Refusal) -> PortError {
    PortError::Unusable {
        service: EC2,
        reason: refusal.said(),
        hint: "switch off the machine's termination protection, or shut it down from within"
            .to_owned(),
    }
}

fn names_ids(refusal: &Refusal) -> bool {
    matches!(refusal.code.as_str(), "InvalidInstanceID.NotFound" | "InvalidInstanceID.Malformed")
}

/// The instance ids in a message such as `The instance IDs 'i-1, i-2' do not exist`.
fn named(message: &str) -> BTreeSet<&str> {
    message
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| word.starts_with("i-"))
        .collect()
}

/// Whether it has the form of an EC2 instance id. EC2 has launched no machine with another.
fn is_ec2_id(id: &str) -> bool {
    let digits = |rest: &str| rest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    id.strip_prefix("i-").is_some_and(|rest| matches!(rest.len(), 8 | 17) && digits(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_one_or_many() {
        for (message, expected) in [
            ("The instance ID 'i-0f5d8ccc56c69fae4' does not exist", vec!["i-0f5d8ccc56c69fae4"]),
            (
                "The instance IDs 'i-0f5d8ccc56c69fae4, i-0eecca434287a1a33' do not exist",
                vec!["i-0eecca434287a1a33", "i-0f5d8ccc56c69fae4"],
            ),
            ("Invalid id: \"i-12\" (expecting \"i-...\")", vec!["i-", "i-12"]),
            ("", vec![]),
        ] {
            assert_eq!(named(message).into_iter().collect::<Vec<_>>(), expected, "{message}");
        }
    }

    #[test]
    fn only_ec2_instance_ids_are_recognised() {
        for good in ["i-0123456789abcdef0", "i-89abcdef"] {
            assert!(is_ec2_id(good), "{good}");
        }
        for bad in ["", "i-", "i-1", "i-0123456789abcdefg", "local-1", "i-0123456789ABCDEF0"] {
            assert!(!is_ec2_id(bad), "{bad}");
        }
    }
}
