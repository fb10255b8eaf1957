//! Certificates of listeners and connections under TLS.
//!
//! Raw streams have callbacks of their own for what TLS adds:
//!
//! ```
//! use dwell_engine::{StreamApp, StreamEnd, StreamRef, Streams};
//! use dwell_evloop::{Connector, Context, Stream, Token};
//! use std::io;
//! use std::net::SocketAddr;
//!
//! /// Reads what a server sends, and keeps what went wrong with TLS.
//! #[derive(Default)]
//! struct Reader {
//!     faults: Vec<String>,
//!     has_ended: bool,
//! }
//!
//! impl StreamApp for Reader {
//!     fn opened(&mut self, _: &mut Context, _: &mut StreamRef<'_>, _: u64) {}
//!
//!     fn handshake_failed(
//!         &mut self,
//!         _: &mut Context,
//!         _: &mut StreamRef<'_>,
//!         error: &io::Error,
//!     ) {
//!         self.faults.push(error.to_string());
//!     }
//!
//!     fn data(
//!         &mut self,
//!         _: &mut Context,
//!         _: &mut StreamRef<'_>,
//!         input: &[u8],
//!         _: usize,
//!     ) -> usize {
//!         input.len()
//!     }
//!
//!     fn peer_closed(&mut self, _: &mut Context, stream: &mut StreamRef<'_>) {
//!         if stream.is_cut_off() {
//!             self.faults.push("what came may be a part".into());
//!         }
//!         stream.close();
//!     }
//!
//!     fn closed(&mut self, _: &mut Context, _: Token, _: u64, _: StreamEnd) {
//!         self.has_ended = true;
//!     }
//! }
//!
//! fn connect(
//!     streams: &mut Streams,
//!     context: &mut Context,
//!     address: SocketAddr,
//!     connector: &Connector,
//! ) -> io::Result<Token> {
//!     let mut stream = Stream::connect(address)?;
//!     stream.secure_client(connector)?;
//!     streams.adopt_connecting(context, stream, 0)
//! }
//! #
//! # use dwell_engine::StreamLimits;
//! # use dwell_evloop::{ClientTls, Driver, EventLoop, Readiness, Roots};
//! # use std::io::Write;
//! # struct Alone(Streams, Reader);
//! # impl Driver for Alone {
//! #     type Message = ();
//! #     fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
//! #         self.0.ready(context, token, readiness, &mut self.1);
//! #     }
//! #     fn expired(&mut self, context: &mut Context, token: Token) {
//! #         self.0.expired(context, token, &mut self.1);
//! #     }
//! #     fn message(&mut self, _: &mut Context, (): ()) {}
//! # }
//! # let roots = Roots::from_pem(dwell_testkit::pem::CERTIFICATE)?;
//! # let connector = ClientTls::new(&roots, None, &[])?.connector("localhost")?;
//! # let mut event_loop = EventLoop::new()?;
//! # let mut driver = Alone(Streams::new(0, 1, StreamLimits::default()), Reader::default());
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let at = listener.local_addr()?;
//! # connect(&mut driver.0, event_loop.context(), at, &connector)?;
//! # listener.accept()?.0.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n")?;
//! # while !driver.1.has_ended {
//! #     event_loop.turn(&mut driver, None)?;
//! # }
//! # assert_eq!(driver.1.faults.len(), 1, "{:?}", driver.1.faults);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod source;

pub use dwell_evloop::{CertificateError, NameError};
pub use error::TlsError;

