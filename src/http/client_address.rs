//! Client IP address of a request: the TCP peer, or, if that is a trusted proxy, the client that it
//! names.
//!
//! Every proxy appends the address of its own peer to the list. The list is therefore read from its
//! end, past the trusted proxies, to the first untrusted address. Everything before that is a claim
//! of the client, which anybody can forge. If none of the proxies is trusted, the result is the
//! address of the last proxy.
//!
//! A proxy's headers about the scheme and the host of the original request are trusted from the same proxies only:
//! [`remove_claims`] removes them from requests of other peers.
//!
//! `X-Forwarded-For` is used first, then `Forwarded` (RFC 7239), then `X-Real-IP`. A proxy that
//! writes one of them passes the others on as the client sent them, and nearly all write the first.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::{FORWARDED, HeaderName};

use weir_base::config::networks::Networks;

/// Header in which a proxy passes on the address of its client.
pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The same of other proxies.
pub(super) const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Headers in which a proxy passes on the scheme and the host of the original request.
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Removes the headers about scheme and host that come from a peer that is no trusted proxy, so that no later code
/// trusts them: links in responses, and the choice of cookies for encrypted connections.
pub(super) fn remove_claims(headers: &mut HeaderMap, peer: IpAddr, trusted: &Networks) {
    if !trusted.contain(peer.to_canonical()) {
        headers.remove(X_FORWARDED_PROTO);
        headers.remove(X_FORWARDED_HOST);
    }
}

/// The client address of a request from `peer`. IPv4-mapped IPv6 addresses (`::ffff:1.2.3.4`) become
/// IPv4.
pub(super) fn client_address(headers: &HeaderMap, peer: IpAddr, trusted: &Networks) -> IpAddr {
    let peer = peer.to_canonical();
    if !trusted.contain(peer) {
        return peer;
    }
    // Read as bytes: one character outside ASCII must not make the server ignore the whole list.
    let hops = |name: HeaderName| {
        let lists = headers.get_all(name).iter().rev();
        lists.flat_map(|list| list.as_bytes().rsplit(|byte| *byte == b','))
    };
    if headers.contains_key(X_FORWARDED_FOR) {
        last_stranger(hops(X_FORWARDED_FOR), peer, trusted)
    } else if headers.contains_key(FORWARDED) {
        last_stranger(hops(FORWARDED).map(for_of), peer, trusted)
    } else {
        last_stranger(hops(X_REAL_IP), peer, trusted)
    }
}

/// The client address in the one header that another server sets when it passes a request on.
pub(super) fn named_address(headers: &HeaderMap, peer: IpAddr) -> IpAddr {
    headers.get(X_FORWARDED_FOR).and_then(|named| address(named.as_bytes())).unwrap_or(peer)
}

