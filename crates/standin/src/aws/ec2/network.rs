//! DescribeSubnets, DescribeRouteTables and DescribeSecurityGroups. All subnets are in one VPC, whose
//! main route table leads to the internet. Every security group exists.

use std::collections::BTreeMap;

use crate::aws::params::Params;
use crate::aws::xml::Xml;

use super::refusal::Refusal;
use super::state::{State, Surroundings};

const VPC: &str = "vpc-0123456789abcdef0";
const OTHER_VPC: &str = "vpc-0fedcba9876543210";
const FREE_ADDRESSES: u32 = 251;

/// What is wrong with a subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubnetFault {
    Deleted,
    /// It is in the availability zone of another one.
    Zone(String),
    FreeAddresses(u32),
    /// Its machines get no public addresses.
    Private,
    /// Its own route table has no default route.
    NoDefaultRoute,
    /// The default route of its own route table leads to a NAT gateway that is gone.
    BlackHole,
    /// The default route of its own route table leads to a NAT gateway, and its machines get no public
    /// addresses. That is no fault.
    Nat,
}

/// What is wrong with a security group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupFault {
    Deleted,
    /// It belongs to another VPC than the subnets.
    OtherNetwork,
    /// It has no rule for outgoing connections.
    NoEgress,
    /// Every address may connect to this port.
    OpenPort(u16),
}

/// The faults of the network, by the id of the subnet or group.
#[derive(Debug, Default)]
pub(crate) struct NetworkFaults {
    pub(crate) subnets: BTreeMap<String, SubnetFault>,
    pub(crate) groups: BTreeMap<String, GroupFault>,
}

pub(crate) fn subnets(
    state: &State,
    around: &Surroundings,
    params: &Params,
) -> Result<String, Refusal> {
    let filters = filters(params, &["subnet-id"])?;
    let ids = values(&filters, "subnet-id");
    let faults = &state.network.subnets;
    let exists = |id: &&&str| {
        let is_known = around.subnets.is_empty() || around.subnets.contains_key(**id);
        is_known && faults.get(**id) != Some(&SubnetFault::Deleted)
    };
    let found: Vec<&str> = ids.iter().filter(exists).copied().collect();
    Ok(Xml::answer("DescribeSubnets", |xml| {
        xml.items("subnetSet", found, |xml, id| {
            let fault = faults.get(id);
            let zone = around.zone(Some(id)).unwrap_or_default();
            let zone = match fault {
                Some(SubnetFault::Zone(zone)) => zone.clone(),
                _ => zone,
            };
            let free = match fault {
                Some(SubnetFault::FreeAddresses(free)) => *free,
                _ => FREE_ADDRESSES,
            };
            let is_public = !matches!(fault, Some(SubnetFault::Private | SubnetFault::Nat));
            xml.text("subnetId", id);
            xml.text("state", "available");
            xml.text("vpcId", VPC);
            xml.text("cidrBlock", "10.0.0.0/24");
            xml.text("availableIpAddressCount", free);
            xml.text("availabilityZone", zone);
            xml.text("mapPublicIpOnLaunch", is_public);
        });
    }))
}

/// Performs DescribeRouteTables, by subnet or for the main tables of VPCs.
pub(crate) fn route_tables(state: &State, params: &Params) -> Result<String, Refusal> {
    let known = ["association.subnet-id", "association.main", "vpc-id"];
    let filters = filters(params, &known)?;
    let is_main = values(&filters, "association.main") == ["true"]
        && values(&filters, "vpc-id").contains(&VPC);
    let subnets = values(&filters, "association.subnet-id");
    let own = subnets.into_iter().filter_map(|id| {
        let target = match state.network.subnets.get(id)? {
            SubnetFault::NoDefaultRoute => None,
            SubnetFault::BlackHole => Some(("natGatewayId", "nat-0123456789abcdef0", "blackhole")),
            SubnetFault::Nat => Some(("natGatewayId", "nat-0123456789abcdef0", "active")),
            _ => return None,
        };
        Some((Some(id), target))
    });
    let internet = Some(("gatewayId", "igw-0123456789abcdef0", "active"));
    let main = is_main.then_some((None, internet));
    let tables: Vec<_> = own.chain(main).collect();
    Ok(Xml::answer("DescribeRouteTables", |xml| {
        xml.items("routeTableSet", tables, |xml, (subnet, target)| {
            let id = subnet.map_or("main".to_owned(), str::to_owned);
            xml.text("routeTableId", id.replace("subnet-", "rtb-"));
            xml.text("vpcId", VPC);
            let local = ("10.0.0.0/16", ("gatewayId", "local", "active"));
            let routes = [Some(local), target.map(|target| ("0.0.0.0/0", target))];
            xml.items("routeSet", routes.into_iter().flatten(), |xml, (to, (kind, id, state))| {
                xml.text("destinationCidrBlock", to);
                xml.text(kind, id);
                xml.text("state", state);
            });
            xml.items("associationSet", [subnet], |xml, subnet| {
                xml.text_if("subnetId", subnet);
                xml.text("main", subnet.is_none());
            });
        });
    }))
}

pub(crate) fn groups(state: &State, params: &Params) -> Result<String, Refusal> {
    let filters = filters(params, &["group-id"])?;
    let faults = &state.network.groups;
    let exists = |id: &&str| faults.get(*id) != Some(&GroupFault::Deleted);
    let found: Vec<&str> = values(&filters, "group-id").into_iter().filter(exists).collect();
    Ok(Xml::answer("DescribeSecurityGroups", |xml| {
        xml.items("securityGroupInfo", found, |xml, id| {
            let fault = faults.get(id).copied();
            let network = if fault == Some(GroupFault::OtherNetwork) { OTHER_VPC } else { VPC };
            xml.text("groupId", id);
            xml.text("groupName", "ondeck");
            xml.text("vpcId", network);
            let ingress = match fault {
                Some(GroupFault::OpenPort(port)) => Some(Some(port)),
                _ => None,
            };
            let egress = (fault != Some(GroupFault::NoEgress)).then_some(None);
            xml.items("ipPermissions", ingress, rule);
            xml.items("ipPermissionsEgress", egress, rule);
        });
    }))
}

/// A rule for all addresses and one port, or for all.
fn rule(xml: &mut Xml, port: Option<u16>) {
    xml.text("ipProtocol", if port.is_some() { "tcp" } else { "-1" });
    xml.text_if("fromPort", port);
    xml.text_if("toPort", port);
    xml.items("ipRanges", ["0.0.0.0/0"], |xml, range| xml.text("cidrIp", range));
}

/// The filters of a request. Fails for one that EC2, or this stand-in, does not know.
fn filters<'a>(
    params: &'a Params,
    known: &[&str],
) -> Result<Vec<(&'a str, Vec<&'a str>)>, Refusal> {
    let filters = params.list("Filter").into_iter().map(|filter| {
        let name = filter.text("Name").ok_or_else(|| Refusal::missing("Filter.Name"))?;
        if !known.contains(&name) {
            let message = format!("The filter '{name}' is invalid");
            return Err(Refusal::new("InvalidParameterValue", message));
        }
        Ok((name, filter.texts("Value")))
    });
    filters.collect()
}

fn values<'a>(filters: &[(&'a str, Vec<&'a str>)], name: &str) -> Vec<&'a str> {
    filters.iter().filter(|(it, _)| *it == name).flat_map(|(_, values)| values.clone()).collect()
}