use dwell_evloop::{
    Acceptor, ClientTls, ClientVerification, Connector, KeptOfClient, Listener, Roots, Stream,
};
use source::{Source, Trusted, read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// TLS of listeners: the certificates that they offer, and the handle that replaces them.
///
/// Shape: its clones are one. Listeners offer TLS 1.3 and 1.2, and `http/1.1` by ALPN; a
/// [`Server`](crate::Server) also `h2`, where it is to
/// [speak HTTP/2](crate::ServerBuilder::http2).
///
/// ```
/// use dwell_engine::Server;
/// use dwell_engine::handler::handler_fn;
/// use dwell_engine::tls::Tls;
///
/// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/data");
/// # let (certificate, key) = (format!("{folder}/certificate.pem"), format!("{folder}/key.pem"));
/// # let trusted = certificate.clone();
/// let tls = Tls::builder().certificate_files(certificate, key).build()?;
/// let running = Server::builder()
///     .tls(&tls)
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(handler_fn(|request, exchange| {
///         assert!(request.is_secure);
///         exchange.text(200, "hello");
///     }))?;
/// println!("https://{}", running.addresses()[0]);
/// // The files have new certificates: new clients get them.
/// tls.reload()?;
/// # let client = dwell_engine::tls::TlsClient::builder().ca_file(trusted).build()?;
/// # let (tell, told) = std::sync::mpsc::channel();
/// # let mut manager = dwell_engine::manager::Manager::new(move |conn, event| match event {
/// #     dwell_engine::manager::Event::Connect => drop(conn.request("GET", "/", &[], b"")),
/// #     dwell_engine::manager::Event::HttpMessage(message) => {
/// #         tell.send(message.status()).expect("the receiver is below");
/// #     }
/// #     dwell_engine::manager::Event::Error(text) => panic!("{text}"),
/// #     _ => {}
/// # })?;
/// # manager.connect_tls(&format!("https://{}", running.addresses()[0]), &client)?;
/// # while told.try_recv() != Ok(Some(200)) {
/// #     manager.poll(std::time::Duration::from_secs(5))?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    acceptor: Acceptor,
    sources: Arc<Mutex<Vec<Source>>>,
}

/// The certificates of a [`Tls`] and its limits.
///
/// Shape: a client gets the certificate for the name that it asks for: one with exactly this name,
/// then one with a wildcard for it. The first certificate is for all other clients.
///
/// ```
/// use dwell_engine::tls::{Tls, TlsError};
///
/// # let certificate = dwell_testkit::pem::CERTIFICATE;
/// # let key = dwell_testkit::pem::KEY;
/// let tls = Tls::builder().certificate_pem(certificate, key).handshakes_max(200).build()?;
/// // Processes that are forked from here resume sessions of one another.
/// tls.make_ticket_keys();
/// // The certificates of another builder take the place of those before.
/// tls.replace(Tls::builder().certificate_pem(certificate, key))?;
/// assert!(matches!(Tls::builder().build(), Err(TlsError::NoCertificate)));
/// # Ok::<(), TlsError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct TlsBuilder {
    sources: Vec<Source>,
    clients: Option<(ClientCertificates, Verification)>,
    keeps_server_names: bool,
    handshakes_max: usize,
}

/// The one who verifies the certificates of clients.
#[derive(Clone, Debug)]
enum Verification {
    Authorities(Trusted),
    /// The program does, behind the handshake.
    Program,
}

/// The answer to clients that show no certificate; see
/// [`client_ca_file`](TlsBuilder::client_ca_file).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCertificates {
    /// They are refused, by an alert.
    Required,
    /// They are served like the others. A certificate that is shown is verified all the same.
    Optional,
}

impl Tls {
    /// Makes a builder without certificates.
    pub fn builder() -> TlsBuilder {
        TlsBuilder {
            sources: Vec::new(),
            clients: None,
            keeps_server_names: false,
            handshakes_max: 1000,
        }
    }

    /// Reads the files of its certificates again. Clients that connect from now on get what is in
    /// them; connections go on.
    ///
    /// # Errors
    /// [`TlsError`]; the certificates before are offered still.
    pub fn reload(&self) -> Result<(), TlsError> {
        let sources = self.0.sources.lock();
        let sources = sources.unwrap_or_else(PoisonError::into_inner);
        self.0.acceptor.set_certificates(read(&sources)?);
        Ok(())
    }

    /// Offers the certificates of `builder` from now on, and reads its files at a
    /// [`reload`](Self::reload). Its limits, and what it asks of clients, are not used.
    ///
    /// # Errors
    /// [`TlsError`]; the certificates before are offered still.
    pub fn replace(&self, builder: TlsBuilder) -> Result<(), TlsError> {
        let mut sources = self
            .0
            .sources
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.0.acceptor.set_certificates(read(&builder.sources)?);
        *sources = builder.sources;
        Ok(())
    }

    /// Makes the keys of session tickets for a day now, so that processes that are forked later
    /// resume sessions of one another. Otherwise the first ticket makes its key.
    pub fn make_ticket_keys(&self) {
        self.0.acceptor.make_ticket_keys();
    }

    /// Offers HTTP/2 to clients, too (`h2`, by ALPN), for a driver that
    /// [speaks](crate::Http::speak_http2) it. Certificates that either is given later are both's.
    ///
    /// ```
    /// use dwell_engine::tls::Tls;
    ///
    /// # let certificate = dwell_testkit::pem::CERTIFICATE;
    /// # let key = dwell_testkit::pem::KEY;
    /// let tls = Tls::builder().certificate_pem(certificate, key).build()?;
    /// tls.with_http2().reload()?;
    /// # Ok::<(), dwell_engine::tls::TlsError>(())
    /// ```
    #[must_use]
    pub fn with_http2(&self) -> Self {
        Self(Arc::new(Shared {
            acceptor: self.0.acceptor.with_http2(),
            sources: Arc::clone(&self.0.sources),
        }))
    }

    /// Puts the clients of a listener under TLS, for a driver that has listeners of its own.
    pub fn secure(&self, listener: &mut Listener) {
        listener.secure(self.0.acceptor.clone());
    }

    /// Puts a client that was accepted elsewhere under TLS, before anything is read or written.
    ///
    /// ```
    /// use dwell_engine::tls::Tls;
    /// use dwell_evloop::Stream;
    ///
    /// # let certificate = dwell_testkit::pem::CERTIFICATE;
    /// # let key = dwell_testkit::pem::KEY;
    /// let tls = Tls::builder().certificate_pem(certificate, key).build()?;
    /// let (client, _peer) = std::os::unix::net::UnixStream::pair()?;
    /// let mut stream = Stream::from_descriptor(client.into())?;
    /// tls.secure_stream(&mut stream);
    /// assert!(stream.is_handshaking());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn secure_stream(&self, stream: &mut Stream) {
        stream.secure(&self.0.acceptor);
    }

    pub(crate) fn acceptor(&self) -> &Acceptor {
        &self.0.acceptor
    }
}

