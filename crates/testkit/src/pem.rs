//! Certificates and keys in PEM, for examples that show TLS.
//!
//! An example that includes a file by a path relative to its own cannot be compiled in one program
//! with the other examples of its crate, and then each of them is compiled by itself.

/// The certificate of `dwell.test` and `localhost`, which is its own authority.
pub const CERTIFICATE: &[u8] = include_bytes!("../../tls/tests/data/certificate.pem");

/// The private key of [`CERTIFICATE`].
pub const KEY: &[u8] = include_bytes!("../../tls/tests/data/key.pem");

/// The certificate of an authority of clients.
pub const CLIENT_AUTHORITY: &[u8] = include_bytes!("../../tls/tests/data/client_ca.pem");
