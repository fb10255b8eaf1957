use super::super::reference::series;
use super::super::{PollOutcome, ProcessMetrics, Reloads, ServerState, StatusClass};
use super::*;
use dwell_memcache::watch::{HintOutcome, ResyncReason, WatchMetrics};
use dwell_store_server::StoreCommand;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

fn sample() -> String {
    let metrics = Metrics::new(
        2,
        vec!["a:11211".to_owned(), "b:11211".to_owned()],
        1_700_000_000,
    );
    for (index, waits) in [-1, 5].into_iter().enumerate() {
        let cells = metrics.of_loop(index);
        cells.loop_turns.add(10);
        cells.polls.increment(PollOutcome::Hit);
        cells.waits_held.set(waits);
        cells
            .http_request_duration
            .observe(Duration::from_micros(70));
        cells.http_request_duration.observe(Duration::from_secs(60));
    }
    let place = metrics.of_loop(0).route_names.of("/poll/").unwrap();
    for (index, status_class) in [StatusClass::Success, StatusClass::ClientError]
        .iter()
        .enumerate()
    {
        let cells = metrics.of_loop(index);
        cells.routes[place].responses.increment(*status_class);
        cells.routes[place].polls.increment(PollOutcome::Hit);
        cells.routes[place].waiting.set(2);
        cells.routes[place]
            .duration
            .observe(Duration::from_millis(3));
    }
    let place = metrics
        .of_loop(1)
        .listener_names
        .of("127.0.0.1:80")
        .unwrap();
    metrics.of_loop(1).listeners[place].connections.add(3);
    metrics.of_loop(0).listeners[place].requests.add(7);
    let responses = &metrics.of_loop(0).listeners[place].responses;
    responses.increment(StatusClass::ServerError);
    metrics.of_loop(1).listeners[place].rejected.add(2);
    metrics.of_loop(1).servers[1].set(ServerState::Up);
    metrics.of_process().access_log_dropped.add(3);
    metrics.of_process().log_dropped.add(5);
    metrics.render(Some(StoreFigures {
        items: 5,
        evictions: 7,
        ..StoreFigures::default()
    }))
}

#[test]
fn loops_are_added_up() {
    let text = sample();
    for line in [
        "dwell_loop_turns_total 20",
        "dwell_polls_total{outcome=\"hit\"} 2",
        "dwell_polls_total{outcome=\"miss\"} 0",
        "dwell_waits_held 4",
        "dwell_http_request_duration_seconds_count 4",
        "dwell_http_request_duration_seconds_bucket{le=\"0.00005\"} 0",
        "dwell_http_request_duration_seconds_bucket{le=\"0.0001\"} 2",
        "dwell_http_request_duration_seconds_bucket{le=\"10.0\"} 2",
        "dwell_http_request_duration_seconds_bucket{le=\"+Inf\"} 4",
        "dwell_route_responses_total{route=\"/poll/\",status_class=\"2xx\"} 1",
        "dwell_route_responses_total{route=\"/poll/\",status_class=\"4xx\"} 1",
        "dwell_route_polls_total{route=\"/poll/\",outcome=\"hit\"} 2",
        "dwell_route_waits_held{route=\"/poll/\"} 4",
        "dwell_listener_connections_total{listener=\"127.0.0.1:80\"} 3",
        "dwell_route_request_duration_seconds_count{route=\"/poll/\"} 2",
        "dwell_route_request_duration_seconds_bucket{le=\"0.005\",route=\"/poll/\"} 2",
        "dwell_listener_requests_total{listener=\"127.0.0.1:80\"} 7",
        "dwell_listener_responses_total{listener=\"127.0.0.1:80\",status_class=\"5xx\"} 1",
        "dwell_listener_bad_requests_total{listener=\"127.0.0.1:80\"} 2",
        "dwell_memcached_server_up{server=\"b:11211\"} 1",
        "dwell_store_items 5",
        "dwell_store_evictions_total 7",
        "dwell_access_log_dropped_total 3",
        "dwell_log_dropped_total 5",
        "process_start_time_seconds 1700000000",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "`{line}` is not in\n{text}"
        );
    }
    assert!(
        !text.contains("server=\"a:11211\""),
        "a server nobody asked has no state"
    );
    assert!(text.contains("dwell_build_info{version=\""));
}

