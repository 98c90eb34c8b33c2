//! Clients of PostgreSQL, each of which may connect to any node: they read what was acknowledged before, and are told to connect
//! again when the project goes to another node.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{Cluster, JSON, Project};
use crate::harness::{KEY, TestServer, patiently, within};
use crate::pair::of_nodes;
use crate::postgres_port::wire::{Refused, Session};
use crate::standby::StopOnDrop;

const PORT: (&str, &str) = ("WEIR_POSTGRES_LISTEN", "127.0.0.1:0");

const COUNT: &str = "SELECT count(*) FROM events";

/// It takes minutes over some hundred events, little memory, and ends as soon as it is cancelled.
const SLOW: &str = "SELECT sum(length(l.x || r.y)) \
                    FROM (SELECT a.uuid || b.uuid AS x FROM events a CROSS JOIN events b LIMIT 10000) l \
                    CROSS JOIN (SELECT c.uuid || d.uuid AS y FROM events c CROSS JOIN events d) r";

/// Codes with which a client connects again.
const AGAIN: [&str; 3] = ["57P01", "57P03", "gone"];

fn open(node: &TestServer, project: &Project) -> Session {
    let opened = within(Duration::from_secs(30), || match connected(node, KEY, project.id) {
        Ok(session) => Some(session),
        Err(failed) => {
            assert!(AGAIN.contains(&failed.code.as_str()), "{failed:?}");
            None
        }
    });
    opened.unwrap_or_else(|| panic!("{}", node.stderr()))
}

fn connected(node: &TestServer, key: &str, project: i64) -> Result<Session, Refused> {
    Session::open(node.postgres(), key, &project.to_string())
}

/// Events as many as `count`, each with its number.
fn send(node: &TestServer, project: &Project, count: usize) {
    let event = |n| json!({"event": "e", "distinct_id": format!("u{n}"), "properties": {"n": n}});
    let batch: Vec<_> = (0..count).map(event).collect();
    let body = json!({"api_key": project.token, "batch": batch}).to_string();
    let taken = within(super::RETRIES, || {
        let answer = node.client().send("POST", "/batch/", &[JSON], body.as_bytes()).ok()?;
        (answer.status == 200).then_some(())
    });
    taken.unwrap_or_else(|| panic!("{}", node.stderr()));
}

/// The code with which a session ends that does nothing.
fn end(session: &mut Session) -> Option<String> {
    let over = within(Duration::from_secs(30), || session.is_over().then_some(()));
    over.expect("its end");
    session.last_error()
}

fn code<T: std::fmt::Debug>(answered: Result<T, Refused>) -> String {
    answered.expect_err("an error").code
}

#[test]
fn sessions_read_through_any_node_what_was_written_through_another() {
    let cluster = Cluster::start(3, 6, &[PORT]);
    let projects = cluster.projects(6);
    for (turn, project) in projects.iter().enumerate() {
        let mut sessions: Vec<Session> =
            cluster.nodes.iter().map(|node| open(node, project)).collect();
        for round in 0..6 {
            let writer = &cluster.nodes[(turn + round) % 3];
            send(writer, project, 2);
            let expected = (2 * (round + 1)).to_string();
            for (at, session) in sessions.iter_mut().enumerate() {
                let told = (session.rows(COUNT).unwrap(), session.prepared(COUNT).unwrap());
                let rows = vec![vec![expected.clone()]];
                assert_eq!(told, (rows.clone(), rows), "{project:?} by {at}");
            }
        }
        // Properties of persons, which are of a table of their own, and the catalog.
        for session in &mut sessions {
            assert_eq!(session.rows("SELECT count(*) FROM persons").unwrap(), [["2"]]);
            let named = session.rows("SELECT current_database()").unwrap();
            assert_eq!(named, [[project.id.to_string()]]);
        }
    }
    // Long answers, whose parts are none of messages.
    let project = &projects[3];
    send(&cluster.nodes[0], project, 500);
    let wide =
        "SELECT a.uuid || repeat('x', 500) AS wide FROM events a CROSS JOIN events b LIMIT 60000";
    let mut told = Vec::new();
    for node in &cluster.nodes {
        let mut session = open(node, project);
        let copied = session.copied(&format!("COPY ({wide}) TO STDOUT")).unwrap();
        told.push((copied.len(), copied.lines().count(), session.suspended(wide, 7_000).unwrap()));
        assert_eq!(session.rows("SELECT 1").unwrap(), [["1"]]);
    }
    assert!(told.iter().all(|own| own.1 == 60_000 && *own == told[0]), "{told:?}");
    let passed_on = "weir_postgres_connections_passed_on_total";
    let passed_on: u64 = cluster.nodes.iter().map(|node| node.metric(passed_on)).sum();
    assert!((10..=20).contains(&passed_on), "{passed_on}");
    let connections = |node: &TestServer| node.metric("weir_postgres_connections");
    let closed =
        patiently(|| cluster.nodes.iter().all(|node| connections(node) == 0).then_some(()));
    closed.expect("all connections end");
    cluster.has_not_panicked();
}

