//! The `ais-replay` binary: everything it does is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(ais_replay::cli::run(std::env::args_os()) as u8)
}
