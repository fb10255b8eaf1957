//! Answers, as a client reads them.

/// One whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The field `Poll-Cursor`.
    pub(crate) cursor: Option<String>,
    pub(crate) body: Vec<u8>,
    /// The client may come back after a while.
    pub(crate) retries: bool,
    /// It says that it is a value of before, since nobody knows the one of now.
    pub(crate) is_stale: bool,
    /// The server closes the connection behind it.
    pub(crate) closes: bool,
}

/// Takes the next answer out of what has come, if it is whole.
///
/// # Errors
/// The reason why it is no answer.
pub(crate) fn take(input: &mut Vec<u8>, is_head: bool) -> Result<Option<Answer>, String> {
    let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&input[..end]).map_err(|_| "a head that is no text")?;
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let status = line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3));
    let status: u16 = status
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("no status line: {line:?}"))?;
    if status == 100 {
        // Every client skips it: one that has ended its side is asked so whether it is there.
        input.drain(..end + 4);
        return take(input, is_head);
    }
    let field = |name: &str| {
        let mut lines = head.split("\r\n").skip(1);
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let has_body = !is_head && status != 204 && status != 304;
    let length = match field("Content-Length") {
        Some(length) if has_body => length.parse().map_err(|_| format!("length {length}"))?,
        None if has_body => return Err(format!("a body without a length: {head:?}")),
        _ => 0,
    };
    let answer = Answer {
        status,
        cursor: field("Poll-Cursor").map(ToOwned::to_owned),
        body: Vec::new(),
        retries: field("Retry-After").is_some(),
        is_stale: field("Cache-Status").is_some_and(is_stale),
        closes: field("Connection") == Some("close"),
    };
    let begin = end + 4;
    if input.len() < begin + length {
        return Ok(None);
    }
    let body = input[begin..begin + length].to_vec();
    input.drain(..begin + length);
    Ok(Some(Answer { body, ..answer }))
}

/// Returns true if a `Cache-Status` is that of a value which was known before.
fn is_stale(status: &str) -> bool {
    status.contains("fwd=stale") || status.contains("ttl=-")
}
