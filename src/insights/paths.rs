//! Paths: which steps follow one another. [`Paths`] is a parsed request. One scan reads the steps of each actor:
//! `items` names the steps, `walk` splits them into sessions and cuts these, `edges` counts transitions between
//! steps, and `actors` lists the persons behind a step. Paths may be restricted to those around a step of a funnel.
//! The rules are those of PostHog's paths.

mod actors;
mod answer;
mod edges;
mod items;
pub mod legacy;
mod walk;

use std::sync::Arc;

use serde_json::Value;

use crate::dependence::Dependence;
use crate::entity::Entity;
use crate::funnels::Funnels;
use crate::funnels::passage::Stretches;
use crate::interval::Interval;
use crate::paths::edges::Shown;
use crate::paths::items::{Rules, field, without_slash};
use crate::selection::{Selection, Unit};
use weir_api::node::NodeError;
use weir_api::nodes::check::parse;
use weir_api::nodes::paths::{FunnelPathsFilter, PathsQuery};
use weir_query::dialect::expression::Expression;
use weir_query::kernel::error::QueryError;

/// Default number of steps of a path (PostHog's figure).
const STEPS: usize = 5;

/// Most steps of a path that a request can set.
const STEPS_MAX: usize = 100;

/// Default number of edges in a response (PostHog's figure).
const EDGES: usize = 50;

/// Most edges that a request can set.
const EDGES_MAX: usize = 2000;

/// The event name of page views, the item of which is the URL.
const PAGEVIEW: &str = "$pageview";

/// The event name of screen views, the item of which is the screen's name.
const SCREEN: &str = "$screen";

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Paths {
    selection: Selection,
    kinds: Kinds,
    rules: Arc<Rules>,
    start: Option<String>,
    end: Option<String>,
    steps_max: usize,
    shown: Shown,
    keys: Keys,
    around: Option<Around>,
    /// The expression that names steps other than pages and screens.
    expression: Option<Expression>,
}

/// Restricts paths to those around a step of a funnel.
#[derive(Clone, Debug)]
struct Around {
    funnels: Funnels,
    stretches: Stretches,
}

/// Which events are steps. If none is set, all are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kinds {
    pages: bool,
    screens: bool,
    /// Events whose name does not begin with a dollar sign.
    custom: bool,
    /// An expression names the steps that are not pages or screens; it does not restrict the events by itself.
    expression: bool,
}

/// Selects actors by a transition from one node to another, or by the node at which their path ended.
#[derive(Clone, Debug, Default)]
struct Keys {
    start: Option<Key>,
    end: Option<Key>,
    dropoff: Option<Key>,
}

/// A node of the graph: the position of a step in its path, from 1 on, and its item.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    place: usize,
    item: String,
}

impl Paths {
    /// Parses a `PathsQuery`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or requests something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let sent = parse::<PathsQuery>(query)?;
        let options = sent.paths_filter;
        let number = |(name, sent): (&str, Option<usize>), usual: usize, most: usize| {
            let number = Some(sent.unwrap_or(usual)).filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| NodeError::new(field(name), format!("Expected 1 to {most}.")))
        };
        let weight = |sent: Option<usize>| sent.map(|own| u64::try_from(own).unwrap_or(u64::MAX));
        let point = |text: Option<&str>| text.map(|text| without_slash(text).to_owned());
        let selection = Selection::of(sent.base)?;
        let kinds = Kinds::of(&options.include_event_types)?;
        let around = sent.funnel_paths_filter.filter(|own| *own != FunnelPathsFilter::default());
        Ok(Self {
            expression: expression(options.paths_hogql_expression.as_deref(), kinds)?,
            around: around.map(|own| Around::of(own, selection.unit)).transpose()?,
            selection,
            kinds,
            start: point(options.start_point.as_deref()),
            end: point(options.end_point.as_deref()),
            steps_max: number(("stepLimit", options.step_limit), STEPS, STEPS_MAX)?,
            shown: Shown {
                edges_max: number(("edgeLimit", options.edge_limit), EDGES, EDGES_MAX)?,
                count_min: weight(options.min_edge_weight).unwrap_or(0),
                count_max: weight(options.max_edge_weight).unwrap_or(u64::MAX),
            },
            keys: Keys {
                start: Key::of(options.path_start_key.as_deref(), "pathStartKey")?,
                end: Key::of(options.path_end_key.as_deref(), "pathEndKey")?,
                dropoff: Key::of(options.path_dropoff_key.as_deref(), "pathDropoffKey")?,
            },
            rules: Arc::new(Rules::of(options)?),
        })
    }

    /// Its selection: dates, filters and unit.
    pub fn selection_mut(&mut self) -> &mut Selection {
        &mut self.selection
    }

    /// The entities that it names: those of its funnel.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.around.iter().flat_map(|around| around.funnels.entities())
    }
}

