//! The order in which objects are made that refer to each other: [`order`]. Pure.

/// The objects in an order in which each comes after those that it refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Positions of the objects that can be made.
    pub sorted: Vec<usize>,
    /// Positions of the objects that refer to themselves, directly or through others, and of those that refer to such.
    pub circular: Vec<usize>,
}

/// Sorts objects. `needs` has for each of them the positions of those that it refers to; positions beyond it are ignored.
pub fn order(needs: &[Vec<usize>]) -> Order {
    let mut waits: Vec<usize> = vec![0; needs.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    for (at, own) in needs.iter().enumerate() {
        let mut own: Vec<usize> = own.iter().copied().filter(|need| *need < needs.len()).collect();
        own.sort_unstable();
        own.dedup();
        if let Some(count) = waits.get_mut(at) {
            *count = own.len();
        }
        for need in own {
            if let Some(users) = users.get_mut(need) {
                users.push(at);
            }
        }
    }
    // By position, so that objects without references keep their order.
    let mut ready: std::collections::BTreeSet<usize> =
        waits.iter().enumerate().filter(|(_, count)| **count == 0).map(|(at, _)| at).collect();
    let mut sorted = Vec::with_capacity(needs.len());
    while let Some(at) = ready.pop_first() {
        sorted.push(at);
        for user in users.get(at).into_iter().flatten() {
            if let Some(count) = waits.get_mut(*user) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    ready.insert(*user);
                }
            }
        }
    }
    let circular = waits.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, _)| at);
    Order { circular: circular.collect(), sorted }
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn what_is_needed_comes_first_and_circles_are_found() {
        for (needs, sorted, circular) in [
            (vec![], vec![], vec![]),
            (vec![vec![], vec![], vec![]], vec![0, 1, 2], vec![]),
            (vec![vec![2], vec![0], vec![]], vec![2, 0, 1], vec![]),
            (vec![vec![1, 1, 9], vec![]], vec![1, 0], vec![]),
            (vec![vec![0], vec![]], vec![1], vec![0]),
            (vec![vec![1], vec![2], vec![0], vec![0], vec![]], vec![4], vec![0, 1, 2, 3]),
        ] {
            let found = order(&needs);
            assert_eq!((found.sorted, found.circular), (sorted, circular), "{needs:?}");
        }
    }

    /// A hundred thousand flags, each of which depends on the one before, listed in reverse.
    #[test]
    fn long_chains_need_no_stack() {
        let needs: Vec<Vec<usize>> = (0..100_000).map(|at| vec![at + 1]).collect();
        let found = order(&needs);
        assert_eq!(
            (found.sorted.len(), found.sorted[0], found.circular.len()),
            (100_000, 99_999, 0)
        );
    }
}
