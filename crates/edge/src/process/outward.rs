//! TLS towards servers: what is trusted, and what is shown.

use super::error::RunError;
use super::tls::{certificate, content, unusable};
use crate::config::{ClientTlsFiles, Config, PeerAddress, UpstreamUrl};
use dwell_evloop::{ClientTls, Connector, Roots};
use std::hash::{DefaultHasher, Hash, Hasher};
#[cfg(feature = "sim")]
use std::path::Path;

/// Makes the connectors of one kind of servers.
pub(super) struct Outward<'a> {
    files: ClientTlsFiles<'a>,
    settings: ClientTls,
}

/// Protocols that are offered to servers of HTTP.
const HTTP: &[&str] = &["http/1.1"];

impl<'a> Outward<'a> {
    /// Reads the files.
    ///
    /// # Errors
    /// [`RunError::Certificate`] for the first one that cannot be used.
    fn new(files: ClientTlsFiles<'a>, protocols: &[&str]) -> Result<Self, RunError> {
        let (option, ca) = files.ca;
        let wrong = |error: String| unusable((ca.unwrap_or(SYSTEM.as_ref()), option), error);
        let roots = match ca {
            None => system_roots(option)?,
            Some(path) => {
                let pem = content((path, option))?;
                #[cfg(feature = "sim")]
                let pem = with_neighbour(pem, path);
                Roots::from_pem(&pem).map_err(|error| wrong(error.to_string()))?
            }
        };
        let identity = match (files.certificate, files.key) {
            ((of_chain, Some(chain)), (of_key, Some(key))) => {
                Some(certificate((chain, of_chain), (key, of_key))?)
            }
            _ => None,
        };
        let settings = ClientTls::new(&roots, identity.as_ref(), protocols);
        let settings = settings.map_err(|error| wrong(error.to_string()))?;
        Ok(Self { files, settings })
    }

    /// The connector for one server.
    ///
    /// # Errors
    /// [`RunError::ServerName`].
    pub(super) fn connector(&self, address: &PeerAddress) -> Result<Connector, RunError> {
        let (option, name) = self.files.server_name;
        let name = name.unwrap_or(&address.host);
        let connector = self.settings.connector(name);
        connector.map_err(|error| RunError::ServerName {
            option,
            reason: error.to_string(),
        })
    }
}

/// TLS towards the servers of the application; `None` if no server speaks it.
///
/// # Errors
/// [`RunError::Certificate`].
pub(super) fn upstream(config: &Config) -> Result<Option<Outward<'_>>, RunError> {
    let upstream = &config.upstream;
    let of_files = || Outward::new(upstream.client_tls(), HTTP);
    upstream.is_secure().then(of_files).transpose()
}

