//! The same answers wherever they are asked for: of one server with a disk, of one that follows another, and of any node of a
//! cluster, whichever node has the shard of the project.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use weir_base::clock::Clock;

use super::{Cluster, JSON, Project, RETRIES, asked};
use crate::followers::follower;
use crate::harness::{TOKEN, TestServer, run, within};
use crate::oracle::{SEED, fresh_seed, questions_asked, script};
use crate::standby::Common;
use crate::workers;

/// Questions of each kind, if the environment does not say how many.
const QUESTIONS: u64 = 18;

/// Most of them in one round.
const ROUND_QUESTIONS_MAX: u64 = 100;

/// Fewest rounds.
const ROUNDS_MIN: u64 = 3;

/// Projects with random events: one for each shard.
const PROJECTS: usize = 6;

/// Threads that ask.
const THREADS: usize = 3;

/// Smallest percentage of answers that have rows: some correlations, paths and breakdowns have none.
const FILLED_MIN_PERCENT: u64 = 50;

/// Differences that are told.
const TOLD_MAX: usize = 3;

/// What is in memory stays there until it is asked for.
const QUIET: (&str, &str) = ("WEIR_MEMTABLE_MAX_AGE", "1h");

/// Members of answers that say when and how they came about.
const OF_THE_MOMENT: [&str; 5] =
    ["last_refresh", "next_allowed_client_refresh", "cache_key", "query_status", "timings"];

/// Servers with the same events: a request may be sent to any of them.
struct Place<'a> {
    servers: Vec<&'a TestServer>,
    /// How many of them may be told to flush.
    writers: usize,
    /// Those with random events.
    projects: Vec<Project>,
    cluster: Option<&'a Cluster>,
}

/// A question, and where it is asked.
struct Question {
    project: i64,
    node: Value,
    is_ordered: bool,
}

impl<'a> Place<'a> {
    /// One of these servers gets the events of the fixed questions.
    fn new(servers: Vec<&'a TestServer>, writers: usize, first: &TestServer) -> Self {
        workers::fill(first);
        let project = |number: usize| {
            let (id, token) = servers[number % servers.len()].project(&format!("world {number}"));
            Project { id, token }
        };
        let projects = (0..PROJECTS).map(project).collect();
        Self { servers, writers, projects, cluster: None }
    }

    fn any(&self, random: &mut StdRng) -> &'a TestServer {
        self.servers.choose(random).expect("a server")
    }

    /// Other settings of the projects.
    fn settle(&self, settings: &Value, random: &mut StdRng) {
        for (project, body) in self.projects.iter().zip(settings.as_array().expect("settings")) {
            let path = format!("/api/projects/{}/", project.id);
            let body = body.to_string();
            let ask = || asked(self.any(random).client(), "PATCH", &path, &body);
            let changed = within(RETRIES, ask).expect("somebody answers");
            assert_eq!(changed.status, 200, "{changed}");
        }
    }

    /// Sends batches of projects, flushes now and then, and moves a shard when half is sent.
    fn send(&self, sent: &[Value], random: &mut StdRng) {
        for (number, own) in sent.iter().enumerate() {
            if number == sent.len() / 2
                && let Some(cluster) = self.cluster
            {
                cluster.moved(self.projects.choose(random).expect("a project"));
            }
            let at = usize::try_from(own[0].as_u64().expect("a number")).expect("a project");
            let body = json!({"api_key": self.projects[at].token, "batch": own[1]}).to_string();
            let taken = within(RETRIES, || {
                let client = self.any(random).client();
                let answer = client.send("POST", "/batch/", &[JSON], body.as_bytes()).ok()?;
                assert!([200, 503].contains(&answer.status), "{answer}");
                (answer.status == 200).then_some(())
            });
            taken.expect("somebody takes it");
            if random.random_bool(0.1) {
                // A node that has lost all its shards, as on a machine that is slow, refuses it.
                let flushed = within(RETRIES, || {
                    let server = self.servers[random.random_range(0..self.writers)];
                    let output = server.weir(&["flush"]).output().expect("weir flush");
                    output.status.success().then_some(())
                });
                flushed.expect("somebody flushes");
            }
        }
    }
}

