//! An insight of any kind, as clients describe it by a node: [`Insight`].

use serde_json::Value;

use crate::insights::Actor;
use crate::insights::InsightError;
use crate::insights::ProjectSettings;
use crate::insights::funnels::Funnels;
use crate::insights::funnels::actors::Asked;
use crate::insights::node::Node;
use crate::insights::node::NodeError;
use crate::insights::selection::Selection;
use crate::insights::trends::Trends;
use crate::insights::trends::actors::Point;
use crate::query::engine::Engine;
use crate::query::people::Part;

/// Kinds of insights.
pub const KINDS: [&str; 2] = ["TrendsQuery", "FunnelsQuery"];

/// A parsed insight.
#[derive(Clone, Debug)]
pub enum Insight {
    /// `TrendsQuery`.
    Trends(Trends),
    /// `FunnelsQuery`.
    Funnels(Funnels),
}

/// What is asked of the actors of an insight: the fields of an `InsightActorsQuery`, or of the
/// one of its kind, beside its source.
#[derive(Clone, Debug)]
pub enum ActorsOf {
    /// Behind a point of a trend.
    Trends(Trends, Point),
    /// Behind a step of a funnel.
    Funnels(Funnels, Asked),
}

impl Insight {
    /// Reads a node of one of [`KINDS`].
    ///
    /// # Errors
    ///
    /// It is of another kind, or a field is malformed or asks for something that is not available.
    pub fn parse(query: &Value) -> Result<Self, NodeError> {
        let node = Node::new(Some(query), "")?;
        match node.text("kind")? {
            Some("TrendsQuery") => Ok(Self::Trends(Trends::parse(query)?)),
            Some("FunnelsQuery") => Ok(Self::Funnels(Funnels::parse(query)?)),
            _ => Err(node.refuse("kind", format!("Expected one of {}.", KINDS.join(", ")))),
        }
    }

    /// What it looks at.
    pub fn selection_mut(&mut self) -> &mut Selection {
        match self {
            Self::Trends(trends) => trends.selection_mut(),
            Self::Funnels(funnels) => funnels.selection_mut(),
        }
    }

    /// The answer, as `results` of PostHog's clients have it.
    ///
    /// # Errors
    ///
    /// See [`InsightError`].
    pub async fn answer(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
    ) -> Result<Value, InsightError> {
        match self {
            Self::Trends(trends) => Ok(Value::Array(trends.answer(engine, owner).await?)),
            Self::Funnels(funnels) => funnels.answer(engine, owner).await,
        }
    }

    /// Which of its actors the node `asked` asks for.
    ///
    /// # Errors
    ///
    /// A field is malformed.
    pub fn actors_of(self, asked: &Node<'_>) -> Result<ActorsOf, NodeError> {
        match self {
            Self::Trends(trends) => Ok(ActorsOf::Trends(trends, Point::parse(asked)?)),
            Self::Funnels(funnels) => {
                let asked = funnels.asked(asked)?;
                Ok(ActorsOf::Funnels(funnels, asked))
            }
        }
    }
}

impl ActorsOf {
    /// The actors, in the order of the kind of insight; one more than the part has where there are more.
    ///
    /// # Errors
    ///
    /// See [`InsightError`].
    pub async fn find(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        part: Part,
    ) -> Result<Vec<Actor>, InsightError> {
        match self {
            Self::Trends(trends, point) => trends.actors(engine, owner, point, part).await,
            Self::Funnels(funnels, asked) => funnels.actors(engine, owner, asked, part).await,
        }
    }
}
