//! Parses a `FunnelsQuery`: [`Funnels::parse`].

use serde_json::Value;

use crate::breakdown::Breakdown;
use crate::entity::Entity;
use crate::funnels::split::Attribution;
use crate::funnels::walk::{Counted, Course, Exclusion};
use crate::funnels::{Funnels, Shown};
use crate::interval::Interval;
use crate::selection::{Selection, Unit};
use crate::series::First;
use weir_api::node::{NodeError, join};
use weir_api::nodes::check::parse;
use weir_api::nodes::insights::{
    AttributionType, FunnelOrderType, FunnelVizType, FunnelsFilter, FunnelsQuery, WindowUnit,
};
use weir_api::nodes::series as nodes;
use weir_query::dialect::expression::Expression;

/// Most steps.
pub(super) const STEPS_MAX: usize = 20;

/// Most exclusions: the mask has this many bits besides those of steps.
const EXCLUSIONS_MAX: usize = 12;

/// Default length of the conversion window, in days (PostHog's figure).
const WINDOW_DEFAULT: usize = 14;

/// Longest conversion window, in days.
const WINDOW_MAX_DAYS: i64 = 3660;

/// Most bins of a time-to-convert histogram that a request can set (PostHog's figure).
const BINS_MAX: usize = 90;

/// Actor expressions that mean persons, which are the default.
const OF_PERSONS: [&str; 2] = ["person_id", "person.id"];

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

impl Funnels {
    /// Parses a `FunnelsQuery`.
    ///
    /// # Errors
    ///
    /// A field is malformed, or requests something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        Self::of(parse::<FunnelsQuery>(query)?)
    }

    /// Converts a decoded `FunnelsQuery`.
    ///
    /// # Errors
    ///
    /// A field requests something that is not available.
    pub fn of(sent: FunnelsQuery) -> Result<Self, NodeError> {
        let FunnelsQuery { base, series, interval, funnels_filter: options, breakdown_filter } =
            sent;
        if series.is_empty() || series.len() > STEPS_MAX {
            return Err(NodeError::new("series", format!("Expected 1 to {STEPS_MAX} steps.")));
        }
        let is_optional: Vec<bool> = series.iter().map(|step| step.optional_in_funnel).collect();
        let firsts: Vec<Option<First>> =
            series.iter().map(|step| step.math.as_deref().and_then(First::of)).collect();
        let step =
            |(step, at): (nodes::Series, usize)| Entity::of(step.base, &format!("series.{at}"));
        let steps = series.into_iter().zip(0..).map(step).collect::<Result<Vec<_>, _>>()?;
        let order = options.order_type.unwrap_or(FunnelOrderType::Ordered);
        let selection = Selection::of(base)?;
        let shown = match options.viz_type {
            None | Some(FunnelVizType::Steps) => Shown::Steps,
            Some(FunnelVizType::TimeToConvert) => {
                Shown::TimeToConvert(options.bin_count.map(|bins| bins.clamp(1, BINS_MAX)))
            }
            Some(FunnelVizType::Trends) => Shown::Trends,
        };
        let between = between(&options, steps.len())?;
        let attribution = attribution(&options, order, steps.len())?;
        let actor = actor(options.aggregate_by_hogql.as_deref(), (&selection, &firsts))?;
        let window = window(&options)?;
        let (exclusions, spoilers) = exclusions(options.exclusions, order, &steps)?;
        let course = Course {
            order,
            steps: steps.len(),
            optional: optional(&is_optional, (&steps, order, shown))?,
            window,
            exclusions: spoilers,
            attributed: None,
            counted: Counted::Once,
        };
        if shown != Shown::Steps && steps.len() < 2 {
            return Err(NodeError::new("series", "Expected two steps at least."));
        }
        Ok(Self {
            between,
            attribution,
            actor,
            selection,
            interval: Interval::parse(interval.as_deref())?,
            breakdown: Breakdown::unpaged(breakdown_filter)?,
            steps,
            firsts,
            exclusions,
            course,
            shown,
        })
    }
}

/// The error for a field of `funnelsFilter`.
fn refused(name: &str, detail: impl Into<String>) -> NodeError {
    NodeError::new(format!("funnelsFilter.{name}"), detail)
}

