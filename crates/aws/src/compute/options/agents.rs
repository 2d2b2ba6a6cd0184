//! Where machines download the agent, for each architecture.

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::settings::InvalidSetting;

use super::{
    AGENT_SHA256, AGENT_SHA256_ARM64, AGENT_URL, AGENT_URL_ARM64, Settings, given, invalid, word,
};

/// The downloads of the agent; none for an architecture whose images have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Agents {
    pub(crate) x86_64: Option<AgentSource>,
    pub(crate) arm64: Option<AgentSource>,
}

/// A download of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentSource {
    pub(crate) url: String,
    pub(crate) sha256: String,
}

impl Agents {
    pub(super) fn read(settings: &Settings) -> Result<Agents, InvalidSetting> {
        Ok(Agents {
            x86_64: AgentSource::read(settings, AGENT_URL, AGENT_SHA256)?,
            arm64: AgentSource::read(settings, AGENT_URL_ARM64, AGENT_SHA256_ARM64)?,
        })
    }

    /// Whether machines download the agent. If not, it must be on the image.
    pub(crate) fn are_downloaded(&self) -> bool {
        *self != Agents::default()
    }

    /// Fails with what is wrong with an image of this architecture, by the name that EC2 gives it,
    /// worded to follow the name of the setting. Without any download the agent must be on the image,
    /// which only the machine can check.
    pub(crate) fn check_image(&self, architecture: &str) -> Result<(), String> {
        let (source, name, url, sha256) = match architecture {
            "x86_64" => (&self.x86_64, "x86-64", AGENT_URL, AGENT_SHA256),
            "arm64" => (&self.arm64, "arm64", AGENT_URL_ARM64, AGENT_SHA256_ARM64),
            // An emulator may not tell.
            "" => return Ok(()),
            other => {
                return Err(format!(
                    "is an image for {}, and there are agents for x86_64 and arm64 only",
                    quoted(other)
                ));
            }
        };
        if source.is_none() && self.are_downloaded() {
            return Err(format!(
                "is an image for {name}, and no agent is configured for it: set {url} and {sha256}"
            ));
        }
        Ok(())
    }
}

impl AgentSource {
    fn read(
        settings: &Settings,
        url_setting: &str,
        sha256_setting: &str,
    ) -> Result<Option<AgentSource>, InvalidSetting> {
        let Some(url) = word(settings, url_setting)? else { return Ok(None) };
        if !url.starts_with("https://") && !url.starts_with("s3://") {
            let problem = format!("is neither https:// nor s3://: {}", quoted(&url));
            return Err(invalid(url_setting, problem));
        }
        let sha256 = given(settings, sha256_setting).ok_or_else(|| {
            let problem = format!("is not set, and {url_setting} needs it to check what it gets");
            invalid(sha256_setting, problem)
        })?;
        if sha256.len() != 64 || !sha256.chars().all(|c| c.is_ascii_hexdigit()) {
            let problem = format!("is not 64 hexadecimal digits: {}", quoted(sha256));
            return Err(invalid(sha256_setting, problem));
        }
        Ok(Some(AgentSource { url, sha256: sha256.to_ascii_lowercase() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_needs_an_agent_of_its_architecture() {
        let source = || {
            Some(AgentSource { url: "https://example.com/x".to_owned(), sha256: "ab".repeat(32) })
        };
        let on_image = Agents::default();
        let only_x86 = Agents { x86_64: source(), arm64: None };
        let only_arm = Agents { x86_64: None, arm64: source() };
        let both = Agents { x86_64: source(), arm64: source() };
        for (agents, architecture, problem) in [
            (&on_image, "x86_64", None),
            (&on_image, "arm64", None),
            (&on_image, "i386", Some("agents for x86_64 and arm64 only")),
            (&only_x86, "x86_64", None),
            (&only_x86, "arm64", Some("set agent-url-arm64 and agent-sha256-arm64")),
            (&only_x86, "", None),
            (&only_arm, "x86_64", Some("set agent-url and agent-sha256")),
            (&both, "x86_64", None),
            (&both, "arm64", None),
            (&both, "arm64_mac", Some("for \"arm64_mac\"")),
        ] {
            let found = agents.check_image(architecture).err();
            let as_expected = match (&found, problem) {
                (Some(found), Some(problem)) => found.contains(problem),
                (found, problem) => found.is_none() && problem.is_none(),
            };
            assert!(as_expected, "{architecture}: {found:?}");
        }
    }
}
