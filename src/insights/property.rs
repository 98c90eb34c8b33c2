//! A property of an event, or of its person, group or session, as a column of a plan: [`Property`].

use arrow::datatypes::DataType;
use datafusion::dataframe::DataFrame;
use datafusion::functions::expr_fn::rtrim;
use datafusion::logical_expr::{Expr, JoinType, cast, when};
use datafusion::prelude::{col, ident, lit};

use weir_query::dialect::expression::{Expression, Taken};
use weir_query::events::event_property::{json_text, whole_text};
use weir_query::events::session_columns;
use weir_query::filter::matches;
use weir_query::filter::matches::{GROUP_KEY, GROUPS};
use weir_query::kernel::error::QueryError;
use weir_query::kernel::view::View;

/// The entity that has a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The event.
    Event,
    /// The current person of the event.
    Person,
    /// The group of this type of the event, with its current properties.
    Group(u8),
    /// The session of the event.
    Session,
    /// A column of the event row, such as `distinct_id`.
    EventMetadata,
    /// None: the key is an SQL expression on the event.
    Expression,
}

/// A property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The entity that has it.
    pub owner: Owner,
    /// Its name, or the expression.
    pub key: String,
    /// Whether URLs that differ only in trailing characters are grouped: see [`normalized_url`].
    pub is_url: bool,
    /// The number of histogram bins of its numbers, if it has any: see [`bins`](crate::bins).
    pub bins: Option<u16>,
}

impl Property {
    /// A property without normalization and bins.
    pub fn plain(owner: Owner, key: &str) -> Self {
        Self { owner, key: key.to_owned(), is_url: false, bins: None }
    }

    /// The expressions of session properties, for which events need additional columns first: see
    /// [`with_columns`](weir_query::events::expression_columns::with_columns).
    pub fn of_sessions(properties: &[Self]) -> Vec<Expr> {
        let of_sessions = properties.iter().filter(|property| property.owner == Owner::Session);
        of_sessions.map(|property| session_columns::text(&property.key)).collect()
    }

    /// Adds the value to `events` as the text column `name`; null if there is no value.
    ///
    /// # Errors
    ///
    /// [`QueryError::Invalid`]: the expression is not valid on events.
    pub async fn add_to(
        &self,
        view: &View,
        events: DataFrame,
        name: &str,
    ) -> Result<DataFrame, QueryError> {
        let key = format!("{name}_of");
        let (table, own, others) = match self.owner {
            Owner::Event => {
                let text = whole_text(&self.key, view.exact());
                return Ok(events.with_column(name, self.shown(text)?)?);
            }
            Owner::Session => {
                let text = session_columns::text(&self.key);
                return Ok(events.with_column(name, self.shown(text)?)?);
            }
            Owner::EventMetadata => {
                let column = matches::metadata_column(&self.key).unwrap_or_default();
                let text = cast(ident(column), DataType::Utf8View);
                return Ok(events.with_column(name, self.shown(text)?)?);
            }
            Owner::Expression => {
                let expression = Expression::parse(&self.key)?;
                let value = (&expression, Taken::Text, name);
                let events = Expression::add_all(view, events, &[value]).await?;
                return Ok(events.with_column(name, self.shown(ident(name))?)?);
            }
            Owner::Person => (view.table("persons").await?, "person_id", "uuid"),
            Owner::Group(index) if self.key == GROUP_KEY => {
                let own = GROUPS.get(usize::from(index)).copied().unwrap_or_default();
                let key = cast(ident(own), DataType::Utf8View);
                return Ok(events.with_column(name, self.shown(key)?)?);
            }
            Owner::Group(index) => {
                let groups = view.table("groups").await?;
                let of_type = col("group_type_index").eq(lit(i64::from(index)));
                let own = GROUPS.get(usize::from(index)).copied().unwrap_or_default();
                (groups.filter(of_type)?, own, "key")
            }
        };
        let value = self.shown(json_text(&self.key))?.alias(name);
        let table = table.select(vec![ident(others).alias(&key), value])?;
        // The left side of a join is the build side, which is held in memory.
        Ok(table.join(events, JoinType::Right, &[&key], &[own], None)?)
    }

    /// The text of the value in a breakdown.
    fn shown(&self, text: Expr) -> Result<Expr, QueryError> {
        if self.is_url { normalized_url(text) } else { Ok(text) }
    }
}

/// A URL without trailing `/`, `?` and `#`, or `/` if nothing is left. As in PostHog, null stays null, and an empty
/// text becomes `/`.
fn normalized_url(text: Expr) -> Result<Expr, QueryError> {
    let cut = rtrim(vec![cast(text, DataType::Utf8), lit("/?#")]);
    Ok(when(cut.clone().eq(lit("")), lit("/")).otherwise(cut)?)
}
