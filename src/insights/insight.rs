//! An insight of any kind, as clients describe it by a node: [`Insight`].

use futures::future::BoxFuture;
use serde_json::Value;

use crate::answered::Answered;
use crate::correlation::Correlation;
use crate::correlation::actors::Asked as CorrelatedAsked;
use crate::dependence::Dependence;
use crate::entity::names_of;
use crate::funnels::Funnels;
use crate::funnels::actors::Position;
use crate::lifecycle::Lifecycle;
use crate::lifecycle::actors::Stage;
use crate::node::{Node, NodeError};
use crate::paths::Paths;
use crate::retention::Retention;
use crate::retention::actors::Asked as AskedRow;
use crate::selection::{Selection, Unit};
use crate::stickiness::Stickiness;
use crate::stickiness::actors::Asked;
use crate::trends::Trends;
use crate::trends::actors::Point;
use crate::{Actor, InsightError, ProjectSettings, known};
use weir_api::insights::Answer;
use weir_event::id::ProjectId;
use weir_event::predicate::patterns;
use weir_query::kernel::engine::Engine;
use weir_query::persons::people::Part;

/// Most groups of which those of a page are the last ones: their keys are kept until then.
const GROUPS_MAX: usize = 100_000;

/// Kinds of insights.
pub const KINDS: [&str; 7] = [
    "FunnelCorrelationQuery",
    "FunnelsQuery",
    "LifecycleQuery",
    "PathsQuery",
    "RetentionQuery",
    "StickinessQuery",
    "TrendsQuery",
];

/// A parsed insight.
#[derive(Clone, Debug)]
pub enum Insight {
    /// `FunnelCorrelationQuery`.
    Correlation(Correlation),
    /// `LifecycleQuery`.
    Lifecycle(Lifecycle),
    /// `PathsQuery`.
    Paths(Paths),
    /// `RetentionQuery`.
    Retention(Retention),
    /// `StickinessQuery`.
    Stickiness(Stickiness),
    /// `TrendsQuery`.
    Trends(Trends),
    /// `FunnelsQuery`.
    Funnels(Funnels),
}

/// What is asked of the actors of an insight: the fields of an `InsightActorsQuery`, or of the
/// one of its kind, beside its source.
#[derive(Clone, Debug)]
pub enum ActorsOf {
    /// Behind a row of a correlation.
    Correlation(Correlation, CorrelatedAsked),
    /// With a status.
    Lifecycle(Lifecycle, Stage),
    /// Behind a step of paths, which the paths themselves name.
    Paths(Paths),
    /// In a row of a retention.
    Retention(Retention, AskedRow),
    /// With some number of intervals.
    Stickiness(Stickiness, Asked),
    /// Behind a point of a trend.
    Trends(Trends, Point),
    /// Behind a step of a funnel.
    Funnels(Funnels, Position),
}

