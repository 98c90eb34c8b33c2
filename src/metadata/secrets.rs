//! Tokens and keys: generated from random bytes, checked, hashed, masked. Pure; the caller passes
//! the random bytes.

use std::fmt;
use std::fmt::Write;

use rand::CryptoRng;
use sha2::Digest;
use sha2::Sha256;
use uuid::Uuid;

use crate::metadata::error::MetadataError;

/// Prefix of a project token, as in PostHog.
const PROJECT_PREFIX: &str = "phc_";

/// Prefix of a personal key, as in PostHog.
const PERSONAL_PREFIX: &str = "phx_";

/// Prefix of the secret key of a project, as in PostHog.
const SECRET_PREFIX: &str = "phs_";

/// Digits of a generated secret: 62^43 > 2^256, so 43 digits hold 32 bytes.
const DIGITS: usize = 43;

/// Shortest and longest token in the settings, in bytes. It is public, but anyone who guesses it
/// can send events; and one that names the project, such as `shop`, can be guessed.
const TOKEN_MIN_BYTES: usize = 12;
const TOKEN_MAX_BYTES: usize = 64;

/// Shortest and longest key value in the settings, in bytes. 32 hexadecimal digits are 128 bits,
/// which cannot be guessed (`openssl rand -hex 16`). The longest is far below any limit on headers.
const KEY_MIN_BYTES: usize = 32;
const KEY_MAX_BYTES: usize = 256;

/// 32 unpredictable bytes. All secrets that one call generates are derived from one seed.
#[derive(Clone)]
pub struct Seed([u8; 32]);

