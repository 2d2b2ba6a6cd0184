//! Draws the view: a title, the summary, the machines or the details of one, and the keys.

use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::timestamp::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::details;
use super::view::{Focus, View};
use crate::control::report::explain::{Look, ShownLine};
use crate::control::report::span;
use crate::control::report::status::machines::MachineTable;
use crate::control::report::status::summary::{self, Subject, SummaryLine};
use crate::control::report::status::{Tone, cut, width};
use crate::control::report::wrapped;

const KEYS: &str =
    "q quit  enter open  e story  / filter  s state  c class  m marks  y copy  ? help";
const FEW_KEYS: &str = "q quit  e story  / filter  ? help";
const KEYS_OF_DETAILS: &str = "esc back  up/down scroll  e story  y copy id  Y copy run";
const KEYS_OF_STORY: &str = "esc back  up/down, page up/down scroll  y copy id";
const HELP: &[(&str, &str)] = &[
    ("up, down, j, k", "select a machine"),
    ("page up, page down", "move by a page; home, end: to the first, the last"),
    ("enter", "show the selected machine; esc returns"),
    ("e", "tell its story, as ondeck explain does; esc returns"),
    ("/", "filter by id, run, state, class, type or mark"),
    ("s", "show one state after the other, then all"),
    ("c", "show one class after the other, then all"),
    ("m", "show marked machines only, or all"),
    ("esc", "remove all filters"),
    ("y, Y", "copy its id, or that of its run, by OSC 52"),
    ("q, ctrl-c", "quit"),
];

/// Draws one frame, without colours if they are not wanted.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View, now: Timestamp, coloured: bool) {
    let paint = Paint { coloured };
    let area = frame.area();
    let has_summary = matches!(view.focus, Focus::Machines | Focus::Filter);
    let summary = if has_summary { summary(view, usize::from(area.height)) } else { Vec::new() };
    let height = u16::try_from(summary.len()).unwrap_or(u16::MAX);
    let [title, top, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(height),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(paint.line(title_text(view, now, area.width)), title);
    let lines: Vec<Line<'_>> = summary.iter().map(|line| paint.summary(line, area.width)).collect();
    frame.render_widget(Paragraph::new(lines), top);
    match view.focus {
        Focus::Help => frame.render_widget(Paragraph::new(help(&paint)), body),
        Focus::Details(from) => draw_details(frame, view, &paint, from, body),
        Focus::Story(from) => draw_story(frame, view, &paint, from, body),
        Focus::Machines | Focus::Filter => draw_machines(frame, view, &paint, body),
    }
    frame.render_widget(paint.line(last_line(view, keys.width)), keys);
}

/// The lines that fit into half of the screen. What is wrong stays; what each class has goes first.
fn summary(view: &View, rows: usize) -> Vec<SummaryLine> {
    let Some(judgement) = &view.judgement else { return Vec::new() };
    let mut lines = summary::lines(judgement);
    let most = (rows / 2).max(3);
    if lines.len() > most {
        lines.retain(|line| line.subject != Subject::Class);
    }
    while lines.len() > most {
        // The first line and the first problem are the last to go.
        let problem = lines.iter().position(|line| line.subject == Subject::Problem);
        let last = lines.len() - 1;
        lines.remove(if problem == Some(last) { last - 1 } else { last });
    }
    lines
}

fn title_text(view: &View, now: Timestamp, columns: u16) -> (String, Tone) {
    let age = span(now.since(view.read_at()));
    let columns = usize::from(columns);
    match (&view.failure, &view.judgement) {
        (None, _) => (cut(&format!("ondeck watch, read {age} ago"), columns), Tone::Heading),
        (Some((failure, since)), judgement) => {
            let span = span(now.since(*since));
            let shown = match judgement {
                Some(_) => format!("shown is what was read {age} ago"),
                None => "nothing was read yet".to_owned(),
            };
            let problem = match failure.kind {
                FailureKind::Unavailable => "OUT OF REACH",
                _ => "CANNOT BE READ",
            };
            let text = format!("{problem} for {span}, {shown}: {failure}");
            (cut(&text, columns), Tone::Wrong)
        }
    }
}

fn draw_machines(frame: &mut Frame<'_>, view: &mut View, paint: &Paint, area: Rect) {
    let [gap, head, list] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0)])
            .areas(area);
    let page = usize::from(list.height);
    let selected = view.selected_row();
    let mut top = view.top;
    if let Some(row) = selected {
        top = top.min(row).max((row + 1).saturating_sub(page));
    }
    let machines = view.machines();
    top = top.min(machines.len().saturating_sub(page.max(1)));
    let shown = &machines[top.min(machines.len())..(top + page).min(machines.len())];
    // The columns are those of all machines, so that scrolling does not move them.
    let now = view.read_at();
    let table = MachineTable::new(&machines, now, Some(usize::from(area.width).saturating_sub(2)));
    let total = view.judgement.as_ref().map_or(0, |judgement| judgement.machines.len());
    let filter = match view.filter.is_set() || view.focus == Focus::Filter {
        true => format!("{} of {total} machines: {}", machines.len(), view.filter.describe()),
        false => String::new(),
    };
    let rows = (top..top + shown.len()).map(|row| {
        let is_selected = selected == Some(row);
        let lead = Span::raw(if is_selected { "> " } else { "  " });
        let cells = table.cells(row).map(|(text, tone)| Span::styled(text, paint.style(tone)));
        let line = Line::from_iter(std::iter::once(lead).chain(cells));
        if is_selected { line.style(Style::new().add_modifier(Modifier::REVERSED)) } else { line }
    });
    let rows: Vec<Line<'_>> = rows.collect();
    frame.render_widget(paint.line((cut(&filter, usize::from(area.width)), Tone::Late)), gap);
    if !machines.is_empty() {
        let header = format!("  {}", table.header());
        frame.render_widget(paint.line((header, Tone::Heading)), head);
    }
    frame.render_widget(Paragraph::new(rows), list);
    (view.top, view.page) = (top, page);
}

