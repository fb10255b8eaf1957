//! The environment variables of the process, as flags.

use dwell_edge::config::{EnvironmentOptions, FlagValue, environment_options};
use std::env;
use std::path::PathBuf;

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
