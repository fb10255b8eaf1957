//! The demonstration: clients that wait for a key, a page that sets it, and their servers.
//!
//! Each transport has a server and a process of clients of its own, so that memory and processor
//! time are those of one transport. The process with the page starts the others (`part`).

mod crowd;
mod director;
mod gate;
mod lane;
mod measure;
mod once;
mod page;
mod part;
mod room;
mod show;
mod transport;
mod wave;

use dwell_edge::MakePages;
use dwell_edge::config::FlagValue;
pub(crate) use part::PartName;
use room::Room;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use transport::Transport;

/// The clients of one transport.
pub(crate) use room::CLIENTS_DEFAULT;

/// Makes the pages, and starts the thread that has so many clients of each transport started. With
/// `is_remote` other machines may use the pages, under any name.
///
/// # Errors
/// When the system has no thread left.
pub(crate) fn pages(clients: usize, is_remote: bool) -> io::Result<Arc<dyn MakePages>> {
    let orders = match clients {
        0 => None,
        clients => Some(director::start(clients)?),
    };
    Ok(Arc::new(page::Maker { orders, is_remote }))
}

/// Runs `dwell demo --once`. Returns the text to print, and false if a client was not answered.
///
/// # Errors
/// The reason why the demonstration could not be run.
pub(crate) fn run_once(clients: usize, is_json: bool) -> Result<(String, bool), String> {
    let granted = Room::measure().grant(clients);
    if granted.clients == 0 {
        let limit = granted.limit.unwrap_or_else(|| "none is wanted".to_owned());
        return Err(format!("no clients can be started: {limit}"));
    }
    let run = once::run(granted).map_err(|fault| fault.to_string())?;
    let text = if is_json {
        format!("{}\n", run.document)
    } else {
        once::table(&run.document)
    };
    Ok((text, run.is_complete))
}

/// Runs the clients of one transport, in a process that the demonstration has started.
///
/// # Errors
/// The reason why they could not go on.
pub(crate) fn run_clients(transport: Transport, server: SocketAddr) -> Result<(), String> {
    crowd::run(transport, server)
}

/// Ends the process, a server that the demonstration has started, when its parent ends.
///
/// # Errors
/// When the system has no thread left.
pub(crate) fn end_with_parent() -> io::Result<()> {
    part::obey_parent(|_| {})
}

/// Options of the page's own server, which has few clients, and gives the terminal its prompt back
/// soon after a signal.
pub(crate) fn page_flags() -> Vec<FlagValue> {
    flags("dwell demo", &PAGE_OPTIONS)
}

/// The options of a server of the demonstration: the defaults, but for a single loop, and ports of
/// the system's choice, or `listen` for its clients.
pub(crate) fn server_flags(listen: Option<SocketAddr>) -> Vec<FlagValue> {
    let listen = listen.map_or_else(|| "127.0.0.1:0".to_owned(), |address| address.to_string());
    let listen = flags("--part", &[("server.listen", &listen)]);
    [listen, flags("--part", &SERVER_OPTIONS)].concat()
}

fn flags(flag: &str, options: &[(&str, &str)]) -> Vec<FlagValue> {
    let options = options.iter().map(|(option, value)| FlagValue {
        flag: flag.to_owned(),
        option: (*option).to_owned(),
        values: vec![(*value).to_owned()],
    });
    options.collect()
}

const PAGE_OPTIONS: [(&str, &str); 2] = [
    ("limits.connections_max", "1000"),
    ("limits.drain_timeout", "500ms"),
];

const SERVER_OPTIONS: [(&str, &str); 5] = [
    ("server.admin", "off"),
    ("server.pollers", "1"),
    ("store.listen", "127.0.0.1:0"),
    ("store.connections_max", "16"),
    ("log.format", "json"),
];
