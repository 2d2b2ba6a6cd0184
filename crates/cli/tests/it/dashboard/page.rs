//! The page in Chromium, beside a pool whose machines live, die and are fought over.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use ondeck_core::model::timestamp::Timestamp;
use ondeck_standin::emulators::axe;
use rustix::process::Signal;
use serde_json::Value;

use super::Served;
use super::browser::{Browser, DESK, Look};
use crate::harness::{Driven, Home, race, say, signal};
use crate::spend::away_from_midnight;
use crate::watch::crowd::{MARKED, crowd};

const SIZES: [(&str, u32, u32); 3] =
    [("desk", 1440, 1000), ("tablet", 820, 1180), ("phone", 390, 844)];
const SCHEMES: [&str; 2] = ["light", "dark"];

const LIVE: &str = "document.getElementById('connection').dataset.kind === 'live'";

/// Where the pictures are, to be looked at.
fn pictures() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dashboard");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The cards of a lane.
fn cards(state: &str) -> String {
    format!("document.querySelectorAll('.lane[data-state={state}] .card')")
}

/// Whether a lane has so many machines.
fn lane_has(state: &str, count: usize) -> String {
    let shown = format!("document.querySelector('.lane[data-state={state}] .count').textContent");
    format!("{shown} === '{count}' && {}.length === {count}", cards(state))
}

fn opened(browser: &mut Browser, served: &Served) {
    browser.open(&served.url());
    browser.until("the page is live", LIVE);
}

/// Everything that the page has loaded came from the program, and it has not complained.
#[track_caller]
fn assert_sound(browser: &mut Browser) {
    let own = "performance.getEntriesByType('resource').every((it) => it.name.startsWith(origin))";
    assert_eq!(browser.value(own), true, "another host was asked");
    assert_eq!(browser.problems(), Vec::<String>::new());
}

#[test]
fn machines_move_between_the_lanes() {
    let Some(mut browser) = Browser::start() else { return };
    let home = Home::with(&["--heartbeat-period-sec=1"]);
    let served = Served::of(&home);
    opened(&mut browser, &served);
    let ids = home.provision("17", 2).succeeded().ids();
    browser.until("two run", &lane_has("running", 2));
    browser.value("document.querySelector('.card').marker = 'the same element'");
    home.release("17").succeeded();
    browser.until("two are idle", &lane_has("idle", 2));
    browser.until("none runs", &lane_has("running", 0));
    let kept = format!("[...{}].some((card) => card.marker)", cards("idle"));
    assert_eq!(browser.value(&kept), true, "a card moves with its machine");

    // Three runs want the two machines.
    race(&home, 3, &ids.iter().cloned().collect::<BTreeSet<_>>());
    browser.until("three run", &lane_has("running", 3));
    let dead = &ids[0];
    signal(home.agents()[dead], Signal::KILL);
    let marked = format!("document.querySelector('.card[data-id={dead}]').dataset.marked");
    browser.until("the dead one is silent", &format!("{marked} === 'silent'"));
    browser.until(
        "that is wrong",
        "document.getElementById('wrong').textContent.includes('without a recent heartbeat')",
    );
    home.ondeck(&["terminate", dead, "--force", "--yes"]).succeeded();
    browser.until("it is terminated", &lane_has("terminated", 1));
    browser.until("two run", &lane_has("running", 2));
    let told = "document.getElementById('changes').textContent.includes('was terminated')";
    browser.until("the change is listed", told);
    assert_sound(&mut browser);
}

#[test]
fn before_the_pool_has_been_read_no_lane_says_that_it_is_empty() {
    let Some(mut browser) = Browser::start() else { return };
    let home = Home::with(&[]);
    home.provision("17", 1).succeeded();
    let served = Served::of(&home);
    // Nothing can be read, so the page gets no picture.
    home.file().execute("ALTER TABLE settings RENAME TO hidden", []).unwrap();
    browser.open(&served.url());
    let trouble = "document.getElementById('trouble').textContent.includes('cannot be read since')";
    browser.until("it says so", trouble);
    // The lanes are drawn before that.
    let lanes = "[...document.querySelectorAll('.lane:not([hidden])')]";
    let words = "lane.querySelector('.count').textContent + lane.querySelector('.empty').hidden";
    let said = browser.value(&format!("{lanes}.map((lane) => {words})"));
    assert_eq!(said, serde_json::json!(vec!["true"; 5]));
    home.file().execute("ALTER TABLE hidden RENAME TO settings", []).unwrap();
    browser.until("one runs", &lane_has("running", 1));
    let empty = "document.querySelector('.lane[data-state=idle]').innerText.includes('none')";
    browser.until("and none is idle", empty);
}

