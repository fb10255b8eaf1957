//! The page of all metrics, made from the table of them.

use super::expose::{Family, LabelInfo};
use super::table::FAMILIES;
use prometheus_client::metrics::MetricType;

/// The reference of every metric in Markdown.
pub fn metrics_page() -> String {
    let sections = SECTIONS.iter().enumerate().map(|(place, (title, first))| {
        let end = SECTIONS.get(place + 1).map(|(_, next)| *next);
        let rows: String = FAMILIES
            .iter()
            .skip_while(|family| family.name != *first)
            .take_while(|family| Some(family.name) != end)
            .map(row)
            .collect();
        format!("\n## {title}\n\n{TABLE_HEAD}{rows}")
    });
    INTRODUCTION.to_owned() + &sections.collect::<String>()
}

/// The headings of the page, each with the first family below it.
const SECTIONS: &[(&str, &str)] = &[
    ("Process", "dwell_build"),
    ("Configuration", "dwell_config_generation"),
    ("Connections and TLS", "dwell_connections_open"),
    ("HTTP/2", "dwell_http2_streams_open"),
    ("Requests", "dwell_http_requests"),
    ("Polls, event streams and WebSockets", "dwell_polls"),
    ("Permission, publishers and presence", "dwell_auth"),
    ("Changes of keys", "dwell_wakeups"),
    ("memcached servers", "dwell_memcached_lookups"),
    ("Redis and Valkey", "dwell_redis_lookups"),
    ("Application", "dwell_upstream_requests"),
    ("Embedded store", "dwell_store_items"),
    ("Upgrades and logs", "dwell_upgrades_failed"),
];

const INTRODUCTION: &str = include_str!("reference.md");
const TABLE_HEAD: &str = "| Metric | Type | Meaning |\n|---|---|---|\n";

fn row(family: &Family) -> String {
    let label = (family.label)();
    let labels = family.outer_label.into_iter();
    let labels: Vec<_> = labels
        .chain(label.as_ref().map(|label| label.name))
        .collect();
    let labels = match labels.as_slice() {
        [] => String::new(),
        labels => format!("{{{}}}", labels.join(",")),
    };
    let values = label.as_ref().map(values).unwrap_or_default();
    format!(
        "| `{}{labels}` | {} | {}.{values} |\n",
        series(family),
        family.kind.as_str(),
        family.help,
    )
}

/// The name of the series, which a query has.
pub(super) fn series(family: &Family) -> String {
    let unit = family.unit.as_ref();
    let unit = unit.map(|unit| format!("_{}", unit.as_str()));
    let suffix = match family.kind {
        MetricType::Counter => "_total",
        MetricType::Info => "_info",
        _ => "",
    };
    format!("{}{}{suffix}", family.name, unit.unwrap_or_default())
}

fn values(label: &LabelInfo) -> String {
    if label.values.is_empty() {
        return String::new();
    }
    let values: Vec<_> = label
        .values
        .iter()
        .map(|value| format!("`{value}`"))
        .collect();
    format!(" Values of `{}`: {}.", label.name, values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_page_is_current() {
        let page = include_str!("../../../../docs/metrics.md");
        assert!(
            page == metrics_page(),
            "run dwell check --print-metrics > docs/metrics.md"
        );
    }

    #[test]
    fn every_metric_is_on_the_page_once() {
        let page = metrics_page();
        for family in FAMILIES {
            let begins = format!("| `{}", series(family));
            let rows = page.lines().filter(|line| {
                line.strip_prefix(&begins)
                    .is_some_and(|rest| rest.starts_with(['`', '{']))
            });
            assert_eq!(rows.count(), 1, "{}", family.name);
        }
    }
}
