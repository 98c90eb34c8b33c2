//! Hashes of passwords that people choose: [`PasswordHash`]. They are slow to compute on purpose, so that whoever
//! reads the database cannot try many guesses; call them where nothing else waits. Pure; what they are passwords of is
//! not known here.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use ring::{hmac, pbkdf2};

use crate::entity::stored;
use crate::secrets::Seed;

/// The name of the function in a stored hash: PBKDF2 with HMAC-SHA-256.
const NAME: &str = "pbkdf2_sha256";

/// Iterations of a new hash: the least that OWASP recommends for this function. A stored hash has its own number.
const ITERATIONS: NonZeroU32 = match NonZeroU32::new(600_000) {
    Some(iterations) => iterations,
    None => NonZeroU32::MIN,
};

/// The salted hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    iterations: NonZeroU32,
    salt: [u8; 16],
    hash: [u8; 32],
}

impl PasswordHash {
    /// The hash of a new password, with a salt from `seed`. Takes some tenths of a second.
    pub fn of(password: &str, seed: &Seed) -> Self {
        Self::with(ITERATIONS, password, seed.salt())
    }

    fn with(iterations: NonZeroU32, password: &str, salt: [u8; 16]) -> Self {
        let mut hash = [0; 32];
        let password = password.as_bytes();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password, &mut hash);
        Self { iterations, salt, hash }
    }

    /// Whether it is the hash of `password`. Takes as long as [`PasswordHash::of`], whatever the password.
    pub fn is_of(&self, password: &str) -> bool {
        let (function, password) = (pbkdf2::PBKDF2_HMAC_SHA256, password.as_bytes());
        pbkdf2::verify(function, self.iterations, &self.salt, password, &self.hash).is_ok()
    }

    /// A signature of `message` that only those can make and check who know the hash.
    pub(crate) fn sign(&self, message: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.key(), message.as_bytes()))
    }

    /// Whether a text is the [signature](Self::sign) of `message`. The time that it takes tells nothing of it.
    pub(crate) fn has_signed(&self, message: &str, signature: &str) -> bool {
        let signature = URL_SAFE_NO_PAD.decode(signature);
        signature.is_ok_and(|tag| hmac::verify(&self.key(), message.as_bytes(), &tag).is_ok())
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.hash)
    }

    /// The text that is stored.
    pub(crate) fn to_text(&self) -> String {
        let [salt, hash] = [&self.salt[..], &self.hash].map(|bytes| STANDARD_NO_PAD.encode(bytes));
        format!("{NAME}${}${salt}${hash}", self.iterations)
    }

    /// The inverse of [`PasswordHash::to_text`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('$');
        let (name, iterations) = (parts.next()?, parts.next()?.parse().ok()?);
        let salt = STANDARD_NO_PAD.decode(parts.next()?).ok()?.try_into().ok()?;
        let hash = STANDARD_NO_PAD.decode(parts.next()?).ok()?.try_into().ok()?;
        (name == NAME && parts.next().is_none()).then_some(Self { iterations, salt, hash })
    }
}

stored! { PasswordHash as String: |hash| hash.to_text(), |text| Self::parse(&text).ok_or_else(|| "no hash of a password".to_owned()); }

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn seed(number: u64) -> Seed {
        Seed::new(&mut StdRng::seed_from_u64(number))
    }

    /// RFC 7914, section 11. Its salt is shorter than ours, so the function itself is asked.
    #[test]
    fn the_function_is_that_of_the_standard() {
        let mut hash = [0; 64];
        let once = NonZeroU32::MIN;
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, once, b"salt", b"passwd", &mut hash);
        let expected = "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
                        49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783";
        let told: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn a_hash_knows_its_password_and_no_other() {
        let few = NonZeroU32::new(3).expect("not zero");
        let hash = PasswordHash::with(few, "correct horse", seed(1).salt());
        assert!(hash.is_of("correct horse"));
        for other in ["", "correct hors", "correct horse ", "Correct horse"] {
            assert!(!hash.is_of(other), "{other:?}");
        }
        let other = PasswordHash::with(few, "correct horse", seed(2).salt());
        assert_ne!(hash, other, "salts differ");
        assert_eq!(format!("{hash:?}"), "PasswordHash(..)");
    }

    #[test]
    fn new_hashes_are_slow_and_survive_their_text() {
        let hash = PasswordHash::of("secret password", &seed(1));
        let text = hash.to_text();
        assert!(text.starts_with("pbkdf2_sha256$600000$"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(PasswordHash::parse(&text), Some(hash));
        for bad in [
            "".to_owned(),
            text.replace("sha256", "sha1"),
            text.replace("600000", "0"),
            text.replace("600000", "many"),
            format!("{text}$"),
            format!("{text}AAAA"),
            text.rsplitn(2, '$').last().unwrap_or_default().to_owned(),
        ] {
            assert_eq!(PasswordHash::parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn signatures_are_of_one_message_by_one_hash() {
        let few = NonZeroU32::MIN;
        let (own, other) = (
            PasswordHash::with(few, "a password", seed(1).salt()),
            PasswordHash::with(few, "a password", seed(2).salt()),
        );
        let signature = own.sign("one");
        assert!(own.has_signed("one", &signature));
        assert!(!own.has_signed("two", &signature) && !other.has_signed("one", &signature));
        for bad in ["", "!", &signature[1..], &format!("{signature}A")] {
            assert!(!own.has_signed("one", bad), "{bad}");
        }
    }
}
