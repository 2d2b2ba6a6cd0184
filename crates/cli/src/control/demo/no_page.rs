//! `ondeck demo --dashboard` in a build without the page.

use ondeck_core::model::failure::Failure;

use super::narrator::Narrator;
use crate::inputs::Common;

/// No page is ever open.
pub(super) enum Page {}

impl Page {
    /// Fails, and says how to build a program that can.
    pub(super) async fn open(_common: &Common) -> Result<Page, Failure> {
        Err(Failure::invalid("this build of ondeck has no dashboard")
            .hint("run cargo demo-dashboard, or build it with --features dashboard"))
    }

    pub(super) async fn until_open(&self, _narrator: &Narrator) {
        match *self {}
    }

    pub(super) async fn until_closed(&self, _narrator: &Narrator) {
        match *self {}
    }
}
