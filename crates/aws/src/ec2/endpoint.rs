//! The endpoint of a service: the configured one, or that of AWS in this region.

use aws_config::SdkConfig;
use aws_types::service_config::ServiceConfigKey;
use ondeck_core::model::excerpt::quoted;
use ondeck_core::ports::{PortError, PortResult};

use crate::error::EC2;

/// The parts of the world that share no accounts, by how their regions begin, with the names
/// under which they are reached and those that know IPv6.
const PARTITIONS: [(&str, &str, &str); 7] = [
    ("cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"),
    ("eusc-", "amazonaws.eu", "api.amazonwebservices.eu"),
    ("us-iso-", "c2s.ic.gov", "api.aws.ic.gov"),
    ("us-isob-", "sc2s.sgov.gov", "api.aws.scloud"),
    ("us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    ("", "amazonaws.com", "api.aws"),
];

/// The address to send everything for EC2 to.
pub(super) fn of(config: &SdkConfig) -> PortResult<String> {
    of_service(config, EC2, "ec2")
}

/// The address of a service, by its id in the SDK's configuration and the first part of its host
/// name. Ends with a path, so that names can be appended. Fails if the region cannot be one.
pub(crate) fn of_service(config: &SdkConfig, id: &'static str, host: &str) -> PortResult<String> {
    if let Some(url) = given(config, id) {
        // A signature is over a path, and the path of an address without one is a slash.
        let bare = url.splitn(4, '/').count() < 4;
        return Ok(if bare { format!("{url}/") } else { url });
    }
    let region = config.region().map_or("", |region| region.as_ref());
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if region.is_empty() || !region.chars().all(plain) {
        return Err(PortError::Unusable {
            service: id,
            reason: format!("not a region: {}", quoted(region)),
            hint: "give --aws-region, or set AWS_REGION".to_owned(),
        });
    }
    let fips = config.use_fips().unwrap_or(false);
    let dual = config.use_dual_stack().unwrap_or(false);
    Ok(regional(host, region, fips, dual))
}

/// The configured endpoint: a flag wins over the service's own variable, that over the general one.
fn given(config: &SdkConfig, id: &str) -> Option<String> {
    let general = config.endpoint_url().map(str::to_owned);
    if config.get_origin("endpoint_url").is_client_config() {
        return general;
    }
    let key = ServiceConfigKey::builder()
        .service_id(id)
        .env("AWS_ENDPOINT_URL")
        .profile("endpoint_url")
        .build()
        .ok()?;
    config.service_config().and_then(|service| service.load_config(key)).or(general)
}

fn regional(host: &str, region: &str, fips: bool, dual: bool) -> String {
    let (_, plain, ipv6) = PARTITIONS
        .into_iter()
        .find(|(prefix, ..)| region.starts_with(prefix))
        .expect("the last one begins like any region");
    let suffix = if dual { ipv6 } else { plain };
    // In GovCloud the ordinary endpoint is the one that keeps to FIPS.
    let fips = if fips && (dual || !region.starts_with("us-gov-")) { "-fips" } else { "" };
    format!("https://{host}{fips}.{region}.{suffix}/")
}

#[cfg(test)]
mod tests {
    use aws_config::Region;
    use aws_types::origin::Origin;
    use aws_types::service_config::LoadServiceConfig;

    use super::*;

    #[test]
    fn each_partition_has_its_own_names() {
        for (region, fips, dual, expected) in [
            ("us-east-1", false, false, "ec2.us-east-1.amazonaws.com"),
            ("us-east-1", true, false, "ec2-fips.us-east-1.amazonaws.com"),
            ("us-east-1", false, true, "ec2.us-east-1.api.aws"),
            ("us-east-1", true, true, "ec2-fips.us-east-1.api.aws"),
            ("us-gov-west-1", false, false, "ec2.us-gov-west-1.amazonaws.com"),
            ("us-gov-west-1", true, false, "ec2.us-gov-west-1.amazonaws.com"),
            ("us-gov-west-1", true, true, "ec2-fips.us-gov-west-1.api.aws"),
            ("cn-north-1", false, false, "ec2.cn-north-1.amazonaws.com.cn"),
            ("cn-north-1", false, true, "ec2.cn-north-1.api.amazonwebservices.com.cn"),
            ("eusc-de-east-1", false, false, "ec2.eusc-de-east-1.amazonaws.eu"),
            ("us-iso-east-1", false, false, "ec2.us-iso-east-1.c2s.ic.gov"),
            ("us-isob-east-1", false, false, "ec2.us-isob-east-1.sc2s.sgov.gov"),
            ("us-isof-south-1", false, false, "ec2.us-isof-south-1.csp.hci.ic.gov"),
            ("eu-isoe-west-1", false, false, "ec2.eu-isoe-west-1.cloud.adc-e.uk"),
        ] {
            assert_eq!(regional("ec2", region, fips, dual), format!("https://{expected}/"));
        }
    }

    #[test]
    fn an_address_that_is_given_is_taken_as_it_is() {
        for (url, expected) in [
            ("http://127.0.0.1:4566", "http://127.0.0.1:4566/"),
            ("http://127.0.0.1:4566/", "http://127.0.0.1:4566/"),
            ("https://vpce-1.ec2.vpce.amazonaws.com/x", "https://vpce-1.ec2.vpce.amazonaws.com/x"),
        ] {
            let config = SdkConfig::builder().endpoint_url(url).build();
            assert_eq!(of(&config).unwrap(), expected);
        }
    }

    #[derive(Debug)]
    struct Variables;

    impl LoadServiceConfig for Variables {
        fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
            let ours = (key.service_id(), key.env(), key.profile());
            (ours == ("EC2", "AWS_ENDPOINT_URL", "endpoint_url")).then(|| "http://own/".to_owned())
        }
    }

    #[test]
    fn the_services_own_variable_is_before_the_general_one_and_behind_a_flag() {
        let with = |origin: Origin| {
            let mut builder =
                SdkConfig::builder().endpoint_url("http://all/").service_config(Variables);
            builder.insert_origin("endpoint_url", origin);
            of(&builder.build()).unwrap()
        };
        assert_eq!(with(Origin::shared_environment_variable()), "http://own/");
        assert_eq!(with(Origin::shared_config()), "http://all/");
    }

    #[test]
    fn what_is_no_region_is_not_asked_for() {
        for region in ["", "us-east-1.example.com/", "US"] {
            let config = SdkConfig::builder().region(Region::new(region)).build();
            assert!(matches!(of(&config), Err(PortError::Unusable { .. })), "{region}");
        }
    }
}
