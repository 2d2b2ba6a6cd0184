//! `ondeck dashboard`: one page in the browser that shows the pool, live.
//!
//! [`feed`] reads the pool while a page is open, one batch of calls after the other, and [`picture`]
//! says what has changed. [`hub`] sends that to every page. [`server`] accepts connections, [`guard`]
//! decides which requests are answered, and [`routes`] answers them. The page itself is in `page/`.

mod access;
mod assets;
mod feed;
mod guard;
mod hub;
mod kept;
mod picture;
mod routes;
mod server;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::prices::Prices;
use ondeck_core::modes::cost::Since;
use ondeck_core::modes::plane::Plane;
use ondeck_core::ports::{Clock as _, History};
use tokio::net::TcpListener;
use tokio::sync::OnceCell;

pub(crate) use self::access::Access;
use self::guard::Guard;
use self::hub::Hub;
use self::picture::Picture;
use self::routes::App;
use crate::control::reader::{HAND_OVERS_KEPT, interval};
use crate::control::report::doctor::DoctorReport;
use crate::control::report::{Report as _, deliver, print};
use crate::control::{backend, cost, doctor};
use crate::inputs::{Backend, Common};
use crate::logging;
use crate::output::unwritten;
use crate::surroundings::{WallClock, stop_on_signals};

/// The most events that are read for an account, which bounds the memory that it takes.
const MOST_EVENTS: usize = 30_000;
/// How old what was read about earlier calls may become in a file on this computer, where reading it
/// costs nothing.
const HISTORY_KEPT_LOCALLY: Duration = Duration::from_secs(5);

/// Serves the page until a signal arrives, and returns the exit code: 0 then.
pub(crate) async fn dashboard(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let served = async {
        if common.json {
            let hint = "use ondeck status --json in a loop";
            return Err(Failure::invalid("dashboard prints no JSON").hint(hint));
        }
        let access = Access::of(&common.given)?;
        let source = Source::of(common);
        // What no later reading can change is an error of the command.
        source.connected().await?;
        let stop = stop_on_signals();
        let dashboard = Dashboard::open(source, access, Pace::of(common)).await?;
        let shown = format!("dashboard: {}\nCtrl-C ends it", dashboard.url());
        if let Some(failure) = print(&shown).err().and_then(|error| unwritten("stdout", &error)) {
            return Err(failure);
        }
        match stop.unless_raised(dashboard.serve()).await {
            // A signal is how it ends.
            Ok(()) | Err(_) => Ok(()),
        }
    };
    match served.await {
        Ok(()) => 0,
        Err(failure) => deliver("dashboard", Err(failure), common),
    }
}

/// How often what is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The least pause between two readings of the pool.
    pub(crate) pause: Duration,
    /// How long calls of provision, hand-overs, findings of doctor and accounts are shown before they
    /// are read again.
    pub(crate) history_kept: Duration,
}

impl Pace {
    fn of(common: &Common) -> Pace {
        let history_kept = match common.records {
            Backend::Local => HISTORY_KEPT_LOCALLY,
            Backend::Aws => HAND_OVERS_KEPT,
        };
        Pace { pause: interval(common), history_kept }
    }
}

/// The pool that is shown. It may be set up after the page was opened.
pub(crate) struct Source {
    common: Common,
    connected: OnceCell<Connected>,
}

/// The ports of a pool.
pub(crate) struct Connected {
    plane: Plane,
    history: Arc<dyn History>,
}

impl Source {
    pub(crate) fn of(common: &Common) -> Source {
        Source { common: common.clone(), connected: OnceCell::new() }
    }

    /// Connects, unless that was done before.
    async fn connected(&self) -> Result<&Connected, Failure> {
        let connect = || async {
            let (plane, history) = backend::plane_and_history(&self.common).await?;
            Ok::<_, Failure>(Connected { plane, history })
        };
        self.connected.get_or_try_init(connect).await
    }

    /// What doctor finds, as `ondeck doctor --json` prints it, with the time.
    async fn examined(&self) -> Result<String, Failure> {
        let findings = doctor::examine(&self.common).await?;
        let report = DoctorReport::on(findings, None).json();
        Ok(format!("{{\"at\":{},\"doctor\":{report}}}", WallClock.now().millis()))
    }

    /// What the pool has cost since then, as `ondeck cost --json` prints it. Reads a part of the events
    /// if there are very many, and says so.
    async fn account(&self, since: Since) -> Result<String, Failure> {
        let pool = self.connected().await?;
        let since = since.moment(pool.plane.now()).map_err(Failure::invalid)?;
        let around = (Prices::built_in(), self.common.compute);
        let (plane, history) = (&pool.plane, &*pool.history);
        Ok(cost::account(plane, history, (since, MOST_EVENTS), around).await?.json())
    }

    /// The pool, as people know it; empty if it has no name.
    fn name(&self) -> String {
        backend::pool_name(&self.common).unwrap_or_default()
    }

    fn is_local(&self) -> bool {
        self.common.compute == Backend::Local
    }
}

/// A page that can be connected to.
pub(crate) struct Dashboard {
    listener: TcpListener,
    url: String,
    app: Arc<App>,
    pace: Pace,
}

impl Dashboard {
    /// Begins to listen. Fails if the address cannot be used.
    pub(crate) async fn open(
        source: Source,
        access: Access,
        pace: Pace,
    ) -> Result<Dashboard, Failure> {
        let (listener, address) = server::listen(access.address).await?;
        let url = access.url(address);
        let guard = Guard::new(address, access.token);
        let hub = Hub::new(Picture::new(pace.pause));
        let app = App::new(guard, hub, source, pace.history_kept);
        Ok(Dashboard { listener, url, app: Arc::new(app), pace })
    }

    /// What to open in a browser. Contains a token that was made for it, but not one that was given.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Tells whether a page is open, also while it is served.
    #[cfg(feature = "local")]
    pub(crate) fn watched(&self) -> Watched {
        Watched(self.app.clone())
    }

    /// Serves the page until the future is dropped.
    pub(crate) async fn serve(self) {
        let Dashboard { listener, app, pace, .. } = self;
        tokio::select! {
            () = feed::run(&app, pace) => {}
            () = server::serve(listener, app.clone()) => {}
        }
    }
}

/// Whether a page is open.
#[cfg(feature = "local")]
pub(crate) struct Watched(Arc<App>);

#[cfg(feature = "local")]
impl Watched {
    /// Returns when one is.
    pub(crate) async fn until_open(&self) {
        self.0.hub.until_watched().await;
    }
}
