//! What is on the screen, and what a key does. It knows no terminal.

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::{InstanceId, ResourceClass};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::status::judgement::{Group, Judged, Judgement, Mark};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::story::{Stories, Wanted};
use crate::control::report::explain::ExplainReport;

/// A change has its event within this, unless that was lost.
const EVENTS_WITHIN: Duration = Duration::from_secs(5);

/// What the program has to do about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// Put this text on the clipboard.
    Copy(String),
    Quit,
}

/// What the keys are about at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    Machines,
    /// The text of the filter is being typed.
    Filter,
    /// The details of the selected machine, from this line on.
    Details(u16),
    /// The story of the machine that was selected when it was opened, from this line on.
    Story(u16),
    Help,
}

/// Which machines are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) text: String,
    pub(super) group: Option<Group>,
    pub(super) class: Option<ResourceClass>,
    pub(super) only_marked: bool,
}

#[derive(Debug)]
pub(super) struct View {
    /// The last reading that succeeded.
    pub(super) judgement: Option<Judgement>,
    /// Why the last reading failed, and since when readings fail.
    pub(super) failure: Option<(Failure, Timestamp)>,
    pub(super) filter: Filter,
    pub(super) focus: Focus,
    /// Said once, until the next key.
    pub(super) notice: String,
    pub(super) stories: Stories,
    selected: Option<InstanceId>,
    /// The row of the selected machine, in case it goes.
    row: usize,
    /// How many rows the last frame had for machines.
    pub(super) page: usize,
    /// The first row that the last frame has shown.
    pub(super) top: usize,
    since: Timestamp,
}

impl View {
    pub(super) fn new(now: Timestamp) -> View {
        View {
            judgement: None,
            failure: None,
            filter: Filter::default(),
            focus: Focus::Machines,
            notice: String::new(),
            stories: Stories::default(),
            selected: None,
            row: 0,
            page: 1,
            top: 0,
            since: now,
        }
    }

    /// Takes a reading in. One that failed leaves what is shown.
    pub(super) fn learn(&mut self, reading: Result<Judgement, Failure>, now: Timestamp) {
        match reading {
            Ok(judgement) => {
                (self.judgement, self.failure) = (Some(judgement), None);
                self.stories.pool_was_read();
                self.keep_selection();
            }
            Err(failure) => {
                let since = self.failure.as_ref().map_or(now, |(_, since)| *since);
                self.failure = Some((failure, since));
            }
        }
    }

    /// When what is shown was read; the start of the program if nothing was.
    pub(super) fn read_at(&self) -> Timestamp {
        self.judgement.as_ref().map_or(self.since, |judgement| judgement.at)
    }

    /// The machines that the filter admits, in their order.
    pub(super) fn machines(&self) -> Vec<&Judged> {
        let all = self.judgement.iter().flat_map(|judgement| &judgement.machines);
        all.filter(|machine| self.filter.admits(machine)).collect()
    }

    /// The row of the selected machine, if there is one.
    pub(super) fn selected_row(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.machines().iter().position(|machine| machine.record.id == *selected)
    }

