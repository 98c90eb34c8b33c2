//! Check at each row for rules with patterns, because one row may take a second: [`Watched`].

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};

use crate::guard::Running;
use weir_event::pattern::Pattern;

/// Maximum texts per query on which its patterns may be given up. Each has taken the maximum steps allowed for one
/// text.
const GIVEN_UP_MAX: usize = 1000;

/// The patterns of a rule, including those of the rules that it evaluates.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    patterns: Vec<Arc<Pattern>>,
}

impl Watched {
    /// A rule with these patterns, which include those of shared rules: they are counted nowhere else.
    pub fn new(patterns: Vec<Arc<Pattern>>) -> Self {
        Self { patterns }
    }

    /// Called at each row: fails if the query must not go on.
    ///
    /// # Errors
    ///
    /// The query was cancelled, has exceeded its time limit, or its patterns were given up too often.
    pub fn check(&self, running: &Running) -> Result<()> {
        let given_up = self.patterns.iter().map(|pattern| pattern.given_up());
        if given_up.fold(0, usize::saturating_add) > GIVEN_UP_MAX {
            return Err(DataFusionError::Plan(format!(
                "regular expressions take too many steps on more than {GIVEN_UP_MAX} texts: use simpler ones, without \
                 nested repetitions before a reference to a group"
            )));
        }
        running.check()
    }
}

#[cfg(test)]
mod tests {
    use super::{GIVEN_UP_MAX, Watched};
    use crate::guard::Running;
    use weir_event::pattern::Pattern;

    /// Goal: backtracking is bounded per query, not only per row. Method: a pattern that is given up on each text,
    /// applied to one text after another.
    #[test]
    fn steps_of_a_query_are_bounded() {
        let hostile = Pattern::new(r"^(a|a)*\1$").unwrap();
        let text = format!("{}b", "a".repeat(40));
        let (watched, running) = (Watched::new(vec![hostile.clone()]), Running::default());
        let mut texts = 0;
        while watched.check(&running).is_ok() {
            assert_eq!(hostile.is_match(&text), None);
            texts += 1;
            assert!(texts <= GIVEN_UP_MAX + 1, "they go on");
        }
        assert_eq!(texts, GIVEN_UP_MAX + 1);
        // Another query has its own count.
        let other = Pattern::new(r"^(a|a)*\1$").unwrap();
        assert!(Watched::new(vec![other]).check(&running).is_ok());
    }

    #[test]
    fn a_stopped_query_ends_at_the_next_row() {
        let running = Running::default();
        let watched = Watched::new(vec![Pattern::new("a").unwrap()]);
        assert!(watched.check(&running).is_ok());
        drop(running.stopped_on_drop());
        assert!(watched.check(&running).is_err());
    }
}
