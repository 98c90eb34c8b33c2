//! Log of the slowest queries of each project within the last hour: [`SlowQuestions`], for the health page. A query
//! is only shown to users of its project, since its text may contain data.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

/// How long a query is kept.
const KEPT: Duration = Duration::from_hours(1);

/// Most queries of a project.
const QUESTIONS_MAX: usize = 10;

/// Most projects; queries of further ones are not recorded until all those of another project have expired.
const PROJECTS_MAX: usize = 1000;

/// Longest recorded text of a query, in characters.
const TEXT_MAX_CHARS: usize = 300;

/// A recorded query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowQuestion {
    /// When it ended.
    pub at: UnixMicros,
    /// Its duration.
    pub took: Duration,
    /// Whether it succeeded.
    pub is_answered: bool,
    /// Its text: SQL, or a kind and events.
    pub text: Box<str>,
}

/// Recorded queries by project, slowest first. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SlowQuestions(Arc<Mutex<HashMap<ProjectId, Vec<SlowQuestion>>>>);

impl SlowQuestions {
    /// Records a query, if it is among the slowest of its project.
    pub fn note(
        &self,
        project: ProjectId,
        at: UnixMicros,
        (took, is_answered): (Duration, bool),
        text: impl FnOnce() -> String,
    ) {
        let mut projects = self.0.lock();
        if projects.len() >= PROJECTS_MAX && !projects.contains_key(&project) {
            projects.retain(|_, own| {
                forget(own, at);
                !own.is_empty()
            });
            if projects.len() >= PROJECTS_MAX {
                return;
            }
        }
        let own = projects.entry(project).or_default();
        forget(own, at);
        let place = own.partition_point(|other| other.took >= took);
        if place >= QUESTIONS_MAX {
            return;
        }
        let text: String = text().chars().take(TEXT_MAX_CHARS).collect();
        own.insert(place, SlowQuestion { at, took, is_answered, text: text.into_boxed_str() });
        own.truncate(QUESTIONS_MAX);
    }

    /// The recorded queries of a project, slowest first.
    pub fn of(&self, project: ProjectId, now: UnixMicros) -> Vec<SlowQuestion> {
        let mut own = self.0.lock().get(&project).cloned().unwrap_or_default();
        forget(&mut own, now);
        own
    }
}

fn forget(own: &mut Vec<SlowQuestion>, now: UnixMicros) {
    own.retain(|question| now.since(question.at) < KEPT);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{KEPT, PROJECTS_MAX, QUESTIONS_MAX, SlowQuestions, TEXT_MAX_CHARS};
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;

    #[test]
    fn the_slowest_of_the_last_hour_are_told_to_their_project_alone() {
        let slow = SlowQuestions::default();
        let note = |project: i64, at: i64, millis: u64| {
            let took = (Duration::from_millis(millis), true);
            slow.note(ProjectId(project), UnixMicros(at), took, || {
                format!("{millis} é {}", "x".repeat(900))
            });
        };
        for millis in [5, 900, 30, 20, 1, 40, 50, 60, 70, 80, 90, 100, 2] {
            note(1, i64::try_from(millis).unwrap(), millis);
        }
        note(2, 0, 7);
        let told = |project: i64, now: i64| -> Vec<u128> {
            let own = slow.of(ProjectId(project), UnixMicros(now));
            assert!(own.iter().all(|own| own.text.chars().count() == TEXT_MAX_CHARS));
            own.iter().map(|own| own.took.as_millis()).collect()
        };
        assert_eq!(told(1, 1000), [900, 100, 90, 80, 70, 60, 50, 40, 30, 20]);
        assert_eq!((told(2, 1000), told(3, 1000)), (vec![7], vec![]));
        let hour = i64::try_from(KEPT.as_micros()).unwrap();
        assert_eq!(told(1, hour + 95), [900, 100], "those of longer ago are forgotten");
        note(1, hour + 95, 3);
        assert_eq!(told(1, hour + 95), [900, 100, 3]);
    }

    #[test]
    fn memory_is_bounded() {
        let slow = SlowQuestions::default();
        let note = |project: usize, at: i64| {
            let project = ProjectId(i64::try_from(project).unwrap());
            slow.note(project, UnixMicros(at), (Duration::ZERO, false), String::new);
            slow.of(project, UnixMicros(at)).len()
        };
        for project in 0..PROJECTS_MAX {
            for _ in 0..QUESTIONS_MAX * 2 {
                assert!(note(project, 0) <= QUESTIONS_MAX);
            }
        }
        assert_eq!(note(PROJECTS_MAX, 0), 0, "there is no room");
        let hour = i64::try_from(KEPT.as_micros()).unwrap();
        assert_eq!(note(PROJECTS_MAX, hour), 1);
        assert_eq!(slow.0.lock().len(), 1);
    }
}
