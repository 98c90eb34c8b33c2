//! Splits the steps of one actor into paths: [`Cut::paths`]. No I/O.

/// Pause after which a new session begins, unless a funnel defines a window (PostHog's figure).
pub(super) const SESSION_GAP_MICROS: i64 = 30 * 60 * 1_000_000;

/// A step: an event that the paths include.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Its time, in microseconds.
    pub(super) at: i64,
    /// The number of its item.
    pub(super) item: u32,
}

/// Selects the part of a session that is a path. Items are given by their numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The item at which paths begin; sessions without it have no path.
    pub(super) start: Option<u32>,
    /// The item at which paths end; sessions without it have no path.
    pub(super) end: Option<u32>,
    /// Pause after which a new session begins, in microseconds.
    pub(super) gap: i64,
    /// Most steps of a path.
    pub(super) steps_max: usize,
    /// The item that represents the middle of a path that is too long and has both a start and an end.
    pub(super) ellipsis: u32,
}

impl Cut {
    /// Calls `each` with the path of every session of an actor. `steps` are ordered by time.
    pub(super) fn paths<E>(
        &self,
        steps: &[Step],
        mut each: impl FnMut(&[Step]) -> Result<(), E>,
    ) -> Result<(), E> {
        let is_near = |a: &Step, b: &Step| b.at.saturating_sub(a.at) < self.gap;
        let mut path = Vec::new();
        for session in steps.chunk_by(is_near) {
            path.clear();
            // Of consecutive equal steps the last one is kept.
            let runs = session.chunk_by(|a, b| a.item == b.item);
            path.extend(runs.filter_map(|run| run.last().copied()));
            if self.is_path(&mut path) {
                each(&path)?;
            }
        }
        Ok(())
    }

