//! Servers that do not answer properly.

use crate::Failure;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Serves until standard input ends; prints the address first.
pub fn serve(kind: &str) -> Result<(), Failure> {
    let drips = match kind {
        "drip" => true,
        "hole" => false,
        _ => return Err(format!("unknown fault: {kind}").into()),
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || drop(answer(stream, drips)));
        }
    });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Answers a `get` with a byte every 150 ms, or not at all; `version` at once, as some clients ask
/// it before anything else.
fn answer(mut stream: TcpStream, drips: bool) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        if buffer.starts_with(b"version") {
            stream.write_all(b"VERSION 1.6.18\r\n")?;
        } else if drips {
            for byte in b"VALUE key 0 20\r\nxxxxxxxxxxxxxxxxxxxx\r\nEND\r\n" {
                stream.write_all(&[*byte])?;
                std::thread::sleep(Duration::from_millis(150));
            }
        }
    }
}
