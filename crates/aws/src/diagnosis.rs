//! What AWS tells about the surroundings of a pool, for doctor. No call changes anything.

mod answers;
mod network;

use std::fmt;

use async_trait::async_trait;
use futures_util::future::{join, join3};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::doctor::facts::{
    Caller, Denied, Facts, FoundImage, Image, Profile, Quota, Told,
};
use ondeck_core::ports::{Compute as _, Diagnosis, PortError, PortResult};
use serde_json::{Value, json};

use self::answers::{CallerAnswer, ImagesAnswer, ProfileAnswer};
use crate::cloud::Cloud;
use crate::compute::{Ec2Compute, LaunchOptions, MachineOptions, is_gone, template_version};
use crate::ec2::{Ec2, Failed, Params, Query, VersionsAnswer};
use crate::permissions::answer::DENIALS;
use crate::permissions::missing_of_operator;
use crate::raw_client::{RawAnswer, RawClient};

/// The quotas for the vCPUs of the types that machines have by default, with their codes: Service
/// Quotas of Amazon EC2.
const QUOTAS: [(UsageClass, &str); 2] =
    [(UsageClass::OnDemand, "L-1216C47A"), (UsageClass::Spot, "L-34B43A08")];

/// What credentials that AWS does not accept need.
const SIGN_IN: &str = "aws sts get-caller-identity must succeed: sign in, or set AWS_PROFILE";

/// AWS, as doctor asks about it.
pub struct AwsDiagnosis {
    cloud: Cloud,
    ec2: Ec2,
    client: RawClient,
}

impl AwsDiagnosis {
    /// Asks about the pool that `cloud` was connected for.
    pub fn new(cloud: &Cloud) -> AwsDiagnosis {
        let (ec2, client) = (Ec2::new(cloud), RawClient::new(cloud));
        AwsDiagnosis { cloud: cloud.clone(), ec2, client }
    }

    async fn denied(&self) -> Told<Vec<Denied>> {
        match missing_of_operator(&self.cloud).await {
            Ok(checks) => {
                let denied = checks.into_iter();
                let denied = denied.map(|it| Denied { permission: it.call, what: it.what });
                Told::Known(denied.collect())
            }
            Err(error) => Told::Untold(error.to_string()),
        }
    }

    async fn template(&self, settings: &Settings) -> Told<(String, bool)> {
        let name = self.cloud.names.launch_template();
        let version = template_version(settings).map(|number| number.to_string());
        let version = version.as_deref().unwrap_or("$Default");
        let params = Params::new().set("LaunchTemplateName", name);
        let params = params.list("LaunchTemplateVersion", [version]);
        let query = Query::new("DescribeLaunchTemplateVersions", params);
        match self.ec2.call::<VersionsAnswer>(&query).await {
            Ok(answer) => Told::Known((name.to_owned(), !answer.versions.item.is_empty())),
            Err(Failed::Refused(refusal)) if is_gone(&refusal.code) => {
                Told::Known((name.to_owned(), false))
            }
            Err(failed) => untold("ec2:DescribeLaunchTemplateVersions", failed),
        }
    }

    /// The image that a launch would boot now.
    async fn image(&self, options: &MachineOptions) -> Told<Image> {
        let name = options.ami.clone();
        let id = match options.image_parameter() {
            None => name.clone(),
            Some(parameter) => match self.image_parameter(parameter).await {
                Ok(Some(id)) => id,
                Ok(None) => return Told::Known(Image { name, found: None }),
                Err(needs) => return Told::Untold(needs),
            },
        };
        let query = Query::new("DescribeImages", Params::new().list("ImageId", [&id]));
        let image = match self.ec2.call::<ImagesAnswer>(&query).await {
            Ok(answer) => answer.images.item.into_iter().next(),
            Err(Failed::Refused(refusal)) if refusal.code.starts_with("InvalidAMIID") => None,
            Err(failed) => return untold("ec2:DescribeImages", failed),
        };
        let time = |text: &str| Timestamp::parse(text).ok();
        let found = image.map(|image| FoundImage {
            architecture_problem: options.agents.check_image(&image.architecture).err(),
            created: time(&image.creation_date),
            deprecated: time(&image.deprecation_time),
            // An emulator may not tell.
            unavailable: Some(image.image_state)
                .filter(|state| !matches!(state.as_str(), "" | "available")),
            id,
        });
        Told::Known(Image { name, found })
    }

    /// The id that a parameter holds; `None` if there is no such parameter. Fails with what is needed.
    async fn image_parameter(&self, parameter: &str) -> Result<Option<String>, String> {
        let request = json!({ "Names": [parameter] });
        let answer = self.client.send("ssm:GetParameters", &request).await;
        let answer = known("ssm:GetParameters", answer)?;
        let value = answer.body.pointer("/Parameters/0/Value").and_then(Value::as_str);
        Ok(value.map(|value| value.trim().to_owned()).filter(|id| id.starts_with("ami-")))
    }

