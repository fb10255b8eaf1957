//! `dwell health`: the health of a running process as an exit status.

use crate::{admin, environment};
use clap::Args;
use serde_json::Value;
use std::time::Duration;

/// Flags of `dwell health`.
#[derive(Clone, Debug, Args)]
pub(crate) struct HealthArguments {
    /// The address of the admin listener [default: `DWELL_SERVER_ADMIN`, or 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Seconds for the response
    #[arg(long, value_name = "SECONDS", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) timeout: u64,
    /// Succeed while the process drains, too: a supervisor that restarts what fails does not end it
    #[arg(long, conflicts_with = "ready")]
    pub(crate) live: bool,
    /// Succeed only if the process can answer requests: that of `/-/ready`, for a balancer
    #[arg(long)]
    pub(crate) ready: bool,
}

/// Asks the process for its health. Returns its JSON.
///
/// # Errors
/// The reason why the check fails.
pub(crate) fn run(arguments: &HealthArguments) -> Result<String, String> {
    let Some(address) = environment::admin(arguments.admin.clone()) else {
        return Err("server.admin is off: name the address in --admin".to_owned());
    };
    let timeout = Duration::from_secs(arguments.timeout);
    let path = if arguments.ready {
        "/-/ready"
    } else {
        "/-/health"
    };
    let answer = admin::get(&address, path, timeout);
    let answer = answer.map_err(|error| format!("{address}: {error}"))?;
    match answer.status {
        200 => Ok(answer.body),
        503 if arguments.live && is_draining(&answer.body) => Ok(answer.body),
        status => Err(format!(
            "{address} returns {status}: {}",
            answer.body.trim_end()
        )),
    }
}

/// True of the JSON of a process that ends once its requests are answered.
fn is_draining(health: &str) -> bool {
    serde_json::from_str::<Value>(health).is_ok_and(|health| health["status"] == "draining")
}
