//! Explanation of the response that a poll would get, without polling.

use super::ask::Ask;
use super::common::shared_form;
use super::decide::{Content, Decision, Stage, decide};
use super::explanation::{Explained, Explanation, Live, Topic, Valued};
use super::fetch::wants;
use super::watchers::Watchers;
use crate::access::{Identity, KeyInputs, forwarded_scheme, redacted};
use crate::config::{
    Ambiguous, Config, OnDelete, Route, RouteConfig, Routes, Rules, show_duration,
};
use crate::cursor::{Condition, Cursor};
use dwell_proto::http1::{FieldStorage, HeadLimits, RequestHead, parse_request};
use serde_json::json;

/// The key of a request, if it is a poll and its template makes one.
pub(crate) fn explained_key(config: &Config, explained: &Explained) -> Option<Box<[u8]>> {
    let bytes = explained.head();
    let mut storage = FieldStorage::new();
    let head = parse_request(&bytes, &mut storage, &HeadLimits::default()).ok()?;
    let routes = Routes::new(config);
    let route = routes.get(routes.choose(head.path).ok()??);
    let mut scratch = Vec::new();
    let identity = explained.identity();
    let inputs = inputs(&head, identity.as_ref());
    let key = (route.key).render(head.path, head.query, &inputs, &mut scratch);
    key.ok().map(Into::into)
}

/// The inputs of the key of a request whose client was not verified. Its scheme is taken for the
/// word of a trusted proxy, and the names of its certificate for verified ones.
fn inputs<'a>(head: &RequestHead<'a, 'a>, identity: Option<&'a Identity>) -> KeyInputs<'a> {
    KeyInputs {
        fields: head.fields,
        scheme: forwarded_scheme(head.fields).unwrap_or("http"),
        identity,
    }
}

/// Explains a request as far as a configuration alone can.
///
/// # Errors
/// The fault of the request.
pub fn explain_configuration(
    config: &Config,
    explained: &Explained,
) -> Result<Explanation, String> {
    explain(config, explained, None)
}

/// Says what becomes of a request; without `live`, what the configuration alone tells.
///
/// # Errors
/// The fault of the request.
pub(crate) fn explain(
    config: &Config,
    explained: &Explained,
    live: Option<&Live>,
) -> Result<Explanation, String> {
    let bytes = explained.head();
    let mut storage = FieldStorage::new();
    let head = parse_request(&bytes, &mut storage, &HeadLimits::default());
    let head = head.map_err(|error| error.to_string())?;
    let mut explanation = Explanation::new(explained, live.is_some());
    let token_parameter = config.jwt.query_parameter.as_deref();
    explanation.request = redacted(&explanation.request, token_parameter).into_owned();
    let topics = &mut explanation.topics;
    let routes = Routes::new(config);
    let route = match routes.choose(head.path) {
        Ok(route) => route.map(|route| routes.get(route)),
        Err(ambiguous) => {
            topics.push(ambiguous_topic(head.path, ambiguous));
            return Ok(explanation);
        }
    };
    topics.push(route_topic(
        config,
        route.map(|route| &*route.options),
        &head,
    ));
    let Some(route) = route else {
        topics.push(upstream_topic(config, live));
        return Ok(explanation);
    };
    let identity = explained.identity();
    let (key, has_key) = key_topic(route, &head, identity.as_ref());
    topics.push(key);
    if has_key {
        topics.push(place_topic(config, live));
        if let Some(live) = live {
            topics.push(value_topic(&live.value));
            topics.push(watchers_topic(live));
        }
    }
    if has_key && route.methods.allows(head.method) {
        let mut ask = ask_of(route, &head)?;
        ask.shareable &= !config.tls.client_cert_field || identity.is_none();
        topics.push(answers_topic(route, ask, live));
        if config.has_upstream() {
            topics.push(miss_topic(config, route, &head, &ask));
        }
    }
    topics.push(upstream_topic(config, live));
    topics.push(limits_topic(config, route));
    Ok(explanation)
}

