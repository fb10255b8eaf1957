//! Certificates of the listeners under TLS.

mod self_signed;
mod tickets;

pub(super) use tickets::{TicketFile, read as read_tickets};

use super::error::RunError;
use crate::config::{ClientAuth, Config};
use crate::log::write_rfc3339;
use crate::metrics::Metrics;
use dwell_evloop::{
    Acceptor, Certificate, CertificateError, ClientVerification, KeptOfClient, Roots,
};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The certificates that the listeners under TLS show, with the files that they come from.
#[derive(Debug)]
pub(crate) struct Certificates {
    acceptor: Acceptor,
    state: Mutex<State>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct State {
    pairs: Vec<Pair>,
    /// The file with the keys of tickets, and as it was before it was read.
    tickets: Option<(PathBuf, Stamp)>,
    check_interval: Duration,
    /// Wakes the thread that checks the files, once there is one.
    watch: Option<Sender<()>>,
}

/// A certificate with its key, as read from their files.
#[derive(Debug)]
pub(super) struct Pair {
    /// Absent for a certificate that was made.
    files: Option<Files>,
    /// As the files were before they were read.
    stamps: Vec<Stamp>,
    certificate: Certificate,
}

/// The files of one certificate.
#[derive(Clone, Debug)]
struct Files {
    chain: PathBuf,
    key: PathBuf,
    ocsp: Option<PathBuf>,
}

/// Device, inode, size and time of the last change of a file, of which one changes with its
/// content, its owner and its mode. A file that cannot be seen has none.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// Reads the certificates and their keys, or makes them.
///
/// # Errors
/// [`RunError::Certificate`] for the first file that cannot be used, [`RunError::SelfSigned`] for a
/// certificate that cannot be made.
pub(super) fn read(config: &Config) -> Result<Vec<Pair>, RunError> {
    if config.tls.self_signed {
        return self_signed::make().map(|made| vec![made]);
    }
    files(config).map(Pair::read).collect()
}

/// Makes the state that all listeners under TLS share.
///
/// # Errors
/// [`RunError::Certificate`] for the file with the authorities of clients.
pub(super) fn acceptor(
    config: &Config,
    pairs: &[Pair],
    loops: usize,
) -> Result<Acceptor, RunError> {
    let certificates = certificates(pairs);
    // Each loop has its share.
    let handshakes_max = config.tls.handshakes_max.div_ceil(loops.max(1));
    let Some(path) = &config.tls.client_ca else {
        return Ok(Acceptor::new(certificates, handshakes_max));
    };
    let file = (&**path, "tls.client_ca");
    let authorities = Roots::from_pem(&content(file)?);
    let acceptor = authorities.and_then(|roots| {
        let clients = ClientVerification {
            roots: &roots,
            is_required: config.tls.client_auth == ClientAuth::Required,
            keeps: kept(config),
        };
        Acceptor::verifying(certificates, handshakes_max, clients)
    });
    acceptor.map_err(|error| unusable(file, error.to_string()))
}

/// The acceptor of the listeners, which share all else with the one that is given.
pub(super) fn offering(acceptor: &Acceptor, config: &Config) -> Acceptor {
    if config.tls.http2 {
        acceptor.with_http2()
    } else {
        acceptor.clone()
    }
}

/// The part of clients' certificates that a configuration asks for: it costs memory.
fn kept(config: &Config) -> KeptOfClient {
    if config.tls.client_cert_field {
        return KeptOfClient::Certificate;
    }
    let has_keys = config.routes.iter().any(|route| route.key.takes_client());
    if has_keys || !config.publish.clients.is_empty() {
        return KeptOfClient::Names;
    }
    KeptOfClient::Nothing
}

/// Checks that a reload leaves no client unverified which the new configuration wants verified:
/// `tls.client_ca` and `tls.client_auth` begin to count at the next start alone.
///
/// # Errors
/// [`RunError::Certificate`] for the file with the authorities of clients.
pub(super) fn verifies_clients(config: &Config, running: &Config) -> Result<(), RunError> {
    let (tls, running) = (&config.tls, &running.tls);
    let Some(path) = tls.client_ca.as_ref().filter(|_| !tls.listen.is_empty()) else {
        return Ok(());
    };
    let is_required = tls.client_auth == ClientAuth::Required;
    let option = if running.client_ca.is_none() {
        "tls.client_ca"
    } else if is_required && running.client_auth != ClientAuth::Required {
        "tls.client_auth"
    } else {
        return Ok(());
    };
    let reason = "clients show certificates only after a restart or an upgrade (SIGUSR2)";
    Err(unusable((path, option), reason.to_owned()))
}

/// Returns warnings about certificates that can be used, but that clients refuse.
pub(super) fn warnings(pairs: &[Pair], now: SystemTime) -> Vec<String> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    pairs.iter().flat_map(|pair| pair.warnings(now)).collect()
}

