//! What may have been meant by a word that is not known.

/// The known word that is most like this one; `None` if none is alike.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// How alike two words must be, of 1 for equal ones. Clap uses 0.7.
    const ALIKE: f64 = 0.75;
    let scored = known.map(|name| (strsim::normalized_damerau_levenshtein(word, name), name));
    let alike = scored.filter(|(score, _)| *score >= ALIKE);
    alike.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_is_recognised_and_a_foreign_one_is_not() {
        let known = || ["ami", "subnet-ids", "security-group-ids", "idle-time-sec"].into_iter();
        for (word, meant) in [
            ("subnet-id", Some("subnet-ids")),
            ("subnet_ids", Some("subnet-ids")),
            ("idle-time", None),
            ("idle-tmie-sec", Some("idle-time-sec")),
            ("amii", Some("ami")),
            ("zone", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known()), meant, "{word}");
        }
    }
}
