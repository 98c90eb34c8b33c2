//! The `weir` binary: sets up the allocator, runs `cli::run` and turns an error into an exit code.

use std::io::Write;
use std::process::ExitCode;

use weir::cli;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Options of jemalloc; the environment variable `_RJEM_MALLOC_CONF` overrides them. A background thread
/// returns freed memory to the system even while the server is idle. No transparent huge pages: the kernel
/// clears a whole one each time a few of its bytes are used again.
#[expect(unsafe_code, reason = "the allocator looks for its options under this name")]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static ALLOCATOR_OPTIONS: &[u8] = b"background_thread:true,thp:never\0";

/// With the commit, as the build script has found it.
const VERSION: &str = env!("WEIR_VERSION");

fn main() -> ExitCode {
    match cli::run(std::env::args_os(), VERSION) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed, the message cannot be shown.
            let _ = writeln!(std::io::stderr(), "weir: {}", cli::failure::explain(&error));
            ExitCode::FAILURE
        }
    }
}
