//! What a deployed stack or module says about itself.

use std::collections::BTreeMap;
use std::io::Read;

use ondeck_core::model::failure::Failure;
use serde_json::Value;

/// The outputs that the rest of the set-up needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outputs {
    pub(super) subnet_ids: Vec<String>,
    pub(super) security_group_ids: Vec<String>,
    iam_instance_profile: String,
    /// Variable of the repository, and the ARN of the role that it names.
    pub(super) roles: [(&'static str, String); 3],
}

impl Outputs {
    /// Reads a file, or stdin for "-". Fails if it is not readable or lacks an output.
    pub(super) fn read(file: &str) -> Result<Outputs, Failure> {
        let text = match file {
            "-" => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).map(|_| text)
            }
            path => std::fs::read_to_string(path),
        };
        let text = text.map_err(|error| {
            Failure::invalid(format!("outputs cannot be read: {file}: {error}")).hint(HINT)
        })?;
        Outputs::parse(&text)
    }

    /// The name of the instance profile, which is an ARN among the outputs.
    pub(super) fn profile_name(&self) -> &str {
        let profile = &self.iam_instance_profile;
        profile.rsplit('/').next().unwrap_or(profile)
    }

    fn parse(text: &str) -> Result<Outputs, Failure> {
        let outputs = serde_json::from_str(text).map(|value| named(&value)).map_err(|error| {
            Failure::invalid(format!("outputs are not JSON: {error}")).hint(HINT)
        })?;
        let output = |name: &str| {
            let found = outputs.get(&plain(name)).filter(|value| !value.is_empty());
            found.cloned().ok_or_else(|| {
                Failure::invalid(format!("outputs lack one that is needed: {name}")).hint(HINT)
            })
        };
        let list = |name: &str| -> Result<Vec<String>, Failure> {
            Ok(output(name)?.split_whitespace().map(str::to_owned).collect())
        };
        Ok(Outputs {
            subnet_ids: list("SubnetIds")?,
            security_group_ids: list("SecurityGroupIds")?,
            iam_instance_profile: output("IamInstanceProfile")?,
            roles: [
                ("ONDECK_PROVISION_ROLE", output("ProvisionRoleArn")?),
                ("ONDECK_RELEASE_ROLE", output("ReleaseRoleArn")?),
                ("ONDECK_REFRESH_ROLE", output("RefreshRoleArn")?),
            ],
        })
    }
}

const HINT: &str = "give the JSON of aws cloudformation describe-stacks --stack-name ondeck, or of \
                    terraform output -json ondeck";

/// The same name for `SubnetIds` and `subnet_ids`.
fn plain(name: &str) -> String {
    name.replace('_', "").to_ascii_lowercase()
}

/// The outputs by their plain names, from the answer of CloudFormation or Terraform.
fn named(value: &Value) -> BTreeMap<String, String> {
    let list = value["Stacks"][0]["Outputs"].as_array().or(value.as_array());
    if let Some(list) = list {
        let pair = |output: &Value| {
            let text = |key: &str| output[key].as_str();
            Some((plain(text("OutputKey")?), text("OutputValue")?.to_owned()))
        };
        return list.iter().filter_map(pair).collect();
    }
    // Terraform puts the value of each output of the root module below "value".
    let object = value["ondeck"]["value"].as_object().or(value.as_object());
    let pair = |(name, value): (&String, &Value)| Some((plain(name), value.as_str()?.to_owned()));
    object.into_iter().flatten().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAMES: [(&str, &str, &str); 6] = [
        ("SubnetIds", "subnet_ids", "subnet-1 subnet-2"),
        ("SecurityGroupIds", "security_group_ids", "sg-1"),
        ("IamInstanceProfile", "iam_instance_profile", "ondeck-machine"),
        ("ProvisionRoleArn", "provision_role_arn", "arn:p"),
        ("ReleaseRoleArn", "release_role_arn", "arn:r"),
        ("RefreshRoleArn", "refresh_role_arn", "arn:f"),
    ];

    #[test]
    fn both_languages_say_the_same() {
        let list: Vec<Value> =
            NAMES.map(|(name, _, value)| json!({"OutputKey": name, "OutputValue": value})).to_vec();
        let object: serde_json::Map<String, Value> =
            NAMES.map(|(_, name, value)| (name.to_owned(), json!(value))).into_iter().collect();
        let texts = [
            json!({"Stacks": [{"StackName": "ondeck", "Outputs": list}]}),
            json!(list),
            json!(object),
            json!({"ondeck": {"sensitive": false, "type": [], "value": object}}),
        ];
        let read = texts.map(|text| Outputs::parse(&text.to_string()).unwrap());
        assert_eq!(read[0].subnet_ids, ["subnet-1", "subnet-2"]);
        assert_eq!(read[0].roles[2], ("ONDECK_REFRESH_ROLE", "arn:f".to_owned()));
        assert!(read.iter().all(|other| *other == read[0]));
    }

    #[test]
    fn outputs_that_lack_something_are_refused() {
        for text in ["", "{", "{}", "[]", "null", r#"{"Stacks": []}"#, r#"{"subnet_ids": ""}"#] {
            let failure = Outputs::parse(text).unwrap_err();
            assert_eq!(failure.kind.exit_code(), 2, "{text}");
            assert!(!failure.hint.is_empty());
        }
    }
}