#[test]
fn errors_of_sign_ins_are_those_of_one_server() {
    let cluster = Cluster::start(2, 3, &[PORT]);
    let projects = cluster.projects(3);
    let narrow = json!({"label": "x", "scopes": ["query:read"], "scoped_teams": [projects[1].id]});
    for (at, node) in cluster.nodes.iter().enumerate() {
        // Keys and projects that were made right before, at another node.
        let maker = &cluster.nodes[1 - at];
        let (narrow, blind) =
            (maker.key(&narrow), maker.key(&json!({"label": "x", "scopes": ["person:read"]})));
        assert!(connected(node, &narrow, projects[1].id).is_ok());
        let (new, _) = maker.project(&format!("new {at}"));
        assert!(Session::open(node.postgres(), KEY, &format!("new {at}")).is_ok());
        assert!(connected(node, KEY, new).is_ok());
        let mut told = Vec::new();
        for (key, database, expected) in [
            (&*narrow, projects[0].id, "3D000"),
            (&*narrow, projects[2].id, "3D000"),
            (&*narrow, 9999, "3D000"),
            (KEY, 9999, "3D000"),
            (&*blind, projects[2].id, "42501"),
            ("phx_wrong_key_0123456789abcdefghijklmnop", projects[2].id, "28P01"),
            ("phx_wrong_key_0123456789abcdefghijklmnop", 9999, "28P01"),
            (&*projects[2].token, projects[2].id, "28P01"),
        ] {
            let failed = connected(node, key, database).map(drop).unwrap_err();
            assert_eq!(failed.code, expected, "{database}: {failed:?}");
            told.push(failed.message.replace(&database.to_string(), "N"));
        }
        // Nothing tells projects of others from none.
        assert!(told[..4].iter().all(|own| *own == told[0]), "{told:?}");
        assert_eq!(told[5], told[6]);
    }
    // A key that ends at one node ends at all.
    let made = cluster.nodes[0]
        .post("/api/personal_api_keys/", &json!({"label": "x", "scopes": ["query:read"]}));
    let made = made.created();
    let key = made["value"].as_str().expect("a value");
    let mut sessions: Vec<Session> = projects
        .iter()
        .flat_map(|project| {
            cluster.nodes.iter().map(|node| connected(node, key, project.id).unwrap())
        })
        .collect();
    let path = format!("/api/personal_api_keys/{}/", made["id"].to_string().replace('"', ""));
    assert_eq!(cluster.nodes[1].delete(&path).status, 204);
    for session in &mut sessions {
        session.send_query("SELECT 1");
        assert_eq!(code(session.answer()), "28000");
    }
}

