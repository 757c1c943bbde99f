//! A DynamoDB API on a loopback port, for tests: `dueline-engine-dynoxide [PORT]`.
//!
//! Without a port it uses a free one. It keeps all data in memory and ends when its standard input closes, so that no
//! test leaves it running, however that test ended.

use std::{
    error::Error,
    io::{Read as _, Write as _},
    net::Ipv4Addr,
    process::ExitCode,
};

use dynoxide::{Database, server::serve_on};
use tokio::{net::TcpListener, runtime::Runtime};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dueline-engine-dynoxide: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let port = match std::env::args().nth(1) {
        Some(port) => port
            .parse::<u16>()
            .map_err(|error| format!("{port} is not a port: {error}"))?,
        None => 0,
    };
    let runtime = Runtime::new()?;
    let database = Database::memory()?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, port)))?;
    println!("listening on http://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    runtime.spawn(serve_on(listener, database));

    // Nothing is written to this input: a read returns when its other end is closed.
    let mut input = std::io::stdin().lock();
    let mut bytes = [0; 64];
    while matches!(input.read(&mut bytes), Ok(count) if count > 0) {}
    // Requests in progress have no client any more.
    runtime.shutdown_background();
    Ok(())
}