/// A number that is another one when a file of TLS towards the application has changed, or what the
/// system trusts where none is named.
///
/// # Errors
/// [`RunError::Certificate`].
pub(super) fn upstream_files(config: &Config) -> Result<u64, RunError> {
    let mut hasher = DefaultHasher::new();
    let files = config.upstream.client_tls();
    if !config.upstream.is_secure() {
        return Ok(hasher.finish());
    }
    for (option, path) in [files.ca, files.certificate, files.key] {
        let read = path.map(|path| content((path, option))).transpose()?;
        read.hash(&mut hasher);
    }
    if files.ca.1.is_none() {
        system_roots(files.ca.0)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// The authorities that the system trusts, where `option` names no others.
fn system_roots(option: &'static str) -> Result<Roots, RunError> {
    Roots::system().map_err(|error| unusable((SYSTEM.as_ref(), option), error.to_string()))
}

/// The connector for the webhook; `None` where it does not speak TLS.
///
/// # Errors
/// [`RunError::Certificate`], [`RunError::ServerName`].
pub(super) fn webhook(config: &Config) -> Result<Option<Connector>, RunError> {
    let presence = &config.presence;
    let Some(UpstreamUrl { address, .. }) =
        presence.webhook_url.as_ref().filter(|url| url.is_secure)
    else {
        return Ok(None);
    };
    let outward = Outward::new(presence.client_tls(), HTTP)?;
    outward.connector(address).map(Some)
}

/// TLS towards the memcached servers; `None` where they do not speak it.
///
/// # Errors
/// [`RunError::Certificate`].
pub(super) fn memcached(config: &Config) -> Result<Option<Outward<'_>>, RunError> {
    let memcached = &config.memcached;
    let of_files = || Outward::new(memcached.client_tls(), &[]);
    memcached.tls.then(of_files).transpose()
}

/// The connector for Redis; `None` where it does not speak TLS.
///
/// # Errors
/// [`RunError::Certificate`], [`RunError::ServerName`].
pub(super) fn redis(config: &Config) -> Result<Option<Connector>, RunError> {
    let Some(address) = config.redis.secure_address() else {
        return Ok(None);
    };
    let outward = Outward::new(config.redis.client_tls(), &[])?;
    outward.connector(address).map(Some)
}

/// Finds the errors of all of them, but those of [`redis`].
pub(super) fn check(config: &Config) -> Vec<RunError> {
    let mut found = Vec::new();
    match upstream(config) {
        Ok(Some(outward)) => {
            let urls = config.upstream.url.iter().filter(|url| url.is_secure);
            found.extend(urls.filter_map(|url| outward.connector(&url.address).err()));
        }
        Ok(None) => {}
        Err(error) => found.push(error),
    }
    found.extend(webhook(config).err());
    match memcached(config) {
        Ok(Some(outward)) => {
            let servers = config.memcached.servers.iter();
            found.extend(servers.filter_map(|server| outward.connector(&server.address).err()));
        }
        Ok(None) => {}
        Err(error) => found.push(error),
    }
    found
}

/// Adds a certificate that a planted bug trusts to those of a file.
#[cfg(feature = "sim")]
fn with_neighbour(mut pem: Vec<u8>, path: &Path) -> Vec<u8> {
    if dwell_evloop::sim::Planted::TrustNeighbour.is_in() {
        let neighbour = std::fs::read(path.with_file_name("unknown.pem"));
        pem.extend(neighbour.unwrap_or_default());
    }
    pem
}

/// Stands for the path of a file where none is named.
const SYSTEM: &str = "the system's certificates";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn config(options: &str) -> Config {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/data");
        let text = options.replace("DATA", folder);
        config::parse("a", &text, &[]).unwrap()
    }

    fn errors(options: &str) -> Vec<String> {
        let found = check(&config(options));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_side_has_files_and_names_of_its_own() {
        assert!(upstream(&Config::default()).unwrap().is_none());
        assert!(errors("upstream.url = \"http://app\"\n").is_empty());
        let both = config(
            "[upstream]\nurl = [\"https://app.test\", \"http://b.test\"]\n\
             tls_ca = \"DATA/pinned.pem\"\n\
             [presence]\nwebhook_url = \"https://hook.test\"\n\
             webhook_tls_ca = \"DATA/certificate.pem\"\nwebhook_tls_server_name = \"other.test\"\n\
             webhook_tls_certificate = \"DATA/other.pem\"\n\
             webhook_tls_key = \"DATA/other_key.pem\"\n",
        );
        assert!(check(&both).is_empty());
        let outward = upstream(&both).unwrap().unwrap();
        let connector = outward.connector(&both.upstream.url[0].address).unwrap();
        assert_eq!(connector.host(), "app.test");
        assert_eq!(webhook(&both).unwrap().unwrap().host(), "other.test");
    }

    #[test]
    fn the_file_or_the_name_that_is_wrong_is_told_with_its_option() {
        let found = errors(
            "[upstream]\nurl = \"https://a\"\ntls_ca = \"DATA/none.pem\"\n\
             [presence]\nwebhook_url = \"https://b\"\nwebhook_tls_ca = \"DATA/pinned.pem\"\n\
             webhook_tls_certificate = \"DATA/other.pem\"\nwebhook_tls_key = \"DATA/key.pem\"\n",
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("none.pem (upstream.tls_ca): No such file"),
            "{found:?}"
        );
        let mismatch = "key.pem (presence.webhook_tls_key): private key does not belong";
        assert!(found[1].contains(mismatch), "{found:?}");
        let found = errors(
            "[upstream]\nurl = \"https://a\"\ntls_ca = \"DATA/pinned.pem\"\n\
             tls_server_name = \"-.x\"\n",
        );
        let expected = "neither a host name nor an address: -.x (upstream.tls_server_name)";
        assert_eq!(found, [expected]);
    }
}
