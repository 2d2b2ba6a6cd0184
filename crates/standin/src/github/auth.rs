//! Who is asking, and what they may.

use std::time::{Duration, SystemTime};

use hyper::header::HeaderName;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Map, Value};

use crate::http::Answer;

use super::answers;
use super::state::State;

/// How far ahead an App may say that its word ends.
const APP_WORD: Duration = Duration::from_secs(600);
const NOT_A_WORD: &str = "A JSON web token could not be decoded";

/// What a token may do where it is allowed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// A repository's administration, to write: its runners.
    Administration,
    /// A repository's actions, to read: its runs and their jobs.
    ActionsRead,
    /// An organisation's self-hosted runners, to write.
    OrganisationRunners,
    /// To see that a repository is there, which everything else includes.
    Metadata,
}

impl Permission {
    const ALL: [Permission; 4] = [
        Permission::Administration,
        Permission::ActionsRead,
        Permission::OrganisationRunners,
        Permission::Metadata,
    ];

    fn name(self) -> &'static str {
        match self {
            Permission::Administration => "administration",
            Permission::ActionsRead => "actions",
            Permission::OrganisationRunners => "organization_self_hosted_runners",
            Permission::Metadata => "metadata",
        }
    }

    fn level(self) -> &'static str {
        match self {
            Permission::Administration | Permission::OrganisationRunners => "write",
            Permission::ActionsRead | Permission::Metadata => "read",
        }
    }
}

/// Permissions as GitHub lists them.
pub(super) fn listed(permissions: &[Permission]) -> Value {
    let entry = |it: &Permission| (it.name().to_owned(), Value::from(it.level()));
    Value::Object(permissions.iter().map(entry).collect::<Map<_, _>>())
}

/// The permissions that are asked for, as far as they are of those that there are. `None` where
/// one of them is not.
pub(super) fn narrowed(asked: &Value, granted: &[Permission]) -> Option<Vec<Permission>> {
    let Some(asked) = asked.as_object() else { return Some(granted.to_vec()) };
    let mut narrowed = vec![Permission::Metadata];
    for (name, level) in asked {
        let known = Permission::ALL.into_iter().find(|known| known.name() == name)?;
        let enough = known.level() == "write" || level == "read";
        if !(enough && (granted.contains(&known) || known == Permission::Metadata)) {
            return None;
        }
        narrowed.push(known);
    }
    narrowed.sort();
    narrowed.dedup();
    Some(narrowed)
}

/// A repository or an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Repository(String),
    Organisation(String),
}

impl Target {
    /// `acme/web` or `acme`.
    pub(super) fn of(name: &str) -> Target {
        if name.contains('/') {
            Target::Repository(name.to_owned())
        } else {
            Target::Organisation(name.to_owned())
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Target::Repository(name) | Target::Organisation(name) => name,
        }
    }

    pub(super) fn owner(&self) -> &str {
        self.name().split('/').next().unwrap_or_default()
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name)
    }
}

/// A token that the interface knows.
#[derive(Clone)]
pub(super) struct Token {
    /// What it is called in the list of requests.
    pub(super) name: String,
    /// Of an App's installation, and not of a person.
    pub(super) is_integration: bool,
    /// For whom, and what.
    pub(super) grants: Vec<(Target, Vec<Permission>)>,
    pub(super) expires: Option<SystemTime>,
}

impl Token {
    /// Its permissions at a target. `None` where it does not see it. Whoever is allowed at an
    /// organisation is so at all of its repositories.
    fn at(&self, target: &Target) -> Option<Vec<Permission>> {
        let applies = |grant: &Target| {
            grant.is(target.name())
                || matches!(grant, Target::Organisation(owner) if owner.eq_ignore_ascii_case(target.owner()))
        };
        let sees = |grant: &Target| grant.owner().eq_ignore_ascii_case(target.name());
        let found: Vec<_> = self.grants.iter().filter(|(grant, _)| applies(grant)).collect();
        if found.is_empty() {
            // An organisation can be seen by whoever sees a repository of it.
            return self.grants.iter().any(|(grant, _)| sees(grant)).then(Vec::new);
        }
        Some(found.iter().flat_map(|(_, permissions)| permissions.clone()).collect())
    }
}

