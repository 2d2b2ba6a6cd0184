//! The answers to init's questions: given, asked for at a terminal, or taken from what is known.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;

use ondeck_aws::{PoolName, REGION};
use ondeck_core::inputs::{Given, Input, InputDefault, InputValue};
use ondeck_core::model::failure::Failure;
use ondeck_github::REPOSITORY;

use super::files::{MAINTENANCE, PARAMETERS, SETTINGS, TERRAFORM_FILE};
use super::lines;
use super::surroundings::{Account, Checkout, region, with_ids};
use crate::inputs::init::{
    self, CLOUDFORMATION, DEFAULT_BRANCH, FUNCTION, IMAGE, INFRASTRUCTURE, NEW_NETWORK, OUTPUTS,
    REFRESH, REPOSITORY_WITH_IDS, SUBNETS, TERRAFORM, VPC, WORKFLOW,
};
use crate::inputs::rows::YES;

/// Everything that the files are made from.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) repository: String,
    /// OWNER@ID/NAME@ID, if it is known.
    pub(super) repository_with_ids: Option<String>,
    pub(super) default_branch: String,
    pub(super) pool: PoolName,
    pub(super) region: String,
    pub(super) ami: String,
    /// An existing network and its subnets; `None` for a new one.
    pub(super) network: Option<(String, Vec<String>)>,
    pub(super) usage_class: String,
    pub(super) resource_class: String,
    pub(super) infrastructure: Infrastructure,
    /// Whether a function refreshes the pool, so that the workflow only applies its settings.
    pub(super) by_function: bool,
    /// Whether the deployment creates the identity provider: the account is not known to have one.
    pub(super) needs_provider: bool,
    /// Whether the deployment creates the role of spot machines: the account is known to lack it.
    pub(super) needs_spot_role: bool,
}

/// What creates roles and network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Infrastructure {
    CloudFormation,
    Terraform,
}

/// What an earlier call has written, which stays as it is unless this call is told otherwise.
#[derive(Debug, Default)]
struct Earlier {
    settings: String,
    module: String,
    parameters: String,
    maintenance: String,
}

impl Earlier {
    fn read(root: &Path) -> Earlier {
        let text = |path| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        Earlier {
            settings: text(SETTINGS),
            module: text(TERRAFORM_FILE),
            parameters: text(PARAMETERS),
            maintenance: text(MAINTENANCE),
        }
    }

    /// A parameter of the infrastructure, by its two names.
    fn parameter(&self, name: &str, variable: &str) -> Option<String> {
        let list: Vec<serde_json::Value> =
            serde_json::from_str(&self.parameters).unwrap_or_default();
        let found = list.iter().find(|entry| entry["ParameterKey"] == name);
        let value = found.and_then(|entry| Some(entry["ParameterValue"].as_str()?.to_owned()));
        let known = value.or_else(|| lines::string(&self.module, "", variable));
        known.filter(|value| !value.is_empty())
    }

    /// The network that was chosen, if it was an existing one.
    fn network(&self) -> Option<(String, Vec<String>)> {
        let vpc = self.parameter("VpcId", "vpc_id")?;
        let subnets = self.parameter("SubnetIds", "subnet_ids").or_else(|| {
            let list = lines::value(&self.module, "", "subnet_ids")?;
            Some(serde_json::from_str::<Vec<String>>(list).ok()?.join(","))
        })?;
        Some((vpc, init::subnets(&subnets).ok()?))
    }

    fn infrastructure(&self) -> &'static str {
        if self.module.is_empty() { CLOUDFORMATION } else { TERRAFORM }
    }

    fn refresh(&self) -> &'static str {
        let is_only_applied =
            self.maintenance.contains("mode: apply") && !self.maintenance.contains("mode: refresh");
        if is_only_applied { FUNCTION } else { WORKFLOW }
    }

    fn is_first(&self) -> bool {
        self.parameters.is_empty() && self.module.is_empty()
    }
}

