use ondeck_core::model::failure::FailureKind;

use super::*;
use crate::control::report::status::fixture::{noon, pool};

fn view(count: u64) -> View {
    let mut view = View::new(noon());
    view.learn(Ok(pool(count)), noon());
    view.page = 10;
    view
}

fn press(view: &mut View, code: KeyCode) -> Effect {
    view.press(KeyEvent::from(code))
}

fn write(view: &mut View, text: &str) {
    text.chars().for_each(|c| drop(press(view, KeyCode::Char(c))));
}

fn shown(view: &View) -> usize {
    view.machines().len()
}

#[test]
fn keys_move_the_selection_within_the_machines() {
    let mut view = view(40);
    assert_eq!(view.selected_row(), Some(0));
    for (key, row) in [
        (KeyCode::Down, 1),
        (KeyCode::Char('j'), 2),
        (KeyCode::Up, 1),
        (KeyCode::Char('k'), 0),
        (KeyCode::Up, 0),
        (KeyCode::PageDown, 10),
        (KeyCode::End, 39),
        (KeyCode::Down, 39),
        (KeyCode::PageUp, 29),
        (KeyCode::Home, 0),
    ] {
        assert_eq!(press(&mut view, key), Effect::None);
        assert_eq!(view.selected_row(), Some(row), "after {key:?}");
    }
}

#[test]
fn filters_by_text_state_class_and_mark() {
    let mut view = view(40);
    write(&mut view, "/SILENT");
    assert_eq!((shown(&view), view.focus), (2, Focus::Filter));
    press(&mut view, KeyCode::Backspace);
    press(&mut view, KeyCode::Enter);
    assert_eq!((shown(&view), view.focus), (2, Focus::Machines));
    press(&mut view, KeyCode::Esc);
    assert_eq!(shown(&view), 40, "esc removes it");

    press(&mut view, KeyCode::Char('s'));
    assert_eq!(view.filter.group, Some(Group::Running));
    assert!(view.machines().iter().all(|machine| machine.group == Group::Running));
    for group in [
        Some(Group::Claimed),
        Some(Group::Created),
        Some(Group::Idle),
        Some(Group::Preserved),
        None,
    ] {
        press(&mut view, KeyCode::Char('s'));
        assert_eq!(view.filter.group, group);
    }

    press(&mut view, KeyCode::Char('c'));
    press(&mut view, KeyCode::Char('c'));
    assert!(view.machines().iter().all(|it| it.record.spec.resource_class.as_str() == "xlarge"));
    assert_eq!(view.filter.describe(), "class xlarge");
    press(&mut view, KeyCode::Char('c'));
    assert_eq!(shown(&view), 40, "after the last class, all of them");

    press(&mut view, KeyCode::Char('m'));
    assert!(shown(&view) < 40 && view.machines().iter().all(|it| !it.marks.is_empty()));
    write(&mut view, "/no such machine");
    assert_eq!((shown(&view), view.selected_row()), (0, None));
    assert_eq!(press(&mut view, KeyCode::Enter), Effect::None, "nothing to open");
}

#[test]
fn the_selection_stays_with_its_machine_and_moves_on_if_it_goes() {
    let mut view = view(40);
    press(&mut view, KeyCode::End);
    let id = view.selected().unwrap().record.id.clone();
    view.learn(Ok(pool(45)), noon());
    assert_eq!(view.selected().unwrap().record.id, id);
    view.learn(Ok(pool(5)), noon());
    assert!(view.selected_row().is_some(), "another machine is selected");
    view.learn(Ok(pool(0)), noon());
    assert_eq!(view.selected_row(), None);
    view.learn(Ok(pool(5)), noon());
    assert!(view.selected_row().is_some());
}

#[test]
fn details_open_scroll_and_close() {
    let mut view = view(5);
    press(&mut view, KeyCode::Enter);
    press(&mut view, KeyCode::Down);
    assert_eq!(view.focus, Focus::Details(1));
    assert_eq!(press(&mut view, KeyCode::Char('q')), Effect::None, "it closes them only");
    assert_eq!(view.focus, Focus::Machines);
    press(&mut view, KeyCode::Enter);
    view.learn(Ok(pool(0)), noon());
    assert_eq!(view.focus, Focus::Machines, "the machine is gone");
}

fn unknown() -> Failure {
    Failure::new(FailureKind::Unavailable, "the store is out of reach")
}

