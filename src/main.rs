//! The `weir` command: runs `cli::run` and turns an error into an exit code. Nothing else.

use std::io::Write;
use std::process::ExitCode;

use weir::cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is gone there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "weir: {error:#}");
            ExitCode::FAILURE
        }
    }
}
