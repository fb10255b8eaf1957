//! Checks of combinations of options.

use super::address::is_loopback;
use super::load::{Draft, route_option};
use super::options::{OptionSpec, single_options};
use super::{
    ClientAuth, Config, PeerAddress, RedisUrl, RouteConfig, UpstreamUrl, show_duration, show_size,
};
use dwell_proto::memcache::Protocols;
use dwell_upstream::UPSTREAMS_MAX;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Reports every conflict between options of the draft.
pub(super) fn check(draft: &mut Draft) {
    let config = draft.config.clone();
    addresses(draft, &config);
    certificates(draft, &config);
    outwards(draft, &config);
    exposure(draft, &config);
    upstream_is_another(draft, &config);
    servers_differ(draft, &config);
    sentinels(draft, &config);
    cluster(draft, &config);
    prefixes(draft, &config);
    sources(draft, &config);
    sizes(draft, &config);
    times(draft, &config);
    routes(draft, &config);
}

/// All addresses that the process listens on, with their options.
fn listeners(config: &Config) -> Vec<(&'static str, SocketAddr)> {
    let mut all: Vec<_> = config
        .server
        .listen
        .iter()
        .map(|one| ("server.listen", *one))
        .collect();
    all.extend(config.tls.listen.iter().map(|one| ("tls.listen", *one)));
    all.extend(config.server.admin.map(|one| ("server.admin", one)));
    all.extend(store_listeners(config));
    all
}

fn store_listeners(config: &Config) -> Vec<(&'static str, SocketAddr)> {
    if !config.uses_embedded_store() {
        return Vec::new();
    }
    let store = &config.store;
    let also = store
        .listen_also
        .iter()
        .map(|one| ("store.listen_also", *one));
    store
        .listen
        .map(|one| ("store.listen", one))
        .into_iter()
        .chain(also)
        .collect()
}

fn addresses(draft: &mut Draft, config: &Config) {
    let listeners = listeners(config);
    for (place, (option, address)) in listeners.iter().enumerate() {
        // Port 0 is any free port.
        let taken = listeners[..place]
            .iter()
            .find(|(_, other)| other == address);
        if let Some((other, _)) = taken.filter(|_| address.port() != 0) {
            let message = format!("`{option}` and `{other}` are both {address}");
            draft.conflict(&[option, other], message, "give each its own port");
        }
    }
}

fn certificates(draft: &mut Draft, config: &Config) {
    let tls = &config.tls;
    let (certificates, keys) = (tls.certificate.len(), tls.key.len());
    if certificates != keys {
        draft.conflict(
            &["tls.key", "tls.certificate"],
            format!("`tls.certificate` has {certificates} files and `tls.key` has {keys}"),
            "name one key for each certificate, in the same order",
        );
    } else if !tls.ocsp.is_empty() && tls.ocsp.len() != certificates {
        let responses = tls.ocsp.len();
        draft.conflict(
            &["tls.ocsp", "tls.certificate"],
            format!("`tls.certificate` has {certificates} files and `tls.ocsp` has {responses}"),
            "name one response for each certificate, in the same order, or none at all",
        );
    } else if certificates == 0 && !tls.listen.is_empty() && !tls.self_signed {
        draft.conflict(
            &["tls.listen", "tls.certificate"],
            "`tls.listen` needs a certificate".to_owned(),
            "name a PEM file in tls.certificate and its private key in tls.key",
        );
    }
    if tls.ticket_keys.is_some() && tls.client_ca.is_some() {
        draft.conflict(
            &["tls.ticket_keys", "tls.client_ca"],
            "`tls.ticket_keys` has no effect: clients with certificates resume no session"
                .to_owned(),
            "remove tls.ticket_keys",
        );
    }
    if !config.publish.clients.is_empty() && tls.client_ca.is_none() {
        draft.conflict(
            &["publish.clients", "tls.client_ca"],
            "`publish.clients` has no effect: no client is asked for a certificate".to_owned(),
            "name the PEM file of the authorities in tls.client_ca",
        );
    }
    if tls.client_auth == ClientAuth::Optional && tls.client_ca.is_none() {
        draft.conflict(
            &["tls.client_auth", "tls.client_ca"],
            "`tls.client_auth` has no effect: no client is asked for a certificate".to_owned(),
            "name the PEM file of the authorities in tls.client_ca",
        );
    }
    if tls.client_cert_field && tls.client_ca.is_none() {
        draft.conflict(
            &["tls.client_cert_field", "tls.client_ca"],
            "`tls.client_cert_field` has no effect: no client is asked for a certificate"
                .to_owned(),
            "name the PEM file of the authorities in tls.client_ca",
        );
    }
    if tls.self_signed && certificates > 0 {
        draft.conflict(
            &["tls.self_signed", "tls.certificate"],
            "`tls.self_signed` makes the certificate, and `tls.certificate` names one".to_owned(),
            "keep one of them",
        );
    }
    let elsewhere = tls.listen.iter().find(|at| !is_loopback(at.ip()));
    if let (true, Some(at)) = (tls.self_signed, elsewhere) {
        draft.conflict(
            &["tls.self_signed", "tls.listen"],
            format!("a self-signed certificate is for this machine alone, not for {at}"),
            "listen on 127.0.0.1, or name a certificate in tls.certificate",
        );
    }
}

