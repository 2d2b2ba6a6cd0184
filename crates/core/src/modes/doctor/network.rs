//! What subnets, routes and security groups mean for machines, which must reach GitHub and AWS.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Facts, FoundGroup, FoundSubnet, Route, SecurityGroup, Subnet, Told};
use super::finding::{Area, Finding, FindingKind, Findings};
use super::provider::Ask;

/// Fewer free addresses are soon used up.
const FEW_ADDRESSES: u32 = 8;

/// Adds what is wrong with the network. `through_proxy`: machines send their requests to a proxy, so
/// they need no route to the internet, and no group that admits connections by https.
pub(super) fn judge(facts: &Facts, through_proxy: bool, into: &mut Findings) {
    let mut ask = Ask { into };
    ask.about(Area::Network, "subnets", &facts.subnets, |subnets| of_subnets(subnets).into_iter());
    ask.about(Area::Network, "security groups", &facts.groups, |groups| {
        let networks: BTreeSet<&str> =
            found(&facts.subnets).map(|it| it.network.as_str()).collect();
        of_groups(groups, &networks, through_proxy).into_iter()
    });
    if through_proxy {
        return;
    }
    let routes: Vec<(&str, &FoundSubnet)> = facts
        .subnets
        .known()
        .into_iter()
        .flatten()
        .filter_map(|subnet| Some((subnet.id.as_str(), subnet.found.as_ref()?)))
        .collect();
    match routes.iter().find_map(|(_, subnet)| subnet.route.needs()) {
        Some(needs) => into.skip(Area::Network, "routes to GitHub and AWS", needs),
        None if routes.is_empty() => {}
        None => into.check(Area::Network, "routes to GitHub and AWS"),
    }
    into.add(of_routes(&routes));
}

fn found(subnets: &Told<Vec<Subnet>>) -> impl Iterator<Item = &FoundSubnet> {
    subnets.known().into_iter().flatten().filter_map(|subnet| subnet.found.as_ref())
}

fn of_subnets(subnets: &[Subnet]) -> Vec<Finding> {
    let finding = |kind, what: String, ids: &[&str]| {
        Finding::new(kind, what, without(subnets, ids)).about(ids)
    };
    let mut all = Vec::new();
    let missing: Vec<&str> =
        subnets.iter().filter(|it| it.found.is_none()).map(|it| it.id.as_str()).collect();
    if !missing.is_empty() {
        let what = format!("subnets that do not exist: {}", missing.join(", "));
        all.push(finding(FindingKind::SubnetMissing, what, &missing));
    }
    let mut zones: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut low = Vec::new();
    for Subnet { id, found } in subnets {
        let Some(found) = found else { continue };
        zones.entry(&found.zone).or_default().push(id);
        if found.free_addresses < FEW_ADDRESSES {
            low.push((id.as_str(), found.free_addresses));
        }
    }
    for (zone, ids) in zones.iter().filter(|(_, ids)| ids.len() > 1) {
        let what = format!("subnets of the same zone {zone}: {}", ids.join(", "));
        let fix = without(subnets, &ids[1..]);
        all.push(Finding::new(FindingKind::SubnetsShareZone, what, fix).about(ids));
    }
    if !low.is_empty() {
        let words: Vec<String> = low.iter().map(|(id, free)| format!("{id} has {free}")).collect();
        let what = format!("few free addresses: {}", words.join(", "));
        let ids: Vec<&str> = low.iter().map(|(id, _)| *id).collect();
        all.push(finding(FindingKind::SubnetFull, what, &ids));
    }
    all
}

/// The command by which the pool uses the other subnets only.
fn without(subnets: &[Subnet], ids: &[&str]) -> String {
    let is_left = |it: &&Subnet| it.found.is_some() && !ids.contains(&it.id.as_str());
    let left = subnets.iter().filter(is_left).map(|it| it.id.as_str());
    format!("ondeck refresh --subnet-ids '{}'", listed(left, "SUBNET ..."))
}

