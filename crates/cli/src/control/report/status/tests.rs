use insta::assert_snapshot;

use super::fixture::pool;
use super::*;

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn on(count: u64, columns: u16) -> String {
    Shown::on(pool(count), Some(Screen { columns, rows: 24 })).text()
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for count in [0, 1, 5, 40, 400] {
        for columns in (20..=240).step_by(5) {
            let text = plain(&on(count, columns));
            let widest = text.lines().map(width).max().unwrap_or(0);
            assert!(widest <= usize::from(columns), "{widest} at {columns}:\n{text}");
        }
    }
}

#[test]
fn wide_terminals_show_more_columns_and_every_machine_has_a_row() {
    let header = |columns| {
        let text = plain(&on(40, columns));
        text.lines().find(|line| line.starts_with("instance")).unwrap().to_owned()
    };
    let columns = |columns| header(columns).split_whitespace().count();
    assert!(columns(60) < columns(80) && columns(80) < columns(120) && columns(120) < columns(200));
    for columns in [80, 200] {
        let text = plain(&on(400, columns));
        assert_eq!(text.lines().filter(|line| line.starts_with("i-0")).count(), 400);
    }
}

#[test]
fn marks_are_words_and_colours() {
    let text = on(20, 80);
    for (word, colour) in [
        ("silent", "31"),
        ("failed", "31"),
        ("overdue", "33"),
        ("retiring", "36"),
        ("preserved", "35"),
    ] {
        let row = text.lines().find(|line| line.contains("i-0") && plain(line).contains(word));
        let row = row.unwrap_or_else(|| panic!("no row is {word}: {text}"));
        assert!(row.contains(&format!("\x1b[{colour}m{word}")), "{row:?}");
    }
    // A dead agent looks different from a living one.
    let words = plain(&text);
    let silent = words.lines().filter(|line| line.starts_with("i-0") && line.contains("silent"));
    assert_eq!(silent.count(), 1);
}

#[test]
fn five_machines_at_80_columns() {
    assert_snapshot!(plain(&on(5, 80)));
}

#[test]
fn forty_machines_at_200_columns() {
    assert_snapshot!(plain(&on(40, 200)));
}

#[test]
fn a_file_gets_a_table_that_does_not_depend_on_the_reader() {
    assert_snapshot!(plain(&Shown::on(pool(5), None).text()));
}

#[test]
fn texts_are_cut_to_columns_and_have_no_control_characters() {
    assert_eq!(cut("short", 5), "short");
    assert_eq!(cut("longer", 5), "long…");
    assert_eq!(cut("a\nb\x1b[31m", 20), "a b [31m");
    assert_eq!(cut("日本語", 5), "日本…");
    assert_eq!(cut("any", 0), "");
}
