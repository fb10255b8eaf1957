//! The rows: requests, and what comes of them.

/// A request and what comes of it.
pub(super) struct Row {
    /// With `|` for each line end, and `TE` for `Transfer-Encoding`.
    pub(super) request: &'static str,
    /// Of each answer: the status and the body.
    pub(super) answers: &'static [(u16, &'static str)],
    /// Fields of the last answer, and those it must not have.
    pub(super) fields: &'static [(&'static str, Option<&'static str>)],
    /// Whether the connection lives on.
    pub(super) lives: bool,
}

const fn row(
    request: &'static str,
    answers: &'static [(u16, &'static str)],
    fields: &'static [(&'static str, Option<&'static str>)],
) -> Row {
    Row {
        request,
        answers,
        fields,
        lives: true,
    }
}

/// A row after which the connection ends.
const fn last(
    request: &'static str,
    answers: &'static [(u16, &'static str)],
    fields: &'static [(&'static str, Option<&'static str>)],
) -> Row {
    Row {
        request,
        answers,
        fields,
        lives: false,
    }
}

/// A request that gets this status and the end of the connection.
const fn refused(request: &'static str, answers: &'static [(u16, &'static str)]) -> Row {
    last(request, answers, &[("Connection", Some("close"))])
}

const LENGTH: &str = "Content-Length";
const CODING: &str = "Transfer-Encoding";
const CONNECTION: &str = "Connection";

pub(super) const FRAMING: &[Row] = &[
    // Content-Length is made where the body is known, and stands for the body of a HEAD.
    row(
        "GET / HTTP/1.1|Host: a||",
        &[(200, "")],
        &[(LENGTH, Some("0")), (CODING, None), (CONNECTION, None)],
    ),
    row(
        "POST / HTTP/1.1|Host: a|Content-Length: 3||abc",
        &[(200, "abc")],
        &[(LENGTH, Some("3")), (CODING, None)],
    ),
    row(
        "HEAD /hints HTTP/1.1|Host: a||",
        &[(103, ""), (200, "")],
        &[(LENGTH, Some("6"))],
    ),
    row(
        "HEAD /chunked HTTP/1.1|Host: a||",
        &[(200, "")],
        &[(CODING, Some("chunked"))],
    ),
    row(
        "HEAD /announced HTTP/1.1|Host: a||",
        &[(200, "")],
        &[(LENGTH, Some("3"))],
    ),
    row(
        "GET /announced HTTP/1.1|Host: a||",
        &[(200, "abc")],
        &[(LENGTH, Some("3")), (CODING, None)],
    ),
    // 204 and 304 have neither body nor length.
    row(
        "GET /204 HTTP/1.1|Host: a||",
        &[(204, "")],
        &[(LENGTH, None), (CODING, None)],
    ),
    row(
        "GET /304 HTTP/1.1|Host: a||",
        &[(304, "")],
        &[(CODING, None)],
    ),
    // Informational answers come before the final one, which stays what it is.
    row(
        "GET /hints HTTP/1.1|Host: a||",
        &[(103, ""), (200, "hinted")],
        &[("Link", None)],
    ),
    row(
        "GET /chunked HTTP/1.1|Host: a||",
        &[(200, "onetwo")],
        &[(CODING, Some("chunked")), (LENGTH, None)],
    ),
    row(
        "GET /inject HTTP/1.1|Host: a||",
        &[(200, "")],
        &[("X-Injected", None)],
    ),
    // Chunked requests, with extensions and trailers.
    row(
        "POST / HTTP/1.1|Host: a|TE: chunked||3|abc|2;x=y|de|0||",
        &[(200, "abcde")],
        &[],
    ),
    row(
        "POST / HTTP/1.1|Host: a|TE: Chunked||0||",
        &[(200, "")],
        &[],
    ),
    row(
        "POST /trailers HTTP/1.1|Host: a|TE: chunked||1|a|0|Digest: abc||",
        &[(200, "abc")],
        &[],
    ),
    row(
        "POST /streamed HTTP/1.1|Host: a|TE: chunked||3|abc|0||",
        &[(200, "abc")],
        &[],
    ),
    row(
        "POST /streamed HTTP/1.1|Host: a|Content-Length: 5||abcde",
        &[(200, "abcde")],
        &[],
    ),
    row(
        "POST /unread HTTP/1.1|Host: a|Content-Length: 5||abcde",
        &[(200, "unread")],
        &[(CONNECTION, None)],
    ),
    row(
        "POST /unread HTTP/1.1|Host: a|TE: chunked||3|abc|0||",
        &[(200, "unread")],
        &[(CONNECTION, None)],
    ),
    last(
        "POST /unread HTTP/1.1|Host: a|Content-Length: 262145||",
        &[(200, "unread")],
        &[(CONNECTION, Some("close"))],
    ),
    last(
        "POST /forbidden HTTP/1.1|Host: a|Content-Length: 3||abc",
        &[(403, "Forbidden\n")],
        &[(CONNECTION, Some("close"))],
    ),
];

pub(super) const CONNECTIONS: &[Row] = &[
    last(
        "GET / HTTP/1.1|Host: a|Connection: close||",
        &[(200, "")],
        &[(CONNECTION, Some("close"))],
    ),
    last(
        "GET / HTTP/1.1|Host: a|Connection: x, Close||",
        &[(200, "")],
        &[(CONNECTION, Some("close"))],
    ),
    last(
        "GET /close HTTP/1.1|Host: a||",
        &[(200, "the last")],
        &[(CONNECTION, Some("close"))],
    ),
    // HTTP/1.0: no Host asked for, no chunks, alive only where it is asked for.
    last(
        "GET / HTTP/1.0||",
        &[(200, "")],
        &[(CONNECTION, Some("close")), (LENGTH, Some("0"))],
    ),
    row(
        "GET / HTTP/1.0|Connection: keep-alive||",
        &[(200, "")],
        &[(CONNECTION, Some("keep-alive"))],
    ),
    last(
        "GET /chunked HTTP/1.0|Connection: keep-alive||",
        &[(200, "onetwo")],
        &[(CODING, None), (LENGTH, None), (CONNECTION, Some("close"))],
    ),
    last("GET /hints HTTP/1.0||", &[(200, "hinted")], &[]),
    last(
        "POST / HTTP/1.0|Content-Length: 3||abc",
        &[(200, "abc")],
        &[],
    ),
    // Host: exactly one, which is one; an absolute target wins over it.
    refused("GET / HTTP/1.1||", &[(400, "Bad Request\n")]),
    refused(
        "GET / HTTP/1.1|Host: a|Host: a||",
        &[(400, "Bad Request\n")],
    ),
    refused("GET / HTTP/1.1|Host: a b||", &[(400, "Bad Request\n")]),
    refused("GET / HTTP/1.0|Host: a/b||", &[(400, "Bad Request\n")]),
    row("GET /host HTTP/1.1|Host: a:80||", &[(200, "a:80")], &[]),
    row("GET http://b/host HTTP/1.1|Host: a||", &[(200, "b")], &[]),
    // Methods are what they are.
    row("FOOBAR /method HTTP/1.1|Host: a||", &[(200, "FOOBAR")], &[]),
    row("get /method HTTP/1.1|Host: a||", &[(200, "get")], &[]),
    row("OPTIONS * HTTP/1.1|Host: a||", &[(200, "")], &[]),
    // Expectations.
    row(
        "POST / HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 0||",
        &[(200, "")],
        &[],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|Expect: tea|Content-Length: 3||abc",
        &[(417, "Expectation Failed\n")],
    ),
];

pub(super) const REFUSED: &[Row] = &[
    refused("GET / HTTP/1.1 |Host: a||", &[(400, "Bad Request\n")]),
    refused("GET  / HTTP/1.1|Host: a||", &[(400, "Bad Request\n")]),
    refused("GET /||", &[(400, "Bad Request\n")]),
    refused(
        "GET / HTTP/2.0|Host: a||",
        &[(505, "HTTP Version Not Supported\n")],
    ),
    refused(
        "GET / HTTP/3.0|Host: a||",
        &[(505, "HTTP Version Not Supported\n")],
    ),
    refused("GET / HTTQ/1.1|Host: a||", &[(400, "Bad Request\n")]),
    refused("GET / HTTP/1.1|Host : a||", &[(400, "Bad Request\n")]),
    refused(
        "GET / HTTP/1.1|Host: a|X: a\0b||",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "GET / HTTP/1.1|Host: a|X: a| folded||",
        &[(400, "Bad Request\n")],
    ),
    refused("GET / HTTP/1.1\nHost: a\n\n", &[(400, "Bad Request\n")]),
    // What smugglers send.
    refused(
        "POST / HTTP/1.1|Host: a|Content-Length: 3|Content-Length: 3||abc",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|Content-Length: 3, 3||abc",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|Content-Length: +3||abc",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|Content-Length: 0x3||abc",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|Content-Length: -1||",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|Content-Length: 3|TE: chunked||0||",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|TE: xchunked||0||",
        &[(501, "Not Implemented\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|TE: gzip, chunked||0||",
        &[(501, "Not Implemented\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|TE: chunked, chunked||0||",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|TE: chunked, identity||0||",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.0|TE: chunked||0||",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|TE: chunked||+3|abc|0||",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|TE: chunked||3|abcde|0||",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|TE: chunked||||",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|TE: chunked||fffffffffffffffff|",
        &[(400, "Bad Request\n")],
    ),
    refused(
        "POST / HTTP/1.1|Host: a|Content-Length: 1048577||",
        &[(413, "Content Too Large\n")],
    ),
];
