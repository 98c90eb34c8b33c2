//! Annotations.

use serde_json::Value;

use crate::objects::{TargetList, Wanted, fields, name_of};
use crate::references::id_of;
use crate::report::Outcome;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer};

const PATH: &str = "annotations/";

/// Fields that are copied as they are.
const FIELDS: [&str; 4] = ["content", "date_marker", "creation_type", "scope"];

/// Fields with the id of another object.
const REFERENCES: [(&str, Kind); 2] =
    [("dashboard_item", Kind::Insight), ("dashboard_id", Kind::Dashboard)];

/// Copies the annotations.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let mut annotations = transfer.listed(Kind::Annotation, "annotations/?limit=500").await?;
    annotations.retain(|annotation| annotation.get("deleted") != Some(&Value::Bool(true)));
    annotations.sort_by_key(|annotation| annotation.get("id").and_then(Value::as_i64));
    let key = &["content"];
    let mut place = TargetList::open(transfer, Kind::Annotation, PATH, "?limit=500", key).await?;
    for annotation in &annotations {
        place.announce(&fields(annotation, key));
    }
    for annotation in &annotations {
        let Some(id) = annotation.get("id").and_then(id_of) else { continue };
        let name = name_of(annotation);
        let mut body = fields(annotation, &FIELDS);
        let mut lacking = None;
        for (field, kind) in REFERENCES {
            let Some(own) = annotation.get(field).and_then(id_of) else { continue };
            match transfer.state.ids.get(kind, &own).and_then(|id| id.parse::<i64>().ok()) {
                Some(target) => _ = body.insert(field.to_owned(), Value::from(target)),
                None => lacking = Some(format!("the {} {own} did not come", kind.name())),
            }
        }
        if let Some(reason) = lacking {
            transfer.report.note(Kind::Annotation, Outcome::Left, &name, reason);
            continue;
        }
        place.put(transfer, Wanted { id, name, body, optional: &[] }).await?;
    }
    Ok(())
}