    pub(super) fn selected(&self) -> Option<&Judged> {
        let selected = self.selected.as_ref()?;
        self.judgement.as_ref()?.machines.iter().find(|it| it.record.id == *selected)
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::None;
        }
        self.notice.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Effect::Quit,
                _ => Effect::None,
            };
        }
        match self.focus {
            Focus::Machines => self.press_on_machines(key.code),
            Focus::Filter => self.type_filter(key.code),
            Focus::Details(line) => self.press_on_details(key.code, line),
            Focus::Story(line) => self.press_on_story(key.code, line),
            Focus::Help => {
                self.focus = Focus::Machines;
                Effect::None
            }
        }
    }

    fn press_on_machines(&mut self, key: KeyCode) -> Effect {
        match key {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('y') => return self.copy(self.machine_id()),
            KeyCode::Char('Y') => return self.copy(self.run_id()),
            KeyCode::Char('e') => self.open_story(),
            #[cfg(feature = "holds")]
            KeyCode::Char('P') if std::env::var_os("ONDECK_WATCH_PANICS").is_some() => {
                panic!("a test has asked for this")
            }
            KeyCode::Char('?') => self.focus = Focus::Help,
            KeyCode::Char('/') => self.focus = Focus::Filter,
            KeyCode::Char('s') => self.filter.group = self.next_group(),
            KeyCode::Char('c') => self.filter.class = self.next_class(),
            KeyCode::Char('m') => self.filter.only_marked = !self.filter.only_marked,
            KeyCode::Esc => self.filter = Filter::default(),
            KeyCode::Enter if self.selected().is_some() => self.focus = Focus::Details(0),
            key => return self.step(key),
        }
        self.keep_selection();
        Effect::None
    }

    fn step(&mut self, key: KeyCode) -> Effect {
        let page = self.page.max(1);
        let last = self.machines().len().saturating_sub(1);
        let row = self.selected_row().unwrap_or(self.row);
        let row = match key {
            KeyCode::Up | KeyCode::Char('k') => row.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => row + 1,
            KeyCode::PageUp => row.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => row + page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => return Effect::None,
        };
        self.select(row.min(last));
        Effect::None
    }

    fn type_filter(&mut self, key: KeyCode) -> Effect {
        match key {
            KeyCode::Enter => self.focus = Focus::Machines,
            KeyCode::Esc => {
                self.filter.text.clear();
                self.focus = Focus::Machines;
            }
            KeyCode::Backspace => drop(self.filter.text.pop()),
            KeyCode::Char(c) => self.filter.text.push(c),
            _ => {}
        }
        self.keep_selection();
        Effect::None
    }

    fn press_on_details(&mut self, key: KeyCode, line: u16) -> Effect {
        match key {
            KeyCode::Char('y') => return self.copy(self.machine_id()),
            KeyCode::Char('Y') => return self.copy(self.run_id()),
            KeyCode::Char('e') => self.open_story(),
            KeyCode::Up | KeyCode::Char('k') => self.focus = Focus::Details(line.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => {
                self.focus = Focus::Details(line.saturating_add(1));
            }
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => self.focus = Focus::Machines,
            _ => {}
        }
        Effect::None
    }

    fn press_on_story(&mut self, key: KeyCode, line: u16) -> Effect {
        let page = u16::try_from(self.page.max(1)).unwrap_or(u16::MAX);
        let line = match key {
            KeyCode::Char('y') => {
                return self.copy(self.stories.pane.as_ref().map(|pane| pane.of.to_string()));
            }
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => {
                self.focus = Focus::Machines;
                self.keep_selection();
                return Effect::None;
            }
            KeyCode::Up | KeyCode::Char('k') => line.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => line.saturating_add(1),
            KeyCode::PageUp => line.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => line.saturating_add(page),
            KeyCode::Home | KeyCode::Char('g') => 0,
            // The next frame knows where its end is.
            KeyCode::End | KeyCode::Char('G') => u16::MAX,
            _ => return Effect::None,
        };
        self.focus = Focus::Story(line);
        Effect::None
    }

    fn open_story(&mut self) {
        if let Some(id) = self.selected().map(|machine| machine.record.id.clone()) {
            self.stories.open(id);
            self.focus = Focus::Story(0);
        }
    }

    /// The story that has to be read for what is on the screen. It counts as being read from now on.
    pub(super) fn story_to_read(&mut self) -> Option<Wanted> {
        let Focus::Story(_) = self.focus else { return None };
        let read_at = self.read_at();
        let machines = self.judgement.as_ref().map_or(&[][..], |judgement| &judgement.machines);
        self.stories.wanted(|id| {
            let machine = machines.iter().find(|machine| machine.record.id == *id);
            let version = |at: Timestamp| (at, read_at.since(at) > EVENTS_WITHIN);
            machine.map(|machine| version(machine.record.updated_at))
        })
    }

    /// Takes a story in.
    pub(super) fn tell(&mut self, wanted: &Wanted, told: Result<ExplainReport, Failure>) {
        self.stories.tell(wanted, told);
    }

    fn machine_id(&self) -> Option<String> {
        self.selected().map(|machine| machine.record.id.to_string())
    }

    /// The label of the run that has the selected machine.
    fn run_id(&self) -> Option<String> {
        self.selected()?.record.label().map(|label| label.to_string())
    }

    fn copy(&mut self, id: Option<String>) -> Effect {
        match id {
            None => Effect::None,
            Some(id) => {
                self.notice = format!("copied {id}");
                Effect::Copy(id)
            }
        }
    }

    /// The state after the present one among those that machines have; none after the last.
    fn next_group(&self) -> Option<Group> {
        let has = |group: &Group| {
            let machines = self.judgement.iter().flat_map(|judgement| &judgement.machines);
            machines.into_iter().any(|machine| machine.group == *group)
        };
        let mut groups = Group::ALL.into_iter().filter(has);
        groups.find(|group| self.filter.group.is_none_or(|present| *group > present))
    }

    fn next_class(&self) -> Option<ResourceClass> {
        let classes = self.judgement.iter().flat_map(|judgement| &judgement.summary.classes);
        let mut classes: Vec<&ResourceClass> = classes.map(|it| &it.class).collect();
        classes.sort();
        let present = self.filter.class.as_ref();
        classes.into_iter().find(|class| present.is_none_or(|present| *class > present)).cloned()
    }

    /// Selects another machine if the selected one is no longer shown.
    fn keep_selection(&mut self) {
        match self.selected_row() {
            Some(row) => self.row = row,
            // The details of a machine stay open, although the filter or the pool no longer has it.
            None if matches!(self.focus, Focus::Details(_)) && self.selected().is_some() => {}
            None => self.select(self.row.min(self.machines().len().saturating_sub(1))),
        }
        if self.selected.is_none() && matches!(self.focus, Focus::Details(_)) {
            self.focus = Focus::Machines;
        }
    }

    fn select(&mut self, row: usize) {
        self.selected = self.machines().get(row).map(|machine| machine.record.id.clone());
        self.row = row;
    }
}

impl Filter {
    pub(super) fn is_set(&self) -> bool {
        *self != Filter::default()
    }

    /// The text is looked for in id, state, run, class, type and marks, in any case.
    fn admits(&self, machine: &Judged) -> bool {
        let record = &machine.record;
        let text = self.text.to_lowercase();
        let has = |field: &str| field.to_lowercase().contains(&text);
        let has_text = has(record.id.as_str())
            || has(machine.group.as_str())
            || record.run.as_ref().is_some_and(|run| has(run.as_str()))
            || has(record.spec.resource_class.as_str())
            || has(&record.spec.instance_type)
            || machine.marks.iter().map(Mark::as_str).any(has);
        has_text
            && self.group.is_none_or(|group| machine.group == group)
            && self.class.as_ref().is_none_or(|class| record.spec.resource_class == *class)
            && !(self.only_marked && machine.marks.is_empty())
    }

    /// In words, for the screen.
    pub(super) fn describe(&self) -> String {
        let text = (!self.text.is_empty()).then(|| format!("text {:?}", self.text));
        let group = self.group.map(|group| format!("state {}", group.as_str()));
        let class = self.class.as_ref().map(|class| format!("class {class}"));
        let marked = self.only_marked.then(|| "marked only".to_owned());
        [text, group, class, marked].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests;
