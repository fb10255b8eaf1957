//! Listeners and connections under TLS.

use super::error::{ManagerError, UrlError};
use super::event::Event;
use super::{Conn, Manager, Scope};
use crate::tls::{Tls, TlsClient};
use dwell_evloop::{Acceptor, Connector};

impl Manager {
    /// Listens on `https://host:port` or `wss://host:port`; otherwise as [`listen`](Self::listen).
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager};
    /// use dwell_engine::tls::{Tls, TlsClient};
    /// use std::time::Duration;
    ///
    /// # let certificate = dwell_testkit::pem::CERTIFICATE;
    /// # let key = dwell_testkit::pem::KEY;
    /// let tls = Tls::builder().certificate_pem(certificate, key).build()?;
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let mut manager = Manager::new(move |conn, event| match event {
    ///     // Both ends are on this manager.
    ///     Event::Connect => drop(conn.request("GET", "/status", &[], b"")),
    ///     Event::HttpMessage(message) if conn.is_client() => {
    ///         tell.send(message.status()).expect("the receiver is below");
    ///     }
    ///     Event::HttpMessage(_) => drop(conn.reply(200, &[], b"fine")),
    ///     Event::Error(text) => panic!("{text}"),
    ///     _ => {}
    /// })?;
    /// let listener = manager.listen_tls("https://127.0.0.1:0", &tls)?;
    /// let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
    /// let client = TlsClient::builder().ca_pem(certificate).build()?;
    /// let url = format!("https://{}", address.expect("it listens"));
    /// manager.connect_tls(&url, &client)?;
    /// let status = loop {
    ///     manager.poll(Duration::from_secs(5))?;
    ///     if let Ok(status) = told.try_recv() {
    ///         break status;
    ///     }
    /// };
    /// assert_eq!(status, Some(200));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listen_tls(&mut self, url: &str, tls: &Tls) -> Result<u64, ManagerError> {
        self.act(|scope| scope.listen_tls(url, tls))
    }

    /// As [`listen_tls`](Self::listen_tls), with a handler for this listener and its clients.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager};
    /// use dwell_engine::tls::{Tls, TlsClient};
    /// use std::time::Duration;
    ///
    /// # let certificate = dwell_testkit::pem::CERTIFICATE;
    /// # let key = dwell_testkit::pem::KEY;
    /// let tls = Tls::builder().certificate_pem(certificate, key).build()?;
    /// let client = TlsClient::builder().ca_pem(certificate).build()?;
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let mut manager = Manager::new(|_, _| {})?;
    /// let listener = manager.listen_tls_with("https://127.0.0.1:0", &tls, |conn, event| {
    ///     if let Event::HttpMessage(_) = event {
    ///         let text = if conn.is_secure() { "secure" } else { "plain" };
    ///         let _ = conn.reply(200, &[], text.as_bytes());
    ///     }
    /// })?;
    /// let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
    /// let url = format!("https://{}", address.expect("it listens"));
    /// manager.connect_tls_with(&url, &client, move |conn, event| match event {
    ///     Event::Connect => drop(conn.request("GET", "/", &[], b"")),
    ///     Event::HttpMessage(message) => {
    ///         tell.send(message.body().to_vec()).expect("the receiver is below");
    ///     }
    ///     Event::Error(text) => panic!("{text}"),
    ///     _ => {}
    /// })?;
    /// while told.try_recv().as_deref() != Ok(b"secure") {
    ///     manager.poll(Duration::from_secs(5))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listen_tls_with(
        &mut self,
        url: &str,
        tls: &Tls,
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Result<u64, ManagerError> {
        self.act(|scope| scope.listen_tls_with(url, tls, handler))
    }

    /// Starts connecting to `https://host:port` or `tls://host:port` with these settings; otherwise
    /// as [`connect`](Self::connect), which trusts what the system trusts.
    ///
    /// Shape: `Connect` comes when the handshake is done. `Error` tells why one has failed.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_tls(&mut self, url: &str, tls: &TlsClient) -> Result<u64, ManagerError> {
        self.act(|scope| scope.connect_tls(url, tls))
    }

    /// As [`connect_tls`](Self::connect_tls), with a handler for this connection.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_tls_with(
        &mut self,
        url: &str,
        tls: &TlsClient,
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Result<u64, ManagerError> {
        self.act(|scope| scope.connect_tls_with(url, tls, handler))
    }

    /// Starts connecting to `wss://host:port/path` as a WebSocket; otherwise as
    /// [`ws_connect`](Self::ws_connect), which trusts what the system trusts.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager};
    /// use dwell_engine::tls::{Tls, TlsClient};
    /// use dwell_engine::websocket::UpgradeOptions;
    /// use std::time::Duration;
    ///
    /// # let certificate = dwell_testkit::pem::CERTIFICATE;
    /// # let key = dwell_testkit::pem::KEY;
    /// let tls = Tls::builder().certificate_pem(certificate, key).build()?;
    /// let client = TlsClient::builder().ca_pem(certificate).build()?;
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let mut manager = Manager::new(move |conn, event| match event {
    ///     Event::HttpMessage(message) => {
    ///         let _ = conn.ws_upgrade(&message, &UpgradeOptions::default());
    ///     }
    ///     Event::WebSocketOpen if conn.is_client() => drop(conn.ws_text("hello")),
    ///     Event::WebSocketMessage { data, .. } => {
    ///         tell.send(data.to_vec()).expect("the receiver is below");
    ///     }
    ///     Event::Error(text) => panic!("{text}"),
    ///     _ => {}
    /// })?;
    /// let listener = manager.listen_tls("wss://127.0.0.1:0", &tls)?;
    /// let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
    /// let url = format!("wss://{}/chat", address.expect("it listens"));
    /// manager.ws_connect_tls(&url, &client)?;
    /// while told.try_recv().as_deref() != Ok(b"hello") {
    ///     manager.poll(Duration::from_secs(5))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ws_connect_tls(&mut self, url: &str, tls: &TlsClient) -> Result<u64, ManagerError> {
        self.act(|scope| scope.ws_connect_tls(url, tls))
    }
}

