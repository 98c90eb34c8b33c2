//! Test harness: a real server on a directory of its own, and clients. No expectations here.
//!
//! The server is the released binary, so the tests cover its command line, its signals and its files.
//! HTTP is written by hand to a blocking socket, one request per connection: a client library would
//! repair or refuse some of the requests that tests send.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{io, thread};

use serde_json::Value;
use tempfile::TempDir;
use weir_base::clock::Clock;

use crate::support::postgres::Database;

/// Project API key of every test server.
pub(crate) const TOKEN: &str = "phc_test_project_token";

/// Personal API key of every test server.
pub(crate) const KEY: &str = "phx_test_personal_key_0123456789abcdef";

/// Polling interval.
const TICK: Duration = Duration::from_millis(10);

/// Longest time for the server to start or to shut down, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest time for one response.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// One server and its data directory; both end with the value.
#[derive(Debug)]
pub(crate) struct TestServer {
    directory: TempDir,
    settings: Vec<(String, String)>,
    /// Options of the shell's `ulimit` that the server starts under.
    limits: Option<String>,
    /// Size in MiB of a disk for the data directory, which ends with the process.
    disk_mib: Option<u64>,
    /// The database of the metadata, if the environment puts them into one.
    database: Option<Database>,
    /// Where it listens, if that has to be known before it says so.
    listen: Option<SocketAddr>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    process: Child,
    address: SocketAddr,
}

impl TestServer {
    /// Starts a server with default settings, on a free port, and waits until it is ready.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings as environment variables, such as `("WEIR_BODY_MAX_BYTES", "1MiB")`.
    pub(crate) fn start_with(settings: &[(&str, &str)]) -> Self {
        let mut server = Self::new(settings);
        server.run();
        server
    }

    /// The same for a server that may never become ready; it answers HTTP when this returns.
    pub(crate) fn start_unready_with(settings: &[(&str, &str)]) -> Self {
        let mut server = Self::new(settings);
        server.run_unready();
        server
    }

    /// The same under limits of the operating system: options of the shell's `ulimit` such as `-n 256`.
    pub(crate) fn start_limited(limits: &str, settings: &[(&str, &str)]) -> Self {
        let mut server = Self::new(settings);
        server.limits = Some(limits.to_owned());
        server.run();
        server
    }

