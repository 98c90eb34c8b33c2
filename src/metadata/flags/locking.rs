//! Optimistic locking of flags: a change by a client that sends the version it saw does not
//! overwrite later changes of others. Also the rules that relate two fields of a flag.

use serde_json::{Map, Value};

use crate::error::MetadataError;
use crate::flag_rules;
use crate::flags::plain::PlainFields;
use crate::flags::{FlagPatch, StoredFlag};
use crate::snapshot::Snapshot;
use crate::tags::normal_tags;
use crate::violation::Violation;
use weir_event::time::parse_timestamp;

/// Resolves a patch that was made for another version than the stored one, as PostHog does. Fields
/// that the client leaves as it saw them are removed from the patch, so that they do not undo
/// others' changes. Fields that it changes must not have been changed since. A client that does not
/// send what it saw overwrites.
///
/// # Errors
///
/// [`MetadataError::Conflict`]: another user changed a field that the patch changes, to another
/// value; or the patch is for one version only and the flag has another.
pub(super) fn settle(
    stored: &StoredFlag,
    patch: &mut FlagPatch,
    base: &Snapshot,
) -> Result<(), MetadataError> {
    if let Some(version) = patch.only_version.filter(|version| *version != stored.version) {
        return Err(MetadataError::changed_since(version));
    }
    let seen = patch.seen.take().filter(|seen| seen.version != stored.version);
    let Some(original) = seen.and_then(|seen| seen.fields) else { return Ok(()) };
    let mut current = stored.compared();
    current.insert("created_at".to_owned(), stored.created_at.0.into());
    let mut meeting = Meeting { original, current, is_conflict: false };
    patch.retain(|name, wanted| match name {
        "filters" => meeting.is_changed(name, flag_rules::updated(&stored.filters, wanted)),
        _ => meeting.is_changed(name, wanted),
    });
    patch.plain.retain(|name, wanted| {
        // Dashboards are only ever added, which overwrites nothing.
        name == "analytics_dashboards" || meeting.is_changed(name, wanted)
    });
    if !meeting.is_conflict {
        return Ok(());
    }
    let user = stored.last_modified_by.and_then(|user| base.user(user));
    let who = user.map_or("another user", |user| user.email.as_str());
    Err(MetadataError::Conflict(format!(
        "The feature flag was updated by {who} since you started editing it. Please refresh and \
         try again."
    )))
}

/// The flag as the client saw it, and as it is stored.
struct Meeting {
    original: Map<String, Value>,
    current: Map<String, Value>,
    is_conflict: bool,
}

impl Meeting {
    /// Whether the client changes the field, as far as it sent what it saw; records a conflict.
    fn is_changed(&mut self, name: &str, wanted: Value) -> bool {
        let Some(original) = self.original.get(name) else { return true };
        let current = self.current.get(name).cloned().unwrap_or_default();
        let [wanted, original, current] =
            [wanted, original.clone(), current].map(|value| comparable(name, value));
        if wanted == original {
            return false;
        }
        self.is_conflict |= original != current && wanted != current;
        true
    }
}

/// Normalises a field for comparison, whether it was shown, sent or stored.
fn comparable(name: &str, value: Value) -> Value {
    match (name, value) {
        ("filters", filters) => flag_rules::canonical(filters),
        ("tags", Value::Array(tags)) => {
            let tags = tags.iter().filter_map(Value::as_str).map(str::to_owned);
            let mut tags = normal_tags(tags.collect());
            tags.sort_unstable();
            tags.into()
        }
        ("evaluation_runtime", Value::Null) => "all".into(),
        ("ensure_experience_continuity" | "is_remote_configuration", Value::Null) => false.into(),
        ("created_at", Value::String(text)) => {
            parse_timestamp(&text).map_or(Value::String(text), |time| time.0.into())
        }
        (_, value) => value,
    }
}

/// Checks that a flag with device bucketing has no experience continuity, which it does not need.
pub(super) fn check_bucketing(flag: &PlainFields) -> Result<(), Violation> {
    let is_by_device = flag.bucketing_identifier.as_deref() == Some("device_id");
    if !is_by_device || !flag.ensure_experience_continuity {
        return Ok(());
    }
    let detail = "Cannot use device_id bucketing with experience continuity: the two are \
                  incompatible.";
    Err(Violation::general(detail))
}

