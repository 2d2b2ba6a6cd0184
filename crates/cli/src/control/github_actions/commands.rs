//! Workflow commands: lines of the log that GitHub acts upon.

/// The severity of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Error,
    Warning,
    Notice,
}

/// A line that GitHub shows on the run's page and marks in the log.
pub(crate) fn annotation(level: Level, title: &str, message: &str) -> String {
    let command = match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Notice => "notice",
    };
    format!("::{command} title={}::{}", property(title), data(message))
}

/// The same for an error on a line of a file, with the column.
#[cfg(feature = "config")]
pub(crate) fn line_annotation(file: &str, (line, column): (usize, usize), text: &str) -> String {
    format!("::error file={},line={line},col={column}::{}", property(file), data(text))
}

/// Begins a group: a part of the log that is shown folded.
pub(crate) fn group(title: &str) -> String {
    format!("::group::{}", data(title))
}

/// Ends the open group.
pub(crate) const END_GROUP: &str = "::endgroup::";

/// Lines that make GitHub mask a secret in the log. GitHub compares line by line, so each line of
/// the secret is masked by itself.
pub(crate) fn add_mask(secret: &str) -> Vec<String> {
    let lines = secret.split(['\r', '\n']).filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("::add-mask::{}", data(line))).collect()
}

/// Changes a line so that GitHub does not read it as a command. Texts of machines and providers are
/// logged too.
pub(crate) fn harmless(line: &str) -> String {
    let one_line = line.replace(['\r', '\n'], " ");
    // The older form of a command may stand anywhere in a line.
    let inert = one_line.replace("##[", "## [");
    if inert.trim_start().starts_with("::") { format!("- {inert}") } else { inert }
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runner's reading of a line, from its documented escapes.
    fn read(line: &str) -> Option<(String, Option<String>, String)> {
        let (info, data) = line.trim_start().strip_prefix("::")?.split_once("::")?;
        let plain = |text: &str| text.replace("%0D", "\r").replace("%0A", "\n");
        let last = |text: String| text.replace("%25", "%");
        let (command, title) = match info.split_once(' ') {
            None => (info, None),
            Some((command, properties)) => {
                let title = properties.split(',').find_map(|one| one.strip_prefix("title="))?;
                let title = plain(title).replace("%3A", ":").replace("%2C", ",");
                (command, Some(last(title)))
            }
        };
        Some((command.to_owned(), title, last(plain(data))))
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn an_annotation_arrives_unchanged(title in ".+", message in "(?s).*") {
            let line = annotation(Level::Warning, &title, &message);
            proptest::prop_assert!(!line.contains(['\r', '\n']));
            proptest::prop_assert_eq!(read(&line), Some(("warning".into(), Some(title), message)));
        }

        #[test]
        fn a_harmless_line_is_no_command(line in r"(?s)[ \t\r\n]*(::|##\[)?(error|add-mask)?(::|\])?.*") {
            let line = harmless(&line);
            proptest::prop_assert!(!line.contains(['\r', '\n']));
            proptest::prop_assert!(!line.contains("##["));
            proptest::prop_assert_eq!(read(&line), None);
        }
    }

    #[test]
    fn escapes_are_those_of_the_runner() {
        let line = annotation(Level::Error, "a:b,c%", "50%\r\nx:y,z");
        assert_eq!(line, "::error title=a%3Ab%2Cc%25::50%25%0D%0Ax:y,z");
        assert_eq!(group("100%"), "::group::100%25");
    }

    #[test]
    fn each_line_of_a_secret_is_masked() {
        let pem = "-----BEGIN KEY-----\r\nMII%\n\n  \n-----END KEY-----\n";
        assert_eq!(
            add_mask(pem),
            [
                "::add-mask::-----BEGIN KEY-----",
                "::add-mask::MII%25",
                "::add-mask::-----END KEY-----"
            ]
        );
        assert_eq!(add_mask(" \n"), Vec::<String>::new(), "a blank would mask every log");
    }
}
