//! Replaces the placeholders of a policy by expressions of CloudFormation or Terraform.

use crate::error::TaskError;

/// The language of the file that a policy becomes a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    CloudFormation,
    Terraform,
}

/// What the file deploys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deployment {
    /// Roles and network of a pool.
    Pool,
    /// The function that refreshes it, whose machine role and key are another deployment's.
    Function,
}

/// A word of the policies that stands for a value of the pool, and what takes its place.
#[derive(Clone, Copy)]
struct Placeholder {
    word: &'static str,
    /// What stands between `${` and `}` in `Fn::Sub`.
    name: &'static str,
    /// What the name means, if it is neither a parameter nor a resource.
    definition: Option<&'static str>,
    /// What takes its place in the module.
    terraform: &'static str,
    /// The parameter of the function that takes the place of all three, by its two names.
    in_function: Option<(&'static str, &'static str)>,
}

impl Placeholder {
    const fn new(word: &'static str, name: &'static str, terraform: &'static str) -> Placeholder {
        Placeholder { word, name, definition: None, terraform, in_function: None }
    }

    const fn defined(self, definition: &'static str) -> Placeholder {
        Placeholder { definition: Some(definition), ..self }
    }

    const fn in_function(self, parameter: &'static str, variable: &'static str) -> Placeholder {
        Placeholder { in_function: Some((parameter, variable)), ..self }
    }

    /// The placeholder as the files of this deployment replace it.
    fn of(self, deployment: Deployment) -> Placeholder {
        match self.in_function.filter(|_| deployment == Deployment::Function) {
            Some((name, terraform)) => Placeholder { name, definition: None, terraform, ..self },
            None => self,
        }
    }
}

/// The placeholders, as `docs/aws-permissions.md` lists them. A word that contains another one comes
/// before it.
const PLACEHOLDERS: [Placeholder; 12] = [
    Placeholder::new("arn:aws:", "AWS::Partition", "data.aws_partition.current.partition"),
    Placeholder::new("MACHINE-ROLE", "MachineRole", "aws_iam_role.machine_role.name")
        .in_function("MachineRole", "var.machine_role"),
    Placeholder::new("IMAGE-PARAMETER", "ImageParameter", "var.image_parameter"),
    Placeholder::new("LOG-GROUP", "LogGroup", "var.log_group"),
    Placeholder::new("VOLUME-KEY", "VolumeKeyArn", "local.volume_key_arn")
        .defined("!If [NewVolumeKey, !GetAtt VolumeEncryptionKey.Arn, !Ref VolumeKey]")
        .in_function("VolumeKey", "var.volume_key"),
    // These three only the function has.
    Placeholder::new("WEBHOOK-ARN", "WebhookArn", "var.webhook_arn"),
    Placeholder::new("KEY-ARN", "KeyArn", "var.key_arn"),
    Placeholder::new("FUNCTION", "FunctionName", "local.function_name")
        .defined("!Sub \"${Prefix}-function\""),
    Placeholder::new("REGION", "AWS::Region", "data.aws_region.current.region"),
    Placeholder::new("ACCOUNT", "AWS::AccountId", "data.aws_caller_identity.current.account_id"),
    Placeholder::new("NAME", "PoolName", "var.pool_name"),
    Placeholder::new("POOL", "PoolTag", "local.pool")
        .defined("!If [HasTrustLevel, !Sub \"${Pool}@${TrustLevel}\", !Ref Pool]"),
];

/// How far the first and the last line of a statement are indented in the files.
const STATEMENT: usize = 4;

/// A policy with expressions in place of its placeholders. For CloudFormation each statement is one
/// line without blanks: a template that is sent without a bucket has at most
/// 51,200 bytes.
///
/// Fails for a text that is not JSON, and for a string that is no plain value.
pub(super) fn policy(
    json: &str,
    language: Language,
    deployment: Deployment,
) -> Result<String, TaskError> {
    let invalid = |what: String| TaskError::new(what, "correct the file in policies/");
    if let Err(error) = serde_json::from_str::<serde_json::Value>(json) {
        return Err(invalid(format!("a policy is not JSON: {error}")));
    }
    let mut made = String::new();
    for line in json.lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        let is_within = depth > STATEMENT || depth == STATEMENT && text.starts_with('}');
        made += &match language {
            Language::CloudFormation if is_within => String::new(),
            Language::CloudFormation => "\n".to_owned(),
            Language::Terraform => format!("\n{:depth$}", ""),
        };
        let text = expressions(text, language, deployment);
        made += &text.ok_or_else(|| invalid(format!("cannot render a line: {line}")))?;
    }
    Ok(made.trim_start().to_owned() + "\n")
}

/// A line with an expression in place of each string. `None` for a placeholder in the name of a
/// field, and for a quotation mark in a string.
fn expressions(line: &str, language: Language, deployment: Deployment) -> Option<String> {
    let placeholders = PLACEHOLDERS.map(|it| it.of(deployment));
    let mut parts = line.split('"');
    // Within braces, YAML needs a blank only before a tag.
    let outside = |text: &str| match language {
        Language::CloudFormation => text.replace(' ', ""),
        Language::Terraform => text.to_owned(),
    };
    let mut made = outside(parts.next()?);
    while let (Some(string), Some(between)) = (parts.next(), parts.next()) {
        let is_plain = !placeholders.iter().any(|it| string.contains(it.word));
        let is_name = between.starts_with(':');
        if string.ends_with('\\') || is_name && !is_plain {
            return None;
        }
        made += &match language {
            Language::CloudFormation if is_plain => format!("\"{string}\""),
            Language::CloudFormation if !made.is_empty() => {
                format!(" {}", substitution(string, &placeholders))
            }
            Language::CloudFormation => substitution(string, &placeholders),
            // As terraform fmt writes it.
            Language::Terraform if is_name => format!("\"{string}\" "),
            Language::Terraform => template(string, &placeholders),
        };
        made += &outside(between);
    }
    Some(made)
}

