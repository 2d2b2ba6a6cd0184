//! A plot of the times, for light and dark pages: one bar for each row, on a logarithmic axis.

use std::fmt::Write as _;

use super::judgement::Judgement;
use super::requirements::Bound;

/// The colours of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    text: &'static str,
    faint: &'static str,
    bar: &'static str,
    loaded: &'static str,
    limit: &'static str,
    required: &'static str,
}

/// Both themes, by the names in the file names.
pub(super) const THEMES: [(&str, Theme); 2] = [
    (
        "light",
        Theme {
            text: "#24292f",
            faint: "#d0d7de",
            bar: "#2f81c7",
            loaded: "#9a6700",
            limit: "#57606a",
            required: "#cf222e",
        },
    ),
    (
        "dark",
        Theme {
            text: "#e6edf3",
            faint: "#373e47",
            bar: "#4493d8",
            loaded: "#d4a72c",
            limit: "#9ea7b3",
            required: "#ff7b72",
        },
    ),
];

const WIDTH: f64 = 860.0;
const LABELS: f64 = 300.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 36.0;
const ROW: f64 = 28.0;
const BOTTOM: f64 = 44.0;
const TICKS: [f64; 8] = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0];

/// Draws the rows that bound a time.
pub(super) fn draw(judgements: &[Judgement], theme: Theme) -> String {
    let is_time = |it: &&Judgement| {
        matches!(it.requirement.bound, Bound::Time { .. } | Bound::TimeOverOutside { .. })
    };
    let rows: Vec<&Judgement> = judgements.iter().filter(is_time).collect();
    let bottom = TOP + ROW * rows.len() as f64;
    let height = bottom + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\" \
         aria-label=\"How long each mode takes, in milliseconds\">\n"
    );
    for tick in TICKS {
        let x = at(tick);
        line(&mut svg, (x, TOP - 6.0), (x, bottom), theme.faint, 1.0);
        let label = if tick < 1_000.0 { format!("{tick} ms") } else { format!("{} s", tick / 1e3) };
        text(&mut svg, (x, TOP - 14.0), "middle", theme.text, &label);
    }
    for (index, row) in rows.into_iter().enumerate() {
        draw_row(&mut svg, TOP + ROW * index as f64, row, theme);
    }
    legend(&mut svg, bottom + 26.0, theme);
    svg.push_str("</svg>\n");
    svg
}

fn draw_row(svg: &mut String, y: f64, row: &Judgement, theme: Theme) {
    let middle = y + ROW / 2.0;
    let Judgement { requirement, quiet, loaded } = row;
    text(svg, (LABELS - 10.0, middle + 4.5), "end", theme.text, requirement.words);
    let (start, end) = (LABELS, at(quiet.value));
    rectangle(svg, (start, y + 7.0), (end - start, ROW - 14.0), theme.bar);
    if let Some(worst) = quiet.worst {
        line(svg, (end, middle), (at(worst), middle), theme.bar, 2.0);
    }
    if let Some(limit) = quiet.limit_ms {
        line(svg, (at(limit), y + 4.0), (at(limit), y + ROW - 4.0), theme.limit, 2.0);
    }
    line(
        svg,
        (at(quiet.allowed), y + 2.0),
        (at(quiet.allowed), y + ROW - 2.0),
        theme.required,
        2.0,
    );
    if let Some(loaded) = loaded {
        circle(svg, (at(loaded.value), middle), 4.0, theme.loaded);
    }
    let label = format!("{:.0} ms", quiet.value);
    text(svg, (WIDTH - 8.0, middle + 4.5), "end", theme.text, &label);
}

fn legend(svg: &mut String, y: f64, theme: Theme) {
    let mark = y - 4.5;
    rectangle(svg, (LABELS, mark - 6.0), (22.0, 12.0), theme.bar);
    line(svg, (LABELS + 22.0, mark), (LABELS + 34.0, mark), theme.bar, 2.0);
    text(svg, (LABELS + 40.0, y), "start", theme.text, "median and worst");
    line(svg, (LABELS + 170.0, mark - 8.0), (LABELS + 170.0, mark + 8.0), theme.limit, 2.0);
    text(svg, (LABELS + 177.0, y), "start", theme.text, "limit");
    line(svg, (LABELS + 230.0, mark - 8.0), (LABELS + 230.0, mark + 8.0), theme.required, 2.0);
    text(svg, (LABELS + 237.0, y), "start", theme.text, "required");
    circle(svg, (LABELS + 315.0, mark), 4.0, theme.loaded);
    text(svg, (LABELS + 324.0, y), "start", theme.text, "median beside a load");
}

/// Where a time is on the axis. What is outside is drawn at its end.
fn at(millis: f64) -> f64 {
    let (first, last) = (TICKS[0].log10(), TICKS[TICKS.len() - 1].log10());
    let share = (millis.max(TICKS[0]).log10() - first) / (last - first);
    let x = LABELS + share.min(1.0) * (WIDTH - LABELS - RIGHT);
    (x * 10.0).round() / 10.0
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let drawn = writeln!(
        svg,
        "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{colour}\" \
         stroke-width=\"{width}\"/>"
    );
    drawn.expect("a text can be written to");
}

fn rectangle(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
    let width = (width.max(1.0) * 10.0).round() / 10.0;
    let drawn = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"2\" fill=\"{colour}\"/>"
    );
    drawn.expect("a text can be written to");
}

fn circle(svg: &mut String, (x, y): (f64, f64), radius: f64, colour: &str) {
    let drawn = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{colour}\"/>");
    drawn.expect("a text can be written to");
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, colour: &str, words: &str) {
    let drawn = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{words}</text>"
    );
    drawn.expect("a text can be written to");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::aws::judgement;
    use crate::bench::aws::results::Results;

    #[test]
    fn the_axis_is_logarithmic_and_bounded() {
        assert_eq!(at(1.0), LABELS);
        assert_eq!(at(10.0), LABELS);
        assert_eq!(at(9_999.0), WIDTH - RIGHT);
        let step = |from: f64| at(from * 10.0) - at(from);
        assert!((step(10.0) - step(100.0)).abs() < 0.2);
    }

    #[test]
    fn each_row_with_a_time_has_a_bar() {
        let row = |row: &str| {
            let round = json!({"ms": 70.0, "calls": 9, "roundTripMs": 10.0, "outsideMs": 60.0});
            json!({"row": row, "condition": "quiet", "rounds": [round]})
        };
        let rows = [row("warm-1-prompt"), row("cold-2-50ms"), row("refresh-empty")];
        let judgements = judgement::all(&Results::of(&json!({ "results": rows })));
        for (name, theme) in THEMES {
            let svg = draw(&judgements, theme);
            assert_eq!(svg.matches("<rect").count(), 2 + 1, "{name}: two rows and the legend");
            assert!(svg.contains("warm provision of 1, prompt agents"));
            assert!(svg.ends_with("</svg>\n"));
        }
    }
}
