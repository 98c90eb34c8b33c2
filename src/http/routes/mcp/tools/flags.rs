//! Tools for feature flags: `flags_list`, `flag_explain`, and `flag_change`, which shows what it would do before it does
//! it.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::fields::Fields;
use crate::operation::input::InBody;
use crate::page::Page;
use crate::response::Problem;
use crate::routes::feature_flags;
use crate::routes::feature_flags::body::FlagWrite;
use crate::routes::feature_flags::filter::Filters;
use crate::routes::feature_flags::preview::{Apply, Preview};
use crate::routes::feature_flags::test_evaluation::{Test, TestEvaluation};
use crate::routes::mcp::said::{Grid, Said};
use crate::routes::mcp::talk::{Talk, limit, of_argument};
use weir_api::flags::{FlagPreview, TestedEvaluation};
use weir_api::insights::value::Number;
use weir_api::node::nearest::hint;
use weir_api::nodes::tools::{FlagChangeArguments, FlagExplainArguments, FlagsListArguments};
use weir_base::error::Kind;
use weir_metadata::flags::StoredFlag;
use weir_web::parts::{clipped, query};
use weir_web::sentences::conditions_text;
use weir_web::state::flag_filters::{FlagFilters, Variant};

/// Flags of a list, usual and most.
const FLAGS: (usize, usize) = (50, 200);

/// Most conditions of a flag that are shown.
const CONDITIONS_MAX: usize = 50;

/// The tool `flags_list`.
pub(in crate::routes::mcp) async fn list(
    talk: &Talk,
    own: FlagsListArguments,
) -> Result<Said, Problem> {
    let search = own.search.unwrap_or_default();
    let (most, offset) = (limit(own.limit, FLAGS.0, FLAGS.1), own.offset.unwrap_or_default());
    let (filters, page) = (Filters::searching(&search), Page { limit: most, offset });
    let found = talk.asking.perform(feature_flags::List { filters, order: None, page }).await?;
    let count = found.count;
    let rows = found.rows.into_values().into_iter().map(|own| {
        let filters = FlagFilters::of(&own.filters);
        vec![
            json!(own.key),
            json!(own.id),
            json!(own.active),
            json!(conditions_text(&filters.conditions)),
            json!(variants(&filters.variants)),
            json!(own.status),
            json!(own.name),
        ]
    });
    let head = ["key", "id", "active", "conditions", "variants", "status", "description"];
    let mut grid = Grid::new("", &head, rows, most);
    grid.total = Some(count);
    let query = query(&[("search", &search)]);
    let path = if query.is_empty() { String::new() } else { format!("?{query}") };
    let said = Said::new(format!("{count} flags")).with(grid);
    Ok(said.at(talk.page(&format!("feature_flags{path}"))))
}

