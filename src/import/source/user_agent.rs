//! The family of a browser and of an operating system in a `User-Agent`, for exports that have nothing else.

/// Marks of browsers, those that others contain, too, last.
const BROWSERS: [(&str, &str); 9] = [
    ("Edg", "Microsoft Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("FxiOS/", "Firefox iOS"),
    ("CriOS/", "Chrome iOS"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Mobile/", "Mobile Safari"),
    ("Safari/", "Safari"),
];
/// Marks of operating systems.
const SYSTEMS: [(&str, &str); 7] = [
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iOS"),
    ("iPad", "iOS"),
    ("Mac OS X", "Mac OS X"),
    ("CrOS", "Chrome OS"),
    ("Linux", "Linux"),
];

/// The browser.
pub(super) fn browser(agent: &str) -> Option<&'static str> {
    find(&BROWSERS, agent)
}

/// The operating system.
pub(super) fn system(agent: &str) -> Option<&'static str> {
    find(&SYSTEMS, agent)
}

fn find(marks: &[(&str, &'static str)], agent: &str) -> Option<&'static str> {
    marks.iter().find(|(mark, _)| agent.contains(mark)).map(|(_, name)| *name)
}
