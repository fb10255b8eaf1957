//! The environment variables of the process, as flags.

use dwell_edge::config::{
    ConfigError, EnvironmentOptions, FlagValue, SourceFile, environment_options,
};
use std::env;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The options that the environment sets.
pub(crate) fn options() -> EnvironmentOptions {
    let variables = env::vars_os().map(|(name, value)| {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        (text(name), text(value))
    });
    environment_options(variables)
}

/// The file of the flag, else the one that `DWELL_CONFIG` names.
pub(crate) fn config_file(flag: Option<PathBuf>) -> Option<PathBuf> {
    flag.or_else(|| {
        let file = env::var_os("DWELL_CONFIG")?;
        (!file.is_empty()).then(|| PathBuf::from(file))
    })
}

/// Reads the file; `-` is the standard input.
///
/// # Errors
/// [`ConfigError`], if it cannot be read.
pub(crate) fn source(file: Option<&Path>) -> Result<Option<SourceFile>, ConfigError> {
    let read = |path: &Path| {
        if path != Path::new("-") {
            return SourceFile::read(path);
        }
        SourceFile::read_as("the standard input", || bounded(io::stdin().lock()))
    };
    file.map(read).transpose()
}

/// Reads text up to a bound.
fn bounded(input: impl Read) -> io::Result<String> {
    let mut text = String::new();
    let count = input.take(STDIN_BYTES_MAX + 1).read_to_string(&mut text)?;
    if count as u64 > STDIN_BYTES_MAX {
        return Err(io::Error::other(format!(
            "more than {STDIN_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}

/// Longest configuration from the standard input.
const STDIN_BYTES_MAX: u64 = 1 << 20;

/// The address of the admin listener: that of the flag, else the one that the environment gives
/// the server, else the default. `None` if that is `off`.
pub(crate) fn admin(flag: Option<String>) -> Option<String> {
    let is_admin = |set: &FlagValue| set.option == "server.admin";
    let address = flag.or_else(|| {
        let set = options().flags.into_iter().find(is_admin)?;
        set.values.into_iter().next_back()
    });
    let address = address.unwrap_or_else(|| "127.0.0.1:9090".to_owned());
    (address != "off").then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_input_has_a_bound() {
        let most = vec![b'#'; STDIN_BYTES_MAX as usize];
        assert!(bounded(&most[..]).is_ok());
        let error = bounded(io::repeat(b'#')).expect_err("it is too long");
        assert_eq!(error.to_string(), "more than 1048576 bytes");
    }
}
