//! `ondeck status` and `ondeck watch` on a real terminal of 80 and 200 columns, with 5, 40 and 400
//! machines.

pub(crate) mod crowd;

use rustix::process::Signal;

use self::crowd::{MARKED, crowd};
use crate::harness::{AtTerminal, Driven, Home, OnScreen, signal};

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];
const CROWDS: [usize; 3] = [5, 40, 400];

/// The program on a screen, once it shows machines.
fn watch(home: &Home, (columns, rows): (u16, u16)) -> OnScreen {
    let mut watch = AtTerminal::on_screen(&home.command(&["watch"]), columns, rows);
    watch.until("the first frame", |shown| shown.contains("instance") && shown.contains("q quit"));
    watch
}

fn rows(shown: &str) -> usize {
    shown.lines().filter(|line| line.get(2..).is_some_and(|line| line.starts_with("i-"))).count()
}

/// The id of the machine in the selected row.
fn selected(shown: &str) -> Option<String> {
    let row = shown.lines().find(|line| line.starts_with("> i-"))?;
    row.split_whitespace().nth(1).map(str::to_owned)
}

#[test]
fn status_fits_the_terminal() {
    for count in CROWDS {
        let home = Home::with(&[]);
        crowd(&home, count);
        for (columns, _) in SIZES {
            let status = home.command(&["status"]);
            let mut status = AtTerminal::on_screen(&status, columns, 600);
            let (code, shown) = status.ended();
            assert_eq!(code, Some(0), "{shown}");
            let wrapped = (0..600).filter(|row| status.screen().row_wrapped(*row));
            assert_eq!(wrapped.count(), 0, "{count} machines at {columns} columns:\n{shown}");
            let machines = shown.lines().filter(|line| line.starts_with("i-")).count();
            assert_eq!(machines, count, "at {columns} columns:\n{shown}");
            let summary = format!("machines: {count} (");
            assert!(shown.starts_with(&summary), "the summary is first:\n{shown}");
            for (id, word) in MARKED {
                let row = shown.lines().find(|line| line.starts_with(id)).unwrap();
                assert!(row.contains(word), "{id} is {word}: {row}");
            }
            assert!(status.output().contains("\x1b[31m"), "silent is red: {}", status.output());
        }
    }
}

#[test]
fn watch_fits_the_terminal_and_its_header_stays() {
    for count in CROWDS {
        let home = Home::with(&[]);
        crowd(&home, count);
        for size in SIZES {
            let mut watch = watch(&home, size);
            // The last, a page up, the last again, the first: each selects another machine.
            for keys in ["G", "\x1b[5~", "G", "g"] {
                let before = selected(&watch.shown());
                watch.press(keys);
                let shown = watch.until("another machine is selected", |shown| {
                    selected(shown).is_some_and(|now| Some(now) != before)
                });
                let wrapped = (0..size.1).filter(|row| watch.screen().row_wrapped(*row));
                assert_eq!(wrapped.count(), 0, "{count} machines at {size:?}:\n{shown}");
                assert!(shown.starts_with("ondeck watch, read "), "{shown}");
                assert!(shown.contains("  instance "), "the header is there:\n{shown}");
            }
            watch.until("the most urgent machine is first", |shown| shown.contains("> i-silent"));
            watch.press("q");
            assert_eq!(watch.ended().0, Some(0));
        }
    }
}

