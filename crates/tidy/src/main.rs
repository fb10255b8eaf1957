//! Prints the structure of one crate: `cargo run -p dwell-tidy -- crates/edge`.
#![forbid(unsafe_code)]

use dwell_tidy::types::{FIELDS_MAX, FILES_MAX};
use dwell_tidy::{Sources, comments, imports, rings, types};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        let _ = writeln!(io::stderr(), "usage: dwell-tidy FOLDER-OF-A-CRATE");
        return ExitCode::from(2);
    };
    match Sources::read(&Path::new(&folder).join("src")) {
        Ok(sources) => match print(&sources) {
            Ok(()) => ExitCode::SUCCESS,
            // A reader that has closed its end has read enough.
            Err(_) => ExitCode::FAILURE,
        },
        Err(message) => {
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::FAILURE
        }
    }
}

fn print(sources: &Sources) -> io::Result<()> {
    let out = &mut io::stdout().lock();
    let arrows = imports::imports(sources);
    writeln!(
        out,
        "{} files, {} imports",
        sources.files.len(),
        arrows.len()
    )?;
    writeln!(out, "\nimports between rooms:")?;
    for ((from, to), count) in imports::between_rooms(sources, &arrows) {
        writeln!(out, "  {from} -> {to}: {count}")?;
    }
    writeln!(out, "\nrings of files:")?;
    for ring in rings::rings(sources.files.len(), &arrows) {
        let names: Vec<&str> = ring
            .iter()
            .map(|file| &*sources.files[*file].path)
            .collect();
        writeln!(out, "  {}: {}", names.len(), names.join(" "))?;
    }
    writeln!(
        out,
        "\ntypes with more than {FIELDS_MAX} fields, or methods in more than {FILES_MAX} files:"
    )?;
    for (name, measured) in types::measure(sources) {
        if !measured.is_small() {
            writeln!(
                out,
                "  {name}: {} fields, {} files",
                measured.fields,
                measured.files.len()
            )?;
        }
    }
    let banned = comments::banned(sources);
    writeln!(
        out,
        "\ndoc comments by a banned first word: {}",
        banned.len()
    )
}
