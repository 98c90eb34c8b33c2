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
use crate::paths::Paths;
use crate::retention::Retention;
use crate::retention::actors::Asked as AskedRow;
use crate::selection::{Selection, Unit};
use crate::stickiness::Stickiness;
use crate::stickiness::actors::Asked;
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

/// Most groups of which those of a page are the last ones: their keys are kept until then.
const GROUPS_MAX: usize = 100_000;

/// Makes the kinds of insights of their types, what says which of their actors are meant, and their names.
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

        /// What is asked of the actors of an insight: the fields of an `InsightActorsQuery`, or of the one of its kind,
        /// beside its source.
        #[derive(Clone, Debug)]
        pub enum ActorsOf {
            $(
                #[doc = concat!("Those of a `", $name, "`.")]
                $kind($kind $(, $of)?),
            )+
        }

        impl ActorsOf {
            /// The actors, in the order of the kind of insight.
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
            /// Reads a node of this kind; `None` if it is none of [`KINDS`].
            fn of_kind(kind: &str, query: &Value) -> Option<Result<Self, NodeError>> {
                match kind {
                    $($name => Some($kind::parse(query).map(Self::$kind)),)+
                    _ => None,
                }
            }

            /// Adds what its answer depends on.
            pub fn depend(&self, on: &mut Dependence<'_>) {
                match self {
                    $(Self::$kind(own) => own.depend(on),)+
                }
            }

            /// What it looks at.
            pub fn selection_mut(&mut self) -> &mut Selection {
                match self {
                    $(Self::$kind(own) => own.selection_mut(),)+
                }
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
    Stickiness(asked: Asked): "StickinessQuery",
    Trends(point: Point): "TrendsQuery",
}

impl Insight {
    /// Reads a node of one of [`KINDS`].
    ///
    /// # Errors
    ///
    /// It is of another kind, or a field is unknown, malformed or asks for something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        // Those of all series and filters together.
        patterns::check(query).map_err(|error| NodeError::new("query", error.to_string()))?;
        let wrong = || NodeError::new("kind", format!("Expected one of {}.", KINDS.join(", ")));
        let kind = query.get("kind").and_then(Value::as_str);
        let parsed = kind.and_then(|kind| Self::of_kind(kind, query));
        parsed.unwrap_or_else(|| Err(wrong()))
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

    /// Which of its actors the node `asked` asks for that stands at `path`.
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
            Self::Stickiness(own) => ActorsOf::Stickiness(own, Asked::of(&point()?, path)?),
            Self::Trends(own) => ActorsOf::Trends(own, Point::of(&point()?, path)?),
        })
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