/// Reports options of TLS towards servers that would do nothing, or not what they say.
fn outwards(draft: &mut Draft, config: &Config) {
    let webhook = config.presence.webhook_url.as_ref();
    let sides = [
        (
            config.upstream.client_tls(),
            config.upstream.is_secure(),
            "upstream.url",
        ),
        (
            config.presence.client_tls(),
            webhook.is_some_and(|url| url.is_secure),
            "presence.webhook_url",
        ),
        (
            config.memcached.client_tls(),
            config.memcached.tls,
            "memcached.tls",
        ),
        (
            config.redis.client_tls(),
            config.redis.is_any_secure(),
            config.redis.switch().unwrap_or("redis.url"),
        ),
    ];
    for (files, is_secure, switch) in sides {
        if let (Some(option), false) = (files.first(), is_secure) {
            draft.conflict(
                &[option, switch],
                format!("`{option}` has no effect: `{switch}` is not for TLS"),
                "write https:// or rediss:// in a URL, or memcached.tls = true, where the server \
                 speaks TLS",
            );
        }
        let ((certificate, has_certificate), (key, has_key)) = (files.certificate, files.key);
        if has_certificate.is_some() != has_key.is_some() {
            draft.conflict(
                &[certificate, key],
                format!("`{certificate}` and `{key}` need one another"),
                "name the certificate's PEM file and that of its private key",
            );
        }
    }
}

fn exposure(draft: &mut Draft, config: &Config) {
    let is_guarded = config.store.allow_remote || config.store.auth_file.is_some();
    let exposed = store_listeners(config)
        .into_iter()
        .find(|(_, listen)| !is_loopback(listen.ip()) && !is_guarded);
    if let Some((option, listen)) = exposed {
        draft.conflict(
            &[option, "store.allow_remote"],
            format!("other machines can reach the store at {listen} without a password"),
            "listen on 127.0.0.1, name a store.auth_file, or set store.allow_remote = true",
        );
    }
    if config.store.auth_file.is_some() && config.store.protocols == Protocols::Binary {
        draft.conflict(
            &["store.auth_file", "store.protocols"],
            "the binary protocol has no way to log in".to_owned(),
            "set store.protocols to \"auto\" or \"ascii\"",
        );
    }
}

fn upstream_is_another(draft: &mut Draft, config: &Config) {
    for UpstreamUrl { address, .. } in &config.upstream.url {
        is_another(draft, config, address);
    }
}