#[test]
fn a_filter_filters_and_details_open() {
    let home = Home::with(&[]);
    crowd(&home, 40);
    let mut watch = watch(&home, (80, 40));
    watch.press("/overdue\r");
    let filter = "1 of 40 machines: text \"overdue\"";
    let shown = watch.until("one machine", |shown| shown.contains(filter) && rows(shown) == 1);
    assert!(shown.contains("> i-overdue"), "{shown}");
    watch.press("\r");
    // The last line is drawn last.
    let shown = watch.until("its details", |shown| shown.contains("esc back"));
    assert!(shown.contains("past its threshold for"), "{shown}");
    for word in ["deadline", "record", "agent", "instance      i-overdue", "heartbeat", "signal"] {
        assert!(shown.contains(word), "{word}:\n{shown}");
    }
    watch.press("y");
    watch.until("it says so", |shown| shown.contains("copied i-overdue"));
    // aS1vdmVyZHVl is i-overdue.
    assert!(watch.output().contains("\x1b]52;c;aS1vdmVyZHVl\x07"), "{:?}", watch.output());
    watch.press("q");
    watch.until("the machines again", |shown| rows(shown) == 1);
    // A lone escape is told from the beginning of a key by what follows.
    watch.press("\x1b");
    watch.until("all machines", |shown| rows(shown) > 1);
    watch.press("s");
    watch.until("one state", |shown| shown.contains("state running"));
    watch.press("?");
    watch.until("the keys", |shown| shown.contains("select a machine"));
    watch.press("xq");
    assert_eq!(watch.ended().0, Some(0));
}

/// The story is drawn over the machines, is read again when its machine changes, and scrolls in place.
#[test]
fn a_story_opens_grows_and_scrolls() {
    let home = Home::with(&[]);
    let machine = home.provision("1", 1).succeeded().ids().concat();
    for size in SIZES {
        let mut watch = watch(&home, size);
        watch.press("e");
        let told = format!("machine {machine}");
        let shown = watch.until("the story", |shown| shown.contains(&told));
        for words in ["launched for run 1", "now", "It is running, of run 1", "esc back"] {
            assert!(shown.contains(words), "{words} at {size:?}:\n{shown}");
        }
        let wrapped = (0..size.1).filter(|row| watch.screen().row_wrapped(*row));
        assert_eq!(wrapped.count(), 0, "{size:?}:\n{shown}");
        watch.press("y");
        watch.until("it is copied", |shown| shown.contains(&format!("copied {machine}")));
        watch.press("q");
        watch.until("the machines again", |shown| rows(shown) == 1);
        watch.press("q");
        assert_eq!(watch.ended().0, Some(0));
    }
    let mut watch = AtTerminal::on_screen(&home.command(&["watch", "--interval-sec=1"]), 80, 12);
    watch.until("the machines", |shown| shown.contains("q quit"));
    watch.press("e");
    watch.until("the story", |shown| shown.contains("was ready, and was handed to run 1"));
    home.release("1").succeeded();
    watch.until("what has happened since", |shown| shown.contains("Run 1 released it"));
    watch.press("G");
    let end = watch.until("its end", |shown| !shown.contains("launched for run 1"));
    assert!(end.starts_with("ondeck watch, read ") && end.contains("esc back"), "{end}");
    watch.press("g");
    watch.until("its beginning", |shown| shown.contains("launched for run 1"));
    // How a machine has ended is told as well.
    home.ondeck(&["terminate", &machine]).succeeded();
    watch.press("G");
    watch.until("its end", |shown| shown.contains("set to terminated"));
    watch.press("\x03");
    assert_eq!(watch.ended().0, Some(0));
}

#[test]
fn a_resize_draws_another_frame() {
    let home = Home::with(&[]);
    crowd(&home, 40);
    let mut watch = watch(&home, (200, 50));
    let wide = watch.until("the wide frame", |shown| shown.contains("signal"));
    assert!(rows(&wide) > 30, "{wide}");
    watch.resize(80, 24);
    let narrow = watch.until("the narrow frame", |shown| {
        shown.starts_with("ondeck watch") && !shown.contains("signal") && shown.contains("q quit")
    });
    assert!((1..15).contains(&rows(&narrow)), "{narrow}");
    watch.resize(200, 50);
    watch.until("the wide frame again", |shown| rows(shown) > 30 && shown.contains("signal"));
    watch.press("q");
    watch.ended();
}

