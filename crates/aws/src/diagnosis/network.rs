//! Subnets, their routes, and security groups.

use std::collections::BTreeSet;
use std::fmt::Display;

use ondeck_core::modes::doctor::facts::{
    FoundGroup, FoundSubnet, OpenPort, Route, SecurityGroup, Subnet, Told,
};

use super::answers::{
    self, Group, GroupsAnswer, RouteTable, RouteTablesAnswer, Rule, SubnetsAnswer,
};
use super::untold;
use crate::compute::filter;
use crate::ec2::{Ec2, Failed, Params, Query};

/// The destination of a default route.
const ANYWHERE: &str = "0.0.0.0/0";
const ANYWHERE_IPV6: &str = "::/0";
const HTTPS: i32 = 443;

/// Each of these subnets. They are asked for by a filter, which leaves out those that do not exist; a
/// request that named them would fail as a whole.
pub(super) async fn subnets(ec2: &Ec2, ids: &[String]) -> Told<Vec<Subnet>> {
    let query = filtered("DescribeSubnets", "subnet-id", ids);
    let found = match ec2.call::<SubnetsAnswer>(&query).await {
        Ok(answer) => answer.subnets.item,
        Err(failed) => return untold("ec2:DescribeSubnets", failed),
    };
    let tables = tables(ec2, &found).await;
    let subnet = |id: &String| {
        let found = found.iter().find(|it| it.subnet_id == *id);
        let found = found.map(|it| FoundSubnet {
            network: it.vpc_id.clone(),
            zone: it.availability_zone.clone(),
            free_addresses: it.available_ip_address_count,
            gives_public_addresses: it.map_public_ip_on_launch,
            route: match &tables {
                Ok(tables) => Told::Known(route(tables, it)),
                Err(needs) => Told::Untold(needs.clone()),
            },
        });
        Subnet { id: id.clone(), found }
    };
    Told::Known(ids.iter().map(subnet).collect())
}

/// The route tables of these subnets, and the main ones of their networks. Fails with what is needed.
async fn tables(ec2: &Ec2, subnets: &[answers::Subnet]) -> Result<Vec<RouteTable>, String> {
    const ACTION: &str = "DescribeRouteTables";
    if subnets.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<&str> = subnets.iter().map(|it| it.subnet_id.as_str()).collect();
    let networks: BTreeSet<&str> = subnets.iter().map(|it| it.vpc_id.as_str()).collect();
    let main = [filter("vpc-id", networks), filter("association.main", ["true"])];
    let queries = [
        filtered(ACTION, "association.subnet-id", &ids),
        Query::new(ACTION, Params::new().each("Filter", main)),
    ];
    let mut tables = Vec::new();
    for query in &queries {
        let answer = ec2.call::<RouteTablesAnswer>(query).await;
        let needs = |failed: Failed| match untold::<()>("ec2:DescribeRouteTables", failed) {
            Told::Untold(needs) => needs,
            _ => String::new(),
        };
        tables.extend(answer.map_err(needs)?.tables.item);
    }
    Ok(tables)
}

/// Where packets from a subnet to any address go. A subnet without a table of its own has the main one
/// of its network: Amazon VPC User Guide, "Subnet route tables".
fn route(tables: &[RouteTable], subnet: &answers::Subnet) -> Route {
    let is_own = |table: &&RouteTable| {
        table.association_set.item.iter().any(|it| it.subnet_id == subnet.subnet_id)
    };
    let is_main = |table: &&RouteTable| {
        table.vpc_id == subnet.vpc_id && table.association_set.item.iter().any(|it| it.main)
    };
    let table = tables.iter().find(is_own).or_else(|| tables.iter().find(is_main));
    let routes = table.map(|table| table.route_set.item.as_slice()).unwrap_or_default();
    let Some(default) = routes.iter().find(|it| it.destination_cidr_block == ANYWHERE) else {
        return Route::Missing;
    };
    if default.state == "blackhole" {
        let targets = [
            &default.gateway_id,
            &default.nat_gateway_id,
            &default.transit_gateway_id,
            &default.network_interface_id,
            &default.vpc_peering_connection_id,
        ];
        let target = targets.into_iter().find(|id| !id.is_empty());
        return Route::Broken(target.cloned().unwrap_or_default());
    }
    if default.gateway_id.starts_with("igw-") { Route::Gateway } else { Route::Relay }
}

