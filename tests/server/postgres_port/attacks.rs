//! Hostile and broken clients: they get an error or are closed, in little memory, and others are served.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::harness::{KEY, patiently, within};
use crate::limits::{FREED_AT_ONCE, peak_mib};
use crate::postgres_port::wire::{Session, text};
use crate::postgres_port::{SLOW, send, start};

/// Memory that all of a test's strangers may take, in MiB.
const LITTLE_MIB: u64 = 40;

#[test]
fn strangers_take_little_memory() {
    let server = start(&[FREED_AT_ONCE, ("WEIR_HEADER_TIMEOUT", "2s")]);
    let address = server.postgres();
    assert!(Session::open(address, KEY, "1").is_ok());
    let before = peak_mib(&server);
    let huge = [&0x7fff_ffff_u32.to_be_bytes()[..], &[0, 3, 0, 0], &[b'x'; 60_000]].concat();
    let many = [&9_999_u32.to_be_bytes()[..], &[0, 3, 0, 0], &b"a\0b\0".repeat(2_000)].concat();
    let password = [&[b'p'][..], &0x7fff_ffff_u32.to_be_bytes(), &[b'x'; 60_000]].concat();
    let web = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
    for (what, bytes) in
        [("startup", &huge), ("parameters", &many), ("HTTP", &web), ("nothing", &Vec::new())]
    {
        let mut all: Vec<Session> = (0..40).map(|_| Session::connect(address)).collect();
        // Those that are not served yet wait in the kernel's queue.
        all.iter_mut().for_each(|own| drop(own.socket.write_all(bytes)));
        for own in &mut all {
            let over = within(Duration::from_secs(30), || own.is_over().then_some(()));
            over.unwrap_or_else(|| panic!("{what}: a stranger stays"));
        }
    }
    for _ in 0..10 {
        let mut session = Session::connect(address);
        session.start(&[("user", "a"), ("database", "1")]);
        assert_eq!(session.message().unwrap().0, b'R');
        let _ = session.socket.write_all(&password);
        patiently(|| session.is_over().then_some(())).expect("its end");
    }
    let more = peak_mib(&server).saturating_sub(before);
    assert!(more < LITTLE_MIB, "{more} MiB");
    assert!(Session::open(address, KEY, "1").is_ok(), "others are served");
}

#[test]
fn messages_are_bounded_and_none_is_believed() {
    let server = start(&[FREED_AT_ONCE]);
    let address = server.postgres();
    let open = || Session::open(address, KEY, "1").unwrap();
    open().rows("SELECT 1").unwrap();
    let before = peak_mib(&server);
    // Lengths beyond the limit end the session before anything is read.
    for tag in [b'Q', b'P', b'B', b'd', b'F'] {
        let mut session = open();
        let head = [&[tag][..], &0x3fff_ffff_u32.to_be_bytes()].concat();
        let _ = session.socket.write_all(&[&head[..], &[b'x'; 100_000]].concat());
        let failed = session.answer().unwrap_err();
        assert!(matches!(&*failed.code, "54000" | "gone"), "{failed:?}");
    }
    // Bodies that end too early, or have more than they should.
    let bind = |rest: &[u8]| [&text("")[..], &text(""), rest].concat();
    for (tag, body) in [
        (b'Q', b"SELECT 1".to_vec()),
        (b'P', text("")),
        (b'P', [text(""), text("SELECT $1"), vec![0xff, 0xff, 0, 0]].concat()),
        (b'B', bind(&[0, 0, 0xff, 0xff])),
        (b'B', bind(&[0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff])),
        (b'B', bind(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe])),
        (b'B', bind(&[0, 1, 0, 7, 0, 0, 0, 0])),
        (b'D', b"Zx\0".to_vec()),
        (b'E', text("")),
        (b'?', Vec::new()),
        (b'Q', vec![0xff, 0xfe, 0]),
        (b'p', text("again")),
    ] {
        let mut session = open();
        session.send(tag, &body);
        let failed = session.answer().unwrap_err();
        assert_eq!(failed.code, "08P01", "{} {body:?}", char::from(tag));
    }
    // What a session may hold.
    let mut session = open();
    let mut kept = 0;
    let refused = loop {
        let sql = format!("SELECT '{}'", "x".repeat(20_000));
        session.send(b'P', &[text(&format!("s{kept}")), text(&sql), vec![0, 0]].concat());
        session.send(b'S', &[]);
        match session.answer() {
            Ok(_) => kept += 1,
            Err(failed) => break failed,
        }
        assert!(kept < 5_000);
    };
    assert_eq!(refused.code, "54000", "{}", refused.message);
    assert_eq!(session.rows("DEALLOCATE ALL").unwrap(), Vec::<Vec<String>>::new());
    session.rows("BEGIN").unwrap();
    let refused =
        (0..200).find_map(|n| session.rows(&format!("DECLARE c{n} CURSOR FOR SELECT 1")).err());
    assert_eq!(refused.expect("a refusal").code, "54000");
    session.rows("ROLLBACK").unwrap();
    assert_eq!(session.rows("SELECT 1").unwrap(), [["1"]]);
    // An error within a series of messages is told once, and the series is skipped.
    session.send_prepared("SELECT nothing", 0);
    session.send_prepared("SELECT 2", 0);
    session.send(b'S', &[]);
    assert_eq!(session.answer().unwrap_err().code, "42703");
    assert_eq!(session.prepared("SELECT 3").unwrap(), [["3"]]);
    let more = peak_mib(&server).saturating_sub(before);
    assert!(more < 100, "{more} MiB");
}