/// Parses the expression that identifies actors; `None` for persons and groups.
fn actor(
    text: Option<&str>,
    (selection, firsts): (&Selection, &[Option<First>]),
) -> Result<Option<Expression>, NodeError> {
    let refused = |detail: String| refused("funnelAggregateByHogQL", detail);
    let Some(text) = text.filter(|text| !OF_PERSONS.contains(text)) else { return Ok(None) };
    if selection.unit != Unit::Persons {
        let detail = "A funnel is of groups or of what an expression says, not of both.";
        return Err(refused(detail.to_owned()));
    }
    if firsts.iter().any(Option::is_some) {
        return Err(refused("First times are of persons and groups alone.".to_owned()));
    }
    let parsed = Expression::parse(text);
    parsed.map(Some).map_err(|error| refused(error.to_string()))
}

/// The bit mask of optional steps.
fn optional(
    is_optional: &[bool],
    (steps, order, shown): (&[Entity], FunnelOrderType, Shown),
) -> Result<u32, NodeError> {
    let refused = |at: usize, detail: &str| {
        Err(NodeError::new(format!("series.{at}.optionalInFunnel"), detail))
    };
    let mut optional = 0_u32;
    for (at, _) in is_optional.iter().enumerate().filter(|(_, own)| **own) {
        if at == 0 {
            return refused(at, "The first step cannot be optional.");
        }
        if order == FunnelOrderType::Unordered || shown != Shown::Steps {
            let detail =
                "Only ordered and strict funnels that are shown as steps have optional steps.";
            return refused(at, detail);
        }
        optional |= 1 << at;
    }
    for ((own, next), at) in steps.iter().zip(steps.iter().skip(1)).zip(0_usize..) {
        let is_optional = |step: usize| optional >> step & 1 == 1;
        if is_optional(at) && !is_optional(at + 1) && contains(next, own) {
            let detail = "Every event of this optional step is one of the required step after it.";
            return refused(at, detail);
        }
    }
    Ok(optional)
}

/// The length of the conversion window in microseconds. A month has 31 days.
fn window(options: &FunnelsFilter) -> Result<i64, NodeError> {
    let count = options.window_interval.unwrap_or(WINDOW_DEFAULT);
    let seconds = match options.window_interval_unit.unwrap_or(WindowUnit::Day) {
        WindowUnit::Second => 1,
        WindowUnit::Minute => 60,
        WindowUnit::Hour => 3600,
        WindowUnit::Day => SECONDS_PER_DAY,
        WindowUnit::Week => 7 * SECONDS_PER_DAY,
        WindowUnit::Month => 31 * SECONDS_PER_DAY,
    };
    let length = i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(seconds);
    if count == 0 || length > WINDOW_MAX_DAYS * SECONDS_PER_DAY {
        let detail = format!("Expected a window of at most {WINDOW_MAX_DAYS} days.");
        return Err(refused("funnelWindowInterval", detail));
    }
    Ok(length.saturating_mul(MICROS_PER_SECOND))
}

/// The steps between which conversion is measured.
fn between(options: &FunnelsFilter, steps: usize) -> Result<(usize, usize), NodeError> {
    let last = steps.saturating_sub(1);
    let from = options.from_step.unwrap_or(0);
    let to = options.to_step.unwrap_or(last);
    if to > last {
        let detail = format!("Expected at most {last}: the last step, counted from 0.");
        return Err(refused("funnelToStep", detail));
    }
    if from >= to && steps > 1 {
        return Err(refused("funnelFromStep", "Expected a step before funnelToStep."));
    }
    Ok((from, to))
}

fn attribution(
    options: &FunnelsFilter,
    order: FunnelOrderType,
    steps: usize,
) -> Result<Attribution, NodeError> {
    match options.breakdown_attribution_type {
        None | Some(AttributionType::First) => Ok(Attribution::First),
        Some(AttributionType::Last) => Ok(Attribution::Last),
        Some(AttributionType::All) => Ok(Attribution::All),
        Some(AttributionType::Step) => {
            let step = options.breakdown_attribution_value.unwrap_or(0);
            if step >= steps {
                let detail = format!("Expected a step from 0 to {}.", steps.saturating_sub(1));
                return Err(refused("breakdownAttributionValue", detail));
            }
            if order == FunnelOrderType::Unordered && step != 0 {
                let detail = "Only the first step can be used for breakdown attribution in unordered funnels";
                return Err(refused("breakdownAttributionValue", detail));
            }
            Ok(Attribution::Step(step))
        }
    }
}

