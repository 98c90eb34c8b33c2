//! Classifies an actor in each interval: [`each`], a pure function of the intervals in which it was active.

pub use weir_api::insights::series::Status;

/// Calls `tell` with each interval in which an actor has a status, and with the status. `active` are the intervals in
/// which it was active, in order and without duplicates; `is_created_in_first` is true if it was created in the first
/// of them.
pub(super) fn each(
    active: impl Iterator<Item = usize> + Clone,
    is_created_in_first: bool,
    mut tell: impl FnMut(usize, Status),
) {
    let later = active.clone().skip(1).map(Some).chain([None]);
    let mut before = None;
    for (interval, next) in active.zip(later) {
        let status = match before {
            None if is_created_in_first => Status::New,
            Some(before) if before + 1 == interval => Status::Returning,
            _ => Status::Resurrecting,
        };
        tell(interval, status);
        if next != Some(interval + 1) {
            tell(interval + 1, Status::Dormant);
        }
        before = Some(interval);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::{Status, each};

    fn told(active: &[usize], is_created_in_first: bool) -> Vec<(usize, Status)> {
        let mut told = Vec::new();
        each(active.iter().copied(), is_created_in_first, |interval, status| {
            told.push((interval, status));
        });
        told
    }

    #[test]
    fn statuses_follow_from_the_interval_before() {
        use Status::{Dormant, New, Resurrecting, Returning};
        let after = [(4, Returning), (5, Dormant), (7, Resurrecting), (8, Dormant)];
        let all = |first| [vec![(3, first)], after.to_vec()].concat();
        assert_eq!(told(&[3, 4, 7], true), all(New));
        assert_eq!(told(&[3, 4, 7], false), all(Resurrecting));
        assert_eq!(told(&[], true), []);
        for status in Status::ALL {
            assert_eq!(Status::of(status.name()), Some(status));
        }
    }

    #[test]
    fn statuses_equal_a_look_at_each_interval() {
        let mut rng = StdRng::seed_from_u64(3);
        for _ in 0..2000 {
            let active: BTreeSet<usize> =
                (0..rng.random_range(0..9)).map(|_| rng.random_range(0..12)).collect();
            let is_created = rng.random_bool(0.5);
            let mut expected = Vec::new();
            for interval in 0..14 {
                let was = interval > 0 && active.contains(&(interval - 1));
                let is_first = active.first() == Some(&interval);
                match (active.contains(&interval), was) {
                    (true, _) if is_first && is_created => expected.push((interval, Status::New)),
                    (true, true) => expected.push((interval, Status::Returning)),
                    (true, false) => expected.push((interval, Status::Resurrecting)),
                    (false, true) => expected.push((interval, Status::Dormant)),
                    (false, false) => {}
                }
            }
            let active: Vec<usize> = active.into_iter().collect();
            assert_eq!(told(&active, is_created), expected, "{active:?}");
        }
    }
}
