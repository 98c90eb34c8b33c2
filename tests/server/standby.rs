//! Servers whose log is in a bucket: one serves, others stand by, and any of them goes on where another one ended, without
//! its disk.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use uuid::Uuid;
use weir_base::clock::Clock;

use crate::crash;
use crate::crash::Disk;
use crate::harness::{Client, TOKEN, TestServer, outage, patiently, within};
use crate::support::bucket::{Fate, Gate, Moto, settings};
use crate::support::postgres::{Database, Postgres};

/// Flushes, makes images and truncates all the time.
const BUSY: [(&str, &str); 6] = [
    ("WEIR_STORAGE_LOG", "bucket"),
    ("WEIR_STORAGE_LOG_LINGER", "5ms"),
    ("WEIR_IDENTITY_IMAGE_INTERVAL", "1s"),
    ("WEIR_MEMTABLE_MAX_AGE", "200ms"),
    ("WEIR_COMPACTION_INTERVAL", "500ms"),
    ("WEIR_VACUUM_GRACE", "5s"),
];

const COUNT: &str = "SELECT count(*) AS n FROM events";

/// What servers have in common.
pub(crate) struct Common {
    pub(crate) moto: Moto,
    pub(crate) gate: Gate,
    pub(crate) database: Database,
    pub(crate) postgres: Postgres,
}

impl Common {
    pub(crate) fn new() -> Self {
        let (moto, postgres) = (Moto::start(), Postgres::start());
        let (gate, database) = (moto.gate(), postgres.database());
        Self { moto, gate, database, postgres }
    }

    /// A server with a disk of its own, which does not run yet.
    pub(crate) fn server(&self) -> TestServer {
        let (url, database) = (self.gate.url(), self.database.url());
        let mut more = BUSY.to_vec();
        more.push(("WEIR_METADATA_URL", &database));
        TestServer::stopped(&settings(&url, &more))
    }

    /// What a query of the metadata prints; several statements are one transaction.
    pub(crate) fn metadata(&self, query: &str) -> String {
        self.database.value(&format!("SET search_path = weir; {query}"))
    }

    /// Keys of objects in a directory of the shard.
    pub(crate) fn keys(&self, directory: &str) -> Vec<String> {
        let prefix = format!("events/shards/0000/{directory}/");
        self.moto.keys().into_iter().filter(|key| key.starts_with(&prefix)).collect()
    }
}

pub(crate) fn started(common: &Common) -> TestServer {
    let mut server = common.server();
    server.restart();
    server
}

pub(crate) fn batch(from: u32, to: u32) -> Value {
    let event = |number: u32| {
        json!({
            "event": "step", "distinct_id": format!("person {}", number % 23),
            "uuid": Uuid::from_u128(u128::from(number) + 1),
            "properties": {"number": number, "$set": {"last": number}},
        })
    };
    Value::Array((from..to).map(event).collect())
}

