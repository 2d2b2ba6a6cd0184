//! Many mutants in one build. Each mutated function contains its original body and a body for each of
//! its mutants, and a variable of the environment chooses the mutant that is active. To build each
//! mutant by itself takes longer than to judge it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use super::super::source_copy::SourceCopy;
use super::Mutant;
use crate::console::log;
use crate::error::TaskError;

/// The variable that chooses a mutant by its number.
pub(super) const VARIABLE: &str = "ONDECK_MUTANT";

const PROFILE: &str = "sim-mutants";
/// More rounds than it takes until no mutant is left that does not compile.
const ROUNDS: usize = 8;

/// What is appended to core, which all mutated code can reach.
const SWITCH: &str = r#"
#[doc(hidden)]
pub mod mutant_switch {
    static ACTIVE: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
        std::env::var("ONDECK_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    });
    pub fn active() -> u32 {
        *ACTIVE
    }
}
"#;
const CORE: &str = "crates/core/src/lib.rs";

/// Where a mutant is in its file, in lines and columns from 1 on, and what it puts there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) function: Range<Position>,
    pub(super) replaced: Range<Position>,
    pub(super) replacement: String,
}

/// A line and a column.
pub(super) type Position = (usize, usize);

/// A build of the simulation that contains mutants.
pub(super) struct Combined {
    pub(super) program: PathBuf,
    /// The numbers of the mutants that it contains, by name.
    pub(super) numbers: BTreeMap<String, u32>,
    /// The names of the mutants whose own bodies do not compile.
    pub(super) broken: BTreeSet<String>,
}

impl Combined {
    /// Builds the simulation with as many of the mutants as compile together. The others have to be
    /// built alone. Fails if the sources cannot be written or nothing can be built.
    pub(super) fn build(copy: &SourceCopy, mutants: &[Mutant]) -> Result<Combined, TaskError> {
        let numbered: Vec<(u32, &Mutant)> = (1..).zip(mutants).collect();
        let (mut left_out, mut broken) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..ROUNDS {
            let contained = write(copy, &numbered, &left_out)?;
            let checked = copy.build_quietly(&[
                "check",
                "--profile",
                PROFILE,
                "--package",
                "ondeck-sim",
                "--message-format=short",
            ]);
            let Err(output) = checked else {
                let args = ["build", "--profile", PROFILE, "--package", "ondeck-sim"];
                let built = copy.build_quietly(&args);
                built.map_err(|why| TaskError::new(why, "the mutants compile, but do not link"))?;
                let named = |(number, mutant): &(u32, &Mutant)| (mutant.name.clone(), *number);
                let within = numbered.iter().filter(|(number, _)| contained.contains(number));
                let numbers: BTreeMap<String, u32> = within.map(named).collect();
                let is_broken = |(number, _): &&(u32, &Mutant)| broken.contains(number);
                let broken: BTreeSet<String> =
                    numbered.iter().filter(is_broken).map(|it| it.1.name.clone()).collect();
                let (within, broken_ones) = (numbers.len(), broken.len());
                log(&format!("{within} mutants are in one build, {broken_ones} do not compile"));
                return Ok(Combined { program: copy.program(PROFILE), numbers, broken });
            };
            let to_blame = blamed(copy, &output)?;
            if to_blame.is_empty() {
                return Err(TaskError::new(output, "no mutant is the reason for these errors"));
            }
            for numbers in to_blame {
                broken.extend((numbers.len() == 1).then(|| numbers[0]));
                left_out.extend(numbers);
            }
        }
        Err(TaskError::new("the mutants do not compile together", "see their errors"))
    }
}

/// Writes the sources with the mutants. Returns the numbers of those that they contain.
fn write(
    copy: &SourceCopy,
    numbered: &[(u32, &Mutant)],
    left_out: &BTreeSet<u32>,
) -> Result<BTreeSet<u32>, TaskError> {
    let mut by_file: BTreeMap<&str, Vec<(u32, &Place)>> = BTreeMap::new();
    for (number, mutant) in numbered {
        if let Some(place) = &mutant.place {
            // A file whose mutants are all left out has to be written, too.
            let places = by_file.entry(&place.file).or_default();
            places.extend((!left_out.contains(number)).then_some((*number, place)));
        }
    }
    let mut contained = BTreeSet::new();
    for (file, places) in by_file {
        let text = copy.original(file)?;
        let switch = if file.starts_with("crates/core/") { "crate" } else { "ondeck_core" };
        let (combined, numbers) = combine(&text, switch, &places);
        contained.extend(numbers);
        copy.replace(file, &combined)?;
    }
    copy.replace(CORE, &(copy.original(CORE)? + SWITCH))?;
    Ok(contained)
}