    /// The same on a disk of this size, which only the process can access and which ends with it; see
    /// [`TestServer::disk`]. `None` if the system does not allow mounting one.
    pub(crate) fn start_on_disk(mib: u64, settings: &[(&str, &str)]) -> Option<Self> {
        let allowed = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).output();
        if !allowed.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let mut server = Self::new(settings);
        server.disk_mib = Some(mib);
        server.run();
        Some(server)
    }

    /// The data directory, accessed through the process.
    pub(crate) fn disk(&self) -> PathBuf {
        let directory = self.data_dir().display().to_string();
        format!("/proc/{}/root{directory}", self.process_id()).into()
    }

    /// A server that does not run yet, and has no data directory; see [`Self::try_start`].
    pub(crate) fn stopped(settings: &[(&str, &str)]) -> Self {
        Self::new(settings)
    }

    fn new(settings: &[(&str, &str)]) -> Self {
        let chosen = settings.iter().any(|(name, _)| *name == "WEIR_METADATA_URL");
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Self {
            directory: tempfile::tempdir().expect("a directory for the server"),
            settings: settings.collect(),
            database: if chosen { None } else { Database::of_environment() },
            limits: None,
            disk_mib: None,
            listen: None,
            running: None,
        }
    }

    /// Changes a setting for the next start.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// Starts without this setting from now on.
    pub(crate) fn unset(&mut self, name: &str) {
        self.settings.retain(|(known, _)| known != name);
    }

    /// The data directory.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A client of the running server.
    pub(crate) fn client(&self) -> Client {
        Client { address: self.running.as_ref().expect("the server runs").address }
    }

    /// Where clients of PostgreSQL connect, if the settings have a port for them.
    pub(crate) fn postgres(&self) -> SocketAddr {
        let told = std::fs::read_to_string(self.directory.path().join("stdout")).expect("UTF-8");
        let line = told
            .lines()
            .find_map(|line| line.strip_prefix("clients of PostgreSQL connect to host "));
        let (host, rest) = line.expect("a port").split_once(", port ").expect("a port");
        let port = rest.split(',').next().expect("a port").parse().expect("a number");
        SocketAddr::new(host.parse().expect("an address"), port)
    }

    /// The id of the server's process.
    pub(crate) fn process_id(&self) -> u32 {
        self.running.as_ref().expect("the server runs").process.id()
    }

    /// The URL of the server, as in `http://127.0.0.1:8000`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.client().address)
    }

    /// Kills the server (SIGKILL), as in a crash.
    pub(crate) fn kill(&mut self) {
        let mut running = self.running.take().expect("the server runs");
        running.process.kill().expect("the server can be killed");
        running.process.wait().expect("the server's end");
    }

    /// Shuts the server down (SIGTERM): it flushes, and exits without an error.
    pub(crate) fn stop(&mut self) {
        self.begin_to_stop();
        self.wait_for_end();
    }

    /// Waits until the server has ended after [`Self::begin_to_stop`], without an error.
    pub(crate) fn wait_for_end(&mut self) {
        let mut running = self.running.take().expect("the server runs");
        let ended = patiently(|| running.process.try_wait().expect("the server's state"));
        let Some(status) = ended else {
            running.process.kill().expect("the server can be killed");
            panic!("the server does not end after SIGTERM; it said:\n{}", self.stderr());
        };
        assert!(status.success(), "after SIGTERM: {status}; the server said:\n{}", self.stderr());
    }

    /// SIGTERM, without waiting for the end; see [`Self::stop`].
    pub(crate) fn begin_to_stop(&self) {
        let running = self.running.as_ref().expect("the server runs");
        let id = rustix::process::Pid::from_child(&running.process);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("SIGTERM");
    }

    /// Starts the server after [`Self::kill`] and kills it again `after` that, ready or not.
    pub(crate) fn start_and_kill(&mut self, after: Duration) {
        let mut process = self.spawn(&[]);
        thread::sleep(after);
        process.kill().expect("the server can be killed");
        process.wait().expect("the server's end");
    }

    /// Starts the server. If it exits instead, the error is its standard error.
    pub(crate) fn try_start(&mut self) -> Result<(), String> {
        self.try_start_with(&[])
    }

    /// The same with further arguments.
    pub(crate) fn try_start_with(&mut self, arguments: &[&str]) -> Result<(), String> {
        self.run_unready_with(arguments)?;
        self.wait_until_ready();
        Ok(())
    }

    /// Starts the server again on the same directory, after [`Self::kill`] or [`Self::stop`]; kills it
    /// first if it runs.
    pub(crate) fn restart(&mut self) {
        if self.running.is_some() {
            self.kill();
        }
        self.run();
    }

    /// The rows of an SQL query, as `weir query` prints them. Works with and without the server, which may be busy at first.
    pub(crate) fn query(&self, sql: &str) -> Vec<Value> {
        const BUSY: &[u8] = b"cannot do this at the moment";
        let ask = || self.weir(&["query", "--format", "json"]).arg(sql).output().expect("weir");
        let is_busy = |stderr: &[u8]| stderr.windows(BUSY.len()).any(|part| part == BUSY);
        let answered = patiently(|| Some(ask()).filter(|output| !is_busy(&output.stderr)));
        let output = answered.unwrap_or_else(ask);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "weir query {sql}\n{stderr}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.lines().map(|row| serde_json::from_str(row).expect("a JSON row")).collect()
    }

    /// The single number of an SQL query.
    pub(crate) fn count(&self, sql: &str) -> u64 {
        let rows = self.query(sql);
        let number = match &rows[..] {
            [Value::Object(row)] => row.values().next().and_then(Value::as_u64),
            _ => None,
        };
        number.unwrap_or_else(|| panic!("not one number: {sql}: {rows:?}"))
    }

    /// Live files of the events table, as `weir inspect` prints them.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        run(self.weir(&["inspect", "--files"])).lines().map(PathBuf::from).collect()
    }

    /// Sends a request over HTTP; see [`Client::send`].
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Answer {
        let sent = self.client().send(method, path, headers, body.as_ref());
        sent.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// GET with the personal API key.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[("authorization", &bearer())], "")
    }

    /// The value of a metric in `/metrics`, by its name with its labels; zero if it is absent.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let page = String::from_utf8(self.get("/metrics").body).expect("UTF-8");
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        page.lines().find_map(value).unwrap_or(0)
    }

    /// Checks that no event is stored twice.
    pub(crate) fn has_no_twins(&self) {
        let twice = "SELECT uuid, count(*) FROM events GROUP BY uuid HAVING count(*) <> 1";
        assert_eq!(self.query(twice), Vec::<Value>::new());
    }

    /// Checks that nothing damaged was found.
    pub(crate) fn is_undamaged(&self) {
        for place in ["wal", "events", "table", "persons"] {
            let metric = format!("weir_corruptions_total{{place=\"{place}\"}}");
            assert_eq!(self.metric(&metric), 0, "{place}");
        }
    }

    /// Writes what is in memory to files.
    pub(crate) fn flush(&self) {
        run(self.weir(&["flush"]));
    }

    /// Makes a project of this name; returns its id and its token.
    pub(crate) fn project(&self, name: &str) -> (i64, String) {
        let made = self.post("/api/projects/", &serde_json::json!({"name": name})).created();
        let token = made["api_token"].as_str().expect("a token").to_owned();
        (made["id"].as_i64().expect("an id"), token)
    }

    /// Makes a personal API key with this label and these scopes; returns its value.
    pub(crate) fn key(&self, body: &Value) -> String {
        let made = self.post("/api/personal_api_keys/", body).created();
        made["value"].as_str().expect("a value").to_owned()
    }

    /// POST of JSON with the personal API key.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send_json("POST", path, body)
    }

    /// PATCH of JSON with the personal API key.
    pub(crate) fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send_json("PATCH", path, body)
    }

    /// DELETE with the personal API key.
    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[("authorization", &bearer())], "")
    }

    /// Sends events to `/batch/` unchanged.
    pub(crate) fn capture(&self, events: &Value) -> Answer {
        let body = serde_json::json!({"api_key": TOKEN, "batch": events}).to_string();
        self.send("POST", "/batch/", &[("content-type", "application/json")], body)
    }

    fn send_json(&self, method: &str, path: &str, body: &Value) -> Answer {
        let headers = [("authorization", &*bearer()), ("content-type", "application/json")];
        self.send(method, path, &headers, body.to_string())
    }

    /// A `weir` command on the data directory, with the settings of its bucket if it has one.
    pub(crate) fn weir(&self, arguments: &[&str]) -> Command {
        let mut command = self.weir_of_place(arguments);
        command.arg("--data-dir").arg(self.data_dir());
        command
    }

    /// The same without a data directory, about the bucket and the database of this server.
    pub(crate) fn weir_of_place(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments);
        if let Some(database) = &self.database {
            command.env("WEIR_METADATA_URL", database.url());
        }
        let is_of_place = |name: &str| {
            ["AWS_", "WEIR_STORAGE_", "WEIR_METADATA_"].iter().any(|start| name.starts_with(start))
        };
        let settings = self.settings.iter().filter(|(name, _)| is_of_place(name));
        command.envs(settings.map(|(name, value)| (name, value)));
        command
    }

    fn spawn(&self, arguments: &[&str]) -> Child {
        let output = |name: &str| File::create(self.directory.path().join(name)).expect("a file");
        let listen = self.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut command = self.weir(&["serve", "--listen", &listen.to_string()]);
        command.args(arguments);
        if let Some(limits) = &self.limits {
            let mut limited = Command::new("sh");
            let script = format!("ulimit {limits} && exec \"$0\" \"$@\"");
            limited.arg("-c").arg(script).arg(command.get_program()).args(command.get_args());
            command = limited;
        }
        if let Some(mib) = self.disk_mib {
            let directory = self.data_dir();
            std::fs::create_dir_all(&directory).expect("a directory");
            let mut mounted = Command::new("unshare");
            let script =
                format!("mount -t tmpfs -o size={mib}m weir \"$1\" && shift && exec \"$0\" \"$@\"");
            mounted.args(["--map-root-user", "--mount", "sh", "-c"]).arg(script);
            mounted.arg(command.get_program()).arg(directory).args(command.get_args());
            command = mounted;
        }
        if let Some(database) = &self.database {
            command.env("WEIR_METADATA_URL", database.url());
        }
        command
            .env("WEIR_PROJECT_API_KEY", TOKEN)
            .env("WEIR_PERSONAL_API_KEY", KEY)
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output("stdout"))
            .stderr(output("stderr"));
        command.spawn().expect("the server starts")
    }

    fn run(&mut self) {
        self.run_unready();
        self.wait_until_ready();
    }

    fn wait_until_ready(&self) {
        let ready = patiently(|| {
            let answer = self.client().send("GET", "/_readiness", &[], b"").ok()?;
            (answer.status == 200).then_some(())
        });
        ready.unwrap_or_else(|| panic!("not ready; the server said:\n{}", self.stderr()));
    }

    fn run_unready(&mut self) {
        self.run_unready_with(&[]).unwrap_or_else(|said| panic!("{said}"));
    }

    /// If the server exits, the error is its standard error.
    fn run_unready_with(&mut self, arguments: &[&str]) -> Result<(), String> {
        let mut process = self.spawn(arguments);
        let started = patiently(|| match process.try_wait().expect("the server's state") {
            Some(status) => Some(Err(status)),
            None => address(&self.directory.path().join("stdout")).map(Ok),
        });
        let said = self.stderr();
        let address = started.unwrap_or_else(|| panic!("no address; the server said:\n{said}"));
        let address = address.map_err(|status: ExitStatus| format!("{status}:\n{said}"))?;
        self.running = Some(Running { process, address });
        Ok(())
    }

    /// Starts it where another one serves, so that it stands by. Returns who asks it meanwhile.
    pub(crate) fn stand_by(&mut self) -> Client {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = free.expect("a free port");
        self.listen = Some(address);
        let process = self.spawn(&[]);
        self.running = Some(Running { process, address });
        self.client()
    }

    /// Starts it without waiting for anything, at the address that it had before if it had one.
    pub(crate) fn begin(&mut self) {
        let Some(address) = self.listen else {
            self.stand_by();
            return;
        };
        let process = self.spawn(&[]);
        self.running = Some(Running { process, address });
    }

    /// Whether it runs, as far as the test has not ended it.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Waits until a standby serves.
    pub(crate) fn take_over(&mut self) {
        let announced = patiently(|| address(&self.directory.path().join("stdout")));
        announced.unwrap_or_else(|| panic!("it stands by; it said:\n{}", self.stderr()));
        self.wait_until_ready();
    }

    /// Waits until the server has ended by itself, and returns its status.
    pub(crate) fn failed_end(&mut self) -> Option<i32> {
        let mut running = self.running.take().expect("the server runs");
        let ended = patiently(|| running.process.try_wait().expect("the server's state"));
        if ended.is_none() {
            let _ = running.process.kill();
        }
        ended?.code()
    }

    /// Removes the data directory of a server that does not run.
    pub(crate) fn lose_disk(&self) {
        assert!(self.running.is_none(), "the server runs");
        std::fs::remove_dir_all(self.data_dir()).expect("the directory can be removed");
    }

    /// Standard error of the server since its last start.
    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // Nothing depends on the directory any more.
            let _ = running.process.kill();
            let _ = running.process.wait();
        }
        if thread::panicking() {
            eprintln!("the server said:\n{}", self.stderr());
        }
    }
}

