//! The whole copy: [`run`]. One step after the other; each can be repeated.

use crate::steps::{
    annotations, audiences, boards, definitions, elsewhere, events, features, flags, groups,
    insights, persons, schedules, settings,
};
use crate::transfer::{Stop, Transfer};

/// Copies everything.
///
/// # Errors
///
/// A server does not answer, or not in the form of the API; [`Transfer::report`] has what was done until then.
pub async fn run(transfer: &mut Transfer) -> Result<(), Stop> {
    groups::types(transfer).await?;
    persons::step(transfer).await?;
    groups::step(transfer).await?;
    events::step(transfer).await?;
    audiences::step(transfer).await?;
    settings::step(transfer).await?;
    flags::step(transfer).await?;
    features::step(transfer).await?;
    schedules::step(transfer).await?;
    insights::step(transfer).await?;
    boards::step(transfer).await?;
    flags::link_boards(transfer).await?;
    annotations::step(transfer).await?;
    definitions::step(transfer).await?;
    elsewhere::step(transfer).await?;
    transfer.keep()
}
