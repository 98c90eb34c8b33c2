//! The beginning of a connection: TLS, requests to cancel, and sign-in with a personal API key. All of it is bounded in
//! time and memory, as anybody may connect. A key is neither logged nor told. A session of a project that another process has
//! begins here up to the password, and goes on there.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::Port;
use crate::error::Failure;
use crate::places::{CancelKey, Here, Place, Socket};
use crate::relay::PassedOn;
use crate::sessions::Session;
use crate::variables::Variables;
use crate::wire::backend::{Output, Transaction};
use crate::wire::connection::{Broken, Connection, OPENING_MAX_BYTES};
use crate::wire::frontend::{Malformed, Message, OPTION, Opening, first_messages};
use weir_base::attempts::network;
use weir_base::telemetry::postgres_port::PortLabels;
use weir_metadata::accounts::{PersonalKey, Project};
use weir_metadata::snapshot::Snapshot;
use weir_metadata::standing::Standing;

/// What a key has to grant.
pub(crate) const SCOPE: &str = "query:read";

/// The code of a wrong password.
const WRONG_PASSWORD: &str = "28P01";

/// Most openings of a connection: both kinds of encryption, and the startup.
const OPENINGS_MAX: usize = 4;

/// The first byte of a client that begins with TLS at once.
const TLS_HANDSHAKE: u8 = 0x16;

/// Who serves a client that has signed in.
pub(crate) enum Arrived {
    /// This process.
    Here(Box<Begun>),
    /// Another one.
    Elsewhere(Box<PassedOn>),
}

/// A session that has begun.
pub(crate) struct Begun {
    pub(crate) connection: Connection,
    pub(crate) session: Session,
    /// The read path, with the limits of the key.
    pub(crate) here: Here,
    pub(crate) key: Arc<PersonalKey>,
    pub(crate) project: Arc<Project>,
    pub(crate) variables: Variables,
    /// The database as the client named it.
    pub(crate) database: String,
    /// The place among the connections that have signed in.
    pub(crate) place: OwnedSemaphorePermit,
}

/// What a client says of itself.
struct Hello {
    parameters: Vec<(String, String)>,
    password: String,
}

