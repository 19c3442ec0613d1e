//! The `vramlab` command. See `vramlab --help`.

fn main() -> std::process::ExitCode {
    vramlab::cli::main()
}
