//! Changes of a flag in two steps: what a change would make of it ([`Preview`]), and the change of exactly the version
//! that was looked at ([`Apply`]). No endpoints, but operations of tools.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::auth::Principal;
use crate::operation::input::input;
use crate::operation::{Context, Operation};
use crate::response::Problem;
use crate::routes::feature_flags::body::FlagWrite;
use crate::routes::feature_flags::{changed, find};
use crate::routes::store::problem;
use weir_api::flags as api;
use weir_metadata::flags::{FlagId, FlagPatch};

input! {
    /// What a change would make of a flag; it is checked as if it were made.
    pub struct Preview {
        path id: i64,
        body flag: FlagWrite,
    }
}

impl Operation for Preview {
    type Who = Principal;
    type Out = api::FlagPreview;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let (project, user, patch) = (cx.who.project.id, cx.user(), self.flag.into_patch());
        let preview = cx.metadata().preview_flag(project, user, FlagId(self.id), patch).await;
        let preview = preview.map_err(problem)?;
        let changes = differences("", &preview.before.compared(), &preview.after.compared());
        Ok(api::FlagPreview { version: preview.before.version, changes })
    }
}

input! {
    /// Changes a flag if it still has a version.
    pub struct Apply {
        path id: i64,
        path version: i64,
        body flag: FlagWrite,
    }
}

impl Operation for Apply {
    type Who = Principal;
    type Out = api::Flag;
    const SCOPE: &'static str = "feature_flag:write";

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let flag = find(cx, self.id).await?;
        let patch = FlagPatch { only_version: Some(self.version), ..self.flag.into_patch() };
        changed(cx, &flag, patch).await
    }
}

/// The fields that differ; of the filters each part by itself.
fn differences(
    within: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Vec<api::FlagDifference> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of =
        |fields: &Map<String, Value>, name: &str| fields.get(name).cloned().unwrap_or_default();
    let differing = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let all = differing.flat_map(|name| match (of(before, name), of(after, name)) {
        (Value::Object(before), Value::Object(after)) if name == "filters" => {
            differences("filters.", &before, &after)
        }
        (before, after) => {
            vec![api::FlagDifference { field: format!("{within}{name}"), before, after }]
        }
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::differences;

    #[test]
    fn only_what_differs_is_told() {
        let before = json!({
            "active": true, "name": "a", "filters": {"groups": [{"rollout_percentage": 10}], "payloads": {}},
        });
        let after = json!({
            "active": true, "name": "b", "filters": {"groups": [{"rollout_percentage": 20}], "payloads": {}}, "tags": ["x"],
        });
        let found = differences("", before.as_object().unwrap(), after.as_object().unwrap());
        let found: Vec<_> =
            found.into_iter().map(|own| (own.field, own.before, own.after)).collect();
        let expected = [
            (
                "filters.groups".to_owned(),
                json!([{"rollout_percentage": 10}]),
                json!([{"rollout_percentage": 20}]),
            ),
            ("name".to_owned(), json!("a"), json!("b")),
            ("tags".to_owned(), json!(null), json!(["x"])),
        ];
        assert_eq!(found, expected);
        assert!(
            differences("", before.as_object().unwrap(), before.as_object().unwrap()).is_empty()
        );
    }
}
