//! Change of the user, after the work that needs root.

use nix::unistd::{User, chown, getuid, setgid, setuid};
use std::fmt;
use std::path::Path;

/// Reason why the process cannot change its user.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrivilegesError {
    /// The user does not exist.
    UnknownUser {
        /// The name.
        name: String,
    },
    /// The system refuses a step.
    Step {
        /// The step.
        step: &'static str,
        /// The name.
        name: String,
        /// Error of the system.
        source: nix::Error,
    },
    /// The process could become root again.
    Kept,
}

impl fmt::Display for PrivilegesError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownUser { name } => write!(formatter, "no such user: {name}"),
            Self::Step { step, name, source } => {
                write!(formatter, "cannot {step} of {name}: {source}")
            }
            Self::Kept => formatter.write_str("the rights of root could not be given up for good"),
        }
    }
}

impl std::error::Error for PrivilegesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Step { source, .. } => Some(source),
            Self::UnknownUser { .. } | Self::Kept => None,
        }
    }
}

/// Changes the user to `name` permanently, and makes `sockets` theirs.
///
/// Shape: does nothing and returns false if the process is not root, as memcached does. It is
/// called before threads start, as each keeps its rights.
///
/// # Errors
/// [`PrivilegesError`]; the process may have lost some rights and must end.
pub(crate) fn become_user(name: &str, sockets: &[&Path]) -> Result<bool, PrivilegesError> {
    if !getuid().is_root() {
        return Ok(false);
    }
    let failed = |step: &'static str| {
        move |source| PrivilegesError::Step {
            step,
            name: name.to_owned(),
            source,
        }
    };
    let user = user(name)?;
    for socket in sockets {
        chown(*socket, Some(user.uid), Some(user.gid)).map_err(failed("make a socket that"))?;
    }
    // Groups first: another user cannot drop them any more.
    give_up_groups(&user).map_err(failed("take the groups"))?;
    setgid(user.gid).map_err(failed("take the group"))?;
    setuid(user.uid).map_err(failed("take the identity"))?;
    if !user.uid.is_root() && setuid(0.into()).is_ok() {
        return Err(PrivilegesError::Kept);
    }
    Ok(true)
}

/// The system's entry of a user.
///
/// # Errors
/// [`PrivilegesError`].
pub(crate) fn user(name: &str) -> Result<User, PrivilegesError> {
    let found = User::from_name(name).map_err(|source| PrivilegesError::Step {
        step: "find the number",
        name: name.to_owned(),
        source,
    })?;
    found.ok_or_else(|| PrivilegesError::UnknownUser {
        name: name.to_owned(),
    })
}

#[cfg(not(target_vendor = "apple"))]
fn give_up_groups(user: &User) -> nix::Result<()> {
    nix::unistd::setgroups(&[user.gid])
}

/// The system keeps groups per user, not per process.
#[cfg(target_vendor = "apple")]
fn give_up_groups(_: &User) -> nix::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_is_named() {
        let outcome = become_user("no-such-user-here", &[]);
        if getuid().is_root() {
            let error = outcome.unwrap_err();
            assert_eq!(error.to_string(), "no such user: no-such-user-here");
        } else {
            assert_eq!(outcome, Ok(false), "only root can become somebody else");
        }
    }
}
