//! The pair of servers that `scripts/deploy/` describes: its settings, and its balancer in front of it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::{Client, KEY, TOKEN, TestServer, beside, patiently};
use crate::support::bucket::{Moto, settings};
use crate::support::postgres::Postgres;

/// The settings of both, of which a test has its own bucket, database and addresses.
const SETTINGS: &str = include_str!("../../scripts/deploy/pair.env");
const OWN: [&str; 7] = [
    "WEIR_STORAGE_URL",
    "WEIR_METADATA_URL",
    "WEIR_LISTEN",
    "WEIR_TRUSTED_PROXIES",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
];

/// The configuration of the balancer.
const BALANCER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/deploy/haproxy.cfg");

/// What a client of the balancer says of its address: where Boxford is.
const FORGED: &str = "2.125.160.216";

/// haproxy in front of two servers.
struct Balancer {
    process: Child,
    client: Client,
}

impl Balancer {
    fn start(servers: [SocketAddr; 2]) -> Self {
        Self::start_with(Path::new(BALANCER), servers.map(|address| address.to_string()))
    }

    fn start_with(configuration: &Path, [a, b]: [String; 2]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = free.expect("a free port");
        let process = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(configuration)
            .env("BIND", address.to_string())
            .env("SERVER_A", a)
            .env("SERVER_B", b)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("haproxy starts: scripts/test.sh installs it");
        Self { process, client: Client::of(address) }
    }

    /// The answer to a request with status 200, as soon as there is one.
    fn answer(&self, method: &str, path: &str, body: &Value) -> Value {
        let bearer = format!("Bearer {KEY}");
        let headers = [("content-type", "application/json"), ("authorization", &bearer)];
        let body = body.to_string();
        let answer = patiently(|| {
            let answer = self.client.send(method, path, &headers, body.as_bytes()).ok()?;
            (answer.status == 200).then_some(answer)
        });
        answer.unwrap_or_else(|| panic!("no answer of {path}")).json()
    }

    /// The stored address of an event whose sender claims to be elsewhere, by one of the headers of proxies.
    fn address_of(&self, server: &TestServer, number: usize, header: (&str, &str)) -> Value {
        let id = format!("forger {number}");
        let body = json!({"api_key": TOKEN, "event": "e", "distinct_id": id}).to_string();
        let sent = patiently(|| {
            let headers = [("content-type", "application/json"), header];
            let answer = self.client.send("POST", "/e/", &headers, body.as_bytes()).ok()?;
            (answer.status == 200).then_some(())
        });
        sent.expect("an answer");
        let sql = format!("SELECT ip FROM events WHERE distinct_id = '{id}'");
        server.query(&sql)[0]["ip"].clone()
    }

    fn capture(&self, from: u32, to: u32) {
        let event = |number| json!({"event": "step", "distinct_id": "ada", "properties": {"number": number}});
        let batch: Vec<Value> = (from..to).map(event).collect();
        self.answer("POST", "/batch/", &json!({"api_key": TOKEN, "batch": batch}));
    }