impl Seed {
    /// Draws a seed.
    pub fn new(random: &mut impl CryptoRng) -> Self {
        let mut bytes = [0; 32];
        random.fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// A project token: `phc_` and 43 of `0-9A-Za-z`.
    pub(super) fn project_token(&self) -> String {
        format!("{PROJECT_PREFIX}{}", base62(self.derive("project token")))
    }

    /// The clear value of a personal key: `phx_` and 43 of `0-9A-Za-z`.
    pub(super) fn personal_key(&self) -> String {
        format!("{PERSONAL_PREFIX}{}", base62(self.derive("personal key")))
    }

    /// The clear value of a project's secret key: `phs_` and 43 of `0-9A-Za-z`.
    pub(super) fn secret_key(&self) -> String {
        format!("{SECRET_PREFIX}{}", base62(self.derive("secret key")))
    }

    /// A distinct id for a user: 43 of `0-9A-Za-z`.
    pub(super) fn distinct_id(&self) -> String {
        base62(self.derive("distinct id"))
    }

    /// A random (version 4) UUID, different for every `purpose`.
    pub(super) fn uuid(&self, purpose: &str) -> Uuid {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(self.derive(purpose)) {
            *to = from;
        }
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// Independent bytes for every `purpose`: none reveals another.
    fn derive(&self, purpose: &str) -> [u8; 32] {
        Sha256::new().chain_update(self.0).chain_update(purpose).finalize().into()
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// The SHA-256 of a key's value: it is stored and looked up instead of the value.
///
/// The look-up compares hashes, so its time does not reveal how much of a guess was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of a clear value.
    pub fn of(value: &str) -> Self {
        Self(Sha256::digest(value).into())
    }

    /// 64 lower-case hexadecimal digits.
    pub(super) fn to_hex(self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// The inverse of [`KeyHash::to_hex`].
    pub(super) fn from_hex(hex: &str) -> Option<Self> {
        let mut hash = [0; 32];
        if hex.len() != 64 || !hex.is_ascii() {
            return None;
        }
        for (index, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(hex.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self(hash))
    }
}

/// The displayed part of a key's value: `phx_...abcd`, or stars if it is too short to show a part.
pub(super) fn mask(value: &str) -> String {
    // Rule of PostHog's `mask_key_value`.
    match (value.get(..4), value.len().checked_sub(4).and_then(|start| value.get(start..))) {
        (Some(head), Some(tail)) if value.len() >= 16 => format!("{head}...{tail}"),
        _ => "********".to_owned(),
    }
}

/// Checks a project token from the settings.
pub(super) fn check_token(token: &str) -> Result<(), MetadataError> {
    let problem = if token.len() < TOKEN_MIN_BYTES {
        "is shorter than 12 bytes, and could be guessed"
    } else if token.len() > TOKEN_MAX_BYTES {
        "is longer than 64 bytes"
    } else if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        "may hold visible ascii characters only"
    } else if token.starts_with(PERSONAL_PREFIX) {
        "starts with phx_, as personal keys do"
    } else {
        return Ok(());
    };
    Err(MetadataError::Setting { setting: "the project API key", problem })
}

/// Checks the value of a personal key from the settings. It must fit in a header.
pub(super) fn check_key(value: &str) -> Result<(), MetadataError> {
    let problem = if value.len() < KEY_MIN_BYTES {
        "is shorter than 32 bytes, and could be guessed (`openssl rand -hex 16` makes one)"
    } else if value.len() > KEY_MAX_BYTES {
        "is longer than 256 bytes"
    } else if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        "may hold visible ascii characters only"
    } else if value.starts_with(PROJECT_PREFIX) {
        "starts with phc_, as project keys do"
    } else {
        return Ok(());
    };
    Err(MetadataError::Setting { setting: "the personal API key", problem })
}

/// Encodes `bytes`, a number with the most significant byte first, as [`DIGITS`] digits of base 62.
fn base62(bytes: [u8; 32]) -> String {
    let mut number = bytes;
    let mut digits: Vec<char> = (0..DIGITS).map(|_| digit(divide_by_62(&mut number))).collect();
    digits.reverse();
    digits.into_iter().collect()
}

/// Divides the number in place and returns the remainder.
fn divide_by_62(number: &mut [u8; 32]) -> u8 {
    let mut remainder = 0_u16;
    for byte in number {
        // At most 61 * 256 + 255, so the quotient fits a byte.
        let value = remainder * 256 + u16::from(*byte);
        *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
        remainder = value % 62;
    }
    u8::try_from(remainder).unwrap_or(0)
}

fn digit(value: u8) -> char {
    char::from(match value {
        0..=9 => b'0' + value,
        10..=35 => b'A' + (value - 10),
        _ => b'a' + (value.min(61) - 36),
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    /// Expectations from Python: `int.from_bytes` and repeated `divmod(n, 62)`.
    #[test]
    fn base62_is_that_of_the_whole_number() {
        let mut counting = [0; 32];
        for (byte, value) in counting.iter_mut().zip(0..) {
            *byte = value;
        }
        let mut one = [0; 32];
        one[31] = 62;
        for (bytes, expected) in [
            ([0; 32], "0000000000000000000000000000000000000000000"),
            (one, "0000000000000000000000000000000000000000010"),
            (counting, "003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf"),
            ([255; 32], "yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1"),
        ] {
            assert_eq!(base62(bytes), expected);
        }
    }

    #[test]
    fn generated_secrets_have_the_documented_shape() {
        let seed = Seed::new(&mut StdRng::seed_from_u64(1));
        for (secret, prefix) in [(seed.project_token(), "phc_"), (seed.personal_key(), "phx_")] {
            let digits = secret.strip_prefix(prefix).expect("prefix");
            assert_eq!(digits.len(), 43);
            assert!(digits.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{digits}");
        }
        assert_ne!(seed.project_token()[4..], seed.personal_key()[4..]);
        assert_ne!(seed.uuid("a"), seed.uuid("b"));
        assert_eq!(seed.uuid("a").get_version_num(), 4);
        assert_eq!(format!("{seed:?}"), "Seed(..)");
        check_token(&seed.project_token()).expect("own tokens pass");
        check_key(&seed.personal_key()).expect("own keys pass");
    }

    /// FIPS 180-2, appendix B.1: the SHA-256 of "abc".
    #[test]
    fn hashes_are_sha256_and_survive_hex() {
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(KeyHash::of("abc").to_hex(), hex);
        assert_eq!(KeyHash::from_hex(hex), Some(KeyHash::of("abc")));
        for bad in ["", "ba", &hex.replace('b', "x"), &format!("{hex}00")] {
            assert_eq!(KeyHash::from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn masks_show_little() {
        for (value, expected) in [
            ("phx_0123456789abcdef", "phx_...cdef"),
            ("0123456789abcdef", "0123...cdef"),
            ("0123456789abcde", "********"),
            ("", "********"),
            ("ääääääääääää", "ää...ää"),
            ("aääääääääääääää", "********"),
        ] {
            assert_eq!(mask(value), expected, "{value}");
        }
    }

    #[test]
    fn fixed_values_are_checked() {
        let long = "x".repeat(65);
        for (token, good) in [
            ("phc_test_1234", true),
            ("anything-visible", true),
            (&long[..64], true),
            (&long[..12], true),
            (&long[..11], false),
            ("", false),
            (&long, false),
            ("with a few spaces", false),
            ("with one\ttab", false),
            ("phc_ä_1234567", false),
            ("phx_wrong_prefix", false),
        ] {
            assert_eq!(check_token(token).is_ok(), good, "{token}");
        }
        let long = "x".repeat(257);
        for (key, good) in [
            ("phx_0123456789abcdef0123456789ab", true),
            (&long[..32], true),
            (&long[..31], false),
            (&long[..256], true),
            ("", false),
            (&long, false),
            ("with a space 0123456789abcdef0123456789", false),
            ("line\nbreak_0123456789abcdef0123456789", false),
            ("phc_wrong_0123456789abcdef0123456789", false),
        ] {
            assert_eq!(check_key(key).is_ok(), good, "{key}");
        }
    }
}
