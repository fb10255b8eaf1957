//! Names the shared library: programs that were linked with one look for the same name.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // Before 1.0 a new minor version may change the interface.
    let part = |name: &str| env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    let compatible = match (part("MAJOR"), part("MINOR")) {
        (major, minor) if major == "0" => format!("0.{minor}"),
        (major, _) => major,
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdwell.so.{compatible}");
}
