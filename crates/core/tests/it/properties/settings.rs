//! The operator's choices, as people type them and as the store keeps them.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::inputs::times::{TIMES, TimeSpec, Unit};
use ondeck_core::model::requirements::ClassSize;
use ondeck_core::model::settings::{Classes, MinIdle, Settings};
use ondeck_core::model::timestamp::Timestamp;
use proptest::prelude::*;

use super::strategies::{assert_readable, class, config, corrupted, json, ms, nearly, text};

/// The settings that are not times and that not every text is one of.
const PICKY: [&str; 4] = ["resource-class-config", "min-idle", "max-machines", "rescue"];

fn row() -> impl Strategy<Value = &'static TimeSpec> {
    (0..TIMES.len()).prop_map(|n| &TIMES[n])
}

fn sizes() -> impl Strategy<Value = BTreeMap<String, (u32, u32)>> {
    let size = (1..=u32::MAX, 1..=u32::MAX);
    prop::collection::btree_map(class().prop_map(|class| class.to_string()), size, 1..6)
}

fn classes_json(sizes: &BTreeMap<String, (u32, u32)>) -> String {
    let entry = |(name, (cpu, mem)): (&String, &(u32, u32))| {
        (name.clone(), serde_json::json!({ "cpu": cpu, "mem": mem }))
    };
    serde_json::Value::Object(sizes.iter().map(entry).collect()).to_string()
}

