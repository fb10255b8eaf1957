//! The header in the repository is the one that the crate makes.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_header_is_that_of_the_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(root, config)
        .unwrap()
        .write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let place = root.join("include/dwell.h");
    if env::var_os("DWELL_WRITE_HEADER").is_some() {
        fs::write(&place, &made).unwrap();
    }
    let kept = fs::read_to_string(&place).unwrap_or_default();
    assert!(
        kept == made,
        "include/dwell.h is not what the crate makes: write it by `make header`"
    );
}