/// The `weir` under test. `WEIR_TEST_BINARY` names another one, such as that of a package.
pub(crate) fn binary() -> PathBuf {
    let other = std::env::var_os("WEIR_TEST_BINARY").map(PathBuf::from);
    other.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_weir")))
}

/// Standard output of a command, which must succeed.
pub(crate) fn run(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, failed) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {failed}");
    String::from_utf8(said).expect("UTF-8")
}

/// How long something is away or slow in a test: `WEIR_TEST_{what}_OUTAGE_SECONDS`, or this short time.
pub(crate) fn outage(what: &str, short_seconds: u64) -> Duration {
    let seconds = std::env::var_os(format!("WEIR_TEST_{what}_OUTAGE_SECONDS"));
    let seconds = seconds.and_then(|seconds| seconds.into_string().ok());
    let seconds = seconds.map(|seconds| seconds.parse().expect("a number of seconds"));
    Duration::from_secs(seconds.unwrap_or(short_seconds))
}

/// Polls until `look` returns something; `None` after a time-out.
pub(crate) fn patiently<T>(look: impl FnMut() -> Option<T>) -> Option<T> {
    within(PATIENCE, look)
}

/// The same with another time-out. A result of the poll that exceeds it counts.
pub(crate) fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let clock = Clock::system();
    let began = clock.monotonic();
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if clock.monotonic() - began > limit {
            return None;
        }
        thread::sleep(TICK);
    }
}

