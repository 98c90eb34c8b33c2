//! Early access features: what users may try before general availability. Each has a flag, and its
//! stage decides whether users may enrol in that flag: a change of the stage changes the flag, in
//! one transaction.
//!
//! Source of the rules and of the error texts: PostHog's API for early access features.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::accounts::UserId;
use crate::activity::{Logged, Scope, Subject};
use crate::connection::Conn;
use crate::entity::{Columns, entity, named};
use crate::error::MetadataError;
use crate::flags::FlagId;
use crate::violation::Violation;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

mod operations;

/// Longest name and URL, in characters; the column widths of PostHog.
const NAME_MAX_CHARS: usize = 200;
const URL_MAX_CHARS: usize = 800;

/// The error for a key without the scope to write flags.
const NO_FLAG_SCOPE: &str = "API key missing required scope 'feature_flag:write'";

/// The error for a user who may not change the flag.
const NO_EDITOR: &str = "You don't have sufficient permissions to modify the linked feature flag.";

named! {
    /// The stage of a feature.
    #[derive(Default)]
    pub enum Stage: parse, Stored {
        /// Not shown to anyone.
        #[default]
        Draft = "draft",
        /// Users may register interest.
        Concept = "concept",
        /// Users may try it.
        Alpha = "alpha",
        /// Users may try it.
        Beta = "beta",
        /// Everyone has it, or users still enrol.
        GeneralAvailability = "general-availability",
        /// It has ended.
        Archived = "archived",
    }
}

impl Stage {
    /// Whether users may enrol in the flag.
    fn is_active(self) -> bool {
        matches!(self, Self::Alpha | Self::Beta | Self::GeneralAvailability)
    }
}

entity! {
    /// An early access feature.
    #[derive(Default)]
    pub struct EarlyAccessFeature in "early_access_features" {
        /// Unique.
        id: Uuid [key],
        /// The project.
        project: ProjectId as "project_id" [once],
        /// The flag in which users enrol; no other feature has it.
        flag: FlagId as "flag_id" [once, logged_as("feature_flag")],
        /// The user who created it.
        created_by: Option<UserId> [once],
        /// Time of creation.
        created_at: UnixMicros [once],
    }
    /// A client's data for a feature; `None` leaves a field unchanged.
    pub struct FeaturePatch {
        /// Its name.
        name: String [logged],
        /// A longer description.
        description: String [logged],
        /// Its stage.
        stage: Stage [logged],
        /// A link to documentation; empty for none.
        documentation_url: String [logged],
        /// For the client; an empty object for none.
        payload: Value [logged],
    }
    with {
        /// Whether everyone gets it at general availability, enrolled or not.
        rollout_to_all: bool,
    }
}

impl Logged for EarlyAccessFeature {
    fn subject(&self) -> Subject {
        let (item, name) = (self.id.to_string(), self.name.clone());
        Subject { scope: Scope::EarlyAccessFeature, item, name, project: Some(self.project) }
    }
}

/// Reads the features of one project or of all.
pub(super) async fn all(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<EarlyAccessFeature>, MetadataError> {
    let select =
        EarlyAccessFeature::select("WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1)")
            .bind(only.map(|project| project.0));
    Ok(select.fetch_all(connection).await?)
}

/// The caller.
#[derive(Clone, Copy, Debug)]
pub struct FeatureEditor {
    /// The user.
    pub user: UserId,
    /// Whether the key of the request may write flags.
    pub may_write_flags: bool,
}

/// The change of the flag of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enrollment {
    /// Users enrol.
    Open,
    /// Nobody enrols.
    Closed,
    /// Everyone has it without enrolment.
    Everybody,
}

/// The change of the flag for a change of the stage; `None` leaves it unchanged.
fn enrollment(before: Stage, after: Stage, rollout_to_all: bool) -> Option<Enrollment> {
    let is_released = after == Stage::GeneralAvailability && before != after;
    match (before.is_active(), after.is_active()) {
        _ if is_released && rollout_to_all => Some(Enrollment::Everybody),
        (false, true) => Some(Enrollment::Open),
        (_, false) => Some(Enrollment::Closed),
        (true, true) => None,
    }
}

impl Enrollment {
    fn of(self, filters: &Value) -> Value {
        let mut filters = filters.clone();
        let Value::Object(map) = &mut filters else { return filters };
        map.remove("super_groups");
        let is_open = if self == Self::Open { Value::Bool(true) } else { Value::Null };
        map.insert("feature_enrollment".to_owned(), is_open);
        if self == Self::Everybody {
            let all = json!([{"properties": [], "rollout_percentage": 100}]);
            map.insert("groups".to_owned(), all);
        }
        filters
    }
}

/// A payload as it is stored: an empty, false or missing one is an empty object.
fn payload_of(given: Option<Value>) -> Value {
    let is_nothing = match &given {
        None | Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(_) => false,
    };
    given.filter(|_| !is_nothing).unwrap_or_else(|| Value::Object(Map::new()))
}

