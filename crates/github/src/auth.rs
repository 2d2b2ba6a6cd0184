//! Who asks GitHub: a token, or a GitHub App that has tokens made for itself.

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
    Answer, Client, GITHUB, Purpose, Request, TokenKind, complaint, moment, unavailable,
};
use crate::forge::{OnSecret, Scope};

/// What refresh has been given to manage runners with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// A personal access token, or one that somebody else has had made.
    Token(Secret),
    /// A GitHub App.
    App {
        /// Its id, or its client id.
        id: String,
        /// In PEM, as GitHub gives it.
        private_key: Secret,
    },
    /// Nothing. It is enough for whoever manages no runners.
    Missing,
}

/// How long before its end a token is not used any more.
const SPARE: Duration = Duration::from_secs(5 * 60);
/// How far the clocks of this computer and of GitHub may be apart.
const SKEW: Duration = Duration::from_secs(60);
/// GitHub takes ten minutes at the most.
const JWT_LIFE: Duration = Duration::from_secs(9 * 60);

/// Somebody who asks, and the way there.
pub(crate) struct Identity {
    client: Client,
    who: Who,
}

enum Who {
    /// Anybody may ask.
    Anybody,
    /// Somebody has to be named first.
    Missing,
    Token(Secret),
    App(Box<App>),
}

struct App {
    id: String,
    key: EncodingKey,
    scope: Scope,
    on_secret: OnSecret,
    /// Locked while a new one is made, so that all who need one get the same.
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    token: Secret,
    expires_at: Timestamp,
}

impl Identity {
    /// Whoever was configured.
    pub(crate) fn new(
        client: Client,
        auth: &Auth,
        scope: &Scope,
        on_secret: OnSecret,
    ) -> Result<Identity, Failure> {
        let who = match auth {
            Auth::Missing => Who::Missing,
            Auth::Token(token) => return Identity::of_token(client, "github-token", token),
            Auth::App { id, private_key } => {
                let key = signing_key(id, private_key)?;
                let (id, scope) = (id.trim().to_owned(), scope.clone());
                Who::App(Box::new(App { id, key, scope, on_secret, kept: Mutex::default() }))
            }
        };
        Ok(Identity { client, who })
    }

    /// Whoever has this token, which was given as that input.
    pub(crate) fn of_token(
        client: Client,
        input: &str,
        token: &Secret,
    ) -> Result<Identity, Failure> {
        let text = token.expose().trim();
        if text.is_empty() || !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Failure::invalid(format!("{input} is empty, or holds more than a token"))
                .hint("see how the secret was stored: one line, without blanks or quotes"));
        }
        Ok(Identity { client, who: Who::Token(Secret::new(text)) })
    }

    /// Nobody in particular.
    pub(crate) fn anybody(client: Client) -> Identity {
        Identity { client, who: Who::Anybody }
    }

    /// Asks, and gives whatever GitHub has decided. That it does not know us is no decision.
    pub(crate) async fn ask(&self, request: &Request<'_>) -> PortResult<Answer> {
        let (bearer, kept) = match &self.who {
            Who::Anybody => (None, false),
            Who::Missing => return Err(missing(&request.purpose)),
            Who::Token(token) => (Some(token.clone()), false),
            Who::App(app) => {
                let (token, kept) = app.token(&self.client).await?;
                (Some(token), kept)
            }
        };
        let answer = self.client.send(request, bearer.as_ref()).await?;
        if answer.status != 401 {
            return Ok(answer);
        }
        if let (Who::App(app), true) = (&self.who, kept) {
            app.forget(bearer.as_ref()).await;
            return Err(unavailable(request, "it has withdrawn the installation's token"));
        }
        Err(complaint(request, self.kind(), &answer))
    }

    /// Asks for something to be read.
    pub(crate) async fn get<T: DeserializeOwned>(&self, request: &Request<'_>) -> PortResult<T> {
        let answer = self.ask(request).await?;
        if answer.is_success() {
            answer.read(request)
        } else {
            Err(self.complaint(request, &answer))
        }
    }

    /// What a decision against us means.
    pub(crate) fn complaint(&self, request: &Request<'_>, answer: &Answer) -> PortError {
        complaint(request, self.kind(), answer)
    }

    fn kind(&self) -> TokenKind {
        match &self.who {
            Who::Anybody | Who::Missing => TokenKind::Unknown,
            Who::Token(token) => TokenKind::of(token.expose()),
            Who::App(_) => TokenKind::App,
        }
    }
}

