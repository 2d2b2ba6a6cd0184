use std::time::{Duration, SystemTime};

use hyper::header::HeaderName;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Map, Value};

use crate::http::Answer;

use super::answers;
use super::state::State;

/// How far in the future an App's JWT may expire.
const APP_JWT_LIFE: Duration = Duration::from_secs(600);
const NOT_A_WORD: &str = "A JSON web token could not be decoded";

/// A permission of a token at its targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Write access to a repository's administration, which includes its runners.
    Administration,
    /// Read access to a repository's Actions: its runs and their jobs.
    ActionsRead,
    /// Write access to a repository's Actions, which includes read access.
    ActionsWrite,
    /// Write access to an organisation's self-hosted runners.
    OrganisationRunners,
    /// Read access to a repository's metadata, which every other permission includes.
    Metadata,
}

impl Permission {
    const ALL: [Permission; 5] = [
        Permission::Administration,
        Permission::ActionsRead,
        Permission::ActionsWrite,
        Permission::OrganisationRunners,
        Permission::Metadata,
    ];

    fn name(self) -> &'static str {
        match self {
            Permission::Administration => "administration",
            Permission::ActionsRead => "actions",
            Permission::ActionsWrite => "actions",
            Permission::OrganisationRunners => "organization_self_hosted_runners",
            Permission::Metadata => "metadata",
        }
    }

    fn level(self) -> &'static str {
        match self {
            Permission::Administration
            | Permission::OrganisationRunners
            | Permission::ActionsWrite => "write",
            Permission::ActionsRead | Permission::Metadata => "read",
        }
    }
}

/// Permissions in GitHub's JSON format.
pub(super) fn listed(permissions: &[Permission]) -> Value {
    let entry = |it: &Permission| (it.name().to_owned(), Value::from(it.level()));
    Value::Object(permissions.iter().map(entry).collect::<Map<_, _>>())
}

/// The permissions that a request asks for, or all granted ones if it asks for none in particular.
/// Returns `None` if one of them is not granted.
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
    /// Parses `acme/web` as a repository and `acme` as an organisation.
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

/// An access token that the REST API accepts.
#[derive(Clone)]
pub(super) struct Token {
    /// The token's name in the log of requests.
    pub(super) name: String,
    /// Whether it belongs to an App's installation instead of a person.
    pub(super) is_integration: bool,
    /// The targets of the token, with its permissions at each.
    pub(super) grants: Vec<(Target, Vec<Permission>)>,
    pub(super) expires: Option<SystemTime>,
}

impl Token {
    /// The token's permissions at a target; `None` if it cannot see the target. A grant for an
    /// organisation includes all of its repositories.
    fn at(&self, target: &Target) -> Option<Vec<Permission>> {
        let applies = |grant: &Target| {
            grant.is(target.name())
                || matches!(grant, Target::Organisation(owner) if owner.eq_ignore_ascii_case(target.owner()))
        };
        let sees = |grant: &Target| grant.owner().eq_ignore_ascii_case(target.name());
        let found: Vec<_> = self.grants.iter().filter(|(grant, _)| applies(grant)).collect();
        if found.is_empty() {
            // A token that sees a repository sees its organisation too.
            return self.grants.iter().any(|(grant, _)| sees(grant)).then(Vec::new);
        }
        Some(found.iter().flat_map(|(_, permissions)| permissions.clone()).collect())
    }
}

/// An App with its one installation.
#[derive(Clone)]
pub(super) struct App {
    pub(super) id: String,
    pub(super) key: DecodingKey,
    pub(super) owner: String,
    pub(super) permissions: Vec<Permission>,
    pub(super) installation: u64,
}

/// Who sent a request, by its credentials.
pub(super) enum Caller {
    Anonymous,
    /// The request has a valid token.
    Known(Token),
    /// The request has an unknown or expired token.
    Unknown,
}

impl Caller {
    pub(super) fn of(state: &State, credentials: Option<(&str, &str)>) -> Caller {
        let secret = match credentials {
            None => return Caller::Anonymous,
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

    /// Fails with GitHub's answer if the caller does not have this permission at the target.
    pub(super) fn may(&self, target: &Target, permission: Permission) -> Result<(), Box<Answer>> {
        let token = match self {
            Caller::Anonymous => {
                return Err(answers::unknown_caller("Requires authentication").into());
            }
            Caller::Unknown => return Err(answers::unknown_caller("Bad credentials").into()),
            Caller::Known(token) => token,
        };
        let Some(permissions) = token.at(target) else { return Err(answers::not_found().into()) };
        let includes = |granted: &Permission| {
            *granted == permission
                || (*granted == Permission::ActionsWrite && permission == Permission::ActionsRead)
        };
        if permissions.iter().any(includes) {
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

/// Whether a scheme is one that GitHub accepts for tokens: `Bearer` or `token`.
pub(super) fn is_bearer(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token")
}

/// The App that has signed the request's JWT. Fails with GitHub's answer if the JWT is not valid.
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
    // The times are checked below, by a clock that tests can advance.
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
    if expires > now + APP_JWT_LIFE {
        return Err("'Expiration time' claim ('exp') is too far in the future");
    }
    Ok(())
}