fn draw_details(frame: &mut Frame<'_>, view: &mut View, paint: &Paint, from: u16, area: Rect) {
    const LABELS: usize = 14;
    let Some(machine) = view.selected() else { return };
    let room = usize::from(area.width).saturating_sub(LABELS + 2).max(10);
    let mut lines = Vec::new();
    for section in details::sections(machine, view.read_at()) {
        lines.push(Line::default());
        lines.push(paint.line((section.title.to_owned(), Tone::Heading)));
        for (label, text, tone) in section.lines {
            for (n, part) in wrapped(&text, room).into_iter().enumerate() {
                let label = if n == 0 { label } else { "" };
                let label = Span::raw(format!("  {label:LABELS$}"));
                lines.push(Line::from(vec![label, Span::styled(part, paint.style(tone))]));
            }
        }
    }
    let last = lines.len().saturating_sub(usize::from(area.height));
    let from = from.min(u16::try_from(last).unwrap_or(u16::MAX));
    frame.render_widget(Paragraph::new(lines).scroll((from, 0)), area);
    view.focus = Focus::Details(from);
}

fn draw_story(frame: &mut Frame<'_>, view: &mut View, paint: &Paint, from: u16, area: Rect) {
    let Some(pane) = &view.stories.pane else { return };
    let columns = usize::from(area.width);
    let (plain, wrong) = (Tone::Plain, Tone::Wrong);
    let said = |text: String, tone| {
        let lines = wrapped(&text, columns.max(10)).into_iter();
        lines.map(|text| paint.line((text, tone))).collect::<Vec<_>>()
    };
    let lines = match &pane.told {
        None => said(format!("reading the story of {}", pane.of), plain),
        Some(Err(failure)) => said(format!("the story cannot be read: {failure}"), wrong),
        Some(Ok(story)) => story.lines(columns).into_iter().map(|it| paint.story(it)).collect(),
    };
    let lines: Vec<Line<'_>> = std::iter::once(Line::default()).chain(lines).collect();
    let last = lines.len().saturating_sub(usize::from(area.height));
    let from = from.min(u16::try_from(last).unwrap_or(u16::MAX));
    frame.render_widget(Paragraph::new(lines).scroll((from, 0)), area);
    view.focus = Focus::Story(from);
    view.page = usize::from(area.height);
}

fn help(paint: &Paint) -> Vec<Line<'static>> {
    let keys = HELP.iter().map(|(key, does)| Line::raw(format!("  {key:20}{does}")));
    let title = paint.line(("keys".to_owned(), Tone::Heading));
    [Line::default(), title].into_iter().chain(keys).collect()
}

fn last_line(view: &View, columns: u16) -> (String, Tone) {
    let columns = usize::from(columns);
    if view.focus == Focus::Filter {
        return (cut(&format!("filter: {}_", view.filter.text), columns), Tone::Heading);
    }
    if !view.notice.is_empty() {
        return (cut(&view.notice, columns), Tone::Heading);
    }
    let keys = match view.focus {
        Focus::Details(_) => KEYS_OF_DETAILS,
        Focus::Story(_) => KEYS_OF_STORY,
        Focus::Help => "any key returns",
        _ if width(KEYS) <= columns => KEYS,
        _ => FEW_KEYS,
    };
    (cut(keys, columns), Tone::Plain)
}

/// Turns tones into styles of the terminal.
struct Paint {
    coloured: bool,
}

impl Paint {
    fn style(&self, tone: Tone) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let colour = |colour| if self.coloured { Style::new().fg(colour) } else { Style::new() };
        match tone {
            Tone::Plain => Style::new(),
            Tone::Heading => bold,
            Tone::Wrong => colour(Color::Red).patch(bold),
            Tone::Late => colour(Color::Yellow),
            Tone::Leaving => colour(Color::Cyan),
            Tone::Kept => colour(Color::Magenta),
        }
    }

    fn line(&self, (text, tone): (String, Tone)) -> Line<'static> {
        Line::styled(text, self.style(tone))
    }

    fn story(&self, line: ShownLine) -> Line<'static> {
        let tone = match line.look {
            Look::Plain => Tone::Plain,
            Look::Heading => Tone::Heading,
            Look::Unknown => Tone::Late,
        };
        let lead = Span::raw(line.lead);
        Line::from(vec![lead, Span::styled(line.text, self.style(tone))])
    }

    fn summary(&self, line: &SummaryLine, columns: u16) -> Line<'static> {
        let room = usize::from(columns).saturating_sub(width(&line.lead));
        let text = Span::styled(cut(&line.text, room), self.style(line.tone));
        Line::from(vec![Span::styled(line.lead.clone(), self.style(Tone::Heading)), text])
    }
}

#[cfg(test)]
mod tests;