    /// Cuts the steps of a session to its path; false if it has none.
    fn is_path(&self, steps: &mut Vec<Step>) -> bool {
        let place = |steps: &[Step], item: u32| steps.iter().position(|step| step.item == item);
        if let Some(start) = self.start {
            let Some(at) = place(steps, start) else { return false };
            steps.drain(..at);
        }
        if let Some(end) = self.end {
            let Some(at) = place(steps, end) else { return false };
            steps.truncate(at.saturating_add(1));
        }
        let surplus = steps.len().saturating_sub(self.steps_max);
        if surplus == 0 {
            return true;
        }
        match (self.start, self.end) {
            (Some(_), Some(_)) => {
                let half = self.steps_max / 2;
                let middle = half..steps.len().saturating_sub(half);
                let first = steps.get(half).map(|step| Step { item: self.ellipsis, ..*step });
                steps.splice(middle, first);
            }
            (None, Some(_)) => _ = steps.drain(..surplus),
            _ => steps.truncate(self.steps_max),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::{Cut, SESSION_GAP_MICROS, Step};

    const MINUTE: i64 = 60_000_000;
    const ELLIPSIS: u32 = 99;

    fn paths(cut: &Cut, steps: &[(i64, u32)]) -> Vec<Vec<(i64, u32)>> {
        let steps: Vec<Step> =
            steps.iter().map(|(at, item)| Step { at: *at, item: *item }).collect();
        let mut found = Vec::new();
        cut.paths(&steps, |path| {
            found.push(path.iter().map(|step| (step.at, step.item)).collect());
            Ok::<_, ()>(())
        })
        .unwrap();
        found
    }

    /// Reference implementation, which builds a new list in each step.
    fn naive(cut: &Cut, steps: &[(i64, u32)]) -> Vec<Vec<(i64, u32)>> {
        let mut sessions: Vec<Vec<(i64, u32)>> = Vec::new();
        let mut before = None;
        for (at, item) in steps {
            let is_new = before.is_none_or(|before| at - before >= 30 * MINUTE);
            before = Some(*at);
            if is_new {
                sessions.push(Vec::new());
            }
            let session = sessions.last_mut().unwrap();
            match session.last_mut() {
                Some(last) if last.1 == *item => *last = (*at, *item),
                _ => session.push((*at, *item)),
            }
        }
        let mut found = Vec::new();
        for session in sessions {
            let mut part = session.clone();
            if let Some(start) = cut.start {
                part = part.into_iter().skip_while(|step| step.1 != start).collect();
            }
            if let Some(end) = cut.end {
                let before: Vec<_> =
                    part.iter().copied().take_while(|step| step.1 != end).collect();
                let last = part.get(before.len()).copied();
                part = if last.is_some() {
                    [before, last.into_iter().collect()].concat()
                } else {
                    vec![]
                };
            }
            if part.is_empty() {
                continue;
            }
            let (count, most) = (part.len(), cut.steps_max);
            found.push(match (cut.start.is_some(), cut.end.is_some()) {
                _ if count <= most => part,
                (true, true) => {
                    let half = most / 2;
                    let mut short = part[..half].to_vec();
                    short.push((part[half].0, ELLIPSIS));
                    short.extend_from_slice(&part[count - half..]);
                    short
                }
                (false, true) => part[count - most..].to_vec(),
                _ => part[..most].to_vec(),
            });
        }
        found
    }

    #[test]
    fn sessions_are_collapsed_and_cut() {
        let cut = |start, end, steps_max| Cut {
            start,
            end,
            gap: SESSION_GAP_MICROS,
            steps_max,
            ellipsis: ELLIPSIS,
        };
        let steps: Vec<(i64, u32)> =
            [1, 1, 2, 3, 4, 2, 5, 6].into_iter().zip(1..).map(|(item, at)| (at, item)).collect();
        for (cut, expected) in [
            (cut(None, None, 3), vec![(2, 1), (3, 2), (4, 3)]),
            (cut(None, None, 9), vec![(2, 1), (3, 2), (4, 3), (5, 4), (6, 2), (7, 5), (8, 6)]),
            (cut(Some(2), None, 3), vec![(3, 2), (4, 3), (5, 4)]),
            (cut(None, Some(2), 5), vec![(2, 1), (3, 2)]),
            (cut(None, Some(5), 3), vec![(5, 4), (6, 2), (7, 5)]),
            (cut(Some(2), Some(6), 5), vec![(3, 2), (4, 3), (5, 99), (7, 5), (8, 6)]),
            (cut(Some(2), Some(6), 4), vec![(3, 2), (4, 3), (5, 99), (7, 5), (8, 6)]),
            (cut(Some(2), Some(6), 1), vec![(3, 99)]),
            (cut(Some(2), Some(2), 4), vec![(3, 2)]),
        ] {
            assert_eq!(paths(&cut, &steps), [expected], "{cut:?}");
        }
        assert!(paths(&cut(Some(7), None, 3), &steps).is_empty());
        assert!(paths(&cut(Some(6), Some(1), 3), &steps).is_empty());
        let apart = [(0, 1), (30 * MINUTE - 1, 2), (60 * MINUTE - 1, 3)];
        let expected = vec![vec![(0, 1), (30 * MINUTE - 1, 2)], vec![(60 * MINUTE - 1, 3)]];
        assert_eq!(paths(&cut(None, None, 5), &apart), expected);
        let wide = Cut { gap: 30 * MINUTE + 1, ..cut(None, None, 5) };
        assert_eq!(paths(&wide, &apart), [apart.to_vec()]);
    }

    #[test]
    fn random_sessions_equal_those_of_a_plain_computation() {
        let mut rng = StdRng::seed_from_u64(41);
        for _ in 0..20_000 {
            let mut at = 0;
            let steps: Vec<(i64, u32)> = (0..rng.random_range(0..25))
                .map(|_| {
                    at += [0, MINUTE, 29 * MINUTE, 30 * MINUTE][rng.random_range(0..4)];
                    (at, rng.random_range(0..4))
                })
                .collect();
            let point = |rng: &mut StdRng| rng.random_bool(0.5).then(|| rng.random_range(0..4));
            let (start, end) = (point(&mut rng), point(&mut rng));
            let (gap, steps_max) = (SESSION_GAP_MICROS, rng.random_range(1..8));
            let cut = Cut { start, end, gap, steps_max, ellipsis: ELLIPSIS };
            assert_eq!(paths(&cut, &steps), naive(&cut, &steps), "{cut:?} {steps:?}");
        }
    }
}
