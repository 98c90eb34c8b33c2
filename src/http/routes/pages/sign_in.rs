//! Authentication of visitors of pages: signing in and out, cookies, and the check that a form comes from this server.

use std::sync::Arc;

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use maud::html;

use crate::auth;
use crate::auth::Asker;
use crate::cookies::{Cookie, cookie};
use crate::page::is_encrypted;
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::pages::visit::{Desk, form, see_other};
use crate::routes::store;
use weir_app::App;
use weir_base::attempts::network;
use weir_base::error::Kind;
use weir_event::key_kind::KeyKind;
use weir_metadata::accounts::{KeyId, KeyRow, PersonalKey, User};
use weir_metadata::secrets::KeyHash;
use weir_metadata::sessions::{SESSION_LIFE, Session};
use weir_metadata::snapshot::Snapshot;
use weir_web::frame::{Theme, door};
use weir_web::pages::sign_in as shown;
use weir_web::parts;

/// The cookie of a session.
const COOKIE: &str = "weir_session";

/// Longest URL to return to after signing in, in bytes.
const NEXT_MAX_BYTES: usize = 2000;

/// The authenticated visitor of a page.
pub(super) struct Identity {
    /// The user, with the key whose rights apply.
    pub(super) asker: Asker,
    /// The session; `None` for a request with a key in its header.
    pub(super) session: Option<Session>,
}

/// Authenticates the visitor by the key in the header, else by the session cookie. `None` if neither is present or the
/// session has ended.
///
/// # Errors
///
/// 401 for an invalid key in the header; the metadata cannot be read.
pub(super) async fn identity(app: &App, request: &Request) -> Result<Option<Identity>, Problem> {
    let snapshot = app.node.metadata.snapshot();
    if let Some(value) = auth::bearer(request) {
        let asker = auth::asker_of(&snapshot, value)?;
        return Ok(Some(Identity { asker, session: None }));
    }
    let is_secure = is_encrypted(request, app.node.config.http.public_url.as_deref());
    let value = cookie(&request.headers, COOKIE, ("/", is_secure));
    let Some(value) = value else { return Ok(None) };
    let session = app.node.metadata.session(value).await.map_err(store::problem)?;
    let Some(session) = session else { return Ok(None) };
    let Some(asker) = asker_of(&snapshot, &session, value) else { return Ok(None) };
    if !session.is_use_noted(app.node.clock.now()) {
        let (metadata, used) = (app.node.metadata.clone(), session.clone());
        app.node.tasks.0.spawn("note-session-use", async move {
            if let Err(error) = metadata.record_session_use(&used).await {
                tracing::warn!(%error, "cannot note that a session was used");
            }
        });
    }
    Ok(Some(Identity { asker, session: Some(session) }))
}

/// The rights of a session: those of its key, or all rights of its user. `None` if the key or the user was removed.
fn asker_of(snapshot: &Snapshot, session: &Session, value: &str) -> Option<Asker> {
    if let Some(id) = session.key {
        let key = snapshot.keys().find(|key| key.id == id)?;
        return Some(Asker { key: Arc::clone(key), user: Arc::clone(&key.user) });
    }
    let user = snapshot.user(session.user).filter(|user| !user.is_removed())?;
    Some(Asker { key: Arc::new(key_of(session, user, value)), user: Arc::clone(user) })
}

/// A key with all rights of the user, for a session. It is in no list; rate limits count it by its negative id.
fn key_of(session: &Session, user: &Arc<User>, value: &str) -> PersonalKey {
    let row = KeyRow {
        id: KeyId(-session.id),
        user_id: user.id,
        label: "Session of the page".to_owned(),
        hash: KeyHash::of(value),
        mask: String::new(),
        scopes: None,
        projects: None,
        is_fixed: false,
        created_at: session.created_at,
        last_used_at: Some(session.used_at),
    };
    PersonalKey::of(Arc::clone(user), row)
}

/// Redirects to the sign-in, and to the URL of `request` afterwards.
pub(super) fn to_sign_in(request: &Request) -> Response {
    let query = request.query_string();
    let next = match query.is_empty() {
        true => request.path().to_owned(),
        false => format!("{}?{query}", request.path()),
    };
    let next = if request.method == Method::GET { next } else { String::new() };
    let query = parts::query(&[("next", own_path(&next).unwrap_or_default())]);
    see_other(&format!("/login?{query}")).unwrap_or_else(Response::from)
}

