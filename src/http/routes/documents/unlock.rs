//! Links that ask for a password: whether a request has the pass of somebody who gave one ([`is_passed`]), in a cookie
//! or after `Bearer`, and giving one ([`attempt`]).
//!
//! # Bounds
//!
//! Whoever has a link may guess. A guess costs one slow hash for each password of the link, of which there are few; an
//! address, and a link, have so many guesses a minute; and of all hashes one is computed at a time, on a thread of low
//! priority ([`App::hashing`]).

use std::net::IpAddr;
use std::num::NonZeroU32;

use hyper::StatusCode;
use serde_json::json;

use crate::app::App;
use crate::clock::Clock;
use crate::error::Kind;
use crate::http::auth;
use crate::http::cookies::Cookie;
use crate::http::cookies::cookie;
use crate::http::fields::Fields;
use crate::http::fields::is_json;
use crate::http::page::base_url;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::flag_events::network;
use crate::http::routes::store::problem;
use crate::http::throttle::Attempts;
use crate::metadata::documents::Kind as Of;
use crate::metadata::documents::shares::Share;
use crate::metadata::documents::shares::passwords;
use crate::metadata::documents::shares::passwords::PASS_LIFE;
use crate::metadata::documents::shares::passwords::PASSWORD_MAX_CHARS;

/// The cookie with a pass.
const COOKIE: &str = "weir_share";

/// Longest body with a password, in bytes.
const BODY_MAX_BYTES: u64 = 8 << 10;

/// Guesses of one client address at the passwords of all links in a minute.
const GUESSES_OF_ADDRESS_PER_MINUTE: NonZeroU32 = match NonZeroU32::new(10) {
    Some(ten) => ten,
    None => NonZeroU32::MIN,
};

/// Guesses at the passwords of one link in a minute.
const GUESSES_OF_LINK_PER_MINUTE: NonZeroU32 = match NonZeroU32::new(20) {
    Some(twenty) => twenty,
    None => NonZeroU32::MIN,
};

/// The limits on guesses.
#[derive(Debug)]
pub struct Guesses {
    of_addresses: Attempts<IpAddr>,
    of_links: Attempts<(Of, i64)>,
}

impl Guesses {
    /// None yet.
    pub fn new(clock: &Clock) -> Self {
        Self {
            of_addresses: Attempts::new(clock, GUESSES_OF_ADDRESS_PER_MINUTE),
            of_links: Attempts::new(clock, GUESSES_OF_LINK_PER_MINUTE),
        }
    }

    fn check(&self, address: IpAddr, share: &Share) -> Result<(), Problem> {
        self.of_addresses.check(&network(address))?;
        self.of_links.check(&(share.kind, share.document))
    }
}

/// Whether a request may see what a link leads to: it asks for no password, or the request has a pass through it.
///
/// # Errors
///
/// The metadata cannot be read.
pub async fn is_passed(app: &App, share: &Share, request: &Request) -> Result<bool, Problem> {
    if !share.is_password_required {
        return Ok(true);
    }
    let passes = [auth::bearer(request), cookie(&request.headers, COOKIE)];
    if passes == [None, None] {
        return Ok(false);
    }
    let which = (share.kind, share.document);
    let own = app.metadata.share_passwords(share.project, which).await.map_err(problem)?;
    let now = app.clock.now();
    Ok(passes.iter().flatten().any(|pass| passwords::is_passed(share, &own, pass, now)))
}

/// The refusal of a request without a pass.
pub fn locked() -> Problem {
    let detail = "This link asks for a password. POST it here as `password`.";
    Problem::new(Kind::Unauthorized, "not_authenticated", detail)
}

/// The pass for the password in the body of a request.
///
/// # Errors
///
/// 401 if it is none of the link's, 429 after too many guesses, 503 while too many are being looked at; the body cannot
/// be read.
pub async fn attempt(
    app: &App,
    guesses: &Guesses,
    share: &Share,
    request: Request,
) -> Result<String, Problem> {
    guesses.check(request.client_ip, share)?;
    let given = password(request).await?;
    let wrong = || {
        let detail = "This is no password of the link.";
        Problem::new(Kind::Unauthorized, "authentication_failed", detail)
    };
    if given.chars().nth(PASSWORD_MAX_CHARS).is_some() {
        return Err(wrong());
    }
    let which = (share.kind, share.document);
    let own = app.metadata.share_passwords(share.project, which).await.map_err(problem)?;
    let find = move |is_awaited: &dyn Fn() -> bool| {
        own.into_iter().take_while(|_| is_awaited()).find(|one| one.hash.is_of(&given))
    };
    let found = app.hashing.run("verify-password", find).await;
    let found = found.map_err(|error| Problem::of(error.kind(), &error))?;
    Ok(found.ok_or_else(wrong)?.pass(share, app.clock.now()))
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

/// Where a pass is asked for, which is where its cookie is for.
#[derive(Clone, Debug)]
pub struct Place {
    /// The first part of the path.
    alias: String,
    is_tls: bool,
}

impl Place {
    /// That of a request.
    pub fn of(app: &App, request: &Request) -> Self {
        let alias = request.path().split('/').nth(1).unwrap_or_default().to_owned();
        let base = base_url(request, app.config.http.public_url.as_deref());
        Self { alias, is_tls: base.starts_with("https://") }
    }

    /// The path of a link here.
    pub fn path(&self, share: &Share) -> String {
        format!("/{}/{}", self.alias, share.token)
    }

    /// A response with the pass in a cookie, for the page of the link and its JSON, which is not below the page.
    #[must_use]
    pub fn with_pass(&self, mut response: Response, share: &Share, pass: &str) -> Response {
        let page = self.path(share);
        for path in [&*page, &format!("{page}.json")] {
            let (seconds, is_secure) = (PASS_LIFE.as_secs(), self.is_tls);
            Cookie { name: COOKIE, value: pass, path, seconds, is_secure }.set_by(&mut response);
        }
        response
    }

    /// The answer to a program: the pass, which it may send after `Bearer`, as PostHog names it.
    pub fn told(&self, share: &Share, pass: &str) -> Response {
        let response = Response::json(StatusCode::OK, &json!({"shareToken": pass}));
        self.with_pass(response, share, pass)
    }
}
