//! Which machines will do.

use ondeck_core::model::requirements::{
    ClassSize, InvalidPatterns, Mismatch, Requirements, TypePatterns,
};
use proptest::prelude::*;

use super::strategies::{assert_readable, class, config, patterns, spec, text, usage};

/// The plainest matcher that there is.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], text) => text.is_empty(),
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|n| matches(rest, &text[n..])),
        ([first, rest @ ..], [letter, others @ ..]) => first == letter && matches(rest, others),
        (_, []) => false,
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn patterns_match_as_the_plainest_matcher_does(
        pattern in "[ab.*]{1,8}", text in "[ab.]{0,10}"
    ) {
        let patterns: TypePatterns = pattern.parse().expect("only allowed letters");
        prop_assert_eq!(patterns.admit(&text), matches(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn of_several_patterns_the_first_that_matches_counts(
        list in prop::collection::vec("[ab*]{1,5}", 1..5), text in "[ab]{0,6}"
    ) {
        let patterns: TypePatterns = list.join(",").parse().unwrap();
        let first = list.iter().find(|pattern| matches(pattern.as_bytes(), text.as_bytes()));
        prop_assert_eq!(patterns.covering(&text), first.map(String::as_str));
    }

    #[test]
    fn patterns_survive_being_written(patterns in patterns()) {
        prop_assert_eq!(patterns.to_string().parse(), Ok(patterns.clone()));
        let text = serde_json::to_string(&patterns).unwrap();
        prop_assert_eq!(serde_json::from_str::<TypePatterns>(&text).unwrap(), patterns);
    }

    #[test]
    fn any_text_is_patterns_or_is_refused_by_its_word(text in text(), kind in text()) {
        match text.parse::<TypePatterns>() {
            Ok(patterns) => {
                prop_assert!(patterns.iter().all(|word| text.contains(word)));
                patterns.admit(&kind);
            }
            Err(error) => {
                assert_readable(&error.to_string());
                if let InvalidPatterns::Malformed(word) = error {
                    prop_assert!(text.contains(&word) && !word.contains([' ', ',', '\n', '\t']));
                }
            }
        }
    }

    #[test]
    fn a_machine_fits_when_all_of_it_does(
        class in class(), other in class(), size in (0_u32..4, 0_u32..4), usage in usage(),
        types in "[ab*]{1,3}", spec in spec(), kind in "[ab]{0,3}", own in (0_u32..4, 0_u32..4),
        same in any::<bool>(),
    ) {
        let mut spec = spec;
        spec.resource_class = if same { class.clone() } else { other };
        (spec.cpu, spec.mem, spec.instance_type) = (own.0, own.1, kind);
        let size = ClassSize { cpu: size.0, mem: size.1 };
        let requirements = Requirements { class, size, usage, types: types.parse().unwrap() };
        let fits = [
            (Mismatch::Class, requirements.class == spec.resource_class),
            (Mismatch::Usage, requirements.usage == spec.usage_class),
            (Mismatch::Type, matches(types.as_bytes(), spec.instance_type.as_bytes())),
            (Mismatch::Cpu, spec.cpu >= size.cpu),
            (Mismatch::Mem, spec.mem >= size.mem),
        ];
        let first = fits.iter().find(|(_, fits)| !fits).map(|(mismatch, _)| *mismatch);
        prop_assert_eq!(requirements.mismatch(&spec), first);
    }
}
