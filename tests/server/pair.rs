//! The pair of servers that `deploy/` describes: its settings, and its balancer in front of it.

use std::net::SocketAddr;
use std::net::TcpListener;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use serde_json::Value;
use serde_json::json;

use crate::harness::Client;
use crate::harness::KEY;
use crate::harness::TOKEN;
use crate::harness::TestServer;
use crate::harness::patiently;
use crate::support::bucket::Moto;
use crate::support::bucket::settings;
use crate::support::postgres::Postgres;

/// The settings of both, of which a test has its own bucket, database and addresses.
const SETTINGS: &str = include_str!("../../deploy/pair.env");
const OWN: [&str; 6] = [
    "WEIR_STORAGE_URL",
    "WEIR_METADATA_URL",
    "WEIR_LISTEN",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
];

/// haproxy in front of two servers.
struct Balancer {
    process: Child,
    client: Client,
}

impl Balancer {
    fn start(servers: [SocketAddr; 2]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = free.expect("a free port");
        let [a, b] = servers;
        let process = Command::new("haproxy")
            .args(["-db", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/haproxy.cfg")])
            .env("BIND", address.to_string())
            .env("SERVER_A", a.to_string())
            .env("SERVER_B", b.to_string())
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

/// Goal: who is set up as `deploy/` says reaches the server that serves through the balancer, before and after one of the
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
    let mut more = vec![("WEIR_METADATA_URL", database.as_str())];
    more.extend(told);
    let server = || TestServer::stopped(&settings(&url, &more));

    let (mut a, mut b) = (server(), server());
    a.restart();
    let addresses = [a.client(), b.stand_by()].map(Client::address);
    let balancer = Balancer::start(addresses);
    balancer.capture(0, 100);
    assert_eq!(balancer.count(), 100);
    a.kill();
    a.lose_disk();
    balancer.capture(100, 150);
    assert_eq!(balancer.count(), 150);
    b.take_over();
    assert_eq!(b.count("SELECT count(*) AS n FROM events"), 150, "it is the one");
    b.stop();
    a.restart();
    assert_eq!(a.count("SELECT count(*) AS n FROM events"), 150);
}
