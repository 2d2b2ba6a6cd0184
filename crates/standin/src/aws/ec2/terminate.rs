use crate::aws::params::Params;
use crate::aws::xml::Xml;

use super::Done;
use super::refusal::Refusal;
use super::state::{MachineState, State, is_id};

/// Terminates all of the machines. Fails, and terminates none, if an id is unknown or malformed.
pub(crate) fn terminate(state: &mut State, params: &Params) -> Result<Done, Refusal> {
    let ids = params.texts("InstanceId");
    if ids.is_empty() {
        return Err(Refusal::missing("InstanceId"));
    }
    all_known(state, &ids)?;
    let mut ending = Vec::new();
    let mut changes: Vec<(&str, MachineState, MachineState)> = Vec::new();
    for id in ids {
        let Some(instance) = state.find_mut(id) else { continue };
        let before = instance.machine.state;
        if instance.begin_termination("User initiated") {
            ending.push(id.to_owned());
        }
        changes.push((id, before, instance.machine.state));
    }
    let xml = Xml::answer("TerminateInstances", |xml| {
        xml.items("instancesSet", changes, |xml, (id, before, after)| {
            xml.text("instanceId", id);
            for (name, state) in [("currentState", after), ("previousState", before)] {
                xml.within(name, |xml| {
                    xml.text("code", state.code());
                    xml.text("name", state.name());
                });
            }
        });
    });
    Ok(Done { xml, launched: Vec::new(), ending })
}

/// Fails with all malformed ids or, if there are none, with all unknown ones.
pub(crate) fn all_known(state: &State, ids: &[&str]) -> Result<(), Refusal> {
    let of = |ids: &[&str]| ids.join(", ");
    let malformed: Vec<&str> = ids.iter().copied().filter(|id| !is_id("i-", id)).collect();
    match &malformed[..] {
        [] => {}
        [one] => {
            let message = format!("Invalid id: \"{one}\"");
            return Err(Refusal::new("InvalidInstanceID.Malformed", message));
        }
        many => {
            let message = format!("Invalid ids: \"{}\"", of(many));
            return Err(Refusal::new("InvalidInstanceID.Malformed", message));
        }
    }
    let unknown: Vec<&str> = ids.iter().copied().filter(|id| state.find(id).is_none()).collect();
    let message = match &unknown[..] {
        [] => return Ok(()),
        [one] => format!("The instance ID '{one}' does not exist"),
        many => format!("The instance IDs '{}' do not exist", of(many)),
    };
    Err(Refusal::new("InvalidInstanceID.NotFound", message))
}