fn route_topic(config: &Config, route: Option<&RouteConfig>, head: &RequestHead<'_, '_>) -> Topic {
    let path = head.path;
    let Some(route) = route else {
        let prefixes: Vec<_> = config.routes.iter().map(|r| r.prefix.as_str()).collect();
        let says = format!(
            "no poll: no route begins {path} (there are {})",
            prefixes.join(", ")
        );
        return Topic::new("route", says).fact("prefix", json!(null));
    };
    let others = config.routes.iter().map(|other| &**other);
    let shorter = others.filter(|other| path.starts_with(&other.prefix) && *other != route);
    let shorter: Vec<_> = shorter.map(|other| other.prefix.as_str()).collect();
    let mut topic = if shorter.is_empty() {
        Topic::new(
            "route",
            format!("{}, the only one that begins the path", route.prefix),
        )
    } else {
        let why = format!("the longest that begins the path; {}", shorter.join(", "));
        Topic::new("route", format!("{}, {why} would as well", route.prefix))
    };
    if !route.methods.allows(head.method) {
        let allow = route.methods.allow_field();
        topic.say(format!("405: it answers {allow}, not {}", head.method));
    }
    topic.fact("prefix", json!(route.prefix))
}

/// Tells that a path is refused which leads to one route as it came, to another as it may be read.
fn ambiguous_topic(path: &str, ambiguous: Ambiguous) -> Topic {
    let Ambiguous { reading, prefix } = ambiguous;
    let mut topic = Topic::new(
        "route",
        format!("400: applications read {path} differently"),
    );
    topic.say(match (&reading, &prefix) {
        (Some(reading), Some(prefix)) => format!("as {reading} it is for {prefix}"),
        (Some(reading), None) => format!("as {reading} it is for no route"),
        (None, _) => "it has a NUL, or too many readings to try".to_owned(),
    });
    let topic = topic.fact("prefix", json!(null));
    let topic = topic.fact("reading", json!(reading));
    topic.fact("read_as", json!(prefix))
}

fn key_topic<'a>(
    route: &RouteConfig,
    head: &RequestHead<'a, 'a>,
    identity: Option<&'a Identity>,
) -> (Topic, bool) {
    let mut scratch = Vec::new();
    let requested = inputs(head, identity);
    let key = route
        .key
        .render(head.path, head.query, &requested, &mut scratch);
    let template = route.key.to_string();
    match key {
        Ok(key) => {
            let key = String::from_utf8_lossy(key).into_owned();
            let topic = Topic::new("key", format!("{key} (made by {template})"));
            let topic = topic.fact("key", json!(key));
            (topic.fact("template", json!(template)), true)
        }
        Err(error) => {
            let lacks = route.key.lacking(head.path, head.query, &requested);
            let lacks_client = lacks.iter().any(|part| part.starts_with("{tls.client."));
            let status = if lacks_client { 403 } else { error.status() };
            let mut topic = Topic::new("key", format!("{status}: {error}"));
            if !lacks.is_empty() {
                topic.say(format!("{template} lacks {}", lacks.join(", ")));
            }
            if route.key.takes_claims() || route.key.granted_names().next().is_some() {
                let why = "claims and what the application grants are not looked up here";
                topic.say(why.to_owned());
            }
            if lacks_client {
                let why = "a client needs a verified certificate with one such name; to explain \
                           one, name it by --client-cn or --client-san";
                topic.say(why.to_owned());
            }
            let topic = topic.fact("key", json!(null)).fact("lacks", json!(lacks));
            (topic.fact("template", json!(template)), false)
        }
    }
}

fn place_topic(config: &Config, live: Option<&Live>) -> Topic {
    let (kind, configured) = if config.uses_embedded_store() {
        ("embedded", "the embedded store".to_owned())
    } else if let Some(place) = config.redis.place() {
        ("redis", format!("Redis {place}"))
    } else {
        let servers = config.memcached.servers.iter();
        let names: Vec<_> = servers.map(|server| server.address.to_string()).collect();
        (
            "memcached",
            format!("one of memcached {}", names.join(", ")),
        )
    };
    let says = live.map_or(configured, |live| live.place.clone());
    Topic::new("store", says).fact("kind", json!(kind))
}

fn value_topic(value: &Valued) -> Topic {
    let value = match value {
        Valued::Unasked => return Topic::new("value", "no server was asked".to_owned()),
        Valued::Unknown(why) => {
            return Topic::new("value", format!("unknown: {why}")).fact("there", json!(null));
        }
        Valued::Missing => {
            return Topic::new("value", "none".to_owned()).fact("there", json!(false));
        }
        Valued::There(value) => value,
    };
    let cursor = cursor_text(value.content.cursor);
    let ttl = value.ttl.map_or("never expires".to_owned(), |seconds| {
        format!("expires in {seconds} s")
    });
    let mut topic = Topic::new(
        "value",
        format!(
            "{} bytes, cursor {cursor}, cas {}, flags {}, {ttl}",
            value.bytes, value.cas, value.flags
        ),
    );
    if value.content.is_empty {
        topic.say("empty, which means: nothing new".to_owned());
    }
    let topic = topic
        .fact("there", json!(true))
        .fact("ttl", json!(value.ttl));
    let topic = topic.fact("bytes", json!(value.bytes));
    let topic = topic.fact("cursor", json!(cursor));
    let topic = topic.fact("cas", json!(value.cas));
    topic.fact("flags", json!(value.flags))
}