impl Around {
    fn of(sent: FunnelPathsFilter, unit: Unit) -> Result<Self, NodeError> {
        const SOURCE: &str = "funnelPathsFilter.funnelSource";
        let Some(source) = sent.funnel_source else {
            return Err(NodeError::new(SOURCE, "This field is required."));
        };
        let funnels = Funnels::of(source).map_err(|error| error.within(SOURCE))?.unsplit();
        funnels.check_unit().map_err(|error| NodeError::new(SOURCE, error.detail))?;
        if funnels.unit() != unit {
            let detail = "Paths and their funnel are of the same: persons, or groups of one type.";
            return Err(NodeError::new(SOURCE, detail));
        }
        let stretches = funnels.stretches(sent.funnel_path_type, sent.funnel_step)?;
        Ok(Self { stretches, funnels })
    }
}

/// The expression that names steps. It is used if no kinds are chosen, or if it is one of them.
fn expression(text: Option<&str>, kinds: Kinds) -> Result<Option<Expression>, NodeError> {
    let Some(text) = text else { return Ok(None) };
    let wrong =
        |error: QueryError| NodeError::new(field("pathsHogQLExpression"), error.to_string());
    let parsed = Expression::parse(text).map_err(wrong)?;
    Ok(Some(parsed).filter(|_| kinds.expression || kinds == Kinds::default()))
}

impl Kinds {
    /// Whether page views are named by their URLs.
    fn has_addresses(self) -> bool {
        self.pages || self == Self::default()
    }

    /// Whether screen views are named by their screens.
    fn has_screens(self) -> bool {
        self.screens || self == Self::default()
    }

    fn of(sent: &[String]) -> Result<Self, NodeError> {
        let mut kinds = Self::default();
        for kind in sent {
            match kind.as_str() {
                PAGEVIEW => kinds.pages = true,
                SCREEN => kinds.screens = true,
                "custom_event" => kinds.custom = true,
                "hogql" => kinds.expression = true,
                _ => {
                    let detail = "Expected some of $pageview, $screen, custom_event, hogql.";
                    return Err(NodeError::new(field("includeEventTypes"), detail));
                }
            }
        }
        Ok(kinds)
    }
}

impl Key {
    fn of(text: Option<&str>, name: &str) -> Result<Option<Self>, NodeError> {
        let Some(text) = text else { return Ok(None) };
        let key = text.split_once('_').and_then(|(place, item)| {
            let place = place.parse().ok().filter(|place| *place > 0)?;
            Some(Self { place, item: item.to_owned() })
        });
        let detail = "Expected a place and the item there, such as 2_/pricing.";
        key.map(Some).ok_or_else(|| NodeError::new(field(name), detail))
    }
}

