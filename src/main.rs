//! The `weir` command: sets the allocator up, runs `cli::run` and turns an error into an exit code.
//! Nothing else.

use std::ffi::c_int;
use std::ffi::c_long;
use std::io::Write;
use std::process::ExitCode;

use libmimalloc_sys::mi_option_get;
use libmimalloc_sys::mi_option_set;
use weir::cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of the option `purge_delay` in `mi_option_e` of mimalloc 3, and its default there.
const PURGE_DELAY: (c_int, c_long) = (15, 1000);

/// Milliseconds after which freed memory goes back to the system. Two flushes are about a second apart
/// under full load, and the second uses the pages of the first again; ten seconds cost a quarter more
/// memory then, which is more than a server should take by itself.
const PURGE_DELAY_MILLIS: c_long = 3000;

fn main() -> ExitCode {
    keep_freed_memory();
    match cli::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is gone there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "weir: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Sets [`PURGE_DELAY_MILLIS`], unless `MIMALLOC_PURGE_DELAY` of the environment has set another
/// delay, or the number is that of another option by now.
#[expect(unsafe_code, reason = "two functions of the allocator, for which no crate has safe ones")]
fn keep_freed_memory() {
    let (option, default) = PURGE_DELAY;
    // SAFETY: both take any number, and nothing else runs yet.
    unsafe {
        if mi_option_get(option) == default {
            mi_option_set(option, PURGE_DELAY_MILLIS);
        }
    }
}
