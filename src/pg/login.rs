//! The beginning of a connection: TLS, requests to cancel, and sign-in with a personal API key. All of it is bounded in
//! time and memory, as anybody may connect. A key is neither logged nor told.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::Port;
use crate::error::Failure;
use crate::sessions::Session;
use crate::variables::Variables;
use crate::wire::backend::{Output, Transaction};
use crate::wire::connection::{Broken, Connection, OPENING_MAX_BYTES};
use crate::wire::frontend::{Malformed, Message, Opening};
use weir_app::App;
use weir_base::attempts::network;
use weir_base::telemetry::postgres_port::PortLabels;
use weir_metadata::accounts::{PersonalKey, Project};
use weir_metadata::snapshot::Snapshot;
use weir_metadata::standing::Standing;

/// What a key has to grant.
pub(crate) const SCOPE: &str = "query:read";

/// Most openings of a connection: both kinds of encryption, and the startup.
const OPENINGS_MAX: usize = 4;

/// The first byte of a client that begins with TLS at once.
const TLS_HANDSHAKE: u8 = 0x16;

/// A session that has begun.
pub(crate) struct Begun {
    pub(crate) connection: Connection,
    pub(crate) session: Session,
    /// The read path, with the limits of the key.
    pub(crate) app: App,
    pub(crate) key: Arc<PersonalKey>,
    pub(crate) project: Arc<Project>,
    pub(crate) variables: Variables,
    /// The database as the client named it.
    pub(crate) database: String,
    /// The place among the connections that have signed in.
    pub(crate) place: OwnedSemaphorePermit,
}

/// Why no session begins.
enum Ended {
    Broken(Broken),
    Refused(Box<Connection>, Failure),
    /// It was a request to cancel.
    Cancel,
}