/// Each of these security groups.
pub(super) async fn groups(ec2: &Ec2, ids: &[String]) -> Told<Vec<SecurityGroup>> {
    if ids.is_empty() {
        return Told::Nothing;
    }
    let query = filtered("DescribeSecurityGroups", "group-id", ids);
    let found = match ec2.call::<GroupsAnswer>(&query).await {
        Ok(answer) => answer.groups.item,
        Err(failed) => return untold("ec2:DescribeSecurityGroups", failed),
    };
    let group = |id: &String| {
        let found = found.iter().find(|it| it.group_id == *id).map(found_group);
        SecurityGroup { id: id.clone(), found }
    };
    Told::Known(ids.iter().map(group).collect())
}

fn found_group(group: &Group) -> FoundGroup {
    let is_open = |rule: &&Rule| {
        rule.ip_ranges.item.iter().any(|it| it.cidr_ip == ANYWHERE)
            || rule.ipv6_ranges.item.iter().any(|it| it.cidr_ipv6 == ANYWHERE_IPV6)
    };
    let leads_out = |rule: &&Rule| {
        let has_prefix = rule.prefix_list_ids.item.iter().any(|it| !it.prefix_list_id.is_empty());
        !rule.ip_ranges.item.is_empty() || !rule.ipv6_ranges.item.is_empty() || has_prefix
    };
    let mut egress = group.ip_permissions_egress.item.iter().filter(leads_out);
    FoundGroup {
        network: group.vpc_id.clone(),
        admits_https: egress.any(|rule| rule.covers("tcp", HTTPS)),
        open_to_all: group
            .ip_permissions
            .item
            .iter()
            .filter(is_open)
            .map(Rule::open_port)
            .collect(),
    }
}

impl Rule {
    /// Whether it is about a port of a protocol, among others.
    fn covers(&self, protocol: &str, port: i32) -> bool {
        let has_port = match (self.from_port, self.to_port) {
            (Some(from), Some(to)) => (from..=to).contains(&port),
            _ => true,
        };
        self.ip_protocol == "-1" || (self.ip_protocol == protocol && has_port)
    }

    /// What every address may reach by this rule, of one that admits some.
    fn open_port(&self) -> OpenPort {
        let mut parts = vec![format!("IpProtocol={}", self.ip_protocol)];
        if let (Some(from), Some(to)) = (self.from_port, self.to_port) {
            parts.push(format!("FromPort={from},ToPort={to}"));
        }
        if self.ip_ranges.item.iter().any(|it| it.cidr_ip == ANYWHERE) {
            parts.push(format!("IpRanges=[{{CidrIp={ANYWHERE}}}]"));
        }
        if self.ipv6_ranges.item.iter().any(|it| it.cidr_ipv6 == ANYWHERE_IPV6) {
            parts.push(format!("Ipv6Ranges=[{{CidrIpv6={ANYWHERE_IPV6}}}]"));
        }
        OpenPort { words: self.words(), rule: parts.join(",") }
    }

    fn words(&self) -> String {
        let protocol = if self.ip_protocol == "-1" { "everything" } else { &self.ip_protocol };
        match (self.from_port, self.to_port) {
            (Some(from), Some(to)) if from == to && from >= 0 => format!("{protocol} {from}"),
            (Some(from), Some(to)) if from >= 0 => format!("{protocol} {from}-{to}"),
            _ => protocol.to_owned(),
        }
    }
}

