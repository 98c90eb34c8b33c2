//! Links that require a password: the check whether a request has a pass, in a cookie or after `Bearer`
//! ([`is_passed`]), and exchanging a password for a pass ([`attempt`]).
//!
//! # Bounds
//!
//! Every visitor with a link may guess. A guess costs one slow hash for each password of the link, of which there are
//! few. Guesses are limited per minute for each address and for each link, and only one hash is computed at a time, on
//! a thread of low priority ([`Node::hashing`](weir_app::node::Node::hashing)).
//!
//! Attackers who guess must not lock out visitors with the password. So the limit of the address is checked first, and
//! a guess that it refuses does not count against the link; some guesses at a link are reserved for addresses without a
//! recent wrong password; and an address that sent the right one is limited by its own guesses only. The memory for
//! addresses is bounded, see [`Attempts`].

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::json;

use crate::auth;
use crate::cookies::{Cookie, cookie};
use crate::fields::{Fields, is_json};
use crate::page::is_encrypted;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::store::problem;
use weir_app::App;
use weir_base::attempts::{Attempts, Lately, network};
use weir_base::clock::Clock;
use weir_base::error::Kind;
use weir_metadata::documents::Kind as Of;
use weir_metadata::documents::shares::passwords::{PASS_LIFE, PASSWORD_MAX_CHARS};
use weir_metadata::documents::shares::{Share, passwords};

/// The cookie that contains a pass.
const COOKIE: &str = "weir_share";

/// Longest body with a password, in bytes.
const BODY_MAX_BYTES: u64 = 8 << 10;

/// Guesses of one client address at the passwords of all links per minute.
const GUESSES_OF_ADDRESS_PER_MINUTE: NonZeroU32 = match NonZeroU32::new(10) {
    Some(ten) => ten,
    None => NonZeroU32::MIN,
};

/// Guesses at the passwords of one link per minute.
const GUESSES_OF_LINK_PER_MINUTE: NonZeroU32 = match NonZeroU32::new(20) {
    Some(twenty) => twenty,
    None => NonZeroU32::MIN,
};

/// Further guesses at one link per minute, reserved for addresses without a failure.
const RESERVED_PER_MINUTE: NonZeroU32 = match NonZeroU32::new(8) {
    Some(eight) => eight,
    None => NonZeroU32::MIN,
};

/// How long a wrong password of an address is remembered.
const FAILURE_LIFE: Duration = Duration::from_hours(1);

/// The document of a link, which identifies the link.
type Which = (Of, i64);

/// The limits on guesses.
#[derive(Debug)]
pub struct Guesses {
    of_addresses: Attempts<IpAddr>,
    of_links: Attempts<Which>,
    reserved: Attempts<Which>,
    /// Addresses that sent a wrong password lately, for any link.
    failed: Lately<IpAddr>,
    /// Addresses that sent the right password of a link.
    opened: Lately<(IpAddr, Which)>,
}

impl Guesses {
    /// Without any guesses.
    pub fn new(clock: &Clock) -> Self {
        Self {
            of_addresses: Attempts::new(clock, GUESSES_OF_ADDRESS_PER_MINUTE),
            of_links: Attempts::new(clock, GUESSES_OF_LINK_PER_MINUTE),
            reserved: Attempts::new(clock, RESERVED_PER_MINUTE),
            failed: Lately::new(clock, FAILURE_LIFE),
            opened: Lately::new(clock, PASS_LIFE),
        }
    }

    /// Counts a guess of an address.
    ///
    /// # Errors
    ///
    /// 429 after too many guesses.
    fn check(&self, address: IpAddr, which: Which) -> Result<(), Problem> {
        let address = network(address);
        self.of_addresses.check(&address)?;
        if self.opened.has(&(address, which)) {
            return Ok(());
        }
        match self.of_links.check(&which) {
            Err(_) if !self.failed.has(&address) => Ok(self.reserved.check(&which)?),
            checked => Ok(checked?),
        }
    }

    /// Records whether the guess was right.
    fn note(&self, address: IpAddr, which: Which, is_right: bool) {
        let address = network(address);
        match is_right {
            true => {
                self.failed.forget(&address);
                self.opened.note(&(address, which));
            }
            false => self.failed.note(&address),
        }
    }
}

/// Whether a request may see the content of a link: it requires no password, or the request has a valid pass.
///
/// # Errors
///
/// The metadata cannot be read.
pub async fn is_passed(app: &App, share: &Share, request: &Request) -> Result<bool, Problem> {
    if !share.is_password_required {
        return Ok(true);
    }
    let is_secure = is_encrypted(request, app.node.config.http.public_url.as_deref());
    let own = cookie(&request.headers, COOKIE, (request.path(), is_secure));
    let passes = [auth::bearer(request), own];
    if passes == [None, None] {
        return Ok(false);
    }
    let own = app.node.metadata.share_passwords(share.key()).await.map_err(problem)?;
    let now = app.node.clock.now();
    Ok(passes.iter().flatten().any(|pass| passwords::is_passed(share, &own, pass, now)))
}

/// The error for a request without a pass.
pub fn locked() -> Problem {
    let detail = "This link asks for a password. POST it here as `password`.";
    Problem::new(Kind::Unauthorized, "not_authenticated", detail)
}

