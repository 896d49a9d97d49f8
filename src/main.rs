//! Arguments to exit code; nothing else.

fn main() -> std::process::ExitCode {
    kavka::cli::run(std::env::args_os().skip(1))
}