/// Finds all answers, in the order of the questions. Fails with exit code 2 if one is missing or wrong.
pub(super) async fn find(given: &Given, checkout: &Checkout) -> Result<Answers, Failure> {
    let earlier = Earlier::read(&checkout.root);
    let mut desk = Desk::new(given);
    let known = earlier.parameter("Repository", "repository");
    let detected = known.map_or_else(|| checkout.repository.clone(), Ok);
    let question = "Repository on GitHub";
    let repository = match detected {
        Err(failure) if given.text(&REPOSITORY).is_none() && !desk.asks => return Err(failure),
        detected => desk.checked(&REPOSITORY, question, detected.ok(), init::check_repository)?,
    };
    let repository_with_ids = repository_with_ids(&desk, &earlier, &repository).await?;
    let default_branch = earlier
        .parameter("DefaultBranch", "default_branch")
        .or_else(|| checkout.default_branch.clone())
        .unwrap_or_else(|| "main".to_owned());
    let default_branch = desk.silent(&DEFAULT_BRANCH, default_branch)?;
    let pool = pool(given, &earlier, &repository)?;

    let known = match lines::string(&earlier.settings, "", "region") {
        Some(region) => Some(region),
        None => region().await,
    };
    let region = desk.checked(&REGION, "AWS region", known, init::check_region)?;
    let account =
        if earlier.is_first() { Account::find(&region).await } else { Account::default() };
    let known = lines::string(&earlier.settings, "image", "ami");
    let image = desk.answer(&IMAGE, "Image of the machines", known)?;
    let network = network(&mut desk, &earlier, &account)?;
    let usage_class =
        desk.answer(row("usage-class"), "Purchase option: spot or on-demand", None)?;
    let resource_class =
        desk.answer(row("resource-class"), "Resource class of the workflow", None)?;
    let language = earlier.infrastructure().to_owned();
    let language = desk.answer(&INFRASTRUCTURE, "Infrastructure as", Some(language))?;
    let refresh = earlier.refresh().to_owned();
    let question = "Refresh by workflow (6 steps) or function (8 steps, recommended)";
    let refresh = desk.answer(&REFRESH, question, Some(refresh))?;
    let is_spot = usage_class == "spot";
    // Afterwards the account has what was new, and the deployment still has to own it.
    let is_new = |name, variable| earlier.parameter(name, variable).map(|value| value == "new");
    Ok(Answers {
        ami: init::image(&image).map_err(|problem| Failure::invalid(format!("image {problem}")))?,
        infrastructure: match language.as_str() {
            TERRAFORM => Infrastructure::Terraform,
            _ => Infrastructure::CloudFormation,
        },
        needs_provider: is_new("OidcProvider", "oidc_provider")
            .unwrap_or(account.has_provider != Some(true)),
        needs_spot_role: is_new("SpotRole", "spot_role")
            .unwrap_or(is_spot && account.has_spot_role == Some(false)),
        by_function: refresh == FUNCTION,
        repository,
        repository_with_ids,
        default_branch,
        pool,
        region,
        network,
        usage_class,
        resource_class,
    })
}

/// The repository with its ids: as given, as an earlier call has found it, or as GitHub says. Without
/// an answer of GitHub, it says what to do about that, and returns `None`.
async fn repository_with_ids(
    desk: &Desk<'_>,
    earlier: &Earlier,
    repository: &str,
) -> Result<Option<String>, Failure> {
    let is_same = |text: &str| {
        init::without_ids(text).is_ok_and(|name| name.eq_ignore_ascii_case(repository))
    };
    if let Some(text) = desk.given.text(&REPOSITORY_WITH_IDS) {
        if is_same(text) {
            return Ok(Some(text.to_owned()));
        }
        let name = REPOSITORY_WITH_IDS.name;
        let hint = "give --repository-with-ids of this repository, or leave it out if you have gh";
        let message = format!("{name} is of another repository than {repository}: {text}");
        return Err(Failure::invalid(message).hint(hint));
    }
    let known = earlier.parameter("RepositoryWithIds", "repository_with_ids");
    let known = known.filter(|text| is_same(text));
    // Outputs belong to a deployment that has had its parameters.
    if known.is_some() || desk.given.text(&OUTPUTS).is_some() {
        return Ok(known);
    }
    match with_ids(repository).await {
        Ok(text) => Ok(Some(text)),
        Err(note) => {
            desk.say(&format!("note: {note}"));
            Ok(None)
        }
    }
}

/// The row of provision with this name.
fn row(name: &str) -> &'static Input {
    let rows = ondeck_core::modes::provision::INPUTS;
    rows.iter().find(|row| row.name == name).expect("provision has the input")
}

/// The pool that was named, or that of the repository.
fn pool(given: &Given, earlier: &Earlier, repository: &str) -> Result<PoolName, Failure> {
    let known = lines::string(&earlier.settings, "", "pool");
    let named = given.text(&ondeck_aws::POOL).map(str::to_owned).or(known);
    let named = named.unwrap_or_else(|| repository.to_ascii_lowercase());
    named.parse::<PoolName>().map_err(|error| Failure::invalid(error.to_string()))
}

/// The word for a network that the infrastructure creates.
const NEW: &str = "new";