impl Insight {
    /// Reads a node of one of [`KINDS`].
    ///
    /// # Errors
    ///
    /// It is of another kind, or a field is unknown, malformed or asks for something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let node = Node::new(Some(query), "")?;
        known::check(query)?;
        // Those of all series and filters together.
        patterns::check(query).map_err(|error| node.refuse("query", error.to_string()))?;
        match node.text("kind")? {
            Some("FunnelCorrelationQuery") => Ok(Self::Correlation(Correlation::parse(query)?)),
            Some("LifecycleQuery") => Ok(Self::Lifecycle(Lifecycle::parse(query)?)),
            Some("PathsQuery") => Ok(Self::Paths(Paths::parse(query)?)),
            Some("RetentionQuery") => Ok(Self::Retention(Retention::parse(query)?)),
            Some("StickinessQuery") => Ok(Self::Stickiness(Stickiness::parse(query)?)),
            Some("TrendsQuery") => Ok(Self::Trends(Trends::parse(query)?)),
            Some("FunnelsQuery") => Ok(Self::Funnels(Funnels::parse(query)?)),
            _ => Err(node.refuse("kind", format!("Expected one of {}.", KINDS.join(", ")))),
        }
    }

    /// Adds what its answer depends on.
    pub fn depend(&self, on: &mut Dependence<'_>) {
        match self {
            Self::Correlation(correlation) => correlation.depend(on),
            Self::Lifecycle(lifecycle) => lifecycle.depend(on),
            Self::Paths(paths) => paths.depend(on),
            Self::Retention(retention) => retention.depend(on),
            Self::Stickiness(stickiness) => stickiness.depend(on),
            Self::Trends(trends) => trends.depend(on),
            Self::Funnels(funnels) => funnels.depend(on),
        }
    }

    /// What it looks at.
    pub fn selection_mut(&mut self) -> &mut Selection {
        match self {
            Self::Correlation(correlation) => correlation.selection_mut(),
            Self::Lifecycle(lifecycle) => lifecycle.selection_mut(),
            Self::Paths(paths) => paths.selection_mut(),
            Self::Retention(retention) => retention.selection_mut(),
            Self::Stickiness(stickiness) => stickiness.selection_mut(),
            Self::Trends(trends) => trends.selection_mut(),
            Self::Funnels(funnels) => funnels.selection_mut(),
        }
    }

    /// The answer, as `results` of PostHog's clients have it.
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

    /// Looks up how the actions of its series are called now, which its answer says.
    fn look_up(&mut self, engine: &Engine, project: ProjectId) -> Result<(), NodeError> {
        match self {
            Self::Funnels(funnels) => funnels.look_up(engine, project),
            Self::Lifecycle(lifecycle) => lifecycle.look_up(engine, project),
            Self::Stickiness(stickiness) => stickiness.look_up(engine, project),
            Self::Trends(trends) => trends.look_up(engine, project),
            Self::Correlation(_) | Self::Paths(_) | Self::Retention(_) => Ok(()),
        }
    }

    /// The answer as it is kept.
    pub fn answered<'a>(
        &'a self,
        engine: &'a Engine,
        owner: &'a ProjectSettings,
    ) -> BoxFuture<'a, Result<Answered, InsightError>> {
        Box::pin(async move {
            let began = engine.monotonic();
            let results = self.answer(engine, owner).await?;
            Ok(Answered::of(&results, engine.monotonic().saturating_sub(began))?)
        })
    }

    /// The names of the events that it is about, those of actions included.
    ///
    /// # Errors
    ///
    /// There is no such action any more.
    pub fn names(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Vec<String>, NodeError> {
        let project = owner.project;
        match self {
            Self::Correlation(correlation) => names_of(engine, project, correlation.entities()),
            Self::Funnels(funnels) => names_of(engine, project, funnels.entities()),
            Self::Lifecycle(lifecycle) => names_of(engine, project, lifecycle.entities()),
            Self::Paths(paths) => names_of(engine, project, paths.entities()),
            Self::Retention(retention) => names_of(engine, project, retention.entities()),
            Self::Stickiness(stickiness) => names_of(engine, project, stickiness.entities()),
            Self::Trends(trends) => names_of(engine, project, trends.entities()),
        }
    }

    /// Counts a view of the events that it names, as every new answer does by itself.
    ///
    /// # Errors
    ///
    /// There is no such action any more.
    pub fn note(&self, engine: &Engine, owner: &ProjectSettings) -> Result<(), NodeError> {
        let names = self.names(engine, owner)?;
        engine.note_events_named(owner.project, names.iter().map(String::as_str));
        Ok(())
    }

    /// Which of its actors the node `asked` asks for.
    pub fn actors_of(self, asked: &Node<'_>) -> Result<ActorsOf, NodeError> {
        match self {
            Self::Correlation(mut correlation) => {
                let asked = correlation.asked(asked)?;
                Ok(ActorsOf::Correlation(correlation, asked))
            }
            Self::Lifecycle(lifecycle) => Ok(ActorsOf::Lifecycle(lifecycle, Stage::parse(asked)?)),
            Self::Paths(paths) => Ok(ActorsOf::Paths(paths)),
            Self::Retention(retention) => {
                Ok(ActorsOf::Retention(retention, AskedRow::parse(asked)?))
            }
            Self::Stickiness(stickiness) => {
                Ok(ActorsOf::Stickiness(stickiness, Asked::parse(asked)?))
            }
            Self::Trends(trends) => Ok(ActorsOf::Trends(trends, Point::parse(asked)?)),
            Self::Funnels(funnels) => {
                let asked = funnels.asked(asked)?;
                Ok(ActorsOf::Funnels(funnels, asked))
            }
        }
    }
}

impl ActorsOf {
    /// What they are looked for in, and who they are.
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

    /// Who they are.
    pub fn unit(&mut self) -> Unit {
        self.looked_at().1
    }

    /// Looks for those alone who are called so: see [`Selection::search`].
    ///
    /// # Errors
    ///
    /// There are too many filters with it.
    pub fn search(&mut self, text: &str) -> Result<(), NodeError> {
        let (selection, unit) = self.looked_at();
        selection.search(text, unit)
    }

    /// The actors, in the order of the kind of insight; one more than the part has where there are more.
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
            match &self {
                Self::Correlation(correlation, asked) => {
                    correlation.actors(engine, owner, asked, part).await
                }
                Self::Lifecycle(lifecycle, stage) => {
                    lifecycle.actors(engine, owner, stage, part).await
                }
                Self::Paths(paths) => paths.actors(engine, owner, part).await,
                Self::Retention(retention, row) => retention.actors(engine, owner, row, part).await,
                Self::Stickiness(stickiness, asked) => {
                    stickiness.actors(engine, owner, asked, part).await
                }
                Self::Trends(trends, point) => trends.actors(engine, owner, point, part).await,
                Self::Funnels(funnels, asked) => funnels.actors(engine, owner, asked, part).await,
            }
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
