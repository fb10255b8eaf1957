//! Ways to take the body of a request.

/// Ways to take the body of a request.
///
/// ```
/// use dwell_engine::BodyPlan;
/// use dwell_proto::http1::RequestHead;
///
/// /// Uploads are taken in pieces, forms whole, and nothing else has a body.
/// fn plan(head: &RequestHead<'_, '_>) -> BodyPlan {
///     match head.path {
///         "/upload" => BodyPlan::Stream { bytes_max: 1 << 30 },
///         "/form" => BodyPlan::Collect { bytes_max: 64 * 1024 },
///         _ => BodyPlan::Refuse(413),
///     }
/// }
/// #
/// # use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
/// # let mut storage = FieldStorage::new();
/// # let input = b"POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
/// # let head = parse_request(input, &mut storage, &HeadLimits::default())?;
/// # assert_eq!(plan(&head), BodyPlan::Collect { bytes_max: 64 * 1024 });
/// # Ok::<(), dwell_proto::http1::HeadError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyPlan {
    /// Gathered, and handed over with the request.
    Collect {
        /// More than this gets 413.
        bytes_max: u64,
    },
    /// Its beginning is gathered, and handed over with the request: all of a body that is no longer
    /// than that; of a longer one the rest follows as that of [`Stream`](Self::Stream). So a
    /// client that is slow with a small body occupies nothing but its connection.
    Gather {
        /// Bytes that are gathered.
        first_bytes: usize,
        /// More than this gets 413, or ends the connection where an answer has begun.
        bytes_max: u64,
    },
    /// Handed over in pieces after the head, as far as [`Reply::grant`](crate::Reply::grant) or
    /// [`Http::grant`](crate::Http::grant) allow. Ungranted bytes stay in the kernel, whose window
    /// then stops the sender.
    Stream {
        /// More than this gets 413, or ends the connection where an answer has begun.
        bytes_max: u64,
    },
    /// The request is answered with this status, unread.
    Refuse(u16),
}

impl BodyPlan {
    /// Bytes of the body at most, and bytes that are gathered before the request is handed over:
    /// none of a streamed body, and `None` for all.
    ///
    /// # Errors
    /// The status of a request that is refused.
    pub(crate) fn bounds(self) -> Result<(u64, Option<u64>), u16> {
        match self {
            Self::Collect { bytes_max } => Ok((bytes_max, None)),
            Self::Gather {
                first_bytes,
                bytes_max,
            } => Ok((bytes_max, Some(first_bytes.max(1) as u64))),
            Self::Stream { bytes_max } => Ok((bytes_max, Some(0))),
            Self::Refuse(status) => Err(status),
        }
    }
}
