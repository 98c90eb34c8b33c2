//! Operations on promoted properties. That a column has one type, and how many there are, is decided by the snapshot of the
//! write, which holds the lock of all projects.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::accounts::UserId;
use crate::activity::{Change, Scope, Verb, diff};
use crate::error::MetadataError;
use crate::promotions::{NewPromotion, PromotedProperty, check_column, check_key};
use crate::properties::{PropertyKind, PropertySeen};
use crate::{Metadata, properties};
use weir_event::id::ProjectId;
use weir_event::promotion::PromotedTable;

impl Metadata {
    /// Promotes a property of a project to a column in the name of `by`. Nothing changes if it is promoted with this type
    /// already.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user or project; [`MetadataError::Rejected`] for a key without a column of
    /// its own (see [`check_key`]), for a column of another type or of a name that differs in case alone, and if the table has
    /// as many columns as there may be.
    pub async fn promote(
        &self,
        by: UserId,
        project: ProjectId,
        new: NewPromotion,
    ) -> Result<PromotedProperty, MetadataError> {
        check_key(new.table, &new.key)?;
        let mut write = self.begin().await?;
        write.user(by)?;
        let base = Arc::clone(&write.base);
        base.project(project).ok_or(MetadataError::NotFound("project"))?;
        let known = base.promoted_properties(project);
        let is_same =
            |own: &&PromotedProperty| own.is_of(new.table, &new.key) && own.kind == new.kind;
        if let Some(own) = known.iter().find(is_same) {
            return Ok(own.clone());
        }
        check_column(&new, &base.promoted_columns(new.table))?;
        let NewPromotion { table, key, kind, .. } = new;
        let made = PromotedProperty { project, table, key, kind, created_at: self.now() };
        made.insert().execute(write.connection()).await?;
        write.log(project, Some(by), change(&made, true)).await?;
        let all: Vec<_> = known.iter().cloned().chain([made.clone()]).collect();
        write.commit_with(|next| next.put_promotions(project, all)).await?;
        Ok(made)
    }

    /// Ends the promotion of a property of a project to a column of a table in the name of `by`.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a user, and for a property that the project has not promoted.
    pub async fn demote(
        &self,
        by: UserId,
        project: ProjectId,
        table: PromotedTable,
        key: &str,
    ) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        write.user(by)?;
        let base = Arc::clone(&write.base);
        let known = base.promoted_properties(project);
        let gone = known.iter().find(|own| own.is_of(table, key));
        let gone = gone.ok_or(MetadataError::NotFound("promoted property"))?;
        gone.delete().execute(write.connection()).await?;
        write.log(project, Some(by), change(gone, false)).await?;
        let kept: Vec<_> = known.iter().filter(|own| !own.is_of(table, key)).cloned().collect();
        write.commit_with(|next| next.put_promotions(project, kept)).await
    }
}

/// The entry of the activity log for a promotion, or for its end: a change of the definition of the property.
fn change(own: &PromotedProperty, is_promoted: bool) -> Change {
    let seen = PropertySeen {
        project: own.project,
        kind: match own.table {
            PromotedTable::Events => PropertyKind::Event,
            PromotedTable::Persons => PropertyKind::Person,
        },
        name: own.key.clone(),
        value_type: None,
    };
    let column = format!("{}, {}", own.promotion().column(), own.kind.name());
    let (with, without) =
        (Map::from_iter([("column".to_owned(), Value::from(column))]), Map::new());
    let scope = Scope::PropertyDefinition;
    let fields = match is_promoted {
        true => diff(scope, &without, &with),
        false => diff(scope, &with, &without),
    };
    let (item, name) = (properties::id(&seen).to_string(), own.key.clone());
    Change { scope, item, verb: Verb::Changed, name, fields }
}