    fn count(&self) -> Value {
        let query = json!({"query": {"kind": "HogQLQuery", "query": "SELECT count() FROM events"}});
        self.answer("POST", "/api/projects/1/query/", &query)["results"][0][0].clone()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Goal: who is set up as `scripts/deploy/` says reaches the server that serves through the balancer, before and after one of the
/// two is lost with its disk, and after it is back.
#[test]
fn a_pair_serves_behind_its_balancer() {
    let (moto, postgres) = (Moto::start(), Postgres::start());
    let (gate, database) = (moto.gate(), postgres.database());
    let (url, database) = (gate.url(), database.url());
    let lines = SETTINGS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let told = lines.map(|line| line.split_once('=').expect("NAME=value"));
    let (own, told): (Vec<_>, Vec<_>) = told.partition(|(name, _)| OWN.contains(name));
    assert_eq!(own.len(), OWN.len(), "what a test has its own of is in the file");
    let mut more =
        vec![("WEIR_METADATA_URL", database.as_str()), ("WEIR_TRUSTED_PROXIES", "127.0.0.1")];
    more.extend(told);
    let server = || TestServer::stopped(&settings(&url, &more));

    let (mut a, mut b) = (server(), server());
    a.restart();
    let addresses = [a.client(), b.stand_by()].map(Client::address);
    let balancer = Balancer::start(addresses);
    balancer.capture(0, 100);
    assert_eq!(balancer.count(), 100);
    let claim = format!("for={FORGED}");
    let claims =
        [("x-forwarded-for", FORGED), ("forwarded", claim.as_str()), ("x-real-ip", FORGED)];
    for (number, header) in claims.into_iter().enumerate() {
        // The client is on this machine, and the balancer is the one who knows.
        assert_eq!(balancer.address_of(&a, number, header), "127.0.0.1", "{header:?}");
    }
    a.kill();
    a.lose_disk();
    balancer.capture(100, 150);
    assert_eq!(balancer.count(), 153);
    b.take_over();
    assert_eq!(b.count("SELECT count(*) AS n FROM events"), 153, "it is the one");
    b.stop();
    a.restart();
    assert_eq!(a.count("SELECT count(*) AS n FROM events"), 153);
}

/// Goal: the balancer of nodes that divide shards is understood by the program.
#[test]
fn the_balancer_of_nodes_is_valid() {
    let output =
        of_nodes(("127.0.0.1:8000", "127.0.0.1:5432"), &["127.0.0.1:1"; 3], &["127.0.0.1:2"; 3])
            .arg("-c")
            .output()
            .expect("haproxy starts: scripts/test.sh installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The balancer of nodes, at two addresses: of requests, and of clients of PostgreSQL.
pub(crate) fn of_nodes(
    (bind, postgres_bind): (&str, &str),
    servers: &[impl AsRef<str>],
    postgres: &[impl AsRef<str>],
) -> Command {
    let mut haproxy = Command::new("haproxy");
    for file in ["shards.cfg", "shards-postgres.cfg"] {
        haproxy.arg("-f").arg(format!("{}/scripts/deploy/{file}", env!("CARGO_MANIFEST_DIR")));
    }
    haproxy.env("BIND", bind).env("POSTGRES_BIND", postgres_bind);
    for ((name, server), postgres) in ["A", "B", "C"].iter().zip(servers).zip(postgres) {
        haproxy.env(format!("SERVER_{name}"), server.as_ref());
        haproxy.env(format!("POSTGRES_{name}"), postgres.as_ref());
    }
    haproxy
}

/// A name server that knows one name, and says to whom it belongs now.
struct Names {
    address: SocketAddr,
    known: Arc<Mutex<Option<Ipv4Addr>>>,
}

impl Names {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("an address");
        let known = Arc::new(Mutex::new(None));
        let told = Arc::clone(&known);
        beside(move || {
            let mut query = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                if let Some(answer) = answer(&query[..length], *told.lock()) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self { address, known }
    }
}

/// The answer to a query of one name (RFC 1035): its address, if it has one and that was asked for, or that there is no
/// such name.
fn answer(query: &[u8], known: Option<Ipv4Addr>) -> Option<Vec<u8>> {
    const A: [u8; 2] = [0, 1];
    let mut at = 12;
    while *query.get(at)? != 0 {
        at += usize::from(*query.get(at)?) + 1;
    }
    let question = query.get(12..at + 5)?;
    let found = known.filter(|_| question.ends_with(&[A, [0, 1]].concat()));
    let code = if known.is_some() { 0 } else { 3 };
    let mut answer = query.get(..2)?.to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, u8::from(found.is_some()), 0, 0, 0, 0]);
    answer.extend(question);
    if let Some(address) = found {
        // The name of the question; A, IN, one second, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}

/// Goal: the balancer finds a server whose name was unknown when it started, and follows it to another address. Method: its
/// names are looked up at a server of the test instead of those of the system.
#[test]
fn the_balancer_follows_names() {
    const OF_SYSTEM: &str = "parse-resolv-conf";
    let (server, names) = (TestServer::start(), Names::start());
    let configuration = std::fs::read_to_string(BALANCER).expect("the configuration");
    assert_eq!(configuration.matches(OF_SYSTEM).count(), 1);
    let nameserver = format!("nameserver test {}", names.address);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("haproxy.cfg");
    std::fs::write(&path, configuration.replace(OF_SYSTEM, &nameserver)).expect("a file");
    let port = server.client().address().port();
    let balancer =
        Balancer::start_with(&path, [format!("a.weir.invalid:{port}"), "127.0.0.1:1".to_owned()]);
    let status = || {
        let answer = balancer.client.send("GET", "/_liveness", &[], b"");
        answer.map(|answer| answer.status).ok()
    };
    let comes_to = |wanted: u16| patiently(|| (status() == Some(wanted)).then_some(()));
    comes_to(503).expect("it starts without the name");
    *names.known.lock() = Some(Ipv4Addr::LOCALHOST);
    comes_to(200).expect("it finds the server by its name");
    // Nobody listens there.
    *names.known.lock() = Some(Ipv4Addr::new(127, 0, 0, 77));
    comes_to(503).expect("it follows the name to where nobody is");
    *names.known.lock() = Some(Ipv4Addr::LOCALHOST);
    comes_to(200).expect("it follows the name back");
}