    async fn profile(&self, options: &MachineOptions) -> Told<Profile> {
        const CALL: &str = "iam:GetInstanceProfile";
        let Some(given) = &options.profile else {
            let (name, exists, has_role) = (String::new(), false, false);
            return Told::Known(Profile { name, exists, has_role });
        };
        let name = given.rsplit('/').next().unwrap_or(given).to_owned();
        let request = json!({ "InstanceProfileName": name });
        let answer = match self.client.send(CALL, &request).await {
            Ok(answer) if answer.code == "NoSuchEntity" => {
                return Told::Known(Profile { name, exists: false, has_role: false });
            }
            answer => match known(CALL, answer) {
                Ok(answer) => answer,
                Err(needs) => return Told::Untold(needs),
            },
        };
        match quick_xml::de::from_str::<ProfileAnswer>(&answer.text) {
            Ok(found) => Told::Known(Profile { name, exists: true, has_role: found.has_role() }),
            Err(_) => Told::Untold("an answer of IAM that can be read".to_owned()),
        }
    }

    async fn quotas(&self) -> Told<Vec<Quota>> {
        const CALL: &str = "servicequotas:GetServiceQuota";
        let mut quotas = Vec::new();
        for (usage, code) in QUOTAS {
            let request = json!({ "ServiceCode": "ec2", "QuotaCode": code });
            let answer = match known(CALL, self.client.send(CALL, &request).await) {
                Ok(answer) => answer,
                Err(needs) => return Told::Untold(needs),
            };
            let quota = &answer.body["Quota"];
            let Some(value) = quota["Value"].as_f64() else {
                return Told::Untold(format!("an answer of Service Quotas about {code}"));
            };
            // A quota is a whole number, which AWS writes as a decimal.
            let cpus = value.clamp(0.0, f64::from(u32::MAX)) as u32;
            quotas.push(Quota { code: code.to_owned(), usage, cpus });
        }
        Told::Known(quotas)
    }

    async fn of_machines(&self, settings: &Settings, facts: &mut Facts) {
        let options = MachineOptions::read(&settings.backend);
        let launch = LaunchOptions::read(&settings.backend);
        let invalid = [options.as_ref().err(), launch.as_ref().err()].into_iter().flatten();
        facts.invalid = invalid.cloned().collect();
        let compute = Ec2Compute::new(&self.cloud);
        let (template, quotas, machines) =
            join3(self.template(settings), self.quotas(), compute.machines()).await;
        facts.template = template;
        facts.quotas = quotas;
        facts.machines = match machines {
            Ok(machines) => Told::Known(machines),
            Err(error) => Told::Untold(needs("ec2:DescribeInstances", &error)),
        };
        if let Ok(options) = &options {
            let (image, profile) = join(self.image(options), self.profile(options)).await;
            (facts.image, facts.profile) = (image, profile);
            facts.groups = network::groups(&self.ec2, &options.security_groups).await;
        }
        if let Ok(launch) = &launch {
            facts.subnets = network::subnets(&self.ec2, &launch.subnets).await;
        }
    }
}

#[async_trait]
impl Diagnosis for AwsDiagnosis {
    async fn caller(&self) -> Told<Caller> {
        const CALL: &str = "sts:GetCallerIdentity";
        let mut answer = self.client.send(CALL, &json!({})).await;
        // A refusal may be for a wrong clock, which its date has corrected.
        if answer.as_ref().is_ok_and(|answer| answer.status >= 300) {
            answer = self.client.send(CALL, &json!({})).await;
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(PortError::Unusable { reason, hint, .. }) => {
                return Told::Known(Caller::Refused { reason, hint });
            }
            Err(error) => return Told::Untold(error.to_string()),
        };
        match quick_xml::de::from_str::<CallerAnswer>(&answer.text) {
            Ok(found) if answer.status < 300 => Told::Known(Caller::Known(found.result.arn)),
            _ if answer.status >= 300 => Told::Known(Caller::Refused {
                reason: format!("AWS does not accept the credentials: {}", answer.code),
                hint: SIGN_IN.to_owned(),
            }),
            _ => Told::Untold("an answer of STS that can be read".to_owned()),
        }
    }

    async fn facts(&self, settings: &Settings) -> Facts {
        let mut facts = Facts { denied: self.denied().await, ..Facts::default() };
        self.of_machines(settings, &mut facts).await;
        let needs = "ondeck permissions check --role ROLE with the credentials of each";
        facts.unchecked = vec![("permissions of the other roles", needs.to_owned())];
        facts
    }
}

impl fmt::Debug for AwsDiagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AwsDiagnosis({})", self.cloud.names.pool)
    }
}

/// A question that needs a permission, or is not answered for another reason.
fn untold<T>(permission: &str, failed: Failed) -> Told<T> {
    Told::Untold(match failed {
        Failed::Refused(refusal) if DENIALS.contains(&refusal.code.as_str()) => {
            permission.to_owned()
        }
        other => PortError::from(other).to_string(),
    })
}

/// The same for an error whose code is part of its words.
fn needs(permission: &str, error: &PortError) -> String {
    let said = error.to_string();
    match DENIALS.iter().any(|code| said.contains(code)) {
        true => permission.to_owned(),
        false => said,
    }
}

/// A successful answer. Fails with what is needed for one.
fn known(permission: &str, answer: PortResult<RawAnswer>) -> Result<RawAnswer, String> {
    let answer = answer.map_err(|error| error.to_string())?;
    match answer.code.as_str() {
        "" if answer.status < 300 => Ok(answer),
        code if DENIALS.contains(&code) => Err(permission.to_owned()),
        code => Err(format!("an answer to {permission}, which was {} {code}", answer.status)),
    }
}