impl TlsBuilder {
    /// Adds a certificate and its private key, in two PEM files. The first certificate of its file
    /// is that of the server, and those that vouch for it follow. One file may have all.
    pub fn certificate_files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (chain, key) = (chain.into(), key.into());
        self.sources.push(Source::Files { chain, key });
        self
    }

    /// Adds a certificate and its private key in PEM, as
    /// [`certificate_files`](Self::certificate_files) does.
    pub fn certificate_pem(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (chain, key) = (chain.into(), key.into());
        self.sources.push(Source::Pem { chain, key });
        self
    }

    /// Asks clients for a certificate that an authority in this PEM file has issued. A client that
    /// shows another one, or one that has expired, is refused, and `clients` says whether one is
    /// that shows none.
    ///
    /// Shape: the file is read when the [`Tls`] is built. No client resumes a session then.
    ///
    /// ```
    /// use dwell_engine::Server;
    /// use dwell_engine::handler::handler_fn;
    /// use dwell_engine::tls::{ClientCertificates, Tls};
    ///
    /// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/data");
    /// # let certificate = format!("{folder}/certificate.pem");
    /// # let key = format!("{folder}/key.pem");
    /// # let authority = format!("{folder}/client_ca.pem");
    /// # let shown = ["client.pem", "client_key.pem"].map(|name| format!("{folder}/{name}"));
    /// # let trusted = certificate.clone();
    /// let tls = Tls::builder()
    ///     .certificate_files(certificate, key)
    ///     .client_ca_file(ClientCertificates::Required, authority)
    ///     .build()?;
    /// let running = Server::builder()
    ///     .tls(&tls)
    ///     .listen(([127, 0, 0, 1], 0).into())
    ///     .serve(handler_fn(|_, exchange| {
    ///         let subject = exchange.peer_certificates().and_then(|shown| shown.subject());
    ///         exchange.text(200, &subject.unwrap_or_default());
    ///     }))?;
    /// # let [shown, its_key] = shown;
    /// # let client = dwell_engine::tls::TlsClient::builder().ca_file(trusted);
    /// # let client = client.certificate_files(shown, its_key).build()?;
    /// # let (tell, told) = std::sync::mpsc::channel();
    /// # let mut manager = dwell_engine::manager::Manager::new(move |conn, event| match event {
    /// #     dwell_engine::manager::Event::Connect => drop(conn.request("GET", "/", &[], b"")),
    /// #     dwell_engine::manager::Event::HttpMessage(message) => {
    /// #         tell.send(message.body().to_vec()).expect("the receiver is below");
    /// #     }
    /// #     dwell_engine::manager::Event::Error(text) => panic!("{text}"),
    /// #     _ => {}
    /// # })?;
    /// # manager.connect_tls(&format!("https://{}", running.addresses()[0]), &client)?;
    /// # let mut subject = told.try_recv();
    /// # while subject.is_err() {
    /// #     manager.poll(std::time::Duration::from_secs(5))?;
    /// #     subject = told.try_recv();
    /// # }
    /// # assert_eq!(subject?, b"CN=alice,O=Example\\, Inc.\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client_ca_file(mut self, clients: ClientCertificates, path: impl Into<PathBuf>) -> Self {
        let trusted = Trusted::File(path.into());
        self.clients = Some((clients, Verification::Authorities(trusted)));
        self
    }

    /// Asks clients for a certificate of an authority in PEM, as
    /// [`client_ca_file`](Self::client_ca_file) does.
    ///
    /// ```
    /// use dwell_engine::tls::{ClientCertificates, Tls, TlsError};
    ///
    /// # let certificate = dwell_testkit::pem::CERTIFICATE;
    /// # let key = dwell_testkit::pem::KEY;
    /// # let authority = dwell_testkit::pem::CLIENT_AUTHORITY;
    /// let builder = Tls::builder().certificate_pem(certificate, key);
    /// builder.clone().client_ca_pem(ClientCertificates::Optional, authority).build()?;
    /// let wrong = builder.client_ca_pem(ClientCertificates::Optional, "no certificate").build();
    /// assert!(matches!(wrong, Err(TlsError::Certificate { .. })));
    /// # Ok::<(), TlsError>(())
    /// ```
    pub fn client_ca_pem(mut self, clients: ClientCertificates, pem: impl Into<Vec<u8>>) -> Self {
        let trusted = Trusted::Pem(pem.into());
        self.clients = Some((clients, Verification::Authorities(trusted)));
        self
    }

    /// Asks clients for a certificate, and has them prove that they have its key. The engine
    /// verifies neither its issuer nor its dates: the program has to, before it does anything for
    /// such a client, and close the connection of one that it does not trust.
    ///
    /// Shape: for programs with rules of their own; others name their authorities by
    /// [`client_ca_file`](Self::client_ca_file). No client resumes a session then.
    ///
    /// ```
    /// use dwell_engine::PeerCertificates;
    /// use dwell_engine::tls::{ClientCertificates, Tls, TlsError};
    ///
    /// # let certificate = dwell_testkit::pem::CERTIFICATE;
    /// # let key = dwell_testkit::pem::KEY;
    /// let builder = Tls::builder().certificate_pem(certificate, key);
    /// builder.unverified_clients(ClientCertificates::Required).build()?;
    ///
    /// /// Trusts the one certificate that was agreed on.
    /// fn is_trusted(shown: Option<&PeerCertificates>, agreed: &[u8]) -> bool {
    ///     shown.is_some_and(|shown| shown.are_verified() || shown.chain().next() == Some(agreed))
    /// }
    /// assert!(!is_trusted(None, b""));
    /// # Ok::<(), TlsError>(())
    /// ```
    pub fn unverified_clients(mut self, clients: ClientCertificates) -> Self {
        self.clients = Some((clients, Verification::Program));
        self
    }

    /// Keeps the names that clients ask for (SNI) with their connections, for
    /// [`TlsFacts`](crate::TlsFacts). It takes some hundred bytes of each connection that asks.
    ///
    /// ```
    /// use dwell_engine::tls::{Tls, TlsError};
    ///
    /// # let certificate = dwell_testkit::pem::CERTIFICATE;
    /// # let key = dwell_testkit::pem::KEY;
    /// let tls = Tls::builder().certificate_pem(certificate, key).keep_server_names().build()?;
    /// # let _ = tls;
    /// # Ok::<(), TlsError>(())
    /// ```
    pub fn keep_server_names(mut self) -> Self {
        self.keeps_server_names = true;
        self
    }

    /// Sets the number of handshakes that may be in progress at once in each loop; beyond it the
    /// oldest gives way. Default 1,000; at least one.
    pub fn handshakes_max(mut self, handshakes: usize) -> Self {
        self.handshakes_max = handshakes.max(1);
        self
    }

    /// Reads the certificates.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn build(self) -> Result<Tls, TlsError> {
        let certificates = read(&self.sources)?;
        let is_required = |clients: &_| *clients == ClientCertificates::Required;
        let acceptor = match &self.clients {
            None => Acceptor::new(certificates, self.handshakes_max),
            Some((clients, Verification::Program)) => {
                Acceptor::unverified(certificates, self.handshakes_max, is_required(clients))
            }
            Some((clients, Verification::Authorities(trusted))) => {
                let roots = trusted.read()?;
                let clients = ClientVerification {
                    roots: &roots,
                    is_required: is_required(clients),
                    keeps: KeptOfClient::Chain,
                };
                Acceptor::verifying(certificates, self.handshakes_max, clients)
                    .map_err(|error| trusted.wrong(error))?
            }
        };
        if self.keeps_server_names {
            acceptor.keep_server_names();
        }
        Ok(Tls(Arc::new(Shared {
            acceptor,
            sources: Arc::new(Mutex::new(self.sources)),
        })))
    }
}