/// Asks a server to cancel what a session runs.
fn cancel(node: &TestServer, (process, secret): (i32, i32)) {
    let mut session = Session::connect(node.postgres());
    let body = [16, 80_877_102, process, secret];
    let body: Vec<u8> = body.iter().flat_map(|own: &i32| own.to_be_bytes()).collect();
    session.socket.write_all(&body).expect("sent");
    let mut rest = Vec::new();
    let _ = session.socket.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

/// A balancer may send the request to another node than the session.
#[test]
fn statements_are_cancelled_through_any_node() {
    let cluster = Cluster::start(3, 3, &[PORT, ("WEIR_QUERY_TIMEOUT", "1h")]);
    let project = &cluster.projects(3)[1];
    send(&cluster.nodes[0], project, 400);
    for node in &cluster.nodes {
        for by in &cluster.nodes {
            let mut session = open(node, project);
            let own = session.cancel_key;
            let (failed, mut session) = thread::scope(|scope| {
                let running = scope.spawn(move || {
                    session.send_query(SLOW);
                    (code(session.answer()), session)
                });
                thread::sleep(Duration::from_millis(300));
                cancel(by, (own.0, own.1.wrapping_add(1)));
                thread::sleep(Duration::from_millis(100));
                assert!(!running.is_finished(), "nobody without the secret");
                cancel(by, own);
                running.join().unwrap()
            });
            assert_eq!(failed, "57014");
            assert_eq!(session.rows("SELECT 1").unwrap(), [["1"]]);
        }
    }
}

/// Goal: a client that reads while the shard moves back and forth is told so, connects again, and never reads from the past.
#[test]
fn sessions_end_when_their_shard_moves() {
    // Two shards on each node: of those that stay, each keeps one.
    let cluster = Cluster::start(2, 4, &[PORT, ("WEIR_QUERY_TIMEOUT", "1h")]);
    let projects = cluster.projects(4);
    let project = &projects[1];
    send(&cluster.nodes[0], project, 400);
    let (stop, written, ended) = (AtomicBool::new(false), AtomicU32::new(400), AtomicU32::new(0));
    let others: Vec<&Project> = projects.iter().filter(|own| own.id != project.id).collect();
    let shard = format!("SELECT shard FROM projects WHERE id = {}", project.id);
    let shard = cluster.common.metadata(&shard);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let turn = written.load(Ordering::Relaxed) as usize;
                send(&cluster.nodes[turn % 2], project, 1);
                written.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
            }
        });
        for node in &cluster.nodes {
            let (stop, written, ended) = (&stop, &written, &ended);
            scope.spawn(move || {
                let mut session = open(node, project);
                while !stop.load(Ordering::Relaxed) {
                    let least = written.load(Ordering::SeqCst);
                    session.send_query(COUNT);
                    match session.answer() {
                        Ok(answer) => {
                            let count: u32 = answer.rows[0][0].parse().unwrap();
                            let most = written.load(Ordering::SeqCst) + 1;
                            assert!((least..=most).contains(&count), "{least} {count} {most}");
                        }
                        Err(failed) => {
                            assert_eq!(failed.code, "57P01", "{failed:?}");
                            ended.fetch_add(1, Ordering::Relaxed);
                            session = open(node, project);
                        }
                    }
                }
            });
        }
        for _ in 0..4 {
            let (owner, other) = cluster.sides(project);
            // One that waits and one that runs, each on both sides.
            let both = || cluster.nodes.iter().map(|node| open(node, project));
            let (mut idle, mut slow): (Vec<Session>, Vec<Session>) =
                (both().collect(), both().collect());
            slow.iter_mut().for_each(|session| session.send_query(SLOW));
            let stays = others.iter().find(|own| cluster.sides(own).0.url() == owner.url());
            let mut bystander = open(owner, stays.expect("a project"));
            cluster.told(&["move", &shard, &other.url()]);
            for session in &mut idle {
                assert_eq!(end(session).as_deref(), Some("57P01"));
            }
            for session in &mut slow {
                assert_eq!(code(session.answer()), "57P01");
            }
            assert_eq!(bystander.rows("SELECT 1").unwrap(), [["1"]]);
            cluster.settle();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(ended.load(Ordering::Relaxed) >= 4);
    cluster.has_not_panicked();
}

