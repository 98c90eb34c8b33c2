//! A cluster of nodes with many shards: any node takes any request, shards move and their nodes die, and nothing is lost or
//! stored twice.

mod answers;
mod everywhere;
mod faults;
mod hostile;
mod moves;
mod sessions;
mod starts;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use uuid::Uuid;
use weir_base::clock::Clock;

use crate::harness::{Answer, Client, KEY, TOKEN, TestServer, patiently, within};
use crate::standby::{Common, started};
use crate::workers;

/// Longest that a request is sent again.
const RETRIES: Duration = Duration::from_secs(60);

const JSON: (&str, &str) = ("content-type", "application/json");

/// Nodes with the same bucket and the same database.
struct Cluster {
    nodes: Vec<TestServer>,
    common: Common,
}

/// A project, with the token of its events.
#[derive(Clone, Debug)]
struct Project {
    id: i64,
    token: String,
}

impl Cluster {
    /// So many nodes that have divided so many shards.
    fn start(nodes: usize, shards: usize, settings: &[(&str, &str)]) -> Self {
        let common = Common::new();
        // Somebody has used the bucket before it gets more shards.
        let mut first = started(&common);
        first.stop();
        let nodes = std::iter::once(first).chain((1..nodes).map(|_| common.server())).collect();
        let mut cluster = Self { nodes, common };
        let added = cluster.shards(&["add", &(shards - 1).to_string()]);
        assert!(added.status.success(), "{added:?}");
        for node in &mut cluster.nodes {
            settings.iter().for_each(|(name, value)| node.set(name, value));
            node.begin();
        }
        cluster.nodes.iter_mut().for_each(TestServer::take_over);
        cluster.settle();
        cluster
    }

    /// `weir shards` with these arguments.
    fn shards(&self, arguments: &[&str]) -> Output {
        self.nodes[0].weir_of_place(&["shards"]).args(arguments).output().expect("weir shards")
    }

    /// What `weir shards` says if it succeeds.
    fn told(&self, arguments: &[&str]) -> String {
        let output = self.shards(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// The URLs of the nodes that have shards, by shard.
    fn owners(&self) -> BTreeMap<u16, String> {
        let leases = "SELECT name, url FROM leases WHERE holder <> '' AND name LIKE 'shard/%'";
        let rows = self.common.metadata(leases);
        let owner = |row: &str| {
            let (name, url) = row.split_once('|')?;
            Some((name.get(6..10)?.parse().ok()?, url.to_owned()))
        };
        rows.lines().filter_map(owner).collect()
    }

    /// How many shards each node has that runs.
    fn counts(&self) -> Vec<usize> {
        let owners = self.owners();
        let running = self.nodes.iter().filter(|node| node.is_running());
        running.map(|node| owners.values().filter(|url| **url == node.url()).count()).collect()
    }

    /// The shards that are open, as the nodes that run tell.
    fn open(&self) -> BTreeSet<String> {
        let running = self.nodes.iter().filter(|node| node.is_running());
        let pages = running.filter_map(|node| node.client().send("GET", "/metrics", &[], b"").ok());
        let shards = |page: Answer| {
            let page = String::from_utf8_lossy(&page.body).into_owned();
            let named = page.split("shard=\"").skip(1).filter_map(|rest| rest.split('"').next());
            named.map(str::to_owned).collect::<Vec<_>>()
        };
        pages.flat_map(shards).collect()
    }

    /// Whether the nodes that run have divided all shards, and none moves.
    fn is_settled(&self) -> bool {
        let wished = "SELECT count(*) FROM shards WHERE wanted <> ''";
        let all = "SELECT count(*) FROM shards";
        let (counts, all) = (self.counts(), self.common.metadata(all));
        let (most, fewest) = (counts.iter().max(), counts.iter().min());
        let is_even = most.zip(fewest).is_some_and(|(most, fewest)| most - fewest <= 1);
        is_even
            && counts.iter().sum::<usize>().to_string() == all
            && self.common.metadata(wished) == "0"
            && self.open().len().to_string() == all
    }

    /// Waits until it is settled.
    fn settle(&self) {
        let settled = patiently(|| self.is_settled().then_some(()));
        assert!(settled.is_some(), "{:?}\n{:?}", self.counts(), self.shards(&["list"]));
    }

    /// Lets the command wait, after which it is settled.
    fn wait(&self) {
        let told = self.told(&["wait"]);
        assert!(told.contains(" nodes serve "), "{told}");
        assert!(self.is_settled(), "{:?}\n{:?}", self.counts(), self.shards(&["list"]));
    }

    /// A project in each of so many shards, made through all nodes.
    fn projects(&self, count: usize) -> Vec<Project> {
        let made = (1..count).map(|number| {
            let (id, token) = self.nodes[number % self.nodes.len()].project(&format!("p{number}"));
            Project { id, token }
        });
        let first = Project { id: 1, token: TOKEN.to_owned() };
        std::iter::once(first).chain(made).collect()
    }

    /// The node that has the shard of a project, and one that has not.
    fn sides(&self, project: &Project) -> (&TestServer, &TestServer) {
        let shard = format!("SELECT shard FROM projects WHERE id = {}", project.id);
        let shard: u16 = self.common.metadata(&shard).parse().expect("a shard");
        let url = self.owners().remove(&shard).expect("an owner");
        let find = |is_owner: bool| self.nodes.iter().find(|node| (node.url() == url) == is_owner);
        (find(true).expect("the owner"), find(false).expect("another node"))
    }

    /// Moves the shard of a project to a node that does not have it.
    fn moved(&self, project: &Project) {
        self.settle();
        let to = self.sides(project).1.url();
        let shard = format!("SELECT shard FROM projects WHERE id = {}", project.id);
        self.told(&["move", &self.common.metadata(&shard), &to]);
    }

    fn has_not_panicked(&self) {
        for node in &self.nodes {
            assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
        }
    }
}

/// Asks with the personal API key; `None` if nobody answers, or refuses for now.
fn asked(client: Client, method: &str, path: &str, body: &str) -> Option<Answer> {
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), JSON];
    let answer = client.send(method, path, &headers, body.as_bytes()).ok()?;
    (answer.status != 503).then_some(answer)
}