#[test]
fn stories_open_by_mouse_and_by_keyboard() {
    let Some(mut browser) = Browser::start() else { return };
    let home = Home::with(&[]);
    home.warm_up(2);
    let ids = home.provision("18", 2).succeeded().ids();
    let served = Served::of(&home);
    opened(&mut browser, &served);
    browser.until("two run", &lane_has("running", 2));
    let body = "document.getElementById('story-body').textContent";
    let title = "document.getElementById('story-title').textContent";
    browser.value(&format!("document.querySelector('.card[data-id={}]').click()", ids[0]));
    browser.until("its story is told", &format!("{body}.includes('handed to run 18')"));
    assert_eq!(browser.value(title), format!("machine {}", ids[0]));
    assert_eq!(browser.value("location.hash"), format!("#{}", ids[0]));
    browser.press("Escape");
    browser.until("it is closed", "!document.getElementById('story').open");

    browser.value(&format!("{}[0].focus()", cards("running")));
    browser.press("ArrowDown");
    let second = browser.value("document.activeElement.dataset.id");
    assert!(ids.iter().any(|id| *id == second), "{second}");
    browser.press("Enter");
    browser.until("its story is told", &format!("{body}.includes('handed to run 18')"));
    assert_eq!(browser.value(title), format!("machine {}", second.as_str().unwrap()));
    browser.press("Escape");
    browser.until("it is closed", "!document.getElementById('story').open");
    let focused = browser.value("document.activeElement.dataset.id");
    assert_eq!(focused, second, "the focus returns to the card");

    // An address names a story, here that of the run, with its waiting times.
    browser.open(&format!("{}#18", served.url()));
    browser.until("the run's story is told", &format!("{title} === 'run 18'"));
    browser.until("with its times", &format!("{body}.includes('How long it took')"));
    // What a story names opens the story of that: a machine of the run, and the run again.
    let follow = |id: &str| {
        format!(
            "[...document.querySelectorAll('#story-body .link')]
             .find((it) => it.title === '{id}').click()"
        )
    };
    browser.value(&follow(&ids[0]));
    browser.until("its machine's", &format!("{title} === 'machine {}'", ids[0]));
    browser.until("is told", &format!("{body}.includes('of run 18')"));
    browser.value(&follow("18"));
    browser.until("the run's again", &format!("{title} === 'run 18'"));
    browser.value("document.getElementById('story-close').click()");
    browser.open(&format!("{}#nothing", served.url()));
    browser.until("an unknown one has none", &format!("{body}.includes('There is no story')"));
    // An address that cannot be read names none, and the page works all the same.
    browser.open("about:blank");
    browser.open(&format!("{}#%zz", served.url()));
    browser.until("the page is live", LIVE);
    assert_eq!(browser.value("document.getElementById('story').open"), false);
}