/// An App, and the one installation that it has.
#[derive(Clone)]
pub(super) struct App {
    pub(super) id: String,
    pub(super) key: DecodingKey,
    pub(super) owner: String,
    pub(super) permissions: Vec<Permission>,
    pub(super) installation: u64,
}

/// Who asks.
pub(super) enum Caller {
    Nobody,
    /// With a token that is known.
    Known(Token),
    /// With a secret that nobody knows, or that has expired.
    Unknown,
}

impl Caller {
    pub(super) fn of(state: &State, credentials: Option<(&str, &str)>) -> Caller {
        let secret = match credentials {
            None => return Caller::Nobody,
            Some((scheme, secret)) if is_bearer(scheme) => secret,
            Some(_) => return Caller::Unknown,
        };
        match state.tokens.get(secret) {
            Some(token) if token.expires.is_none_or(|end| state.now() < end) => {
                Caller::Known(token.clone())
            }
            _ => Caller::Unknown,
        }
    }

    /// Whether this caller may do this here, and if not, what they are told.
    pub(super) fn may(&self, target: &Target, permission: Permission) -> Result<(), Box<Answer>> {
        let token = match self {
            Caller::Nobody => return Err(answers::unknown_caller("Requires authentication").into()),
            Caller::Unknown => return Err(answers::unknown_caller("Bad credentials").into()),
            Caller::Known(token) => token,
        };
        let Some(permissions) = token.at(target) else { return Err(answers::not_found().into()) };
        if permissions.contains(&permission) {
            return Ok(());
        }
        let kind = if token.is_integration { "integration" } else { "personal access token" };
        let answer = answers::refusal(403, &format!("Resource not accessible by {kind}"));
        let needed = format!("{}={}", permission.name(), permission.level());
        let header = HeaderName::from_static("x-accepted-github-permissions");
        Err(answers::header(answer, header, &needed).into())
    }

    pub(super) fn name(&self) -> Option<&str> {
        if let Caller::Known(token) = self { Some(&token.name) } else { None }
    }
}

/// GitHub takes either word.
pub(super) fn is_bearer(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token")
}

/// The App that has signed a word of its own, and if there is none, what it is told.
pub(super) fn app<'a>(
    state: &'a State,
    credentials: Option<(&str, &str)>,
) -> Result<&'a App, Box<Answer>> {
    let refused = || Box::new(answers::unknown_caller(NOT_A_WORD));
    let word = match credentials {
        Some((scheme, word)) if scheme.eq_ignore_ascii_case("bearer") => word,
        _ => return Err(refused()),
    };
    let claims = jsonwebtoken::dangerous::insecure_decode::<Value>(word).map_err(|_| refused())?;
    let issuer = match &claims.claims["iss"] {
        Value::String(issuer) => issuer.clone(),
        other => other.to_string(),
    };
    let app = state.apps.iter().find(|app| app.id == issuer);
    let app = app.ok_or_else(|| answers::refusal(404, "Integration not found"))?;
    let mut validation = Validation::new(Algorithm::RS256);
    // Time is judged below, by a clock that can be moved.
    validation.validate_exp = false;
    validation.required_spec_claims.clear();
    let claims = jsonwebtoken::decode::<Value>(word, &app.key, &validation);
    let claims = claims.map_err(|_| refused())?.claims;
    in_time(&claims, state.now()).map_err(|why| Box::new(answers::unknown_caller(why)))?;
    Ok(app)
}

fn in_time(claims: &Value, now: SystemTime) -> Result<(), &'static str> {
    let moment =
        |name: &str| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(claims[name].as_u64()?));
    let issued = moment("iat").filter(|issued| *issued <= now);
    issued.ok_or(
        "'Issued at' claim ('iat') must be an Integer representing the time that the assertion \
         was issued",
    )?;
    let expires = moment("exp").filter(|expires| *expires > now).ok_or(
        "'Expiration time' claim ('exp') must be a numeric value representing the future time at \
         which the assertion expires",
    )?;
    if expires > now + APP_WORD {
        return Err("'Expiration time' claim ('exp') is too far in the future");
    }
    Ok(())
}
