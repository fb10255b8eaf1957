//! Things that are kept for as long as a stream lives.

use super::Stream;
use std::any::Any;

impl Stream {
    /// Keeps something for as long as the stream lives, wherever that goes: it is dropped with the
    /// socket, or when another takes its place. For counts of open sockets.
    ///
    /// ```
    /// use dwell_evloop::Stream;
    /// use std::os::unix::net::UnixStream;
    /// use std::sync::Arc;
    ///
    /// let (client, _peer) = UnixStream::pair()?;
    /// let mut stream = Stream::from_descriptor(client.into())?;
    /// let open = Arc::new(());
    /// stream.keep(Box::new(Arc::clone(&open)));
    /// assert_eq!(Arc::strong_count(&open), 2);
    /// drop(stream);
    /// assert_eq!(Arc::strong_count(&open), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn keep(&mut self, kept: Box<dyn Any + Send>) {
        self.beside.keep(kept);
    }

    /// The value that was given to [`keep`](Self::keep), to be changed.
    ///
    /// ```
    /// use dwell_evloop::Stream;
    /// use std::os::unix::net::UnixStream;
    ///
    /// let (client, _peer) = UnixStream::pair()?;
    /// let mut stream = Stream::from_descriptor(client.into())?;
    /// assert!(stream.kept().is_none());
    /// stream.keep(Box::new(1_usize));
    /// let requests = stream.kept().and_then(|kept| kept.downcast_mut::<usize>());
    /// assert_eq!(requests.copied(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn kept(&mut self) -> Option<&mut (dyn Any + Send)> {
        self.beside.kept()
    }
}
