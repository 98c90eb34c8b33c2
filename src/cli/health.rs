//! `weir health`: checks whether a server is alive, for supervisors that can only run a command, as those of
//! containers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};

/// Longest time to connect, and for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Request that every live server answers, also one that is on standby or replays its log.
const REQUEST: &[u8] = b"GET /_liveness HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

const ALIVE: &[u8] = b"HTTP/1.1 200 ";

/// Options of `weir health`.
#[derive(Clone, Debug, clap::Args)]
pub struct HealthArgs {
    /// Address and port that the server listens on
    #[arg(long, env = "WEIR_LISTEN", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
}

/// Sends the request, and returns if the server is alive.
///
/// # Errors
///
/// There is no response, or an error.
pub fn run(args: &HealthArgs) -> anyhow::Result<()> {
    let told = ask(args.listen).with_context(|| format!("no answer from {}", args.listen))?;
    let first = String::from_utf8_lossy(&told);
    ensure!(told == ALIVE, "{} does not answer as a server that lives, but {first}", args.listen);
    Ok(())
}

/// The first bytes of the response. For the address of all interfaces, the kernel connects to this machine.
fn ask(listen: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut server = TcpStream::connect_timeout(&listen, PATIENCE)?;
    server.set_read_timeout(Some(PATIENCE))?;
    server.write_all(REQUEST)?;
    let mut told = vec![0; ALIVE.len()];
    server.read_exact(&mut told)?;
    Ok(told)
}
