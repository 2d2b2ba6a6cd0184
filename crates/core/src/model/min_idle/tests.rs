use std::time::Duration;

use super::*;

fn read(text: &str) -> MinIdle {
    text.parse().unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

/// The minimums at a moment, as they would be given.
fn at(text: &str, moment: &str) -> String {
    let minimums = read(text).at(Timestamp::parse(moment).unwrap());
    minimums.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_short_form_holds_always() {
    for text in
        ["large=2 xlarge=1", "large=2,xlarge=1", "large=2\nxlarge=1", " xlarge=1 ; large=2 "]
    {
        assert_eq!(at(text, "2026-11-15T03:00:00Z"), "large=2 xlarge=1", "{text:?}");
    }
    assert_eq!(read(""), MinIdle::default());
    assert_eq!(read(" ; \n,"), MinIdle::default());
}

#[test]
fn a_minimum_may_name_usage_class_and_patterns() {
    let one = |text: &str| read(text).at(Timestamp::from_millis(0)).remove(0);
    let spot = one("large/spot=4");
    assert_eq!((spot.usage, spot.types, spot.count), (UsageClass::Spot, None, 4));
    let typed = one("large/spot/c7i.*,m7i.*=4");
    assert_eq!(typed.types.unwrap().to_string(), "c7i.* m7i.*");
    let demand = one("large/c7i.*=4");
    assert_eq!((demand.usage, demand.types.is_some()), (UsageClass::OnDemand, true));
    assert_eq!(one("large/on-demand=1"), one("large=1"));
    let several = "large=1,xlarge/spot/c7i.*,m7i.*=2,2xlarge=3";
    assert_eq!(read(several).iter().map(|(_, count)| count).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_window_holds_on_its_days_in_its_zone() {
    let text = "Mon-Fri 08:00-18:00 Europe/Berlin large=4; large=1";
    for (moment, expected) in [
        ("2026-11-16T06:59:59Z", "large=1"),
        ("2026-11-16T07:00:00Z", "large=4"),
        ("2026-11-16T16:59:59Z", "large=4"),
        ("2026-11-16T17:00:00Z", "large=1"),
        ("2026-11-14T12:00:00Z", "large=1"),
        // An hour earlier in summer.
        ("2026-07-13T05:59:59Z", "large=1"),
        ("2026-07-13T06:00:00Z", "large=4"),
        ("2026-07-13T16:00:00Z", "large=1"),
    ] {
        assert_eq!(at(text, moment), expected, "{moment}");
    }
}

#[test]
fn a_window_that_crosses_midnight_belongs_to_the_day_on_which_it_begins() {
    let text = "Fri 22:00-06:00 large=1";
    for (moment, holds) in [
        ("2026-11-13T05:59:00Z", false),
        ("2026-11-13T21:59:00Z", false),
        ("2026-11-13T22:00:00Z", true),
        ("2026-11-14T05:59:00Z", true),
        ("2026-11-14T06:00:00Z", false),
        ("2026-11-14T22:00:00Z", false),
    ] {
        assert_eq!(!at(text, moment).is_empty(), holds, "{moment}");
    }
    assert_eq!(at("Sun 22:00-06:00 large=1", "2026-11-16T01:00:00Z"), "large=1", "into Monday");
    for text in ["Sat 00:00-24:00 large=1", "Sat large=1"] {
        assert_eq!(at(text, "2026-11-14T23:59:59Z"), "large=1", "{text}");
        assert_eq!(at(text, "2026-11-15T00:00:00Z"), "", "{text}");
    }
    assert_eq!(at("20:00-24:00 large=1", "2026-11-15T20:00:00Z"), "large=1", "on every day");
}

/// In Berlin, 02:00 to 03:00 is skipped on 2027-03-28 and comes twice on 2027-10-31.
#[test]
fn days_on_which_the_clock_changes_have_23_and_25_hours() {
    let hours = |day: &str, from: &str| {
        let text = format!("{day} large=1");
        read(&text).machine_hours_a_week(Timestamp::parse(from).unwrap()).into_values().sum::<f64>()
    };
    let (spring, autumn, winter) =
        ("2027-03-26T00:00:00Z", "2027-10-29T00:00:00Z", "2027-01-01T00:00:00Z");
    for (day, from, expected) in [
        ("Sun 00:00-24:00 Europe/Berlin", winter, 24.0),
        ("Sun 00:00-24:00 Europe/Berlin", spring, 23.0),
        ("Sun 00:00-24:00 Europe/Berlin", autumn, 25.0),
        ("Sun 02:00-03:00 Europe/Berlin", spring, 0.0),
        ("Sun 02:00-03:00 Europe/Berlin", autumn, 2.0),
        ("Sat 22:00-06:00 Europe/Berlin", spring, 7.0),
        ("Sat 22:00-06:00 Europe/Berlin", autumn, 9.0),
    ] {
        assert_eq!(hours(day, from), expected, "{day} from {from}");
    }
}

#[test]
fn the_largest_count_holds_for_each_kind() {
    let text = "large=2; large/spot=3; Mon-Sun large=5; large=4; large/c7i.*=1";
    assert_eq!(at(text, "2026-11-15T03:00:00Z"), "large/spot=3 large=5 large/c7i.*=1");
}

#[test]
fn a_week_costs_what_its_windows_add_up_to() {
    let from = Timestamp::parse("2026-11-15T03:04:05Z").unwrap();
    for (text, expected) in [
        ("large=2", "large 336"),
        ("Mon-Fri 08:00-18:00 Europe/Berlin large=4", "large 200"),
        ("Mon-Fri 08:00-18:00 large=4; large=1", "large 318"),
        ("large=1 large/spot=1; Sat 10:30-11:00 xlarge=1", "large 336, xlarge 0.5"),
        ("large=0", ""),
        ("", ""),
    ] {
        let hours = read(text).machine_hours_a_week(from);
        let told: Vec<String> = hours.iter().map(|(class, n)| format!("{class} {n}")).collect();
        assert_eq!(told.join(", "), expected, "{text}");
    }
}

#[test]
fn windows_are_counted_to_the_minute() {
    let from = Timestamp::parse("2027-03-24T03:04:05Z").unwrap();
    for text in [
        "Mon-Fri 08:07-18:23 Europe/Berlin large=1",
        "08:10-08:30 large=2; Sun 22:00-06:05 Asia/Kathmandu large=3",
        "Mon 00:00-24:00 large=1; 01:00-02:00 Australia/Lord_Howe large=2",
    ] {
        let minimums = read(text);
        let minutes = (0..7 * 24 * 60).map(|minute| {
            let at = from + Duration::from_secs(60 * minute);
            minimums.at(at).iter().map(|minimum| minimum.count).sum::<u32>()
        });
        let expected = f64::from(minutes.sum::<u32>()) / 60.0;
        let found: f64 = minimums.machine_hours_a_week(from).into_values().sum();
        assert!((found - expected).abs() < 1e-9, "{text}: {found} {expected}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    for (text, written) in [
        ("large=2,xlarge=1", "large=2 xlarge=1"),
        (
            "mon-wed,FRI 8:00-18:00 europe/berlin large/on-demand=4",
            "Mon-Wed,Fri 08:00-18:00 Europe/Berlin large=4",
        ),
        ("Fri-Mon large/spot/c7i.*=1", "Mon,Fri-Sun 00:00-24:00 UTC large/spot/c7i.*=1"),
        ("22:00-06:00 large=1\nlarge=0", "Mon-Sun 22:00-06:00 UTC large=1; large=0"),
    ] {
        assert_eq!(read(text).to_string(), written);
        assert_eq!(read(written), read(text));
    }
}

#[test]
fn what_is_wrong_is_told() {
    for (text, problem) in [
        ("large", r#"is not of the form CLASS=COUNT: "large""#),
        ("Mon-Fri 08:00-18:00", r#"is not of the form CLASS=COUNT: "Mon-Fri 08:00-18:00""#),
        ("large=many", r#"has no count: "large=many""#),
        ("large=-1", r#"has no count: "large=-1""#),
        ("large=1001", r#"asks for more than 1000 machines: "large=1001""#),
        ("=1", "resource class is empty"),
        ("large,xlarge=1", "resource class may hold"),
        (
            "large/spto=1",
            r#"names neither spot, on-demand nor patterns of instance types: "large/spto=1""#,
        ),
        ("large/spot/=1", "names neither spot"),
        ("large/spot/c?.*=1", "has a malformed instance type pattern"),
        ("large/spot/c*/m*=1", "is not of the form CLASS=COUNT"),
        (
            "Mon-Fry 08:00-18:00 large=1",
            r#"begins neither with days (Mon-Fri), a time window (08:00-18:00) nor CLASS=COUNT: "Mon-Fry""#,
        ),
        ("Europe/Berlin large=1", "begins neither with days"),
        ("Mon 8-18 large=1", r#"names an unknown time zone: "8-18""#),
        ("Mon 08:00-25:00 large=1", r#"has no time window of the form HH:MM-HH:MM: "08:00-25:00""#),
        ("Mon 24:00-06:00 large=1", "has no time window of the form"),
        ("Mon 08:60-09:00 large=1", "has no time window of the form"),
        ("Mon 08:00 large=1", "has no time window of the form"),
        ("Mon 08:00-08:00 large=1", r#"has an empty time window: "08:00-08:00""#),
        (
            "Mon 08:00-18:00 Europe/Berlinn large=1",
            r#"names an unknown time zone: "Europe/Berlinn""#,
        ),
        ("Mon 08:00-18:00 UTC CET large=1", r#"is not of the form CLASS=COUNT: "CET""#),
        ("large=1 Mon", r#"is not of the form CLASS=COUNT: "Mon""#),
    ] {
        let found = text.parse::<MinIdle>().unwrap_err();
        assert!(found.starts_with(problem), "{text}: {found}");
    }
    let many = "large=1 ".repeat(101);
    assert_eq!(many.parse::<MinIdle>().unwrap_err(), "has more than 100 minimums: 101");
}