fn watchers_topic(live: &Live) -> Topic {
    let Watchers {
        polls,
        streams,
        websockets,
    } = live.watchers;
    let says = format!("{polls} polls, {streams} streams, {websockets} WebSockets");
    let mut topic = Topic::new("watchers", says);
    let (asked, answered) = live.loops;
    if answered < asked {
        topic.say(format!("only {answered} of {asked} loops have answered"));
    }
    topic.fact("watchers", json!(live.watchers))
}

/// The answers to the request as it is, and to others like it.
fn answers_topic(route: &Route, ask: Ask, live: Option<&Live>) -> Topic {
    let value = live.map(|live| &live.value);
    let content = match value {
        Some(Valued::There(value)) => Some(value.content),
        _ => None,
    };
    let is_known = matches!(value, Some(Valued::There(_) | Valued::Missing));
    let mut topic = Topic::new("answers", String::new());
    topic.says.clear();
    let mut answers = Vec::new();
    for (case, ask) in cases(ask, content, route) {
        let known = is_known || content.is_some();
        let contents: &[_] = if known {
            &[(content, "")]
        } else {
            let any = Content {
                cursor: Cursor::of(b"any", 0),
                is_empty: false,
            };
            &[(Some(any), ", with a value"), (None, ", with none")]
        };
        for (content, suffix) in contents {
            let (word, why) = outlook(&ask, *content, route.rules);
            let case = format!("{case}{suffix}");
            topic.say(format!("{case}: {why}"));
            answers.push(json!({"case": case, "gets": word, "why": why}));
        }
    }
    if route.on_delete != OnDelete::Origin {
        topic.say(format!(
            "a held poll whose key goes away: {}",
            if route.on_delete == OnDelete::NotFound {
                "404"
            } else {
                "stays held"
            }
        ));
    }
    topic.fact("answers", json!(answers))
}

/// The form in which a miss is sent to the application.
fn miss_topic(
    config: &Config,
    route: &RouteConfig,
    head: &RequestHead<'_, '_>,
    ask: &Ask,
) -> Topic {
    let form = ask
        .is_shared(route)
        .then(|| shared_form(config, route, head, wants(ask)));
    let Some((target, left_out)) = form.flatten() else {
        let says = "sent as it came, and its answer is shared with no other client".to_owned();
        return Topic::new("miss", says).fact("shared", json!(false));
    };
    let says = format!(
        "shared by clients that ask the same, as {} {target}",
        head.method
    );
    let mut topic = Topic::new("miss", says);
    if !left_out.is_empty() {
        topic.say(format!("sent without {}", left_out.join(", ")));
    }
    let topic = topic.fact("shared", json!(true));
    let topic = topic.fact("target", json!(target));
    topic.fact("left_out", json!(left_out))
}

/// The question of a request on a route.
fn ask_of(route: &RouteConfig, head: &RequestHead<'_, '_>) -> Result<Ask, String> {
    Ask::of(head, route, None).map_err(|error| error.to_string())
}

fn cases(ask: Ask, content: Option<Content>, route: &RouteConfig) -> Vec<(&'static str, Ask)> {
    let bare = Ask {
        condition: Condition::None,
        wait_ms: 0,
        is_stream: false,
        ..ask
    };
    let mut cases = vec![("as asked", ask), ("without a cursor or a wait", bare)];
    if let Some(content) = content {
        let current = Ask {
            condition: Condition::Since(content.cursor),
            ..bare
        };
        let longest = u32::try_from(route.wait_max.as_millis()).unwrap_or(u32::MAX);
        cases.push(("with the cursor of now", current));
        if longest > 0 {
            let waits = Ask {
                wait_ms: longest,
                ..current
            };
            cases.push(("with it and the longest wait", waits));
        }
    }
    cases
}

