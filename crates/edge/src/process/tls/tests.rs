use super::*;
use crate::config;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

fn data(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/data");
    folder.join(name)
}

fn config_of(certificate: &Path, key: &Path) -> Config {
    let text = format!(
        "[tls]\nlisten = \"127.0.0.1:8443\"\ncertificate = {certificate:?}\nkey = {key:?}\n",
    );
    config::parse("a", &text, &[]).unwrap()
}

fn pairs(certificate: &str, key: &str) -> Result<Vec<Pair>, RunError> {
    read(&config_of(&data(certificate), &data(key)))
}

#[test]
fn the_file_that_is_wrong_is_named_with_its_option_and_a_remedy() {
    assert!(read(&Config::default()).unwrap().is_empty());
    assert_eq!(pairs("certificate.pem", "key.pem").unwrap().len(), 1);
    for (certificate, key, expected) in [
        (
            "none.pem",
            "key.pem",
            "none.pem (tls.certificate): No such file or directory (os error 2); check the path",
        ),
        (
            "key.pem",
            "key.pem",
            "key.pem (tls.certificate): certificate cannot be read: no certificate in the file; \
             it has to be PEM",
        ),
        (
            "certificate.pem",
            "other.pem",
            "other.pem (tls.key): private key cannot be read",
        ),
        (
            "certificate.pem",
            "other_key.pem",
            "other_key.pem (tls.key): private key does not belong to the certificate; name each",
        ),
        (
            "certificate.pem",
            "encrypted_key.pem",
            "encrypted_key.pem (tls.key): private key is encrypted; store it without a passphrase",
        ),
        (
            "certificate.pem",
            "encrypted_legacy_key.pem",
            "encrypted_legacy_key.pem (tls.key): private key is encrypted",
        ),
    ] {
        let error = pairs(certificate, key).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn certificates_that_clients_refuse_are_warned_of() {
    let unix = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    let good = pairs("certificate.pem", "key.pem").unwrap();
    let warned = |pairs: &[Pair], now| warnings(pairs, unix(now));
    assert_eq!(warned(&good, 1_900_000_000), [""; 0]);
    let early = warned(&good, 1_700_000_000).concat();
    assert!(
        early.contains("is not valid before 2026-11-24T15:32:11Z"),
        "{early}"
    );
    let late = warned(&good, 5_000_000_000).concat();
    assert!(
        late.contains("expired at 2126-10-31T15:32:11Z; renew it"),
        "{late}"
    );
    let nameless = pairs("nameless.pem", "key.pem").unwrap();
    let nameless = warned(&nameless, 1_900_000_000).concat();
    assert!(
        nameless.contains("nameless.pem (tls.certificate) names no host"),
        "{nameless}"
    );
}

#[test]
fn a_pair_is_read_again_when_a_file_has_changed_and_stays_when_that_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let place = |from: &str, to: &str| {
        // Renamed into place, so that the inode moves though the time may not.
        fs::copy(data(from), file("new")).unwrap();
        fs::rename(file("new"), file(to)).unwrap();
    };
    place("certificate.pem", "chain");
    place("key.pem", "key");
    let config = config_of(&file("chain"), &file("key"));
    let metrics = Arc::new(Metrics::new(1, Vec::new(), 0));
    let pairs = read(&config).unwrap();
    let shown = Certificates::new(
        acceptor(&config, &pairs, 2).unwrap(),
        pairs,
        None,
        Arc::clone(&metrics),
    );
    let names = || -> Vec<String> {
        let told = metrics.certificates();
        told.into_iter().map(|(name, _)| name).collect()
    };
    shown.look();
    assert_eq!(names(), ["dwell.test"]);
    place("other.pem", "chain");
    shown.look();
    assert_eq!(names(), ["dwell.test"], "its key is another one");
    place("other_key.pem", "key");
    shown.look();
    assert_eq!(names(), ["*.other.test"]);
    fs::remove_file(file("key")).unwrap();
    shown.look();
    assert_eq!(names(), ["*.other.test"]);
}

#[test]
fn a_file_is_read_again_when_its_rights_alone_have_changed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let before = stamp(file.path());
    // The time of a change is that of a tick of the kernel.
    let is_seen = dwell_testkit::wait_until(|| {
        fs::set_permissions(file.path(), Permissions::from_mode(0o640)).unwrap();
        stamp(file.path()) != before
    });
    assert!(is_seen);
}

#[test]
fn a_reload_leaves_no_client_unverified_that_is_to_be_verified() {
    let running = config_of(&data("certificate.pem"), &data("key.pem"));
    let mut config = running.clone();
    config.tls.client_ca = Some(data("certificate.pem"));
    let error = verifies_clients(&config, &running).unwrap_err().to_string();
    let expected =
        "certificate.pem (tls.client_ca): clients show certificates only after a restart";
    assert!(error.contains(expected), "{error}");
    assert!(verifies_clients(&config, &config).is_ok());
    assert!(verifies_clients(&running, &config).is_ok());
    let mut optional = config.clone();
    optional.tls.client_auth = ClientAuth::Optional;
    assert!(verifies_clients(&optional, &config).is_ok());
    let error = verifies_clients(&config, &optional).unwrap_err();
    assert!(error.to_string().contains("(tls.client_auth)"), "{error}");
    config.tls.listen.clear();
    assert!(
        verifies_clients(&config, &running).is_ok(),
        "no client comes"
    );
}
