//! A plot of the points for light and for dark pages: money to the right, waiting upwards. A line joins
//! the points that no other beats in both, and a ring marks the recommended one.

use ondeck_core::model::money::Money;
use ondeck_core::model::requirements::UsageClass;

use super::super::svg::{Drawing, rounded, scale};
use super::text::{minutes, seconds, settings};
use super::{Played, SimulateReport};

/// The colours of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    ink: &'static str,
    grid: &'static str,
    page: &'static str,
    on_demand: &'static str,
    spot: &'static str,
    chosen: &'static str,
}

/// Both themes, by the names of their files.
pub(super) const THEMES: [(&str, Theme); 2] = [
    (
        "simulate-light.svg",
        Theme {
            ink: "#24292f",
            grid: "#d0d7de",
            page: "#ffffff",
            on_demand: "#2f81c7",
            spot: "#b7791f",
            chosen: "#1a7f37",
        },
    ),
    (
        "simulate-dark.svg",
        Theme {
            ink: "#e6edf3",
            grid: "#373e47",
            page: "#0d1117",
            on_demand: "#4493d8",
            spot: "#d4a72c",
            chosen: "#3fb950",
        },
    ),
];

const WIDTH: f64 = 860.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 74.0;
const HEIGHT: f64 = 300.0;
/// Below the axis: amounts and what they are.
const BOTTOM: f64 = 52.0;

/// How a point is drawn.
const RADIUS: f64 = 5.5;
/// Names of points are this far from each other at least.
const NAME_HEIGHT: f64 = 15.0;

pub(super) fn draw(report: &SimulateReport, theme: Theme) -> String {
    let dollars = |it: &Played| it.measured.cost.dollars();
    let waiting = |it: &Played| it.measured.mean_wait().as_secs_f64();
    let largest = |of: &dyn Fn(&Played) -> f64| report.points.iter().map(of).fold(0.0, f64::max);
    let (across, up) = (scale(largest(&dollars)), scale(largest(&waiting)));
    let chosen = report.chosen();
    let mut plot = Plot::new(theme, report, across, up);
    plot.axes();
    let front = front(&report.points);
    plot.line(front.iter().map(|it| (dollars(it), waiting(it))));
    for played in &report.points {
        plot.point((dollars(played), waiting(played)), played);
    }
    plot.ring((dollars(chosen), waiting(chosen)));
    let named = front.iter().copied().filter(|it| !std::ptr::eq(*it, chosen));
    let mut names = vec![((dollars(chosen), waiting(chosen)), chosen, true)];
    names.extend(named.map(|it| ((dollars(it), waiting(it)), it, false)));
    plot.names(&names);
    plot.drawing.finish()
}

/// The points that no other beats in cost and waiting, the cheapest first.
fn front(points: &[Played]) -> Vec<&Played> {
    let place = |it: &Played| (it.measured.cost, it.measured.mean_wait());
    let mut sorted: Vec<&Played> = points.iter().collect();
    sorted.sort_by_key(|it| place(it));
    let mut front: Vec<&Played> = Vec::new();
    for played in sorted {
        if front.last().is_none_or(|last| place(played).1 < place(last).1) {
            front.push(played);
        }
    }
    front
}

/// A plot in the making. Its places are in dollars and seconds.
struct Plot {
    theme: Theme,
    drawing: Drawing,
    /// The distance of two lines of the grid, and the last one.
    across: (f64, f64),
    up: (f64, f64),
}

