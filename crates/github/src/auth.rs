//! How requests to GitHub are authenticated: with a token, as a GitHub App, or not at all.

use std::time::Duration;

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use ondeck_core::model::failure::Failure;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{PortError, PortResult};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::client::{
    Answer, Client, GITHUB, Purpose, Request, TokenKind, error_for, parse_time, unavailable,
};
use crate::forge::{OnSecret, RunnerScope};

/// The credentials that refresh manages runners with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// A personal access token, or an installation token made outside of ondeck.
    Token(Secret),
    /// A GitHub App that is installed where runners register.
    App {
        /// The App ID or the client ID.
        id: String,
        /// PEM, as downloaded from GitHub.
        private_key: Secret,
    },
    /// None. Requests that manage runners then fail with a hint.
    Missing,
}

/// How long before its expiry a cached token is replaced.
const SPARE: Duration = Duration::from_secs(5 * 60);
/// How far this computer's clock may be ahead of GitHub's.
const SKEW: Duration = Duration::from_secs(60);
/// GitHub accepts at most ten minutes.
const JWT_LIFE: Duration = Duration::from_secs(9 * 60);

/// A client together with the credential that its requests carry.
pub(crate) struct Identity {
    client: Client,
    credential: Credential,
}

enum Credential {
    /// Requests carry no token.
    Anonymous,
    /// Nothing was configured: every request fails before it is sent.
    Missing,
    Token(Secret),
    App(Box<App>),
}

struct App {
    id: String,
    key: EncodingKey,
    scope: RunnerScope,
    on_secret: OnSecret,
    /// Locked while a token is requested, so that concurrent callers share one.
    cached: Mutex<Option<CachedToken>>,
}

struct CachedToken {
    token: Secret,
    expires_at: Timestamp,
}

impl Identity {
    /// Uses the configured credentials. Fails if the token or the App's key is malformed.
    pub(crate) fn new(
        client: Client,
        auth: &Auth,
        scope: &RunnerScope,
        on_secret: OnSecret,
    ) -> Result<Identity, Failure> {
        let credential = match auth {
            Auth::Missing => Credential::Missing,
            Auth::Token(token) => return Identity::of_token(client, "github-token", token),
            Auth::App { id, private_key } => {
                let key = signing_key(id, private_key)?;
                let (id, scope) = (id.trim().to_owned(), scope.clone());
                Credential::App(Box::new(App {
                    id,
                    key,
                    scope,
                    on_secret,
                    cached: Mutex::default(),
                }))
            }
        };
        Ok(Identity { client, credential })
    }

    /// Uses `token`. Fails if it is malformed; the message then names `input`.
    pub(crate) fn of_token(
        client: Client,
        input: &str,
        token: &Secret,
    ) -> Result<Identity, Failure> {
        let text = token.expose().trim();
        if text.is_empty() || !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Failure::invalid(format!("{input} is empty or is not a single token"))
                .hint("store the secret as one line, without blanks or quotes"));
        }
        Ok(Identity { client, credential: Credential::Token(Secret::new(text)) })
    }

    /// Sends requests without a token.
    pub(crate) fn anonymous(client: Client) -> Identity {
        Identity { client, credential: Credential::Anonymous }
    }

    /// Sends a request and returns GitHub's answer, success or not. Fails if the answer is 401, or if
    /// [`Client::send`] fails. A 401 on a cached App token drops that token and counts as unavailable,
    /// so that a retry requests a new one.
    pub(crate) async fn ask(&self, request: &Request<'_>) -> PortResult<Answer> {
        let (bearer, cached) = match &self.credential {
            Credential::Anonymous => (None, false),
            Credential::Missing => return Err(missing(&request.purpose)),
            Credential::Token(token) => (Some(token.clone()), false),
            Credential::App(app) => {
                let (token, cached) = app.token(&self.client).await?;
                (Some(token), cached)
            }
        };
        let answer = self.client.send(request, bearer.as_ref()).await?;
        if answer.status != 401 {
            return Ok(answer);
        }
        if let (Credential::App(app), true) = (&self.credential, cached) {
            app.forget(bearer.as_ref()).await;
            return Err(unavailable(request, "it has revoked the installation token"));
        }
        Err(error_for(request, self.kind(), &answer))
    }

    /// Sends a request and parses the answer. Fails if the answer is not a success.
    pub(crate) async fn get<T: DeserializeOwned>(&self, request: &Request<'_>) -> PortResult<T> {
        let answer = self.ask(request).await?;
        if answer.is_success() {
            answer.read(request)
        } else {
            Err(self.error_for(request, &answer))
        }
    }

    /// The error for an answer that is not a success.
    pub(crate) fn error_for(&self, request: &Request<'_>, answer: &Answer) -> PortError {
        error_for(request, self.kind(), answer)
    }

    fn kind(&self) -> TokenKind {
        match &self.credential {
            Credential::Anonymous | Credential::Missing => TokenKind::Unknown,
            Credential::Token(token) => TokenKind::of(token.expose()),
            Credential::App(_) => TokenKind::App,
        }
    }
}