impl State {
    fn has_files(&self) -> bool {
        self.tickets.is_some() || self.pairs.iter().any(|pair| pair.files.is_some())
    }
}

impl Certificates {
    pub(super) fn new(
        acceptor: Acceptor,
        pairs: Vec<Pair>,
        tickets: Option<TicketFile>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let state = State {
            pairs: Vec::new(),
            tickets: None,
            check_interval: Duration::MAX,
            watch: None,
        };
        let shown = Self {
            acceptor,
            state: Mutex::new(state),
            metrics,
        };
        shown.show(&mut shown.lock(), pairs);
        shown.use_tickets(&mut shown.lock(), tickets);
        shown
    }

    /// Begins to check the files, and logs which options do nothing.
    pub(super) fn begin(self: &Arc<Self>, config: &Config) {
        for warning in config.tls.warnings() {
            tracing::warn!("{warning}");
        }
        self.watch(config);
    }

    /// The state that the listeners under TLS share, offering the protocols of a configuration.
    pub(super) fn acceptor_for(&self, config: &Config) -> Acceptor {
        offering(&self.acceptor, config)
    }

    /// The state that the listeners under TLS share.
    pub(crate) fn acceptor(&self) -> &Acceptor {
        &self.acceptor
    }

    /// Shows other certificates and uses other keys of tickets from now on, whose files are checked
    /// as `config` says.
    pub(super) fn replace(
        self: &Arc<Self>,
        pairs: Vec<Pair>,
        tickets: Option<TicketFile>,
        config: &Config,
    ) {
        self.acceptor.keep(kept(config));
        self.use_tickets(&mut self.lock(), tickets);
        // What was made at the start stays, as clients may have been told to trust it.
        if !config.tls.self_signed {
            self.show(&mut self.lock(), pairs);
        }
        self.begin(config);
    }

    /// Checks the files from time to time, in a thread of its own, if there are any.
    fn watch(self: &Arc<Self>, config: &Config) {
        let mut state = self.lock();
        state.check_interval = config.tls.check_interval;
        if let Some(watch) = &state.watch {
            // The thread lives as long as this.
            let _ = watch.send(());
        } else if state.has_files() {
            let (sender, receiver) = mpsc::channel();
            let shown = Arc::downgrade(self);
            let thread = thread::Builder::new().name("certificates".to_owned());
            match thread.spawn(move || look_now_and_then(&shown, &receiver)) {
                Ok(_) => state.watch = Some(sender),
                Err(error) => tracing::error!(
                    %error,
                    "certificates are read again only by a reload: no thread is left"
                ),
            }
        }
    }

    /// Reads the pairs again of which a file has changed, and the keys of tickets. A file that
    /// cannot be used is refused, and logged until a file changes again; what was there before
    /// stays.
    pub(super) fn look(&self) {
        let mut state = self.lock();
        self.look_at_tickets(&mut state);
        let mut has_changed = false;
        for pair in &mut state.pairs {
            let Some(files) = &pair.files else {
                continue;
            };
            let stamps = files.stamps();
            if stamps == pair.stamps {
                continue;
            }
            match Pair::read(files.clone()) {
                Ok(read) => {
                    let file = files.chain.display();
                    tracing::info!(%file, "certificate renewed");
                    *pair = read;
                    has_changed = true;
                }
                Err(error) => {
                    tracing::error!("{error}; the certificate before it stays");
                    pair.stamps = stamps;
                }
            }
        }
        if has_changed {
            let pairs = std::mem::take(&mut state.pairs);
            self.show(&mut state, pairs);
        }
    }

    fn look_at_tickets(&self, state: &mut State) {
        let Some((path, before)) = &mut state.tickets else {
            return;
        };
        let now = stamp(path);
        if now == *before {
            return;
        }
        match TicketFile::read(path) {
            Ok(read) => {
                let (file, keys) = (read.path.display(), read.keys.len());
                tracing::info!(%file, keys, "keys of tickets renewed");
                self.use_tickets(state, Some(read));
            }
            Err(error) => {
                tracing::error!("{error}; the keys before stay");
                *before = now;
            }
        }
    }

    fn use_tickets(&self, state: &mut State, tickets: Option<TicketFile>) {
        let (file, keys) = match tickets {
            Some(read) => (Some((read.path, read.stamp)), read.keys),
            None => (None, Vec::new()),
        };
        self.acceptor.set_ticket_keys(keys);
        state.tickets = file;
    }

