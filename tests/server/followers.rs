//! Servers that stand by and answer reads: what any server has acknowledged can be read through each of them, writes go to
//! the server that writes, and one of them goes on when that ends.

mod sessions;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use uuid::Uuid;
use weir_base::clock::Clock;

use crate::harness::{Client, KEY, TOKEN, TestServer, outage, patiently, within};
use crate::standby::{Common, StopOnDrop, batch, persons, started};
use crate::workers;

/// What a follower says when it follows.
const FOLLOWS: &str = "follows the server that writes";

/// Starts a server that stands by, and waits until it follows.
pub(crate) fn follower(common: &Common) -> TestServer {
    let mut server = common.server();
    server.stand_by();
    follows(&server, 1);
    server
}

/// Waits until a server has begun to follow so many times, and answers.
fn follows(server: &TestServer, times: usize) {
    let follows = patiently(|| {
        let is_ready = server.client().send("GET", "/_readiness", &[], b"");
        let is_ready = is_ready.is_ok_and(|answer| answer.status == 200);
        (is_ready && server.stderr().matches(FOLLOWS).count() >= times).then_some(())
    });
    assert!(follows.is_some(), "{}", server.stderr());
}

fn sql(server: &TestServer, query: &str) -> Value {
    let answer = server.post("/api/projects/1/query/", &json!({"query": workers::node(query)}));
    assert_eq!(answer.status, 200, "{query}: {answer}");
    answer.json()["results"].clone()
}

fn flags(server: &TestServer, id: &str) -> Value {
    let body = json!({"token": TOKEN, "distinct_id": id});
    let answer = server.post("/flags/?v=2", &body);
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()["flags"].clone()
}