/// A token that GitHub has issued.
pub(crate) struct IssuedToken {
    pub(crate) token: Secret,
    pub(crate) expires_at: Timestamp,
}

impl IssuedToken {
    /// Reads the token from an answer. `on_secret` gets the token before anything else can fail.
    pub(crate) fn read(
        request: &Request<'_>,
        answer: &Answer,
        on_secret: &OnSecret,
    ) -> PortResult<IssuedToken> {
        #[derive(Deserialize)]
        struct Issued {
            token: String,
            expires_at: String,
        }
        let Issued { token, expires_at } = answer.read(request)?;
        let token = Secret::new(token);
        on_secret(&token);
        let expires_at = parse_time(&expires_at)
            .ok_or_else(|| unavailable(request, "the token's expiry time is not readable"))?;
        Ok(IssuedToken { token, expires_at })
    }
}

impl App {
    /// Returns a token that stays valid for at least [`SPARE`], and whether it came from the cache.
    async fn token(&self, client: &Client) -> PortResult<(Secret, bool)> {
        let mut cached = self.cached.lock().await;
        let now = client.clock().now();
        if let Some(CachedToken { token, expires_at }) = &*cached
            && now + SPARE < *expires_at
        {
            return Ok((token.clone(), true));
        }
        let IssuedToken { token, expires_at } = self.renew(client, now).await?;
        *cached = Some(CachedToken { token: token.clone(), expires_at });
        Ok((token, false))
    }

    /// Drops a token from the cache, unless it has been replaced already.
    async fn forget(&self, token: Option<&Secret>) {
        let mut cached = self.cached.lock().await;
        if cached.as_ref().map(|cached| &cached.token) == token {
            *cached = None;
        }
    }

    async fn renew(&self, client: &Client, now: Timestamp) -> PortResult<IssuedToken> {
        #[derive(Deserialize)]
        struct Installation {
            id: u64,
        }
        let jwt = sign(&self.id, &self.key, now).map_err(|()| PortError::Unusable {
            service: GITHUB,
            reason: "signing with the private key of the GitHub App failed".to_owned(),
            hint: KEY_HINT.to_owned(),
        })?;
        (self.on_secret)(&jwt);
        let purpose = Purpose::Installation(&self.scope);
        let request = Request::get(purpose, format!("{}/installation", self.scope.path()));
        let answer = client.send(&request, Some(&jwt)).await?;
        if !answer.is_success() {
            return Err(error_for(&request, TokenKind::App, &answer));
        }
        let Installation { id } = answer.read(&request)?;
        let request = Request::post(purpose, format!("app/installations/{id}/access_tokens"));
        let answer = client.send(&request, Some(&jwt)).await?;
        if !answer.is_success() {
            return Err(error_for(&request, TokenKind::App, &answer));
        }
        IssuedToken::read(&request, &answer, &self.on_secret)
    }
}

const KEY_HINT: &str = "pass the whole .pem file that GitHub generated for the App, including its \
                        BEGIN and END lines and its line breaks";

/// Parses the key and signs with it once, because some keys parse but cannot sign. Fails if the id is
/// empty or the key is unusable.
fn signing_key(id: &str, private_key: &Secret) -> Result<EncodingKey, Failure> {
    if id.trim().is_empty() {
        return Err(Failure::invalid("github-app-id is empty")
            .hint("copy the App ID or Client ID from the App's settings page"));
    }
    let invalid =
        || Failure::invalid("github-app-private-key is not an RSA key in PEM").hint(KEY_HINT);
    let key = EncodingKey::from_rsa_pem(private_key.expose().trim().as_bytes());
    let key = key.map_err(|_| invalid())?;
    sign(id, &key, Timestamp::from_millis(0)).map_err(|()| invalid())?;
    Ok(key)
}

/// Signs the JWT that authenticates the App. The error carries no details, because they could
/// contain parts of the key.
fn sign(id: &str, key: &EncodingKey, now: Timestamp) -> Result<Secret, ()> {
    #[derive(Serialize)]
    struct Claims<'a> {
        iat: u64,
        exp: u64,
        iss: &'a str,
    }
    let claims = Claims {
        iat: now.before(SKEW).millis() / 1000,
        exp: (now + JWT_LIFE).millis() / 1000,
        iss: id,
    };
    let header = Header::new(Algorithm::RS256);
    jsonwebtoken::encode(&header, &claims, key).map(Secret::new).map_err(|_| ())
}

fn missing(purpose: &Purpose<'_>) -> PortError {
    PortError::Forge {
        reason: format!("no credentials to {} {purpose}", purpose.verb()),
        hint: "pass --github-token, or --github-app-id and --github-app-private-key".to_owned(),
    }
}
