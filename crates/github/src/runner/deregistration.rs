//! Removes the runner from GitHub's list.
//!
//! GitHub does not remove a runner while it waits for a job of it. If a listener dies with a job, that
//! takes up to ten minutes, for which no machine should be kept. Such a registration is *set aside*: its
//! files are kept, and each later deregistration on this machine tries once more to remove it. If the
//! machine is gone before that, refresh removes the runner.

use std::time::Duration;

use ondeck_core::model::credentials::TokenPurpose;

use super::registration::Registrar;
use super::{GitHubRunner, Timeouts};

impl GitHubRunner {
    /// Removes the present registration, without waiting for the end of its job. One that GitHub does
    /// not remove yet is set aside until the runner is deregistered.
    pub(super) async fn forget_earlier(&self, registrar: &Registrar<'_>) -> Result<(), String> {
        if registrar.is_registered() {
            self.remove_or_set_aside(registrar).await?;
        }
        registrar.forget()
    }

    /// Removes the present registration and those that were set aside. Fails if GitHub does not remove
    /// the present one, unless its listener died with a job: then it is set aside.
    pub(super) async fn remove_registrations(
        &self,
        registrar: &Registrar<'_>,
    ) -> Result<(), String> {
        let earlier = registrar.set_aside_before()?;
        if registrar.is_registered() {
            if self.state().is_removable {
                // Read only now, when no process of a job is left on the machine.
                let token = self.token(TokenPurpose::Removal).await?;
                let Timeouts { remove, idle, .. } = self.timeouts;
                registrar.remove(&token, remove, idle).await?;
            } else {
                self.forget_earlier(registrar).await?;
            }
        }
        for number in earlier {
            registrar.take_back(number)?;
            self.forget_earlier(registrar).await?;
        }
        Ok(())
    }

    async fn remove_or_set_aside(&self, registrar: &Registrar<'_>) -> Result<(), String> {
        let removed = match self.token(TokenPurpose::Removal).await {
            Ok(token) => registrar.remove(&token, self.timeouts.remove, Duration::ZERO).await,
            Err(why) => Err(why),
        };
        if let Err(why) = removed {
            tracing::warn!("an earlier registration is removed later: {why}");
            registrar.set_aside()?;
        }
        Ok(())
    }
}