fn check_url(url: &str) -> Result<(), Violation> {
    let attr = Some("documentation_url");
    if url.chars().count() > URL_MAX_CHARS {
        return Err(Violation::too_long("documentation_url", URL_MAX_CHARS));
    }
    let schemes = ["http", "https", "ftp", "ftps"];
    let is_url = url.split_once("://").is_some_and(|(scheme, rest)| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        schemes.iter().any(|known| known.eq_ignore_ascii_case(scheme))
            && !host.is_empty()
            && !url.chars().any(|c| c.is_whitespace() || c.is_control())
    });
    if url.is_empty() || is_url {
        return Ok(());
    }
    Err(Violation { code: "invalid_input", detail: "Enter a valid URL.".to_owned(), attr })
}

/// The key of a flag made from a name: ASCII letters, digits and underscores in lower case, with a
/// hyphen between words.
fn slug(name: &str) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_between = |c: char| c.is_whitespace() || c == '-';
    let mut slug = String::with_capacity(name.len());
    for c in name.chars().filter(|c| is_kept(*c) || is_between(*c)) {
        match is_between(c) {
            false => slug.push(c.to_ascii_lowercase()),
            true if slug.ends_with('-') => {}
            true => slug.push('-'),
        }
    }
    slug.trim_matches(|c| c == '-' || c == '_').to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Enrollment, Stage, check_url, enrollment, payload_of, slug};

    #[test]
    fn stages_have_their_names() {
        use Stage::{Alpha, Archived, Beta, Concept, Draft, GeneralAvailability};
        for stage in [Draft, Concept, Alpha, Beta, GeneralAvailability, Archived] {
            assert_eq!(Stage::parse(stage.name()), Some(stage));
        }
        assert_eq!(Stage::parse("Beta"), None);
    }

    /// The branches of PostHog's serializer.
    #[test]
    fn a_stage_says_whether_people_enrol() {
        use Enrollment::*;
        use Stage::*;
        for (before, after, to_all, expected) in [
            (Draft, Beta, false, Some(Open)),
            (Concept, Alpha, true, Some(Open)),
            (Draft, GeneralAvailability, false, Some(Open)),
            (Draft, GeneralAvailability, true, Some(Everybody)),
            (Beta, GeneralAvailability, true, Some(Everybody)),
            (Beta, GeneralAvailability, false, None),
            (GeneralAvailability, GeneralAvailability, true, None),
            (Alpha, Beta, true, None),
            (Beta, Archived, false, Some(Closed)),
            (Beta, Draft, true, Some(Closed)),
            (Draft, Concept, false, Some(Closed)),
        ] {
            assert_eq!(enrollment(before, after, to_all), expected, "{before:?} to {after:?}");
        }
        let filters = json!({"groups": [{"rollout_percentage": 0}], "payloads": {"true": "1"},
            "super_groups": [{}]});
        for (enrollment, is_open, share) in
            [(Open, json!(true), 0), (Closed, Value::Null, 0), (Everybody, Value::Null, 100)]
        {
            let changed = enrollment.of(&filters);
            assert_eq!(changed["feature_enrollment"], is_open);
            assert_eq!(changed["groups"][0]["rollout_percentage"], share);
            assert_eq!(
                (&changed["payloads"], changed.get("super_groups")),
                (&json!({"true": "1"}), None)
            );
        }
    }

    /// Names from the tests of Django's `slugify`.
    #[test]
    fn flags_are_called_after_features() {
        for (name, expected) in [
            ("Hello, World, you RULEZZZZ!", "hello-world-you-rulezzzz"),
            ("Hick bondoogling", "hick-bondoogling"),
            (" multiple---dash and  space ", "multiple-dash-and-space"),
            ("underscore_in-value", "underscore_in-value"),
            ("__strip__underscore-value___", "strip__underscore-value"),
            ("--strip-dash-value---", "strip-dash-value"),
            ("spam & eggs", "spam-eggs"),
            ("!?", ""),
        ] {
            assert_eq!(slug(name), expected, "{name}");
        }
    }

    #[test]
    fn urls_have_a_scheme_and_a_host_and_empty_payloads_are_none() {
        for (url, is_good) in [
            ("", true),
            ("https://example.com/a?b#c", true),
            ("HTTP://example.com", true),
            ("ftp://h", true),
            ("example.com", false),
            ("https://", false),
            ("https:///path", false),
            ("https://a b", false),
            ("javascript://x", false),
        ] {
            assert_eq!(check_url(url).is_ok(), is_good, "{url}");
        }
        assert!(check_url(&format!("https://{}", "x".repeat(793))).is_err());
        for (given, expected) in [
            (None, json!({})),
            (Some(json!(null)), json!({})),
            (Some(json!(false)), json!({})),
            (Some(json!([])), json!({})),
            (Some(json!(0)), json!({})),
            (Some(json!({"a": 1})), json!({"a": 1})),
            (Some(json!("x")), json!("x")),
        ] {
            assert_eq!(payload_of(given), expected);
        }
    }
}