/// Exchanges the password in the body of a request for a pass.
///
/// # Errors
///
/// 401 if the link has no such password, 429 after too many guesses, 503 while too many guesses wait to be checked; the
/// body cannot be read.
pub async fn attempt(
    app: &App,
    guesses: &Guesses,
    share: &Share,
    request: Request,
) -> Result<String, Problem> {
    let (address, which) = (request.client_ip, (share.kind, share.document));
    guesses.check(address, which)?;
    let given = password(request).await?;
    let wrong = || {
        let detail = "This is no password of the link.";
        Problem::new(Kind::Unauthorized, "authentication_failed", detail)
    };
    if given.chars().nth(PASSWORD_MAX_CHARS).is_some() {
        guesses.note(address, which, false);
        return Err(wrong());
    }
    let own = app.node.metadata.share_passwords(share.key()).await.map_err(problem)?;
    let find = move |is_awaited: &dyn Fn() -> bool| {
        own.into_iter().take_while(|_| is_awaited()).find(|one| one.hash.is_of(&given))
    };
    let found = app.node.hashing.run("verify-password", find).await;
    let found = found.map_err(|error| Problem::of(error.kind(), &error))?;
    guesses.note(address, which, found.is_some());
    Ok(found.ok_or_else(wrong)?.pass(share, app.node.clock.now()))
}

async fn password(request: Request) -> Result<String, Problem> {
    let media_type = request.header("content-type").unwrap_or_default().to_owned();
    let body = request.body.read(BODY_MAX_BYTES).await?;
    let given = if is_json(&media_type) {
        Fields::parse(&media_type, &body)?.exact_text_if_any("password")?
    } else {
        let mut fields = form_urlencoded::parse(&body);
        fields.find(|(name, _)| name == "password").map(|(_, value)| value.into_owned())
    };
    Ok(given.unwrap_or_default())
}

/// The path under which a link is unlocked; its cookie is set for this path.
#[derive(Clone, Debug)]
pub struct CookiePath {
    /// The first segment of the path.
    alias: String,
    is_tls: bool,
}

impl CookiePath {
    /// The place of a request.
    pub fn of(app: &App, request: &Request) -> Self {
        let alias = request.path().split('/').nth(1).unwrap_or_default().to_owned();
        Self { alias, is_tls: is_encrypted(request, app.node.config.http.public_url.as_deref()) }
    }

    /// The path of a link under this segment.
    pub fn path(&self, share: &Share) -> String {
        format!("/{}/{}", self.alias, share.token)
    }

    /// Adds the pass to a response as cookies: for the page of the link, and for its JSON, whose path is not below that
    /// of the page.
    #[must_use]
    pub fn with_pass(&self, mut response: Response, share: &Share, pass: &str) -> Response {
        let page = self.path(share);
        for path in [&*page, &format!("{page}.json")] {
            let (seconds, is_secure) = (PASS_LIFE.as_secs(), self.is_tls);
            Cookie { name: COOKIE, value: pass, path, seconds, is_secure }.set_by(&mut response);
        }
        response
    }

    /// The response to a program: the pass, which it may send after `Bearer`, under PostHog's field name.
    pub fn told(&self, share: &Share, pass: &str) -> Response {
        let response = Response::json(StatusCode::OK, &json!({"shareToken": pass}));
        self.with_pass(response, share, pass)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::{Guesses, Of, PASS_LIFE, Which};
    use weir_base::clock::{Clock, UnixMicros};

    const LINK: Which = (Of::Insight, 1);
    const OTHER: Which = (Of::Dashboard, 1);

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// How many of `count` wrong guesses are checked.
    fn wrong(guesses: &Guesses, from: u8, which: Which, count: usize) -> usize {
        let one = |_: &usize| {
            let is_seen = guesses.check(address(from), which).is_ok();
            if is_seen {
                guesses.note(address(from), which, false);
            }
            is_seen
        };
        (0..count).filter(one).count()
    }

    fn is_let_in(guesses: &Guesses, from: u8, which: Which) -> bool {
        let is_seen = guesses.check(address(from), which).is_ok();
        if is_seen {
            guesses.note(address(from), which, true);
        }
        is_seen
    }

    #[test]
    fn who_guesses_keeps_out_nobody_who_knows() {
        let clock = Clock::test(UnixMicros(1_000_000));
        let guesses = Guesses::new(&clock);
        assert!(is_let_in(&guesses, 9, LINK));
        // Guesses refused by the limit of the address count neither against the link nor against the reserve.
        let found = [wrong(&guesses, 1, LINK, 1000), wrong(&guesses, 2, LINK, 1000)];
        assert_eq!(found, [10, 9], "one was taken by who knew");
        assert_eq!(wrong(&guesses, 3, OTHER, 3), 3);
        assert!(!is_let_in(&guesses, 3, LINK), "wrong elsewhere");
        assert!(is_let_in(&guesses, 4, LINK));
        // Many addresses use up the reserve, too; addresses that sent the right password, and other links, are not
        // affected.
        let strangers: usize = (20..200).map(|from| wrong(&guesses, from, LINK, 5)).sum();
        assert_eq!(strangers, 7);
        assert!(!is_let_in(&guesses, 5, LINK));
        assert!([4, 9].into_iter().all(|from| is_let_in(&guesses, from, LINK)));
        assert!(is_let_in(&guesses, 5, OTHER));
        // A minute later the failed addresses get the unreserved guesses, and no more.
        clock.advance(Duration::from_secs(60));
        let again: usize = (1..3).chain(20..27).map(|from| wrong(&guesses, from, LINK, 10)).sum();
        assert_eq!(again, 20);
        assert!(is_let_in(&guesses, 6, LINK));
        clock.advance(PASS_LIFE);
        assert_eq!(wrong(&guesses, 9, LINK, 100), 10, "it is known no more");
    }
}
