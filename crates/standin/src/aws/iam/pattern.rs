//! Texts of a policy: wildcards and policy variables.

use super::Context;

/// A text of a policy, which may contain wildcards and variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Text in which `*` and `?` are wildcards where the element allows them.
    Text(String),
    /// A character that is never a wildcard: `${*}`, `${?}` or `${$}`.
    Literal(char),
    /// `${key}` or `${key, 'default'}`.
    Variable { key: String, default: Option<String> },
}

/// One step of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Glob {
    Char(char),
    /// `?`
    One,
    /// `*`
    Many,
}

/// How far a wildcard reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Over any text, colons included.
    Anything,
    /// Within a segment of an ARN. Only a `*` at the end of a segment reaches over colons.
    ArnSegments,
}

impl Template {
    /// Reads a text. Fails if a variable is not closed, has no name, or has a default without
    /// quotation marks.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            if start > 0 {
                parts.push(Part::Text(rest[..start].to_owned()));
            }
            let after = &rest[start + 2..];
            let end = after.find('}').ok_or_else(|| format!("variable is not closed: {text}"))?;
            parts.push(variable(&after[..end]).ok_or_else(|| format!("not a variable: {text}"))?);
            rest = &after[end + 1..];
        }
        if !rest.is_empty() || parts.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Template(parts))
    }

    pub(super) fn has_variable(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Variable { .. }))
    }

    /// The pattern with its variables replaced. The value of a variable contains no wildcards.
    /// `None` if the request has no value for a variable that has no default.
    pub(super) fn glob(&self, context: &Context) -> Option<Vec<Glob>> {
        let mut steps = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => steps.extend(text.chars().map(|c| match c {
                    '*' => Glob::Many,
                    '?' => Glob::One,
                    c => Glob::Char(c),
                })),
                Part::Literal(c) => steps.push(Glob::Char(*c)),
                Part::Variable { key, default } => {
                    let value = context.variable(key).or(default.as_deref())?;
                    steps.extend(value.chars().map(Glob::Char));
                }
            }
        }
        Some(steps)
    }
}

fn variable(content: &str) -> Option<Part> {
    let mut letters = content.chars();
    if let (Some(c @ ('*' | '?' | '$')), None) = (letters.next(), letters.next()) {
        return Some(Part::Literal(c));
    }
    let (key, default) = match content.split_once(',') {
        None => (content, None),
        Some((key, default)) => {
            let default = default.trim().strip_prefix('\'')?.strip_suffix('\'')?;
            (key, Some(default.to_owned()))
        }
    };
    let key = key.trim();
    (!key.is_empty()).then(|| Part::Variable { key: key.to_owned(), default })
}

/// The text of a pattern where nothing is a wildcard.
pub(super) fn literal(pattern: &[Glob]) -> impl Iterator<Item = char> + '_ {
    pattern.iter().map(|step| match step {
        Glob::Char(c) => *c,
        Glob::One => '?',
        Glob::Many => '*',
    })
}

/// Whether a pattern matches the whole text.
pub(super) fn matches(mut pattern: &[Glob], mut text: &str, reach: Reach) -> bool {
    // Most patterns are a text, or a text with a star behind it, and need no search.
    loop {
        match pattern {
            [] => return text.is_empty(),
            [Glob::Many] => return true,
            [Glob::Char(c), rest @ ..] => match text.strip_prefix(*c) {
                Some(after) => (pattern, text) = (rest, after),
                None => return false,
            },
            _ => return search(pattern, text, reach),
        }
    }
}

fn search(pattern: &[Glob], text: &str, reach: Reach) -> bool {
    let text: Vec<char> = text.chars().collect();
    let may_take = |c: char| reach == Reach::Anything || c != ':';
    // reached[n]: the steps so far match the first n characters.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for (at, step) in pattern.iter().enumerate() {
        let mut next = vec![false; text.len() + 1];
        match step {
            Glob::Char(c) => {
                for n in 0..text.len() {
                    next[n + 1] = reached[n] && text[n] == *c;
                }
            }
            Glob::One => {
                for n in 0..text.len() {
                    next[n + 1] = reached[n] && may_take(text[n]);
                }
            }
            Glob::Many => {
                let ends_segment = matches!(pattern.get(at + 1), None | Some(Glob::Char(':')));
                for n in 0..=text.len() {
                    let longer = n > 0 && next[n - 1] && (ends_segment || may_take(text[n - 1]));
                    next[n] = reached[n] || longer;
                }
            }
        }
        reached = next;
    }
    reached[text.len()]
}

/// Whether an ARN matches a pattern as `ArnLike` has it: each of the six parts by itself. A text
/// with fewer parts is no ARN and matches nothing.
pub(super) fn matches_arn(pattern: &[Glob], arn: &str) -> bool {
    let patterns: Vec<&[Glob]> = pattern.splitn(6, |step| *step == Glob::Char(':')).collect();
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    patterns.len() == 6
        && parts.len() == 6
        && patterns.iter().zip(parts).all(|(glob, part)| matches(glob, part, Reach::Anything))
}