/// The rows of SQL about a project; `None` if they are refused for now.
fn rows(client: Client, project: i64, query: &str) -> Option<Value> {
    let body = json!({"query": workers::node(query), "refresh": "force_blocking"}).to_string();
    let answer = asked(client, "POST", &format!("/api/projects/{project}/query/"), &body)?;
    assert_eq!(answer.status, 200, "{query}: {answer}");
    Some(answer.json()["results"].clone())
}

/// The same of a node that may refuse for some time.
fn sql(node: &TestServer, project: i64, query: &str) -> Value {
    let answered = within(RETRIES, || rows(node.client(), project, query));
    answered.unwrap_or_else(|| panic!("{query}: {}", node.stderr()))
}

/// Events that are sent at random nodes, and are read again through others.
struct Load<'a> {
    clients: Vec<Mutex<Client>>,
    projects: &'a [Project],
    stop: AtomicBool,
    next: AtomicU32,
    /// Acknowledged events by project.
    taken: Vec<AtomicU32>,
    reads: AtomicU32,
    /// Requests that were refused for now.
    refused: AtomicU32,
    longest: Mutex<Duration>,
}

impl<'a> Load<'a> {
    fn new(cluster: &Cluster, projects: &'a [Project]) -> Self {
        Self {
            clients: cluster.nodes.iter().map(|node| Mutex::new(node.client())).collect(),
            projects,
            stop: AtomicBool::new(false),
            next: AtomicU32::new(0),
            taken: projects.iter().map(|_| AtomicU32::new(0)).collect(),
            reads: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            longest: Mutex::new(Duration::ZERO),
        }
    }

    fn client(&self, random: &mut StdRng) -> Client {
        *self.clients[random.random_range(0..self.clients.len())].lock()
    }

    /// Starts so many clients, each of which does `run` until the load stops.
    fn clients<'s>(&'s self, scope: &'s thread::Scope<'s, '_>, count: u64, run: fn(&Self, u64)) {
        for seed in 0..count {
            scope.spawn(move || run(self, seed));
        }
    }

    /// Writes and reads until it is told to stop.
    fn run(&self, seed: u64) {
        let (mut random, clock) = (StdRng::seed_from_u64(seed), Clock::system());
        while !self.stop.load(Ordering::Relaxed) {
            let at = random.random_range(0..self.projects.len());
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let uuid = Uuid::from_u128(u128::from(number) + 1);
            let began = clock.monotonic();
            self.write(&mut random, &self.projects[at], (uuid, number));
            let took = clock.monotonic() - began;
            let mut longest = self.longest.lock();
            *longest = (*longest).max(took);
            drop(longest);
            self.taken[at].fetch_add(1, Ordering::Relaxed);
            let query = format!("SELECT count() FROM events WHERE uuid = '{uuid}'");
            let read = within(RETRIES, || {
                let client = self.client(&mut random);
                Some((rows(client, self.projects[at].id, &query)?, client.address()))
            });
            let (read, by) = read.expect("somebody answers");
            assert_eq!(
                read,
                json!([[1]]),
                "seed {seed}: {number} of {:?} by {by}",
                self.projects[at]
            );
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes alone: what nodes that were led astray answer in between is no promise.
    fn run_blindly(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.stop.load(Ordering::Relaxed) {
            let at = random.random_range(0..self.projects.len());
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let uuid = Uuid::from_u128(u128::from(number) + 1);
            self.write(&mut random, &self.projects[at], (uuid, number));
            self.taken[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(&self, random: &mut StdRng, project: &Project, (uuid, number): (Uuid, u32)) {
        let event = json!({
            "event": "step", "distinct_id": format!("person {}", number % 23), "uuid": uuid,
            "properties": {"number": number, "$set": {"last": number}},
        });
        let body = json!({"api_key": project.token, "batch": [event]}).to_string();
        let taken = within(RETRIES, || {
            let answer = self.client(random).send("POST", "/batch/", &[JSON], body.as_bytes());
            match answer {
                Ok(answer) if answer.status == 200 => return Some(()),
                Ok(answer) => {
                    assert_eq!(answer.status, 503, "{answer}");
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {}
            }
            thread::sleep(Duration::from_millis(20));
            None
        });
        taken.expect("somebody takes it");
    }

    /// Checks that each node has each event once.
    fn is_there(&self, cluster: &Cluster) {
        for (project, taken) in self.projects.iter().zip(&self.taken) {
            let taken = taken.load(Ordering::Relaxed);
            let query = "SELECT count(), count(DISTINCT uuid) FROM events WHERE event = 'step'";
            let told: BTreeSet<String> =
                cluster.nodes.iter().map(|node| sql(node, project.id, query).to_string()).collect();
            assert_eq!(told, BTreeSet::from([json!([[taken, taken]]).to_string()]), "{project:?}");
        }
    }
}
