//! Records in DynamoDB, tickets in SQS, machines from EC2.

use std::sync::Arc;

use ondeck_aws::{AwsDiagnosis, Cloud, DynamoStore, Ec2Compute, SqsPool};
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::modes::doctor::facts::{Caller, Told};
use ondeck_core::ports::{Compute, Diagnosis};

use super::Records;
use crate::backend::aws::{named_pool, options};
use crate::inputs::Common;
use crate::surroundings::Entropy;

/// Connects to the pool that was named. Fails if none was.
pub(super) async fn records(common: &Common) -> Result<Records, Failure> {
    let pool = named_pool(common)?;
    let name = pool.to_string();
    let cloud = Cloud::connect(options(common, pool), Arc::new(Entropy)).await?;
    let store = Arc::new(DynamoStore::new(&cloud));
    Ok(Records {
        history: store.clone(),
        store,
        pool: Arc::new(SqsPool::new(&cloud)),
        clock: Arc::new(cloud.clock()),
        label: name.clone(),
        owner: Some(name),
        #[cfg(feature = "local")]
        db: None,
        cloud: Some(cloud),
    })
}

/// Machines from EC2, in the account and region of the records.
pub(super) fn compute(records: &Records) -> Result<Arc<dyn Compute>, Failure> {
    Ok(Arc::new(Ec2Compute::new(cloud(records)?)))
}

/// AWS, as doctor asks about it.
pub(super) fn diagnosis(records: &Records) -> Result<Arc<dyn Diagnosis>, Failure> {
    Ok(Arc::new(AwsDiagnosis::new(cloud(records)?)))
}

/// The caller's ARN; `None` if the records are elsewhere, or AWS does not say.
pub(super) async fn caller(records: &Records) -> Option<String> {
    let cloud = records.cloud.as_ref()?;
    match AwsDiagnosis::new(cloud).caller().await {
        Told::Known(Caller::Known(arn)) => Some(arn),
        _ => None,
    }
}

fn cloud(records: &Records) -> Result<&Cloud, Failure> {
    records
        .cloud
        .as_ref()
        .ok_or_else(|| Failure::new(FailureKind::Unexpected, "EC2 machines need records on AWS"))
}
