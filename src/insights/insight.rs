//! An insight of any kind, parsed from a query node: [`Insight`].

use futures::future::BoxFuture;
use serde_json::Value;

use crate::answered::Answered;
use crate::correlation::Correlation;
use crate::correlation::actors::ActorSelection as CorrelatedAsked;
use crate::dependence::Dependence;
use crate::entity::names_of;
use crate::funnels::Funnels;
use crate::funnels::actors::Position;
use crate::lifecycle::Lifecycle;
use crate::lifecycle::actors::Stage;
use crate::paths::Paths;
use crate::retention::Retention;
use crate::retention::actors::RowSelection as AskedRow;
use crate::selection::{Selection, Unit};
use crate::stickiness::Stickiness;
use crate::stickiness::actors::SeriesSelection;
use crate::trends::Trends;
use crate::trends::actors::Point;
use crate::{Actor, InsightError, ProjectSettings};
use weir_api::insights::Answer;
use weir_api::node::{Content, NodeError};
use weir_api::nodes::actors::{
    FunnelCorrelationActorsQuery, FunnelsActorsQuery, InsightActorsQuery,
};
use weir_event::id::ProjectId;
use weir_event::predicate::patterns;
use weir_query::kernel::engine::Engine;
use weir_query::persons::people::Part;

/// Most groups up to the end of a page of actors: their keys are kept in memory until then.
const GROUPS_MAX: usize = 100_000;

/// Generates the enums of insights and of actors queries from the list of kinds: their types, the types that select
/// actors, and their names.
macro_rules! kinds {
    ($($kind:ident($($asked:ident: $of:ty)?): $name:literal,)+) => {
        /// Kinds of insights.
        pub const KINDS: [&str; [$($name),+].len()] = [$($name),+];

        /// A parsed insight.
        #[derive(Clone, Debug)]
        pub enum Insight {
            $(
                #[doc = concat!("`", $name, "`.")]
                $kind($kind),
            )+
        }

        /// An actors query of an insight: the fields of an `InsightActorsQuery`, or of the actors query of its kind,
        /// besides its source.
        #[derive(Clone, Debug)]
        pub enum ActorsOf {
            $(
                #[doc = concat!("Those of a `", $name, "`.")]
                $kind($kind $(, $of)?),
            )+
        }

        impl ActorsOf {
            /// The actors, in the order that the kind of insight defines.
            async fn found(
                &self,
                engine: &Engine,
                owner: &ProjectSettings,
                part: Part,
            ) -> Result<Vec<Actor>, InsightError> {
                match self {
                    $(Self::$kind(own $(, $asked)?) => {
                        own.actors(engine, owner, $($asked,)? part).await
                    })+
                }
            }
        }

        impl Insight {
            /// Parses a node of this kind; `None` if it is none of [`KINDS`].
            fn of_kind(kind: &str, query: &Value) -> Option<Result<Self, NodeError>> {
                match kind {
                    $($name => Some($kind::parse(query).map(Self::$kind)),)+
                    _ => None,
                }
            }

            /// Adds the dependencies of its result.
            pub fn depend(&self, on: &mut Dependence<'_>) {
                match self {
                    $(Self::$kind(own) => own.depend(on),)+
                }
            }

            /// Its selection: dates, filters and unit.
            pub fn selection_mut(&mut self) -> &mut Selection {
                match self {
                    $(Self::$kind(own) => own.selection_mut(),)+
                }
            }

            /// The event names that it refers to, including those of actions.
            ///
            /// # Errors
            ///
            /// There is no such action any more.
            pub fn names(
                &self,
                engine: &Engine,
                owner: &ProjectSettings,
            ) -> Result<Vec<String>, NodeError> {
                match self {
                    $(Self::$kind(own) => names_of(engine, owner.project, own.entities()),)+
                }
            }
        }
    };
}