fn network(
    desk: &mut Desk<'_>,
    earlier: &Earlier,
    account: &Account,
) -> Result<Option<(String, Vec<String>)>, Failure> {
    if desk.given.is_set(&NEW_NETWORK) {
        return Ok(None);
    }
    if let (Some(vpc), Some(subnets)) = (desk.given.text(&VPC), desk.given.text(&SUBNETS)) {
        let subnets = init::subnets(subnets).map_err(Failure::invalid)?;
        return Ok(Some((vpc.to_owned(), subnets)));
    }
    let known = earlier.network();
    if !desk.asks {
        return Ok(known);
    }
    let offered = known.or_else(|| account.network.clone());
    if let Some((vpc, subnets)) = &offered {
        desk.say(&format!("{vpc} has the subnets {}", subnets.join(" ")));
    }
    let default = match (&offered, earlier.is_first()) {
        (Some((vpc, _)), false) => vpc.clone(),
        _ => NEW.to_owned(),
    };
    let vpc = desk.checked(&VPC, "Network: new, or an existing VPC", Some(default), |text| {
        if text == NEW { Ok(()) } else { (VPC.check)(text) }
    })?;
    match offered {
        _ if vpc == NEW => Ok(None),
        Some((known, subnets)) if known == vpc => Ok(Some((known, subnets))),
        _ => {
            let subnets = desk.answer(&SUBNETS, "Its subnets, one in each zone", None)?;
            Ok(Some((vpc, init::subnets(&subnets).map_err(Failure::invalid)?)))
        }
    }
}

/// Where questions are asked, if there is a person to answer them.
struct Desk<'a> {
    given: &'a Given,
    asks: bool,
}

impl<'a> Desk<'a> {
    fn new(given: &'a Given) -> Desk<'a> {
        let at_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let is_told = given.is_set(&YES) || given.text(&OUTPUTS).is_some();
        Desk { given, asks: at_terminal && !is_told }
    }

    /// The answer to a question that has a row of its own.
    fn answer(
        &mut self,
        row: &Input,
        question: &str,
        known: Option<String>,
    ) -> Result<String, Failure> {
        self.checked(row, question, known, row.check)
    }

    /// The answer that passes the check: as given, as asked for, or as known.
    fn checked(
        &mut self,
        row: &Input,
        question: &str,
        known: Option<String>,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<String, Failure> {
        let check = |text: &str| match row.value {
            InputValue::Choice(_, words) if !words.contains(&text) => {
                Err(format!("is not one of {}: {text}", words.join(", ")))
            }
            _ => check(text),
        };
        let default = known.or(match row.default {
            InputDefault::Value(text) => Some(text.to_owned()),
            InputDefault::None | InputDefault::Described(_) => None,
        });
        if self.asks && self.given.text(row).is_none() {
            return self.ask(row.name, question, default.as_deref(), &check);
        }
        let hint = format!("give --{}", row.name);
        let text = self.given.text(row).map(str::to_owned).or(default);
        let text =
            text.ok_or_else(|| Failure::invalid(format!("no {} given", row.name)).hint(&*hint))?;
        check(&text)
            .map_err(|problem| Failure::invalid(format!("{} {problem}", row.name)).hint(hint))?;
        Ok(text)
    }

    /// The answer as given or as known, without a question.
    fn silent(&self, row: &Input, known: String) -> Result<String, Failure> {
        let text = self.given.text(row).map_or(known, str::to_owned);
        let hint = format!("give --{}", row.name);
        (row.check)(&text)
            .map_err(|problem| Failure::invalid(format!("{} {problem}", row.name)).hint(hint))?;
        Ok(text)
    }

    /// Asks until the answer passes the check. Fails at the end of the input.
    fn ask(
        &mut self,
        name: &str,
        question: &str,
        default: Option<&str>,
        check: &dyn Fn(&str) -> Result<(), String>,
    ) -> Result<String, Failure> {
        let shown = default.map(|default| format!(" [{default}]")).unwrap_or_default();
        loop {
            let Some(line) = prompted(&format!("{question}{shown}: ")) else {
                let hint = format!("answer the question, or give --{name}");
                return Err(Failure::invalid(format!("no answer: {name}")).hint(hint));
            };
            let text = if line.is_empty() { default.unwrap_or_default() } else { &line };
            match check(text) {
                Ok(()) if !text.is_empty() => return Ok(text.to_owned()),
                Ok(()) => self.say(&format!("{name} is needed")),
                Err(problem) => self.say(&format!("{name} {problem}")),
            }
        }
    }

    fn say(&self, text: &str) {
        // If stderr is closed, the question that follows is not seen either.
        drop(writeln!(anstream::stderr(), "{text}"));
    }
}

/// Shows a question and reads a line. `None` at the end of the input.
pub(super) fn prompted(question: &str) -> Option<String> {
    let mut stderr = anstream::stderr();
    drop(write!(stderr, "{question}"));
    drop(stderr.flush());
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim().to_owned())
}
