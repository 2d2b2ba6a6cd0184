//! The names of resources.

/// The account that the stand-ins belong to.
pub(crate) const ACCOUNT: &str = "000000000000";

/// Makes the ARNs of one region of the stand-ins' account.
#[derive(Debug, Clone)]
pub(crate) struct Arns {
    region: String,
}

impl Arns {
    pub(crate) fn new(region: &str) -> Arns {
        Arns { region: region.to_owned() }
    }

    pub(crate) fn region(&self) -> &str {
        &self.region
    }

    /// A table by its name. DynamoDB also accepts the ARN in place of the name.
    pub(crate) fn table(&self, name: &str) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        format!("arn:aws:dynamodb:{}:{ACCOUNT}:table/{name}", self.region)
    }

    pub(crate) fn index(&self, table: &str, index: &str) -> String {
        format!("{}/index/{index}", self.table(table))
    }

    pub(crate) fn queue(&self, name: &str) -> String {
        format!("arn:aws:sqs:{}:{ACCOUNT}:{name}", self.region)
    }

    /// A stream of a log group.
    pub(crate) fn log_stream(&self, group: &str, stream: &str) -> String {
        format!("arn:aws:logs:{}:{ACCOUNT}:log-group:{group}:log-stream:{stream}", self.region)
    }

    /// A parameter of SSM by its name, or by its ARN. The public parameters of AWS have no account:
    /// answers of GetParameters in the AWS Systems Manager User Guide, "Calling AMI public parameters".
    pub(crate) fn parameter(&self, name: &str) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        let name = name.trim_start_matches('/');
        let account = if name.starts_with("aws/service/") { "" } else { ACCOUNT };
        format!("arn:aws:ssm:{}:{account}:parameter/{name}", self.region)
    }

    /// A secret of Secrets Manager by its name, or by its ARN.
    pub(crate) fn secret(&self, name: &str) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        format!("arn:aws:secretsmanager:{}:{ACCOUNT}:secret:{name}", self.region)
    }

    /// A resource of EC2. Images and snapshots have no account in their ARN. The id of a resource
    /// that is yet to be created is `*`.
    pub(crate) fn ec2(&self, kind: &str, id: &str) -> String {
        let account = if matches!(kind, "image" | "snapshot") { "" } else { ACCOUNT };
        format!("arn:aws:ec2:{}:{account}:{kind}/{id}", self.region)
    }

    /// An instance profile by its name.
    pub(crate) fn profile(&self, name: &str) -> String {
        format!("arn:aws:iam::{ACCOUNT}:instance-profile/{name}")
    }

    pub(crate) fn role(&self, name: &str) -> String {
        format!("arn:aws:iam::{ACCOUNT}:role/{name}")
    }
}