/// Goal: the end of a node is told to clients of others, and none reads from a node that slept while another one took over.
#[test]
fn sessions_end_with_the_node_of_their_shard() {
    let mut cluster = Cluster::start(3, 3, &[PORT, ("WEIR_QUERY_TIMEOUT", "1h")]);
    let projects = cluster.projects(3);
    let project = &projects[1];
    send(&cluster.nodes[0], project, 200);
    let (owner, other) = cluster.sides(project);
    let (url, far) = (owner.url(), other.url());
    let pid = Pid::from_raw(i32::try_from(owner.process_id()).unwrap()).unwrap();
    let (mut near, mut idle) = (open(owner, project), open(other, project));
    assert_eq!(idle.rows(COUNT).unwrap(), [["200"]]);
    kill_process(pid, Signal::STOP).expect("SIGSTOP");
    assert_eq!(end(&mut idle).as_deref(), Some("57P01"));
    assert_eq!(open(other, project).rows(COUNT).unwrap(), [["200"]]);
    send(other, project, 5);
    // What it got while it slept is answered by nobody.
    near.send_query(COUNT);
    kill_process(pid, Signal::CONT).expect("SIGCONT");
    assert_eq!(code(near.answer()), "57P01");
    assert_eq!(open(owner, project).rows(COUNT).unwrap(), [["205"]]);
    cluster.settle();

    // One that is killed.
    let at = |cluster: &Cluster, url: &str| cluster.nodes.iter().position(|node| node.url() == url);
    let owner = cluster.sides(project).0.url();
    let through = if owner == far { &url } else { &far };
    let (owner, through) = (at(&cluster, &owner).unwrap(), at(&cluster, through).unwrap());
    let (mut idle, mut slow) =
        (open(&cluster.nodes[through], project), open(&cluster.nodes[through], project));
    slow.send_query(SLOW);
    thread::sleep(Duration::from_millis(300));
    cluster.nodes[owner].kill();
    assert_eq!(end(&mut idle).as_deref(), Some("57P01"));
    assert_eq!(code(slow.answer()), "57P01");
    assert_eq!(open(&cluster.nodes[through], project).rows(COUNT).unwrap(), [["205"]]);
    cluster.nodes[owner].begin();
    cluster.nodes[owner].take_over();
    cluster.settle();

    // One that ends while it passes connections on: statements end before it does.
    let through =
        cluster.nodes.iter().position(|node| node.url() != cluster.sides(project).0.url());
    let through = through.expect("another node");
    let (mut idle, mut session) =
        (open(&cluster.nodes[through], project), open(&cluster.nodes[through], project));
    session.send_query(&SLOW.replace("10000", "60"));
    thread::sleep(Duration::from_millis(100));
    let rows = thread::scope(|scope| {
        let running = scope.spawn(move || session.answer().map(|answer| answer.rows.len()));
        cluster.nodes[through].stop();
        running.join().unwrap()
    });
    assert_eq!(rows.map_err(|error| error.code), Ok(1));
    assert_eq!(end(&mut idle).as_deref(), Some("57P01"));
    cluster.has_not_panicked();
}

/// Sends a request to go on with the protocol of sessions. Returns the status.
fn knock(node: &TestServer, path: &str, secret: Option<&str>) -> u16 {
    let secret = secret.map(|secret| format!("x-weir-node: {secret}\r\n")).unwrap_or_default();
    let request = format!(
        "POST /_internal/{path} HTTP/1.1\r\nhost: x\r\n{secret}connection: upgrade\r\nupgrade: weir-session\r\n\
         content-length: 0\r\n\r\n"
    );
    let mut socket = TcpStream::connect(node.client().address()).expect("a connection");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time-out");
    socket.write_all(request.as_bytes()).expect("sent");
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer[9..]).parse().expect("a status")
}

