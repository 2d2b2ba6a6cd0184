//! `ondeck pool list` and `ondeck pool repair`: looks at the tickets of the pool.

use std::sync::Arc;

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::operate::tickets::look;

use crate::control::backend;
use crate::control::modes::{begin, finish};
use crate::control::report::pool::PoolReport;
use crate::control::report::{Report, deliver};
use crate::inputs::{Common, rows};
use crate::surroundings::stop_on_signals;

/// Runs the command and returns its exit code.
pub(crate) async fn pool(common: &Common, arguments: &[String]) -> u8 {
    let watcher = begin("pool", common);
    let stop = stop_on_signals();
    let repairs = arguments.first().is_some_and(|task| task == "repair");
    let is_plan = !repairs || common.given.is_set(&rows::DRY_RUN);
    let work = async {
        let opened = backend::plane(common, Arc::new(watcher.clone()));
        let plane = stop.unless_raised(opened).await??;
        let class = common.given.text(&rows::CLASS).and_then(|text| text.parse().ok());
        let outcome = look(&plane, class.as_ref(), !is_plan, &stop).await;
        finish(&plane, &stop).await;
        Ok(PoolReport { repairs, outcome: outcome? })
    };
    let result: Result<PoolReport, Failure> = work.await;
    watcher.finish();
    let told = result.as_ref().map(|report| report as &dyn Report).map_err(Clone::clone);
    deliver("pool", told, common)
}