#[test]
fn the_terminal_is_restored_however_it_ends() {
    let home = Home::with(&[]);
    crowd(&home, 5);
    type End = fn(&mut OnScreen);
    let ends: [(&str, End, Option<i32>); 6] = [
        ("q", |watch| watch.press("q"), Some(0)),
        ("ctrl-c", |watch| watch.press("\x03"), Some(0)),
        ("SIGINT", |watch| watch.signal(Signal::INT), Some(0)),
        ("SIGTERM", |watch| watch.signal(Signal::TERM), Some(0)),
        ("SIGHUP", |watch| watch.signal(Signal::HUP), Some(0)),
        ("a panic", |watch| watch.press("P"), Some(101)),
    ];
    for (name, end, code) in ends {
        let mut command = home.command(&["watch"]);
        command.env("ONDECK_WATCH_PANICS", "1");
        let mut watch = AtTerminal::on_screen(&command, 80, 24);
        assert!(watch.echoes());
        watch.until("a frame", |shown| shown.contains("instance"));
        assert!(!watch.echoes() && watch.screen().alternate_screen(), "{name}");
        end(&mut watch);
        let (ended, shown) = watch.ended();
        assert_eq!(ended, code, "{name}: {shown}");
        assert!(watch.echoes(), "{name}: the terminal is raw");
        assert!(!watch.screen().alternate_screen() && !watch.screen().hide_cursor(), "{name}");
        let panicked = watch.output().contains("a test has asked for this");
        assert_eq!(panicked, name == "a panic", "{name}: {shown}");
    }
}

#[test]
fn a_dead_agent_looks_different_from_a_living_one() {
    let home = Home::with(&["--heartbeat-period-sec=1"]);
    let machines = home.provision("1", 2).succeeded().ids();
    let mut watch = watch(&home, (80, 24));
    let shown = watch.shown();
    assert!(shown.contains("wrong: nothing") && !shown.contains("silent"), "{shown}");
    signal(home.agents()[&machines[0]], Signal::STOP);
    let is_silent = |shown: &str, id: &str| {
        let row = shown.lines().rfind(|line| line.contains(id) && line.contains("running"));
        row.is_some_and(|row| row.contains("silent"))
    };
    let shown = watch.until("one is silent, and only one", |shown| {
        is_silent(shown, &machines[0]) && rows(shown) == 2 && !is_silent(shown, &machines[1])
    });
    let wrong = format!("wrong: 1 machine without a recent heartbeat: {}", machines[0]);
    assert!(shown.contains(&wrong), "{shown}");
    signal(home.agents()[&machines[0]], Signal::CONT);
    watch.until("it lives", |shown| shown.contains("wrong: nothing"));
    watch.press("q");
    watch.ended();
}

#[test]
fn the_warm_share_and_the_last_refresh_are_told() {
    let home = Home::with(&[]);
    let text = || home.ondeck(&["status"]).succeeded().stdout;
    assert!(text().contains("warm: unknown"), "{}", text());
    assert!(text().contains("refresh: within the last "), "{}", text());
    assert!(text().contains("wrong: nothing"), "{}", text());
    home.warm_up(2);
    assert!(text().contains("warm: 0 %, 0 of the last 2 machines"), "{}", text());
    home.provision("2", 2).succeeded();
    assert!(text().contains("warm: 50 %, 2 of the last 4 machines"), "{}", text());
    let status = home.status();
    let summary = &status["summary"];
    assert_eq!(summary["warmShare"]["warm"], 2);
    assert_eq!(summary["warmShare"]["handedOver"], 4);
    assert_eq!(summary["states"]["running"], 2);
    assert_eq!(summary["refreshOverdue"], false);
    assert_eq!(summary["problems"], serde_json::json!([]));

    let long_ago = "UPDATE settings SET value = '2020-01-01T00:00:00.000Z' \
                    WHERE name = 'set-up-checked'";
    home.file().execute(long_ago, []).unwrap();
    assert!(
        text().contains("overdue") && text().contains("wrong: refresh is overdue"),
        "{}",
        text()
    );
    assert_eq!(home.status()["summary"]["refreshOverdue"], true);
    home.refresh(&[]);
    assert!(!text().contains("overdue"), "{}", text());
}

