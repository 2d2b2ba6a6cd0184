//! `ondeck watch`: a terminal program that shows the pool and redraws it in place.
//!
//! [`Reader`] reads the pool, one batch of calls after the other, and [`story`] has the story that is
//! open. [`view`] holds what is on the screen
//! and what a key does, without a terminal; [`draw`] renders it, and [`session`] owns the terminal.

mod clipboard;
mod details;
mod draw;
mod session;
mod story;
mod view;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::modes::explain;
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::status::judgement::Judgement;
use ondeck_core::ports::History;
use ratatui::crossterm::event::Event;
use tokio::sync::mpsc;

use self::session::Session;
use self::story::Wanted;
use self::view::{Effect, View};
use crate::control::backend;
use crate::control::reader::{Reader, interval};
use crate::control::report::deliver;
use crate::control::report::explain::ExplainReport;
use crate::control::screen::screen;
use crate::control::status::scope;
use crate::inputs::Common;
use crate::logging;
use crate::output::unwritten;
use crate::surroundings::stop_on_signals;

/// How often the screen is drawn if nothing happens, so that ages grow.
const REDRAW: Duration = Duration::from_secs(1);

/// Runs the program until the user quits or a signal arrives, and returns its exit code: 0 then.
pub(crate) async fn watch(common: &Common) -> u8 {
    // A log line on the screen would be drawn over, or into, the table.
    match std::io::stderr().is_terminal() {
        true => logging::start(common, std::io::sink),
        false => logging::start(common, std::io::stderr),
    }
    let watched = async {
        check_terminal(common)?;
        let (plane, history) = backend::plane_and_history(common).await?;
        let pool = Pool { plane, history };
        let plane = &pool.plane;
        let mut reader = Reader::new(plane.clone(), scope(common));
        // What no later reading can change is an error of the command.
        let mut view = View::new(plane.now());
        match reader.read().await {
            Err(failure) if failure.kind != FailureKind::Unavailable => return Err(failure),
            first => view.learn(first, plane.now()),
        }
        let readings = reader.start(interval(common));
        let stop = stop_on_signals();
        let mut session = Session::begin().map_err(|error| unusable(&error))?;
        let shown = stop.unless_raised(show(&pool, readings, &mut view, &mut session)).await;
        drop(session);
        match shown {
            Ok(Err(error)) => unwritten("the terminal", &error).map_or(Ok(()), Err),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    };
    match watched.await {
        Ok(()) => 0,
        Err(failure) => deliver("watch", Err(failure), common),
    }
}

/// Fails if there is no screen to draw on or no keyboard to read.
fn check_terminal(common: &Common) -> Result<(), Failure> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let problem = if common.json {
        "watch prints no JSON"
    } else if screen().is_none() || !std::io::stdin().is_terminal() || is_dumb {
        "watch needs a terminal that can be redrawn"
    } else {
        return Ok(());
    };
    let hint = "use ondeck status --watch, or ondeck status --json in a loop";
    Err(Failure::invalid(problem).hint(hint))
}

fn unusable(error: &std::io::Error) -> Failure {
    let message = format!("the terminal cannot be used: {error}");
    Failure::new(FailureKind::Unreported, message).hint("use ondeck status --watch")
}

/// The ports of the pool.
#[derive(Clone)]
struct Pool {
    plane: Plane,
    history: Arc<dyn History>,
}

/// Reads a story, and sends it.
fn read_story(pool: &Pool, wanted: Wanted, to: &mpsc::Sender<(Wanted, Told)>) {
    let (pool, to) = (pool.clone(), to.clone());
    tokio::spawn(async move {
        let story = explain::explain(&pool.plane, &*pool.history, wanted.of.as_str()).await;
        // The program may have ended meanwhile.
        to.send((wanted, story.map(ExplainReport::of))).await.ok();
    });
}

type Told = Result<ExplainReport, Failure>;

/// Draws, and handles keys and readings, until the user quits.
async fn show(
    pool: &Pool,
    mut readings: mpsc::Receiver<Result<Judgement, Failure>>,
    view: &mut View,
    session: &mut Session,
) -> std::io::Result<()> {
    let plane = &pool.plane;
    let mut events = events();
    let (stories, mut told) = mpsc::channel(1);
    let mut redraw = tokio::time::interval(REDRAW);
    redraw.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        if let Some(wanted) = view.story_to_read() {
            read_story(pool, wanted, &stories);
        }
        session.draw(view, plane.now())?;
        let effect = tokio::select! {
            event = events.recv() => match event {
                Some(Event::Key(key)) => view.press(key),
                // The next frame has the new size.
                Some(_) => Effect::None,
                None => Effect::Quit,
            },
            Some(reading) = readings.recv() => {
                view.learn(reading, plane.now());
                Effect::None
            }
            Some((wanted, story)) = told.recv() => {
                view.tell(&wanted, story);
                Effect::None
            }
            _ = redraw.tick() => Effect::None,
        };
        match effect {
            Effect::None => {}
            Effect::Copy(text) => session.copy(&text)?,
            Effect::Quit => return Ok(()),
        }
    }
}

/// What the terminal tells, read by a thread of its own because reading blocks. It ends with the
/// process, or with the terminal.
fn events() -> mpsc::UnboundedReceiver<Event> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = ratatui::crossterm::event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    receiver
}
