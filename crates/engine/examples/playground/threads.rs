//! The same routes in the plain shape: one thread a connection, which waits for everything.

use crate::{FILE, HTML, echo, page, runtime};
use dwell_engine::sse;
use dwell_proto::http1::{
    BodyFraming, FieldStorage, HeadLimits, RequestHead, Version, encode, head_end, parse_request,
};
use dwell_proto::websocket::UpgradeRequest;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
static REQUESTS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn serve(listen: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    for socket in listener.incoming() {
        let socket = socket?;
        thread::Builder::new().spawn(move || {
            CONNECTIONS.fetch_add(1, Ordering::Relaxed);
            // It ends with its client, in whatever way.
            let _ = converse(socket);
            CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
        })?;
    }
    Ok(())
}

/// Whether the connection goes on.
#[derive(PartialEq)]
enum After {
    Next,
    End,
}

fn converse(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let limits = HeadLimits::default();
    let (mut input, mut scanned) = (Vec::new(), 0);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        while let Some(end) = head_end(&input, &mut scanned) {
            scanned = 0;
            let rest = input.split_off(end);
            let bytes = std::mem::replace(&mut input, rest);
            let mut storage = FieldStorage::new();
            let head = parse_request(&bytes, &mut storage, &limits).map_err(io::Error::other)?;
            REQUESTS.fetch_add(1, Ordering::Relaxed);
            let early = std::mem::take(&mut input);
            if respond(&mut socket, &head, &early)? == After::End {
                return Ok(());
            }
            input = early;
        }
        match socket.read(&mut buffer)? {
            0 => return Ok(()),
            read => input.extend_from_slice(&buffer[..read]),
        }
        if input.len() > limits.head_bytes_max {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

fn respond(socket: &mut TcpStream, head: &RequestHead<'_, '_>, early: &[u8]) -> io::Result<After> {
    if !matches!(head.framing, BodyFraming::None | BodyFraming::Length(0)) {
        answer(socket, 413, "text/plain", b"no route here takes a body\n")?;
        return Ok(After::End);
    }
    match head.path {
        "/" => {
            let page = page("std: one thread a connection");
            answer(socket, 200, HTML, page.as_bytes())?;
        }
        "/ws" | "/ws-frames" | "/ws-thread" => {
            web_socket(socket, head, early)?;
            return Ok(After::End);
        }
        "/sse" => {
            events(socket)?;
            return Ok(After::End);
        }
        "/file" => answer(socket, 200, HTML, &std::fs::read(FILE)?)?,
        "/-/runtime" => {
            let connections = CONNECTIONS.load(Ordering::Relaxed);
            let figures = runtime::of_threads(connections, REQUESTS.load(Ordering::Relaxed));
            answer(socket, 200, "text/plain; charset=utf-8", figures.as_bytes())?;
        }
        _ => answer(
            socket,
            404,
            "text/plain",
            b"not found; / lists what there is\n",
        )?,
    }
    Ok(if head.keep_alive {
        After::Next
    } else {
        After::End
    })
}

fn answer(socket: &mut TcpStream, status: u16, kind: &str, body: &[u8]) -> io::Result<()> {
    let mut output = Vec::new();
    encode::status_line(&mut output, Version::Http11, status);
    encode::field(&mut output, "Content-Type", kind.as_bytes());
    encode::field_u64(&mut output, "Content-Length", body.len() as u64);
    encode::end_of_head(&mut output);
    output.extend_from_slice(body);
    socket.write_all(&output)
}

fn web_socket(socket: &mut TcpStream, head: &RequestHead<'_, '_>, early: &[u8]) -> io::Result<()> {
    let Ok(request) = UpgradeRequest::check(head) else {
        return answer(socket, 400, "text/plain", b"no WebSocket handshake\n");
    };
    let mut output = Vec::new();
    encode::status_line(&mut output, Version::Http11, 101);
    request.accept().encode_fields(&mut output);
    encode::end_of_head(&mut output);
    socket.write_all(&output)?;
    echo::run(socket, early.to_vec())
}

fn events(socket: &mut TcpStream) -> io::Result<()> {
    let mut output = Vec::new();
    encode::status_line(&mut output, Version::Http11, 200);
    encode::field(&mut output, "Content-Type", sse::CONTENT_TYPE.as_bytes());
    encode::field(&mut output, "Connection", b"close");
    encode::end_of_head(&mut output);
    socket.write_all(&output)?;
    for number in 1.. {
        thread::sleep(Duration::from_secs(1));
        socket.write_all(&crate::dwell::event(number)?)?;
    }
    Ok(())
}
