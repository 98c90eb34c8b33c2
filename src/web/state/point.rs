//! A mark of a chart, which identifies the persons behind it: [`Point`], in an address as `point.day`, `point.series`
//! and so on.

use serde_json::{Value, json};

use crate::state::insight::{Kind, Options, Question};
use crate::state::node::{funnel, node, paths};
use crate::state::parameters::{Parameters, Printer, Wrong};
use weir_api::insights::series::Status;
use weir_api::node::{AnyNode, Node};
use weir_api::nodes::actors::{FunnelsActorsQuery, InsightActorsQuery};

/// Prefix of all parameters of a mark.
pub const PREFIX: &str = "point.";

/// A mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The index of its series.
    pub series: Option<u16>,
    /// Its interval, as in `days`; for stickiness the number of intervals.
    pub day: Option<String>,
    /// Its breakdown values.
    pub value: Vec<String>,
    /// Whether it belongs to the comparison period.
    pub is_previous: bool,
    /// For a funnel: the step, from 1 on; negative for those who did not reach it.
    pub step: Option<i16>,
    /// For a trend of funnels: whether it means those who did not convert.
    pub is_drop_off: bool,
    /// For a retention: the index of the row.
    pub row: Option<u16>,
    /// For a retention: the index of the cell in the row.
    pub cell: Option<u16>,
    /// For a lifecycle: the status.
    pub status: Option<String>,
    /// For paths: the place and the step there, such as `2_/pricing`.
    pub start: Option<String>,
    /// For paths: the same of the next step.
    pub end: Option<String>,
    /// For paths: the same of a last step.
    pub dropoff: Option<String>,
}

impl Point {
    /// Takes it from parameters.
    ///
    /// # Errors
    ///
    /// A part of it is malformed, given twice or unknown.
    pub fn take(parameters: &mut Parameters) -> Result<Self, Wrong> {
        let mut own = parameters.split_off(PREFIX);
        let point = Self {
            series: own.number("point.series")?,
            day: own.take("point.day")?,
            value: own.take_all("point.value"),
            is_previous: own.truth("point.previous")?,
            step: own.number("point.step")?,
            is_drop_off: own.truth("point.drop_off")?,
            row: own.number("point.row")?,
            cell: own.number("point.cell")?,
            status: own.take("point.status")?,
            start: own.take("point.start")?,
            end: own.take("point.end")?,
            dropoff: own.take("point.last")?,
        };
        own.finish()?;
        Ok(point)
    }

    /// Adds it to an address.
    pub fn add_to(&self, printer: &mut Printer) {
        printer.add("point.series", self.series);
        printer.add("point.day", self.day.as_ref());
        printer.add_all("point.value", &self.value);
        printer.truth("point.previous", self.is_previous);
        printer.add("point.step", self.step);
        printer.truth("point.drop_off", self.is_drop_off);
        printer.add("point.row", self.row);
        printer.add("point.cell", self.cell);
        printer.add("point.status", self.status.as_ref());
        printer.add("point.start", self.start.as_ref());
        printer.add("point.end", self.end.as_ref());
        printer.add("point.last", self.dropoff.as_ref());
    }

    /// Description of the mark, with the names of the query's series.
    pub fn text(&self, question: &Question) -> String {
        let mut parts = Vec::new();
        let series = usize::from(self.series.unwrap_or(0));
        if question.kind() != Kind::Funnel {
            parts.extend(question.series.get(series).map(|series| series.title()));
        }
        parts.extend(self.step.map(|step| {
            let at = usize::from(step.unsigned_abs()).saturating_sub(1);
            let name = question.series.get(at).map(|series| series.title()).unwrap_or_default();
            match step > 0 {
                true => format!("came to step {step}, {name}"),
                false => format!("left before step {}, {name}", step.unsigned_abs()),
            }
        }));
        if question.kind() == Kind::Funnel && self.day.is_some() {
            let did = if self.is_drop_off { "began and did not convert" } else { "converted" };
            parts.push(did.to_owned());
        }
        parts.extend(self.status.clone());
        if !self.value.is_empty() {
            parts.push(self.value.join(", "));
        }
        parts.extend(self.row.map(|row| format!("row {}", row.saturating_add(1))));
        let interval = question.interval.unwrap_or("day");
        parts.extend(self.cell.map(|cell| format!("back in {interval} {cell}")));
        let step =
            |own: &String| own.split_once('_').map_or(own.clone(), |(_, name)| name.to_owned());
        match (&self.start, &self.end) {
            (Some(start), Some(end)) => parts.push(format!("{} → {}", step(start), step(end))),
            (start, end) => parts.extend(start.iter().chain(end).map(step)),
        }
        parts.extend(self.dropoff.as_ref().map(|last| format!("ended at {}", step(last))));
        match (question.kind(), &self.day) {
            (Kind::Stickiness, Some(day)) => {
                parts.push(format!("in {day} {}s", question.interval.unwrap_or("day")));
            }
            (_, Some(day)) => parts.push(day.clone()),
            (_, None) => {}
        }
        if self.is_previous {
            parts.push("previous period".to_owned());
        }
        parts.join(" · ")
    }

    /// The API's query for the persons behind it.
    pub fn node(&self, question: &Question) -> Value {
        match &question.options {
            Options::Funnel { shown, .. } => {
                let is_trend = *shown == "trends";
                let value = Some(&self.value).filter(|value| !value.is_empty());
                FunnelsActorsQuery {
                    source: Some(funnel(question)),
                    funnel_step: self.step.map(i64::from).filter(|_| !is_trend),
                    funnel_step_breakdown: value.map(|value| json!(value)),
                    funnel_trends_drop_off: is_trend.then_some(self.is_drop_off),
                    funnel_trends_entrance_period_start: self.day.clone().filter(|_| is_trend),
                    ..FunnelsActorsQuery::default()
                }
                .query()
            }
            Options::Paths { .. } => {
                let mut source = paths(question);
                source.paths_filter.path_start_key = self.start.clone();
                source.paths_filter.path_end_key = self.end.clone();
                source.paths_filter.path_dropoff_key = self.dropoff.clone();
                let source = Some(AnyNode(source.query()));
                InsightActorsQuery { source, ..InsightActorsQuery::default() }.query()
            }
            options => InsightActorsQuery {
                source: Some(AnyNode(node(question))),
                series: self.series.map(usize::from),
                day: self.day.as_ref().map(|day| json!(day)),
                interval: self.row.map(usize::from),
                status: self.status.as_deref().and_then(Status::of),
                breakdown: self.breakdown(options),
                compare: self.is_previous.then(|| "previous".to_owned()),
                ..InsightActorsQuery::default()
            }
            .query(),
        }
    }

    /// The value of a trend's breakdown; cohorts are numbers.
    fn breakdown(&self, options: &Options) -> Option<Value> {
        let Options::Trends { breakdown, .. } = options else { return None };
        match self.value.as_slice() {
            [] => None,
            [one] if breakdown.is_by_cohorts() => {
                Some(one.parse::<u32>().map_or_else(|_| json!(one), |id| json!(id)))
            }
            [one] => Some(json!(one)),
            several => Some(json!(several)),
        }
    }
}