fn is_another(draft: &mut Draft, config: &Config, address: &PeerAddress) {
    let host = if address.host == "localhost" {
        "127.0.0.1"
    } else {
        &address.host
    };
    let Ok(ip) = host.parse::<IpAddr>() else {
        return;
    };
    let upstream = SocketAddr::new(ip, address.port);
    let own = listeners(config)
        .into_iter()
        .find(|(_, own)| *own == upstream);
    if let Some((option, _)) = own {
        draft.conflict(
            &["upstream.url", option],
            format!("the upstream {upstream} is this process's own `{option}`"),
            "give the application and the edge different ports",
        );
    }
}

fn servers_differ(draft: &mut Draft, config: &Config) {
    let urls = &config.upstream.url;
    for (place, url) in urls.iter().enumerate() {
        if urls[..place].contains(url) {
            let message = format!("the upstream {url} is named twice");
            draft.conflict(&["upstream.url"], message, "name each server once");
        }
    }
    if urls.len() > UPSTREAMS_MAX {
        let message = format!("upstreams exceed {UPSTREAMS_MAX}: {}", urls.len());
        draft.conflict(&["upstream.url"], message, "put a balancer in between");
    }
    let servers = &config.memcached.servers;
    for (place, server) in servers.iter().enumerate() {
        if servers[..place]
            .iter()
            .any(|other| other.address == server.address)
        {
            let message = format!("the memcached server {} is named twice", server.address);
            draft.conflict(
                &["memcached.servers"],
                message,
                "use a weight for a larger share",
            );
        }
    }
}

/// Reports Sentinels without the name of what they know, and the like.
fn sentinels(draft: &mut Draft, config: &Config) {
    let redis = &config.redis;
    if redis.sentinels.is_empty() != redis.sentinel_name.is_none() {
        draft.conflict(
            &["redis.sentinels", "redis.sentinel_name"],
            "`redis.sentinels` and `redis.sentinel_name` need one another".to_owned(),
            "name the Sentinels and the primary that they know",
        );
    }
    if redis.sentinels.is_empty() {
        return;
    }
    if redis.url.is_some() {
        draft.conflict(
            &["redis.url", "redis.sentinels"],
            "the server is named twice: redis.url and redis.sentinels exclude one another"
                .to_owned(),
            "remove redis.url: the Sentinels know the server",
        );
    }
    secure(draft, config, "redis.sentinels", &redis.sentinels);
}

/// Reports a cluster beside another server, and what a cluster does not have.
fn cluster(draft: &mut Draft, config: &Config) {
    let redis = &config.redis;
    if redis.cluster.is_empty() {
        return;
    }
    let others = [
        ("redis.url", redis.url.is_some()),
        ("redis.sentinels", !redis.sentinels.is_empty()),
    ];
    for (other, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
        draft.conflict(
            &[other, "redis.cluster"],
            format!("the server is named twice: {other} and redis.cluster exclude one another"),
            "remove one of them",
        );
    }
    if redis.database > 0 {
        draft.conflict(
            &["redis.cluster", "redis.database"],
            format!("a cluster has database 0 alone, not {}", redis.database),
            "remove redis.database",
        );
    }
    secure(draft, config, "redis.cluster", &redis.cluster);
}

/// Reports servers of which some are under TLS, or whose certificates are for an unknown name.
fn secure(draft: &mut Draft, config: &Config, option: &'static str, urls: &[RedisUrl]) {
    let is_secure = |url: &&RedisUrl| matches!(url, RedisUrl::Secure(_));
    let secure = urls.iter().filter(is_secure).count();
    if secure != 0 && secure != urls.len() {
        draft.conflict(
            &[option],
            format!("some servers of {option} are reached under TLS, and some are not"),
            "write rediss:// for all of them; it is for the servers that they name as well",
        );
    } else if secure != 0 && config.redis.tls_server_name.is_none() {
        draft.conflict(
            &[option, "redis.tls_server_name"],
            format!(
                "under TLS `{option}` needs `redis.tls_server_name`: servers are named by their \
                 addresses"
            ),
            "name what the certificates of all servers are for",
        );
    }
}