/// Parses the exclusions: their events, and the steps between which they apply.
fn exclusions(
    sent: Vec<nodes::Exclusion>,
    order: FunnelOrderType,
    steps: &[Entity],
) -> Result<(Vec<Entity>, Vec<Exclusion>), NodeError> {
    if sent.len() > EXCLUSIONS_MAX {
        return Err(refused(
            "exclusions",
            format!("Expected at most {EXCLUSIONS_MAX} exclusions."),
        ));
    }
    let last = steps.len().saturating_sub(1);
    let mut entities = Vec::with_capacity(sent.len());
    let mut exclusions = Vec::with_capacity(sent.len());
    for (exclusion, at) in sent.into_iter().zip(0_usize..) {
        let path = format!("funnelsFilter.exclusions.{at}");
        let refuse = |name: &str, detail: &str| NodeError::new(join(&path, name), detail);
        let step = |step: Option<usize>, name: &str| {
            step.ok_or_else(|| refuse(name, "An exclusion needs the step before and after it."))
        };
        let from = step(exclusion.from_step, "funnelFromStep")?;
        let to = step(exclusion.to_step, "funnelToStep")?;
        if from >= to {
            let detail = "The step before an exclusion must be an earlier one than that after it.";
            return Err(refuse("funnelFromStep", detail));
        }
        if to > last {
            let detail = format!("Expected at most {last}: the last step, counted from 0.");
            return Err(refuse("funnelToStep", &detail));
        }
        if order == FunnelOrderType::Unordered && (from, to) != (0, last) {
            let detail = "Partial Exclusions not allowed in unordered funnels";
            return Err(refuse("funnelFromStep", detail));
        }
        let entity = Entity::of(exclusion.base, &path)?;
        if steps.iter().take(to + 1).skip(from).any(|step| contains(&entity, step)) {
            let detail = "Exclusion steps cannot contain an event that's part of funnel steps.";
            return Err(refuse("event", detail));
        }
        entities.push(entity);
        exclusions.push(Exclusion { mask: 1 << (STEPS_MAX + at), from, to });
    }
    Ok((entities, exclusions))
}

