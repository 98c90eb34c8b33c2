//! The bucketing hash: maps an identifier to a number from 0 to 1, bit-exact with the SDKs, which
//! compute the same one when they evaluate locally.
//!
//! SHA-1 of prefix, identifier and salt; its first 60 bits as an integer; divided by 2^60 - 1 in
//! doubles (which rounds the divisor to 2^60). Percentages are compared with the result. Not for
//! security: SHA-1 is used because the SDKs use it.

use sha1::{Digest, Sha1};

/// 2^60 - 1, the largest value of the integer, as SDKs write it; as a double it is 2^60.
const SCALE: f64 = 1_152_921_504_606_846_976.0;

/// The position of the identifier in the rollout of a flag. An empty identifier is at 0, inside
/// every rollout, as on PostHog's server.
pub fn rollout(flag_key: &str, identifier: &str) -> f64 {
    if identifier.is_empty() {
        return 0.0;
    }
    unit(&[flag_key, ".", identifier])
}

/// The position of the identifier among the variants of a flag. Independent of the position in the
/// rollout, so that a wider rollout changes nobody's variant.
pub fn variant(flag_key: &str, identifier: &str) -> f64 {
    if identifier.is_empty() {
        return 0.0;
    }
    unit(&[flag_key, ".", identifier, "variant"])
}

/// The position of the identifier in the holdouts. The same for all flags, because a holdout
/// excludes the same persons from all experiments.
pub fn holdout(identifier: &str) -> f64 {
    unit(&["holdout-", identifier])
}

fn unit(parts: &[&str]) -> f64 {
    let mut sha1 = Sha1::new();
    for part in parts {
        sha1.update(part.as_bytes());
    }
    let digest: [u8; 20] = sha1.finalize().into();
    let [b0, b1, b2, b3, b4, b5, b6, b7, ..] = digest;
    // 28 and 32 bits. Both are exact as doubles, so that the sum is rounded once, like the
    // conversion of the 60 bits.
    let high = u32::from_be_bytes([b0, b1, b2, b3]) >> 4;
    let low = (u32::from_be_bytes([b3, b4, b5, b6]) << 4) | u32::from(b7 >> 4);
    (f64::from(high) * 4_294_967_296.0 + f64::from(low)) / SCALE
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::{holdout, rollout, variant};

    /// Written by `tests/fixtures/flags/bucketing.py`.
    #[derive(Deserialize)]
    struct Oracle {
        simple: String,
        multivariate: String,
        hashes: Vec<Hash>,
    }

    #[derive(Deserialize)]
    struct Hash {
        key: String,
        identifier: String,
        rollout: String,
        variant: String,
        holdout: String,
    }

    fn oracle() -> Oracle {
        serde_json::from_str(include_str!("../../tests/fixtures/flags/bucketing.json"))
            .expect("the fixture is JSON")
    }

    /// Values computed with the Python SDK.
    #[test]
    fn hashes_are_those_of_the_sdks() {
        for (actual, expected) in [
            (rollout("simple-flag", "distinct_id_0"), 0.783_696_376_422_043_2),
            (rollout("simple-flag", "distinct_id_1"), 0.339_706_992_699_540_1),
            (rollout("beta-feature", "user-1"), 0.726_491_254_926_088_6),
            (variant("beta-feature", "user-1"), 0.145_782_183_342_664_93),
            (holdout("user-1"), 0.178_055_992_065_730_22),
            (rollout("f", "ünï-用户"), 0.174_359_871_220_447_63),
            (rollout("f", ""), 0.0),
            (variant("f", ""), 0.0),
        ] {
            assert_eq!(actual.to_bits(), f64::to_bits(expected));
        }
    }

    #[test]
    fn hashes_agree_with_the_oracle_bit_by_bit() {
        let bits = |hash: f64| format!("{:016x}", hash.to_bits());
        for row in oracle().hashes {
            let name = format!("{} {}", row.key, row.identifier);
            assert_eq!(bits(rollout(&row.key, &row.identifier)), row.rollout, "{name}");
            assert_eq!(bits(variant(&row.key, &row.identifier)), row.variant, "{name}");
            assert_eq!(bits(holdout(&row.identifier)), row.holdout, "{name}");
        }
    }

    /// The 2 x 1,000 results that the Python SDK publishes in its tests.
    #[test]
    fn rollouts_and_variants_agree_with_the_published_results() {
        let oracle = oracle();
        assert_eq!((oracle.simple.len(), oracle.multivariate.len()), (1000, 1000));
        for (i, expected) in oracle.simple.chars().enumerate() {
            let inside = rollout("simple-flag", &format!("distinct_id_{i}")) <= 0.45;
            assert_eq!(inside, expected == '1', "distinct_id_{i}");
        }
        for (i, expected) in oracle.multivariate.chars().enumerate() {
            let user = format!("distinct_id_{i}");
            let place = variant("multivariate-flag", &user);
            let ends = [0.5, 0.7, 0.9, 0.95, 1.0];
            let actual = if rollout("multivariate-flag", &user) <= 0.55 {
                ends.iter().position(|end| place < *end)
            } else {
                None
            };
            let expected =
                expected.to_digit(10).map(|digit| usize::try_from(digit).expect("small"));
            assert_eq!(actual, expected, "{user}");
        }
    }
}
