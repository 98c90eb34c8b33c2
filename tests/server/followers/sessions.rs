//! Clients of PostgreSQL at servers that stand by: they read what any server acknowledged before.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use super::{batch, follows};
use crate::harness::{KEY, TestServer, patiently, within};
use crate::postgres_port::wire::Session;
use crate::standby::Common;

const COUNT: &str = "SELECT count(*) FROM events";

/// A server whose port has an address that stays.
fn server(common: &Common) -> (TestServer, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let (mut server, address) = (common.server(), free.expect("a free port"));
    server.set("WEIR_POSTGRES_LISTEN", &address.to_string());
    (server, address)
}

fn count(session: &mut Session) -> Result<u32, String> {
    let rows = session.rows(COUNT).map_err(|failed| failed.code)?;
    Ok(rows[0][0].parse().unwrap())
}

/// A session with whoever takes it.
fn open(addresses: &[SocketAddr]) -> Session {
    let opened = within(Duration::from_secs(60), || {
        let there = addresses.iter().filter(|own| std::net::TcpStream::connect(own).is_ok());
        there.into_iter().find_map(|own| Session::open(*own, KEY, "1").ok())
    });
    opened.expect("a session")
}

#[test]
fn sessions_of_a_follower_read_what_was_acknowledged() {
    let common = Common::new();
    let ((mut owner, first), (mut follower, second)) = (server(&common), server(&common));
    owner.restart();
    follower.stand_by();
    follows(&follower, 1);
    let mut sessions = [first, second].map(|address| open(&[address]));
    for turn in 1..=20 {
        let by = [&owner, &follower][turn as usize % 2];
        assert_eq!(by.capture(&batch((turn - 1) * 5, turn * 5)).status, 200);
        for session in &mut sessions {
            assert_eq!(count(session), Ok(turn * 5));
        }
    }
    let wrong = [first, second].map(|address| {
        ["2", "nobody"].map(|database| Session::open(address, KEY, database).map(drop).unwrap_err())
    });
    assert_eq!(wrong[0], wrong[1]);
    // A key that was made, and that ended, at the other one.
    let key = owner.key(&serde_json::json!({"label": "x", "scopes": ["query:read"]}));
    assert!(Session::open(second, &key, "1").is_ok());

    // The follower takes over: its sessions end, and whoever connects again reads everything.
    let [mut at_owner, mut at_follower] = sessions;
    owner.kill();
    let over = patiently(|| at_follower.is_over().then_some(()));
    over.expect("its end");
    assert_eq!(at_follower.last_error().as_deref(), Some("57P01"));
    assert!(at_owner.is_over());
    let mut session = open(&[second]);
    assert_eq!(count(&mut session), Ok(100));
    // The former one follows, and its port is open again.
    owner.stand_by();
    follows(&owner, 1);
    assert_eq!(follower.capture(&batch(100, 110)).status, 200);
    let mut session = open(&[first]);
    assert_eq!(count(&mut session), Ok(110));
    // While nobody can tell what is newest, nobody answers.
    common.gate.judge(|_| crate::support::bucket::Fate::Lost);
    follower.kill();
    let refused = patiently(|| count(&mut session).err());
    assert!(
        refused.as_deref().is_some_and(|code| ["57P01", "gone"].contains(&code)),
        "{refused:?}"
    );
    common.gate.judge(|_| crate::support::bucket::Fate::Passed);
    let mut session = open(&[first]);
    assert_eq!(count(&mut session), Ok(110));
    owner.stop();
    assert!(!owner.stderr().contains("panicked"), "{}", owner.stderr());
}
