//! Tokens that stand for exactly one change that a caller was shown: [`Seal`]. Nothing is stored: a token is the time of
//! its end, and a keyed hash of that and the change.

use std::time::Duration;

use ring::hmac;
use serde_json::Value;

use weir_base::clock::Clock;

/// How long a token is valid.
const LIFE: Duration = Duration::from_mins(15);

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// It is older than [`LIFE`].
    #[error(
        "The token is older than 15 minutes. Call again without it, and look at the differences again."
    )]
    Old,
    /// It is for another change, another version of the flag, another caller, or from before a restart.
    #[error(
        "The token is not for this change: arguments differ from those of the first call, the flag was changed since, \
         or the server was restarted. Call again without the token, and look at the differences again."
    )]
    Other,
}

/// Makes and checks tokens. The key is that of the process, so tokens end with it.
#[derive(Clone, Debug)]
pub(super) struct Seal {
    key: hmac::Key,
    clock: Clock,
}

impl Seal {
    /// Tokens by a secret of the process.
    pub(super) fn new(secret: &str, clock: &Clock) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Self { key, clock: clock.clone() }
    }

    /// A token for a change.
    pub(super) fn token(&self, change: &Value) -> String {
        let ends = self.now().saturating_add(LIFE.as_secs());
        let tag = hmac::sign(&self.key, &message(ends, change));
        format!("{ends}-{}", hex::encode(tag.as_ref()))
    }

    /// Checks that a token is one for this change, and still valid.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub(super) fn check(&self, token: &str, change: &Value) -> Result<(), Refused> {
        let (ends, tag) = token.trim().split_once('-').ok_or(Refused::Other)?;
        let ends: u64 = ends.parse().map_err(|_| Refused::Other)?;
        let tag = hex::decode(tag).map_err(|_| Refused::Other)?;
        // Takes the same time wherever the first wrong byte is.
        hmac::verify(&self.key, &message(ends, change), &tag).map_err(|_| Refused::Other)?;
        if ends < self.now() { Err(Refused::Old) } else { Ok(()) }
    }

    /// Seconds since 1970.
    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().0 / 1_000_000).unwrap_or_default()
    }
}

/// What is hashed. Objects print their members in the order of their names, so equal changes have equal texts.
fn message(ends: u64, change: &Value) -> Vec<u8> {
    format!("{ends}\n{change}").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{LIFE, Refused, Seal};
    use weir_base::clock::{Clock, UnixMicros};

    fn change() -> Value {
        json!({"project": 1, "key": 7, "flag": 3, "version": 5, "change": {"active": false}})
    }

    #[test]
    fn a_token_is_for_one_change_of_one_caller_for_a_time() {
        let clock = Clock::test(UnixMicros(1_795_262_400_000_000));
        let seal = Seal::new("secret", &clock);
        let token = seal.token(&change());
        assert_eq!(seal.check(&token, &change()), Ok(()));
        assert_eq!(seal.check(&format!(" {token}\n"), &change()), Ok(()));
        let reordered =
            json!({"change": {"active": false}, "version": 5, "flag": 3, "key": 7, "project": 1});
        assert_eq!(seal.check(&token, &reordered), Ok(()));
        for (name, value) in [
            ("project", json!(2)),
            ("key", json!(8)),
            ("flag", json!(4)),
            ("version", json!(6)),
            ("change", json!({"active": true})),
            ("change", json!({"active": false, "deleted": true})),
            ("more", json!(null)),
        ] {
            let mut other = change();
            other[name] = value;
            assert_eq!(seal.check(&token, &other), Err(Refused::Other), "{other}");
        }
        clock.advance(LIFE);
        assert_eq!(seal.check(&token, &change()), Ok(()));
        clock.advance(Duration::from_secs(1));
        assert_eq!(seal.check(&token, &change()), Err(Refused::Old));
    }

    #[test]
    fn nobody_else_makes_tokens() {
        let clock = Clock::test(UnixMicros(1_795_262_400_000_000));
        let seal = Seal::new("secret", &clock);
        let token = seal.token(&change());
        let other = Seal::new("another", &clock).token(&change());
        let (ends, tag) = token.split_once('-').unwrap();
        let ends: u64 = ends.parse().unwrap();
        let short = &tag[..62];
        for forged in [
            other,
            format!("{}-{tag}", ends + 1000),
            format!("{ends}-{short}"),
            format!("{ends}-{tag}00"),
            format!("{ends}-"),
            format!("{ends}-{}", "0".repeat(64)),
            format!("-{tag}"),
            "x".to_owned(),
            String::new(),
            format!("{}-{tag}", "9".repeat(400)),
        ] {
            assert_eq!(seal.check(&forged, &change()), Err(Refused::Other), "{forged}");
        }
    }
}