fn one(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_time_survives_being_written(millis in 0_u64..=2_592_000_000) {
        for row in TIMES.iter().filter(|row| millis > 0 || row.may_be_zero) {
            prop_assert_eq!(row.parse(&row.format(ms(millis))), Ok(ms(millis)), "{}", row.input);
        }
    }

    #[test]
    fn a_time_is_what_its_unit_makes_of_it(row in row(), whole in 1_u64..43_200, sign in "[ +]") {
        let unit = match row.unit { Unit::Seconds => 1, Unit::Minutes => 60 };
        let text = format!("{}{whole}\n", sign.trim());
        prop_assert_eq!(row.parse(&text), Ok(Duration::from_secs(whole * unit)));
    }

    #[test]
    fn any_text_is_a_time_or_is_refused_by_its_value(row in row(), text in text()) {
        match row.parse(&text) {
            Ok(span) => {
                prop_assert!(span <= Duration::from_secs(30 * 24 * 3600));
                prop_assert!(row.may_be_zero || !span.is_zero());
                prop_assert_eq!(row.parse(&row.format(span)), Ok(span), "{}", row.input);
            }
            Err(problem) => {
                assert_readable(&problem);
                let visible: String = text.trim().chars().take_while(char::is_ascii_alphanumeric)
                    .take(20).collect();
                prop_assert!(problem.contains(&visible), "{problem}");
            }
        }
    }

    #[test]
    fn a_setting_that_is_refused_is_named(
        name in prop_oneof![
            row().prop_map(|row| row.input), proptest::sample::select(&PICKY[..])
        ],
        value in text(),
    ) {
        if let Err(error) = Settings::from_map(&one(name, &value)) {
            prop_assert_eq!(error.name.as_str(), name);
            prop_assert!(error.to_string().starts_with(name), "{}", error);
            assert_readable(&error.to_string());
        }
    }

    /// What is not ours is kept for the backend to the letter, and nothing else is.
    #[test]
    fn settings_are_read_whole(
        spans in prop::collection::vec(1_u64..2_592_000_000, TIMES.len()), script in text(),
        sizes in sizes(), others in prop::collection::btree_map("x-[a-z]{1,8}", text(), 0..5),
    ) {
        let mut map = others.clone();
        for (row, millis) in TIMES.iter().zip(&spans) {
            map.insert(row.input.to_owned(), row.format(ms(*millis)));
        }
        map.insert("pre-runner-script".to_owned(), script.clone());
        map.insert("resource-class-config".to_owned(), classes_json(&sizes));
        let settings = Settings::from_map(&map).unwrap();
        for (row, millis) in TIMES.iter().zip(&spans) {
            prop_assert_eq!(settings.times.get(row.input), Some(ms(*millis)), "{}", row.input);
        }
        prop_assert_eq!(settings.pre_runner_script, script);
        prop_assert_eq!(settings.backend, others);
        let read: BTreeMap<String, (u32, u32)> = settings.classes.names().map(|class| {
            let ClassSize { cpu, mem } = settings.classes.get(class).unwrap();
            (class.to_string(), (cpu, mem))
        }).collect();
        prop_assert_eq!(read, sizes);
    }

    #[test]
    fn classes_are_read_or_refused_in_a_line(
        text in prop_oneof![
            text(), json().prop_map(|value| value.to_string()),
            corrupted(sizes().prop_map(|sizes| classes_json(&sizes))),
        ]
    ) {
        match Classes::from_json(&text) {
            Ok(classes) => {
                let sound = |size: ClassSize| size.cpu > 0 && size.mem > 0;
                prop_assert!(classes.names().all(|name| classes.get(name).is_some_and(sound)));
                prop_assert!(!classes.listing().is_empty());
            }
            Err(problem) => assert_readable(&problem),
        }
    }

    #[test]
    fn a_class_without_a_size_is_named(
        sizes in sizes(), at in any::<prop::sample::Index>(), cpu in any::<bool>()
    ) {
        let mut sizes = sizes;
        let name = sizes.keys().nth(at.index(sizes.len())).unwrap().clone();
        let size = sizes.get_mut(&name).unwrap();
        *(if cpu { &mut size.0 } else { &mut size.1 }) = 0;
        let problem = Classes::from_json(&classes_json(&sizes)).unwrap_err();
        prop_assert!(problem.ends_with(&format!(": {name}")), "{}", problem);
    }

    #[test]
    fn a_minimum_survives_being_written(
        minimum in prop::collection::btree_map(class(), 0_u32..=1000, 0..6),
        separator in "[ ,\n]{1,3}",
    ) {
        let words: Vec<String> = minimum.iter().map(|(class, n)| format!("{class}={n}")).collect();
        let read: MinIdle = words.join(&separator).parse().unwrap();
        prop_assert!(read.iter().eq(minimum.iter().map(|(class, count)| (class, *count))));
    }

    #[test]
    fn a_minimum_with_a_window_survives_being_written(
        days in prop::sample::subsequence(vec!["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], 1..7),
        (from, to) in (0_u32..1440, 0_u32..=1440).prop_filter("a span", |(from, to)| from != to),
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
        class in class(), spot in any::<bool>(), typed in any::<bool>(), count in 0_u32..=1000,
        at in 0_u64..4_000_000_000_000,
    ) {
        let time = |minute: u32| format!("{:02}:{:02}", minute / 60, minute % 60);
        let kind = format!("{}{}", if spot { "/spot" } else { "" }, if typed { "/c7i.*,m7i.*" } else { "" });
        let span = format!("{}-{}", time(from), time(to));
        let text = format!("{} {span} {zone} {class}{kind}={count}", days.join(","));
        let read: MinIdle = text.parse().unwrap();
        prop_assert_eq!(read.to_string().parse::<MinIdle>().unwrap(), read.clone());
        // The window and the rest of the week never hold at the same time, and one always does.
        let rest: Vec<&str> = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
            .into_iter().filter(|day| !days.contains(day)).collect();
        let now = Timestamp::from_millis(at);
        if from < to {
            // Both stay within a day, so the two parts of it are apart.
            let before = format!("{} 00:00-{} {zone} x=1", days.join(","), time(from));
            let after = format!("{} {}-24:00 {zone} x=1", days.join(","), time(to));
            let parts = [(from > 0).then_some(before), (to < 1440).then_some(after),
                (!rest.is_empty()).then(|| format!("{} {zone} x=1", rest.join(",")))];
            let others: Vec<String> = parts.into_iter().flatten().collect();
            let outside: MinIdle = others.join("; ").parse().unwrap();
            prop_assert_ne!(read.at(now).is_empty(), outside.at(now).is_empty(), "{} at {}", text, now);
        }
    }

    #[test]
    fn a_minimum_that_is_none_is_refused_by_its_word(
        words in prop::collection::vec(nearly(&["large=2", "large", "large=-1", "=1", "a=1001"]), 1..4)
    ) {
        let text = words.join(" ");
        match text.parse::<MinIdle>() {
            Ok(minimum) => prop_assert!(minimum.iter().all(|(_, count)| count <= 1000)),
            Err(problem) => assert_readable(&problem),
        }
    }
}
