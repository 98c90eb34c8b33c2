//! Settings of the project. One that the target has changed from its default is left as it is.

use serde_json::{Map, Value, json};

use crate::likeness::is_like;
use crate::objects::{fields, lacks, send};
use crate::references::rewrite;
use crate::report::Outcome;
use crate::server::Repeat;
use crate::state::Kind;
use crate::transfer::{Stop, Transfer};

/// Settings that are copied, with the values of a new project.
fn defaults() -> Value {
    json!({
        "timezone": "UTC", "anonymize_ips": false, "week_start_day": 0, "test_account_filters": [],
        "person_display_name_properties": null,
    })
}

/// What all flags of a project share, in Weir alone.
const OF_FLAGS: &str = "feature_flags/settings/";

/// Copies the settings.
pub(crate) async fn step(transfer: &mut Transfer) -> Result<(), Stop> {
    let path = transfer.target.path("");
    let now = transfer.target.server.get(&path).await?;
    let defaults = defaults();
    let names = ["timezone", "anonymize_ips", "week_start_day", "person_display_name_properties"];
    let mut wanted = fields(&transfer.source.settings, &names);
    let mut filters = Value::Object(fields(&transfer.source.settings, &["test_account_filters"]));
    let missing = rewrite(&mut filters, &transfer.state.ids);
    match (missing.is_empty(), filters) {
        (true, Value::Object(filters)) => wanted.extend(filters),
        _ => {
            let reason = lacks(&missing);
            transfer.report.note(Kind::Setting, Outcome::Left, "test_account_filters", reason);
        }
    }
    let mut changed = Map::new();
    for (name, value) in wanted {
        let there = now.get(&name).unwrap_or(&Value::Null);
        let is_default = defaults.get(&name) == Some(there);
        if is_like(&value, there) {
            transfer.report.count(Kind::Setting, Outcome::Same, 1);
        } else if is_default || transfer.options.is_update {
            changed.insert(name, value);
        } else {
            let reason = format!("it is {there}; --update changes it to what the source has");
            transfer.report.note(Kind::Setting, Outcome::Kept, &name, reason);
        }
    }
    // One by one, so that one that the target refuses keeps no other from coming.
    for (name, value) in changed {
        let body = Map::from_iter([(name.clone(), value)]);
        match send(transfer, "PATCH", &path, &body).await {
            Ok(_) => transfer.report.count(Kind::Setting, Outcome::Changed, 1),
            Err(fault) if fault.refusal().is_some() => {
                transfer.report.note(Kind::Setting, Outcome::Left, &name, fault.what.to_string());
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    of_flags(transfer).await
}

/// Copies the settings that all flags share, from a source that has them.
async fn of_flags(transfer: &mut Transfer) -> Result<(), Stop> {
    let names = ["property_matching_version", "minimal_flag_called_events"];
    let (source, target) = (transfer.source.path(OF_FLAGS), transfer.target.path(OF_FLAGS));
    let wanted = match transfer.source.server.get(&source).await {
        Ok(wanted) => fields(&wanted, &names),
        Err(fault) if fault.refusal().is_some() => return Ok(()),
        Err(fault) => return Err(fault.into()),
    };
    let now = transfer.target.server.get(&target).await?;
    let differs = wanted.iter().any(|(name, value)| now.get(name) != Some(value));
    if differs {
        let body = Value::Object(wanted);
        transfer.target.server.put("PATCH", &target, &body, Repeat::Always).await?;
        transfer.report.count(Kind::Setting, Outcome::Changed, 1);
    }
    Ok(())
}
