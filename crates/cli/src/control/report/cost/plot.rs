//! A plot of the days, for light and for dark pages: a bar for each day, in parts by use. With
//! `max-spend-per-day` it shows the cap, and on the bar of today what is reserved.

use std::time::Duration;

use ondeck_core::model::money::Money;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::cost::{Account, Part, Tally};
use ondeck_core::modes::refresh::SpendUse;

use super::super::svg::{Drawing, rounded, scale};
use super::super::wire::spend_words;

/// The colours of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    ink: &'static str,
    grid: &'static str,
    /// Of busy, idle and booting machines.
    uses: [&'static str; 3],
}

/// Both themes, by the names of their files.
pub(super) const THEMES: [(&str, Theme); 2] = [
    (
        "cost-light.svg",
        Theme { ink: "#24292f", grid: "#d0d7de", uses: ["#2f81c7", "#d4a72c", "#8c959f"] },
    ),
    (
        "cost-dark.svg",
        Theme { ink: "#e6edf3", grid: "#373e47", uses: ["#4493d8", "#bf8700", "#6e7681"] },
    ),
];

const WIDTH: f64 = 860.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 44.0;
const HEIGHT: f64 = 220.0;
/// Below the axis: the days.
const BOTTOM: f64 = 34.0;
/// Above a day whose amount is a guess in part.
const GUESS: &str = "~";
const NAMES: [&str; 3] = ["busy", "idle", "booting"];
/// How many times as high as all bars the cap may be and still be drawn as a line.
const FAR: f64 = 4.0;
/// How many labels of days fit beside each other.
const LABELS: usize = 10;

pub(super) fn draw(account: &Account, spend: Option<&SpendUse>, theme: Theme) -> String {
    let days = days(account);
    let highest = days.iter().map(|(day, tally)| tally.total().money + reserved(spend, *day));
    let most = highest.map(Money::dollars).fold(0.0, f64::max);
    let cap = spend.map(|used| used.cap.dollars()).filter(|cap| *cap <= FAR * most);
    let (step, top) = scale(cap.unwrap_or(0.0).max(most));
    let mut plot = Plot::new(theme, &summary(account));
    if let Some(used) = spend {
        plot.explain(used);
    }
    let mut tick = 0.0;
    while tick <= top + step / 2.0 {
        plot.grid(TOP + HEIGHT * (1.0 - tick / top), &amount(tick));
        tick += step;
    }
    let slot = (WIDTH - LEFT - 10.0) / days.len().max(1) as f64;
    let every = days.len().div_ceil(LABELS).max(1);
    for (n, (day, tally)) in days.iter().enumerate() {
        let x = LEFT + slot * n as f64;
        let height = plot.bar(x + slot * 0.15, slot * 0.7, tally, top);
        let reserved = HEIGHT * reserved(spend, *day).dollars() / top;
        if reserved > 0.0 {
            plot.outline(
                (x + slot * 0.15, TOP + HEIGHT - height - reserved),
                (slot * 0.7, reserved),
            );
        }
        if n % every == 0 {
            let name = &day.to_string()[5..10];
            plot.drawing.label((x + slot / 2.0, TOP + HEIGHT + 20.0), "middle", name);
        }
    }
    if let Some(cap) = cap {
        plot.line(LEFT, TOP + HEIGHT * (1.0 - cap / top), WIDTH - 10.0);
    }
    plot.drawing.finish()
}

/// What is reserved on this day beyond what is spent.
fn reserved(spend: Option<&SpendUse>, day: Timestamp) -> Money {
    let of_day = spend.filter(|used| used.day == day);
    of_day.map_or(Money::ZERO, |used| used.reserved.max(Money::ZERO))
}

/// Every day of the account, also those without machines.
fn days(account: &Account) -> Vec<(Timestamp, Tally)> {
    let mut days = Vec::new();
    let mut day = account.since.start_of_day();
    while day < account.until {
        days.push((day, account.days.get(&day).copied().unwrap_or_default()));
        day = day + Duration::from_secs(24 * 3_600);
    }
    days
}