impl Scope<'_> {
    /// As [`Manager::listen_tls`].
    ///
    /// # Errors
    /// As [`Manager::listen`].
    pub fn listen_tls(&mut self, url: &str, tls: &Tls) -> Result<u64, ManagerError> {
        self.listen_as(url, Some(self.acceptor(tls)), None)
    }

    /// As [`Manager::listen_tls_with`].
    ///
    /// # Errors
    /// As [`Manager::listen`].
    pub fn listen_tls_with(
        &mut self,
        url: &str,
        tls: &Tls,
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Result<u64, ManagerError> {
        self.listen_as(url, Some(self.acceptor(tls)), Some(Box::new(handler)))
    }

    /// As [`Manager::connect_tls`].
    ///
    /// # Errors
    /// As [`Manager::connect`].
    pub fn connect_tls(&mut self, url: &str, tls: &TlsClient) -> Result<u64, ManagerError> {
        let connector = self.connector(url, tls)?;
        self.connect_as(url, false, Some(connector), None)
    }

    /// As [`Manager::connect_tls_with`].
    ///
    /// # Errors
    /// As [`Manager::connect`].
    pub fn connect_tls_with(
        &mut self,
        url: &str,
        tls: &TlsClient,
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Result<u64, ManagerError> {
        let connector = self.connector(url, tls)?;
        self.connect_as(url, false, Some(connector), Some(Box::new(handler)))
    }

    /// As [`Manager::ws_connect_tls`].
    ///
    /// # Errors
    /// As [`Manager::connect`].
    pub fn ws_connect_tls(&mut self, url: &str, tls: &TlsClient) -> Result<u64, ManagerError> {
        let connector = self.connector(url, tls)?;
        self.connect_as(url, true, Some(connector), None)
    }

    /// The protocols that a listener offers are those that the manager speaks.
    fn acceptor(&self, tls: &Tls) -> Acceptor {
        if self.state.http.offers_http2 {
            tls.acceptor().with_http2()
        } else {
            tls.acceptor().clone()
        }
    }

    fn connector(&self, url: &str, tls: &TlsClient) -> Result<Connector, ManagerError> {
        let host = self.parse(url)?.endpoint.host();
        let connector = host.and_then(|host| tls.connector(&host).ok());
        connector.ok_or_else(|| ManagerError::Url {
            url: url.to_owned(),
            fault: UrlError::Host,
        })
    }

    /// Makes what connects to a server that the system trusts.
    pub(super) fn system_connector(&self, url: &str) -> Result<Connector, ManagerError> {
        self.connector(url, &TlsClient::system().map_err(ManagerError::Tls)?)
    }
}