/// Who a client is, and what it wants.
struct Known {
    key: Arc<PersonalKey>,
    project: Arc<Project>,
    variables: Variables,
    database: String,
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
pub(crate) async fn login(port: &Port, stream: TcpStream, client: IpAddr) -> Option<Arrived> {
    in_time(port, client, Box::pin(begin(port, stream, client))).await
}

/// Begins the session of a connection that another process has passed on here; `None` if it has ended.
pub(crate) async fn login_passed_on(
    port: &Port,
    here: Here,
    stream: impl Future<Output = Option<Box<dyn Socket>>>,
    client: IpAddr,
) -> Option<Begun> {
    in_time(port, client, Box::pin(begin_passed_on(port, here, stream, client))).await
}

/// What `beginning` gives within the time to sign in. Tells the client why there is none.
async fn in_time<T>(
    port: &Port,
    client: IpAddr,
    beginning: impl Future<Output = Result<T, Ended>>,
) -> Option<T> {
    let ended = match timeout(port.0.login_timeout, beginning).await {
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

async fn begin(port: &Port, stream: TcpStream, client: IpAddr) -> Result<Arrived, Ended> {
    let (mut connection, is_encrypted, opening) = opened(port, stream).await?;
    let parameters = match opening {
        Opening::Startup { minor, parameters } => {
            negotiate(&mut connection.out, minor, &parameters);
            parameters
        }
        Opening::Cancel(key) => {
            cancel(port, client, key).await;
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
    let hello = Hello { parameters, password };
    let known = match recognized(port, client, &hello).await {
        Ok(known) => known,
        Err(failure) => return refused(connection, failure),
    };
    let place = match place(port) {
        Ok(place) => place,
        Err(failure) => return refused(connection, failure),
    };
    // Only for who has signed in: strangers cause no work of other servers.
    let arrived = match port.0.places.find(known.project.shard, client).await {
        Some(Place::Here(here)) => {
            let begun = welcome(port, (connection, place), known, here).await?;
            tell(&begun, client, "here");
            Arrived::Here(Box::new(begun))
        }
        Some(Place::Elsewhere(mut elsewhere)) => {
            let sent = first_messages(&hello.parameters, &hello.password);
            elsewhere.stream.write_all(&sent).await.map_err(Broken::from)?;
            elsewhere.stream.flush().await.map_err(Broken::from)?;
            port.0.node.metrics.postgres.passed_on.inc();
            Arrived::Elsewhere(Box::new(PassedOn { connection, elsewhere, place }))
        }
        None => return refused(connection, nobody()),
    };
    count(port, "ok");
    Ok(arrived)
}

/// The server that has passed the connection on has spoken with the client up to the password, and has checked that. It is
/// checked here again, since only the key tells what may be read.
async fn begin_passed_on(
    port: &Port,
    here: Here,
    stream: impl Future<Output = Option<Box<dyn Socket>>>,
    client: IpAddr,
) -> Result<Begun, Ended> {
    let stream = stream.await.ok_or(Broken::Gone)?;
    let mut connection = Connection::new(stream, port.0.send_timeout);
    let Opening::Startup { parameters, .. } = connection.opening().await? else {
        return Err(Broken::from(Malformed).into());
    };
    let Message::Password(password) = connection.message(OPENING_MAX_BYTES).await? else {
        return Err(Broken::from(Malformed).into());
    };
    let hello = Hello { parameters, password };
    let begun = match recognized(port, client, &hello).await {
        // It was found by another name, or moved to another owner.
        Ok(known) if known.project.shard != here.app.shard.id => Err(nobody()),
        Ok(known) => place(port).map(|place| (known, place)),
        Err(failure) => Err(failure),
    };
    match begun {
        Ok((known, place)) => {
            let begun = welcome(port, (connection, place), known, here).await?;
            tell(&begun, client, "another server");
            Ok(begun)
        }
        Err(failure) => Err(Ended::Refused(Box::new(connection), failure)),
    }
}

/// Cancels the statement of a session, wherever it is. Who guesses may not guess often.
async fn cancel(port: &Port, client: IpAddr, key: CancelKey) {
    let address = network(client);
    if port.0.wrong.peek(&address).is_ok()
        && !port.0.sessions.cancel(key)
        && !port.0.places.cancel(key).await
    {
        let _ = port.0.wrong.check(&address);
    }
}

/// A place among the connections that have signed in.
fn place(port: &Port) -> Result<OwnedSemaphorePermit, Failure> {
    Arc::clone(&port.0.signed_in).try_acquire_owned().map_err(|_| {
        count(port, "full");
        let why = "sorry, too many clients already (postgres-connections-max)";
        Failure::fatal("53300", why)
    })
}

/// The error while no server has a project.
fn nobody() -> Failure {
    Failure::fatal("57P03", "no server has the project at the moment: connect again soon")
}

/// Tells a client that its session has begun.
async fn welcome(
    port: &Port,
    (mut connection, place): (Connection, OwnedSemaphorePermit),
    known: Known,
    Here { app, tenure }: Here,
) -> Result<Begun, Broken> {
    let Known { key, project, variables, database } = known;
    let node = &port.0.node;
    node.note_use(&key);
    let standing = Standing::of(&node.metadata, &key, None);
    let here = Here { app: app.on_behalf_of(key.id, standing), tenure };
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
    Ok(Begun { connection, session, here, key, project, variables, database, place })
}

fn tell(Begun { project, key, .. }: &Begun, client: IpAddr, by: &str) {
    let (project, key) = (project.id.0, key.id.0);
    tracing::info!(%client, project, key, by, "a client signed in to the PostgreSQL port");
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
    let options: Vec<&str> = options.filter(|name| name.starts_with(OPTION)).collect();
    if minor > 0 || !options.is_empty() {
        out.negotiate(&options);
    }
}

fn count(port: &Port, outcome: &'static str) {
    port.0.node.metrics.postgres.sign_ins.get_or_create(&PortLabels { outcome }).inc();
}

/// Checks the password, the project and what the client wants otherwise. What is not known may just have been made at another
/// server.
async fn recognized(port: &Port, client: IpAddr, hello: &Hello) -> Result<Known, Failure> {
    let address = network(client);
    if let Err(early) = port.0.wrong.peek(&address) {
        count(port, "throttled");
        return Err(Failure::fatal(WRONG_PASSWORD, early.to_string()));
    }
    let metadata = &port.0.node.metadata;
    let mut known = hello.known(&metadata.snapshot());
    if known.is_err() {
        port.0.places.look().await;
        known = hello.known(&metadata.snapshot());
    }
    known.inspect_err(|failure| {
        if failure.code == WRONG_PASSWORD {
            let _ = port.0.wrong.check(&address);
        }
        count(port, "refused");
    })
}

impl Hello {
    fn known(&self, snapshot: &Snapshot) -> Result<Known, Failure> {
        let parameter = |name: &str| {
            let mut all = self.parameters.iter();
            let found = all.find(|(own, value)| own == name && !value.is_empty());
            found.map(|(_, value)| value.as_str())
        };
        let user = parameter("user").unwrap_or_default();
        let database = parameter("database").unwrap_or(user);
        let Some(key) = snapshot.key_by_value(&self.password) else {
            let why = "password authentication failed: it is no personal API key";
            return Err(Failure::fatal(WRONG_PASSWORD, why));
        };
        let project = project(snapshot, key, database)?;
        let variables = Variables::new(user, &self.parameters);
        let variables =
            variables.map_err(|failure| Failure::fatal(failure.code, failure.message))?;
        Ok(Known { key: Arc::clone(key), project, variables, database: database.to_owned() })
    }
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
