//! Formats log lines for GitHub: warnings and errors as annotations, the rest as plain lines.

use std::fmt;

use tracing::{Event, Level as Severity, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::commands::{Level, annotation, harmless};

#[derive(Debug)]
pub(crate) struct LogFormat;

impl<S, N> FormatEvent<S, N> for LogFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        let line = match *event.metadata().level() {
            Severity::ERROR => annotation(Level::Error, "ondeck", &text),
            Severity::WARN => annotation(Level::Warning, "ondeck", &text),
            _ => harmless(&text),
        };
        writeln!(writer, "{line}")
    }
}
