//! Parses a `FunnelCorrelationQuery`: [`Correlation::parse`].

use serde_json::Value;

use crate::correlation::values::Wanted;
use crate::correlation::{Correlation, Of};
use crate::funnels::Funnels;
use weir_api::node::{NodeError, join};
use weir_api::nodes::check::parse;
use weir_api::nodes::correlation::{CorrelationType, FunnelCorrelationQuery};

/// Most names in a list.
const NAMES_MAX: usize = 1000;

/// Most event names for correlations with event properties.
const EVENTS_MAX: usize = 100;

/// Represents all properties in a list of names.
const ALL: &str = "$all";

impl Correlation {
    /// Parses a `FunnelCorrelationQuery`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or requests something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        check_kinds(query)?;
        let sent = parse::<FunnelCorrelationQuery>(query)?;
        let of = of(&sent)?;
        let Some(mut actors) = sent.source else {
            return Err(NodeError::new("source", "Expected a FunnelsActorsQuery."));
        };
        let unavailable = [
            ("funnelStepBreakdown", actors.funnel_step_breakdown.is_some()),
            (
                "funnelTrendsEntrancePeriodStart",
                actors.funnel_trends_entrance_period_start.is_some(),
            ),
        ];
        if let Some((name, _)) = unavailable.into_iter().find(|(_, is_sent)| *is_sent) {
            let detail = format!("{name} is not available.");
            return Err(NodeError::new(join("source", name), detail));
        }
        let Some(funnel) = actors.source.take() else {
            return Err(NodeError::new("source.source", "Expected a FunnelsQuery."));
        };
        let funnels = Funnels::of(funnel)?.unsplit();
        funnels.check_unit()?;
        Ok(Self { passages: funnels.passages(&actors, "source")?, funnels, of })
    }
}

/// Checks the kinds of the source node and of its funnel, which may be absent.
fn check_kinds(query: &Value) -> Result<(), NodeError> {
    for (path, pointer, known) in [
        ("source", "/source/kind", &["FunnelsActorsQuery", "InsightActorsQuery"][..]),
        ("source.source", "/source/source/kind", &["FunnelsQuery"]),
    ] {
        let kind = query.pointer(pointer).filter(|kind| !kind.is_null());
        if kind.is_some_and(|kind| !kind.as_str().is_some_and(|kind| known.contains(&kind))) {
            let detail = format!("Expected a {}.", known.first().copied().unwrap_or_default());
            return Err(NodeError::new(join(path, "kind"), detail));
        }
    }
    Ok(())
}

fn of(sent: &FunnelCorrelationQuery) -> Result<Of, NodeError> {
    match sent.correlation_type.unwrap_or(CorrelationType::Events) {
        CorrelationType::Events => {
            let excluded = &sent.exclude_event_names;
            Ok(Of::Events(different(excluded, "funnelCorrelationExcludeEventNames", NAMES_MAX)?))
        }
        CorrelationType::EventWithProperties => {
            const NAME: &str = "funnelCorrelationEventNames";
            let names = different(&sent.event_names, NAME, EVENTS_MAX)?;
            if names.is_empty() {
                let detail = "Event property correlation expects at least one event name to run correlation on.";
                return Err(NodeError::new(NAME, detail));
            }
            let field = "funnelCorrelationEventExcludePropertyNames";
            let excluded = different(&sent.event_exclude_property_names, field, NAMES_MAX)?;
            Ok(Of::EventValues(names, Wanted::all_but(excluded)))
        }
        CorrelationType::Properties => {
            const NAME: &str = "funnelCorrelationNames";
            let names = different(&sent.names, NAME, NAMES_MAX)?;
            if names.is_empty() {
                let detail =
                    "Property correlation expects at least one property to run correlation on.";
                return Err(NodeError::new(NAME, detail));
            }
            let field = "funnelCorrelationExcludeNames";
            let excluded = different(&sent.exclude_names, field, NAMES_MAX)?;
            Ok(Of::Values(match names.iter().any(|name| name == ALL) {
                true => Wanted::all_but(excluded),
                false => Wanted::named(names, &excluded),
            }))
        }
    }
}

/// Deduplicates the names of a field, of which there may be at most `most`.
fn different(names: &[String], field: &str, most: usize) -> Result<Vec<String>, NodeError> {
    if names.len() > most {
        return Err(NodeError::new(field, format!("Expected at most {most} names.")));
    }
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    Ok(names)
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
