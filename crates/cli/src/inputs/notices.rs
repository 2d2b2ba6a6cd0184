//! The inputs about notices: where refresh tells operators what it has found.

use ondeck_core::inputs::{ActionInput, Input, InputTable, Mode};
use ondeck_core::modes::notices::REPEAT as REPEAT_TIME;

pub(crate) const WEBHOOK: Input = Input::secret(
    "notice-webhook",
    "URL",
    "Address that is told what refresh finds, as Slack's incoming webhooks take it; prefer the \
     variable, because other users can see a command line",
)
.in_action(ActionInput::Adapted {
    help: "Address that is told what refresh finds, as Slack's incoming webhooks take it",
    default: None,
    step_output: false,
});
pub(crate) const REPEAT: Input = Input::call(
    REPEAT_TIME.input,
    "MIN",
    "How long after a notice the same finding is told again, if it lasts",
    &[Mode::Refresh],
)
.or("1440")
.checked(|text| REPEAT_TIME.parse(text).map(drop));

pub(crate) const NOTICES: InputTable = InputTable { heading: "Notices", rows: &[WEBHOOK, REPEAT] };