/// The first untrusted address of `hops`, which start at the nearest proxy; if all are trusted, the
/// farthest. An entry that is not an address (`unknown`) ends the list.
fn last_stranger<'h>(
    hops: impl Iterator<Item = &'h [u8]>,
    peer: IpAddr,
    trusted: &Networks,
) -> IpAddr {
    let mut client = peer;
    for hop in hops {
        let Some(address) = address(hop) else { break };
        client = address;
        if !trusted.contain(client) {
            break;
        }
    }
    client
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:4711`.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().ok();
    let address = address.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address| address.to_canonical())
}

/// The value of `for` in one element of `Forwarded`, such as `for="[2001:db8::1]:4711";proto=http`.
/// Empty, which is not an address, if there is none. Commas and semicolons in quotes are treated as
/// separators; addresses contain neither.
fn for_of(element: &[u8]) -> &[u8] {
    let value = element.split(|byte| *byte == b';').find_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = pair.split_at_checked(at)?;
        name.trim_ascii().eq_ignore_ascii_case(b"for").then_some(value.get(1..)?.trim_ascii())
    });
    let value = value.unwrap_or_default();
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    inner.unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use hyper::HeaderMap;
    use hyper::header::{HeaderName, HeaderValue};

    use super::{client_address, remove_claims};

    /// The address for a request from `peer` with these headers, where 10.0.0.0/8, 2001:db8:f::/48
    /// and the loopback are trusted.
    fn found(peer: &str, sent: &[(&'static str, &str)]) -> String {
        let trusted = "10.0.0.0/8,2001:db8:f::/48,127.0.0.0/8,::1".parse().unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(HeaderName::from_static(name), value);
        }
        client_address(&headers, peer.parse().unwrap(), &trusted).to_string()
    }

    #[test]
    fn x_forwarded_for_is_read_from_its_end_past_trusted_proxies() {
        for (peer, forwarded, expected) in [
            // An untrusted peer's header is ignored.
            ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
            ("2001:db8::9", "198.51.100.1", "2001:db8::9"),
            ("::ffff:203.0.113.9", "198.51.100.1", "203.0.113.9"),
            // A proxy names its client, with or without port.
            ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
            ("127.0.0.1", "203.0.113.7", "203.0.113.7"),
            ("::1", "203.0.113.7", "203.0.113.7"),
            ("::ffff:10.0.0.1", "203.0.113.7", "203.0.113.7"),
            ("10.0.0.1", " 203.0.113.7:4711 ", "203.0.113.7"),
            ("10.0.0.1", "2001:db8::1", "2001:db8::1"),
            ("10.0.0.1", "[2001:db8::1]", "2001:db8::1"),
            ("10.0.0.1", "[2001:db8::1]:443", "2001:db8::1"),
            ("10.0.0.1", "::ffff:203.0.113.7", "203.0.113.7"),
            ("2001:db8:f::1", "203.0.113.7", "203.0.113.7"),
            // A chain of proxies.
            ("10.0.0.1", "203.0.113.7, 10.0.0.3, 10.0.0.2", "203.0.113.7"),
            ("10.0.0.1", "203.0.113.7, 2001:db8:f::2", "203.0.113.7"),
            // Entries before the first untrusted address are claims of the client.
            ("10.0.0.1", "198.51.100.1, 203.0.113.7", "203.0.113.7"),
            ("10.0.0.1", "127.0.0.1, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
            ("10.0.0.1", "10.0.0.9, 198.51.100.1,203.0.113.7,10.0.0.2", "203.0.113.7"),
            // All are trusted: the farthest address.
            ("10.0.0.1", "10.9.9.9", "10.9.9.9"),
            ("10.0.0.1", "10.9.9.9, 10.0.0.2", "10.9.9.9"),
            // Not an address: the last valid one.
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "unknown", "10.0.0.1"),
            ("10.0.0.1", "203.0.113.7, unknown", "10.0.0.1"),
            ("10.0.0.1", "203.0.113.7, _hidden, 10.0.0.2", "10.0.0.2"),
            ("10.0.0.1", "unknown, 203.0.113.7", "203.0.113.7"),
            ("10.0.0.1", "203.0.113.7,", "10.0.0.1"),
            ("10.0.0.1", "256.1.1.1", "10.0.0.1"),
            ("10.0.0.1", "203.0.113.7:99999", "10.0.0.1"),
            ("10.0.0.1", "[203.0.113.7", "10.0.0.1"),
            ("10.0.0.1", "\u{fc}", "10.0.0.1"),
            ("10.0.0.1", "\u{fc}, 203.0.113.7", "203.0.113.7"),
        ] {
            assert_eq!(found(peer, &[("x-forwarded-for", forwarded)]), expected, "{forwarded}");
        }
        assert_eq!(found("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn scheme_and_host_are_told_by_trusted_proxies_alone() {
        let trusted = "10.0.0.0/8,::1".parse().unwrap();
        for (peer, is_trusted) in [
            ("10.0.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("::1", true),
            ("203.0.113.9", false),
            ("127.0.0.1", false),
        ] {
            let names = ["x-forwarded-proto", "x-forwarded-host", "host"];
            let mut headers = HeaderMap::new();
            for name in names.into_iter().chain(["x-forwarded-proto"]) {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static("x"));
            }
            remove_claims(&mut headers, peer.parse().unwrap(), &trusted);
            let left = names.map(|name| headers.contains_key(name));
            assert_eq!(left, [is_trusted, is_trusted, true], "{peer}");
        }
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.7")];
        assert_eq!(found("10.0.0.1", &lines), "203.0.113.7");
        let lines = [("x-forwarded-for", "203.0.113.7"), ("x-forwarded-for", "10.0.0.2")];
        assert_eq!(found("10.0.0.1", &lines), "203.0.113.7");
    }

    #[test]
    fn other_headers_count_if_the_usual_one_is_absent() {
        for (sent, expected) in [
            (&[("forwarded", "for=203.0.113.7")][..], "203.0.113.7"),
            (&[("forwarded", "by=10.0.0.1;For=203.0.113.7:80;proto=http")], "203.0.113.7"),
            (&[("forwarded", "for=\"[2001:db8::1]:4711\"")], "2001:db8::1"),
            (&[("forwarded", "for=198.51.100.1, for=203.0.113.7, for=10.0.0.2")], "203.0.113.7"),
            (&[("forwarded", "for=_secret")], "10.0.0.1"),
            (&[("forwarded", "proto=http")], "10.0.0.1"),
            (&[("x-real-ip", "203.0.113.7")], "203.0.113.7"),
            (&[("x-real-ip", "nobody")], "10.0.0.1"),
            (&[("forwarded", "for=203.0.113.7"), ("x-real-ip", "192.0.2.1")], "203.0.113.7"),
            (&[("x-forwarded-for", "203.0.113.7"), ("forwarded", "for=192.0.2.1")], "203.0.113.7"),
            (&[("x-forwarded-for", "unknown"), ("x-real-ip", "192.0.2.1")], "10.0.0.1"),
        ] {
            assert_eq!(found("10.0.0.1", sent), expected, "{sent:?}");
            assert_eq!(found("203.0.113.9", sent), "203.0.113.9", "{sent:?}");
        }
    }
}