fn amount(dollars: f64) -> String {
    Money::from_dollars(dollars).unwrap_or(Money::ZERO).to_string().replace('<', "&lt;")
}

fn summary(account: &Account) -> String {
    let day = |at: Timestamp| at.to_string()[..10].to_owned();
    let all = account.total.total().money;
    let mark = if account.total.is_approximate() { GUESS } else { "" };
    let guess = if account.total.is_approximate() { " (~: a guess in part)" } else { "" };
    let days = format!("{} to {}", day(account.since), day(account.until));
    format!("{days}, by day (UTC): {mark}{all}{guess}").replace('<', "&lt;")
}

/// A plot in the making.
struct Plot {
    theme: Theme,
    drawing: Drawing,
}

impl Plot {
    /// Begins with the title and what the colours mean.
    fn new(theme: Theme, title: &str) -> Plot {
        let size = (WIDTH, TOP + HEIGHT + BOTTOM);
        let drawing = Drawing::new(theme.ink, size, &format!("Cost of machines, {title}"));
        let mut plot = Plot { theme, drawing };
        plot.drawing.label((LEFT, 20.0), "start", title);
        for (n, (name, colour)) in NAMES.into_iter().zip(theme.uses).enumerate() {
            let x = WIDTH - 230.0 + 76.0 * n as f64;
            plot.drawing.area((x, 10.0), (12.0, 12.0), colour);
            plot.drawing.label((x + 17.0, 20.0), "start", name);
        }
        plot
    }

    /// Says what is left of the cap, and how that is drawn.
    fn explain(&mut self, used: &SpendUse) {
        let words = spend_words(used).replace('<', "&lt;");
        self.drawing.label((LEFT, 37.0), "start", &words);
        let x = WIDTH - 230.0;
        self.outline((x, 28.0), (12.0, 10.0));
        self.drawing.label((x + 17.0, 37.0), "start", "reserved");
        self.line(x + 84.0, 33.0, x + 104.0);
        self.drawing.label((x + 110.0, 37.0), "start", "cap");
    }

    /// A frame without a filling: money that is not spent yet.
    fn outline(&mut self, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let ([x, y, width, height], ink) = ([x, y, width, height].map(rounded), self.theme.ink);
        self.drawing.push(format!(
            r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="none" stroke="{ink}" stroke-dasharray="2 2"/>"#
        ));
    }

    fn line(&mut self, from: f64, y: f64, to: f64) {
        let ([from, y, to], ink) = ([from, y, to].map(rounded), self.theme.ink);
        self.drawing.push(format!(
            r#"<path d="M{from} {y}H{to}" stroke="{ink}" stroke-width="1.5" stroke-dasharray="7 4"/>"#
        ));
    }

    fn grid(&mut self, y: f64, name: &str) {
        let (y, grid) = (rounded(y), self.theme.grid);
        let right = WIDTH - 10.0;
        self.drawing.push(format!(r#"<path d="M{LEFT} {y}H{right}" stroke="{grid}"/>"#));
        self.drawing.label((LEFT - 8.0, y + 4.5), "end", name);
    }

    /// The parts of a day, one above the other. Returns how high they are together.
    fn bar(&mut self, x: f64, width: f64, tally: &Tally, top: f64) -> f64 {
        let mut y = TOP + HEIGHT;
        for (Part { money, .. }, colour) in
            [tally.busy, tally.idle, tally.booting].into_iter().zip(self.theme.uses)
        {
            let height = HEIGHT * money.dollars() / top;
            y -= height;
            if height > 0.0 {
                self.drawing.area((x, y), (width, height), colour);
            }
        }
        if tally.is_approximate() {
            self.drawing.label((x + width / 2.0, y - 5.0), "middle", GUESS);
        }
        TOP + HEIGHT - y
    }
}
