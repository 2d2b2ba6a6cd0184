//! The end of machines. EC2 ends all of a request or none: one among them that is unknown, or
//! protected by somebody, is one too many, and has to be found and left out.

use std::collections::BTreeSet;
use std::time::Instant;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{PortError, PortResult};

use super::fresh::Fresh;
use super::{filter, listing, pool_tag};
use crate::ec2::{Done, Ec2, Failed, Instance, Params, Query, Refusal};
use crate::error::{EC2, unavailable};
use crate::names::Names;

const ACTION: &str = "TerminateInstances";

/// How many machines are ended at once. EC2 takes twice as many, and advises against it.
const BATCH: usize = 500;
/// How many values one filter takes.
const FILTER: usize = 200;
/// How often to believe that a refusal names everything that is unknown. EC2 does so nearly
/// always; after that it is asked.
const BELIEVED: usize = 2;
/// How many machines of a batch may be protected from being ended. People do that to look into
/// one or two; EC2 names one at a time, and none of their zone ends while it is in the request.
const PROTECTED: usize = 10;

/// Ends what there is to end. What fails in one batch does not keep the next from being tried.
pub(super) async fn terminate(
    ec2: &Ec2,
    names: &Names,
    fresh: &Fresh,
    ids: &[InstanceId],
) -> PortResult<()> {
    let ids: Vec<&str> = ids.iter().map(InstanceId::as_str).filter(|id| is_ec2s(id)).collect();
    let mut outcome = Ok(());
    for batch in ids.chunks(BATCH) {
        if let Err(error) = end(ec2, names, fresh, batch.to_vec()).await {
            outcome = outcome.and(Err(error));
        }
    }
    outcome
}

async fn end(ec2: &Ec2, names: &Names, fresh: &Fresh, mut ids: Vec<&str>) -> PortResult<()> {
    let mut round = 0;
    let mut protected = Vec::new();
    let mut denied = None;
    let mut unheard_of = Vec::new();
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
            // Who may not list them either cannot know better than that.
            let Ok(sorted) = sorted(ec2, names, &ids).await else {
                return Err(refusal.into_error());
            };
            if sorted.ours.len() == ids.len() {
                return Err(refusal.into_error());
            }
            unheard_of.extend(sorted.unheard_of);
            if sorted.foreign {
                denied = Some(refusal);
            }
            rest = sorted.ours;
        } else if names_ids(&refusal) {
            if round >= BELIEVED || rest.len() == ids.len() {
                rest = known(ec2, &ids).await?;
            }
            if rest.len() == ids.len() {
                // One part of EC2 has heard of them, and another has not yet.
                return Err(unavailable(EC2, ACTION, &refusal.said()));
            }
            unheard_of.extend(ids.iter().copied().filter(|id| !rest.contains(id)));
            round += 1;
        } else {
            return Err(refusal.into_error());
        }
        ids = rest;
    }
    let now = Instant::now();
    unheard_of.retain(|id| fresh.has(id, now));
    if !unheard_of.is_empty() {
        let early = format!("launched, but not known yet: {}", unheard_of.join(", "));
        return Err(unavailable(EC2, ACTION, &early));
    }
    if let Some(refusal) = denied {
        return Err(refusal.into_error());
    }
    protected.into_iter().next().map_or(Ok(()), |refusal| Err(unprotect(&refusal)))
}

/// Those that EC2 has ever heard of.
async fn known<'a>(ec2: &Ec2, ids: &[&'a str]) -> PortResult<Vec<&'a str>> {
    let found = found(ec2, ids).await?;
    let known: BTreeSet<&str> = found.iter().map(|it| it.instance_id.as_str()).collect();
    Ok(ids.iter().copied().filter(|id| known.contains(*id)).collect())
}

/// What EC2 says of them. To ask by a filter is no error for those it has never heard of.
async fn found(ec2: &Ec2, ids: &[&str]) -> PortResult<Vec<Instance>> {
    let mut found = Vec::new();
    for some in ids.chunks(FILTER) {
        let params = Params::new().each("Filter", [filter("instance-id", some)]);
        found.extend(listing::pages(ec2, &params).await?);
    }
    Ok(found)
}

/// Machines of which one or the other may not be ended.
#[derive(Default)]
struct Sorted<'a> {
    /// Alive, and the pool's.
    ours: Vec<&'a str>,
    /// EC2 does not know them.
    unheard_of: Vec<&'a str>,
    /// Whether others are alive that are not the pool's.
    foreign: bool,
}

async fn sorted<'a>(ec2: &Ec2, names: &Names, ids: &[&'a str]) -> PortResult<Sorted<'a>> {
    let found = found(ec2, ids).await?;
    let mut sorted = Sorted::default();
    for id in ids {
        match found.iter().find(|instance| instance.instance_id == *id) {
            None => sorted.unheard_of.push(id),
            Some(instance) if !is_alive(instance) => {}
            Some(instance) if is_ours(names, instance) => sorted.ours.push(id),
            Some(_) => sorted.foreign = true,
        }
    }
    Ok(sorted)
}

/// Whether there is something to end. One that has ended is listed for an hour.
fn is_alive(instance: &Instance) -> bool {
    !matches!(instance.instance_state.name.as_str(), "shutting-down" | "terminated")
}

fn is_ours(names: &Names, instance: &Instance) -> bool {
    let (tag, pool) = pool_tag(names);
    instance.tag(tag) == Some(pool.as_str())
}

/// Whether it is a matter of permissions. Whoever may end only what carries the pool's tag is
/// denied one that is gone, for it carries nothing, and one that has ended, for it loses its tags
/// long before it is forgotten.
fn is_denial(refusal: &Refusal) -> bool {
    refusal.code == "UnauthorizedOperation"
}

/// Whether somebody has forbidden that a machine be ended.
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

/// The ids in `The instance IDs 'i-1, i-2' do not exist`, and in whatever else it may say.
fn named(message: &str) -> BTreeSet<&str> {
    message
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| word.starts_with("i-"))
        .collect()
}

/// Whether it is an id as EC2 gives them. Others were never EC2's to end.
fn is_ec2s(id: &str) -> bool {
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
    fn ids_have_a_shape() {
        for good in ["i-0123456789abcdef0", "i-89abcdef"] {
            assert!(is_ec2s(good), "{good}");
        }
        for bad in ["", "i-", "i-1", "i-0123456789abcdefg", "local-1", "i-0123456789ABCDEF0"] {
            assert!(!is_ec2s(bad), "{bad}");
        }
    }
}
