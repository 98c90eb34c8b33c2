//! Seeded random numbers. Integers only, so that a seed yields the same events on every machine.
//!
//! # Why not `rand`
//!
//! The `rand` crate may change the output of its generators between releases. The events of a seed
//! are expected values of tests, and must not change with an upgrade.

/// `SplitMix64` of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
/// OOPSLA 2014.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

/// Step of the state: 2^64 divided by the golden ratio, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of [`Random`]: a bijection that spreads every bit of `value` over all bits.
/// Derives the attributes of a person from its number, without a table of persons.
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number from 0 to `limit` - 1; 0 if `limit` is 0. The bias is below `limit` / 2^64.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(limit);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// True in `share` of 100 calls.
    pub(super) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// One of `items` with equal probability; `None` if there are none.
    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        items.get(usize::try_from(self.below(count)).unwrap_or(0))
    }

    /// A rank from 0 to `population` - 1; rank `r` has a probability proportional to 1 / (r + 1)
    /// (Zipf's law with exponent 1).
    ///
    /// The ranks 0, 1-2, 3-6, 7-14, ... are blocks that are about equally likely under Zipf's law:
    /// a random block, then a random rank in it. No logarithm, whose last bit differs between
    /// machines.
    pub(super) fn rank(&mut self, population: u64) -> u64 {
        let population = population.max(1);
        let blocks = u64::from(u64::BITS - population.leading_zeros());
        loop {
            let size = 1_u64 << self.below(blocks);
            let rank = size - 1 + self.below(size);
            // The last block may extend beyond the population.
            if rank < population {
                return rank;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// Vectors of the `SplitMix64` entry of Rosetta Code, "Pseudo-random numbers/Splitmix64".
    #[test]
    fn yields_the_published_numbers() {
        let mut random = Random::new(1_234_567);
        for expected in [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ] {
            assert_eq!(random.next(), expected);
        }
    }

    #[test]
    fn ranks_stay_in_the_population_and_fall_off() {
        for population in [0, 1, 2, 3, 7, 100, 500] {
            let mut random = Random::new(population);
            let mut seen = vec![0_u64; 1_000];
            for _ in 0..100_000 {
                seen[usize::try_from(random.rank(population)).unwrap()] += 1;
            }
            let size = usize::try_from(population.max(1)).unwrap();
            assert_eq!(seen[size..].iter().sum::<u64>(), 0, "population {population}");
            assert!(seen[..size].iter().all(|&count| count > 0), "population {population}");
            assert!(seen[0] * 2 >= seen[size / 2], "population {population}");
        }
    }
}