/// Puts the mutants into the text of a file. Returns the numbers of those that it contains: not those
/// of constant functions, of functions whose type is hidden, of functions inside others, and of no
/// function.
fn combine(text: &str, switch: &str, places: &[(u32, &Place)]) -> (String, BTreeSet<u32>) {
    let mut functions: BTreeMap<(usize, usize), Vec<(u32, &Place)>> = BTreeMap::new();
    for (number, place) in places {
        let function = offset(text, place.function.start)..offset(text, place.function.end);
        functions.entry((function.start, function.end)).or_default().push((*number, place));
    }
    let (mut combined, mut numbers) = (text.to_owned(), BTreeSet::new());
    let mut before = usize::MAX;
    // From the end, so that what comes before keeps its place.
    for ((start, end), mutants) in functions.into_iter().rev() {
        let function = &text[start..end];
        let Some(body) = body_of(function).filter(|_| end <= before) else { continue };
        let head = &function[..body];
        let is_const = head.split_whitespace().any(|word| word == "const");
        // Each body would have a type of its own.
        let hides_type = head.rsplit_once("->").is_some_and(|(_, kind)| kind.contains("impl "));
        if is_const || hides_type {
            continue;
        }
        before = start;
        // Zero is the original.
        let (mut arms, mut all) = (String::new(), vec!["0".to_owned()]);
        for (number, place) in mutants {
            let at = offset(text, place.replaced.start) - start;
            let to = offset(text, place.replaced.end) - start;
            let mutated = format!("{}{}{}", &function[..at], place.replacement, &function[to..]);
            arms += &format!("/*BEGIN {number}*/\n{number} => {}\n/*END*/\n", &mutated[body..]);
            numbers.insert(number);
            all.push(number.to_string());
        }
        let all = all.join(" ");
        let (head, original) = function.split_at(body);
        let chosen = format!(
            "{head}{{ match {switch}::mutant_switch::active() {{\n\
             {arms}/*BEGIN {all}*/\n_ => {original}\n/*END*/\n}} }}"
        );
        combined.replace_range(start..end, &chosen);
    }
    (combined, numbers)
}

/// The byte at a line and column, both from 1 on. Columns count characters.
fn offset(text: &str, (line, column): Position) -> usize {
    let before: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let within = text[before..].char_indices().nth(column - 1).map_or(text.len() - before, |c| c.0);
    before + within
}

/// Where the body of a function begins: at the brace whose other half is the last one. Braces in
/// texts, characters and comments do not count. `None` if there is no body.
fn body_of(function: &str) -> Option<usize> {
    let mut open = Vec::new();
    let mut body = None;
    let mut at = 0;
    while let Some(next) = function[at..].chars().next() {
        let rest = &function[at..];
        at += match next {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if is_raw_text(function, at) => raw_text(rest),
            '"' => text(rest),
            '\'' => character(rest),
            '{' => {
                open.push(at);
                1
            }
            '}' => {
                body = open.pop();
                1
            }
            other => other.len_utf8(),
        };
    }
    body
}

/// Whether a text such as `r#"…"#` begins here, and not a name.
fn is_raw_text(function: &str, at: usize) -> bool {
    let is_name = function[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    !is_name && function[at + 1..].trim_start_matches('#').starts_with('"')
}

/// The length of the raw text that begins here.
fn raw_text(rest: &str) -> usize {
    let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
    let begin = 1 + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    rest[begin..].find(&end).map_or(rest.len(), |found| begin + found + end.len())
}

/// The length of the text that begins here.
fn text(rest: &str) -> usize {
    let mut escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |(at, _)| at + 1)
}

/// The length of the character that begins here; 1 if it is a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            rest[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(1, |it| it.0 + 3)
        }
        _ => chars.next().filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1),
    }
}

/// The mutants to blame for each of the compiler's errors. For an error in the original body, these
/// are zero and all mutants of the function.
fn blamed(copy: &SourceCopy, output: &str) -> Result<Vec<Vec<u32>>, TaskError> {
    let mut to_blame = Vec::new();
    for (file, line) in output.lines().filter_map(error_in) {
        to_blame.push(contained_at(&copy.present(file)?, line));
    }
    to_blame.retain(|numbers: &Vec<u32>| !numbers.is_empty());
    Ok(to_blame)
}

/// The mutants to whose bodies a line belongs.
fn contained_at(text: &str, line: usize) -> Vec<u32> {
    let before = text.lines().take(line).collect::<Vec<_>>().join("\n");
    let begun = before.rfind("/*BEGIN ").filter(|at| !before[*at..].contains("/*END*/"));
    let named = begun.and_then(|at| Some(before[at + 8..].split_once("*/")?.0));
    named.into_iter().flat_map(str::split_whitespace).flat_map(str::parse).collect()
}