/// Reports prefixes that Redis refuses.
fn prefixes(draft: &mut Draft, config: &Config) {
    let prefixes = &config.redis.tracking_prefixes;
    if prefixes.len() > PREFIXES_MAX {
        draft.conflict(
            &["redis.tracking_prefixes"],
            format!(
                "more than {PREFIXES_MAX} prefixes: {}; each write on the server is compared with \
                 all of them",
                prefixes.len()
            ),
            "write shorter ones that cover several",
        );
        return;
    }
    for (place, one) in prefixes.iter().enumerate() {
        let mut others = prefixes.iter().enumerate().filter(|it| it.0 != place);
        if let Some((_, other)) = others.find(|it| it.1.starts_with(one)) {
            draft.conflict(
                &["redis.tracking_prefixes"],
                format!("redis.tracking_prefixes overlap: `{other}` begins with `{one}`"),
                "remove the longer one: the shorter one covers it",
            );
            return;
        }
    }
}

/// Prefixes that a connection may ask for.
const PREFIXES_MAX: usize = 64;

/// Values have one source.
fn sources(draft: &mut Draft, config: &Config) {
    let Some(redis) = config.redis.switch() else {
        return;
    };
    if !config.memcached.servers.is_empty() {
        draft.conflict(
            &[redis, "memcached.servers"],
            format!(
                "values come from one source: {redis} and memcached.servers exclude one another"
            ),
            "remove one of the two",
        );
    }
    // A file with every default, and a store that is off, contradict nothing.
    let default = Config::default();
    let differs = |spec: &&OptionSpec<Config>| {
        let is_off = spec.name == "listen" && config.store.listen.is_none();
        spec.section == "store" && !is_off && !(spec.is_same)(config, &default)
    };
    if let Some(spec) = single_options().find(differs) {
        let option = spec.full_name();
        draft.conflict(
            &[&option, redis],
            format!("values come from one source: {redis} and {option} exclude one another"),
            "remove one of the two: the server, or the options of the embedded store",
        );
    }
}

fn sizes(draft: &mut Draft, config: &Config) {
    let (store, limits) = (&config.store, &config.limits);
    let publishes_to_redis = config.redis.is_on() && config.publish.is_on();
    let read_bytes_max = if publishes_to_redis {
        config.redis.value_bytes_max as u64
    } else {
        u64::MAX
    };
    let pairs = [
        (
            ("store.item_bytes_max", store.item_bytes_max as u64),
            ("store.bytes_max", store.bytes_max as u64 / 2),
            "a value may take at most half of store.bytes_max",
        ),
        (
            ("limits.target_bytes_max", limits.target_bytes_max as u64),
            ("limits.head_bytes_max", limits.head_bytes_max as u64),
            "the request target is a part of the head",
        ),
        (
            ("publish.value_bytes_max", config.publish.value_bytes_max),
            ("redis.value_bytes_max", read_bytes_max),
            "a value that is published has to be read again",
        ),
    ];
    for ((smaller, size), (larger, bound), why) in pairs {
        if size > bound {
            let (size, bound) = (show_size(size), show_size(bound));
            let message = format!("`{smaller}` exceeds {bound}: {size}");
            draft.conflict(&[smaller, larger], message, why);
        }
    }
}

fn times(draft: &mut Draft, config: &Config) {
    let upstream = &config.upstream;
    let message = longer(
        "upstream.header_timeout",
        upstream.header_timeout,
        upstream.total_timeout,
    );
    if let Some(message) = message {
        let options = ["upstream.header_timeout", "upstream.total_timeout"];
        draft.conflict(
            &options,
            message,
            "upstream.total_timeout covers the whole exchange",
        );
    }
}