#[test]
fn statements_are_cancelled_by_their_session_alone() {
    let server = start(&[("WEIR_QUERY_TIMEOUT", "1h")]);
    send(&server, 400);
    let address = server.postgres();
    let other = server.key(&json!({"label": "x", "scopes": ["query:read"]}));
    let ask = |(process, secret): (i32, i32)| {
        let mut session = Session::connect(address);
        let body: Vec<u8> =
            [16, 80_877_102, process, secret].iter().flat_map(|own| own.to_be_bytes()).collect();
        session.socket.write_all(&body).expect("sent");
        // The server says nothing.
        let mut rest = Vec::new();
        let _ = session.socket.read_to_end(&mut rest);
        assert!(rest.is_empty());
    };
    let mut session = Session::open(address, KEY, "1").unwrap();
    let stranger = Session::open(address, &other, "1").unwrap();
    let own = session.cancel_key;
    let (failed, rows, mut session) = thread::scope(|scope| {
        let running = scope.spawn(move || {
            let failed = session.rows(SLOW).unwrap_err();
            (failed, session.rows("SELECT 1").unwrap(), session)
        });
        thread::sleep(Duration::from_millis(300));
        for (process, secret) in [
            (own.0, own.1.wrapping_add(1)),
            (own.0, stranger.cancel_key.1),
            stranger.cancel_key,
            (0, 0),
        ] {
            ask((process, secret));
        }
        thread::sleep(Duration::from_millis(300));
        assert!(!running.is_finished());
        ask(own);
        running.join().unwrap()
    });
    // A time-out has the same code.
    let told = (&*failed.code, &*failed.message);
    assert_eq!(told, ("57014", "canceling statement due to user request"));
    assert_eq!(rows, [["1"]]);
    // A request that comes between two statements cancels none.
    ask(own);
    assert_eq!(session.rows("SELECT 2").unwrap(), [["2"]]);
}

