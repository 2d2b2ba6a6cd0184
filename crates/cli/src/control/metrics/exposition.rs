//! Prometheus' text format, version 0.0.4.

use std::fmt::Write;

use super::table::Metric;

/// A text in the making. Each metric is added once, with all of its samples.
pub(super) struct Exposition {
    pool: String,
    text: String,
}

/// The values of a metric's labels, in their order. An empty one is a label that is absent.
type Labels<'a> = &'a [&'a str];

impl Exposition {
    pub(super) fn of(pool: &str) -> Exposition {
        Exposition { pool: escaped(pool), text: String::new() }
    }

    /// Adds a metric without labels of its own.
    pub(super) fn one(&mut self, metric: &Metric, value: f64) {
        self.many(metric, [(&[][..], value)]);
    }

    /// Adds a metric. One without samples is left out.
    pub(super) fn many<'a>(
        &mut self,
        metric: &Metric,
        samples: impl IntoIterator<Item = (Labels<'a>, f64)>,
    ) {
        let Metric { name, help, labels, .. } = metric;
        for (number, (values, value)) in samples.into_iter().enumerate() {
            debug_assert_eq!(values.len(), labels.len(), "{name}");
            if number == 0 {
                self.line(format_args!("# HELP {name} {help}"));
                self.line(format_args!("# TYPE {name} gauge"));
            }
            let mut pairs = format!("pool=\"{}\"", self.pool);
            for (label, value) in labels.iter().zip(values).filter(|(_, value)| !value.is_empty()) {
                pairs += &format!(",{label}=\"{}\"", escaped(value));
            }
            self.line(format_args!("{name}{{{pairs}}} {value}"));
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A text takes whatever is written.
        drop(writeln!(self.text, "{line}"));
    }
}

/// The value of a label, between its quotes.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