/// A string with placeholders, for CloudFormation.
fn substitution(string: &str, placeholders: &[Placeholder]) -> String {
    // A variable of IAM is not one of CloudFormation.
    let mut text = string.replace("${", "${!");
    let mut definitions = Vec::new();
    for Placeholder { word, name, definition, .. } in placeholders {
        if !text.contains(word) {
            continue;
        }
        text = text.replace(word, &in_place_of(word, &format!("${{{name}}}")));
        definitions.extend(definition.map(|meaning| format!("{name}: {meaning}")));
    }
    match &definitions[..] {
        [] => format!("!Sub \"{text}\""),
        // The definition is all that there is.
        [one] if one.starts_with(text.trim_matches(['$', '{', '}'])) => {
            one.split_once(": ").map_or(String::new(), |(_, meaning)| meaning.to_owned())
        }
        _ => format!("!Sub [\"{text}\", {{ {} }}]", definitions.join(", ")),
    }
}

/// A string for Terraform.
fn template(string: &str, placeholders: &[Placeholder]) -> String {
    let mut text = string.replace("${", "$${").replace("%{", "%%{");
    for Placeholder { word, terraform, .. } in placeholders {
        text = text.replace(word, &in_place_of(word, &format!("${{{terraform}}}")));
    }
    format!("\"{text}\"")
}

/// The expression, and what belongs to the ARN if the word is the beginning of one.
fn in_place_of(word: &str, expression: &str) -> String {
    match word.strip_suffix("aws:") {
        Some(arn) => format!("{arn}{expression}:"),
        None => expression.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_expressions_of_each_language() {
        let pool = "!If [HasTrustLevel, !Sub \"${Pool}@${TrustLevel}\", !Ref Pool]";
        for (string, cloudformation, terraform) in [
            ("ec2:RunInstances", "\"ec2:RunInstances\"".to_owned(), "\"ec2:RunInstances\""),
            (
                "arn:aws:sqs:REGION:ACCOUNT:NAME-*",
                "!Sub \"arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:${PoolName}-*\""
                    .to_owned(),
                "\"arn:${data.aws_partition.current.partition}:sqs:\
                 ${data.aws_region.current.region}:\
                 ${data.aws_caller_identity.current.account_id}:${var.pool_name}-*\"",
            ),
            ("POOL", pool.to_owned(), "\"${local.pool}\""),
            (
                "AGENT#${ec2:SourceInstanceARN}",
                "\"AGENT#${ec2:SourceInstanceARN}\"".to_owned(),
                "\"AGENT#$${ec2:SourceInstanceARN}\"",
            ),
            (
                "NAME/${aws:userid}",
                "!Sub \"${PoolName}/${!aws:userid}\"".to_owned(),
                "\"${var.pool_name}/$${aws:userid}\"",
            ),
        ] {
            let json = format!("[\n  \"{string}\"\n]\n");
            let made = |language| policy(&json, language, Deployment::Pool).unwrap();
            assert_eq!(made(Language::CloudFormation), format!("[\n{cloudformation}\n]\n"));
            assert_eq!(made(Language::Terraform), format!("[\n  {terraform}\n]\n"));
        }
    }

    #[test]
    fn the_machine_role_and_the_key_for_volumes_are_parameters_of_the_function() {
        let json = "[\n  \"MACHINE-ROLE VOLUME-KEY\"\n]\n";
        let made = |language, deployment| policy(json, language, deployment).unwrap();
        for (language, of_function, of_pool) in [
            (
                Language::CloudFormation,
                "[\n!Sub \"${MachineRole} ${VolumeKey}\"\n]\n",
                "!GetAtt VolumeEncryptionKey.Arn",
            ),
            (
                Language::Terraform,
                "[\n  \"${var.machine_role} ${var.volume_key}\"\n]\n",
                "${aws_iam_role.machine_role.name} ${local.volume_key_arn}",
            ),
        ] {
            assert_eq!(made(language, Deployment::Function), of_function);
            assert!(made(language, Deployment::Pool).contains(of_pool));
        }
    }

    #[test]
    fn a_template_has_a_line_for_each_statement() {
        let json = r#"{
  "Statement": [
    {
      "Action": [
        "a"
      ]
    },
    {
      "Action": "b"
    }
  ]
}
"#;
        let made = policy(json, Language::CloudFormation, Deployment::Pool).unwrap();
        let expected = r#"{
"Statement":[
{"Action":["a"]},
{"Action":"b"}
]
}
"#;
        assert_eq!(made, expected);
        let made = policy(json, Language::Terraform, Deployment::Pool).unwrap();
        assert_eq!(made, json.replace("\":", "\" :"));
    }

    #[test]
    fn what_cannot_be_rendered_is_refused() {
        for json in ["{", r#"{"NAME": 1}"#, r#"["a\"b"]"#] {
            let made = policy(json, Language::CloudFormation, Deployment::Pool);
            assert!(made.is_err(), "{json}");
        }
    }
}