/// The file and line of a line that reports an error.
fn error_in(line: &str) -> Option<(&str, usize)> {
    let mut fields = line.splitn(4, ':');
    let (file, line, _, message) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_error = message.trim_start().starts_with("error");
    (is_error && file.starts_with("crates/")).then_some((file, line.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
fn small(a: u32) -> bool {
    a < 3 // not {
}

impl Thing {
    async fn text<'a>(&'a self) -> &'a str {
        let brace = ('{', b'}', '\\'', \"a \\\" {\", r#\"}\"#);
        self.name(brace)
    }

    const fn number() -> u32 {
        7
    }

    fn all(&self) -> impl Iterator<Item = u32> {
        self.numbers()
    }
}
";

    fn place(function: Range<Position>, replaced: Range<Position>, replacement: &str) -> Place {
        let (file, replacement) = ("crates/core/src/x.rs".to_owned(), replacement.to_owned());
        Place { file, function, replaced, replacement }
    }

    #[test]
    fn a_function_contains_its_mutants() {
        let small = (1, 1)..(3, 2);
        let equal = place(small.clone(), (2, 7)..(2, 8), "==");
        let always = place(small, (2, 5)..(2, 10), "true");
        let other = place((6, 5)..(9, 6), (8, 9)..(8, 25), "\"\"");
        let constant = place((11, 5)..(13, 6), (12, 9)..(12, 10), "0");
        let hidden = place((15, 5)..(17, 6), (16, 9)..(16, 23), "empty()");
        let places = [(1, &equal), (2, &always), (3, &other), (4, &constant), (5, &hidden)];
        let (combined, numbers) = combine(SOURCE, "crate", &places);
        assert_eq!(numbers, BTreeSet::from([1, 2, 3]));
        assert!(combined.starts_with(
            "fn small(a: u32) -> bool { match crate::mutant_switch::active() {\n\
             /*BEGIN 1*/\n1 => {\n    a == 3 // not {\n}\n/*END*/\n\
             /*BEGIN 2*/\n2 => {\n    true // not {\n}\n/*END*/\n\
             /*BEGIN 0 1 2*/\n_ => {\n    a < 3 // not {\n}\n/*END*/\n} }\n"
        ));
        let (_, method) = combined.split_once("async fn text<'a>(&'a self) -> &'a str ").unwrap();
        assert!(
            method.starts_with("{ match crate::mutant_switch::active() {\n/*BEGIN 3*/\n3 => {")
        );
        assert!(
            method.contains("        \"\"\n    }\n/*END*/\n/*BEGIN 0 3*/\n_ => {\n"),
            "{method}"
        );
        assert!(combined.contains("    const fn number() -> u32 {\n        7\n    }\n"));
        assert!(combined.ends_with(" {\n        self.numbers()\n    }\n}\n"));
    }

    #[test]
    fn an_error_in_the_original_body_is_due_to_all_mutants_of_the_function() {
        let text = "fn a() {\n/*BEGIN 1*/\n1 => 7\n/*END*/\n/*BEGIN 2*/\n2 => 8\n/*END*/\n\
                    /*BEGIN 0 1 2*/\n_ => 9\n/*END*/\n}\n";
        assert_eq!(contained_at(text, 3), [1]);
        assert_eq!(contained_at(text, 6), [2]);
        assert_eq!(contained_at(text, 9), [0, 1, 2]);
        assert_eq!(contained_at(text, 1), [0_u32; 0]);
        assert_eq!(contained_at(text, 11), [0_u32; 0]);
    }

    #[test]
    fn the_body_begins_at_the_brace_that_the_last_one_closes() {
        for (function, body) in [
            ("fn a() {}", Some(7)),
            ("fn a<const N: usize>() -> [u8; { N }] where X: Y { if b { c } }", Some(49)),
            ("fn a() { '{'; \"}\"; /* } */ r##\"\"#}\"##; 'x: loop {} }", Some(7)),
            ("fn a();", None),
        ] {
            assert_eq!(body_of(function), body, "{function}");
        }
    }

    #[test]
    fn errors_are_found_in_the_compilers_output() {
        let line = "crates/core/src/x.rs:12:5: error[E0308]: mismatched types";
        assert_eq!(error_in(line), Some(("crates/core/src/x.rs", 12)));
        assert_eq!(error_in("crates/core/src/x.rs:12:5: warning: unused"), None);
        assert_eq!(error_in("error: could not compile `ondeck-core`"), None);
    }
}
