//! Leases that are read at once.

use super::*;
use crate::leases::{Holder, Lease};

#[tokio::test]
async fn leases_are_found_by_their_names() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let name = |number: u16| format!("shard/{number:04} s3://bucket/it's");
    let holder = |number: u16| Holder {
        name: format!("n{number}"),
        url: format!("http://{number}"),
        secret: format!("n{number}.secret"),
    };
    for number in [2, 0, 7] {
        let taken = metadata.take_lease(&name(number), &holder(number), None).await;
        assert!(taken.expect("a row"));
    }
    assert!(metadata.renew_lease(&name(2), "n2", true).await.expect("a row"));
    assert!(metadata.renew_lease(&name(7), "n7", true).await.expect("a row"));
    assert!(!metadata.renew_lease(&name(7), "n2", true).await.expect("a row"));
    // Taken by a server of a version that knows of no URLs.
    bench.run("UPDATE leases SET holder = 'older' WHERE holder = 'n7'").await;
    let lease = |holder: &str, beat, url: &str, secret: &str, is_open| Lease {
        holder: holder.to_owned(),
        beat,
        url: url.to_owned(),
        secret: secret.to_owned(),
        is_open,
    };
    let read = async |numbers: &[u16]| {
        let names: Vec<String> = numbers.iter().map(|number| name(*number)).collect();
        metadata.leases(&names).await.expect("leases")
    };
    let expected = [
        (name(0), lease("n0", 1, "http://0", "n0.secret", false)),
        (name(2), lease("n2", 2, "http://2", "n2.secret", true)),
        (name(7), lease("older", 2, "", "", false)),
    ];
    let all: Vec<u16> = (0..256).rev().collect();
    assert_eq!(read(&all).await, expected);
    assert_eq!(read(&[2, 1, 2]).await, expected[1..2]);
    assert_eq!(read(&[1]).await, []);
    assert_eq!(read(&[]).await, []);
    for (name, lease) in expected {
        assert_eq!(metadata.lease(&name).await.expect("a row"), Some(lease));
    }
}