#[test]
fn external_servers_show_no_store() {
    assert!(
        !Metrics::new(1, Vec::new(), 0)
            .render(None)
            .contains("dwell_store")
    );
}

/// One metric family as the text has it.
#[derive(Default)]
struct Family {
    kind: String,
    help: bool,
    samples: Vec<(String, String, f64)>,
}

/// Reads the text by the rules of `OpenMetrics` 1.0 as far as they concern this page.
fn families(text: &str) -> BTreeMap<String, Family> {
    let body = text
        .strip_suffix("# EOF\n")
        .expect("the text ends in # EOF");
    let mut families = BTreeMap::<String, Family>::new();
    let mut open = String::new();
    for line in body.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        if let ["#", keyword, name, value] = words[..] {
            if open != name {
                assert!(
                    !families.contains_key(name),
                    "the family {name} is in two places"
                );
                name.clone_into(&mut open);
            }
            let family = families.entry(open.clone()).or_default();
            assert!(family.samples.is_empty(), "{line} stands after a sample");
            match keyword {
                "HELP" => family.help = true,
                "TYPE" => value.clone_into(&mut family.kind),
                "UNIT" => assert!(name.ends_with(&format!("_{value}")), "{line}"),
                _ => panic!("unknown keyword in {line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let value: f64 = value.parse().expect("a sample's value is a number");
        let family = families
            .get_mut(&open)
            .expect("a sample stands after its TYPE");
        assert!(
            name.starts_with(&open),
            "{line} stands in the family {open}"
        );
        family
            .samples
            .push((name.to_owned(), labels.to_owned(), value));
    }
    families
}

#[test]
fn the_text_keeps_the_rules_of_its_content_type() {
    let families = families(&sample());
    let mut series = HashSet::new();
    for (name, family) in &families {
        assert!(
            family.help && !family.kind.is_empty(),
            "{name} lacks HELP or TYPE"
        );
        for (sample, labels, _) in &family.samples {
            assert!(
                series.insert(format!("{sample}{{{labels}")),
                "{sample} {labels} is doubled"
            );
            let suffix = &sample[name.len()..];
            let suffixes: &[&str] = match family.kind.as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_count", "_sum"],
                kind => panic!("{name} has the type {kind}"),
            };
            assert!(
                suffixes.contains(&suffix),
                "{sample} in the {} {name}",
                family.kind
            );
        }
    }
    let rows: HashSet<&str> = FAMILIES.iter().map(|family| family.name).collect();
    assert_eq!(rows.len(), FAMILIES.len(), "two rows have one name");
}

#[test]
fn buckets_grow_and_end_at_the_count() {
    let families = families(&sample());
    let histograms = families.iter().filter(|(name, family)| {
        // Samples that carry another label, too, have tests of their own.
        family.kind == "histogram"
            && *name != "dwell_store_command_duration_seconds"
            && *name != "dwell_upstream_head_duration_seconds"
            && *name != "dwell_route_request_duration_seconds"
    });
    let mut seen = 0;
    for (name, family) in histograms {
        let of = |suffix: &str| {
            let full = format!("{name}{suffix}");
            let samples = family
                .samples
                .iter()
                .filter(move |(sample, ..)| *sample == full);
            samples
                .map(|(_, labels, value)| (labels.clone(), *value))
                .collect::<Vec<_>>()
        };
        let buckets = of("_bucket");
        assert!(
            buckets.is_sorted_by(|a, b| a.1 <= b.1),
            "{name}: {buckets:?}"
        );
        let (label, last) = buckets.last().expect("a histogram has buckets");
        assert_eq!(label, "le=\"+Inf\"}", "{name}");
        assert_eq!(vec![(String::new(), *last)], of("_count"), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 3);
}

#[test]
fn commands_that_were_measured_have_their_times() {
    let metrics = Metrics::new(2, Vec::new(), 0);
    for index in 0..2 {
        let times = &metrics.of_loop(index).store.durations;
        times
            .of(StoreCommand::Get)
            .observe_nanoseconds(Duration::from_nanos(300));
    }
    let text = metrics.render(Some(StoreFigures::default()));
    let name = "dwell_store_command_duration_seconds";
    let line = |rest: &str| text.contains(&format!("{name}_{rest}\n"));
    assert!(line("count{command=\"get\"} 2"), "{text}");
    assert!(line("sum{command=\"get\"} 6e-7"), "{text}");
    assert!(!text.contains("_count{command=\"set\"}"), "{text}");
}

#[test]
fn each_server_of_the_application_has_its_times() {
    let names = ["http://a".to_owned(), "http://b".to_owned()];
    let metrics = Metrics::with_upstreams(2, Vec::new(), &names, 0);
    for index in 0..2 {
        metrics.of_loop(index).upstream_heads[1].observe(Duration::from_millis(3));
    }
    let text = metrics.render(None);
    let name = "dwell_upstream_head_duration_seconds";
    for line in [
        "_count{server=\"http://a\"} 0",
        "_count{server=\"http://b\"} 2",
        "_bucket{le=\"0.0025\",server=\"http://b\"} 0",
        "_bucket{le=\"0.005\",server=\"http://b\"} 2",
        "_sum{server=\"http://b\"} 0.006",
    ] {
        assert!(text.contains(&format!("{name}{line}\n")), "{line}: {text}");
    }
    metrics.of_loop(0).upstream_heads[1].clear();
    assert!(
        metrics
            .render(None)
            .contains(&format!("{name}_count{{server=\"http://b\"}} 1\n"))
    );
}

/// Every figure that no row of the table declares is listed here, so that a new one does not
/// compile before it is shown.
#[test]
fn figures_from_elsewhere_are_shown_once() {
    let metrics = Metrics::new(1, Vec::new(), 0);
    let cells = metrics.of_loop(0);
    let process = metrics.of_process();
    let WatchMetrics {
        lines,
        lines_lost,
        hints,
        lag,
        resyncs,
    } = &*cells.feed;
    let ProcessMetrics {
        access_log_dropped,
        log_dropped,
        reloads,
        upgrades_failed,
        output: _,
        gathered: _,
        certificates: _,
    } = &*process;
    let Reloads {
        taken,
        refused,
        last_taken,
        ..
    } = reloads;
    lines.add(70_001);
    lines_lost.add(70_002);
    hints.of(HintOutcome::Joined).add(70_003);
    resyncs.of(ResyncReason::Returned).add(70_004);
    lag.observe(Duration::from_secs(70_005));
    access_log_dropped.add(70_006);
    log_dropped.add(70_007);
    upgrades_failed.add(70_008);
    taken.add(70_009);
    refused.add(70_010);
    last_taken.store(70_011, Ordering::Relaxed);
    cells.store.commands.of(StoreCommand::Get).add(70_012);
    // Of two with one name, the one that expires first counts.
    let expiries = [70_024, 70_022].map(|at| ("a.example".to_owned(), at));
    metrics.tell_certificates(expiries.into_iter());
    let text = metrics.render(Some(StoreFigures {
        items: 70_013,
        bytes: 70_014,
        bytes_max: 70_015,
        hits: 70_016,
        misses: 70_017,
        sets: 70_018,
        evictions: 70_019,
        expired: 70_020,
        connections_open: 70_021,
    }));
    for value in 70_001..=70_022 {
        let ends = [format!(" {value}"), format!(" {value}.0")];
        let shown = text.lines();
        let shown = shown.filter(|line| ends.iter().any(|end| line.ends_with(end)));
        assert_eq!(shown.count(), 1, "{value} in {text}");
    }
}

#[test]
fn the_book_names_no_metric_that_there_is_not() {
    let names: HashSet<String> = FAMILIES.iter().map(series).collect();
    // The families of counters are named as their series, without the ending.
    let has = |name: &str| names.contains(name) || names.contains(&format!("{name}_total"));
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let header = include_str!("../../../../../bindings/capi/include/dwell.h");
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let in_header: HashSet<&str> = header.split(|c| !is_part(c)).collect();
    let mut seen = 0;
    for page in std::fs::read_dir(book).expect("the book is there") {
        let page = page.expect("the folder can be read").path();
        let Ok(text) = std::fs::read_to_string(&page) else {
            continue;
        };
        let words = text.split('`').filter(|word| word.starts_with("dwell_"));
        for name in words.filter(|word| !word.contains("::")) {
            let name = name.split('{').next().unwrap_or(name);
            // Functions and types of the C interface have the prefix of the metrics.
            if !in_header.contains(name) {
                assert!(has(name), "{name} in {}", page.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} names");
}
