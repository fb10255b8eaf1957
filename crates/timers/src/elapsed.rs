use std::fmt;

/// The error of a timeout: its time has passed before the future was ready.
///
/// ```
/// # smol::block_on(async {
/// use dwell_timers::{Elapsed, timeout};
/// use std::time::Duration;
///
/// async fn answer() -> Result<u32, Box<dyn std::error::Error>> {
///     Ok(timeout(Duration::ZERO, std::future::pending()).await?)
/// }
/// let error = answer().await.unwrap_err();
/// assert!(error.is::<Elapsed>());
/// assert_eq!(error.to_string(), "deadline has elapsed");
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}
