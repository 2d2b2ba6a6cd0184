//! Every answer of EC2, as each call reads it.

use super::answers::ImagesAnswer;
use super::*;
use crate::fuzzing::readable;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const SESSION: &str = "IQoJb3JpZ2luX2VjEXAMPLETOKEN==";

/// Reads an answer, and panics where that gives an error which is of no use or tells a secret.
pub fn ec2_answer(status: u16, body: &[u8]) {
    let keys = Credentials::new("AKIDEXAMPLE", SECRET, Some(SESSION.to_owned()), None, "test");
    hold(read::<Done>("TerminateInstances", status, body, &keys));
    hold(read::<FleetAnswer>("CreateFleet", status, body, &keys).map(|fleet| {
        fleet.instances.item.iter().for_each(|group| assert!(group.zone().len() <= body.len()));
        fleet.errors.item.iter().for_each(|error| assert!(error.place().len() <= 3 * body.len()));
    }));
    hold(read::<InstancesAnswer>("DescribeInstances", status, body, &keys).map(|page| {
        for instance in page.instances() {
            assert!(instance.tag("ondeck:pool").is_none_or(|tag| tag.len() <= 3 * body.len()));
            assert!(instance.cpu() == 0 || status < 300, "of nothing");
        }
    }));
    hold(read::<TemplateAnswer>("CreateLaunchTemplate", status, body, &keys));
    hold(read::<VersionAnswer>("CreateLaunchTemplateVersion", status, body, &keys));
    hold(read::<VersionsAnswer>("DescribeLaunchTemplateVersions", status, body, &keys));
    hold(read::<ImagesAnswer>("DescribeImages", status, body, &keys));
}

fn hold<T>(answer: Result<T, Failed>) {
    let Err(failed) = answer else { return };
    let shown = format!("{failed:?}");
    assert!(!shown.contains(SECRET) && !shown.contains(SESSION), "{shown}");
    if let Failed::Refused(refusal) = &failed {
        readable(&refusal.said());
    }
    let error = PortError::from(failed);
    assert!(error.to_string().starts_with("EC2 "), "{error}");
    readable(&error.to_string());
}