/// Each row is whom it is sent to, the method, the path and the body; the other servers show its effect at once.
#[test]
fn a_request_may_be_sent_to_any_server() {
    let common = Common::new();
    let owner = started(&common);
    assert_eq!(owner.capture(&batch(0, 100)).status, 200);
    let follower = follower(&common);
    let both = [&owner, &follower];
    for (sent, to) in [(200, &follower), (300, &owner), (400, &follower)] {
        assert_eq!(to.capture(&batch(sent - 100, sent)).status, 200);
        for server in both {
            assert_eq!(sql(server, "SELECT count() FROM events"), json!([[sent]]));
        }
    }
    assert_eq!(persons(&owner), persons(&follower));
    assert_eq!(persons(&owner).len(), 23);

    // Metadata, by the API and by forms of pages; persons; a group type, which is a column of events.
    let flag = json!({"key": "f", "name": "", "active": true, "filters": {"groups": [{"rollout_percentage": 100}]}});
    let made = follower.post("/api/projects/1/feature_flags/", &flag).created();
    for server in both {
        assert_eq!(flags(server, "x")["f"]["enabled"], true);
    }
    let path = format!("/api/projects/1/feature_flags/{}/", made["id"]);
    assert_eq!(owner.patch(&path, &json!({"active": false})).status, 200);
    assert_ne!(flags(&follower, "x")["f"]["enabled"], true);
    let grouped =
        json!([{"event": "e", "distinct_id": "g", "properties": {"$groups": {"shop": "a"}}}]);
    assert_eq!(owner.capture(&grouped).status, 200);
    for server in both {
        let query = "SELECT count() FROM events WHERE group_0 = 'a'";
        assert_eq!(sql(server, query), json!([[1]]));
    }
    let found = follower.get("/api/projects/1/persons/?distinct_id=person%207").json();
    let person = found["results"][0]["uuid"].as_str().expect("a person").to_owned();
    let path = format!("/api/projects/1/persons/{person}/");
    assert_eq!(follower.delete(&path).status, 202);
    for server in both {
        assert_eq!(server.get(&path).status, 404);
        assert_eq!(persons(server).len(), 23);
    }
    for server in both {
        let page = server.get("/project/1/persons");
        assert_eq!(page.status, 200);
        assert!(page.to_string().contains("person 8"), "{page}");
    }
    // A query that is answered later may be asked for anywhere.
    for (to, from) in [(&owner, &follower), (&follower, &owner), (&follower, &follower)] {
        let body =
            json!({"query": workers::node("SELECT count() FROM events"), "refresh": "force_async"});
        let begun = to.post("/api/projects/1/query/", &body).json();
        let id = begun["query_status"]["id"].as_str().unwrap_or_else(|| panic!("{begun}"));
        let done = patiently(|| {
            let status = from.get(&format!("/api/projects/1/query/{id}/"));
            assert!([200, 202].contains(&status.status), "{status}");
            let status = status.json()["query_status"].clone();
            (status["complete"] == true).then_some(status)
        });
        assert_eq!(done.expect("it ends")["results"]["results"], json!([[401]]));
    }
    // What is refused there is refused in the same words here.
    for (method, path, body) in [
        ("POST", "/api/projects/1/query/", "{}"),
        ("POST", "/api/projects/1/feature_flags/", "{"),
        ("DELETE", "/api/projects/9/", ""),
        ("POST", "/batch/", r#"{"api_key": "nobody", "batch": []}"#),
        ("GET", "/nowhere", ""),
    ] {
        let bearer = format!("Bearer {KEY}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let [expected, own] = both.map(|server| server.send(method, path, &headers, body));
        assert_eq!((own.status, &own.body), (expected.status, &expected.body), "{path}: {own}");
    }
    assert!(follower.metric("weir_requests_forwarded_total") > 5);
    assert_eq!(owner.metric("weir_requests_forwarded_total"), 0);
}

/// The address of a client is that which the first server sees, whoever passes the request on; nobody else may name one.
#[test]
fn addresses_of_clients_come_from_servers_alone() {
    let common = Common::new();
    let owner = started(&common);
    let trusting = follower(&common);
    let mut strict = common.server();
    strict.set("WEIR_TRUSTED_PROXIES", "none");
    strict.stand_by();
    follows(&strict, 1);
    let forged = "2.125.160.216";
    for (number, (to, header, expected)) in [
        (&trusting, ("x-forwarded-for", forged), forged),
        (&strict, ("x-forwarded-for", forged), "127.0.0.1"),
        (&strict, ("forwarded", "for=2.125.160.216"), "127.0.0.1"),
        (&strict, ("x-real-ip", forged), "127.0.0.1"),
        (&owner, ("x-weir-node", forged), "127.0.0.1"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("client {number}");
        let body = json!({"api_key": TOKEN, "event": "e", "distinct_id": id}).to_string();
        let headers = [("content-type", "application/json"), header];
        let answer = to.send("POST", "/e/", &headers, body);
        assert_eq!(answer.status, 200, "{answer}");
        let query = format!("SELECT properties.$ip FROM events WHERE distinct_id = '{id}'");
        assert_eq!(sql(&trusting, &query), json!([[expected]]), "{header:?}");
    }
    // What was passed on is not passed on again, so that no two servers send a request to each other for ever.
    let body = json!({"api_key": TOKEN, "event": "e", "distinct_id": "x"}).to_string();
    let headers = [("content-type", "application/json"), ("x-weir-node", "x")];
    let refused = trusting.send("POST", "/e/", &headers, body);
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("standing_by")));
}

/// Goal: questions of all kinds have the answers of the server that writes, over files, events in no file, merges and deletions.
#[test]
fn answers_are_those_of_the_server_that_writes() {
    let common = Common::new();
    let mut owner = common.server();
    for quiet in ["WEIR_MEMTABLE_MAX_AGE", "WEIR_COMPACTION_INTERVAL"] {
        owner.set(quiet, "1h");
    }
    owner.restart();
    workers::fill(&owner);
    let follower = follower(&common);
    let questions = workers::QUESTIONS.iter().chain(&workers::JOINED).chain(&workers::ALONE);
    let questions: Vec<Value> = questions
        .map(|query| workers::node(query))
        .chain(workers::insights())
        .chain(workers::insights_alone())
        .collect();
    for round in ["in memory", "in files", "with deletions"] {
        for question in &questions {
            let expected = workers::result(&owner, question);
            assert_eq!(workers::result(&follower, question), expected, "{round}: {question}");
        }
        match round {
            "in memory" => owner.flush(),
            "with deletions" => {}
            _ => {
                let found = owner.get("/api/projects/1/persons/?distinct_id=person%207").json();
                let person = found["results"][0]["uuid"].as_str().expect("a person");
                let path = format!("/api/projects/1/persons/{person}/?delete_events=true");
                assert_eq!(follower.delete(&path).status, 202);
            }
        }
    }
    assert!(!follower.stderr().contains("panicked"), "{}", follower.stderr());
}

/// A write of a thread: an event that sets a property of a person whom no other thread writes.
#[derive(Clone, Copy, Debug)]
struct Written {
    thread: u64,
    number: u32,
}

impl Written {
    fn uuid(self) -> Uuid {
        Uuid::from_u128(u128::from(self.number) + 1)
    }

    /// Sends it, and again until it is taken.
    fn send(self, client: impl Fn() -> Client) {
        let event = json!({
            "event": "step", "distinct_id": format!("thread {}", self.thread), "uuid": self.uuid(),
            "properties": {"number": self.number, "$set": {"last": self.number}},
        });
        let body = json!({"api_key": TOKEN, "batch": [event]}).to_string();
        let json = [("content-type", "application/json")];
        let sent = within(Duration::from_secs(90), || {
            let answer = client().send("POST", "/batch/", &json, body.as_bytes());
            let is_taken = answer.is_ok_and(|answer| answer.status == 200);
            if !is_taken {
                thread::sleep(Duration::from_millis(20));
            }
            is_taken.then_some(())
        });
        sent.expect("somebody takes it");
    }

    /// How often a server has the event, and the property; `None` if it refuses for now.
    fn read(self, client: Client) -> Option<(Value, Value)> {
        let counted =
            asked(client, &format!("SELECT count() FROM events WHERE uuid = '{}'", self.uuid()))?;
        let path = format!("/api/projects/1/persons/?distinct_id=thread%20{}", self.thread);
        let bearer = format!("Bearer {KEY}");
        let person = client.send("GET", &path, &[("authorization", &bearer)], b"").ok()?;
        if person.status >= 500 {
            return None;
        }
        Some((counted, person.json()["results"][0]["properties"]["last"].clone()))
    }
}

/// The rows of SQL; `None` if the server refuses for now.
fn asked(client: Client, query: &str) -> Option<Value> {
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = json!({"query": workers::node(query), "refresh": "force_blocking"}).to_string();
    let answer = client.send("POST", "/api/projects/1/query/", &headers, body.as_bytes()).ok()?;
    if answer.status >= 500 {
        return None;
    }
    assert_eq!(answer.status, 200, "{answer}");
    Some(answer.json()["results"].clone())
}

/// Goal: a write that was acknowledged by any server can be read through any other one right after, also while servers are
/// killed, hang and take over, while files are flushed and merged and the log is truncated all the time. Method: each thread
/// has persons of its own, whose last property grows.
fn what_is_written_is_read(seed: u64, time: Duration, faults: bool) {
    let common = Common::new();
    let mut servers = vec![started(&common), follower(&common), follower(&common)];
    let clients: Vec<Mutex<Client>> =
        servers.iter().map(|server| Mutex::new(server.client())).collect();
    let (stop, reads, refused) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let next = AtomicU32::new(0);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for thread in 0..3_u64 {
            let (clients, stop, reads, refused, next) = (&clients, &stop, &reads, &refused, &next);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed + thread);
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let to = random.random_range(0..3_u64);
                    let (write, turn) = (Written { thread, number }, AtomicU32::new(0));
                    write.send(|| {
                        let turn = u64::from(turn.fetch_add(1, Ordering::Relaxed));
                        *clients[usize::try_from((to + turn) % 3).unwrap()].lock()
                    });
                    let client = *clients[random.random_range(0..3)].lock();
                    let Some(read) = write.read(client) else {
                        refused.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    reads.fetch_add(1, Ordering::Relaxed);
                    let expected = (json!([[1]]), json!(number));
                    assert_eq!(read, expected, "seed {seed}: {write:?} by {}", client.address());
                }
            });
        }
        let (mut random, clock) = (StdRng::seed_from_u64(seed), Clock::system());
        let began = clock.monotonic();
        while clock.monotonic() - began < time {
            if !faults {
                thread::sleep(Duration::from_millis(100));
                continue;
            }
            thread::sleep(Duration::from_millis(random.random_range(500..2500)));
            let at = random.random_range(0..servers.len());
            let server = &mut servers[at];
            if random.random_bool(0.5) {
                let pid = Pid::from_raw(i32::try_from(server.process_id()).unwrap()).unwrap();
                kill_process(pid, Signal::STOP).expect("SIGSTOP");
                thread::sleep(Duration::from_millis(random.random_range(200..7000)));
                kill_process(pid, Signal::CONT).expect("SIGCONT");
                // One from which another has taken over ends by itself, and its supervisor starts it again.
                thread::sleep(Duration::from_millis(1500));
                if server.client().send("GET", "/_liveness", &[], b"").is_ok() {
                    continue;
                }
            }
            server.kill();
            thread::sleep(Duration::from_millis(random.random_range(0..1000)));
            *clients[at].lock() = server.stand_by();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let sent = u64::from(next.load(Ordering::Relaxed));
    let (reads, refused) = (reads.into_inner(), refused.into_inner());
    assert!(reads > 20, "seed {seed}: {sent} writes, {reads} reads, {refused} refused");
    let all = patiently(|| {
        let query =
            "SELECT count(), count(DISTINCT uuid), max(toInt(properties.number)) FROM events";
        let rows = clients.iter().map(|client| asked(*client.lock(), query));
        rows.map(|rows| Some(rows?.to_string())).collect::<Option<BTreeSet<String>>>()
    });
    let expected = json!([[sent, sent, sent - 1]]).to_string();
    assert_eq!(all, Some(BTreeSet::from([expected])), "seed {seed}");
    for server in &servers {
        assert!(!server.stderr().contains("panicked"), "{}", server.stderr());
    }
}