/// The ids, or a word for them if there are none.
fn listed<'a>(ids: impl Iterator<Item = &'a str>, none: &str) -> String {
    let ids: Vec<&str> = ids.collect();
    if ids.is_empty() { none.to_owned() } else { ids.join(" ") }
}

fn of_routes(subnets: &[(&str, &FoundSubnet)]) -> Vec<Finding> {
    type IsSo<'a> = &'a dyn Fn(&FoundSubnet, &Route) -> bool;
    let with = |kind, what: &str, fix: &dyn Fn(&[&str]) -> String, is_so: IsSo<'_>| {
        let is_so = |(_, subnet): &&(&str, &FoundSubnet)| {
            subnet.route.known().is_some_and(|route| is_so(subnet, route))
        };
        let ids: Vec<&str> = subnets.iter().filter(is_so).map(|(id, _)| *id).collect();
        let what = format!("{what}: {}", ids.join(", "));
        (!ids.is_empty()).then(|| Finding::new(kind, what, fix(&ids)).about(ids))
    };
    let missing = with(
        FindingKind::NoRoute,
        "no route to the internet that works from subnets",
        &|ids| {
            let left = subnets.iter().map(|(id, _)| *id).filter(|id| !ids.contains(id));
            match listed(left, "").as_str() {
                "" => "aws ec2 create-route --destination-cidr-block 0.0.0.0/0 --route-table-id TABLE \
                       --gateway-id GATEWAY"
                    .to_owned(),
                left => {
                    let others = "# or add a route for 0.0.0.0/0, or set https-proxy";
                    format!("ondeck refresh --subnet-ids '{left}' {others}")
                }
            }
        },
        &|_, route| matches!(route, Route::Missing | Route::Broken(_)),
    );
    let private = with(
        FindingKind::NoPublicAddress,
        "an internet gateway, but no public addresses in subnets",
        &|ids| {
            let change = "aws ec2 modify-subnet-attribute --map-public-ip-on-launch --subnet-id";
            ids.iter().map(|id| format!("{change} {id}")).collect::<Vec<_>>().join(" && ")
        },
        &|subnet, route| *route == Route::Gateway && !subnet.gives_public_addresses,
    );
    missing.into_iter().chain(private).collect()
}

