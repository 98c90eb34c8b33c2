//! Reads a `FunnelCorrelationQuery`: [`Correlation::parse`].

use serde_json::Value;

use crate::correlation::values::Wanted;
use crate::correlation::{Correlation, Of};
use crate::funnels::Funnels;
use crate::node::{Node, NodeError};

/// Most names of a list.
const NAMES_MAX: usize = 1000;

/// Most names of events whose properties are looked at.
const EVENTS_MAX: usize = 100;

/// Stands for all properties among their names.
const ALL: &str = "$all";

/// Kinds of the node that says which actors of the funnel are meant.
const SOURCES: [&str; 2] = ["FunnelsActorsQuery", "InsightActorsQuery"];

impl Correlation {
    /// Reads a `FunnelCorrelationQuery`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or asks for something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let node = Node::new(Some(query), "")?;
        let Some(source) = node.value("source") else {
            return Err(node.refuse("source", "Expected a FunnelsActorsQuery."));
        };
        let actors = Node::new(Some(source), "source")?;
        if actors.text("kind")?.is_some_and(|kind| !SOURCES.contains(&kind)) {
            return Err(actors.refuse("kind", "Expected a FunnelsActorsQuery."));
        }
        actors.without(&["funnelStepBreakdown", "funnelTrendsEntrancePeriodStart"])?;
        let Some(funnel) = actors.value("source") else {
            return Err(actors.refuse("source", "Expected a FunnelsQuery."));
        };
        let inner = Node::new(Some(funnel), "source.source")?;
        if inner.text("kind")?.is_some_and(|kind| kind != "FunnelsQuery") {
            return Err(inner.refuse("kind", "Expected a FunnelsQuery."));
        }
        let of = of(&node)?;
        let funnels = Funnels::parse(funnel)?.unsplit();
        funnels.check_unit()?;
        Ok(Self { passages: funnels.passages(&actors)?, funnels, of })
    }
}

fn of(node: &Node<'_>) -> Result<Of, NodeError> {
    match node.text("funnelCorrelationType")? {
        None | Some("events") => {
            Ok(Of::Events(texts(node, "funnelCorrelationExcludeEventNames", NAMES_MAX)?))
        }
        Some("event_with_properties") => {
            let names = texts(node, "funnelCorrelationEventNames", EVENTS_MAX)?;
            if names.is_empty() {
                let detail = "Event property correlation expects at least one event name to run correlation on.";
                return Err(node.refuse("funnelCorrelationEventNames", detail));
            }
            let excluded = texts(node, "funnelCorrelationEventExcludePropertyNames", NAMES_MAX)?;
            Ok(Of::EventValues(names, Wanted::all_but(excluded)))
        }
        Some("properties") => {
            let names = texts(node, "funnelCorrelationNames", NAMES_MAX)?;
            if names.is_empty() {
                let detail =
                    "Property correlation expects at least one property to run correlation on.";
                return Err(node.refuse("funnelCorrelationNames", detail));
            }
            let excluded = texts(node, "funnelCorrelationExcludeNames", NAMES_MAX)?;
            Ok(Of::Values(match names.iter().any(|name| name == ALL) {
                true => Wanted::all_but(excluded),
                false => Wanted::named(names, &excluded),
            }))
        }
        Some(_) => {
            let detail = "Expected events, properties or event_with_properties.";
            Err(node.refuse("funnelCorrelationType", detail))
        }
    }
}

/// The different texts of a list.
fn texts(node: &Node<'_>, name: &str, most: usize) -> Result<Vec<String>, NodeError> {
    let list = node.list(name)?;
    if list.len() > most {
        return Err(node.refuse(name, format!("Expected at most {most} names.")));
    }
    let text = |text: &Value| text.as_str().map(str::to_owned);
    let texts = list.iter().map(text).collect::<Option<Vec<_>>>();
    let mut texts = texts.ok_or_else(|| node.refuse(name, "Expected a list of names."))?;
    texts.sort_unstable();
    texts.dedup();
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{EVENTS_MAX, NAMES_MAX};
    use crate::correlation::Correlation;

    #[test]
    fn wrong_fields_are_named() {
        let funnel = json!({"kind": "FunnelsQuery", "series": [{"event": "a"}, {"event": "b"}]});
        let actors = json!({"kind": "FunnelsActorsQuery", "source": funnel});
        let of = |fields: Value| {
            let mut query = json!({"kind": "FunnelCorrelationQuery", "source": actors});
            query.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            query
        };
        let source = |fields: Value| {
            let mut query = of(json!({}));
            query["source"].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            query
        };
        let kind = |kind: &str, fields: Value| {
            let mut query = of(fields);
            query["funnelCorrelationType"] = json!(kind);
            query
        };
        let names = |count: usize| json!(vec!["x"; count]);
        for (query, field) in [
            (of(json!({})), None),
            (source(json!({"kind": null})), None),
            (kind("events", json!({"funnelCorrelationExcludeEventNames": names(NAMES_MAX)})), None),
            (kind("properties", json!({"funnelCorrelationNames": ["$all"]})), None),
            (kind("event_with_properties", json!({"funnelCorrelationEventNames": ["x"]})), None),
            (json!({}), Some("source")),
            (of(json!({"source": 1})), Some("source")),
            (source(json!({"kind": "TrendsQuery"})), Some("source.kind")),
            (source(json!({"source": null})), Some("source.source")),
            (source(json!({"source": {"kind": "TrendsQuery"}})), Some("source.source.kind")),
            (source(json!({"source": {"series": []}})), Some("series")),
            (source(json!({"funnelStep": 3})), Some("source.funnelStep")),
            (source(json!({"funnelStepBreakdown": "x"})), Some("source.funnelStepBreakdown")),
            (kind("x", json!({})), Some("funnelCorrelationType")),
            (kind("properties", json!({})), Some("funnelCorrelationNames")),
            (kind("event_with_properties", json!({})), Some("funnelCorrelationEventNames")),
            (
                kind(
                    "event_with_properties",
                    json!({"funnelCorrelationEventNames": names(EVENTS_MAX + 1)}),
                ),
                Some("funnelCorrelationEventNames"),
            ),
            (
                of(json!({"funnelCorrelationExcludeEventNames": names(NAMES_MAX + 1)})),
                Some("funnelCorrelationExcludeEventNames"),
            ),
            (
                of(json!({"funnelCorrelationExcludeEventNames": [1]})),
                Some("funnelCorrelationExcludeEventNames"),
            ),
            (
                kind(
                    "properties",
                    json!({"funnelCorrelationNames": ["x"], "funnelCorrelationExcludeNames": "x"}),
                ),
                Some("funnelCorrelationExcludeNames"),
            ),
        ] {
            let found = Correlation::parse(&query).err().map(|error| error.field);
            assert_eq!(found.as_deref(), field, "{query}");
        }
    }
}
