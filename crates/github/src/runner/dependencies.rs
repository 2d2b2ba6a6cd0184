//! Libraries that the runner needs and a minimal image lacks.

/// The library for whose lack a program of the runner did not start, by its output.
pub(crate) fn missing(said: &str) -> Option<String> {
    const NOT_FOUND: &str = ": cannot open shared object file";
    const NO_SSL: &str = "No usable version of libssl was found";
    if said.contains(NO_SSL) {
        return Some("libssl".to_owned());
    }
    let (before, _) = said.split_once(NOT_FOUND)?;
    let name = before.rsplit(|c: char| c.is_whitespace() || c == '/').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Says that a library is missing, and why it was not installed.
pub(crate) fn lacks(library: &str, why: &str) -> String {
    format!("a library is missing: {library} ({why})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_library_is_named() {
        for (said, library) in [
            (
                "bin/Runner.Listener: error while loading shared libraries: libstdc++.so.6: cannot \
                 open shared object file: No such file or directory",
                Some("libstdc++.so.6"),
            ),
            (
                "Failed to load /opt/bin/libcoreclr.so, error: liblttng-ust.so.0: cannot open shared \
                 object file: No such file or directory",
                Some("liblttng-ust.so.0"),
            ),
            ("No usable version of libssl was found\nAborted", Some("libssl")),
            (": cannot open shared object file", None),
            ("Couldn't find a valid ICU package installed on the system.", None),
            ("", None),
        ] {
            assert_eq!(missing(said).as_deref(), library, "{said}");
        }
    }
}
