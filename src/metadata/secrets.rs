//! Tokens and keys: generated from random bytes, checked, hashed, masked. Pure; the caller passes
//! the random bytes.

use std::fmt;

use rand::distr::{Alphanumeric, SampleString};
use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::entity::stored;
use crate::error::MetadataError;
use weir_event::key_kind::{PERSONAL_PREFIX, PROJECT_PREFIX, SECRET_PREFIX};

/// Digits of a generated secret: 62^43 > 2^256, as many values as a seed has.
const DIGITS: usize = 43;

/// Digits of a password that the server makes: 62^22 > 2^130.
const PASSWORD_DIGITS: usize = 22;

/// Characters of a short id.
const SHORT_CHARS: usize = 8;

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
        format!("{PROJECT_PREFIX}{}", self.letters("project token"))
    }

    /// The clear value of a personal key: `phx_` and 43 of `0-9A-Za-z`.
    pub(super) fn personal_key(&self) -> String {
        format!("{PERSONAL_PREFIX}{}", self.letters("personal key"))
    }

    /// The clear value of a project's secret key: `phs_` and 43 of `0-9A-Za-z`.
    pub(super) fn secret_key(&self) -> String {
        format!("{SECRET_PREFIX}{}", self.letters("secret key"))
    }

    /// The token of a link to a document: 43 of `0-9A-Za-z`.
    pub(super) fn share_token(&self) -> String {
        self.letters("share token")
    }

    /// A password of a link to a document: 22 of `0-9A-Za-z`.
    pub fn share_password(&self) -> String {
        self.letters("share password").chars().take(PASSWORD_DIGITS).collect()
    }

    /// The salt of the hash of a password.
    pub(super) fn salt(&self) -> [u8; 16] {
        self.half("salt of a password")
    }

    /// The secret part of a sign-in link: 43 of `0-9A-Za-z`.
    pub(super) fn sign_in_link(&self) -> String {
        self.letters("sign-in link")
    }

    /// The value of the cookie of a session: 43 of `0-9A-Za-z`.
    pub(super) fn session(&self) -> String {
        self.letters("session")
    }

    /// A distinct id for a user: 43 of `0-9A-Za-z`.
    pub(super) fn distinct_id(&self) -> String {
        self.letters("distinct id")
    }

    /// A short id: 8 of `0-9A-Za-z`.
    pub fn short_id(&self) -> String {
        self.letters("short id").chars().take(SHORT_CHARS).collect()
    }

    /// A random (version 4) UUID, different for every `purpose`.
    pub(super) fn uuid(&self, purpose: &str) -> Uuid {
        uuid::Builder::from_random_bytes(self.half(purpose)).into_uuid()
    }

    /// The first half of [`Self::derive`].
    fn half(&self, purpose: &str) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(self.derive(purpose)) {
            *to = from;
        }
        bytes
    }

    /// [`DIGITS`] of `0-9A-Za-z`, independent for every `purpose`.
    fn letters(&self, purpose: &str) -> String {
        Alphanumeric.sample_string(&mut StdRng::from_seed(self.derive(purpose)), DIGITS)
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of a clear value.
    pub fn of(value: &str) -> Self {
        Self(Sha256::digest(value).into())
    }

    /// 64 lower-case hexadecimal digits.
    pub(super) fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// The inverse of [`KeyHash::to_hex`].
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let mut hash = [0; 32];
        hex::decode_to_slice(text, &mut hash).ok()?;
        Some(Self(hash))
    }
}

stored! { KeyHash as String: |hash| hash.to_hex(), |text| Self::from_hex(&text).ok_or_else(|| "no hash of a key".to_owned()); }

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
    match token_problem(token) {
        Some(problem) => Err(MetadataError::Setting { setting: "the project API key", problem }),
        None => Ok(()),
    }
}

/// What is wrong with a project token that somebody chose.
pub(super) fn token_problem(token: &str) -> Option<&'static str> {
    Some(if token.len() < TOKEN_MIN_BYTES {
        "is shorter than 12 bytes, and could be guessed"
    } else if token.len() > TOKEN_MAX_BYTES {
        "is longer than 64 bytes"
    } else if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        "may hold visible ascii characters only"
    } else if token.starts_with(PERSONAL_PREFIX) {
        "starts with phx_, as personal keys do"
    } else if token.starts_with(SECRET_PREFIX) {
        "starts with phs_, as secret keys do"
    } else {
        return None;
    })
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

#[cfg(test)]
mod tests {
    use super::*;

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
        for bad in
            ["", "ba", &hex.replace('b', "x"), &hex.replacen("ba", "+a", 1), &format!("{hex}00")]
        {
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
            ("phs_wrong_prefix", false),
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