/// Goal: a query ends with its client, whatever the client does instead of reading.
#[test]
fn queries_of_clients_that_are_gone_end() {
    let settings =
        [("WEIR_BODY_TIMEOUT", "1s"), ("WEIR_QUERIES_MAX", "2"), ("WEIR_QUERY_TIMEOUT", "1h")];
    let server = start(&settings);
    send(&server, 500);
    let address = server.postgres();
    let wide = "SELECT a.properties, b.properties FROM events a CROSS JOIN events b";
    let is_free = || {
        let mut session = Session::open(address, KEY, "1").unwrap();
        session.rows("SELECT count(*) FROM events").ok()
    };
    for what in ["closes", "does not read", "does not read a copy", "sends more"] {
        let mut session = Session::open(address, KEY, "1").unwrap();
        match what {
            "closes" => {
                session.send_query(SLOW);
                thread::sleep(Duration::from_millis(200));
                drop(session);
            }
            "does not read" | "does not read a copy" => {
                let copy = format!("COPY ({wide}) TO STDOUT");
                session.send_query(if what.ends_with("copy") { &copy } else { wide });
                // The server gives up once the buffers of the system are full.
                let is_idle = || (server.metric("weir_postgres_connections") == 0).then_some(());
                within(Duration::from_secs(40), is_idle).expect("a slow client is closed");
            }
            _ => {
                session.send_query(SLOW);
                for _ in 0..2000 {
                    session.send(b'S', &[]);
                }
                drop(session);
            }
        }
        let rows = patiently(is_free).expect("a slot");
        assert_eq!(rows, [["500"]], "{what}");
    }
}

/// Goal: no text reaches the parser but as what it is.
#[test]
fn values_are_never_sql() {
    let server = start(&[]);
    send(&server, 30);
    let mut session = Session::open(server.postgres(), KEY, "1").unwrap();
    let mut rows = |sql: &str, value: &str| {
        session.send(b'P', &[text(""), text(sql), vec![0, 0]].concat());
        let length = u32::try_from(value.len()).unwrap().to_be_bytes();
        let bind =
            [&text("")[..], &text(""), &[0, 0, 0, 1], &length, value.as_bytes(), &[0, 0]].concat();
        session.send(b'B', &bind);
        session.send(b'E', &[text(""), vec![0; 4]].concat());
        session.send(b'S', &[]);
        let answer = session.answer().unwrap_or_else(|error| panic!("{sql} {value}: {error:?}"));
        answer.rows
    };
    for value in ["x' OR '1'='1", "'; SELECT 1; --", "\\' OR 1=1 --", "$1", "é", ""] {
        assert_eq!(rows("SELECT $1", value), [[value]]);
        let sql = "SELECT count(*) FROM events WHERE event = $1 OR distinct_id = $1";
        assert_eq!(rows(sql, value), [["0"]], "{value}");
    }
}

/// Goal: no bytes of a client make the server panic, hang or take much memory. Method: a series of right messages, of which
/// bytes are changed, left out and repeated at random; then the server still answers.
#[test]
fn changed_messages_end_in_an_error_or_an_answer() {
    const SESSIONS: u64 = 400;
    let server = start(&[FREED_AT_ONCE]);
    send(&server, 30);
    let address = server.postgres();
    let before = peak_mib(&server);
    let message = |tag: u8, parts: &[&[u8]]| -> Vec<u8> {
        let body = parts.concat();
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[tag][..], &length, &body].concat()
    };
    // A list of two numbers in binary form, and a series that prepares, binds, describes and reads in two parts.
    let list: Vec<u8> =
        [1, 0, 23, 2, 1, 4, 5, 4, 6].iter().flat_map(|own: &u32| own.to_be_bytes()).collect();
    let length = u32::try_from(list.len()).unwrap().to_be_bytes();
    let sql = text("SELECT event, timestamp, properties FROM events WHERE 5 = ANY($1) LIMIT 9");
    let name = text("s");
    let right: Vec<Vec<u8>> = vec![
        message(
            b'Q',
            &[&text("BEGIN; DECLARE c CURSOR FOR SELECT event FROM events; FETCH 2 FROM c")],
        ),
        message(b'P', &[&name, &sql, &[0, 1], &1007_u32.to_be_bytes()]),
        message(b'D', &[b"S", &name]),
        message(b'B', &[&name, &name, &[0, 1, 0, 1, 0, 1], &length, &list, &[0, 1, 0, 1]]),
        message(b'D', &[b"P", &name]),
        message(b'E', &[&name, &3_u32.to_be_bytes()]),
        message(b'E', &[&name, &0_u32.to_be_bytes()]),
        message(b'S', &[]),
        message(b'Q', &[&text("COPY (SELECT * FROM events) TO STDOUT (FORMAT binary)")]),
        message(b'C', &[b"S", &name]),
        message(
            b'Q',
            &[&text(
                "COMMIT; SELECT relname FROM pg_catalog.pg_class WHERE relkind = ANY('{r,v}')",
            )],
        ),
    ];
    let mut random = StdRng::seed_from_u64(35);
    for number in 0..SESSIONS {
        let mut session = Session::open(address, KEY, "1").unwrap();
        let mut sent = right.clone();
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..sent.len());
            match random.random_range(0..5) {
                0 => drop(sent.remove(at)),
                1 => sent.insert(at, right[random.random_range(0..right.len())].clone()),
                // Of a body, so that what follows is read as messages.
                2 | 3 if sent[at].len() > 5 => {
                    let byte = random.random_range(5..sent[at].len());
                    sent[at][byte] = random.random();
                }
                _ => {
                    let byte = random.random_range(0..sent[at].len());
                    sent[at][byte] = random.random();
                }
            }
        }
        let _ = session.socket.write_all(&sent.concat());
        let _ = session.socket.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        let ended = session.socket.read_to_end(&mut rest);
        let is_over = ended
            .as_ref()
            .map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true);
        assert!(is_over, "session {number}: {ended:?}");
        if number % 50 == 0 {
            assert_eq!(
                Session::open(address, KEY, "1").unwrap().rows("SELECT 1").unwrap(),
                [["1"]]
            );
        }
    }
    let more = peak_mib(&server).saturating_sub(before);
    assert!(more < 200, "{more} MiB");
    assert!(!server.stderr().contains("panicked"), "{}", server.stderr());
}