impl From<Broken> for Ended {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// Begins a session; `None` if the connection has ended.
pub(crate) async fn login(port: &Port, stream: TcpStream, client: IpAddr) -> Option<Begun> {
    let limit = port.0.login_timeout;
    let ended = match timeout(limit, Box::pin(begin(port, stream, client))).await {
        Ok(Ok(begun)) => return Some(begun),
        Ok(Err(ended)) => ended,
        Err(_) => {
            tracing::debug!(%client, "a client of the PostgreSQL port did not sign in in time");
            return None;
        }
    };
    match ended {
        Ended::Cancel => {}
        Ended::Broken(Broken::Gone) => {}
        Ended::Broken(broken) => {
            tracing::debug!(%client, %broken, "a client of the PostgreSQL port is odd")
        }
        Ended::Refused(mut connection, failure) => {
            tracing::info!(%client, code = failure.code, reason = %failure, "refused a sign-in to the PostgreSQL port");
            connection.out.failure(&failure);
            connection.close().await;
        }
    }
    None
}

async fn begin(port: &Port, stream: TcpStream, client: IpAddr) -> Result<Begun, Ended> {
    let (mut connection, is_encrypted, opening) = opened(port, stream).await?;
    let parameters = match opening {
        Opening::Startup { minor, parameters } => {
            negotiate(&mut connection.out, minor, &parameters);
            parameters
        }
        Opening::Cancel(key) => {
            let address = network(client);
            if port.0.wrong.peek(&address).is_ok() && !port.0.sessions.cancel(key) {
                let _ = port.0.wrong.check(&address);
            }
            return Err(Ended::Cancel);
        }
        Opening::Tls | Opening::Gss => return Err(Broken::from(Malformed).into()),
    };
    let refused = |connection, failure| Err(Ended::Refused(Box::new(connection), failure));
    if port.0.tls.is_some() && !is_encrypted {
        let why = "this server takes connections with TLS only (sslmode=require)";
        return refused(connection, Failure::fatal("28000", why));
    }
    if parameters.iter().any(|(name, value)| name == "replication" && value != "false") {
        return refused(connection, Failure::fatal("0A000", "there is no replication"));
    }
    connection.out.password_request();
    connection.flush().await?;
    let password = match connection.message(OPENING_MAX_BYTES).await? {
        Message::Password(password) => password,
        Message::Terminate => return Err(Broken::Gone.into()),
        _ => return Err(Broken::from(Malformed).into()),
    };
    let (key, project, variables, database) =
        match authenticated(port, client, &password, &parameters) {
            Ok(found) => found,
            Err(failure) => return refused(connection, failure),
        };
    let Ok(place) = Arc::clone(&port.0.signed_in).try_acquire_owned() else {
        count(port, "full");
        let why = "sorry, too many clients already (postgres-connections-max)";
        return refused(connection, Failure::fatal("53300", why));
    };
    count(port, "ok");
    let node = &port.0.app.node;
    node.note_use(&key);
    let standing = Standing::of(&node.metadata, &key, None);
    let app = port.0.app.on_behalf_of(key.id, standing);
    let session = port.0.sessions.open(&mut rand::rng());
    let out = &mut connection.out;
    out.authentication_ok();
    variables.told().for_each(|(name, value)| out.parameter(name, &value));
    out.parameter(
        "session_authorization",
        &variables.get("session_authorization").unwrap_or_default(),
    );
    out.cancel_key(session.key);
    out.ready(Transaction::None);
    connection.flush().await?;
    tracing::info!(%client, project = project.id.0, key = key.id.0, "a client signed in to the PostgreSQL port");
    Ok(Begun { connection, session, app, key, project, variables, database, place })
}

/// The connection with its first message but requests for encryption, and whether it is encrypted.
async fn opened(port: &Port, stream: TcpStream) -> Result<(Connection, bool, Opening), Ended> {
    let patience = port.0.send_timeout;
    let mut first = [0];
    if stream.peek(&mut first).await.map_err(Broken::from)? == 0 {
        return Err(Broken::Gone.into());
    }
    let (mut connection, mut is_encrypted) = match (&port.0.tls, first) {
        (Some(tls), [TLS_HANDSHAKE]) => {
            let socket = tls.accept(stream).await.map_err(Broken::from)?;
            (Connection::new(Box::new(socket), patience), true)
        }
        _ => (Connection::new(Box::new(stream), patience), false),
    };
    for _ in 0..OPENINGS_MAX {
        match (connection.opening().await?, &port.0.tls) {
            (Opening::Tls, Some(tls)) if !is_encrypted => {
                connection.out.0.push(b'S');
                connection.flush().await?;
                let socket = tls.accept(connection.into_socket()?).await.map_err(Broken::from)?;
                (connection, is_encrypted) = (Connection::new(Box::new(socket), patience), true);
            }
            (Opening::Tls | Opening::Gss, _) => {
                connection.out.0.push(b'N');
                connection.flush().await?;
            }
            (opening, _) => return Ok((connection, is_encrypted, opening)),
        }
    }
    Err(Broken::from(Malformed).into())
}

/// Tells the client what of the protocol it may not use.
fn negotiate(out: &mut Output, minor: u16, parameters: &[(String, String)]) {
    let options = parameters.iter().map(|(name, _)| name.as_str());
    let options: Vec<&str> = options.filter(|name| name.starts_with("_pq_.")).collect();
    if minor > 0 || !options.is_empty() {
        out.negotiate(&options);
    }
}

fn count(port: &Port, outcome: &'static str) {
    port.0.app.node.metrics.postgres.sign_ins.get_or_create(&PortLabels { outcome }).inc();
}

type Authenticated = (Arc<PersonalKey>, Arc<Project>, Variables, String);

/// Checks the password, the project and what the client wants otherwise.
fn authenticated(
    port: &Port,
    client: IpAddr,
    password: &str,
    parameters: &[(String, String)],
) -> Result<Authenticated, Failure> {
    let address = network(client);
    if let Err(early) = port.0.wrong.peek(&address) {
        count(port, "throttled");
        return Err(Failure::fatal("28P01", early.to_string()));
    }
    let parameter = |name: &str| {
        let found = parameters.iter().find(|(own, value)| own == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    };
    let user = parameter("user").unwrap_or_default();
    let database = parameter("database").unwrap_or(user);
    let snapshot = port.0.app.node.metadata.snapshot();
    let Some(key) = snapshot.key_by_value(password) else {
        let _ = port.0.wrong.check(&address);
        count(port, "refused");
        let why = "password authentication failed: it is no personal API key";
        return Err(Failure::fatal("28P01", why));
    };
    let project = project(&snapshot, key, database).inspect_err(|_| count(port, "refused"))?;
    let variables = Variables::new(user, parameters);
    let variables = variables.map_err(|failure| Failure::fatal(failure.code, failure.message))?;
    Ok((Arc::clone(key), project, variables, database.to_owned()))
}

/// The project that a database is, by its id or its name, if the key may read it.
fn project(
    snapshot: &Snapshot,
    key: &PersonalKey,
    database: &str,
) -> Result<Arc<Project>, Failure> {
    if !key.grants(SCOPE) {
        let why = format!("the API key lacks the scope {SCOPE}");
        return Err(Failure::fatal("42501", why));
    }
    let mut own = snapshot.projects().filter(|project| key.may_use(project));
    if let Ok(id) = database.parse::<i64>()
        && let Some(found) = own.by_ref().find(|project| project.id.0 == id)
    {
        return Ok(Arc::clone(found));
    }
    let mut named = snapshot.projects().filter(|own| key.may_use(own) && own.name == database);
    match (named.next(), named.next()) {
        (Some(only), None) => Ok(Arc::clone(only)),
        (Some(_), Some(_)) => {
            let why =
                format!("several projects are named \"{database}\": connect to the id of one");
            Err(Failure::fatal("3D000", why))
        }
        // Projects of others are not told from projects that do not exist.
        (None, _) => {
            let name: String = database.chars().take(60).collect();
            let why = format!(
                "database \"{name}\" does not exist: it is the id or the name of a project of the key"
            );
            Err(Failure::fatal("3D000", why))
        }
    }
}