/// The variants of a flag in short.
fn variants(all: &[Variant]) -> String {
    let one = |own: &Variant| format!("{} {} %", own.key, own.percent);
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The flag of this key or id.
fn flag_of(talk: &Talk, sent: Option<&str>) -> Result<Arc<StoredFlag>, Problem> {
    let wanted = sent.unwrap_or_default();
    let snapshot = talk.asking.app.node.metadata.snapshot();
    let flags = snapshot.flags(talk.asking.asker.project.id);
    let by_key = flags.iter().find(|flag| flag.key == wanted);
    let by_id = || flags.iter().find(|flag| wanted.parse() == Ok(flag.id.0));
    by_key.or_else(by_id).cloned().ok_or_else(|| {
        let known: Vec<String> = flags.iter().map(|flag| flag.key.clone()).collect();
        let shown = clipped(wanted, 200);
        of_argument("flag", format!("There is no flag \"{shown}\".{}", hint(&shown, &known)))
    })
}

/// The tool `flag_explain`.
pub(in crate::routes::mcp) async fn explain(
    talk: &Talk,
    own: FlagExplainArguments,
) -> Result<Said, Problem> {
    let flag = flag_of(talk, own.flag.as_deref())?;
    let distinct_id = own.distinct_id.unwrap_or_default();
    let question = TestEvaluation::of(distinct_id.clone());
    let tested = talk.asking.perform(Test { id: flag.id.0, question }).await?;
    let TestedEvaluation { conditions, reason, reason_description, result, payload, .. } = tested;
    let value = serde_json::to_value(&result).unwrap_or_default();
    let title =
        format!("{} is {value} for {}: {reason_description}", flag.key, clipped(&distinct_id, 200));
    let properties = conditions.iter().flat_map(|condition| {
        let index = condition.index;
        condition.properties.iter().map(move |own| {
            vec![
                json!(index),
                own.key.clone(),
                own.operator.clone(),
                own.value.clone(),
                own.actual_value.clone(),
                json!(own.matched),
                json!(own.explanation),
            ]
        })
    });
    let head = ["condition", "property", "operator", "wanted", "actual", "matches", "explanation"];
    let properties = Grid::new("Filters of the conditions", &head, properties, CONDITIONS_MAX);
    let rows = conditions.iter().map(|own| {
        vec![
            json!(own.index),
            json!(own.matched),
            json!(own.properties_matched),
            json!(own.rollout_percentage),
            json!(own.rollout_excluded),
            json!(own.variant),
            json!(own.explanation),
        ]
    });
    let head = [
        "condition",
        "decides",
        "filters match",
        "percent",
        "left out by percent",
        "variant",
        "explanation",
    ];
    let said = Said::new(title).with(Grid::new("Conditions", &head, rows, CONDITIONS_MAX));
    let path = format!("feature_flags/{}?{}", flag.id.0, query(&[("distinct_id", &distinct_id)]));
    Ok(said
        .with(properties)
        .having("value", value)
        .having("payload", payload)
        .having("reason", json!(reason))
        .at(talk.page(&path)))
}

/// The tool `flag_change`.
pub(in crate::routes::mcp) async fn change(
    talk: &Talk,
    own: FlagChangeArguments,
) -> Result<Said, Problem> {
    let flag = flag_of(talk, own.flag.as_deref())?;
    let token = own.token.clone();
    let fields = fields_of(&flag, own)?;
    let sent = || FlagWrite::take(&mut Fields::from(fields.clone()));
    let id = flag.id.0;
    let preview = talk.asking.perform(Preview { id, flag: sent()? }).await?;
    let claim = claim(talk, id, (&preview, &fields));
    let page = talk.page(&format!("feature_flags/{id}"));
    let Some(token) = token else {
        if preview.changes.is_empty() {
            return Ok(
                Said::new(format!("Nothing would change: {} is so already.", flag.key)).at(page)
            );
        }
        let token = talk.seal.token(&claim);
        let note = format!(
            "Nothing is changed yet. Show this to the user. With their consent call flag_change again with the same \
             arguments and token \"{token}\" within 15 minutes."
        );
        let title = format!("What would change of {}, version {}", flag.key, preview.version);
        let said = Said::new(title).with(differences(&preview)).noting(note);
        return Ok(said.having("token", json!(token)).having("changed", json!(false)).at(page));
    };
    if let Err(refused) = talk.seal.check(&token, &claim) {
        return Err(Problem::new(Kind::Invalid, "invalid_token", refused.to_string()));
    }
    let apply = Apply { id, version: preview.version, flag: sent()? };
    let after = talk.asking.perform(apply).await?;
    let title = format!("Changed {}, which has version {} now", after.key, after.version);
    let said = Said::new(title).with(differences(&preview)).having("changed", json!(true));
    Ok(said.having("version", json!(after.version)).at(page))
}

/// What a token stands for: exactly this change of this version, by this caller.
fn claim(talk: &Talk, flag: i64, (preview, change): (&FlagPreview, &Map<String, Value>)) -> Value {
    let asker = &talk.asking.asker;
    json!({
        "project": asker.project.id.0, "key": asker.key.id.0, "user": asker.user.id.0, "flag": flag,
        "version": preview.version, "change": change,
    })
}

fn differences(preview: &FlagPreview) -> Grid {
    let rows = preview.changes.iter().map(|own| {
        // The API calls the description of a flag its name.
        let field = if own.field == "name" { "description" } else { &own.field };
        vec![json!(field), own.before.clone(), own.after.clone()]
    });
    Grid::new("", &["field", "before", "after"], rows, CONDITIONS_MAX)
}

/// The change as the API has it.
fn fields_of(flag: &StoredFlag, own: FlagChangeArguments) -> Result<Map<String, Value>, Problem> {
    let rollout = rollout(flag, own.rollout_percentage, own.condition)?;
    let filters = match (own.filters, rollout) {
        (Some(_), Some(_)) => {
            let detail = "filters have the percentages of their conditions: send one of both.";
            return Err(of_argument("rollout_percentage", detail));
        }
        (filters, rollout) => filters.or(rollout),
    };
    let fields = [
        ("active", own.active.map(Value::from)),
        ("filters", filters),
        ("name", own.description.map(Value::from)),
        ("tags", own.tags.map(Value::from)),
        ("archived", own.archived.map(Value::from)),
        ("deleted", own.deleted.map(Value::from)),
    ];
    let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let given: Map<String, Value> = given.collect();
    if given.is_empty() {
        let detail = "Say what to change: active, rollout_percentage, filters, description, tags, archived or deleted.";
        return Err(Problem::new(Kind::Invalid, "invalid_input", detail));
    }
    Ok(given)
}

/// The filters with another percentage of one condition.
fn rollout(
    flag: &StoredFlag,
    part: Option<f64>,
    condition: Option<usize>,
) -> Result<Option<Value>, Problem> {
    let Some(part) = part else {
        return match condition {
            None => Ok(None),
            Some(_) => {
                Err(of_argument("condition", "It is of rollout_percentage, which is missing."))
            }
        };
    };
    let groups = flag.filters.get("groups").and_then(Value::as_array);
    let mut groups = groups.cloned().unwrap_or_default();
    let at = match (condition, groups.len()) {
        (Some(at), count) if at < count => at,
        (None, 1) => 0,
        (_, count) => {
            let detail =
                format!("The flag has {count} conditions: send the number of one, from 0.");
            return Err(of_argument("condition", detail));
        }
    };
    if let Some(Value::Object(group)) = groups.get_mut(at) {
        let part = serde_json::to_value(Number(part));
        group.insert("rollout_percentage".to_owned(), part.unwrap_or_default());
    }
    Ok(Some(json!({"groups": groups})))
}
