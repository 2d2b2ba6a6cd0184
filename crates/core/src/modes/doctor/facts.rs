//! What a provider tells about the surroundings of a pool. Nothing here is judged.

use std::collections::BTreeMap;

use crate::model::ids::RunId;
use crate::model::requirements::UsageClass;
use crate::model::settings::InvalidSetting;
use crate::model::timestamp::Timestamp;
use crate::ports::{ListedRunner, Machine, WaitingJobs};

/// An answer to one question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Told<T> {
    Known(T),
    /// The question makes no sense for this provider, or for these settings.
    #[default]
    Nothing,
    /// There is no answer, with what it would need: a permission, a credential, a service that answers.
    Untold(String),
}

impl<T> Told<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Told::Known(fact) => Some(fact),
            Told::Nothing | Told::Untold(_) => None,
        }
    }

    /// Replaces an answer that nothing can be made of, by what that would need.
    pub(super) fn withhold(&mut self, needs: &str) {
        if matches!(self, Told::Known(_)) {
            *self = Told::Untold(needs.to_owned());
        }
    }

    /// What a missing answer would need.
    pub fn needs(&self) -> Option<&str> {
        match self {
            Told::Untold(needs) => Some(needs),
            Told::Known(_) | Told::Nothing => None,
        }
    }
}

/// Who this process is for the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// By the name that the provider gives it.
    Known(String),
    /// The provider does not accept the credentials, or there are none, with its words and what helps.
    Refused { reason: String, hint: String },
}

/// The surroundings of a pool.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The settings of the provider that it cannot launch machines with.
    pub invalid: Vec<InvalidSetting>,
    /// What machines need in order to be launched, such as a launch template: its name, and whether it
    /// exists.
    pub template: Told<(String, bool)>,
    pub image: Told<Image>,
    /// The identity that machines have for the provider.
    pub profile: Told<Profile>,
    pub subnets: Told<Vec<Subnet>>,
    pub groups: Told<Vec<SecurityGroup>>,
    pub quotas: Told<Vec<Quota>>,
    /// The permissions of the caller that are missing, each with what it is needed for.
    pub denied: Told<Vec<Denied>>,
    /// The machines that the provider has. Listed without changing any.
    pub machines: Told<Vec<Machine>>,
    pub disk: Told<Disk>,
    /// Folders and files of the pool that other users of this computer may change, with their modes.
    pub writable_by_others: Told<Vec<(String, u32)>>,
    /// Jobs and runners, if the provider is also the forge.
    pub forge: Option<ForgeFacts>,
    /// What this provider never tells its caller, each with what a check of it needs.
    pub unchecked: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What the settings name, which is an id or leads to one.
    pub name: String,
    /// `None` if the image does not exist, or cannot be seen.
    pub found: Option<FoundImage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundImage {
    pub id: String,
    /// Why machines cannot be launched from it at present, in the provider's word.
    pub unavailable: Option<String>,
    /// What is wrong with its architecture, worded to follow the name of the setting.
    pub architecture_problem: Option<String>,
    pub created: Option<Timestamp>,
    /// When its publisher takes it back.
    pub deprecated: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Empty if the settings name none.
    pub name: String,
    pub exists: bool,
    pub has_role: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    pub id: String,
    /// `None` if it does not exist.
    pub found: Option<FoundSubnet>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSubnet {
    /// The network that it is a part of.
    pub network: String,
    pub zone: String,
    pub free_addresses: u32,
    /// Whether its machines get public addresses.
    pub gives_public_addresses: bool,
    pub route: Told<Route>,
}

/// Where packets to any public address go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    Missing,
    /// To something that is gone, by its name.
    Broken(String),
    /// To the internet, for machines with public addresses only.
    Gateway,
    /// To something that passes them on, such as address translation, a firewall or another network.
    Relay,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityGroup {
    pub id: String,
    /// `None` if it does not exist.
    pub found: Option<FoundGroup>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundGroup {
    pub network: String,
    /// Whether it lets machines open connections by https to anything.
    pub admits_https: bool,
    /// What every address may open connections to.
    pub open_to_all: Vec<OpenPort>,
}

/// Ports of a security group that every address may open connections to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPort {
    pub words: String,
    /// The rule as the provider's command line takes it, to remove it.
    pub rule: String,
}

/// How many virtual processors the machines of one purchase option may have together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// As a request to raise it names it.
    pub code: String,
    pub usage: UsageClass,
    pub cpus: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub permission: String,
    pub what: String,
}

/// The file system of the pool's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub place: String,
    pub free_bytes: u64,
    pub free_percent: u8,
    pub free_inodes_percent: u8,
}

/// What the forge tells.
#[derive(Debug, Clone, Default)]
pub struct ForgeFacts {
    pub runners: Told<Vec<ListedRunner>>,
    /// The runs whose jobs wait.
    pub waiting: Told<BTreeMap<RunId, WaitingJobs>>,
    pub software: Told<Software>,
    /// Why it does not accept the credentials, with what helps.
    pub refused: Option<(String, String)>,
}

/// The runner software that machines would install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Software {
    Usable,
    /// It is usable for now, with the forge's warning.
    Warned(String),
    /// No runner could register, with the reason.
    Unusable(String),
}

impl ForgeFacts {
    /// What a forge that cannot be asked leaves open.
    pub fn untold(needs: &str) -> ForgeFacts {
        let needs = needs.to_owned();
        ForgeFacts {
            runners: Told::Untold(needs.clone()),
            waiting: Told::Untold(needs.clone()),
            software: Told::Untold(needs),
            refused: None,
        }
    }

    /// What a forge without runner software of its own tells about its jobs and runners.
    pub fn of_jobs(
        runners: Vec<ListedRunner>,
        waiting: BTreeMap<RunId, WaitingJobs>,
    ) -> ForgeFacts {
        ForgeFacts {
            runners: Told::Known(runners),
            waiting: Told::Known(waiting),
            ..ForgeFacts::default()
        }
    }
}
