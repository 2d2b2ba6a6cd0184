//! Any settings that are valid by themselves survive the way through a file, and a file that is not
//! valid is refused with words that a person can use.

use ondeck_core::inputs::{FileKey, Input};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

fn class() -> impl Strategy<Value = String> {
    // A class of the name `pool` has no ceiling of its own in the file.
    "[a-z0-9_][a-z0-9_.-]{0,8}".prop_filter("taken", |name| name != "pool")
}

fn minimum() -> impl Strategy<Value = String> {
    let window = select(vec!["", "Mon-Fri 08:00-18:00 Europe/Berlin ", "Mon,Sat 00:00-24:00 UTC "]);
    let usage = select(vec!["", "/spot"]);
    let types = select(vec!["", "/c7i.*", "/c*,m7i.large"]);
    (window, class(), usage, types, 0_u32..1000).prop_map(|(window, class, usage, types, count)| {
        format!("{window}{class}{usage}{types}={count}")
    })
}

/// A text that the setting's row accepts, in the form in which it is stored from a file.
fn text(row: &'static Input, form: FileForm) -> BoxedStrategy<String> {
    let any = match form {
        FileForm::Number => {
            let number = prop_oneof![(1_u32..2_000_000).prop_map(f64::from), 0.001_f64..1000.0];
            number.prop_map(|number| number.to_string()).boxed()
        }
        FileForm::Whole => (0_u32..120).prop_map(|number| number.to_string()).boxed(),
        FileForm::Flag => any::<bool>().prop_map(|flag| flag.to_string()).boxed(),
        FileForm::List(separator) => {
            let words = prop::collection::vec("/?[a-z0-9.-]{1,9}", 1..4);
            words.prop_map(move |words| words.join(separator)).boxed()
        }
        FileForm::Classes => {
            let sizes = prop::collection::btree_map(class(), (1_u32..999, 1_u32..u32::MAX), 1..4);
            sizes
                .prop_map(|sizes| {
                    let sizes = sizes.into_iter();
                    let all: BTreeMap<_, _> = sizes
                        .map(|(name, (cpu, mem))| {
                            (name, serde_json::json!({ "cpu": cpu, "mem": mem }))
                        })
                        .collect();
                    serde_json::json!(all).to_string()
                })
                .boxed()
        }
        FileForm::MinIdle => {
            prop::collection::vec(minimum(), 1..4).prop_map(|minimums| minimums.join("; ")).boxed()
        }
        FileForm::MaxMachines => {
            let of_classes = prop::collection::btree_map(class(), any::<u32>(), 0..3);
            (any::<u32>(), of_classes)
                .prop_map(|(pool, of_classes)| {
                    let classes =
                        of_classes.iter().map(|(name, number)| format!(" {name}={number}"));
                    format!("{pool}{}", classes.collect::<String>())
                })
                .boxed()
        }
        FileForm::Text => match row.value {
            InputValue::Choice(_, words) => select(words).prop_map(str::to_owned).boxed(),
            _ => prop_oneof![
                any::<String>(),
                "[a-z'\"\\\\\n\t\r\u{7f}]{1,30}",
                Just("always".to_owned())
            ]
            .boxed(),
        },
    };
    any.prop_filter("refused by its row", move |text| !text.is_empty() && (row.check)(text).is_ok())
        .boxed()
}

fn stored() -> impl Strategy<Value = BTreeMap<String, String>> {
    // Rows whose texts have a grammar that no random text hits have a test of their own.
    let has_grammar = |row: &Input| {
        [
            "rescue",
            "on-interruption",
            "runner-label",
            "reuse",
            "machine-logs",
            "local-registration-ms",
            "local-catalogue",
        ]
        .contains(&row.name)
    };
    let all: Vec<_> = settings().filter(|(row, _)| !has_grammar(row)).collect();
    let count = all.len();
    subsequence(all, 0..=count).prop_flat_map(|chosen| {
        let one = |(row, place): &(&'static Input, FileKey)| {
            (Just(row.name.to_owned()), text(row, place.form))
        };
        chosen.iter().map(one).collect::<Vec<_>>().prop_map(|pairs| pairs.into_iter().collect())
    })
}

/// The example with some of its parts removed, repeated or replaced.
fn damaged() -> impl Strategy<Value = String> {
    let marks = vec![
        "[", "]", "{", "}", "\"", "\"\"\"", "'''", "=", "\n", ",", ".", "-1", "1e400", "#", "",
    ];
    let insert =
        prop_oneof![any::<char>().prop_map(String::from), select(marks).prop_map(str::to_owned),];
    let damage = (any::<prop::sample::Index>(), 0_usize..40, any::<bool>(), insert);
    prop::collection::vec(damage, 1..6).prop_map(|damages| {
        let mut text: Vec<char> = EXAMPLE.chars().collect();
        for (place, length, repeats, insert) in damages {
            let start = place.index(text.len() + 1);
            let end = (start + length).min(text.len());
            let removed: Vec<char> = text.drain(start..end).collect();
            let again = if repeats { [removed.clone(), removed].concat() } else { Vec::new() };
            text.splice(start..start, insert.chars().chain(again));
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn each_problem_of_a_damaged_file_has_a_place_and_readable_words(text in damaged()) {
        let Err(problems) = read(&text) else { return Ok(()) };
        prop_assert!(!problems.is_empty());
        for problem in problems {
            let line = text.split('\n').nth(problem.line - 1);
            let columns = line.map(|line| line.chars().count() + 1);
            prop_assert!(columns >= Some(problem.column), "{:?}", problem);
            for words in [&problem.message, &problem.hint] {
                prop_assert!(!words.contains(char::is_control), "{:?}", words);
                prop_assert!(words.chars().count() < 3_000, "{:?}", words);
            }
            prop_assert!(problem.excerpt.lines().count() <= 2, "{:?}", problem.excerpt);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn settings_come_back_from_a_rendered_file(stored in stored()) {
        let file = render::render(&BTreeMap::new(), &stored);
        let source = Source { path: "ondeck.toml".to_owned(), text: file.clone() };
        let (document, problems) = document::read(&source);
        prop_assert_eq!(problems, vec![], "{}", file);
        prop_assert_eq!(together::texts(&document.base), stored, "{}", file);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z\\[\\]{}=\"'.,0-9\\-# \n]{0,80}") {
        drop(read(&text));
    }
}