fn routes(draft: &mut Draft, config: &Config) {
    for (index, route) in config.routes.iter().enumerate() {
        let option = |name| route_option(index, name);
        let twin = config.routes[..index]
            .iter()
            .position(|other| other.prefix == route.prefix);
        if let Some(twin) = twin {
            let message = format!("two routes have the prefix `{}`", route.prefix);
            let options = [option("prefix"), route_option(twin, "prefix")];
            draft.conflict(
                &[options[0].as_str(), options[1].as_str()],
                message,
                "keep one of them",
            );
        }
        if route.access.publish && !config.publish.is_on() {
            draft.conflict(
                &[option("publish").as_str()],
                format!(
                    "no client can publish under `{}` without a token",
                    route.prefix
                ),
                "set publish.token_file, publish.token or publish.clients",
            );
        }
        guards(draft, config, index, route);
        client_keys(draft, config, index, route);
        if let Some(message) = longer("wait_default", route.wait_default, route.wait_max) {
            let options = [option("wait_default"), option("wait_max")];
            draft.conflict(
                &[options[0].as_str(), options[1].as_str()],
                message,
                "wait_max bounds every wait of the route",
            );
        }
    }
}

fn guards(draft: &mut Draft, config: &Config, index: usize, route: &RouteConfig) {
    let access = &route.access;
    let option = |name| route_option(index, name);
    if access.cors_credentials && access.cors_origins.iter().any(|origin| origin == "*") {
        draft.conflict(
            &[
                option("cors_credentials").as_str(),
                option("cors_origins").as_str(),
            ],
            "pages of every origin could read responses to a client's cookies".to_owned(),
            "name the origins whose pages may",
        );
    }
    if access.jwt && !config.jwt.is_on() {
        draft.conflict(
            &[option("jwt").as_str()],
            format!("no token for `{}` could be verified", route.prefix),
            "set jwt.secret_file, jwt.public_key_file or jwt.jwks_file",
        );
    }
    if access.auth.is_some() && !config.has_upstream() {
        draft.conflict(
            &[option("auth").as_str()],
            format!("no application can decide on `{}`", route.prefix),
            "set upstream.url",
        );
    }
    if route.key.granted_names().next().is_some() && (access.auth.is_none() || access.publish) {
        draft.conflict(
            &[option("key").as_str(), option("auth").as_str()],
            "only an application that is asked about a request gives fields to its key".to_owned(),
            "set auth to a path, and publish on a route or by a key of its own",
        );
    }
    if route.key.takes_claims() && (!access.jwt || access.publish) {
        let message = if access.publish {
            "publishers have no claims to make a key of"
        } else {
            "without tokens there are no claims to make a key of"
        };
        draft.conflict(
            &[option("key").as_str(), option("jwt").as_str()],
            message.to_owned(),
            "set jwt = true, and publish on a route or by a key of its own",
        );
    }
}

/// Reports keys that are made of a client's certificate, but would be of no client, or of several.
fn client_keys(draft: &mut Draft, config: &Config, index: usize, route: &RouteConfig) {
    if !route.key.takes_client() {
        return;
    }
    let option = route_option(index, "key");
    if config.tls.client_ca.is_none() {
        draft.conflict(
            &[option.as_str(), "tls.client_ca"],
            "no client is asked for the certificate that this key is made of".to_owned(),
            "name the PEM file of the authorities in tls.client_ca",
        );
    }
    if route.key.has_client_without_separator() {
        draft.conflict(
            &[option.as_str()],
            "a name of a certificate would run into the next part of the key".to_owned(),
            "write a character between them that no name has, such as | or :",
        );
    }
    if route.key.has_client_between_chosen() {
        draft.conflict(
            &[option.as_str()],
            "clients choose what stands before and behind a name of a certificate, and so could \
             write the name of another"
                .to_owned(),
            "put the names of the certificate first",
        );
    }
    if route.access.publish {
        draft.conflict(
            &[option.as_str(), route_option(index, "publish").as_str()],
            "publishers would store the values of their own certificate's name alone".to_owned(),
            "publish on a route or by a key of its own",
        );
    }
}

fn longer(option: &str, time: Duration, bound: Duration) -> Option<String> {
    let (shown, bound_shown) = (show_duration(time), show_duration(bound));
    (time > bound).then(|| format!("`{option}` exceeds {bound_shown}: {shown}"))
}