#[test]
fn a_write_can_be_read_through_any_server() {
    what_is_written_is_read(rand::random_range(0..1_000_000), Duration::from_secs(8), false);
}

/// The time is that of `WEIR_TEST_FOLLOWERS_OUTAGE_SECONDS`, or short.
#[test]
fn faults_hide_no_write() {
    what_is_written_is_read(rand::random_range(0..1_000_000), outage("FOLLOWERS", 25), true);
}

/// Goal: a follower that slept while the log behind its records was removed says so, opens its stores anew, and answers
/// nothing from the past meanwhile.
#[test]
fn a_follower_that_wakes_up_late_begins_anew() {
    let common = Common::new();
    let owner = started(&common);
    assert_eq!(owner.capture(&batch(0, 100)).status, 200);
    let follower = follower(&common);
    assert_eq!(sql(&follower, "SELECT count() FROM events"), json!([[100]]));
    let pid = Pid::from_raw(i32::try_from(follower.process_id()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).expect("SIGSTOP");
    let mut sent = 200;
    assert_eq!(owner.capture(&batch(100, sent)).status, 200);
    // Until all is gone that there is now, but for the claim: the next record, too.
    let before: BTreeSet<String> = common.keys("log").into_iter().collect();
    let cut = patiently(|| {
        assert_eq!(owner.capture(&batch(sent, sent + 10)).status, 200);
        sent += 10;
        thread::sleep(Duration::from_millis(100));
        let keys: BTreeSet<String> = common.keys("log").into_iter().collect();
        (keys.intersection(&before).count() <= 1).then_some(())
    });
    cut.expect("the log is truncated");
    kill_process(pid, Signal::CONT).expect("SIGCONT");
    assert_eq!(sql(&follower, "SELECT count() FROM events"), json!([[sent]]), "by the owner");
    follows(&follower, 2);
    assert!(follower.stderr().contains("lost track"), "{}", follower.stderr());
    let forwarded = follower.metric("weir_requests_forwarded_total");
    assert_eq!(sql(&follower, "SELECT count() FROM events"), json!([[sent]]));
    assert_eq!(follower.metric("weir_requests_forwarded_total"), forwarded, "by itself");
}

/// Goal: a follower takes over soon, and others follow it.
#[test]
fn a_follower_takes_over() {
    let common = Common::new();
    let mut owner = started(&common);
    assert_eq!(owner.capture(&batch(0, 100)).status, 200);
    let (mut second, third) = (follower(&common), follower(&common));
    owner.stop();
    let clock = Clock::system();
    let began = clock.monotonic();
    let taken = within(Duration::from_secs(20), || {
        let answer = third.client();
        let body = json!({"api_key": TOKEN, "batch": batch(100, 110)}).to_string();
        let json = [("content-type", "application/json")];
        let answer = answer.send("POST", "/batch/", &json, body.as_bytes()).ok()?;
        (answer.status == 200).then_some(())
    });
    assert!(taken.is_some(), "{}{}", second.stderr(), third.stderr());
    let took = clock.monotonic() - began;
    assert!(took < Duration::from_secs(10), "{took:?}");
    for server in [&second, &third] {
        assert_eq!(sql(server, "SELECT count() FROM events"), json!([[110]]));
    }
    let answers: Vec<Client> = [&second, &third].map(TestServer::client).to_vec();
    let writes = answers.iter().map(|client| {
        let page = client.send("GET", "/metrics", &[], b"").expect("metrics");
        String::from_utf8_lossy(&page.body).contains("\nweir_standing_by 0")
    });
    assert_eq!(writes.filter(|is_writing| *is_writing).count(), 1, "one of them writes");
    // Each ends in order, whichever it is, and the other one goes on.
    second.stop();
    assert!(!second.stderr().contains("panicked"), "{}", second.stderr());
    let goes_on = within(Duration::from_secs(20), || {
        asked(third.client(), "SELECT count() FROM events").filter(|rows| *rows == json!([[110]]))
    });
    assert!(goes_on.is_some(), "{}", third.stderr());
    let mut third = third;
    third.stop();
    assert!(!third.stderr().contains("panicked"), "{}", third.stderr());
}
