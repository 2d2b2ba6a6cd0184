//! A plot of the days, for light and for dark pages: a bar for each day, in parts by use.

use std::time::Duration;

use ondeck_core::model::money::Money;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::cost::{Account, Part, Tally};

use super::super::svg::{Drawing, rounded, scale};

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
/// How many labels of days fit beside each other.
const LABELS: usize = 10;

pub(super) fn draw(account: &Account, theme: Theme) -> String {
    let days = days(account);
    let most = days.iter().map(|(_, tally)| tally.total().money.dollars()).fold(0.0, f64::max);
    let (step, top) = scale(most);
    let mut plot = Plot::new(theme, &summary(account));
    let mut tick = 0.0;
    while tick <= top + step / 2.0 {
        plot.grid(TOP + HEIGHT * (1.0 - tick / top), &amount(tick));
        tick += step;
    }
    let slot = (WIDTH - LEFT - 10.0) / days.len().max(1) as f64;
    let every = days.len().div_ceil(LABELS).max(1);
    for (n, (day, tally)) in days.iter().enumerate() {
        let x = LEFT + slot * n as f64;
        plot.bar(x + slot * 0.15, slot * 0.7, tally, top);
        if n % every == 0 {
            let name = &day.to_string()[5..10];
            plot.drawing.label((x + slot / 2.0, TOP + HEIGHT + 20.0), "middle", name);
        }
    }
    plot.drawing.finish()
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

    fn grid(&mut self, y: f64, name: &str) {
        let (y, grid) = (rounded(y), self.theme.grid);
        let right = WIDTH - 10.0;
        self.drawing.push(format!(r#"<path d="M{LEFT} {y}H{right}" stroke="{grid}"/>"#));
        self.drawing.label((LEFT - 8.0, y + 4.5), "end", name);
    }

    /// The parts of a day, one above the other.
    fn bar(&mut self, x: f64, width: f64, tally: &Tally, top: f64) {
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
    }
}