fn of_groups(
    groups: &[SecurityGroup],
    networks: &BTreeSet<&str>,
    through_proxy: bool,
) -> Vec<Finding> {
    let without = |ids: &[&str]| {
        let is_left = |it: &&SecurityGroup| it.found.is_some() && !ids.contains(&it.id.as_str());
        let left = groups.iter().filter(is_left).map(|it| it.id.as_str());
        format!("ondeck refresh --security-group-ids '{}'", listed(left, "GROUP ..."))
    };
    let named = |is_so: &dyn Fn(&Option<FoundGroup>) -> bool| -> Vec<&str> {
        groups.iter().filter(|it| is_so(&it.found)).map(|it| it.id.as_str()).collect()
    };
    let finding = |kind, what: &str, ids: Vec<&str>, fix: &dyn Fn(&[&str]) -> String| {
        let what = format!("{what}: {}", ids.join(", "));
        let fix = fix(&ids);
        (!ids.is_empty()).then(|| Finding::new(kind, what, fix).about(ids))
    };
    let missing = finding(
        FindingKind::GroupMissing,
        "security groups that do not exist",
        named(&Option::is_none),
        &without,
    );
    let is_elsewhere = |found: &Option<FoundGroup>| {
        let network = found.as_ref().map(|group| group.network.as_str());
        network.is_some_and(|network| !networks.is_empty() && !networks.contains(network))
    };
    let elsewhere = finding(
        FindingKind::GroupElsewhere,
        "security groups of another network than the subnets",
        named(&is_elsewhere),
        &without,
    );
    let is_blocking =
        |found: &Option<FoundGroup>| found.as_ref().is_some_and(|it| !it.admits_https);
    let blocking = named(&is_blocking);
    // Which port and group lead to a proxy is not known.
    let blocked = (!through_proxy && blocking.len() == groups.len())
        .then(|| {
            let what = "no security group admits connections by https";
            let fix = |ids: &[&str]| {
                let first = ids.first().copied().unwrap_or_default();
                format!(
                    "aws ec2 authorize-security-group-egress --group-id {first} --protocol tcp --port 443 \
                     --cidr 0.0.0.0/0"
                )
            };
            finding(FindingKind::EgressBlocked, what, blocking, &fix)
        })
        .flatten();
    let open = groups.iter().filter_map(|group| {
        let open = &group.found.as_ref()?.open_to_all;
        let words: Vec<&str> = open.iter().map(|it| it.words.as_str()).collect();
        let what = format!("{} is open to every address: {}", group.id, words.join(", "));
        let rules: Vec<String> = open.iter().map(|it| format!("'{}'", it.rule)).collect();
        let fix = format!(
            "aws ec2 revoke-security-group-ingress --group-id {} --ip-permissions {}",
            group.id,
            rules.join(" ")
        );
        (!open.is_empty())
            .then(|| Finding::new(FindingKind::IngressOpen, what, fix).about([&group.id]))
    });
    missing.into_iter().chain(elsewhere).chain(blocked).chain(open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes::doctor::facts::OpenPort;

    fn subnet(id: &str, zone: &str) -> Subnet {
        let found = FoundSubnet {
            network: "vpc-1".to_owned(),
            zone: zone.to_owned(),
            free_addresses: 200,
            gives_public_addresses: true,
            route: Told::Known(Route::Gateway),
        };
        Subnet { id: id.to_owned(), found: Some(found) }
    }

    fn group(id: &str) -> SecurityGroup {
        let found =
            FoundGroup { network: "vpc-1".to_owned(), admits_https: true, open_to_all: Vec::new() };
        SecurityGroup { id: id.to_owned(), found: Some(found) }
    }

    fn ssh() -> OpenPort {
        OpenPort { words: "tcp 22".to_owned(), rule: "IpProtocol=tcp".to_owned() }
    }

    fn fixes(facts: &Facts) -> Vec<String> {
        let mut findings = Findings::default();
        judge(facts, false, &mut findings);
        findings.findings.into_iter().map(|it| it.fix).collect()
    }

    #[test]
    fn a_fix_names_what_is_left_or_what_is_to_be_changed() {
        type Change = fn(&mut Facts);
        let cases: &[(Change, &str)] = &[
            (|it| subnets(it)[0].found = None, "ondeck refresh --subnet-ids 'subnet-b'"),
            (|it| first(it).zone = "1b".to_owned(), "ondeck refresh --subnet-ids 'subnet-a'"),
            (
                |it| subnets(it).iter_mut().for_each(|it| it.found = None),
                "ondeck refresh --subnet-ids 'SUBNET ...'",
            ),
            (
                |it| first(it).route = Told::Known(Route::Missing),
                "ondeck refresh --subnet-ids 'subnet-b' # or add a route for 0.0.0.0/0, or set https-proxy",
            ),
            (
                |it| first(it).gives_public_addresses = false,
                "aws ec2 modify-subnet-attribute --map-public-ip-on-launch --subnet-id subnet-a",
            ),
            (
                |it| groups(it)[1].network = "vpc-2".to_owned(),
                "ondeck refresh --security-group-ids 'sg-1'",
            ),
            (
                |it| groups(it).into_iter().for_each(|group| group.admits_https = false),
                "aws ec2 authorize-security-group-egress --group-id sg-1 --protocol tcp --port 443 \
                 --cidr 0.0.0.0/0",
            ),
            (
                |it| groups(it)[0].open_to_all = vec![ssh()],
                "aws ec2 revoke-security-group-ingress --group-id sg-1 --ip-permissions 'IpProtocol=tcp'",
            ),
        ];
        for (change, expected) in cases {
            let mut facts = healthy();
            change(&mut facts);
            assert_eq!(fixes(&facts), [*expected]);
        }
    }

    fn healthy() -> Facts {
        Facts {
            subnets: Told::Known(vec![subnet("subnet-a", "1a"), subnet("subnet-b", "1b")]),
            groups: Told::Known(vec![group("sg-1"), group("sg-2")]),
            ..Facts::default()
        }
    }

    fn subnets(facts: &mut Facts) -> &mut Vec<Subnet> {
        let Told::Known(subnets) = &mut facts.subnets else { panic!("known") };
        subnets
    }

    fn first(facts: &mut Facts) -> &mut FoundSubnet {
        subnets(facts)[0].found.as_mut().unwrap()
    }

    fn groups(facts: &mut Facts) -> Vec<&mut FoundGroup> {
        let Told::Known(groups) = &mut facts.groups else { panic!("known") };
        groups.iter_mut().filter_map(|group| group.found.as_mut()).collect()
    }

    fn kinds(facts: &Facts, through_proxy: bool) -> Vec<FindingKind> {
        let mut findings = Findings::default();
        judge(facts, through_proxy, &mut findings);
        findings.findings.iter().map(|it| it.kind).collect()
    }

    #[test]
    fn each_fault_of_a_network_is_found_by_itself() {
        use FindingKind::*;
        type Change = fn(&mut Facts);
        let cases: &[(&str, Change, &[FindingKind])] = &[
            ("healthy", |_| {}, &[]),
            ("a subnet is gone", |it| subnets(it)[0].found = None, &[SubnetMissing]),
            ("one zone", |it| first(it).zone = "1b".to_owned(), &[SubnetsShareZone]),
            ("seven addresses", |it| first(it).free_addresses = 7, &[SubnetFull]),
            ("eight addresses", |it| first(it).free_addresses = 8, &[]),
            ("no route", |it| first(it).route = Told::Known(Route::Missing), &[NoRoute]),
            (
                "a black hole",
                |it| first(it).route = Told::Known(Route::Broken("nat-1".to_owned())),
                &[NoRoute],
            ),
            (
                "no public address",
                |it| first(it).gives_public_addresses = false,
                &[NoPublicAddress],
            ),
            (
                "no public address behind a relay",
                |it| {
                    first(it).gives_public_addresses = false;
                    first(it).route = Told::Known(Route::Relay);
                },
                &[],
            ),
            (
                "a group is gone",
                |it| {
                    let Told::Known(groups) = &mut it.groups else { panic!("known") };
                    groups[0].found = None;
                },
                &[GroupMissing],
            ),
            ("another network", |it| groups(it)[0].network = "vpc-2".to_owned(), &[GroupElsewhere]),
            ("one group admits nothing", |it| groups(it)[0].admits_https = false, &[]),
            (
                "no group admits anything",
                |it| groups(it).into_iter().for_each(|group| group.admits_https = false),
                &[EgressBlocked],
            ),
            ("ssh from everywhere", |it| groups(it)[0].open_to_all = vec![ssh()], &[IngressOpen]),
        ];
        for (name, change, expected) in cases {
            let mut facts = healthy();
            change(&mut facts);
            assert_eq!(kinds(&facts, false), *expected, "{name}");
        }
    }

    #[test]
    fn behind_a_proxy_no_route_and_no_connection_by_https_is_needed() {
        let mut facts = healthy();
        first(&mut facts).route = Told::Known(Route::Missing);
        assert_eq!(kinds(&facts, true), []);
        groups(&mut facts).into_iter().for_each(|group| group.admits_https = false);
        assert_eq!(kinds(&facts, true), []);
        groups(&mut facts)[0].open_to_all = vec![ssh()];
        assert_eq!(kinds(&facts, true), [FindingKind::IngressOpen]);
    }

    #[test]
    fn a_group_without_subnets_is_of_no_other_network() {
        let facts = Facts { subnets: Told::Untold("x".to_owned()), ..healthy() };
        assert_eq!(kinds(&facts, false), []);
    }
}
