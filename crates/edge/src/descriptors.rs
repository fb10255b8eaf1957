//! How many connections the process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open descriptors to the hard one.
///
/// Shape: the soft limit protects programs that use `select`; this one does not. Returns the limit
/// in force, `None` where there is none; a system that refuses leaves it as it was.
pub(crate) fn raise_limit() -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current == limits.maximum {
        return limits.current;
    }
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limits.maximum,
        Err(_) => limits.current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise_limit();
        let limits = getrlimit(Resource::Nofile);
        assert_eq!(limits.current, limits.maximum);
        assert_eq!(raised, limits.current);
    }
}
