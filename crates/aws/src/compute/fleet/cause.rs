//! Why a launch failed, and the setting that helps.
//!
//! The codes are those of the EC2 API reference, "Error codes for the Amazon EC2 API".

use ondeck_core::ports::PortError;

use super::super::options::{
    AMI, GENERATIONS, KEY_NAME, PRICE_PROTECTION, PROFILE, SECURITY_GROUPS, SUBNETS, VOLUME_SIZE,
};
use super::super::template;
use super::ACTION;
use crate::error::EC2;
use crate::names::Names;

/// Error codes for missing capacity, in the region or in the quotas of the account.
pub(super) const CAPACITY: [&str; 13] = [
    "InsufficientCapacity",
    "InsufficientFreeAddressesInSubnet",
    "InsufficientHostCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientReservedInstanceCapacity",
    "InstanceLimitExceeded",
    "MaxFleetCountExceeded",
    "MaxSpotFleetRequestCountExceeded",
    "MaxSpotInstanceCountExceeded",
    "SpotMaxPriceTooLow",
    "UnfulfillableCapacity",
    "VcpuLimitExceeded",
    "VolumeLimitExceeded",
];

/// Error codes for resources of a launch that may have been deleted since refresh checked them, with
/// the settings that name them.
const GONE: [(&str, &str); 6] = [
    ("InvalidAMIID", AMI),
    ("InvalidGroup", SECURITY_GROUPS),
    ("InvalidKeyPair", KEY_NAME),
    ("InvalidSecurityGroup", SECURITY_GROUPS),
    ("InvalidSubnet", SUBNETS),
    ("InvalidSubnetID", SUBNETS),
];

/// What helps against missing capacity; `None` if EC2's own words are all that is known.
pub(super) fn remedy(code: &str, message: &str) -> Option<String> {
    if is_unmatched(code, message) {
        return Some(format!(
            "no type that runs the image of {AMI} fits resource-class-config, \
             allowed-instance-types, {GENERATIONS} and {PRICE_PROTECTION}"
        ));
    }
    let remedy = match code {
        "InsufficientCapacity"
        | "InsufficientHostCapacity"
        | "InsufficientInstanceCapacity"
        | "InsufficientReservedInstanceCapacity" => {
            format!("allow more types by allowed-instance-types, or more zones by {SUBNETS}")
        }
        "UnfulfillableCapacity" => format!(
            "allow more types by allowed-instance-types or {PRICE_PROTECTION}, or more zones by \
             {SUBNETS}"
        ),
        "InsufficientFreeAddressesInSubnet" => {
            format!("add subnets that have free addresses to {SUBNETS}")
        }
        "InstanceLimitExceeded" | "VcpuLimitExceeded" => {
            "raise the quota \"Running On-Demand instances\" of EC2 in Service Quotas, or limit \
             machines by max-machines"
                .to_owned()
        }
        "MaxSpotInstanceCountExceeded" => {
            "raise the quota \"All Standard Spot Instance Requests\" of EC2 in Service Quotas, or \
             use capacity-fallback"
                .to_owned()
        }
        "MaxFleetCountExceeded" | "MaxSpotFleetRequestCountExceeded" => {
            "raise the quota for fleets of EC2 in Service Quotas".to_owned()
        }
        "SpotMaxPriceTooLow" => "use capacity-fallback or usage-class on-demand".to_owned(),
        "VolumeLimitExceeded" => {
            format!("raise the storage quota of EBS in Service Quotas, or lower {VOLUME_SIZE}")
        }
        // The type is not offered in the zone.
        "Unsupported" => {
            format!("leave the type out of allowed-instance-types, or the zone out of {SUBNETS}")
        }
        "InvalidParameterValue" if message.contains("architecture") => {
            format!("allow types that run the image of {AMI} by allowed-instance-types")
        }
        _ => return None,
    };
    Some(remedy)
}

/// Whether neither waiting nor another instance type would help.
pub(super) fn is_for_a_person(code: &str, message: &str) -> bool {
    let kind = code.split('.').next().unwrap_or(code);
    template::is_gone(code)
        || GONE.iter().any(|(gone, _)| *gone == kind)
        || has_two_subnets_in_a_zone(kind, message)
        || is_about_root_device(kind, message)
        || matches!(kind, "UnauthorizedOperation" | "AuthFailure" | "InvalidBlockDeviceMapping")
        || matches!(kind, "Blocked" | "OptInRequired" | "PendingVerification")
        || is_about_profile(kind, message)
}

/// Whether no instance type meets the requirements. EC2 says so before it tries.
pub(super) fn is_unmatched(code: &str, message: &str) -> bool {
    code == "InvalidParameterValue" && message.contains("find any instance pools that match")
}

