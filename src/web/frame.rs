//! Page layout around the content of every page: [`Frame`].

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::assets;

/// The pages of the navigation: title, path within the project, the key that opens it after `g`. An empty path begins a
/// section.
const PAGES: &[(&str, &str, &str)] = &[
    ("Home", "home", "h"),
    ("Live", "activity/live", "l"),
    ("Analytics", "", ""),
    ("Insights", "insights", "i"),
    ("Dashboards", "dashboard", "d"),
    ("SQL", "sql", "s"),
    ("Events", "activity/explore", "e"),
    ("People", "", ""),
    ("Persons", "persons", "p"),
    ("Groups", "groups", "r"),
    ("Cohorts", "cohorts", "c"),
    ("Release", "", ""),
    ("Feature flags", "feature_flags", "f"),
    ("Early access", "early_access_features", "a"),
    ("Data", "", ""),
    ("Definitions", "data-management/events", "n"),
    ("Add events", "onboarding", "o"),
    ("Health", "health", "t"),
    ("Settings", "settings", "x"),
];

/// The theme that the user has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Theme {
    /// Follows the system.
    #[default]
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// The theme with this name; [`Theme::System`] for any other text.
    pub fn of(name: &str) -> Self {
        match name {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    /// The name, in cookies and attributes.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::System => Self::Light,
            Self::Light => Self::Dark,
            Self::Dark => Self::System,
        }
    }
}

/// A project that the user may switch to.
#[derive(Clone, Debug)]
pub struct ProjectLink {
    /// The id.
    pub id: i64,
    /// The name.
    pub name: String,
}

/// Data of the page layout.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The project of the page.
    pub project: ProjectLink,
    /// All projects of the user.
    pub projects: Vec<ProjectLink>,
    /// The path of the page within the project, such as `feature_flags/7`.
    pub path: String,
    /// The email address of the user.
    pub user: String,
    /// Whether the user can sign out, because a session cookie authenticated the request.
    pub has_session: bool,
    /// The theme.
    pub theme: Theme,
}

impl Frame {
    /// The part of the page before the content, which is sent before anything is computed.
    pub fn head(&self, title: &str) -> Markup {
        html! {
            (opening(&format!("{title} - {}", self.project.name), self.theme))
            (PreEscaped("<body>"))
            a class="skip" href="#content" { "Skip to the content" }
            (PreEscaped("<div class=\"shell\">"))
            (self.side())
            (PreEscaped("<main id=\"content\">"))
            div class="title" { h1 { (title) } }
        }
    }

    /// The part of the page after the content.
    pub fn tail() -> Markup {
        PreEscaped("</main></div></body></html>".to_owned())
    }

    fn side(&self) -> Markup {
        let project = self.project.id;
        let current = self.current();
        html! {
            header class="side" {
                a class="brand" href=(format!("/project/{project}/home")) {
                    img src=(assets::path("icon.svg")) alt="" width="26" height="26";
                    "Weir"
                }
                @if self.projects.len() > 1 {
                    details class="switch" {
                        summary { (self.project.name) }
                        @for other in self.projects.iter().filter(|other| other.id != project) {
                            a href=(format!("/project/{}/home", other.id)) { (other.name) }
                        }
                    }
                } @else {
                    div class="switch" { a href=(format!("/project/{project}/settings")) { (self.project.name) } }
                }
                nav aria-label="Pages" {
                    @for (title, path, key) in PAGES {
                        @if path.is_empty() {
                            div class="part" { (title) }
                        } @else {
                            a href=(format!("/project/{project}/{path}")) data-key=(key)
                                aria-current=[(current == Some(path)).then_some("page")] { (title) }
                        }
                    }
                }
                footer {
                    form method="post" action="/theme" {
                        input type="hidden" name="theme" value=(self.theme.next().name());
                        input type="hidden" name="next" value=(format!("/project/{project}/{}", self.path));
                        button class="small" title="Changes the colours of the page" {
                            "Theme: " (self.theme.name())
                        }
                    }
                    a class="button small" href="/help/keys" title="Keyboard shortcuts: ?" { "Shortcuts" }
                    @if self.has_session {
                        form method="post" action="/logout" {
                            button class="small" title=(self.user) { "Sign out" }
                        }
                    }
                }
            }
        }
    }

    /// The page of the navigation that the path belongs to.
    fn current(&self) -> Option<&'static str> {
        let begins = |path: &&str| {
            !path.is_empty()
                && self
                    .path
                    .strip_prefix(*path)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let of = match self.path.split('/').next().unwrap_or_default() {
            "person" => "persons",
            "events" => "activity/explore",
            "data-management" if self.path == "data-management/deletions" => "health",
            "data-management" => "data-management/events",
            _ => return PAGES.iter().map(|(_, path, _)| *path).find(begins),
        };
        Some(of)
    }
}

/// The page of keyboard shortcuts, as a document.
pub fn keys(theme: Theme) -> Markup {
    let row =
        |key: &str, what: &str| html! { tr { th scope="row" { kbd { (key) } } td { (what) } } };
    let content = html! {
        table data-keys {
            tbody {
                (row("?", "Shows these keys"))
                (row("/", "Goes to the first field"))
                (row("Ctrl Enter", "Submits the form of a field"))
                @for (title, _, key) in PAGES.iter().filter(|(_, path, _)| !path.is_empty()) { (row(&format!("g {key}"), title)) }
                (row("← →", "On a chart: the point before and after"))
                (row("j k", "On a list: the row after and before"))
                (row("e", "Goes to the files of a page"))
            }
        }
    };
    door("Keyboard shortcuts", theme, &content)
}

/// The head of a document.
pub fn opening(title: &str, theme: Theme) -> Markup {
    let theme = Some(theme).filter(|theme| *theme != Theme::System).map(Theme::name);
    let theme = theme.map(|name| format!(" data-theme=\"{name}\"")).unwrap_or_default();
    html! {
        (DOCTYPE)
        (PreEscaped(format!("<html lang=\"en\"{theme}>")))
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="robots" content="noindex";
            title { (title) }
            link rel="icon" href=(assets::path("icon.svg"));
            link rel="stylesheet" href=(assets::path("weir.css"));
            link rel="stylesheet" href=(assets::path("charts.css"));
            @for name in ["page.js", "swap.js", "hover.js"] { script src=(assets::path(name)) defer {} }
        }
    }
}

/// A whole document without navigation, such as the sign-in page, and errors before signing in.
pub fn door(title: &str, theme: Theme, content: &Markup) -> Markup {
    html! {
        (opening(title, theme))
        body {
            main class="door" id="content" {
                div class="brand" {
                    img src=(assets::path("icon.svg")) alt="" width="32" height="32";
                    "Weir"
                }
                div class="card" { h1 { (title) } br; (content) }
            }
        }
        (PreEscaped("</html>"))
    }
}