/// `/login`: the form, and its submission.
pub(super) async fn sign_in(app: &App, desk: &Desk, theme: Theme, request: Request) -> Response {
    let text = |name: &str| request.query(name).unwrap_or_default().into_owned();
    let (link, next) = (text("link"), text("next"));
    let shown = |status, failure: Option<&str>, link: &str, next: &str| {
        let unready = app.shard.pipeline.readiness().err().map(|error| error.to_string());
        let content = html! {
            @if let Some(failure) = failure { (parts::failed(failure)) }
            @if let Some(unready) = &unready {
                div class="note warn" { "The server is not accepting events: " (unready) "." }
            }
            (shown::form(link, next))
        };
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        Response::bytes(status, html, door("Sign in", theme, &content).0)
    };
    if request.method == Method::GET {
        return shown(StatusCode::OK, None, &link, &next);
    }
    match attempt(app, desk, request).await {
        Ok(response) => response,
        Err(problem) => shown(problem.status(), Some(problem.detail()), "", &next),
    }
}

async fn attempt(app: &App, desk: &Desk, request: Request) -> Result<Response, Problem> {
    check_origin(&request)?;
    desk.sign_ins.check(&network(request.client_ip))?;
    let client = request.header("user-agent").unwrap_or_default().to_owned();
    let is_tls = is_encrypted(&request, app.node.config.http.public_url.as_deref());
    let form = form(request).await?;
    let (link, key, next) = (form.get("link"), form.get("key").trim(), form.get("next"));
    let (metadata, seed) = (app.node.metadata.clone(), auth::seed());
    let wrong = |detail| Problem::new(Kind::Forbidden, "permission_denied", detail);
    let value = if link.is_empty() {
        let snapshot = app.node.metadata.snapshot();
        let unknown = match KeyKind::of(key) {
            KeyKind::Missing => "Enter a personal API key (phx_...).",
            sent @ (KeyKind::Project | KeyKind::Secret) => sent.is_no_personal_key(),
            KeyKind::Personal | KeyKind::Other => "There is no such personal API key.",
        };
        let key = snapshot.key_by_value(key).filter(|_| !key.is_empty());
        let key = key.ok_or_else(|| wrong(unknown))?.id;
        let begin = async move { metadata.create_session(key, &client, &seed).await };
        store::write(app, "begin-session", begin).await?
    } else {
        let link = link.to_owned();
        let begin = async move { metadata.use_sign_in_link(&link, &client, &seed).await };
        let used = store::write(app, "begin-session", begin).await?;
        let detail = "This link was used already, or is older than 15 minutes. The command weir login prints a new one.";
        used.ok_or_else(|| wrong(detail))?
    };
    let response = see_other(own_path(next).unwrap_or("/project/@current/home"))?;
    Ok(with_cookie(response, &value, SESSION_LIFE.as_secs(), is_tls))
}

/// `POST /logout`.
///
/// # Errors
///
/// The form does not come from this server; the metadata cannot be written.
pub(super) async fn sign_out(app: &App, request: &Request) -> Result<Response, Problem> {
    check_origin(request)?;
    if let Some(Identity { session: Some(session), .. }) = identity(app, request).await? {
        let metadata = app.node.metadata.clone();
        let end = async move { metadata.end_session(session.user, session.id).await };
        store::write(app, "end-session", end).await?;
    }
    let is_tls = is_encrypted(request, app.node.config.http.public_url.as_deref());
    Ok(with_cookie(see_other("/login")?, "", 0, is_tls))
}

fn with_cookie(mut response: Response, value: &str, seconds: u64, is_secure: bool) -> Response {
    Cookie { name: COOKIE, value, path: "/", seconds, is_secure }.set_by(&mut response);
    response
}

/// Checks that a form was sent by a page of this server.
///
/// # Errors
///
/// 403.
pub(super) fn check_origin(request: &Request) -> Result<(), Problem> {
    let is_own = match (request.header("sec-fetch-site"), request.header("origin")) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => {
            let host = request.header("host").unwrap_or_default();
            origin
                .split_once("://")
                .is_some_and(|(_, authority)| !host.is_empty() && authority == host)
        }
        (None, None) => false,
    };
    let detail = "This form was not sent by a page of this server.";
    if is_own { Ok(()) } else { Err(Problem::permission_denied(detail)) }
}

/// A path on this server; `None` for another URL, or one that a browser would resolve to another server.
pub(super) fn own_path(next: &str) -> Option<&str> {
    let is_own = next.starts_with('/')
        && !next.starts_with("//")
        && next.len() <= NEXT_MAX_BYTES
        && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    is_own.then_some(next)
}

#[cfg(test)]
mod tests {
    use super::own_path;

    #[test]
    fn only_own_paths_are_returned_to() {
        for (next, expected) in [
            ("/project/1/sql?q=SELECT%201", true),
            ("/", true),
            ("", false),
            ("//evil.example", false),
            ("/\\evil.example", false),
            ("https://evil.example", false),
            ("/a\r\nset-cookie: x", false),
            ("javascript:alert(1)", false),
        ] {
            assert_eq!(own_path(next).is_some(), expected, "{next}");
        }
    }
}