#[test]
fn doctor_examines_and_an_account_is_one_click() {
    let Some(mut browser) = Browser::start() else { return };
    let home = Home::with(&["--heartbeat-period-sec=1", "--retention-min=1500"]);
    let machine = home.provision("19", 1).succeeded().ids().concat();
    let served = Served::of(&home);
    opened(&mut browser, &served);
    let says = "document.getElementById('doctor-says').textContent";
    browser.until("nothing is found", &format!("{says}.startsWith('nothing found at ')"));
    signal(home.agents()[&machine], Signal::KILL);
    // Nothing is pressed: what is wrong has changed.
    let found = "document.getElementById('doctor').textContent";
    browser.until("the dead machine is found", &format!("{found}.includes('machines-gone')"));
    let named = format!(
        "[...document.querySelectorAll('#doctor .link')].some((it) => it.title === '{machine}')"
    );
    assert_eq!(browser.value(&named), true);
    home.ondeck(&["terminate", &machine, "--force", "--yes"]).succeeded();
    home.refresh(&[]);
    let pressed = "document.getElementById('examine').disabled \
                   || document.getElementById('examine').click()";
    let fine = format!("{says}.startsWith('nothing found at ') || ({pressed}, false)");
    browser.until("nothing is found any more", &fine);

    browser.value("document.getElementById('reckon').click()");
    let paid = "document.getElementById('money-says').textContent";
    browser.until("the amount is told", &format!("/^~?<?\\$.* of 1 machine$/.test({paid})"));
    let account = browser.value("document.getElementById('money').textContent");
    let account = account.as_str().unwrap();
    for words in ["large", "By run", "GitHub-hosted runners: ", "By list prices in us-east-1 of "] {
        assert!(account.contains(words), "{words}: {account}");
    }
    browser.value("document.querySelector('#money .link').click()");
    let title = "document.getElementById('story-title').textContent";
    browser.until("the story of the run is told", &format!("{title} === 'run 19'"));
    assert_sound(&mut browser);
}

#[test]
fn what_is_left_of_the_cap_is_shown_without_a_click() {
    let Some(mut browser) = Browser::start() else { return };
    away_from_midnight();
    let home = Home::with(&[]);
    let served = Served::of(&home);
    opened(&mut browser, &served);
    home.provision("20", 1).succeeded();
    browser.until("one runs", &lane_has("running", 1));
    assert_eq!(browser.value("document.getElementById('cap').hidden"), true, "there is no cap");
    let limits = ["--max-machine-age-min=30", "--max-spend-per-day=0.25"];
    let used = home.refresh(&limits)["spend"].clone();
    let text = "document.getElementById('cap').textContent";
    let day = used["day"].as_str().unwrap();
    browser.until("it is shown", &format!("{text}.includes('Cap: $0.2500 for {day} (UTC)')"));
    let reserved = format!("${:.4} reserved", used["reservedUsd"].as_f64().unwrap());
    assert!(browser.value(text).as_str().unwrap().contains(&reserved), "{reserved}: {used}");
    let widths = "[...document.querySelectorAll('#cap .shares span')].map((it) => it.getBoundingClientRect().width)";
    let widths = browser.value(widths);
    let share = |part: usize| {
        let all: f64 = widths.as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).sum();
        widths[part].as_f64().unwrap() / all
    };
    let expected = used["reservedUsd"].as_f64().unwrap() / 0.25;
    assert!((share(1) - expected).abs() < 0.02, "{widths}: {used}");
    let near = format!("{text}.includes('nearly used up')");
    assert_eq!(browser.value(&near), false, "{used}");
    let little = used["reservedUsd"].as_f64().unwrap() * 1.15;
    home.refresh(&[&format!("--max-spend-per-day={little}")]);
    browser.until("it is nearly used up", &near);
    home.refresh(&["--reset=max-spend-per-day,max-machine-age-min"]);
    browser.until("it is gone", "document.getElementById('cap').hidden");
    assert_sound(&mut browser);
}

