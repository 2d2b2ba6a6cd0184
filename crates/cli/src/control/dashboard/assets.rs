//! The files of the page, which are part of the program.

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// By path: the media type and the text.
pub(super) const ALL: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/assets/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/assets/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/assets/main.js", SCRIPT, include_str!("page/main.js")),
    ("/assets/cap.js", SCRIPT, include_str!("page/cap.js")),
    ("/assets/changes.js", SCRIPT, include_str!("page/changes.js")),
    ("/assets/charts.js", SCRIPT, include_str!("page/charts.js")),
    ("/assets/doctor.js", SCRIPT, include_str!("page/doctor.js")),
    ("/assets/elements.js", SCRIPT, include_str!("page/elements.js")),
    ("/assets/lanes.js", SCRIPT, include_str!("page/lanes.js")),
    ("/assets/money.js", SCRIPT, include_str!("page/money.js")),
    ("/assets/overview.js", SCRIPT, include_str!("page/overview.js")),
    ("/assets/story.js", SCRIPT, include_str!("page/story.js")),
];