    fn show(&self, state: &mut State, pairs: Vec<Pair>) {
        for warning in warnings(&pairs, SystemTime::now()) {
            tracing::warn!("{warning}");
        }
        self.acceptor.set_certificates(certificates(&pairs));
        let expiries = pairs.iter().map(|pair| {
            let at = pair.certificate.not_after();
            (pair.name(), at)
        });
        self.metrics.tell_certificates(expiries);
        state.pairs = pairs;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks the files after every interval, until nothing is left that would show them.
fn look_now_and_then(shown: &Weak<Certificates>, woken: &Receiver<()>) {
    loop {
        let Some(interval) = shown.upgrade().map(|shown| shown.lock().check_interval) else {
            return;
        };
        match woken.recv_timeout(interval) {
            // The interval may be another one now.
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => match shown.upgrade() {
                Some(shown) => shown.look(),
                None => return,
            },
        }
    }
}

fn certificates(pairs: &[Pair]) -> Vec<Certificate> {
    pairs.iter().map(|pair| pair.certificate.clone()).collect()
}

fn files(config: &Config) -> impl Iterator<Item = Files> {
    let tls = &config.tls;
    let pairs = tls.certificate.iter().zip(&tls.key).enumerate();
    pairs.map(|(place, (chain, key))| Files {
        chain: chain.clone(),
        key: key.clone(),
        ocsp: tls.ocsp.get(place).cloned(),
    })
}

impl Files {
    fn stamps(&self) -> Vec<Stamp> {
        let files = [Some(&self.chain), Some(&self.key), self.ocsp.as_ref()];
        files
            .into_iter()
            .flatten()
            .map(|path| stamp(path))
            .collect()
    }
}

fn stamp(path: &Path) -> Stamp {
    let stamp = |of: Metadata| (of.dev(), of.ino(), of.size(), of.ctime(), of.ctime_nsec());
    fs::metadata(path).ok().map(stamp)
}

impl Pair {
    fn read(files: Files) -> Result<Self, RunError> {
        // Before the files: what changes between the two is found at the next look.
        let stamps = files.stamps();
        let (of_chain, of_key) = ((&*files.chain, "tls.certificate"), (&*files.key, "tls.key"));
        let mut certificate = certificate(of_chain, of_key)?;
        if let Some(path) = &files.ocsp {
            certificate = certificate.with_ocsp(content((path, "tls.ocsp"))?);
        }
        Ok(Self {
            files: Some(files),
            stamps,
            certificate,
        })
    }

    /// The first host name, or the file of a certificate without any.
    fn name(&self) -> String {
        let name = self.certificate.names().first().cloned();
        name.unwrap_or_else(|| self.file())
    }

    fn file(&self) -> String {
        let files = self.files.as_ref();
        files.map_or_else(String::new, |files| files.chain.display().to_string())
    }

    fn warnings(&self, now: i64) -> Vec<String> {
        let certificate = &self.certificate;
        let (from, to) = (certificate.not_before(), certificate.not_after());
        let mut found = Vec::new();
        if to < now {
            found.push(format!(
                "expired at {}; renew it, as clients refuse it",
                at(to)
            ));
        }
        if from > now {
            let from = at(from);
            found.push(format!(
                "is not valid before {from}; clients refuse it until then: check the clock"
            ));
        }
        if !certificate.has_name() {
            found.push(
                "names no host; issue it with a subjectAltName, as clients refuse it".to_owned(),
            );
        }
        let file = self.file();
        let sentence = |what| format!("certificate {file} (tls.certificate) {what}");
        found.into_iter().map(sentence).collect()
    }
}

/// A moment of Unix time in words.
fn at(seconds: i64) -> String {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let mut text = Vec::new();
    write_rfc3339(&mut text, UNIX_EPOCH + since);
    String::from_utf8_lossy(&text).replace(".000Z", "Z")
}

/// Reads a certificate chain and its private key, each with the option that names it.
///
/// # Errors
/// [`RunError::Certificate`] for the file that cannot be used.
pub(super) fn certificate(
    of_chain: (&Path, &'static str),
    of_key: (&Path, &'static str),
) -> Result<Certificate, RunError> {
    let (chain, key) = (content(of_chain)?, content(of_key)?);
    Certificate::from_pem(&chain, &key).map_err(|error| {
        let file = match error {
            CertificateError::Certificate(_) => of_chain,
            _ => of_key,
        };
        unusable(file, format!("{error}{}", remedy(&error)))
    })
}

pub(super) fn content(file: (&Path, &'static str)) -> Result<Vec<u8>, RunError> {
    fs::read(file.0).map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "; check the path, from the working directory",
            io::ErrorKind::PermissionDenied => "; let the user of this process read it",
            _ => "",
        };
        unusable(file, format!("{error}{remedy}"))
    })
}

/// Remedy for an error, behind its own words.
fn remedy(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Certificate(_) => "; it has to be PEM, the server's certificate first",
        CertificateError::Key(_) => "; it has to be PEM: PKCS #8, SEC 1 or PKCS #1",
        CertificateError::EncryptedKey => {
            "; store it without a passphrase: openssl pkey -in KEY -out NEW"
        }
        CertificateError::Mismatch => "; name each key at the place of its certificate",
        _ => "",
    }
}

pub(super) fn unusable((path, option): (&Path, &'static str), reason: String) -> RunError {
    RunError::Certificate {
        path: path.to_owned(),
        option,
        reason,
    }
}

#[cfg(test)]
mod tests;