#[test]
fn filters_leave_what_matches() {
    let Some(mut browser) = Browser::start() else { return };
    let home = Home::with(&[]);
    let served = Served::of(&home);
    opened(&mut browser, &served);
    home.provision("21", 2).succeeded();
    // As long as GitHub's: the ids of machines are random, and two digits may be in any of them.
    let run = "26301517422";
    home.ondeck(&["provision", "--run-id", run, "--resource-class=xlarge"]).succeeded();
    browser.until("three run", &lane_has("running", 3));
    browser.press("/");
    assert_eq!(browser.value("document.activeElement.id"), "filter");
    browser.types(run);
    browser.until("one matches", &lane_has("running", 1));
    let rows = "document.querySelectorAll('#changes .time').length";
    let others = format!(
        "[...document.querySelectorAll('#changes tr')].some((row) => !row.textContent.includes('{run}'))"
    );
    browser.until("its changes as well", &format!("{rows} > 0 && !{others}"));
    browser.press("Escape");
    browser.until("all match", &lane_has("running", 3));
    let choose = |id: &str, value: &str| {
        format!(
            "{{ const it = document.getElementById('{id}'); it.value = '{value}'; \
             it.dispatchEvent(new Event('change', {{ bubbles: true }})) }}"
        )
    };
    browser.value(&choose("class", "xlarge"));
    browser.until("one is of the class", &lane_has("running", 1));
    browser.value(&choose("class", ""));
    home.release("21").succeeded();
    browser.until("two are idle", &lane_has("idle", 2));
    browser.value(&choose("kind", "return"));
    let only = "[...document.querySelectorAll('#changes tr')].every((row) => row.textContent.includes('returned to the pool'))";
    browser.until("two were returned", &format!("{rows} === 2 && {only}"));
    browser.value(&choose("kind", "end"));
    browser.until("none was terminated", &format!("{rows} === 0"));
    assert_sound(&mut browser);
}

#[test]
fn the_page_goes_on_after_a_restart_of_the_program() {
    let Some(mut browser) = Browser::start() else { return };
    let home = Home::with(&[]);
    let served = Served::of(&home);
    opened(&mut browser, &served);
    home.provision("31", 1).succeeded();
    browser.until("one runs", &lane_has("running", 1));
    let address = served.address.clone();
    served.program.kill();
    browser.until("it says so", "document.getElementById('connection').dataset.kind === 'lost'");
    assert_eq!(browser.value(&lane_has("running", 1)), true, "what was shown stays");
    home.release("31").succeeded();
    let _served = Served::on(&home, &address, &[]);
    browser.until("the page is live", LIVE);
    browser.until("it shows what is so now", &lane_has("idle", 1));
    browser.until("and nothing older", &lane_has("running", 0));
}

/// Another page may have made the new program count changes before this one is connected again.
#[test]
fn changes_of_the_program_before_a_restart_are_not_shown_for_later_ones() {
    let Some(mut browser) = Browser::start() else { return };
    let home = Home::with(&[]);
    let served = Served::of(&home);
    opened(&mut browser, &served);
    let shown = browser.value(
        "import('/assets/changes.js').then(({ Changes }) => {
            const [body, kind] = [document.createElement('tbody'), { value: '' }];
            const changes = new Changes(body, kind, () => {});
            const of = (id, at) => ({ number: 1, at, id, run: '', class: 'large', kind: 'state', from: '', to: 'idle' });
            return [of('i-1', 1000), of('i-2', 1000), of('i-2', 2000)].map((change) => {
                changes.draw({ changes: [change], class: '', filter: '' });
                return body.textContent;
            });
        })",
    );
    let shown: Vec<&str> =
        shown.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let [first, second, third] = &shown[..] else { panic!("{shown:?}") };
    assert!(first.contains("i-1") && second.contains("i-2"), "{shown:?}");
    assert_ne!(second, third, "each at its own time");
    assert_sound(&mut browser);
}

/// What it costs the program is measured by `cargo xtask bench dashboard`.
#[test]
fn the_page_stays_live_while_five_thousand_machines_change() {
    const CHANGED: usize = 500;
    let Some(mut browser) = Browser::start() else { return };
    let home = Home::with(&[]);
    crowd(&home, 5_000);
    let served = Served::of(&home);
    opened(&mut browser, &served);
    let count = |state: &str| {
        let shown = format!("document.querySelector('.lane[data-state={state}] .count')");
        format!("Number({shown}.textContent.replace(',', ''))")
    };
    let (idle, claimed) = (count("idle"), count("claimed"));
    browser.until("all are shown", &format!("{idle} === 1249 && {claimed} === 1249"));
    let cards = "[...document.querySelectorAll('.lane')].every((lane) => lane.querySelectorAll('.card').length <= 40)";
    assert_eq!(browser.value(cards), true, "a lane shows the first ones only");
    browser.value(
        "{ const place = document.getElementById('connection'); window.kinds = []; \
         new MutationObserver(() => window.kinds.push(place.dataset.kind)) \
         .observe(place, { attributes: true }) }",
    );
    let sql = "UPDATE instances SET state = 'claimed', run = '7', updated_at = ?1 WHERE id = \
               (SELECT id FROM instances WHERE state = 'idle' ORDER BY id LIMIT 1)";
    let file = home.file();
    // One after the other, while the page's program reads the pool.
    for _ in 0..CHANGED {
        let now = Timestamp::try_from(SystemTime::now()).unwrap().to_string();
        assert_eq!(file.execute(sql, [now]), Ok(1));
    }
    let moved = format!("{idle} === {} && {claimed} === {}", 1_249 - CHANGED, 1_249 + CHANGED);
    browser.until("each has moved", &moved);
    let kinds = browser.value("[...new Set(window.kinds)].filter((kind) => kind !== 'live')");
    assert_eq!(kinds, Value::Array(Vec::new()), "it was live all the time");
    assert_sound(&mut browser);
}

