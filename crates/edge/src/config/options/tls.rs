//! Options of `[tls]`.

use super::bounds::DAY;
use crate::config::codec::{
    Choice, Count, FilePath, OneOrMany, OrOff, SocketAddress, TimeSpan, Truth,
};
use crate::config::{ClientAuth, Config};
use std::time::Duration;

options! {
    OPTIONS for Config:
    "tls".tls.listen = OneOrMany(SocketAddress, 0);
    "Addresses that clients connect to under TLS. Plain HTTP there gets 400."
    "tls".tls.http2 = Truth;
    "Clients of `tls.listen` may choose HTTP/2 in the handshake (ALPN `h2`). A reload changes it \
     for new connections."
    "tls".tls.certificate = OneOrMany(FilePath, 0);
    "PEM files, each a certificate chain with the server's certificate first. The host name that a \
     client asks for (SNI) selects one, an exact name before a wildcard; the first is for all \
     other clients. A reload reads the files again."
    "tls".tls.key = OneOrMany(FilePath, 0);
    "PEM files with the private keys of the certificates, in the same order, without passphrases."
    "tls".tls.ocsp = OneOrMany(FilePath, 0);
    "Files with OCSP responses in DER for the certificates, in the same order, which are sent with \
     them (stapling). Written by another program, such as `openssl ocsp`."
    "tls".tls.ticket_keys = OrOff(FilePath);
    "File with the keys of session tickets, which several machines may share. Each line is a key, \
     made by `openssl rand -base64 48`: the first one makes tickets, and all of them read tickets."
    "tls".tls.check_interval = TimeSpan(Duration::from_secs(1), DAY);
    "How often the files of certificates and `ticket_keys` are checked. They are read again when \
     the content, owner, mode or inode of a file has changed. If they cannot be used, those \
     before stay and the log has the reason."
    "tls".tls.client_ca = OrOff(FilePath);
    "PEM file with the certificates of authorities. Clients of `tls.listen` show a certificate \
     that one of them has issued, or none if `client_auth` is `optional`; others are refused in \
     the handshake."
    "tls".tls.client_auth = Choice(CLIENT_AUTH);
    "With `client_ca`: a client without a certificate is refused (`required`) or admitted \
     (`optional`). A certificate that cannot be verified is refused in both cases."
    "tls".tls.client_cert_field = Truth;
    "Requests to the application carry the client's certificate as `Client-Cert` (RFC 9440). Such \
     a request is shared with no other client. A reload sets it for new connections, and unsets it \
     for all."
    "tls".tls.self_signed = Truth;
    "Dwell makes a certificate at the start: for localhost, valid for a week, for development."
    "tls".tls.acme_challenge = OrOff(FilePath);
    "Folder with the responses to HTTP-01 challenges, each in a file with the name of its token. \
     Dwell serves them at `/.well-known/acme-challenge/`, before any route."
    "tls".tls.handshakes_max = Count(1, 1_000_000);
    "Handshakes in progress at the same time. Each event loop has an equal share. Beyond it the \
     oldest one is closed. A client counts from its first message on. A handshake has 10 seconds."
}

const CLIENT_AUTH: &[(&str, ClientAuth)] = &[
    ("required", ClientAuth::Required),
    ("optional", ClientAuth::Optional),
];
