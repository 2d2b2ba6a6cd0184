//! Secrets of refresh that AWS keeps, instead of being given.

#[cfg(feature = "aws")]
use ondeck_core::inputs::{Given, Input};
use ondeck_core::model::failure::Failure;
use ondeck_core::model::secret::Secret;

#[cfg(feature = "aws")]
use super::Records;

/// A secret that AWS keeps. It is read when it is needed.
#[cfg(feature = "aws")]
pub(crate) struct Kept {
    source: ondeck_aws::SecretSource,
    cloud: ondeck_aws::Cloud,
}

/// There is none in a build without AWS.
#[cfg(not(feature = "aws"))]
pub(crate) enum Kept {}

/// Where AWS keeps a secret, as the input `source` says; `None` if it was not given. Fails if the input
/// `secret` gives the secret itself, or if there are no records on AWS.
#[cfg(feature = "aws")]
pub(super) fn kept(
    given: &Given,
    records: &Records,
    secret: &Input,
    source: &Input,
) -> Result<Option<Kept>, Failure> {
    let Some(text) = given.text(source).filter(|text| !text.is_empty()) else { return Ok(None) };
    let invalid = |problem: String| Failure::invalid(format!("{} {problem}", source.name));
    if given.secret(secret).is_some() {
        let problem = format!("is given beside the secret itself: {text}");
        return Err(invalid(problem).hint("give one of the two"));
    }
    let source = ondeck_aws::SecretSource::parse(text).map_err(invalid)?;
    let cloud = records.cloud.clone();
    let cloud = cloud.ok_or_else(|| invalid(format!("needs records on AWS: {text}")))?;
    Ok(Some(Kept { source, cloud }))
}

#[cfg(feature = "aws")]
impl Kept {
    /// Reads the secret, and has GitHub mask it.
    pub(crate) async fn read(&self) -> Result<Secret, Failure> {
        let secret = self.source.read(&self.cloud).await?;
        crate::control::github_actions::mask(&secret);
        Ok(secret)
    }
}

#[cfg(not(feature = "aws"))]
impl Kept {
    pub(crate) async fn read(&self) -> Result<Secret, Failure> {
        match *self {}
    }
}