#[test]
fn it_is_accessible_on_screens_of_all_sizes() {
    let Some(mut browser) = Browser::start() else { return };
    let home = Home::with(&["--max-machine-age-min=30", "--max-spend-per-day=2"]);
    home.provision("41", 2).succeeded();
    home.release("41").succeeded();
    crowd(&home, 60);
    let served = Served::of(&home);
    opened(&mut browser, &served);
    browser.until("machines are shown", &format!("{}.length > 10", cards("running")));
    home.provision("42", 2).succeeded();
    browser
        .until("the changes are listed", "document.querySelectorAll('#changes .time').length > 1");
    browser.until(
        "doctor has found something",
        "document.querySelector('#doctor .severity') !== null",
    );
    browser.value("document.getElementById('reckon').click()");
    browser.until("the account is there", "document.querySelector('#money .account') !== null");
    let axe = fs::read_to_string(axe()).unwrap();
    for scheme in SCHEMES {
        for (name, width, height) in SIZES {
            browser.look(Look { width, height, scheme });
            browser.until("it is drawn", "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true))))");
            let fits = "document.scrollingElement.scrollWidth <= innerWidth";
            assert_eq!(browser.value(fits), true, "{name}, {scheme}: wider than the screen");
            let picture = pictures().join(format!("{name}-{scheme}.png"));
            browser.whole_picture(&picture);
            say(&picture.display().to_string());
            assert_accessible(&mut browser, &axe, &format!("{name}, {scheme}"));
            browser.value(&format!("{}[0].click()", cards("running")));
            let told = "document.querySelector('#story .timeline') !== null";
            browser.until("a story is told", told);
            browser.picture(&pictures().join(format!("{name}-{scheme}-story.png")));
            assert_accessible(&mut browser, &axe, &format!("{name}, {scheme}, story"));
            // The first run in the list of changes is 42, whose story has waiting times.
            browser.press("Escape");
            browser.value("[...document.querySelectorAll('#changes .link')].find((it) => it.title === '42').click()");
            browser.until(
                "a run's story is told",
                "document.querySelector('#story .ledger') !== null",
            );
            browser.picture(&pictures().join(format!("{name}-{scheme}-run.png")));
            assert_accessible(&mut browser, &axe, &format!("{name}, {scheme}, run"));
            browser.press("Escape");
        }
    }
    for (id, word) in MARKED {
        let marks = format!("document.querySelector('.card[data-id={id}] .marks').textContent");
        browser.until("it is marked in words", &format!("{marks}.includes('{word}')"));
    }
    browser.look(DESK);
    assert_sound(&mut browser);
}

/// Axe finds nothing wrong.
#[track_caller]
fn assert_accessible(browser: &mut Browser, axe: &str, what: &str) {
    if browser.value("typeof axe") == "undefined" {
        browser.value(&format!("{axe}; 0"));
    }
    let run = "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => \
               violations.map(({ id, help, nodes }) => ({ id, help, at: nodes.map((it) => it.html) })))";
    let violations = browser.value(run);
    assert_eq!(violations, Value::Array(Vec::new()), "{what}: {violations:#}");
}