impl Plot {
    /// Begins with the title and what the colours mean.
    fn new(theme: Theme, report: &SimulateReport, across: (f64, f64), up: (f64, f64)) -> Plot {
        let runs = report.history.runs().len();
        let day = |at: ondeck_core::model::timestamp::Timestamp| at.to_string()[..10].to_owned();
        let (since, until) = (day(report.history.since()), day(report.history.until()));
        let title = format!("{runs} runs, {since} to {until}: what waiting costs");
        let size = (WIDTH, TOP + HEIGHT + BOTTOM);
        let mut drawing = Drawing::new(theme.ink, size, &title);
        drawing.label((LEFT, 20.0), "start", &title);
        let chosen = format!("recommended: {}", settings(&report.chosen().point));
        let classes = [UsageClass::OnDemand, UsageClass::Spot];
        let mut plot = Plot { theme, drawing, across, up };
        for (n, usage) in classes.into_iter().enumerate() {
            let x = WIDTH - RIGHT - 176.0 + 112.0 * n as f64;
            plot.mark((x, 16.0), usage, "");
            plot.drawing.label((x + 12.0, 20.0), "start", usage.as_str());
        }
        let ring = format!(r#"fill="none" stroke="{}" stroke-width="2.5""#, theme.chosen);
        plot.circle((LEFT + 9.0, 42.0), RADIUS + 3.5, &ring, "");
        plot.drawing.label((LEFT + 25.0, 46.5), "start", &chosen);
        plot
    }

    fn at(&self, (dollars, waiting): (f64, f64)) -> (f64, f64) {
        let width = WIDTH - LEFT - RIGHT;
        (LEFT + width * dollars / self.across.1, TOP + HEIGHT * (1.0 - waiting / self.up.1))
    }

    fn axes(&mut self) {
        let (grid, right, bottom) = (self.theme.grid, WIDTH - RIGHT, TOP + HEIGHT);
        for (tick, _) in ticks(self.up) {
            let y = rounded(self.at((0.0, tick)).1);
            self.drawing.push(format!(r#"<path d="M{LEFT} {y}H{right}" stroke="{grid}"/>"#));
            let name = format!("{} s", rounded(tick));
            self.drawing.label((LEFT - 8.0, y + 4.5), "end", &name);
        }
        for (tick, is_last) in ticks(self.across) {
            let x = rounded(self.at((tick, 0.0)).0);
            self.drawing.push(format!(r#"<path d="M{x} {TOP}V{bottom}" stroke="{grid}"/>"#));
            let name = Money::from_dollars(tick).unwrap_or(Money::ZERO).to_string();
            let anchor = if is_last { "end" } else { "middle" };
            let x = if is_last { right } else { x };
            self.drawing.label((x, bottom + 20.0), anchor, &name.replace('<', "&lt;"));
        }
        self.drawing.label((LEFT - 8.0, TOP - 12.0), "end", "mean wait");
        self.drawing.label((right, bottom + 40.0), "end", "cost of the machines");
    }

    fn line(&mut self, places: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (n, place) in places.enumerate() {
            let (x, y) = self.at(place);
            let step = if n == 0 { 'M' } else { 'L' };
            path.push_str(&format!("{step}{} {}", rounded(x), rounded(y)));
        }
        let ink = self.theme.ink;
        self.drawing.push(format!(
            r#"<path d="{path}" fill="none" stroke="{ink}" stroke-opacity="0.35" stroke-width="1.5"/>"#
        ));
    }

    fn point(&mut self, place: (f64, f64), played: &Played) {
        let title = format!(
            "{}: {}, mean wait {}, {:.0} % warm",
            settings(&played.point),
            played.measured.cost.to_string().replace('<', "&lt;"),
            seconds(played.measured.mean_wait()),
            100.0 * played.measured.warm_share(),
        );
        self.mark(self.at(place), played.point.usage, &title);
    }

    /// The mark of a purchase option: what its colour says, its shape says as well.
    fn mark(&mut self, (x, y): (f64, f64), usage: UsageClass, title: &str) {
        let colour = match usage {
            UsageClass::OnDemand => self.theme.on_demand,
            UsageClass::Spot => self.theme.spot,
        };
        let style = format!(r#"fill="{colour}" stroke="{}" stroke-width="1""#, self.theme.page);
        match usage {
            UsageClass::OnDemand => self.circle((x, y), RADIUS, &style, title),
            UsageClass::Spot => {
                let ([x, y], side) = ([x - RADIUS, y - RADIUS].map(rounded), 2.0 * RADIUS);
                let title = titled(title);
                self.drawing.push(format!(
                    r#"<rect x="{x}" y="{y}" width="{side}" height="{side}" {style}>{title}</rect>"#
                ));
            }
        }
    }

    fn ring(&mut self, place: (f64, f64)) {
        let style = format!(r#"fill="none" stroke="{}" stroke-width="2.5""#, self.theme.chosen);
        let at = self.at(place);
        self.circle(at, RADIUS + 3.5, &style, "");
    }

    fn circle(&mut self, (x, y): (f64, f64), radius: f64, style: &str, title: &str) {
        let [x, y] = [x, y].map(rounded);
        let title = titled(title);
        self.drawing
            .push(format!(r#"<circle cx="{x}" cy="{y}" r="{radius}" {style}>{title}</circle>"#));
    }

    /// Writes the settings beside points, the first of these in any case, and others where there is
    /// room.
    fn names(&mut self, points: &[((f64, f64), &Played, bool)]) {
        let mut taken: Vec<(f64, f64, f64)> = Vec::new();
        for (place, played, is_chosen) in points {
            let point = &played.point;
            let name = format!("{} / {}", point.min_idle, minutes(point.idle_time));
            let width = 7.5 * name.len() as f64;
            // No point is cheaper and waits less, so there is room below and to the left.
            let (x, y) = self.at(*place);
            let y = (y + 18.0).min(TOP + HEIGHT - 5.0);
            let fits = x - 8.0 - width > LEFT;
            let (x, from, anchor) = match fits {
                true => (x - 8.0, x - 8.0 - width, "end"),
                false => (x + 12.0, x + 12.0, "start"),
            };
            let is_free = taken.iter().all(|(left, line, wide)| {
                (y - line).abs() >= NAME_HEIGHT || from > left + wide || from + width < *left
            });
            if is_free || *is_chosen {
                taken.push((from, y, width));
                self.drawing.label((x, y), anchor, &name);
            }
        }
        let explanation = "beside points: min-idle / idle time";
        self.drawing.label((LEFT, TOP + HEIGHT + 40.0), "start", explanation);
    }
}

/// What a reader sees who points at an element; nothing for no words.
fn titled(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("<title>{words}</title>") }
}

/// The lines of a grid, and whether each is the last.
fn ticks((step, last): (f64, f64)) -> Vec<(f64, bool)> {
    let count = (last / step).round() as usize;
    (0..=count).map(|n| (step * n as f64, n == count)).collect()
}