/// The violation for a flag that is both archived and active. `requested` is the request's `archived`.
pub(super) fn archived_and_active(requested: Option<bool>) -> Violation {
    Violation::general(if requested == Some(true) {
        "Cannot archive an enabled feature flag. Disable it first, or send active: false in the \
         same request."
    } else {
        "Cannot enable an archived feature flag. Unarchive it first."
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::settle;
    use crate::error::MetadataError;
    use crate::flags::plain::{PlainFields, PlainPatch};
    use crate::flags::{FlagPatch, Seen, StoredFlag};
    use crate::snapshot::Snapshot;
    use weir_base::clock::UnixMicros;

    fn filters(percentage: u8) -> Value {
        json!({"groups": [{"properties": [], "rollout_percentage": percentage}]})
    }

    /// Another user renamed it since.
    fn stored() -> StoredFlag {
        StoredFlag {
            name: "Beta feature".to_owned(),
            filters: filters(50),
            created_at: UnixMicros(1_700_000_000_123_456),
            plain: PlainFields {
                tags: vec!["a".to_owned(), "b".to_owned()],
                ..PlainFields::default()
            },
            version: 3,
            ..StoredFlag::sample(1, "my-flag")
        }
    }

    fn settled(mut patch: FlagPatch, version: i64, original: Value) -> Option<FlagPatch> {
        let Value::Object(original) = original else { panic!("an object") };
        patch.seen = Some(Seen { version, fields: Some(original) });
        match settle(&stored(), &mut patch, &Snapshot::default()) {
            Ok(()) => Some(patch),
            Err(MetadataError::Conflict(detail)) => {
                assert!(detail.starts_with("The feature flag was updated by another user since"));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn names(patch: &FlagPatch) -> (Option<&str>, Option<&str>, Option<bool>) {
        (patch.name.as_deref(), patch.key.as_deref(), patch.active)
    }

    #[test]
    fn a_change_for_one_version_is_made_of_no_other() {
        for (version, is_made) in [(3, true), (2, false), (4, false)] {
            let name = Some("Gamma feature".to_owned());
            let mut patch = FlagPatch { name, only_version: Some(version), ..FlagPatch::default() };
            match settle(&stored(), &mut patch, &Snapshot::default()) {
                Ok(()) => assert!(is_made, "{version}"),
                Err(MetadataError::Conflict(detail)) => {
                    let words = format!("has changed since version {version}.");
                    assert!(!is_made && detail.contains(&words), "{detail}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The cases of PostHog's `test_get_conflicting_changes`, with the fields that are written in the end.
    #[test]
    fn only_what_the_client_changes_meets_what_others_changed() {
        let seen = || json!({"key": "my-flag", "name": "Alpha feature", "active": true, "filters": filters(50)});
        let text = |text: &str| Some(text.to_owned());
        let patch = |name: &str, key: &str, active| FlagPatch {
            name: text(name),
            key: text(key),
            active: Some(active),
            ..FlagPatch::default()
        };
        for (given, version, original, expected) in [
            // The name is as the client saw it: the other user's one stays.
            (
                patch("Alpha feature", "other", false),
                2,
                seen(),
                Some((None, Some("other"), Some(false))),
            ),
            (patch("Gamma", "my-flag", true), 2, seen(), None),
            // Both changed it to the same value.
            (
                patch("Beta feature", "my-flag", true),
                2,
                seen(),
                Some((Some("Beta feature"), None, None)),
            ),
            // Nothing is compared for the newest version.
            (
                patch("Gamma", "my-flag", true),
                3,
                seen(),
                Some((Some("Gamma"), Some("my-flag"), Some(true))),
            ),
            // A client that does not send what it saw overwrites.
            (
                patch("Gamma", "my-flag", false),
                2,
                json!({}),
                Some((Some("Gamma"), Some("my-flag"), Some(false))),
            ),
            (
                patch("Gamma", "my-flag", false),
                2,
                json!({"active": true}),
                Some((Some("Gamma"), Some("my-flag"), Some(false))),
            ),
        ] {
            let settled = settled(given.clone(), version, original);
            assert_eq!(settled.as_ref().map(names), expected, "{given:?}");
        }
    }

    /// Every field that clients write is removed if it is as it was shown, in any form.
    #[test]
    fn unchanged_fields_are_removed_from_the_patch() {
        let cohort = |name: Value| {
            let filter = json!({"key": "id", "type": "cohort", "value": 7, "cohort_name": name});
            json!({"groups": [{"properties": [filter]}]})
        };
        let shown = json!({
            "name": "x", "key": "y", "filters": cohort(json!("Old name")), "active": false,
            "deleted": false, "archived": true, "created_at": "2020-01-01T00:00:00.000000Z",
            "ensure_experience_continuity": null, "rollback_conditions": [1],
            "performed_rollback": true, "tags": ["B", "a "], "has_enriched_analytics": true,
            "bucketing_identifier": "device_id", "evaluation_runtime": "all",
            "evaluation_contexts": ["web"], "is_remote_configuration": true,
            "analytics_dashboards": [1],
        });
        let whole = FlagPatch {
            name: Some("x".to_owned()),
            key: Some("y".to_owned()),
            filters: Some(cohort(json!("New name"))),
            active: Some(false),
            deleted: Some(false),
            created_at: Some(UnixMicros(1_577_836_800_000_000)),
            plain: PlainPatch {
                ensure_experience_continuity: Some(false),
                rollback_conditions: Some(Some(json!([1]))),
                performed_rollback: Some(Some(true)),
                tags: Some(vec!["a".to_owned(), "b".to_owned()]),
                analytics_dashboards: Some(vec![1]),
                has_enriched_analytics: Some(Some(true)),
                archived: Some(true),
                bucketing_identifier: Some(Some("device_id".to_owned())),
                evaluation_runtime: Some(None),
                evaluation_contexts: Some(vec!["web".to_owned()]),
                is_remote_configuration: Some(true),
            },
            ..FlagPatch::default()
        };
        let plain = |plain| FlagPatch { plain, ..FlagPatch::default() };
        let left = settled(whole.clone(), 1, shown).expect("no conflict");
        let expected =
            plain(PlainPatch { analytics_dashboards: Some(vec![1]), ..PlainPatch::default() });
        assert_eq!(format!("{left:?}"), format!("{expected:?}"));
        // The same changes conflict with those that others made to each field.
        for (name, other) in [
            ("filters", filters(20)),
            ("active", json!(null)),
            ("created_at", json!("2019-01-01T00:00:00Z")),
            ("archived", json!(null)),
            ("rollback_conditions", json!([2])),
            ("tags", json!(["c"])),
            ("bucketing_identifier", json!("distinct_id")),
            ("evaluation_contexts", json!(["app"])),
            ("is_remote_configuration", json!("other")),
        ] {
            let original = json!({name: other});
            let met = match name {
                // Equal to the stored value after normalisation.
                "tags" => {
                    plain(PlainPatch { tags: Some(vec!["d".to_owned()]), ..PlainPatch::default() })
                }
                _ => whole.clone(),
            };
            assert!(settled(met, 1, original).is_none(), "{name}");
        }
    }
}