/// TLS of outbound connections: what a program trusts, and what it shows.
///
/// Shape: its clones are one, and share the sessions that are resumed.
///
/// ```
/// use dwell_engine::tls::{TlsClient, TlsError};
///
/// # let certificate = dwell_testkit::pem::CERTIFICATE;
/// // Trusts a server of its own, whatever name it is connected to by.
/// let client = TlsClient::builder().ca_pem(certificate).server_name("dwell.test").build()?;
/// # let _ = client;
/// # Ok::<(), TlsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TlsClient {
    settings: ClientTls,
    server_name: Option<String>,
}

/// The settings of a [`TlsClient`]; without any, it trusts what the system trusts.
///
/// ```
/// use dwell_engine::tls::{TlsClient, TlsClientBuilder, TlsError};
///
/// /// Trusts the servers of a company, if there is a file with its authorities.
/// fn trust(builder: TlsClientBuilder, authorities: Option<&str>) -> TlsClientBuilder {
///     match authorities {
///         Some(file) => builder.ca_file(file),
///         None => builder,
///     }
/// }
/// #
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/data/certificate.pem");
/// # trust(TlsClient::builder(), Some(file)).build()?;
/// # let none = trust(TlsClient::builder(), Some("/dev/null/none")).build();
/// # assert!(matches!(none, Err(TlsError::Read { .. })));
/// # Ok::<(), TlsError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct TlsClientBuilder {
    trusted: Option<Trusted>,
    identity: Option<Source>,
    server_name: Option<String>,
}