#[test]
fn a_story_is_read_when_it_is_opened_and_when_its_record_has_changed() {
    let mut view = view(5);
    assert_eq!(view.story_to_read(), None, "none is open");
    press(&mut view, KeyCode::Enter);
    press(&mut view, KeyCode::Char('e'));
    assert_eq!(view.focus, Focus::Story(0));
    let first = view.story_to_read().unwrap();
    assert_eq!(first.of, view.selected().unwrap().record.id);
    assert_eq!(view.story_to_read(), None, "it is being read");

    // Another one is opened meanwhile: it waits, and the answer for the first one is not shown.
    press(&mut view, KeyCode::Esc);
    assert_eq!(view.story_to_read(), None, "none is shown");
    press(&mut view, KeyCode::Down);
    press(&mut view, KeyCode::Char('e'));
    assert_eq!(view.story_to_read(), None, "one at a time");
    view.tell(&first, Err(unknown()));
    assert!(view.stories.pane.as_ref().unwrap().told.is_none());
    let second = view.story_to_read().unwrap();
    assert_ne!(second.of, first.of);

    // One that cannot be read is read again after the next reading of the pool.
    view.tell(&second, Err(unknown()));
    assert_eq!(view.story_to_read(), None);
    view.learn(Ok(pool(5)), noon());
    assert_eq!(view.story_to_read(), Some(second.clone()));

    // The machine is gone: how that came is read, and the story stays.
    view.tell(&second, Err(unknown()));
    view.learn(Ok(pool(0)), noon());
    let last = view.story_to_read().unwrap();
    assert_eq!(last.of, second.of);
    assert_ne!(last, second);
    assert!(matches!(view.focus, Focus::Story(_)));
    assert_eq!(press(&mut view, KeyCode::Char('y')), Effect::Copy(second.of.to_string()));
    press(&mut view, KeyCode::Esc);
    assert_eq!((view.focus, view.selected_row()), (Focus::Machines, None));
}

#[test]
fn a_story_of_a_late_change_is_read_again_when_its_event_has_had_time() {
    let mut reading = pool(5);
    reading.machines[0].record.updated_at = reading.at.before(Duration::from_secs(1));
    let mut view = View::new(noon());
    view.learn(Ok(reading.clone()), noon());
    press(&mut view, KeyCode::Char('e'));
    let first = view.story_to_read().unwrap();
    view.tell(&first, Err(unknown()));
    view.stories.pane.as_mut().unwrap().told = None;
    view.learn(Ok(reading.clone()), noon());
    assert_eq!(view.story_to_read(), None);
    reading.at = reading.at + Duration::from_secs(5);
    view.learn(Ok(reading), noon());
    assert!(view.story_to_read().is_some());
}

#[test]
fn ids_are_copied_and_keys_quit() {
    let mut view = view(5);
    let id = view.selected().unwrap().record.id.to_string();
    assert_eq!(press(&mut view, KeyCode::Char('y')), Effect::Copy(id.clone()));
    assert_eq!(view.notice, format!("copied {id}"));
    let run = view.selected().unwrap().record.run.clone().unwrap().to_string();
    assert_eq!(press(&mut view, KeyCode::Char('Y')), Effect::Copy(run));
    press(&mut view, KeyCode::Char('?'));
    assert_eq!((view.focus, view.notice.as_str()), (Focus::Help, ""));
    press(&mut view, KeyCode::Char('q'));
    assert_eq!(view.focus, Focus::Machines, "any key leaves the help");
    assert_eq!(press(&mut view, KeyCode::Char('q')), Effect::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for focus in [Focus::Machines, Focus::Filter, Focus::Details(0), Focus::Story(0), Focus::Help] {
        view.focus = focus;
        assert_eq!(view.press(interrupt), Effect::Quit, "{focus:?}");
    }
}

#[test]
fn a_failed_reading_leaves_what_is_shown_and_says_since_when() {
    let failure = || Failure::new(FailureKind::Unavailable, "the store is out of reach");
    let later = |seconds| noon() + std::time::Duration::from_secs(seconds);
    let mut view = view(5);
    view.learn(Err(failure()), later(3));
    view.learn(Err(failure()), later(9));
    assert_eq!((shown(&view), view.read_at()), (5, noon()));
    assert_eq!(view.failure.as_ref().unwrap().1, later(3));
    view.learn(Ok(pool(5)), later(12));
    assert!(view.failure.is_none());
}