/// Goal: what a client nests costs no stack. Method: lists in binary form that say that their items are lists.
#[test]
fn lists_of_lists_are_refused() {
    let server = start(&[]);
    let address = server.postgres();
    let mut list: Vec<u8> = vec![0; 12];
    // As deep as a message is long.
    let mut heads: Vec<Vec<u8>> = Vec::new();
    let mut length = u32::try_from(list.len()).unwrap();
    while length < 900_000 {
        heads.push([1, 0, 1009, 1, 1, length].iter().flat_map(|own| own.to_be_bytes()).collect());
        length += 24;
    }
    let inner = std::mem::take(&mut list);
    list = heads.into_iter().rev().chain([inner]).flatten().collect();
    let mut session = Session::open(address, KEY, "1").unwrap();
    let length = u32::try_from(list.len()).unwrap().to_be_bytes();
    session.send(
        b'P',
        &[&text("")[..], &text("SELECT $1"), &[0, 1], &1009_u32.to_be_bytes()].concat(),
    );
    let bind = [&text("")[..], &text(""), &[0, 1, 0, 1, 0, 1], &length, &list, &[0, 0]].concat();
    session.send(b'B', &bind);
    session.send(b'S', &[]);
    assert_eq!(session.answer().unwrap_err().code, "0A000");
    assert_eq!(session.rows("SELECT 1").unwrap(), [["1"]]);
}

/// Goal: a cursor that failed has no rows, however often it is read.
#[test]
fn a_cursor_that_failed_does_not_begin_again() {
    let server = start(&[]);
    send(&server, 30);
    let mut session = Session::open(server.postgres(), KEY, "1").unwrap();
    let sql = "SELECT CAST(CASE WHEN value > 20000 THEN 'x' ELSE '1' END AS INT) AS n FROM generate_series(1, 30000)";
    session.rows(&format!("DECLARE c CURSOR WITH HOLD FOR {sql}")).unwrap();
    let mut rows = 0;
    let failed = loop {
        match session.rows("FETCH 1000 FROM c") {
            Ok(more) if more.is_empty() => panic!("{rows} rows"),
            Ok(more) => rows += more.len(),
            Err(failed) => break failed,
        }
    };
    assert!(rows <= 20_000, "{rows}: {failed:?}");
    for _ in 0..2 {
        assert_eq!(session.rows("FETCH 1000 FROM c").unwrap(), Vec::<Vec<String>>::new());
    }
}