/// What a server answers: everything but what is of the moment.
fn answer(server: &TestServer, question: &Question) -> Value {
    let body = json!({"query": question.node, "refresh": "force_blocking"}).to_string();
    let path = format!("/api/projects/{}/query/", question.project);
    let answered = within(RETRIES, || asked(server.client(), "POST", &path, &body));
    let answered = answered.unwrap_or_else(|| panic!("{}: {}", question.node, server.stderr()));
    let mut answer = answered.json();
    let members = answer.as_object_mut().expect("an object");
    members.retain(|name, _| !OF_THE_MOMENT.contains(&name.as_str()));
    members.insert("status".to_owned(), answered.status.into());
    if !question.is_ordered
        && let Some(rows) = answer["results"].as_array_mut()
    {
        rows.sort_by_cached_key(Value::to_string);
    }
    answer
}

/// The random world of a seed, and questions about it.
fn made(seed: u64, questions: u64) -> Vec<Value> {
    let rounds = questions.div_ceil(ROUND_QUESTIONS_MAX).max(ROUNDS_MIN);
    let mut command = script("questions.py");
    command.args([seed, PROJECTS as u64, rounds, questions].map(|number| number.to_string()));
    serde_json::from_str(&run(command)).expect("rounds")
}

/// What is asked in a round.
fn questions(round: &Value, projects: &[Project]) -> Vec<Question> {
    let random = round["questions"].as_array().expect("questions").iter().map(|own| {
        let at = usize::try_from(own["project"].as_u64().expect("a number")).expect("a project");
        let is_ordered = own["is_ordered"] == true;
        Question { project: projects[at].id, node: own["node"].clone(), is_ordered }
    });
    random.collect()
}

/// Questions about the events of [`workers::fill`].
fn fixed() -> Vec<Question> {
    let lists = [&workers::QUESTIONS[..], &workers::JOINED, &workers::ALONE];
    let sql = lists.into_iter().flatten().map(|sql| workers::node(sql));
    let nodes = sql.chain(workers::insights()).chain(workers::insights_alone());
    nodes.map(|node| Question { project: 1, node, is_ordered: true }).collect()
}

/// The next events of a round, to all places at the same time.
fn send(places: &[Place<'_>; 3], round: &Value, random: &mut StdRng) {
    let seeds: [u64; 3] = random.random();
    thread::scope(|scope| {
        for (place, seed) in places.iter().zip(seeds) {
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                place.settle(&round["settings"], &mut random);
                place.send(round["sent"].as_array().expect("batches"), &mut random);
            });
        }
    });
}

/// What all places answered.
#[derive(Default)]
struct Compared {
    /// How many answers have rows.
    filled: u64,
    wrong: Vec<String>,
}

impl Compared {
    /// Asks the first place, the server of the second that follows, and any node of the third.
    fn ask(places: &[Place<'_>; 3], questions: &[Question], random: &mut StdRng) -> Self {
        let (next, seeds): (_, [u64; THREADS]) = (AtomicUsize::new(0), random.random());
        let compared = Mutex::new(Self::default());
        thread::scope(|scope| {
            for seed in seeds {
                let (next, compared) = (&next, &compared);
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(seed);
                    while let Some(question) = questions.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let [plain, pair, cluster] = places;
                        let others = [pair.servers[1], cluster.any(&mut random)];
                        let answers = others.map(|server| answer(server, question));
                        let expected = answer(plain.servers[0], question);
                        compared.lock().add(question, &expected, &answers);
                    }
                });
            }
        });
        compared.into_inner()
    }

    fn add(&mut self, question: &Question, expected: &Value, answers: &[Value; 2]) {
        let Question { project, node, .. } = question;
        if expected["status"] != 200 {
            self.wrong.push(format!("project {project}: {node}\n {expected}"));
        }
        self.filled +=
            u64::from(expected["results"].as_array().is_none_or(|rows| !rows.is_empty()));
        for (who, found) in ["the follower", "a node"].into_iter().zip(answers) {
            if found != expected {
                self.wrong
                    .push(format!("{who}, project {project}: {node}\n  {found}\n  {expected}"));
            }
        }
    }
}

