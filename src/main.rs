//! The `weir` command: sets the allocator up, runs `cli::run` and turns an error into an exit code.
//! Nothing else.

use std::io::Write;
use std::process::ExitCode;

use weir::cli;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Options of the allocator; `_RJEM_MALLOC_CONF` of the environment goes before. Its own thread gives
/// freed memory back, also when nothing is asked of the server any more. No huge pages: they are
/// cleared as a whole each time a few of their bytes are used again.
#[expect(unsafe_code, reason = "the allocator looks for its options under this name")]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static ALLOCATOR_OPTIONS: &[u8] = b"background_thread:true,thp:never\0";

fn main() -> ExitCode {
    match cli::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is gone there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "weir: {}", cli::explain(&error));
            ExitCode::FAILURE
        }
    }
}