kinds! {
    Correlation(asked: CorrelatedAsked): "FunnelCorrelationQuery",
    Funnels(position: Position): "FunnelsQuery",
    Lifecycle(stage: Stage): "LifecycleQuery",
    Paths(): "PathsQuery",
    Retention(row: AskedRow): "RetentionQuery",
    Stickiness(asked: SeriesSelection): "StickinessQuery",
    Trends(point: Point): "TrendsQuery",
}

impl Insight {
    /// Parses a node of one of [`KINDS`].
    ///
    /// # Errors
    ///
    /// It is of another kind, or a field is unknown, malformed or requests something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        // The limit applies to the patterns of all series and filters together.
        patterns::check(query).map_err(|error| NodeError::new("query", error.to_string()))?;
        let wrong = || NodeError::new("kind", format!("Expected one of {}.", KINDS.join(", ")));
        let kind = query.get("kind").and_then(Value::as_str);
        let parsed = kind.and_then(|kind| Self::of_kind(kind, query));
        parsed.unwrap_or_else(|| Err(wrong()))
    }

    /// Computes the result, in the form of `results` in PostHog's API.
    pub fn answer<'a>(
        &'a self,
        engine: &'a Engine,
        owner: &'a ProjectSettings,
    ) -> BoxFuture<'a, Result<Answer, InsightError>> {
        Box::pin(async move {
            let mut named = self.clone();
            named.look_up(engine, owner.project)?;
            Ok(match &named {
                Self::Correlation(correlation) => {
                    Answer::Correlations(correlation.answer(engine, owner).await?.shown())
                }
                Self::Lifecycle(lifecycle) => {
                    Answer::Series(lifecycle.answer(engine, owner).await?)
                }
                Self::Paths(paths) => Answer::Paths(paths.answer(engine, owner).await?),
                Self::Retention(retention) => {
                    Answer::Retention(retention.answer(engine, owner).await?)
                }
                Self::Stickiness(stickiness) => {
                    Answer::Series(stickiness.answer(engine, owner).await?)
                }
                Self::Trends(trends) => Answer::Series(trends.answer(engine, owner).await?),
                Self::Funnels(funnels) => Answer::Funnel(funnels.answer(engine, owner).await?),
            })
        })
    }

    /// Looks up the current names of the actions of its series, which the result contains.
    fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        match self {
            Self::Funnels(funnels) => funnels.look_up(engine, project),
            Self::Lifecycle(lifecycle) => lifecycle.look_up(engine, project),
            Self::Stickiness(stickiness) => stickiness.look_up(engine, project),
            Self::Trends(trends) => trends.look_up(engine, project),
            Self::Correlation(_) | Self::Paths(_) | Self::Retention(_) => Ok(()),
        }
    }

    /// Computes the result in the form in which it is cached.
    pub fn answered<'a>(
        &'a self,
        engine: &'a Engine,
        owner: &'a ProjectSettings,
    ) -> BoxFuture<'a, Result<Answered, InsightError>> {
        Box::pin(async move {
            let began = engine.monotonic();
            let (results, subjects) = match self {
                Self::Correlation(own) => {
                    let answer = own.answer(engine, owner).await?;
                    (Answer::Correlations(answer.shown()), answer.subjects())
                }
                other => (other.answer(engine, owner).await?, Vec::new()),
            };
            let took = engine.monotonic().saturating_sub(began);
            Ok(Answered { subjects, ..Answered::of(&results, took)? })
        })
    }

    /// Counts a use of the event names that it refers to, as each computation of its result does by itself.
    ///
    /// # Errors
    ///
    /// There is no such action any more.
    pub fn note(&self, engine: &Engine, owner: &ProjectSettings) -> Result<(), NodeError> {
        let names = self.names(engine, owner)?;
        engine.note_events_named(owner.project, names.iter().map(String::as_str));
        Ok(())
    }

    /// The actors query of this insight that is described by the node `asked` at `path`.
    ///
    /// # Errors
    ///
    /// A field is malformed or absent.
    pub fn actors_of(self, asked: &Value, path: &str) -> Result<ActorsOf, NodeError> {
        let point = || InsightActorsQuery::read(asked, path);
        Ok(match self {
            Self::Correlation(mut own) => {
                let asked = own.asked(FunnelCorrelationActorsQuery::read(asked, path)?, path)?;
                ActorsOf::Correlation(own, asked)
            }
            Self::Funnels(own) => {
                let position = own.asked(FunnelsActorsQuery::read(asked, path)?, path)?;
                ActorsOf::Funnels(own, position)
            }
            Self::Lifecycle(own) => ActorsOf::Lifecycle(own, Stage::of(&point()?, path)?),
            Self::Paths(own) => ActorsOf::Paths(own),
            Self::Retention(own) => ActorsOf::Retention(own, AskedRow::of(&point()?)),
            Self::Stickiness(own) => {
                ActorsOf::Stickiness(own, SeriesSelection::of(&point()?, path)?)
            }
            Self::Trends(own) => ActorsOf::Trends(own, Point::of(&point()?, path)?),
        })
    }
}