/// How many requests these servers have passed on.
fn passed_on(servers: &[TestServer]) -> u64 {
    servers.iter().map(|server| server.metric("weir_requests_forwarded_total")).sum()
}

/// A server that writes and one that follows it, and what they have in common.
fn pair() -> (Common, [TestServer; 2]) {
    let common = Common::new();
    let mut owner = common.server();
    owner.set(QUIET.0, QUIET.1);
    owner.restart();
    let follower = follower(&common);
    (common, [owner, follower])
}

/// Goal: a question has the same answer, row for row, whoever is asked. Method: the same random events go to a server with a
/// disk, to a pair, and to a cluster; flushes, merges of persons and moves of shards happen at each place in its own way; then
/// all are asked the questions of the comparison with SQL, random SQL, and fixed lists.
#[test]
fn answers_are_those_of_one_server() {
    let (seed, clock) = (fresh_seed(), Clock::system());
    eprintln!("{SEED}={seed}");
    let (mut random, began) = (StdRng::seed_from_u64(seed), clock.monotonic());
    let mut plain = TestServer::stopped(&[QUIET]);
    let ((_common, pair), cluster) = thread::scope(|scope| {
        let cluster = scope.spawn(|| Cluster::start(3, 6, &[QUIET]));
        plain.restart();
        (pair(), cluster.join().expect("a cluster"))
    });
    let first = cluster.sides(&Project { id: 1, token: TOKEN.to_owned() }).0;
    let nodes: Vec<&TestServer> = cluster.nodes.iter().collect();
    let mut places = thread::scope(|scope| {
        [(vec![&plain], 1, &plain), (pair.iter().collect(), 1, &pair[0]), (nodes, 3, first)]
            .map(|(servers, writers, first)| {
                scope.spawn(move || Place::new(servers, writers, first))
            })
            .map(|place| place.join().expect("a place"))
    });
    places[2].cluster = Some(&cluster);
    eprintln!("started in {:?}", clock.monotonic() - began);
    for (number, round) in made(seed, questions_asked(QUESTIONS)).iter().enumerate() {
        let began = clock.monotonic();
        send(&places, round, &mut random);
        let sent = clock.monotonic();
        let servers = [&pair[..], &cluster.nodes];
        let before = servers.map(passed_on);
        let mut asked = questions(round, &places[0].projects);
        if number == 0 {
            asked.extend(fixed());
        }
        let Compared { filled, wrong } = Compared::ask(&places, &asked, &mut random);
        let (count, took) = (asked.len() as u64, clock.monotonic() - sent);
        let [of_pair, of_nodes] = [0, 1].map(|at| passed_on(servers[at]) - before[at]);
        let told = wrong.iter().take(TOLD_MAX).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(wrong.is_empty(), "{SEED}={seed}, {} differ:\n{told}", wrong.len());
        eprintln!(
            "round {number}: {count} compared in {took:?} after {:?}, {filled} filled, {of_nodes} passed on",
            sent - began
        );
        assert!(filled * 100 >= count * FILLED_MIN_PERCENT, "{filled} have rows");
        assert!(of_nodes * 3 > count, "nodes have passed on {of_nodes} of {count}");
        // Who follows may pass on what it cannot answer soon, which is more on a busy machine.
        assert!(of_pair * 10 < count * 9, "the follower has passed on {of_pair} of {count}");
    }
    cluster.has_not_panicked();
    assert!(!pair[1].stderr().contains("panicked"), "{}", pair[1].stderr());
}
