//! A session: waits for messages of the client, and answers them. What one holds is bounded: prepared statements, portals,
//! settings, and the bytes of a message. Statements run one after the other; while one runs, the session also looks for a
//! request to cancel it, for the end of the key, for a client that is gone, and for the end of the server, or of its right to
//! read the project ([`Talk::attend`]).

mod answers;
mod cursors;
mod extended;
mod prepared;
mod simple;
pub(crate) mod type_rows;

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use datafusion::dataframe::DataFrame;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::{sleep, timeout};

use crate::catalog::Facts;
use crate::error::{Failure, Severity};
use crate::login::{Begun, SCOPE};
use crate::places::{Here, Tenure};
use crate::rows::{Columns, Rows, columns};
use crate::session::prepared::{Portal, Prepared};
use crate::sessions::Session;
use crate::variables::Variables;
use crate::wire::backend::Transaction;
use crate::wire::connection::{Broken, Connection, MESSAGE_MAX_BYTES};
use crate::wire::frontend::Message;
use crate::{Port, catalog};
use weir_app::App;
use weir_base::telemetry::postgres_port::PortLabels;
use weir_event::id::ProjectId;
use weir_insights::sql;
use weir_metadata::secrets::KeyHash;
use weir_query::dialect::parameters::Parameter;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::prepared as query;

/// The error of a key that has ended.
const KEY_ENDED: &str =
    "the API key of this session was revoked, or may not read this project any more";

/// The reasons for which a server ends sessions.
pub(crate) const STOPPED: &str = "due to administrator command";
const MOVED: &str = "because another server has the project now, or may have it: connect again";