/// The outcome of a poll, as one word and as text.
fn outlook(ask: &Ask, content: Option<Content>, rules: Rules) -> (&'static str, String) {
    if ask.is_stream && (content.is_some() || !rules.has_upstream) {
        let begins = "200, a stream that begins with what there is".to_owned();
        return ("stream", begins);
    }
    match decide(ask, content, Stage::Arrived, rules) {
        Decision::Value => {
            let why = match ask.condition {
                Condition::None => "it has nothing yet",
                Condition::Foreign => "what it has is no cursor of ours",
                _ => "it has another cursor",
            };
            ("hit", format!("hit, the value at once: {why}"))
        }
        Decision::NotModified(status) => {
            let why = "it has the value and does not wait";
            ("unchanged", format!("unchanged, {status} at once: {why}"))
        }
        Decision::Wait => {
            let why = if content.is_some() {
                "it has the value"
            } else {
                "there is no value, and no application to ask"
            };
            let wait = show_duration(ask.wait());
            ("wait", format!("wait, held for up to {wait}: {why}"))
        }
        Decision::Miss => {
            let why = "there is no value, so the application answers";
            ("miss", format!("miss: {why}"))
        }
        Decision::NotFound => {
            let why = "there is no value, and no application to ask";
            ("not_found", format!("404: {why}"))
        }
    }
}

fn upstream_topic(config: &Config, live: Option<&Live>) -> Topic {
    if !config.has_upstream() {
        return Topic::new("upstream", "none: nothing is forwarded".to_owned());
    }
    let urls: Vec<_> = config
        .upstream
        .url
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut topic = Topic::new("upstream", urls.join(", "));
    if urls.len() > 1 {
        topic.say("the one with the fewest requests in progress".to_owned());
    }
    for (address, is_up) in live.map_or(&[][..], |live| &live.upstreams) {
        let state = if *is_up { "up" } else { "left out" };
        topic.say(format!("{address} is {state}"));
    }
    topic.fact("urls", json!(urls))
}

fn limits_topic(config: &Config, route: &RouteConfig) -> Topic {
    let access = &route.access;
    let limits = &config.limits;
    let longest = show_duration(route.wait_max);
    let mut topic = Topic::new(
        "limits",
        format!("{} waiters, waits of {longest}", limits.waiters_max),
    );
    if let Some(rate) = access.rate_per_address {
        topic.say(format!("{rate} for each client address, then 429"));
    }
    if let Some(rate) = access.rate_per_key {
        topic.say(format!("{rate} for each key, then 429"));
    }
    if access.jwt {
        topic.say("a token is needed (jwt), else 401; it is not verified here".to_owned());
    }
    if let Some(path) = &access.auth {
        topic.say(format!("the application is asked first who may, at {path}"));
    }
    let topic = topic.fact("waiters_max", json!(limits.waiters_max));
    let rate = |rate: Option<crate::config::Rate>| rate.map(|rate| rate.to_string());
    let topic = topic.fact("rate_per_address", json!(rate(access.rate_per_address)));
    let topic = topic.fact("rate_per_key", json!(rate(access.rate_per_key)));
    topic
        .fact("jwt", json!(access.jwt))
        .fact("auth", json!(access.auth))
}

