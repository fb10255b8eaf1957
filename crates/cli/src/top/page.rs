//! The page of a store, as lines of text.

use std::collections::BTreeMap;
use std::time::Instant;

/// The replies of a store at one time.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) figures: BTreeMap<String, String>,
    pub(super) at: Instant,
}

impl Look {
    fn text(&self, name: &str) -> &str {
        self.figures.get(name).map_or("-", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// Commands with their counts, the most frequent first.
    fn commands(&self) -> Vec<(&str, u64)> {
        let counts = self.figures.keys().filter_map(|name| {
            let command = name.strip_prefix("command:")?.strip_suffix(":count")?;
            Some((command, self.number(name)))
        });
        let mut counts: Vec<_> = counts.collect();
        counts.sort_by_key(|(name, count)| (u64::MAX - count, *name));
        counts
    }
}

/// Keys that are shown without a screen.
pub(super) const ONCE_ROWS: usize = 60;
/// Most commands that are shown.
const COMMANDS_SHOWN: usize = 8;

/// The lines of the page, at most `rows`.
pub(super) fn page(address: &str, now: &Look, before: Option<&Look>, rows: usize) -> Vec<String> {
    let rates = Rates { now, before };
    let mut lines = vec![
        format!(
            "dwell top - {address} - version {} - up {}",
            now.text("version"),
            span(now.number("uptime"))
        ),
        format!(
            "memory   {} of {} ({}), {} items, {} evicted/s, {} expired/s",
            bytes(now.number("bytes")),
            bytes(now.number("limit_maxbytes")),
            percent(now.number("bytes"), now.number("limit_maxbytes")),
            now.number("curr_items"),
            rates.of("evictions"),
            rates.of("reclaimed"),
        ),
        format!(
            "reads    {}/s, hit ratio {}{}",
            rates.of("cmd_get"),
            hit_ratio(now, before),
            if before.is_some() {
                " now"
            } else {
                " since the start"
            },
        ),
        format!(
            "writes   {} sets/s, {} deletes/s",
            rates.of("cmd_set"),
            rates.of("delete_hits")
        ),
        format!(
            "waiters  {} polls on {} keys, {} notifications/s",
            now.number("waiters"),
            now.number("watched_keys"),
            rates.of("watch_notifications"),
        ),
        format!(
            "clients  {} memcached, {} http, {} in/s, {} out/s",
            now.number("curr_connections"),
            now.number("connections_open"),
            bytes(rates.per_second("bytes_read")),
            bytes(rates.per_second("bytes_written")),
        ),
        String::new(),
        format!(
            "{:<12}{:>14}{:>14}{:>12}{:>12}",
            "COMMAND", "total", "per s", "p50 us", "p99 us"
        ),
    ];
    lines.extend(command_lines(now, &rates));
    lines.push(String::new());
    lines.push(format!("{:<14}{:>12}", "HOTTEST KEYS", "reads"));
    lines.extend(key_lines(now));
    lines.truncate(rows);
    lines
}

fn command_lines<'l>(now: &'l Look, rates: &'l Rates<'_>) -> impl Iterator<Item = String> + 'l {
    let shown = now.commands().into_iter().take(COMMANDS_SHOWN);
    shown.map(|(command, count)| {
        let figure = |part: &str| now.text(&format!("command:{command}:{part}")).to_owned();
        format!(
            "{command:<12}{count:>14}{:>14}{:>12}{:>12}",
            rates.of(&format!("command:{command}:count")),
            figure("p50_us"),
            figure("p99_us"),
        )
    })
}

fn key_lines(now: &Look) -> impl Iterator<Item = String> {
    let key = |place: usize| now.figures.get(&format!("hot:{place}:key"));
    (0..).map_while(move |place| {
        let key = key(place)?;
        let reads = now.number(&format!("hot:{place}:reads"));
        Some(format!("{:>14}{reads:>12}  {key}", place + 1))
    })
}

/// Changes between two samples.
struct Rates<'l> {
    now: &'l Look,
    before: Option<&'l Look>,
}

impl Rates<'_> {
    /// Growth of a counter per second; the mean since the start without an earlier sample.
    fn per_second(&self, name: &str) -> u64 {
        let count = self.now.number(name);
        let Some(before) = self.before else {
            return count / self.now.number("uptime").max(1);
        };
        let millis = self.now.at.duration_since(before.at).as_millis().max(1);
        let grown = u128::from(count.saturating_sub(before.number(name)));
        u64::try_from(grown * 1000 / millis).unwrap_or(u64::MAX)
    }

    fn of(&self, name: &str) -> String {
        self.per_second(name).to_string()
    }
}

fn hit_ratio(now: &Look, before: Option<&Look>) -> String {
    let grown = |name: &str| {
        let earlier = before.map_or(0, |before| before.number(name));
        now.number(name).saturating_sub(earlier)
    };
    let hits = grown("get_hits");
    percent(hits, hits + grown("get_misses"))
}

fn percent(part: u64, whole: u64) -> String {
    match (u128::from(part) * 1000).checked_div(u128::from(whole)) {
        Some(per_mille) => format!("{}.{} %", per_mille / 10, per_mille % 10),
        None => "-".to_owned(),
    }
}

fn bytes(count: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, size)| count >= *size) {
        Some((unit, size)) => {
            let tenths = u128::from(count) * 10 / u128::from(size);
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{count} B"),
    }
}

fn span(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    if days > 0 {
        format!("{days}d {hours}h")
    } else if hours > 0 {
        format!("{hours}h {minutes}m")
    } else {
        format!("{minutes}m {seconds}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn look(at: Instant, figures: &[(&str, &str)]) -> Look {
        let figures = figures
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        Look {
            figures: figures.collect(),
            at,
        }
    }

    #[test]
    fn rates_are_what_changed_between_two_looks() {
        let start = Instant::now();
        let before = look(
            start,
            &[
                ("cmd_get", "1000"),
                ("get_hits", "900"),
                ("get_misses", "100"),
            ],
        );
        let figures = [
            ("cmd_get", "3000"),
            ("get_hits", "1900"),
            ("get_misses", "1100"),
        ];
        let now = look(start + Duration::from_secs(2), &figures);
        let text = page("here", &now, Some(&before), 40).join("\n");
        assert!(
            text.contains("reads    1000/s, hit ratio 50.0 % now"),
            "{text}"
        );
    }

    #[test]
    fn one_look_shows_the_mean_since_the_start() {
        let figures = [
            ("uptime", "10"),
            ("cmd_get", "200"),
            ("bytes", "1572864"),
            ("limit_maxbytes", "67108864"),
            ("command:get:count", "200"),
            ("command:get:p50_us", "0.25"),
            ("command:set:count", "300"),
            ("hot:0:key", "a\\x00b"),
            ("hot:0:reads", "64"),
        ];
        let text = page("here", &look(Instant::now(), &figures), None, 40).join("\n");
        assert!(
            text.contains("memory   1.5 MiB of 64.0 MiB (2.3 %)"),
            "{text}"
        );
        assert!(
            text.contains("reads    20/s, hit ratio - since the start"),
            "{text}"
        );
        assert!(
            text.find("\nset ").unwrap() < text.find("\nget ").unwrap(),
            "{text}"
        );
        assert!(text.contains("          64  a\\x00b"), "{text}");
    }

    #[test]
    fn the_page_fits_its_screen() {
        let now = look(Instant::now(), &[("hot:0:key", "a"), ("hot:1:key", "b")]);
        for rows in 0..20 {
            assert!(page("here", &now, None, rows).len() <= rows);
        }
    }
}