/// Why a statement is not answered.
enum Stop {
    /// It failed.
    Failed(Failure),
    /// The connection ends.
    Broken(Broken),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<QueryError> for Stop {
    fn from(error: QueryError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// A session and its connection.
struct Talk {
    port: Port,
    connection: Connection,
    session: Session,
    app: App,
    tenure: Option<Arc<dyn Tenure>>,
    key: KeyHash,
    project: ProjectId,
    variables: Variables,
    /// The database as the client named it.
    database: String,
    transaction: Transaction,
    statements: HashMap<String, Prepared>,
    portals: HashMap<String, Portal>,
    /// Whether messages are skipped until the client has noticed an error.
    is_skipping: bool,
    watch: Watch,
}

/// What ends a statement from outside.
struct Watch {
    /// Completes once the key has ended.
    ended: BoxFuture<'static, ()>,
    /// Completes once another server has the project.
    moved: BoxFuture<'static, ()>,
    /// Completes once the server does not wait any longer.
    over: BoxFuture<'static, ()>,
}

impl Watch {
    fn new(port: &Port, app: &App, tenure: Option<&dyn Tenure>) -> Self {
        let app = app.clone();
        let moved = tenure.map_or_else(|| pending().boxed(), Tenure::ended);
        let (shutdown, drain) = (port.0.tasks.shutdown().clone(), port.0.drain_timeout);
        let over = async move {
            shutdown.cancelled().await;
            sleep(drain).await;
        };
        Self { ended: Box::pin(async move { app.ended().await }), moved, over: Box::pin(over) }
    }
}

/// Serves a session to its end.
pub(crate) async fn run(port: Port, begun: Begun) {
    let Begun { connection, session, here, key, project, variables, database, place } = begun;
    let Here { app, tenure } = here;
    let watch = Watch::new(&port, &app, tenure.as_deref());
    let mut talk = Talk {
        port,
        connection,
        session,
        app,
        tenure,
        key: key.hash,
        project: project.id,
        variables,
        database,
        transaction: Transaction::None,
        statements: HashMap::new(),
        portals: HashMap::new(),
        is_skipping: false,
        watch,
    };
    let ended = talk.serve().await;
    // Queries that still run are cancelled, and whoever closes the shard need not wait for the client.
    let mut connection = talk.end();
    match ended {
        Stop::Failed(failure) => {
            tracing::debug!(%failure, "a session of the PostgreSQL port ends");
            connection.out.failure(&failure);
            connection.close().await;
        }
        Stop::Broken(broken) => tracing::debug!(%broken, "a session of the PostgreSQL port ends"),
    }
    drop(place);
}

impl Talk {
    /// The connection, without everything else.
    fn end(self) -> Connection {
        self.connection
    }

    /// Answers messages until the connection ends.
    async fn serve(&mut self) -> Stop {
        loop {
            let message = match self.message().await {
                Ok(Message::Terminate) => return Broken::Gone.into(),
                Ok(message) => message,
                Err(stop) => return stop,
            };
            self.session.begin();
            if let Err(stop) = self.answer(message).await {
                return stop;
            }
            let sent = self.connection.take_sent();
            self.app.node.metrics.postgres.sent_bytes.inc_by(sent);
        }
    }

    /// The next message, while nothing ends the session.
    async fn message(&mut self) -> Result<Message, Stop> {
        let idle: Duration = self.port.0.idle_timeout;
        let shutdown = self.port.0.tasks.shutdown().clone();
        let message = tokio::select! {
            message = timeout(idle, self.connection.message(MESSAGE_MAX_BYTES)) => message,
            () = self.app.ended() => return Err(Failure::fatal("28000", KEY_ENDED).into()),
            () = &mut self.watch.moved => return Err(Failure::shutdown(MOVED).into()),
            () = shutdown.cancelled() => return Err(Failure::shutdown(STOPPED).into()),
        };
        match message {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(broken @ Broken::TooLong(..))) => {
                Err(Failure::fatal("54000", broken.to_string()).into())
            }
            Ok(Err(broken @ Broken::Malformed(_))) => {
                Err(Failure::fatal("08P01", broken.to_string()).into())
            }
            Ok(Err(broken)) => Err(broken.into()),
            Err(_) => {
                let why =
                    "terminating connection due to idle-session timeout (postgres-idle-timeout)";
                Err(Failure::fatal("57P05", why).into())
            }
        }
    }

    /// Answers a message.
    async fn answer(&mut self, message: Message) -> Result<(), Stop> {
        match message {
            Message::Sync => {
                self.is_skipping = false;
                self.end_portals();
                self.ready().await
            }
            Message::Query(text) => {
                self.is_skipping = false;
                self.query(&text).await?;
                self.end_portals();
                self.ready().await
            }
            // What follows a refused COPY FROM.
            Message::CopyIn => Ok(()),
            Message::Password(_) | Message::Terminate => {
                Err(Failure::fatal("08P01", "unexpected message").into())
            }
            _ if self.is_skipping => Ok(()),
            Message::Flush => Ok(self.connection.flush().await?),
            message => {
                let done = self.extended(message).await;
                self.is_skipping = done.is_err();
                self.settled(done).await
            }
        }
    }

    /// Sends the error of a failed statement, if the session goes on after it.
    async fn settled(&mut self, done: Result<(), Stop>) -> Result<(), Stop> {
        let failure = match done {
            Ok(()) => return Ok(self.connection.relieve().await?),
            Err(Stop::Failed(failure)) if failure.severity != Severity::Fatal => failure,
            Err(stop) => return Err(stop),
        };
        self.connection.out.failure(&failure);
        if self.transaction == Transaction::Open {
            self.transaction = Transaction::Failed;
        }
        Ok(self.connection.relieve().await?)
    }

    async fn ready(&mut self) -> Result<(), Stop> {
        self.connection.out.ready(self.transaction);
        Ok(self.connection.flush().await?)
    }

    /// Outside of a transaction, portals end with the statements that used them.
    fn end_portals(&mut self) {
        if self.transaction == Transaction::None {
            self.portals.retain(|_, portal| portal.is_held);
        }
    }

    /// Checks before a statement that this process has the project, and that the key may read it, and counts the statement.
    async fn check(&mut self) -> Result<(), Stop> {
        if let Some(tenure) = self.tenure.clone() {
            let is_sure = self.attend(async move { tenure.is_sure().await }).await?;
            if !is_sure {
                return Err(Failure::shutdown(MOVED).into());
            }
        }
        Ok(self.check_key()?)
    }

    fn check_key(&self) -> Result<(), Failure> {
        let node = &self.app.node;
        let snapshot = node.metadata.snapshot();
        let project = snapshot.project(self.project);
        let key = snapshot
            .key(self.key)
            .filter(|key| key.grants(SCOPE) && project.is_some_and(|project| key.may_use(project)));
        let Some(key) = key else { return Err(Failure::fatal("28000", KEY_ENDED)) };
        node.note_use(key);
        Ok(node.throttle.check(key.id, true)?)
    }

    /// Waits for `work`, while the client is there, does not cancel it and may ask. Dropping `work` cancels it.
    async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let Self { connection, session, watch, .. } = self;
        // In a random order: rows that are always there do not keep the others from being looked at.
        tokio::select! {
            done = work => Ok(done),
            () = session.cancelled() => Err(Failure::cancelled().into()),
            () = &mut watch.ended => Err(Failure::fatal("28000", KEY_ENDED).into()),
            () = &mut watch.moved => Err(Failure::shutdown(MOVED).into()),
            () = &mut watch.over => Err(Failure::shutdown(STOPPED).into()),
            broken = connection.gone() => Err(broken.into()),
        }
    }

    /// What the catalog is made of, if a statement is about it.
    fn facts(&self, sql: &str) -> Option<Facts> {
        catalog::concerns(sql).then(|| Facts {
            database: self.database.clone(),
            user: self.variables.get("session_authorization").unwrap_or_default(),
            process: self.session.key.process,
            settings: self.variables.all(),
        })
    }

    /// Plans a query with the values of its parameters, over the tables as of now.
    async fn plan(
        &mut self,
        sql: &str,
        values: &[Parameter],
    ) -> Result<(DataFrame, Columns), Stop> {
        let (engine, project) = (self.app.engine.clone(), self.project);
        let (sql, values) = (sql.to_owned(), values.to_vec());
        let (facts, database) = (self.facts(&sql), self.database.clone());
        let planning = Box::pin(async move {
            let view = sql::view_of(&engine, project).await?;
            view.name_database(&database);
            let planning = async move {
                let plan = match facts {
                    Some(facts) => {
                        let view = catalog::with_catalog(view, facts)?;
                        view.catalog(&sql, &values, &catalog::has_no_rows).await?
                    }
                    None => view.bound(&sql, &values).await?,
                };
                let columns = columns(&query::columns(&plan))?;
                Ok((plan, columns))
            };
            engine.planned(planning).await
        });
        Ok(self.attend(planning).await??)
    }

    /// Runs a plan.
    async fn start(&mut self, plan: DataFrame, columns: Columns) -> Result<Rows, Stop> {
        let (engine, project) = (self.app.engine.clone(), self.project);
        let starting = Box::pin(async move { engine.rows(project, async move { Ok(plan) }).await });
        Ok(Rows::of_query(self.attend(starting).await??, columns))
    }

    /// Counts a statement, and remembers it if it was slow. `began` is by the monotonic clock.
    fn note(&self, sql: &str, began: Duration, done: &Result<(), Stop>) {
        let node = &self.app.node;
        let outcome = match done {
            Ok(()) => "ok",
            Err(Stop::Failed(_)) => "failed",
            Err(Stop::Broken(_)) => "broken",
        };
        node.metrics.postgres.statements.get_or_create(&PortLabels { outcome }).inc();
        let took = node.clock.monotonic().saturating_sub(began);
        let text = || sql.to_owned();
        node.slow.note(self.project, node.clock.now(), (took, done.is_ok()), text);
    }
}

/// A name for messages, cut.
fn told(name: &str) -> String {
    name.chars().take(60).collect()
}
