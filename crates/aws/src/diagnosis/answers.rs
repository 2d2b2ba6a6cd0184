//! Answers of EC2, IAM and STS, with the fields that doctor asks about. The names are those of the API
//! references. A field that is missing is empty.

use serde::Deserialize;

use crate::ec2::Set;

/// The answer of `DescribeImages`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ImagesAnswer {
    #[serde(rename = "imagesSet")]
    pub(super) images: Set<Image>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Image {
    pub(super) image_state: String,
    pub(super) architecture: String,
    pub(super) creation_date: String,
    pub(super) deprecation_time: String,
}

/// One page of the answer of `DescribeSubnets`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SubnetsAnswer {
    #[serde(rename = "subnetSet")]
    pub(super) subnets: Set<Subnet>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Subnet {
    pub(super) subnet_id: String,
    pub(super) vpc_id: String,
    pub(super) availability_zone: String,
    pub(super) available_ip_address_count: u32,
    pub(super) map_public_ip_on_launch: bool,
}

/// One page of the answer of `DescribeRouteTables`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RouteTablesAnswer {
    #[serde(rename = "routeTableSet")]
    pub(super) tables: Set<RouteTable>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RouteTable {
    pub(super) vpc_id: String,
    pub(super) route_set: Set<Route>,
    pub(super) association_set: Set<Association>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Association {
    pub(super) subnet_id: String,
    pub(super) main: bool,
}

/// A route has one target, of many kinds.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Route {
    pub(super) destination_cidr_block: String,
    pub(super) state: String,
    pub(super) gateway_id: String,
    pub(super) nat_gateway_id: String,
    pub(super) transit_gateway_id: String,
    pub(super) network_interface_id: String,
    pub(super) vpc_peering_connection_id: String,
}

/// One page of the answer of `DescribeSecurityGroups`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GroupsAnswer {
    #[serde(rename = "securityGroupInfo")]
    pub(super) groups: Set<Group>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Group {
    pub(super) group_id: String,
    pub(super) vpc_id: String,
    pub(super) ip_permissions: Set<Rule>,
    pub(super) ip_permissions_egress: Set<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    /// `-1` for every protocol.
    pub(super) ip_protocol: String,
    /// Left out for every port.
    pub(super) from_port: Option<i32>,
    pub(super) to_port: Option<i32>,
    pub(super) ip_ranges: Set<Range>,
    pub(super) ipv6_ranges: Set<Range>,
    pub(super) prefix_list_ids: Set<PrefixList>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Range {
    pub(super) cidr_ip: String,
    pub(super) cidr_ipv6: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PrefixList {
    pub(super) prefix_list_id: String,
}

/// The answer of `GetCallerIdentity` of STS.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CallerAnswer {
    #[serde(rename = "GetCallerIdentityResult")]
    pub(super) result: Caller,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Caller {
    pub(super) arn: String,
}

/// The answer of `GetInstanceProfile` of IAM.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ProfileAnswer {
    #[serde(rename = "GetInstanceProfileResult")]
    result: ProfileResult,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProfileResult {
    instance_profile: Profile,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Profile {
    roles: Roles,
}

/// The lists of IAM have members, those of EC2 have items.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Roles {
    member: Vec<Role>,
}

#[derive(Debug, Default, Deserialize)]
struct Role {}

impl ProfileAnswer {
    pub(super) fn has_role(&self) -> bool {
        !self.result.instance_profile.roles.member.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_without_a_role_is_told_from_one_with_it() {
        let answer = |roles: &str| {
            let text = format!(
                r#"<GetInstanceProfileResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">
                <GetInstanceProfileResult><InstanceProfile>
                <InstanceProfileName>m</InstanceProfileName>{roles}</InstanceProfile>
                </GetInstanceProfileResult></GetInstanceProfileResponse>"#
            );
            quick_xml::de::from_str::<ProfileAnswer>(&text).unwrap().has_role()
        };
        assert!(answer("<Roles><member><RoleName>m</RoleName></member></Roles>"));
        assert!(!answer("<Roles/>"));
    }

    #[test]
    fn the_caller_is_read() {
        let text = r#"<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
            <GetCallerIdentityResult><Arn>arn:aws:iam::1:user/a</Arn><UserId>U</UserId>
            <Account>1</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"#;
        let answer: CallerAnswer = quick_xml::de::from_str(text).unwrap();
        assert_eq!(answer.result.arn, "arn:aws:iam::1:user/a");
    }
}