pub(crate) fn persons(server: &TestServer) -> BTreeSet<String> {
    let answer = server.get("/api/projects/1/persons/?limit=100").json();
    let person = |person: &Value| {
        let mut ids: Vec<&str> =
            person["distinct_ids"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        ids.sort_unstable();
        format!("{ids:?} {} {}", person["uuid"], person["properties"])
    };
    answer["results"].as_array().unwrap().iter().map(person).collect()
}

/// Goal: an event that was acknowledged, and every person, is there after a kill **and the loss of the disk**. Method: as
/// the test of kills on one disk, whose directory is removed after each.
#[test]
fn what_was_acknowledged_survives_the_loss_of_the_disk() {
    let common = Common::new();
    crash::survives_kills(started(&common), 5, Disk::Lost);
    assert!(!common.keys("identity").is_empty(), "images were made");
}

/// Goal: persons of a new machine are those of the lost one: from an image and the log behind it.
#[test]
fn persons_and_merges_come_back_without_the_disk() {
    let common = Common::new();
    let mut server = started(&common);
    let mut sent = 0;
    for round in 0..3 {
        let answer = server.capture(&batch(sent, sent + 200));
        assert_eq!(answer.status, 200, "{answer}");
        sent += 200;
        let merge = json!([{
            "event": "$identify", "distinct_id": format!("user {round}"),
            "properties": {"$anon_distinct_id": format!("person {round}"), "$set": {"round": round}},
        }]);
        assert_eq!(server.capture(&merge).status, 200);
        let images = patiently(|| (!common.keys("identity").is_empty()).then_some(()));
        images.expect("an image");
        let (events, before) = (server.count(COUNT), persons(&server));
        assert_eq!(events, u64::from(sent) + round + 1);
        server.kill();
        server.lose_disk();
        server.restart();
        assert_eq!(server.count(COUNT), events, "each event is there once");
        assert_eq!(persons(&server), before);
    }
    // What is in files and in two images needs no log, but for claims and the newest object.
    let cut = patiently(|| (common.keys("log").len() <= 12).then_some(()));
    assert!(cut.is_some(), "{:?}", common.keys("log"));
    server.stop();
    server.lose_disk();
    server.restart();
    assert_eq!(server.count(COUNT), u64::from(sent) + 3, "after an end in order");
}

/// Goal: a standby refuses requests and answers probes, takes over soon after a kill, and the killed one stands by then.
#[test]
fn a_standby_takes_over() {
    let common = Common::new();
    let mut owner = started(&common);
    let answer = owner.capture(&batch(0, 100));
    assert_eq!(answer.status, 200, "{answer}");
    let mut standby = common.server();
    standby.set("WEIR_STANDBY_READS", "false");
    let waiting = standby.stand_by();
    let probe = |path: &str| {
        patiently(|| waiting.send("GET", path, &[], b"").ok()).expect("an answer of the standby")
    };
    assert_eq!(probe("/_liveness").status, 200);
    for path in ["/_readiness", "/flags", "/api/projects/1/persons/", "/"] {
        let refused = probe(path);
        assert_eq!(refused.status, 503, "{path}: {refused}");
        assert!(refused.header("retry-after").is_some(), "{path}: {refused}");
        assert_eq!(refused.json()["code"], "standing_by", "{path}: {refused}");
    }
    assert!(String::from_utf8_lossy(&probe("/metrics").body).contains("weir_log_in_doubt 0"));
    assert_eq!((owner.metric("weir_standing_by"), standby.metric("weir_standing_by")), (0, 1));
    assert_eq!(owner.get("/_readiness").status, 200, "it still serves");
    owner.kill();
    standby.take_over();
    assert_eq!(standby.metric("weir_standing_by"), 0);
    assert_eq!(standby.count(COUNT), 100);
    assert_eq!(standby.capture(&batch(100, 200)).status, 200);
    owner.set("WEIR_STANDBY_READS", "false");
    let waiting = owner.stand_by();
    let refused = patiently(|| waiting.send("GET", "/_readiness", &[], b"").ok()).unwrap();
    assert_eq!(refused.status, 503, "{refused}");
    // An end in order gives the lease back.
    standby.stop();
    owner.take_over();
    assert_eq!(owner.count(COUNT), 200);
}

/// Goal: an operator sees that a standby does not follow any more. Method: the standby has a way of its own to the bucket,
/// which ends.
#[test]
fn a_standby_that_lags_says_so() {
    let common = Common::new();
    let owner = started(&common);
    assert_eq!(owner.capture(&batch(0, 100)).status, 200);
    let images = patiently(|| (!common.keys("identity").is_empty()).then_some(()));
    images.expect("an image");
    let (own_way, mut standby) = (common.moto.gate(), common.server());
    standby.set("WEIR_STORAGE_ENDPOINT", &own_way.url());
    standby.stand_by();
    let metric = |name: &str| {
        let page = standby.client().send("GET", "/metrics", &[], b"").ok()?;
        let page = String::from_utf8(page.body).ok()?;
        page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    // At the second look, after a whole one.
    let brought = patiently(|| metric("weir_standby_image_age_seconds").filter(|age| *age >= 1));
    brought.expect("it has brought the image");
    assert_eq!(metric("weir_standby_lag_seconds"), Some(0));
    own_way.judge(|_| Fate::Lost);
    let lags = patiently(|| metric("weir_standby_lag_seconds").filter(|lag| *lag >= 5));
    lags.expect("it says that it lags");
    assert!(metric("weir_standby_image_age_seconds").is_some_and(|age| age >= 5));
    own_way.judge(|_| Fate::Passed);
    let follows = patiently(|| metric("weir_standby_lag_seconds").filter(|lag| *lag == 0));
    follows.expect("it follows again");
}

/// Ends the senders of a test that fails.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends batches of ten until it is told to stop; what is not acknowledged is sent again, to whoever serves.
fn sender(serves: impl Fn() -> Client, next: &AtomicU32, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let from = next.fetch_add(10, Ordering::Relaxed);
        let body = json!({"api_key": TOKEN, "batch": batch(from, from + 10)}).to_string();
        let json = [("content-type", "application/json")];
        let sent = within(outage("BUCKET", 3) + Duration::from_secs(60), || {
            let answer = serves().send("POST", "/batch/", &json, body.as_bytes());
            let is_taken = answer.is_ok_and(|answer| answer.status == 200);
            if !is_taken {
                thread::sleep(Duration::from_millis(50));
            }
            is_taken.then_some(())
        });
        sent.expect("somebody takes it");
    }
}

/// Goal: an owner that was stopped for long while another one took over and truncated acknowledges nothing afterwards, and
/// everything its clients sent is there once. Method: it is stopped until the standby has cut the log up to its own claim.
/// Where claims are cut, too, and the lease in PostgreSQL does not end the owner first, this fails.
#[test]
fn an_owner_that_wakes_up_late_acknowledges_nothing() {
    let common = Common::new();
    let owner = started(&common);
    let mut standby = common.server();
    standby.stand_by();
    let clients = parking_lot::Mutex::new(owner.client());
    let (next, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let pid = Pid::from_raw(i32::try_from(owner.process_id()).unwrap()).unwrap();
    let mut owner = owner;
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let senders: Vec<_> =
            (0..3).map(|_| scope.spawn(|| sender(|| *clients.lock(), &next, &stop))).collect();
        thread::sleep(Duration::from_millis(1500));
        kill_process(pid, Signal::STOP).expect("SIGSTOP");
        standby.take_over();
        // A request that reaches the owner while it sleeps.
        let late = owner.client();
        let body = json!({"api_key": TOKEN, "batch": batch(1_000_000, 1_000_010)}).to_string();
        let asleep = scope.spawn(move || late.send("POST", "/batch/", &[], body.as_bytes()));
        // The senders of before wait for the owner.
        *clients.lock() = standby.client();
        let claim = common.keys("log").pop().expect("that of the standby");
        let more = scope.spawn(|| sender(|| *clients.lock(), &next, &stop));
        // Nothing but claims is left before it.
        let is_cut = || common.keys("log").iter().filter(|key| **key < claim).count() <= 1;
        let cut = patiently(|| is_cut().then_some(()));
        assert!(cut.is_some(), "{claim}: {:?}", common.keys("log"));
        kill_process(pid, Signal::CONT).expect("SIGCONT");
        let answer = asleep.join().unwrap();
        assert!(!answer.is_ok_and(|answer| answer.status == 200), "it acknowledges nothing");
        assert_eq!(owner.failed_end(), Some(1), "it ends by itself");
        let said = owner.stderr();
        assert!(said.contains("another server has taken over"), "{said}");
        assert!(!said.contains("panic"), "{said}");
        thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        senders.into_iter().chain([more]).for_each(|sender| sender.join().unwrap());
    });
    let sent = next.load(Ordering::Relaxed);
    assert!(sent > 100, "the load was no load: {sent}");
    let own = "SELECT count(DISTINCT uuid) AS n FROM events WHERE CAST(properties.number AS BIGINT) < 1000000";
    assert_eq!(standby.count(own), u64::from(sent), "everything is there");
    standby.has_no_twins();
}

