//! Kinds of keys by their prefixes ([`KeyKind`]), and the error messages for a key of the wrong kind.

/// Prefix of the token of a project, as in PostHog.
pub const PROJECT_PREFIX: &str = "phc_";

/// Prefix of a personal key, as in PostHog.
pub const PERSONAL_PREFIX: &str = "phx_";

/// Prefix of the secret key of a project, as in PostHog.
pub const SECRET_PREFIX: &str = "phs_";

/// Kind of the value that was sent where a key is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Nothing.
    Missing,
    /// The token of a project.
    Project,
    /// A personal key.
    Personal,
    /// The secret key of a project.
    Secret,
    /// It has none of the prefixes; settings may have set it.
    Other,
}

impl KeyKind {
    /// The kind of `value`.
    pub fn of(value: &str) -> Self {
        let value = value.trim();
        match value {
            "" => Self::Missing,
            _ if value.starts_with(PROJECT_PREFIX) => Self::Project,
            _ if value.starts_with(PERSONAL_PREFIX) => Self::Personal,
            _ if value.starts_with(SECRET_PREFIX) => Self::Secret,
            _ => Self::Other,
        }
    }

    /// Error message: why the value is not the token of a project, and where that is found.
    pub fn is_no_project_token(self) -> &'static str {
        match self {
            Self::Missing => {
                "Project API key missing. Send it as `api_key` or `token`; it is the `api_token` of a project in \
                 /api/projects/."
            }
            Self::Personal => {
                "Project API key invalid. This is a personal API key (phx_...), which is for /api/ and has to stay \
                 secret. Events and flags need the project API key (phc_...), the `api_token` of a project in \
                 /api/projects/."
            }
            Self::Secret => {
                "Project API key invalid. This is the secret API key of a project (phs_...), which reads the \
                 definitions of flags and has to stay secret. Events and flags need the project API key (phc_...), \
                 the `api_token` of a project in /api/projects/."
            }
            Self::Project | Self::Other => {
                "Project API key invalid. It is the `api_token` of a project in /api/projects/."
            }
        }
    }

    /// Error message: why the value is not a personal key, and where to get one.
    pub fn is_no_personal_key(self) -> &'static str {
        match self {
            Self::Project => {
                "Invalid Personal API key. This is a project API key (phc_...), which sends events and asks for \
                 flags. This endpoint needs a personal API key (phx_...): `weir keys create` makes one."
            }
            Self::Secret => {
                "Invalid Personal API key. This is the secret API key of a project (phs_...), which reads the \
                 definitions of flags. This endpoint needs a personal API key (phx_...): `weir keys create` makes \
                 one."
            }
            Self::Missing | Self::Personal | Self::Other => "Invalid Personal API key.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KeyKind;

    #[test]
    fn kinds_follow_from_the_begin() {
        for (value, expected) in [
            ("", KeyKind::Missing),
            (" ", KeyKind::Missing),
            ("phc_abc", KeyKind::Project),
            (" phx_abc", KeyKind::Personal),
            ("phs_abc", KeyKind::Secret),
            ("phc", KeyKind::Other),
            ("PHX_abc", KeyKind::Other),
            ("my-own-token", KeyKind::Other),
        ] {
            assert_eq!(KeyKind::of(value), expected, "{value}");
        }
    }

    /// Goal: if keys are confused, the error names the kind that was sent, and the one to send.
    #[test]
    fn wrong_kinds_are_named() {
        for (kind, sent, needed) in [
            (KeyKind::Personal, "personal API key (phx_...)", "phc_"),
            (KeyKind::Secret, "secret API key of a project (phs_...)", "phc_"),
            (KeyKind::Missing, "missing", "api_token"),
        ] {
            let text = kind.is_no_project_token();
            assert!(text.contains(sent) && text.contains(needed), "{text}");
        }
        for (kind, sent) in [
            (KeyKind::Project, "project API key (phc_...)"),
            (KeyKind::Secret, "secret API key of a project (phs_...)"),
        ] {
            let text = kind.is_no_personal_key();
            assert!(text.contains(sent) && text.contains("phx_"), "{text}");
        }
    }
}