/// A token that GitHub has made, and until when it is good.
pub(crate) struct Fresh {
    pub(crate) token: Secret,
    pub(crate) expires_at: Timestamp,
}

impl Fresh {
    /// Reads one. Whoever must know of every secret is told before anything else happens with it.
    pub(crate) fn read(
        request: &Request<'_>,
        answer: &Answer,
        on_secret: &OnSecret,
    ) -> PortResult<Fresh> {
        #[derive(Deserialize)]
        struct Made {
            token: String,
            expires_at: String,
        }
        let Made { token, expires_at } = answer.read(request)?;
        let token = Secret::new(token);
        on_secret(&token);
        let expires_at = moment(&expires_at)
            .ok_or_else(|| unavailable(request, "when the token expires cannot be read"))?;
        Ok(Fresh { token, expires_at })
    }
}

impl App {
    /// A token that is good for a while, and whether it is from before.
    async fn token(&self, client: &Client) -> PortResult<(Secret, bool)> {
        let mut kept = self.kept.lock().await;
        let now = client.clock().now();
        if let Some(Kept { token, expires_at }) = &*kept
            && now + SPARE < *expires_at
        {
            return Ok((token.clone(), true));
        }
        let Fresh { token, expires_at } = self.renew(client, now).await?;
        *kept = Some(Kept { token: token.clone(), expires_at });
        Ok((token, false))
    }

    /// Forgets a token, unless another has taken its place.
    async fn forget(&self, token: Option<&Secret>) {
        let mut kept = self.kept.lock().await;
        if kept.as_ref().map(|kept| &kept.token) == token {
            *kept = None;
        }
    }

    async fn renew(&self, client: &Client, now: Timestamp) -> PortResult<Fresh> {
        #[derive(Deserialize)]
        struct Installation {
            id: u64,
        }
        let jwt = sign(&self.id, &self.key, now).map_err(|()| PortError::Unusable {
            service: GITHUB,
            reason: "the private key of the GitHub App does not sign".to_owned(),
            hint: KEY_HINT.to_owned(),
        })?;
        (self.on_secret)(&jwt);
        let purpose = Purpose::Installation(&self.scope);
        let request = Request::get(purpose, format!("{}/installation", self.scope.path()));
        let answer = client.send(&request, Some(&jwt)).await?;
        if !answer.is_success() {
            return Err(complaint(&request, TokenKind::App, &answer));
        }
        let Installation { id } = answer.read(&request)?;
        let request = Request::post(purpose, format!("app/installations/{id}/access_tokens"));
        let answer = client.send(&request, Some(&jwt)).await?;
        if !answer.is_success() {
            return Err(complaint(&request, TokenKind::App, &answer));
        }
        Fresh::read(&request, &answer, &self.on_secret)
    }
}

const KEY_HINT: &str = "give the whole file that GitHub made under the App's private keys, with \
                        its first and last lines and its line breaks";

/// Reads the key, and has it sign something: some texts are keys of another kind.
fn signing_key(id: &str, private_key: &Secret) -> Result<EncodingKey, Failure> {
    if id.trim().is_empty() {
        return Err(Failure::invalid("github-app-id is empty")
            .hint("it stands on the App's page, as App ID or Client ID"));
    }
    let invalid =
        || Failure::invalid("github-app-private-key is not an RSA key in PEM").hint(KEY_HINT);
    let key = EncodingKey::from_rsa_pem(private_key.expose().trim().as_bytes());
    let key = key.map_err(|_| invalid())?;
    sign(id, &key, Timestamp::from_millis(0)).map_err(|()| invalid())?;
    Ok(key)
}

/// What the App shows for itself. The error says nothing, since it might say too much.
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
        reason: format!("nothing was given to {} {purpose} with", purpose.verb()),
        hint: "give --github-token, or --github-app-id and --github-app-private-key".to_owned(),
    }
}
