//! Bipartite matching of a few things to places, one thing per place: [`Matching`].

/// The places, each with the thing that is assigned to it.
#[derive(Clone, Debug)]
pub(super) struct Matching {
    things: Vec<Option<usize>>,
    /// The places that were visited while the current thing is added.
    seen: Vec<bool>,
}

impl Matching {
    /// A number of places without assignments.
    pub(super) fn new(places: usize) -> Self {
        Self { things: vec![None; places], seen: vec![false; places] }
    }

    /// Assigns a thing to a place for which it `fits`; other things may be moved. Returns false and changes nothing
    /// if there is no such place.
    pub(super) fn add(&mut self, thing: usize, fits: &impl Fn(usize, usize) -> bool) -> bool {
        self.seen.fill(false);
        self.place(thing, fits)
    }

    fn place(&mut self, thing: usize, fits: &impl Fn(usize, usize) -> bool) -> bool {
        for place in 0..self.things.len() {
            let Some(seen) = self.seen.get_mut(place) else { continue };
            if *seen || !fits(thing, place) {
                continue;
            }
            *seen = true;
            let other = self.things.get(place).copied().flatten();
            let is_free = other.is_none_or(|other| self.place(other, fits));
            if is_free && let Some(own) = self.things.get_mut(place) {
                *own = Some(thing);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::Matching;

    #[test]
    fn things_move_where_that_makes_room() {
        // The places that fit each thing, as bits.
        let masks = [0b011, 0b001, 0b110, 0b011, 0b100];
        let fits = |thing: usize, place: usize| masks[thing] >> place & 1 == 1;
        let mut matching = Matching::new(3);
        let added: Vec<bool> = (0..5).map(|thing| matching.add(thing, &fits)).collect();
        assert_eq!(added, [true, true, true, false, false]);
        assert!(!Matching::new(0).add(0, &fits));
    }
}