/// Goal: while the store is away or loses answers, requests wait or are answered 503, and nothing is lost or stored twice.
#[test]
fn a_store_that_fails_loses_nothing() {
    let common = Common::new();
    let server = started(&common);
    let (next, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let client = server.client();
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let senders: Vec<_> =
            (0..3).map(|_| scope.spawn(|| sender(|| client, &next, &stop))).collect();
        let fates = [Fate::AnswerLost, Fate::Lost, Fate::Refused, Fate::AnswerLost];
        let mut requests = 0_usize;
        common.gate.judge(move |line| {
            requests += 1;
            match line.starts_with("PUT") && line.contains("/log/") && requests.is_multiple_of(3) {
                true => fates[requests / 3 % fates.len()],
                false => Fate::Passed,
            }
        });
        thread::sleep(Duration::from_secs(4));
        common.gate.judge(|_| Fate::Lost);
        thread::sleep(outage("BUCKET", 3));
        assert_eq!(server.metric("weir_log_in_doubt"), 1);
        common.gate.judge(|_| Fate::Passed);
        thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
    assert!(common.gate.disturbed() > 10);
    assert_eq!(server.metric("weir_log_in_doubt"), 0);
    let sent = u64::from(next.load(Ordering::Relaxed));
    assert_eq!(server.count("SELECT count(DISTINCT uuid) AS n FROM events"), sent);
    assert_eq!(server.count(COUNT), sent, "each once");
}

/// Goal: while the store is slow, requests wait for their puts and are acknowledged, nothing is in doubt, and nothing is lost
/// or stored twice.
#[test]
fn a_slow_store_delays_and_loses_nothing() {
    let common = Common::new();
    let server = started(&common);
    let (next, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    let client = server.client();
    let clock = Clock::system();
    let asked = |number: u32| {
        let began = clock.monotonic();
        let answer =
            server.capture(&json!([{"event": "slow", "distinct_id": format!("s{number}")}]));
        assert_eq!(answer.status, 200, "{answer}");
        clock.monotonic() - began
    };
    let mut own = 0;
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let senders: Vec<_> =
            (0..3).map(|_| scope.spawn(|| sender(|| client, &next, &stop))).collect();
        let mut random = StdRng::seed_from_u64(7);
        common
            .gate
            .judge(move |_| Fate::Slow(Duration::from_millis(random.random_range(500..2_000))));
        let (began, mut slowest) = (clock.monotonic(), Duration::ZERO);
        while clock.monotonic() - began < outage("BUCKET", 6) {
            slowest = slowest.max(asked(own));
            own += 1;
            assert_eq!(server.metric("weir_log_in_doubt"), 0);
        }
        assert!(slowest >= Duration::from_millis(500), "the store was not slow: {slowest:?}");
        common.gate.judge(|_| Fate::Passed);
        asked(own);
        own += 1;
        stop.store(true, Ordering::Relaxed);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
    let sent = u64::from(next.load(Ordering::Relaxed) + own);
    assert!(sent > 20, "{sent}");
    assert_eq!(server.count(COUNT), sent);
    server.has_no_twins();
}

/// Goal: nobody takes the log from where it is, or puts a second one beside it, by a setting.
#[test]
fn a_log_keeps_to_its_place() {
    let common = Common::new();
    let mut server = common.server();
    server.set("WEIR_STORAGE_LOG", "disk");
    server.set("WEIR_MEMTABLE_MAX_AGE", "1d");
    server.restart();
    assert_eq!(server.capture(&batch(0, 10)).status, 200);
    server.kill();
    server.set("WEIR_STORAGE_LOG", "bucket");
    let said = server.try_start().expect_err("records are in the log on the disk alone");
    assert!(said.contains("start with --storage-log disk"), "{said}");
    server.set("WEIR_STORAGE_LOG", "disk");
    server.restart();
    server.stop();
    server.set("WEIR_STORAGE_LOG", "bucket");
    server.restart();
    assert_eq!(server.count(COUNT), 10);
    assert_eq!(server.capture(&batch(10, 30)).status, 200);
    // A command without a server reads the log in the bucket, and changes nothing.
    server.kill();
    let before = common.moto.keys();
    assert_eq!(server.count(COUNT), 30);
    assert_eq!(common.moto.keys(), before);
    server.set("WEIR_STORAGE_LOG", "disk");
    let said = server.try_start().expect_err("the log is in the bucket");
    assert!(said.contains("start with --storage-log bucket"), "{said}");
    server.set("WEIR_STORAGE_LOG", "bucket");
    server.lose_disk();
    server.restart();
    assert_eq!(server.count(COUNT), 30);
    assert_eq!(persons(&server).len(), 23);
}
