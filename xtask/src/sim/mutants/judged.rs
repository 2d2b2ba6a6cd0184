//! The result of one mutant, as a line of a file and as a row of a table.

/// What became of one mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    pub(super) seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The simulation found it, by this.
    Found(String),
    /// It has survived this many rounds.
    Survived(usize),
    /// It does not compile.
    NotBuilt,
}

impl Judged {
    /// How many rounds it has survived; `None` if there is nothing more to judge.
    pub(super) fn rounds(&self) -> Option<usize> {
        match self.verdict {
            Verdict::Survived(rounds) => Some(rounds),
            Verdict::Found(_) | Verdict::NotBuilt => None,
        }
    }

    /// The result on one line, which [`Judged::parse`] reads.
    pub(super) fn line(&self) -> String {
        let (word, how) = match &self.verdict {
            Verdict::Found(how) => ("found", how.clone()),
            Verdict::Survived(rounds) => ("survived", rounds.to_string()),
            Verdict::NotBuilt => ("not built", String::new()),
        };
        let how = how.replace(['\t', '\n'], " ");
        format!("{word}\t{}\t{}\t{how}", self.seconds, self.name)
    }

    /// Reads a line. Returns `None` if it is malformed.
    pub(super) fn parse(line: &str) -> Option<Judged> {
        let mut fields = line.splitn(4, '\t');
        let word = fields.next()?;
        let seconds = fields.next()?.parse().ok()?;
        let name = fields.next()?.to_owned();
        let how = fields.next()?.to_owned();
        let verdict = match word {
            "found" => Verdict::Found(how),
            "survived" => Verdict::Survived(how.parse().ok()?),
            "not built" => Verdict::NotBuilt,
            _ => return None,
        };
        Some(Judged { name, verdict, seconds })
    }
}

/// The table of all results, and the score of those that compile.
pub(super) fn summary(results: &[Judged]) -> String {
    let mut text = String::from("| mutant | found by | seconds |\n| --- | --- | --- |\n");
    let count = |of: fn(&Verdict) -> bool| results.iter().filter(|one| of(&one.verdict)).count();
    for Judged { name, verdict, seconds } in results {
        let how = match verdict {
            Verdict::Found(how) => how.replace('|', "/"),
            Verdict::Survived(_) => "**survived**".to_owned(),
            Verdict::NotBuilt => "does not compile".to_owned(),
        };
        text += &format!("| {} | {how} | {seconds} |\n", name.replace('|', "/"));
    }
    let found = count(|verdict| matches!(verdict, Verdict::Found(_)));
    let survived = count(|verdict| matches!(verdict, Verdict::Survived(_)));
    let not_built = count(|verdict| *verdict == Verdict::NotBuilt);
    let percent = (100 * found).checked_div(found + survived).unwrap_or(0);
    text += &format!(
        "\n{} mutants: {not_built} do not compile, {found} found, {survived} survived: {percent} %\n",
        results.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_reads_back_and_counts() {
        let judged = |name: &str, verdict| Judged { name: name.to_owned(), verdict, seconds: 9 };
        let all = [
            judged("a.rs:1: replace && with ||", Verdict::Found("seed 7: one owner: x\ty".into())),
            judged("b.rs:2: delete !", Verdict::Survived(2)),
            judged("c.rs:3: replace f", Verdict::NotBuilt),
        ];
        for one in &all {
            let read = Judged::parse(&one.line()).unwrap();
            assert_eq!((&read.name, read.seconds), (&one.name, one.seconds));
            assert_eq!(read.rounds(), one.rounds());
        }
        assert_eq!(Judged::parse("found\tsoon\tx\ty"), None);
        let text = summary(&all);
        assert!(text.contains("| b.rs:2: delete ! | **survived** | 9 |"), "{text}");
        assert!(
            text.ends_with("3 mutants: 1 do not compile, 1 found, 1 survived: 50 %\n"),
            "{text}"
        );
    }
}