fn cursor_text(cursor: Cursor) -> String {
    String::from_utf8_lossy(cursor.text().bare()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::polls::explanation::Value;
    use std::sync::Arc;

    fn gets(target: &str, value: Valued, upstream: bool) -> Vec<String> {
        let mut config = Config::default();
        if upstream {
            config.upstream.url = vec!["http://127.0.0.1:1".parse().unwrap()];
        }
        let explained = Explained::new("GET", target, Vec::new());
        let live = Live {
            value,
            ..Live::default()
        };
        let explanation = explain(&config, &explained, Some(&live)).unwrap();
        let topic = |topic: &&Topic| topic.name == "answers";
        let answers = explanation.topics.iter().find(topic).unwrap();
        let cases = answers.facts["answers"].as_array().unwrap();
        let word = |case: &serde_json::Value| case["gets"].as_str().unwrap().to_owned();
        cases.iter().map(word).collect()
    }

    #[test]
    fn the_answers_are_those_of_the_table() {
        let there = Valued::There(Value::new(b"hello", 0, 7, None));
        assert_eq!(
            gets("/poll/x", there.clone(), false),
            ["hit", "hit", "unchanged", "wait"]
        );
        let since = "/poll/x?since=lVXoVVxi3P0&wait=5";
        assert_eq!(gets(since, there, false)[0], "wait");
        assert_eq!(gets("/poll/x", Valued::Missing, true), ["miss", "miss"]);
        assert_eq!(gets("/poll/x", Valued::Missing, false)[0], "not_found");
        let both = gets("/poll/x", Valued::Unknown("down".to_owned()), true);
        assert_eq!(both, ["hit", "miss", "hit", "miss"]);
    }

    #[test]
    fn a_miss_says_what_a_shared_request_leaves_out() {
        let mut config = Config::default();
        config.upstream.url = vec!["http://127.0.0.1:1".parse().unwrap()];
        Arc::make_mut(&mut config.routes[0]).key = "{path}:{header.X-Room}".parse().unwrap();
        let miss = |method: &str, target: &str, fields: &[&str]| {
            let fields = fields.iter().map(ToString::to_string).collect();
            let explained = Explained::new(method, target, fields);
            let explanation = explain(&config, &explained, None).unwrap();
            let mut topics = explanation.topics.into_iter();
            topics.find(|topic| topic.name == "miss").unwrap()
        };
        let fields = ["X-Room: 1", "X-Tenant: 2", "x-tenant: 3", "Range: a"];
        let shared = miss("GET", "/poll/x?since=a&b=1&wait=5", &fields);
        assert_eq!(shared.facts["shared"], json!(true));
        assert_eq!(shared.facts["target"], json!("/poll/x?b=1"));
        assert_eq!(shared.facts["left_out"], json!(["X-Tenant", "Range"]));
        assert_eq!(shared.says[1], "sent without X-Tenant, Range");
        for (method, field) in [
            ("GET", "Cookie: a=b"),
            ("GET", "Authorization: Basic YTpi"),
            ("HEAD", "X-Tenant: 2"),
            ("POST", "X-Tenant: 2"),
        ] {
            let own = miss(method, "/poll/x", &["X-Room: 1", field]);
            assert_eq!(own.facts["shared"], json!(false), "{method} {field}");
        }
    }

    #[test]
    fn a_path_that_is_refused_says_how_it_may_be_read() {
        let mut config = Config::default();
        Arc::make_mut(&mut config.routes[0]).access.publish = true;
        let explained = Explained::new("GET", "/x/..%2fpoll/a", Vec::new());
        assert_eq!(explained_key(&config, &explained), None);
        let explanation = explain(&config, &explained, None).unwrap();
        let [route] = &explanation.topics[..] else {
            panic!("{:?}", explanation.topics)
        };
        assert!(route.says[0].starts_with("400: "), "{:?}", route.says);
        assert_eq!(route.facts["reading"], json!("/poll/a"));
        assert_eq!(route.facts["read_as"], json!("/poll/"));
    }

    #[test]
    fn a_key_says_what_it_lacks() {
        let mut config = Config::default();
        Arc::make_mut(&mut config.routes[0]).key =
            "{path}:{query.user}:{header.X-A}".parse().unwrap();
        let fields = vec!["x-a: 1".to_owned()];
        let explained = Explained::new("GET", "/poll/x", fields.clone());
        assert_eq!(explained_key(&config, &explained), None);
        let explanation = explain(&config, &explained, None).unwrap();
        assert_eq!(
            explanation.topics[1].facts["lacks"],
            json!(["{query.user}"])
        );
        let whole = Explained::new("GET", "/poll/x?user=u", fields);
        assert_eq!(
            explained_key(&config, &whole).as_deref(),
            Some(&b"/poll/x:u:1"[..])
        );
    }

    #[test]
    fn the_scheme_and_the_names_of_a_certificate_are_those_that_are_given() {
        let key = |template: &str, field: &str, explained: fn(Explained) -> Explained| {
            let mut config = Config::default();
            Arc::make_mut(&mut config.routes[0]).key = template.parse().unwrap();
            let request = explained(Explained::new("GET", "/poll/x", vec![field.to_owned()]));
            let explanation = explain(&config, &request, None).unwrap();
            let topic = explanation.topics.into_iter().nth(1).unwrap();
            (topic.facts["key"].as_str().map(str::to_owned), topic.says)
        };
        for (field, scheme) in [
            ("X-Forwarded-Proto: HTTPS, http", "https:/poll/x"),
            ("X-Forwarded-Proto: http, https", "http:/poll/x"),
            ("X-Forwarded-Proto: wss", "http:/poll/x"),
            ("A: b", "http:/poll/x"),
        ] {
            let (key, _) = key("{scheme}:{path}", field, |request| request);
            assert_eq!(key.as_deref(), Some(scheme), "{field}");
        }
        let by_name = "in:{tls.client.cn}";
        let (none, says) = key(by_name, "A: b", |request| request);
        assert!(none.is_none() && says[0].starts_with("403: "), "{says:?}");
        assert!(says[2].contains("--client-cn"), "{says:?}");
        let (named, _) = key(by_name, "A: b", |request| {
            request.with_certificate(Some("alice".to_owned()), Vec::new())
        });
        assert_eq!(named.as_deref(), Some("in:alice"));
    }
}