fn filtered<T: Display>(
    action: &'static str,
    name: &str,
    values: impl IntoIterator<Item = T>,
) -> Query {
    Query::new(action, Params::new().each("Filter", [filter(name, values)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> RouteTable {
        quick_xml::de::from_str(&format!("<item>{text}</item>")).unwrap()
    }

    #[test]
    fn a_subnet_without_a_table_has_the_main_one_of_its_network() {
        let to = |target: &str| {
            format!(
                "<routeSet><item><destinationCidrBlock>10.0.0.0/16</destinationCidrBlock>
                 <gatewayId>local</gatewayId><state>active</state></item>
                 <item><destinationCidrBlock>0.0.0.0/0</destinationCidrBlock>{target}</item>
                 </routeSet>"
            )
        };
        let main = |route: &str| {
            table(&format!(
                "<vpcId>vpc-1</vpcId>{route}
                 <associationSet><item><main>true</main></item></associationSet>"
            ))
        };
        let own = |route: &str| {
            table(&format!(
                "<vpcId>vpc-1</vpcId>{route}<associationSet><item><subnetId>subnet-1</subnetId>
                 <main>false</main></item></associationSet>"
            ))
        };
        let subnet = answers::Subnet {
            subnet_id: "subnet-1".to_owned(),
            vpc_id: "vpc-1".to_owned(),
            ..answers::Subnet::default()
        };
        let internet = to("<gatewayId>igw-1</gatewayId><state>active</state>");
        let nat = to("<natGatewayId>nat-1</natGatewayId><state>active</state>");
        let gone = to("<natGatewayId>nat-1</natGatewayId><state>blackhole</state>");
        for (tables, expected) in [
            (vec![main(&internet)], Route::Gateway),
            (vec![main(&internet), own(&nat)], Route::Relay),
            (vec![own(&gone), main(&internet)], Route::Broken("nat-1".to_owned())),
            (vec![own("<routeSet/>"), main(&internet)], Route::Missing),
            (vec![], Route::Missing),
            (vec![RouteTable { vpc_id: "vpc-2".to_owned(), ..main(&internet) }], Route::Missing),
        ] {
            assert_eq!(route(&tables, &subnet), expected);
        }
    }

    #[test]
    fn rules_are_read_by_port_and_target() {
        let group = |ingress: &str, egress: &str| {
            let text = format!(
                "<item><groupId>sg-1</groupId><vpcId>vpc-1</vpcId>
                 <ipPermissions>{ingress}</ipPermissions>
                 <ipPermissionsEgress>{egress}</ipPermissionsEgress></item>"
            );
            found_group(&quick_xml::de::from_str(&text).unwrap())
        };
        let rule = |protocol: &str, ports: &str, targets: &str| {
            format!("<item><ipProtocol>{protocol}</ipProtocol>{ports}{targets}</item>")
        };
        let ports =
            |from: i32, to: i32| format!("<fromPort>{from}</fromPort><toPort>{to}</toPort>");
        let all = "<ipRanges><item><cidrIp>0.0.0.0/0</cidrIp></item></ipRanges>";
        let all_ipv6 = "<ipv6Ranges><item><cidrIpv6>::/0</cidrIpv6></item></ipv6Ranges>";
        let own = "<groups><item><groupId>sg-1</groupId></item></groups>";
        let list = "<prefixListIds><item><prefixListId>pl-1</prefixListId></item></prefixListIds>";
        for (egress, admits) in [
            (rule("-1", "", all), true),
            (rule("tcp", &ports(443, 443), list), true),
            (rule("tcp", &ports(80, 442), all), false),
            (rule("udp", &ports(0, 65_535), all), false),
            (rule("-1", "", own), false),
            (String::new(), false),
        ] {
            assert_eq!(group("", &egress).admits_https, admits, "{egress}");
        }
        for (ingress, open) in [
            (rule("tcp", &ports(22, 22), all), &["tcp 22"][..]),
            (rule("-1", "", all_ipv6), &["everything"]),
            (rule("tcp", &ports(8_000, 8_100), all), &["tcp 8000-8100"]),
            (rule("tcp", &ports(22, 22), own), &[]),
            (String::new(), &[]),
        ] {
            let found = group(&ingress, "").open_to_all;
            let words: Vec<&str> = found.iter().map(|it| it.words.as_str()).collect();
            assert_eq!(words, open, "{ingress}");
        }
        for (ingress, expected) in [
            (
                rule("tcp", &ports(22, 22), all),
                "IpProtocol=tcp,FromPort=22,ToPort=22,IpRanges=[{CidrIp=0.0.0.0/0}]",
            ),
            (rule("-1", "", all_ipv6), "IpProtocol=-1,Ipv6Ranges=[{CidrIpv6=::/0}]"),
        ] {
            assert_eq!(group(&ingress, "").open_to_all[0].rule, expected);
        }
    }
}
