//! A list of IP networks (CIDR) as a setting: `127.0.0.0/8,::1`.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use ipnetwork::{IpNetwork, IpNetworkError};

/// Networks of addresses. A cheap handle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Arc<[IpNetwork]>);

impl Networks {
    /// Whether one of the networks contains `address`. An IPv4-mapped IPv6 address (`::ffff:1.2.3.4`) is
    /// in no IPv4 network: unwrap it first.
    pub fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

impl FromStr for Networks {
    type Err = IpNetworkError;

    /// Parses networks (`10.0.0.0/8`) and addresses, separated by commas. `none` and the empty text
    /// give no network.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let parts = parts.filter(|part| *part != "none");
        Ok(Self(parts.map(str::parse).collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::Networks;

    #[test]
    fn lists_of_networks_are_read() {
        for (list, inside, outside) in [
            ("127.0.0.0/8,::1", &["127.0.0.1", "127.9.9.9", "::1"][..], &["128.0.0.1", "::2"][..]),
            (" 10.0.0.0/8 , 192.0.2.7 ", &["10.1.2.3", "192.0.2.7"], &["192.0.2.8", "::1"]),
            ("2001:db8::/32", &["2001:db8:1::1"], &["2001:db9::1", "32.1.13.184"]),
            ("0.0.0.0/0", &["203.0.113.7"], &["::1"]),
            ("none", &[], &["127.0.0.1", "::1"]),
            ("", &[], &["127.0.0.1", "::1"]),
        ] {
            let networks: Networks = list.parse().unwrap();
            for (addresses, expected) in [(inside, true), (outside, false)] {
                for address in addresses {
                    assert_eq!(networks.contain(address.parse().unwrap()), expected, "{address}");
                }
            }
        }
        for list in ["10.0.0.0/33", "localhost", "10.0.0.0/8;::1", "all"] {
            assert!(list.parse::<Networks>().is_err(), "{list}");
        }
    }
}
