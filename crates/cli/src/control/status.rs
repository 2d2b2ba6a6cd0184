//! `ondeck status`: shows the pool once, or redraws it every second.

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::status::judgement::{Judgement, judge};
use ondeck_core::modes::status::{Asked, Reading};
use ondeck_core::ports::RecordScope;

use crate::control::backend;
use crate::control::github_actions::Step;
use crate::control::progress::NoProgress;
use crate::control::report::status::Shown;
use crate::control::report::{Report, clear_screen, deliver, print};
use crate::control::screen::{Screen, screen};
use crate::inputs::{Common, rows};
use crate::logging;
use crate::output::unwritten;
use crate::surroundings::stop_on_signals;

/// Runs the command and returns its exit code. With `--watch` it ends on a signal, or when its reader
/// closes the pipe.
pub(crate) async fn status(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let plane = match backend::plane(common, std::sync::Arc::new(NoProgress)).await {
        Ok(plane) => plane,
        Err(failure) => return deliver("status", Err(failure), common),
    };
    let scope = scope(common);
    if !common.given.is_set(&rows::WATCH) {
        let shown = judged(&plane, scope).await.map(|judgement| Shown::on(judgement, screen()));
        let report = shown.as_ref().map(|shown| shown as &dyn Report).map_err(Clone::clone);
        return deliver("status", report, common);
    }
    let stop = stop_on_signals();
    let step = Step::current();
    let watching = async {
        loop {
            // The terminal may have another size by now.
            let screen = screen();
            let text = Shown::on(judged(&plane, scope).await?, screen).text();
            let text = step.as_ref().map_or(text.clone(), |step| step.text(&text));
            let text = screen.map_or(text.clone(), |screen| fitting(&text, screen));
            if let Err(error) = clear_screen().and_then(|()| print(&text)) {
                return unwritten("stdout", &error).map_or(Ok(()), Err);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    match stop.unless_raised(watching).await {
        Ok(Err(failure)) => deliver("status", Err(failure), common),
        Ok(Ok(())) | Err(_) => 0,
    }
}

/// The records that were asked for.
pub(crate) fn scope(common: &Common) -> RecordScope {
    if common.given.is_set(&rows::ALL) { RecordScope::All } else { RecordScope::Live }
}

/// Reads the pool and judges it. Fails if the store or a queue does not answer.
pub(crate) async fn judged(plane: &Plane, scope: RecordScope) -> Result<Judgement, Failure> {
    let asked = Asked { scope, hand_overs: true, retries: true };
    Ok(judge(Reading::take(plane, asked).await?))
}

/// The beginning of a text that fits on the screen, so that it does not scroll. The cursor needs the
/// last line.
fn fitting(text: &str, screen: Screen) -> String {
    let room = usize::from(screen.rows).saturating_sub(1).max(1);
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= room {
        return text.to_owned();
    }
    let hidden = lines.len() - (room - 1);
    format!("{}\n… {hidden} more lines", lines[..room - 1].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_cut_to_the_rows_of_the_screen() {
        let text = (1..=5).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        let cut = |rows| fitting(&text, Screen { columns: 80, rows });
        assert_eq!(cut(6), text);
        assert_eq!(cut(5), "1\n2\n3\n… 2 more lines");
        assert_eq!(cut(3), "1\n… 4 more lines");
        assert_eq!(cut(0), "\n… 5 more lines");
    }
}