impl TlsClient {
    /// Makes a builder that trusts what the system trusts.
    pub fn builder() -> TlsClientBuilder {
        TlsClientBuilder::default()
    }

    /// Trusts what the system trusts; its files are read once.
    pub(crate) fn system() -> Result<Self, TlsError> {
        static SYSTEM: OnceLock<TlsClient> = OnceLock::new();
        if let Some(client) = SYSTEM.get() {
            return Ok(client.clone());
        }
        let client = Self::builder().build()?;
        Ok(SYSTEM.get_or_init(|| client).clone())
    }

    pub(crate) fn connector(&self, host: &str) -> Result<Connector, NameError> {
        self.settings
            .connector(self.server_name.as_deref().unwrap_or(host))
    }
}

impl TlsClientBuilder {
    /// Trusts the certificates of this PEM file, and no others: those of authorities, or of
    /// servers.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.trusted = Some(Trusted::File(path.into()));
        self
    }

    /// Trusts these certificates in PEM, as [`ca_file`](Self::ca_file) does.
    pub fn ca_pem(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.trusted = Some(Trusted::Pem(certificates.into()));
        self
    }

    /// Shows the certificate in these PEM files to servers that ask for one.
    pub fn certificate_files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (chain, key) = (chain.into(), key.into());
        self.identity = Some(Source::Files { chain, key });
        self
    }

    /// Shows this certificate to servers that ask for one.
    pub fn certificate_pem(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (chain, key) = (chain.into(), key.into());
        self.identity = Some(Source::Pem { chain, key });
        self
    }

    /// Sets the name that the certificate of a server has to be for. Default: the host of the URL.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Reads the certificates.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn build(self) -> Result<TlsClient, TlsError> {
        let wrong = |source| TlsError::Certificate { path: None, source };
        let roots = match &self.trusted {
            None => Roots::system().map_err(wrong)?,
            Some(trusted) => trusted.read()?,
        };
        let identity = self.identity.as_ref().map(Source::read).transpose()?;
        // Servers that offer no HTTP would refuse its name.
        let settings = ClientTls::new(&roots, identity.as_ref(), &[]).map_err(wrong)?;
        if let Some(name) = &self.server_name {
            settings.connector(name).map_err(TlsError::Name)?;
        }
        Ok(TlsClient {
            settings,
            server_name: self.server_name,
        })
    }
}