impl ActorsOf {
    /// The selection in which the actors are searched, and their unit.
    fn looked_at(&mut self) -> (&mut Selection, Unit) {
        let selection = match self {
            Self::Stickiness(stickiness, asked) => {
                let unit = stickiness.unit(asked);
                return (stickiness.selection_mut(), unit);
            }
            Self::Trends(trends, point) => {
                let unit = trends.unit(point);
                return (trends.selection_mut(), unit);
            }
            Self::Correlation(correlation, _) => correlation.selection_mut(),
            Self::Lifecycle(lifecycle, _) => lifecycle.selection_mut(),
            Self::Paths(paths) => paths.selection_mut(),
            Self::Retention(retention, _) => retention.selection_mut(),
            Self::Funnels(funnels, _) => funnels.selection_mut(),
        };
        let unit = selection.unit;
        (selection, unit)
    }

    /// The unit of the actors: persons, or groups of a type.
    pub fn unit(&mut self) -> Unit {
        self.looked_at().1
    }

    /// Restricts the actors to those that match a search text: see [`Selection::search`].
    ///
    /// # Errors
    ///
    /// There are too many filters with it.
    pub fn search(&mut self, text: &str) -> Result<(), NodeError> {
        let (selection, unit) = self.looked_at();
        selection.search(text, unit)
    }

    /// The actors, in the order that the kind of insight defines. One more than `part` has is returned if there are
    /// more.
    pub fn find<'a>(
        mut self,
        engine: &'a Engine,
        owner: &'a ProjectSettings,
        part: Part,
    ) -> BoxFuture<'a, Result<Vec<Actor>, InsightError>> {
        Box::pin(async move {
            let (_, unit) = self.looked_at();
            if unit != Unit::Persons && part.offset.saturating_add(part.limit) > GROUPS_MAX {
                let detail =
                    format!("Only the first {GROUPS_MAX} groups behind a point are listed.");
                return Err(NodeError { field: "offset".to_owned(), detail }.into());
            }
            self.found(engine, owner, part).await
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Insight, KINDS};

    #[test]
    fn no_kind_is_sampled() {
        for kind in KINDS {
            let series =
                json!([{"kind": "EventsNode", "event": "a"}, {"kind": "EventsNode", "event": "b"}]);
            let of = |factor: f64| {
                let count = if kind == "LifecycleQuery" { 1 } else { 2 };
                let mut own = json!({"kind": kind, "samplingFactor": factor});
                if !["PathsQuery", "RetentionQuery"].contains(&kind) {
                    own["series"] = json!(series.as_array().unwrap()[..count]);
                }
                if kind != "FunnelCorrelationQuery" {
                    return own;
                }
                let funnel = json!({"kind": "FunnelsQuery", "series": series,
                                    "samplingFactor": factor});
                json!({"kind": kind, "source": {"kind": "FunnelsActorsQuery", "source": funnel}})
            };
            Insight::parse(&of(1.0)).unwrap();
            for factor in [0.0, 0.1, 2.0] {
                let error = Insight::parse(&of(factor)).unwrap_err();
                assert!(error.field.ends_with("samplingFactor"), "{kind}: {error:?}");
            }
        }
    }
}