#[test]
fn json_has_the_marks_and_what_is_wrong() {
    let home = Home::with(&[]);
    crowd(&home, 5);
    let status = home.status();
    for (id, word) in MARKED {
        let instances = status["instances"].as_array().unwrap();
        let machine = instances.iter().find(|it| it["instanceId"] == id).unwrap();
        assert_eq!(machine["marks"][0]["mark"], word, "{machine}");
    }
    assert_eq!(status["instances"][4]["marks"][0]["mark"], "preserved", "by state: {status}");
    let problems = status["summary"]["problems"].as_array().unwrap();
    let kinds: Vec<&str> = problems.iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["silent", "overdue"]);
    assert_eq!(problems[0]["instanceIds"], serde_json::json!(["i-silent"]));
    assert_eq!(status["summary"]["states"]["preserved"], 1);
}

#[test]
fn a_machine_of_the_minimum_is_no_machine_of_a_run() {
    let home = Home::with(&["--min-idle=large=1"]);
    let text = home.ondeck(&["status"]).succeeded().stdout;
    assert!(text.contains("1 idle") && text.contains("warm: unknown"), "{text}");
}

#[test]
fn a_ceiling_is_shown_with_its_count() {
    let home = Home::with(&["--max-machines=3 large=2"]);
    home.provision("1", 2).succeeded();
    let text = home.ondeck(&["status"]).succeeded().stdout;
    assert!(text.contains("ceiling: 2 of 3, large 2 of 2"), "{text}");
    assert!(text.contains("wrong: class large has as many machines as max-machines allows: 2"));
}

#[test]
fn watch_needs_a_terminal_and_says_what_does_not() {
    let home = Home::with(&[]);
    let done = home.ondeck(&["watch"]).exited(2);
    assert!(done.stderr.contains("watch needs a terminal"), "{}", done.stderr);
    assert!(done.stderr.contains("hint: use ondeck status --watch"), "{}", done.stderr);
    let mut dumb = home.command(&["watch"]);
    dumb.env("TERM", "dumb");
    let (code, shown) = AtTerminal::on_screen(&dumb, 80, 24).ended();
    assert!(code == Some(2) && shown.contains("watch needs a terminal"), "{shown}");
    let (code, shown) = AtTerminal::on_screen(&home.command(&["watch", "--json"]), 80, 24).ended();
    assert!(code == Some(2) && shown.contains("watch prints no JSON"), "{shown}");
    let bare = Home::bare();
    let (code, shown) = AtTerminal::on_screen(&bare.command(&["watch"]), 80, 24).ended();
    assert!(code == Some(3) && shown.contains("not set up"), "{shown}");
}

#[test]
fn watched_status_keeps_its_summary_on_a_small_screen() {
    let home = Home::with(&[]);
    crowd(&home, 400);
    let mut watched = AtTerminal::on_screen(&home.command(&["status", "--watch"]), 80, 24);
    for _ in 0..2 {
        let shown = watched.until("a frame", |shown| shown.contains("more lines"));
        assert!(shown.starts_with("machines: 400 ("), "{shown}");
        watched.screen_is_cleared();
    }
    watched.signal(Signal::INT);
    assert_eq!(watched.ended().0, Some(0));
}

#[test]
fn no_color_leaves_the_words() {
    let home = Home::with(&[]);
    crowd(&home, 5);
    let mut command = home.command(&["watch"]);
    command.env("NO_COLOR", "1");
    let mut watch = AtTerminal::on_screen(&command, 80, 24);
    watch.until("a frame", |shown| shown.contains("silent"));
    watch.press("q");
    watch.ended();
    for colour in 31..=37 {
        let output = watch.output();
        assert!(!output.contains(&format!("\x1b[{colour}m")), "{output:?}");
        assert!(!output.contains(&format!("\x1b[38;5;{}m", colour - 30)), "{output:?}");
    }
}