/// Whether every event of `second` also matches `first`, as far as a comparison of their filters shows.
fn contains(first: &Entity, second: &Entity) -> bool {
    let list = |entity: &Entity| match entity.properties() {
        Value::Array(list) => list.clone(),
        other => vec![other.clone()],
    };
    let filters = list(second);
    let is_name = match (first.action, second.action) {
        (None, None) => first.event.is_none() || first.event == second.event,
        (one, other) => one == other,
    };
    is_name && list(first).iter().all(|filter| filters.contains(filter))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::funnels::Funnels;

    fn query(options: Value) -> Value {
        json!({
            "kind": "FunnelsQuery", "funnelsFilter": options,
            "series": [{"event": "a"}, {"event": "b", "properties": [{"key": "k", "value": 1}]}, {"event": "c"}],
        })
    }

    #[test]
    fn windows_have_a_unit() {
        let day = 86_400_000_000;
        for (options, expected) in [
            (json!({}), Ok(14 * day)),
            (json!({"funnelWindowInterval": 2}), Ok(2 * day)),
            (
                json!({"funnelWindowInterval": 30, "funnelWindowIntervalUnit": "second"}),
                Ok(30_000_000),
            ),
            (json!({"funnelWindowInterval": 1, "funnelWindowIntervalUnit": "month"}), Ok(31 * day)),
            (json!({"funnelWindowInterval": 0}), Err("funnelsFilter.funnelWindowInterval")),
            (json!({"funnelWindowInterval": 9999}), Err("funnelsFilter.funnelWindowInterval")),
            (
                json!({"funnelWindowIntervalUnit": "year"}),
                Err("funnelsFilter.funnelWindowIntervalUnit"),
            ),
        ] {
            let found = Funnels::parse(&query(options.clone()));
            let found = found.map(|own| own.course.window).map_err(|error| error.field);
            assert_eq!(found, expected.map_err(str::to_owned), "{options}");
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        let exclusion = |from: Value, to: Value, more: Value| {
            let mut exclusion = json!({"event": "x", "funnelFromStep": from, "funnelToStep": to});
            exclusion.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"exclusions": [exclusion]})
        };
        let of = |from: usize, to: usize| exclusion(json!(from), json!(to), json!({}));
        let unordered = |mut options: Value| {
            options["funnelOrderType"] = json!("unordered");
            options
        };
        for (options, field) in [
            (of(0, 1), None),
            (unordered(of(0, 2)), None),
            (unordered(of(0, 1)), Some("exclusions.0.funnelFromStep")),
            (of(1, 1), Some("exclusions.0.funnelFromStep")),
            (of(0, 3), Some("exclusions.0.funnelToStep")),
            (exclusion(json!(0), json!(null), json!({})), Some("exclusions.0.funnelToStep")),
            (exclusion(json!(0), json!(1), json!({"event": "a"})), Some("exclusions.0.event")),
            // With its filter, the exclusion does not match all events of the step.
            (exclusion(json!(0), json!(1), json!({"event": "c"})), None),
            (exclusion(json!(0), json!(1), json!({"event": "b"})), Some("exclusions.0.event")),
            (
                exclusion(
                    json!(0),
                    json!(1),
                    json!({"event": "a", "properties": [{"key": "k", "value": 2}]}),
                ),
                None,
            ),
            (exclusion(json!(0), json!(1), json!({"event": null})), Some("exclusions.0.event")),
            (json!({"funnelOrderType": "random"}), Some("funnelOrderType")),
            (json!({"funnelVizType": "pie"}), Some("funnelVizType")),
            (json!({"funnelFromStep": 2}), Some("funnelFromStep")),
            (json!({"funnelToStep": 3}), Some("funnelToStep")),
            (json!({"breakdownAttributionType": "none"}), Some("breakdownAttributionType")),
            (
                json!({"breakdownAttributionType": "step", "breakdownAttributionValue": 3}),
                Some("breakdownAttributionValue"),
            ),
            (
                unordered(
                    json!({"breakdownAttributionType": "step", "breakdownAttributionValue": 1}),
                ),
                Some("breakdownAttributionValue"),
            ),
            (json!({"funnelAggregateByHogQL": "properties.x"}), None),
            (json!({"funnelAggregateByHogQL": "person_id"}), None),
            (json!({"funnelAggregateByHogQL": "SELECT 1"}), Some("funnelAggregateByHogQL")),
        ] {
            let found = Funnels::parse(&query(options.clone())).err().map(|error| error.field);
            let expected = field.map(|field| format!("funnelsFilter.{field}"));
            assert_eq!(found, expected, "{options}");
        }
        for (series, field) in [
            (json!([]), "series"),
            (json!(vec![json!({"event": "a"}); 21]), "series"),
            (json!([{"event": "a", "optionalInFunnel": true}]), "series.0.optionalInFunnel"),
            (json!([{"event": "a", "math": 7}]), "series.0.math"),
        ] {
            let error = Funnels::parse(&json!({"series": series})).unwrap_err();
            assert_eq!(error.field, field, "{series}");
        }
    }

    #[test]
    fn steps_may_be_optional_where_they_can_be_skipped() {
        let skipped = |places: &[usize], options: &Value| {
            let mut query = query(options.clone());
            for place in places {
                query["series"][*place]["optionalInFunnel"] = json!(true);
            }
            let found = Funnels::parse(&query);
            found.map(|own| own.course.optional).map_err(|error| error.field)
        };
        let plain = json!({});
        assert_eq!(skipped(&[], &plain), Ok(0));
        assert_eq!(skipped(&[1], &plain), Ok(0b010));
        assert_eq!(skipped(&[1, 2], &json!({"funnelOrderType": "strict"})), Ok(0b110));
        for options in [
            json!({"funnelOrderType": "unordered"}),
            json!({"funnelVizType": "trends"}),
            json!({"funnelVizType": "time_to_convert"}),
        ] {
            assert_eq!(skipped(&[1], &options), Err("series.1.optionalInFunnel".to_owned()));
            assert_eq!(skipped(&[], &options), Ok(0), "{options}");
        }
        for (series, field) in [
            (
                json!([{"event": "a"}, {"event": "b", "optionalInFunnel": 3}]),
                "series.1.optionalInFunnel",
            ),
            (
                json!([{"event": "a"}, {"event": "b", "optionalInFunnel": true}, {"event": "b"}]),
                "series.1.optionalInFunnel",
            ),
            (
                json!([{"event": "a"}, {"event": "b", "optionalInFunnel": true}, {"event": null}]),
                "series.1.optionalInFunnel",
            ),
        ] {
            let error = Funnels::parse(&json!({"series": series})).unwrap_err();
            assert_eq!(error.field, field, "{series}");
        }
        // An optional step may equal another optional one, and the required one before it.
        let same = json!({"series": [{"event": "a"}, {"event": "a", "optionalInFunnel": true},
                                     {"event": "a", "optionalInFunnel": true}, {"event": "b"}]});
        assert_eq!(Funnels::parse(&same).unwrap().course.optional, 0b110);
    }
}