/// Whether the root volume of the launch template is not that of the image. The words are those that
/// hashicorp/packer#7802 quotes.
fn is_about_root_device(kind: &str, message: &str) -> bool {
    kind == "MissingParameter" && message.contains("size or snapshotId")
}

fn is_about_profile(kind: &str, message: &str) -> bool {
    kind == "InvalidParameterValue" && message.contains("iamInstanceProfile")
}

/// Whether two subnets are in the same zone. EC2 takes them for one pool that was given twice, and
/// reports that as duplicate pools or as overlapping requirements. Only EC2 knows the zones.
fn has_two_subnets_in_a_zone(kind: &str, message: &str) -> bool {
    (kind.starts_with("InvalidFleetConfig") && message.contains("duplicate instance pools"))
        || (kind == "InvalidParameterValue"
            && message.contains("InstanceRequirements")
            && message.contains("overlapping values"))
}

pub(super) fn for_a_person(names: &Names, code: &str, message: &str) -> PortError {
    if template::is_gone(code) {
        let what =
            format!("the launch template {} or its version is gone", names.launch_template());
        return PortError::NotSetUp { what };
    }
    let kind = code.split('.').next().unwrap_or(code);
    let gone = GONE.iter().find(|(gone, _)| *gone == kind).map(|(_, setting)| setting);
    let hint = match kind {
        "AuthFailure" if code.contains("ServiceLinkedRole") => {
            "have an administrator of the account run this once: \
             aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
                .to_owned()
        }
        // A fleet launches with the permissions of its caller.
        "AuthFailure" | "UnauthorizedOperation" => {
            "check the AWS credentials, and that they allow ec2:CreateFleet, ec2:RunInstances, \
             ec2:CreateTags and iam:PassRole"
                .to_owned()
        }
        "MissingParameter" if is_about_root_device(kind, message) => format!(
            "the image behind {AMI} has another root device than before: refresh finds that within an \
             hour, or at once if a setting changes"
        ),
        "InvalidBlockDeviceMapping" => {
            format!("run ondeck refresh with a {VOLUME_SIZE} that the snapshot of {AMI} fits into")
        }
        // An image of the AWS Marketplace, or a region that the account has not enabled.
        "OptInRequired" => format!(
            "accept the terms of the image of {AMI} in AWS Marketplace, or enable the region for the \
             account"
        ),
        "Blocked" | "PendingVerification" => {
            "wait until AWS has verified the account, or ask AWS Support".to_owned()
        }
        _ if has_two_subnets_in_a_zone(kind, message) => {
            format!("run ondeck refresh with no more than one of {SUBNETS} in each zone")
        }
        _ if is_about_profile(kind, message) => {
            format!("run ondeck refresh with an existing {PROFILE}")
        }
        _ => match gone {
            Some(setting) => format!("run ondeck refresh with existing {setting}"),
            None => {
                "run ondeck refresh with resources that exist: EC2 names the missing one".to_owned()
            }
        },
    };
    PortError::Unusable { service: EC2, reason: format!("{ACTION}: {code}: {message}"), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shortage_names_a_remedy() {
        for code in CAPACITY {
            assert!(remedy(code, "None left.").is_some(), "{code}");
        }
        assert_eq!(remedy("Unknown", "None left."), None);
    }

    #[test]
    fn a_missing_resource_names_its_setting() {
        let names = Names::of(&"acme/web".parse().unwrap());
        let profile = "Value (x) for parameter iamInstanceProfile.name is invalid.";
        for (code, message, hint) in [
            ("InvalidAMIID.NotFound", "", "run ondeck refresh with existing ami"),
            ("InvalidGroup.NotFound", "", "run ondeck refresh with existing security-group-ids"),
            ("InvalidKeyPair.NotFound", "", "run ondeck refresh with existing key-name"),
            ("InvalidSubnetID.NotFound", "", "run ondeck refresh with existing subnet-ids"),
            (
                "InvalidBlockDeviceMapping",
                "Volume of size 8GB is smaller than snapshot",
                "run ondeck refresh with a volume-size-gb that the snapshot of ami fits into",
            ),
            (
                "MissingParameter",
                "The request must contain the parameter size or snapshotId",
                "the image behind ami has another root device than before: refresh finds that within \
                 an hour, or at once if a setting changes",
            ),
            (
                "OptInRequired",
                "",
                "accept the terms of the image of ami in AWS Marketplace, or enable the region for \
                 the account",
            ),
            (
                "PendingVerification",
                "",
                "wait until AWS has verified the account, or ask AWS Support",
            ),
            (
                "InvalidParameterValue",
                profile,
                "run ondeck refresh with an existing iam-instance-profile",
            ),
        ] {
            assert!(is_for_a_person(code, message), "{code}");
            let error = for_a_person(&names, code, message);
            assert!(
                matches!(&error, PortError::Unusable { hint: given, .. } if given == hint),
                "{error:?}"
            );
        }
    }
}