impl Paths {
    /// Adds the dependencies of its result.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        let Self {
            selection,
            kinds: _,
            rules: _,
            start: _,
            end: _,
            steps_max: _,
            shown: _,
            keys: _,
            around,
            expression,
        } = self;
        on.selection(selection, Interval::Day);
        if let Some(Around { funnels, stretches: _ }) = around {
            funnels.depend(on);
        }
        expression.iter().for_each(|expression| on.expression(expression));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Key, Kinds, Paths};

    #[test]
    fn what_is_sent_is_read() {
        let paths = Paths::parse(&json!({"kind": "PathsQuery"})).unwrap();
        assert_eq!(
            (paths.steps_max, paths.shown.edges_max, paths.kinds),
            (5, 50, Kinds::default())
        );
        let paths = Paths::parse(&json!({"pathsFilter": {
            "includeEventTypes": ["$screen", "custom_event"], "startPoint": "/a/", "endPoint": "/", "stepLimit": "7",
            "edgeLimit": 3, "minEdgeWeight": 2, "pathDropoffKey": "12_a_b/", "pathReplacements": true,
            "pathsHogQLExpression": null,
        }}));
        let paths = paths.unwrap();
        let kinds = Kinds { screens: true, custom: true, ..Kinds::default() };
        assert_eq!((paths.kinds, paths.expression), (kinds, None));
        assert_eq!((paths.start.as_deref(), paths.end.as_deref()), (Some("/a"), Some("/")));
        let shown = (paths.shown.edges_max, paths.shown.count_min, paths.shown.count_max);
        assert_eq!((paths.steps_max, shown), (7, (3, 2, u64::MAX)));
        assert_eq!(paths.keys.dropoff, Some(Key { place: 12, item: "a_b/".to_owned() }));
    }

    #[test]
    fn an_expression_names_steps_where_its_kind_is_chosen() {
        for (kinds, is_used) in [
            (json!([]), true),
            (json!(["hogql"]), true),
            (json!(["hogql", "$screen"]), true),
            (json!(["custom_event"]), false),
        ] {
            let filter =
                json!({"includeEventTypes": kinds, "pathsHogQLExpression": "properties.plan"});
            let paths = Paths::parse(&json!({"pathsFilter": filter})).unwrap();
            assert_eq!(paths.expression.is_some(), is_used, "{kinds}");
        }
    }

    #[test]
    fn what_is_wrong_or_not_available_is_told_by_its_field() {
        let two = json!([{"event": "a"}, {"event": "b"}]);
        let around = |source: serde_json::Value, step: i64| {
            json!({"funnelPathsFilter": {
            "funnelSource": source, "funnelPathType": "funnel_path_after_step", "funnelStep": step}})
        };
        assert!(Paths::parse(&around(json!({"series": two}), -2)).unwrap().around.is_some());
        assert!(Paths::parse(&json!({"funnelPathsFilter": {}})).unwrap().around.is_none());
        for (query, field) in [
            (json!({"funnelPathsFilter": {"funnelStep": 1}}), "funnelPathsFilter.funnelSource"),
            (
                around(json!({"series": [{"event": 1}]}), 1),
                "funnelPathsFilter.funnelSource.series.0.event",
            ),
            (around(json!({"series": []}), 1), "funnelPathsFilter.funnelSource.series"),
            (
                around(json!({"series": two, "aggregation_group_type_index": 0}), 1),
                "funnelPathsFilter.funnelSource",
            ),
            (around(json!({"series": two}), 3), "funnelPathsFilter.funnelStep"),
            (json!({"pathsFilter": []}), "pathsFilter"),
            (
                json!({"pathsFilter": {"pathsHogQLExpression": "event FROM persons"}}),
                "pathsFilter.pathsHogQLExpression",
            ),
            (
                json!({"pathsFilter": {"pathsHogQLExpression": "(SELECT 1 FROM persons)"}}),
                "pathsFilter.pathsHogQLExpression",
            ),
            (json!({"pathsFilter": {"includeEventTypes": ["x"]}}), "pathsFilter.includeEventTypes"),
            (
                json!({"pathsFilter": {"includeEventTypes": "$screen"}}),
                "pathsFilter.includeEventTypes",
            ),
            (json!({"pathsFilter": {"startPoint": 1}}), "pathsFilter.startPoint"),
            (json!({"pathsFilter": {"stepLimit": 0}}), "pathsFilter.stepLimit"),
            (json!({"pathsFilter": {"stepLimit": 101}}), "pathsFilter.stepLimit"),
            (json!({"pathsFilter": {"edgeLimit": 2001}}), "pathsFilter.edgeLimit"),
            (json!({"pathsFilter": {"minEdgeWeight": -1}}), "pathsFilter.minEdgeWeight"),
            (json!({"pathsFilter": {"pathStartKey": "a"}}), "pathsFilter.pathStartKey"),
            (json!({"pathsFilter": {"pathEndKey": "0_a"}}), "pathsFilter.pathEndKey"),
            (json!({"pathsFilter": {"pathReplacements": 3}}), "pathsFilter.pathReplacements"),
            (json!({"samplingFactor": 0.5}), "samplingFactor"),
            (json!({"aggregation_group_type_index": 9}), "aggregation_group_type_index"),
        ] {
            assert_eq!(Paths::parse(&query).unwrap_err().field, field, "{query}");
        }
    }
}
