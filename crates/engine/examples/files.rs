//! Serves the files of a directory, with lists of what is in it.
//!
//! `cargo run --release -p dwell-engine --example files -- . 127.0.0.1:8000`

use dwell_engine::files::{DirectoryOptions, serve_dir};
use dwell_engine::{App, HttpDriver, Limits, Outcome, Reply, Request};
use dwell_evloop::{Context, EventLoop};
use std::error::Error;
use std::path::PathBuf;

struct Files {
    root: PathBuf,
    options: DirectoryOptions,
}

impl App for Files {
    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        serve_dir(request.head, &self.root, &self.options, context.wall()).send(reply, &[]);
        Outcome::Answered
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().unwrap_or_else(|| ".".into());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8000".into());
    let mut options = DirectoryOptions::default();
    options.listing = true;
    options.file.precompressed = true;
    let mut event_loop = EventLoop::new()?;
    let files = Files {
        root: root.into(),
        options,
    };
    let mut driver = HttpDriver::new(Limits::default(), files);
    driver.listen(event_loop.context(), address.parse()?)?;
    event_loop.run(&mut driver)?;
    Ok(())
}
