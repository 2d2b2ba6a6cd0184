use std::time::Duration;

use insta::assert_snapshot;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::record::{EventRow, State};
use ondeck_core::modes::explain::{Gap, MachineStory, Step, Story};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::*;
use crate::control::report::explain::ExplainReport;
use crate::control::report::status::fixture::{noon, pool};

fn view(count: u64) -> View {
    let mut view = View::new(noon());
    view.learn(Ok(pool(count)), noon());
    view
}

/// The frame three seconds after the reading, as lines without spaces at their ends.
fn frame(view: &mut View, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let now = noon() + Duration::from_secs(3);
    terminal.draw(|frame| draw(frame, view, now, true)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |row: u16| {
        let cells = (0..columns).map(|column| buffer[(column, row)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..rows).map(line).collect::<Vec<_>>().join("\n")
}

fn press(view: &mut View, keys: &[KeyCode]) {
    keys.iter().for_each(|key| drop(view.press(KeyEvent::from(*key))));
}

#[test]
fn forty_machines_at_80_columns() {
    assert_snapshot!(frame(&mut view(40), 80, 24));
}

#[test]
fn forty_machines_at_200_columns() {
    assert_snapshot!(frame(&mut view(40), 200, 40));
}

#[test]
fn the_details_of_a_silent_machine() {
    let mut view = view(20);
    press(&mut view, &[KeyCode::Enter]);
    assert_snapshot!(frame(&mut view, 80, 32));
}

#[test]
fn details_scroll_no_further_than_to_their_end() {
    let mut view = view(20);
    press(&mut view, &[KeyCode::Enter]);
    for _ in 0..50 {
        press(&mut view, &[KeyCode::Down]);
        frame(&mut view, 80, 12);
    }
    let end = frame(&mut view, 80, 12);
    assert!(end.contains("UD_REG_OK for run 16203114507"), "{end}");
    press(&mut view, &[KeyCode::Up]);
    assert_ne!(frame(&mut view, 80, 12), end, "one line up is seen at once");
}

/// The story of the selected machine: it was registered, what came next is unknown, and it runs.
fn with_a_story() -> View {
    let mut view = view(20);
    press(&mut view, &[KeyCode::Char('e')]);
    let wanted = view.story_to_read().unwrap();
    let selected = view.selected().unwrap().clone();
    let event = EventRow {
        instance: wanted.of.clone(),
        at: noon().before(Duration::from_secs(600)),
        transition: "register".to_owned(),
        from: None,
        to: State::Created,
        run: selected.record.run.clone(),
        why: String::new(),
    };
    let gap = Gap {
        from: Some((State::Created, event.at)),
        to: Some(State::Running),
        until: Some(selected.record.updated_at),
        is_unread: false,
    };
    let story = MachineStory {
        id: wanted.of.clone(),
        now: noon(),
        record: Some(selected.record),
        unreadable: None,
        status: selected.status,
        life: vec![Step::Event { event, before: None }, Step::Gap(gap)],
        sight: None,
        registers_idle: false,
        grace: Duration::from_secs(60),
    };
    view.tell(&wanted, Ok(ExplainReport::of(Story::Machine(Box::new(story)))));
    view
}

#[test]
fn the_story_of_a_machine() {
    let mut view = with_a_story();
    assert_snapshot!(frame(&mut view, 80, 24));
    let mut reading = self::view(20);
    press(&mut reading, &[KeyCode::Char('e')]);
    assert!(frame(&mut reading, 80, 24).contains("reading the story of i-0"));
    let wanted = reading.story_to_read().unwrap();
    let failure = Failure::new(FailureKind::Unavailable, "DynamoDB is out of reach: no route");
    reading.tell(&wanted, Err(failure));
    assert!(frame(&mut reading, 80, 24).contains("the story cannot be read: DynamoDB"));
}

#[test]
fn a_story_scrolls_no_further_than_to_its_end() {
    let mut view = with_a_story();
    frame(&mut view, 50, 8);
    press(&mut view, &[KeyCode::End]);
    let end = frame(&mut view, 50, 8);
    press(&mut view, &[KeyCode::PageDown]);
    assert_eq!(frame(&mut view, 50, 8), end);
    press(&mut view, &[KeyCode::Up]);
    assert_ne!(frame(&mut view, 50, 8), end, "one line up is seen at once");
    press(&mut view, &[KeyCode::Home]);
    assert!(frame(&mut view, 50, 8).contains("machine i-0"));
}

#[test]
fn a_filter_being_typed() {
    let mut view = view(40);
    press(&mut view, &[KeyCode::Char('/'), KeyCode::Char('o'), KeyCode::Char('v')]);
    assert_snapshot!(frame(&mut view, 80, 20));
}

#[test]
fn the_help() {
    let mut view = view(5);
    press(&mut view, &[KeyCode::Char('?')]);
    assert_snapshot!(frame(&mut view, 80, 16));
}

#[test]
fn a_store_out_of_reach() {
    let mut view = view(5);
    let failure = Failure::new(FailureKind::Unavailable, "DynamoDB is out of reach: no route");
    view.learn(Err(failure.clone()), noon() + Duration::from_secs(1));
    assert_snapshot!(frame(&mut view, 80, 20));
    let mut empty = View::new(noon());
    empty.learn(Err(failure), noon() + Duration::from_secs(1));
    let first = frame(&mut empty, 80, 5);
    assert!(first.starts_with("OUT OF REACH for 2.0s, nothing was read yet"), "{first}");
}

#[test]
fn the_header_stays_and_the_selection_is_on_the_screen_at_any_size() {
    for (columns, rows) in [(20, 5), (40, 10), (80, 24), (200, 60)] {
        let mut view = view(400);
        for keys in
            [&[KeyCode::End][..], &[KeyCode::PageUp], &[KeyCode::Home], &[KeyCode::PageDown]]
        {
            frame(&mut view, columns, rows);
            press(&mut view, keys);
            let frame = frame(&mut view, columns, rows);
            assert!(frame.starts_with("ondeck watch"), "{frame}");
            if rows >= 10 {
                assert!(frame.contains("  instance"), "{columns}x{rows}:\n{frame}");
                assert_eq!(frame.matches("\n> i-0").count(), 1, "{columns}x{rows}:\n{frame}");
            }
        }
    }
}