/// Where a server listens, from its standard output, once it has told.
pub(crate) fn address(stdout: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(stdout).ok()?;
    let (line, _) = text.split_once('\n')?;
    line.strip_prefix("weir listens on http://")?.parse().ok()
}

fn bearer() -> String {
    format!("Bearer {KEY}")
}

/// Sends requests to one server; may be copied to other threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    address: SocketAddr,
}

impl Client {
    /// A client of whoever listens there.
    pub(crate) fn of(address: SocketAddr) -> Self {
        Self { address }
    }

    /// Whom it asks.
    pub(crate) fn address(self) -> SocketAddr {
        self.address
    }

    /// Sends one request on a new connection and reads the response to its end. Only `host`,
    /// `connection` and `content-length` are added to `headers`.
    pub(crate) fn send(
        self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut socket = TcpStream::connect(self.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let address = self.address;
        let length = body.len();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n"
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        let written = socket.write_all(&request);
        // A server that refuses a body answers before it has read all of it.
        let mut answer = Vec::new();
        let parse = |answer: &[u8]| Answer::parse(answer, method == "HEAD");
        match socket.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(_) if parse(&answer).is_some() => {}
            Err(error) => return Err(written.err().unwrap_or(error)),
        }
        parse(&answer).ok_or_else(|| io::Error::other("the answer was cut short"))
    }
}

