//! Early access features. Each belongs to a flag, which was copied before.

use serde_json::{Value, json};

use crate::objects::{TargetList, Wanted, fields, name_of};
use crate::references::id_of;
use crate::report::Outcome;
use crate::state::Kind;
use crate::steps::flags;
use crate::transfer::{Stop, Transfer};

const PATH: &str = "early_access_feature/";

/// Fields that are copied.
const FIELDS: [&str; 5] = ["name", "description", "stage", "documentation_url", "payload"];

/// Fields without which a feature comes, too.
const OPTIONAL: &[&str] = &["documentation_url", "payload"];

/// Copies the features.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let mut features = transfer.listed(Kind::Feature, "early_access_feature/?limit=500").await?;
    features.reverse();
    let mut place =
        TargetList::open(transfer, Kind::Feature, PATH, "?limit=500", &["name"]).await?;
    for feature in &features {
        place.announce(&fields(feature, &["name"]));
    }
    for feature in &features {
        let Some(id) = feature.get("id").and_then(id_of) else { continue };
        let name = name_of(feature);
        let flag = feature.get("feature_flag").and_then(|flag| flag.get("id")).and_then(id_of);
        let target = flag.as_deref().and_then(|flag| transfer.state.ids.get(Kind::Flag, flag));
        let (Some(flag), Some(target)) = (flag.clone(), target.map(str::to_owned)) else {
            let reason = "its feature flag did not come";
            transfer.report.note(Kind::Feature, Outcome::Left, &name, reason);
            continue;
        };
        let mut body = fields(feature, &FIELDS);
        let wanted =
            Wanted { id: id.clone(), name: name.clone(), body: body.clone(), optional: OPTIONAL };
        if !place.has(transfer, &wanted) {
            let number = target.parse::<i64>().unwrap_or_default();
            body.insert("feature_flag_id".to_owned(), Value::from(number));
        }
        let before = transfer.report.counted(Kind::Feature, Outcome::Made);
        let made = place.put(transfer, Wanted { id, name, body, optional: OPTIONAL }).await?;
        let is_made = transfer.report.counted(Kind::Feature, Outcome::Made) > before;
        if made.is_some_and(|made| made.get("feature_flag") != Some(&json!(null))) && is_made {
            flags::restore(transfer, &flag, &target).await?;
        }
    }
    Ok(())
}