#[test]
fn sessions_are_passed_on_by_nodes_alone() {
    let cluster = Cluster::start(2, 3, &[PORT, ("WEIR_POSTGRES_CONNECTIONS_MAX", "2")]);
    let project = &cluster.projects(3)[2];
    let (owner, other) = cluster.sides(project);
    let shard = format!("SELECT shard FROM projects WHERE id = {}", project.id);
    let path = format!("session?shard={}", cluster.common.metadata(&shard));
    let secret = "SELECT secret FROM leases WHERE name LIKE 'shard/%' LIMIT 1";
    let secret = cluster.common.metadata(secret);
    let (holder, _) = secret.split_once('.').expect("a secret");
    for node in [owner, other] {
        for guess in [None, Some("guess"), Some(""), Some("."), Some(holder)] {
            for path in [&*path, "session", "session/?shard=0", "cancel-session?session=1&secret=2"]
            {
                assert_eq!(knock(node, path, guess), 401, "{guess:?} {path}");
            }
        }
    }
    for (node, path, status) in [
        (owner, &*path, 101),
        (other, &*path, 421),
        (owner, "session?shard=99", 421),
        (owner, "session?shard=x", 400),
        (owner, "cancel-session?session=1&secret=2", 200),
    ] {
        assert_eq!(knock(node, path, Some(&secret)), status, "{path}");
    }
    let answer = owner.send("POST", &format!("/_internal/{path}"), &[("x-weir-node", &secret)], "");
    assert!((400..500).contains(&answer.status), "without an upgrade: {answer}");
    // Who knows the secret still needs a key: what is sent after the answer is a sign-in.
    // Both nodes count a session that is passed on.
    let sessions = [open(other, project), open(owner, project)];
    assert_eq!(connected(owner, KEY, project.id).map(drop).unwrap_err().code, "53300");
    assert_eq!(connected(other, KEY, project.id).map(drop).unwrap_err().code, "53300");
    drop(sessions);
    let free = patiently(|| connected(other, KEY, project.id).ok());
    assert!(free.is_some());
    cluster.has_not_panicked();
}

/// A node without the port has the sessions of its projects all the same.
#[test]
fn a_node_without_the_port_serves_others() {
    let mut cluster = Cluster::start(2, 2, &[PORT]);
    let projects = cluster.projects(2);
    cluster.nodes[1].unset(PORT.0);
    cluster.nodes[1].stop();
    cluster.nodes[1].begin();
    cluster.nodes[1].take_over();
    cluster.settle();
    for project in &projects {
        send(&cluster.nodes[1], project, 3);
        assert_eq!(open(&cluster.nodes[0], project).rows(COUNT).unwrap(), [["3"]]);
    }
}

/// The balancer that `scripts/deploy/` has, as long as this exists.
struct Balancer(Child);

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goal: a client that knows one address reads all projects, before and after a node is lost.
#[test]
fn a_balancer_may_choose_any_node() {
    let mut cluster = Cluster::start(3, 3, &[PORT]);
    let projects = cluster.projects(3);
    projects.iter().for_each(|project| send(&cluster.nodes[0], project, 7));
    let addresses = [(); 2].map(|()| {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        free.expect("a free port")
    });
    let bound = addresses.map(|address| address.to_string());
    let nodes: Vec<String> =
        cluster.nodes.iter().map(|node| node.client().address().to_string()).collect();
    let ports: Vec<String> = cluster.nodes.iter().map(|node| node.postgres().to_string()).collect();
    let mut haproxy = of_nodes((&bound[0], &bound[1]), &nodes, &ports);
    haproxy.arg("-db").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _balancer = Balancer(haproxy.spawn().expect("haproxy starts: scripts/test.sh installs it"));
    let read = |project: &Project| {
        let rows = within(Duration::from_secs(60), || {
            let is_there = TcpStream::connect(addresses[1]).is_ok();
            let opened =
                is_there.then(|| Session::open(addresses[1], KEY, &project.id.to_string()));
            opened?.ok()?.rows(COUNT).ok()
        });
        assert_eq!(rows, Some(vec![vec!["7".to_owned()]]), "{project:?}");
    };
    projects.iter().chain(&projects).chain(&projects).for_each(read);
    cluster.nodes[1].kill();
    projects.iter().chain(&projects).chain(&projects).for_each(read);
    cluster.nodes[1].begin();
    cluster.nodes[1].take_over();
}