/// Work beside a test, such as requests that end with the server.
#[expect(
    clippy::disallowed_methods,
    reason = "it ends with the test, for which a scope would wait when it fails"
)]
pub(crate) fn beside(work: impl FnOnce() + Send + 'static) {
    thread::spawn(work);
}

/// Sends a body, without the fields that the endpoint refuses as unknown: one body of many fields so does what harm it can
/// anywhere.
pub(crate) fn send_known_fields(body: &str, send: impl Fn(&str) -> Answer) -> Answer {
    let mut fields: serde_json::Map<String, Value> =
        serde_json::from_str(body).expect("a body of fields");
    loop {
        let answer = send(&Value::from(fields.clone()).to_string());
        let told = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
        let is_unknown =
            told["detail"].as_str().is_some_and(|detail| detail.starts_with("Unknown field \""));
        let unknown = told["attr"].as_str().filter(|_| is_unknown && answer.status == 400);
        if unknown.and_then(|name| fields.remove(name)).is_none() {
            return answer;
        }
    }
}

/// One response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Status code.
    pub(crate) status: u16,
    /// Names in lower case, with values.
    pub(crate) headers: Vec<(String, String)>,
    /// The body, with chunks decoded.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of the header `name`, in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The created object as JSON.
    pub(crate) fn created(&self) -> Value {
        assert_eq!(self.status, 201, "{self}");
        self.json()
    }

    /// `None` if `bytes` are not one complete response. A response to HEAD has no body, whatever its
    /// length.
    fn parse(bytes: &[u8], is_head: bool) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
        let rest = bytes.get(end + 4..)?;
        let mut lines = head.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        });
        let mut answer =
            Self { status, headers: headers.collect::<Option<_>>()?, body: Vec::new() };
        answer.body = match (answer.header("transfer-encoding"), answer.header("content-length")) {
            _ if is_head => rest.to_vec(),
            (Some("chunked"), _) => unchunked(rest)?,
            (_, Some(length)) => rest.get(..length.parse().ok()?)?.to_vec(),
            _ => rest.to_vec(),
        };
        Some(answer)
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(rest.get(..end)?).ok()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + size)?);
        rest = rest.get(end + 4 + size..)?;
    }
}
