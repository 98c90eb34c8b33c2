//! How many persons or groups a rule holds for. The rule is the caller's; here are the scan, its
//! thread, and its limits, which are those of queries.
//!
//! Not SQL: rules have operators (patterns with a limit, versions, the comparison of truth values)
//! whose exact meaning is that of the evaluation of flags, and a count must be what evaluation says.

use std::sync::Arc;
use std::time::Duration;

use crate::event::id::ProjectId;
use crate::identity::IdentityError;
use crate::identity::person::Group;
use crate::identity::person::Person;
use crate::identity::view::Flow;
use crate::identity::view::View;
use crate::query::Engine;
use crate::query::QueryError;

/// Rows between two looks at the clock.
const LOOK_AT_CLOCK: u64 = 256;

/// How many there are in all, and how many of them the rule holds for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// For whom the rule holds.
    pub matching: u64,
    /// All of them.
    pub total: u64,
}

impl Engine {
    /// Counts the persons of a project, as of every acknowledged event.
    ///
    /// # Errors
    ///
    /// See [`QueryError`].
    pub async fn count_persons(
        &self,
        project: ProjectId,
        mut test: impl FnMut(&View, &Person) -> bool + Send + 'static,
    ) -> Result<Audience, QueryError> {
        self.scan(move |view, counter| {
            view.scan_persons(project, |person| counter.count(test(view, &person)))
        })
        .await
    }

    /// Counts the groups of one type.
    ///
    /// # Errors
    ///
    /// See [`QueryError`].
    pub async fn count_groups(
        &self,
        project: ProjectId,
        type_index: u8,
        mut test: impl FnMut(&str, &Group) -> bool + Send + 'static,
    ) -> Result<Audience, QueryError> {
        self.scan(move |view, counter| {
            view.scan_groups(project, |index, key, group| match index == type_index {
                true => counter.count(test(&key, &group)),
                false => Flow::Continue(()),
            })
        })
        .await
    }

    async fn scan(
        &self,
        scan: impl FnOnce(&View, &mut Counter) -> Result<(), IdentityError> + Send + 'static,
    ) -> Result<Audience, QueryError> {
        self.wait().await?;
        let shared = Arc::clone(&self.shared);
        let limit = shared.settings.query_timeout;
        let permit = self.permit().await?;
        let runtime = shared.runtime.clone();
        let scanned = runtime.spawn_blocking(move || {
            let _permit = permit;
            let view = shared.sources.identities.view();
            let started = shared.clock.monotonic();
            let elapsed = move || shared.clock.monotonic().saturating_sub(started);
            let mut counter = Counter {
                audience: Audience::default(),
                elapsed: Box::new(elapsed),
                limit,
                is_late: false,
            };
            scan(&view, &mut counter)?;
            match counter.is_late {
                true => Err(QueryError::Timeout(limit)),
                false => Ok(counter.audience),
            }
        });
        scanned.await.unwrap_or(Err(QueryError::Unavailable("the count was stopped")))
    }
}

/// Counts as it is shown, until there is no time left.
struct Counter {
    audience: Audience,
    elapsed: Box<dyn Fn() -> Duration>,
    limit: Duration,
    is_late: bool,
}

impl Counter {
    fn count(&mut self, matches: bool) -> Flow {
        self.audience.total += 1;
        self.audience.matching += u64::from(matches);
        if self.audience.total.is_multiple_of(LOOK_AT_CLOCK) && (self.elapsed)() > self.limit {
            self.is_late = true;
            return Flow::Break(());
        }
        Flow::Continue(())
    }
}
