"use strict";
const at = (id) => document.getElementById(id);
const POINTS_MAX = 121, WINDOW = 60, LATENCY_WINDOW = 15, SILENCE_MS = 5000;
const SERVERS_SHOWN = 8, KEYS_SHOWN = 20;
// The last hour in coarser steps.
const COARSE = 10, COARSE_MAX = 361;

// What the outcomes of polls are to whoever looks; what is not named is "other".
const GROUPS = [
  { name: "from the cache", color: "cached", of: ["hit", "empty", "not_modified"] },
  { name: "woken by a change", color: "woken", of: ["woken"] },
  { name: "wait ended", color: "ended", of: ["wait_ended"] },
  { name: "from the upstream", color: "missed", of: ["miss"] },
  { name: "refused or failed", color: "failed", of: ["refused", "failed", "bad_key", "bad_request",
    "not_found"] },
  { name: "other", color: "other", of: null },
];
const STATUSES = [
  { name: "2xx", color: "cached" }, { name: "3xx", color: "ended" }, { name: "4xx", color: "missed" },
  { name: "5xx", color: "failed" }, { name: "1xx", color: "other" },
];
const NAMED = new Set(GROUPS.flatMap((group) => group.of ?? []));
const CACHED = ["hit", "empty", "not_modified", "woken", "wait_ended"];
const UNCACHED = ["miss", "failed", "not_found"];
const FINE = ["answered", "coalesced"];

// Numbers as people read them.
const few = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const many = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const count = (n) => (Math.abs(n) < 10000 ? few.format(Math.round(n)) : many.format(n));
const some = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;
const rate = (n) => (n > 0 && n < 10 ? few.format(n) : count(n));
const perSecond = (n) => `${rate(n)}/s`;
function percent(part) {
  if (part === null) return "–";
  if (part > 0 && part < .001) return "< 0.1 %";
  return `${part === 1 ? 100 : (Math.floor(part * 1000) / 10).toFixed(1)} %`;
}
function bytes(n) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (n >= size) return `${few.format(n / size)} ${unit}`;
  }
  return `${n} B`;
}
function latency(seconds) {
  if (seconds === null) return "–";
  if (seconds === Infinity) return "> 10 s";
  if (seconds < .001) return `${seconds * 1000} ms`;
  return seconds < 1 ? `${few.format(seconds * 1000)} ms` : `${few.format(seconds)} s`;
}
function span(seconds) {
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if (days > 0) return `${days} d ${hours % 24} h`;
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  return minutes > 0 ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

// The readings of the last two minutes, and what lies between two of them.
let points = [], coarse = [], pointsMax = POINTS_MAX, isHour = false;
/** Draws with the readings of the last hour, if those are asked for. */
function withRange(draw) {
  if (!isHour) return draw();
  const recent = points;
  [points, pointsMax] = [[...coarse, ...(coarse.at(-1) === recent.at(-1) ? [] : recent.slice(-1))], COARSE_MAX];
  try {
    return draw();
  } finally {
    [points, pointsMax] = [recent, POINTS_MAX];
  }
}
const sum = (counts, names) => names.reduce((total, name) => total + (counts[name] ?? 0), 0);
const total = (counts) => Object.values(counts).reduce((all, one) => all + one, 0);
function grown(of, end = points.length - 1, back = 1) {
  const before = points[Math.max(0, end - back)], after = points[end];
  return Math.max(0, of(after) - of(before));
}
function rateOf(of, end = points.length - 1, back = 1) {
  const seconds = (points[end].at - points[Math.max(0, end - back)].at) / 1000;
  return seconds > 0 ? grown(of, end, back) / seconds : 0;
}
const smooth = (of) => rateOf(of, points.length - 1, 5);
const curve = (of) => points.map((_, index) => (index === 0 ? null : of(index)));
function quantile(of, part, end = points.length - 1, back = WINDOW) {
  const before = of(points[Math.max(0, end - back)]).counts, after = of(points[end]);
  const counts = after.counts.map((value, index) => Math.max(0, value - (before[index] ?? 0)));
  let rank = Math.ceil(counts.reduce((a, b) => a + b, 0) * part);
  if (rank <= 0) return null;
  const place = counts.findIndex((value) => (rank -= value) <= 0);
  return after.bounds[place] ?? Infinity;
}
function hitRatio(end = points.length - 1, back = WINDOW) {
  const cached = grown((p) => sum(p.polls, CACHED), end, back);
  const uncached = grown((p) => sum(p.polls, UNCACHED), end, back);
  return cached + uncached > 0 ? cached / (cached + uncached) : null;
}
const ofGroup = (group) => (p) => (group.of
  ? sum(p.polls, group.of)
  : Object.entries(p.polls).reduce((all, [name, n]) => all + (NAMED.has(name) ? 0 : n), 0));

// Drawing.
const SVG = "http://www.w3.org/2000/svg";
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}
function path(kind, line) {
  const made = document.createElementNS(SVG, "path");
  made.setAttribute("class", kind);
  made.setAttribute("d", line);
  return made;
}
/** A most that is easy to read and does not move with every value. */
function roundUp(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 7.5, 10].map((step) => step * power).find((step) => step >= value);
}
const across = (index, width) =>
  (width * (pointsMax - points.length + index) / (pointsMax - 1)).toFixed(1);
function drawStack(svg, series) {
  const stacked = points.map(() => 0);
  const layers = series.map(({ color, values }) => {
    const low = [...stacked];
    values.forEach((value, index) => { stacked[index] += value ?? 0; });
    return { color, low, high: [...stacked] };
  });
  const most = roundUp(Math.max(0, ...stacked));
  const y = (value) => (138 - (value / most) * 134).toFixed(1);
  const shapes = layers.map(({ color, low, high }) => {
    const there = high.map((value, index) => `${across(index, 600)},${y(value)}`).slice(1);
    const back = low.map((value, index) => `${across(index, 600)},${y(value)}`).slice(1).reverse();
    const shape = path("", there.length ? `M${there.join("L")}L${back.join("L")}Z` : "");
    shape.style.fill = `var(--${color})`;
    return shape;
  });
  svg.replaceChildren(...shapes, ...marks());
  return most;
}
/** Lines at the times of events, in the range that is drawn. */
function marks() {
  return events.filter(({ mark }) => mark).flatMap(({ mark, time, text }) => {
    const since = Date.parse(time) - latest.started * 1000;
    const after = points.findIndex((point) => point.at >= since);
    if (after < 1) return [];
    const part = (points[after].at - since) / (points[after].at - points[after - 1].at);
    const x = across(after - part, 600), line = path(`mark ${mark}`, `M${x},0V140`);
    const title = document.createElementNS(SVG, "title");
    title.textContent = text;
    line.append(title);
    return [line];
  });
}
function drawSpark(svg, values, most) {
  const top = most ?? roundUp(Math.max(0, ...values.filter((value) => value !== null)));
  const runs = [[]];
  values.forEach((value, index) => {
    if (value === null) runs.push([]);
    else runs.at(-1).push([across(index, 200), (42 - (Math.min(value, top) / top) * 38).toFixed(1)]);
  });
  svg.replaceChildren(...runs.filter((run) => run.length > 1).flatMap((run) => {
    const line = run.join("L");
    return [path("area", `M${line}L${run.at(-1)[0]},44L${run[0][0]},44Z`), path("curve", `M${line}`)];
  }));
}

// The figures beside one another.
const FIGURES = [
  {
    name: "Waiters", curve: (i) => points[i].waits_held,
    show: (now) => [count(now.waits_held), `${some(now.watched_keys, "key")} watched`],
  },
  {
    name: "Hit ratio", most: 1, curve: (i) => hitRatio(i, 5),
    show: () => [percent(hitRatio()), hitRatio() === null ? "no polls lately" : "last minute"],
  },
  {
    name: "Response time", curve: (i) => finite(quantile((p) => p.request_duration, .99, i, LATENCY_WINDOW)),
    show: () => [
      latency(quantile((p) => p.request_duration, .99)),
      quantile((p) => p.request_duration, .99) === null ? "no responses lately"
        : `99 %; 50 % within ${latency(quantile((p) => p.request_duration, .5))}`,
    ],
  },
  {
    name: "Errors", curve: (i) => (i === 0 ? null : rateOf(ofErrors, i)),
    show: (now) => [perSecond(smooth(ofErrors)), `${count(ofErrors(now))} responses of 5xx so far`],
  },
  {
    name: "Wake latency", curve: (i) => finite(quantile((p) => p.wake_latency, .99, i, LATENCY_WINDOW)),
    show: () => [
      latency(quantile((p) => p.wake_latency, .99)),
      quantile((p) => p.wake_latency, .99) === null
        ? "no wake-ups lately" : "99 % of wake-ups",
    ],
  },
  {
    name: "Upstream", curve: (i) => (i === 0 ? null : rateOf(ofUpstream, i)),
    show: (now, sample) => (sample.upstreams.length === 0 ? ["–", "no application behind"] : [
      perSecond(smooth(ofUpstream)), some(now.upstream_connections_open, "connection"),
    ]),
  },
  {
    name: "Connections", curve: (i) => points[i].connections_open,
    show: (now) => [count(now.connections_open), `${perSecond(smooth((p) => p.connections))} new`],
  },
  {
    name: "Memory", curve: (i) => points[i].process?.resident_bytes ?? null,
    show: (now, { setting: { memory_max: most } }) =>
      [bytes(now.process?.resident_bytes ?? 0), most === null ? "resident" : `resident, of ${bytes(most)}`],
  },
];
const ofErrors = (p) => p.requests["5xx"] ?? 0;
// What was shared was not asked for.
const ofUpstream = (p) => total(p.upstream) - (p.upstream.coalesced ?? 0);
// How long a server takes to begin an answer; it may have come with a new configuration.
const headsOf = (index) => ({ upstream_heads, request_duration }) =>
  ({ counts: upstream_heads[index] ?? [], bounds: request_duration.bounds });
const finite = (value) => (value === Infinity ? 10 : value);
for (const figure of FIGURES) {
  figure.number = element("p", { className: "number", textContent: "–" });
  figure.detail = element("p", { className: "detail" });
  figure.spark = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({
    class: "spark", viewBox: "0 0 200 44", preserveAspectRatio: "none", "aria-hidden": "true",
  })) figure.spark.setAttribute(name, value);
  at("figures").append(element("article", { className: "figure" },
    element("h2", { textContent: figure.name }), figure.number, figure.detail, figure.spark));
}
for (const [legend, groups] of [["legend", GROUPS], ["responses-legend", STATUSES]]) {
  for (const group of groups) {
    group.value = element("b");
    const swatch = element("span", { className: "swatch" });
    swatch.style.background = `var(--${group.color})`;
    group.item = element("li", {}, swatch, group.name, group.value);
    at(legend).append(group.item);
  }
}
function number(place, text) {
  const [, value, unit] = /^([^ /]+)(.*)$/.exec(text);
  place.replaceChildren(value, element("small", { textContent: unit }));
}

/** Fills a table: `[name, value, part of a bar or null, class]` in each row. */
function fill(id, rows) {
  at(id).replaceChildren(...rows.filter(Boolean).map(([name, value, part = null, kind = ""]) => {
    const row = element("tr", { className: kind },
      element("th", { scope: "row", textContent: name, title: name, colSpan: part === null ? 2 : 1 }));
    if (part !== null) {
      const bar = element("td", { className: "bar" });
      bar.style.setProperty("--part", Math.min(1, Math.max(0, part)));
      row.append(bar);
    }
    row.append(element("td", { textContent: value }));
    return row;
  }));
}
const share = (part, whole) => (whole > 0 ? part / whole : 0);

const serverName = (sample) => (sample.values === "redis" ? "Redis server" : "memcached server");
function cacheNote(sample, now) {
  if (sample.servers.every(({ state }) => state === "down"))
    return `No ${serverName(sample)} answers: polls go to the upstream, and held ones go on waiting.`;
  if (sample.values !== "redis") return "memcached servers; changes are found by sweeps.";
  if (now.refused_loops > 0)
    return "Redis; it refuses to announce changes (see the log), so that they are found by sweeps.";
  return now.tracking_loops > 0 || now.watched_keys === 0
    ? "Redis; it announces changes of the keys that polls wait for."
    : "Redis; it announces no changes, so that they are found by sweeps.";
}
function showCache(sample, now) {
  const store = now.store;
  if (store) {
    const used = share(store.bytes, store.bytes_max);
    fill("cache", [
      ["values", bytes(store.bytes), used, used > .95 ? "full" : ""],
      ["items", count(store.items)],
      ["reads", perSecond(smooth((p) => p.store.hits + p.store.misses))],
      ["writes", perSecond(smooth((p) => p.store.sets))],
      ["evicted", perSecond(smooth((p) => p.store.evictions))],
      ["memcached clients", count(store.connections_open)],
    ]);
    at("cache-note").textContent = `Embedded store of ${bytes(store.bytes_max)}; changes reach clients at once.`;
    return;
  }
  fill("cache", [
    ...sample.servers.map(({ name, state }) => [name, state, null, state === "down" ? "trouble" : ""]),
    ["lookups", perSecond(smooth((p) => total(p.lookups)))],
    ...["timeout", "error", "skipped"].map((kind) => {
      const failing = smooth((p) => p.lookups[kind] ?? 0);
      return failing > 0 ? [`lookups: ${kind}`, perSecond(failing), null, "trouble"] : null;
    }),
    now.kept_hits > 0 ? ["answered from memory", perSecond(smooth((p) => p.kept_hits))] : null,
    ["sweeps of watched keys", perSecond(smooth((p) => p.sweeps))],
  ]);
  at("cache-note").textContent = cacheNote(sample, now);
}
/** A server of the application; while it is left out, with the reason. */
function serverRows(server, loops) {
  const { name, state, head, left_out: out, reason, outstanding, queued, failures } = server;
  if (out === 0) {
    const queue = queued > 0 ? `${some(queued, "request")} in the queue` : "";
    const last = failures > 0 ? `${some(failures, "failure")}, the last: ${server.last_error}` : "";
    const more = [queue, last].filter(Boolean).join("; ");
    return [
      [name, head === null ? state : latency(head)],
      ...(more ? [[more, "", null, "reason"]] : []),
    ];
  }
  const part = out < loops ? ` by ${out} of ${some(loops, "event loop")}` : "";
  const rest = outstanding > 0 ? `; ${some(outstanding, "request")} in progress` : "";
  return [
    [name, state === "down" ? state : "left out", null, "trouble"],
    [`Left out${part}: ${reason ?? "it failed"}${rest}`, "", null, "reason"],
  ];
}
/** A table with columns; the first of each row is its name. */
function columns(id, rows, more) {
  at(id).replaceChildren(...rows.map(([name, ...values]) => element("tr", {},
    element("th", { scope: "row", textContent: name, title: name }),
    ...values.map((value, index) => element("td", { textContent: value, className: index >= more ? "more" : "" })))));
}
/** The same route or listener in another reading. */
const named = (list, name) => (p) => p[list]?.find((one) => one.name === name);
/** The times to the response of a route; it may have come with a new configuration. */
const durationOf = (route) => (p) => ({ counts: route(p)?.duration ?? [], bounds: p.request_duration.bounds });
function showPlaces(now) {
  columns("routes", now.routes.map(({ name, waiting }) => {
    const route = named("routes", name);
    const of = (names) => grown((p) => sum(route(p)?.polls ?? {}, names), points.length - 1, WINDOW);
    const [cached, uncached] = [of(CACHED), of(UNCACHED)];
    const responses = (kind) => perSecond(smooth((p) => route(p)?.responses[kind] ?? 0));
    return [name, perSecond(smooth((p) => total(route(p)?.responses ?? {}))), count(waiting),
      percent(cached + uncached > 0 ? cached / (cached + uncached) : null),
      latency(quantile(durationOf(route), .99)), responses("4xx"), responses("5xx")];
  }), 4);
  const refused = (kind) => now.routes.reduce((all, route) => all + route[kind], 0);
  at("routes-note").textContent = `So far ${count(refused("denied"))} responses with 401 or 403, ${count(refused("limited"))} with 429.`;
  columns("listeners", now.listeners.map(({ name, open, connections }) => {
    const listener = named("listeners", name);
    const rateFor = (kind) => perSecond(smooth((p) => listener(p)?.[kind] ?? 0));
    const responses = (kind) => perSecond(smooth((p) => listener(p)?.responses[kind] ?? 0));
    return [name, count(open), rateFor("requests"), responses("4xx"), responses("5xx"),
      rateFor("rejected"), rateFor("connections"), count(connections)];
  }), 4);
  const rejected = now.listeners.reduce((all, listener) => all + listener.rejected, 0);
  at("listeners-note").textContent = `So far ${some(rejected, "request")} rejected for syntax, size or a limit.`;
}
const dateTime = new Intl.DateTimeFormat([], { dateStyle: "short", timeStyle: "medium" });
let eventsShown = -1, events = [];
/** The newest events of the process, the newest first. */
async function showEvents(number) {
  if (number === eventsShown) return;
  eventsShown = number;
  const answer = await ask("/-/events", "events-note");
  if (!answer) return;
  events = answer.events;
  at("events").replaceChildren(...events.toReversed().map((event) => element("li", { className: event.level },
    element("time", { dateTime: event.time, textContent: dateTime.format(new Date(event.time)) }),
    element("span", { textContent: event.text + (event.times > 1 ? ` (${event.times} times)` : "") }))));
}
/** The hour before the page was opened. */
async function recall() {
  const past = await ask("/-/history", "process-note");
  if (!past || (latest && latest.started !== past.started)) return;
  const durations = (counts) => ({ bounds: past.bounds, counts });
  const readings = past.readings.map((reading) => ({
    ...reading, process: reading.resident_bytes === null ? null : { resident_bytes: reading.resident_bytes },
    wake_latency: durations(reading.wake_latency), request_duration: durations(reading.request_duration),
  }));
  coarse = [...readings, ...coarse.filter((point) => point.at > readings.at(-1).at)].slice(-COARSE_MAX);
  if (latest) show();
}

function showUpstream(sample, now) {
  const rates = Object.keys(now.upstream).map((name) => [name, smooth((p) => p.upstream[name] ?? 0)]);
  const most = Math.max(...rates.map(([, n]) => n));
  const servers = sample.upstreams.map((server, index) =>
    ({ ...server, head: quantile(headsOf(index), .99) }));
  servers.sort((one, other) => (other.head ?? -1) - (one.head ?? -1));
  const shown = rates.filter(([name]) => name === "answered" || now.upstream[name] > 0);
  const hasNone = sample.upstreams.length === 0;
  fill("upstream", hasNone ? [] : [
    ...servers.filter(({ left_out: out }, index) => index < SERVERS_SHOWN || out > 0)
      .flatMap((server) => serverRows(server, sample.loops)),
    ...shown.map(([name, n]) =>
      [name.replaceAll("_", " "), perSecond(n), share(n, most), n > 0 && !FINE.includes(name) ? "trouble full" : ""]),
    ["in progress", count(now.upstream_outstanding)],
    ["connections open", count(now.upstream_connections_open)],
  ]);
  at("upstream-note").textContent = !hasNone
    ? (servers[0].head !== null ? "The slowest first: 99 % of the responses of the last minute began within this time." : "")
    : "No application is configured: a poll for a key without a value waits, or gets 404.";
}
function showWaiters(sample, now) {
  const sockets = now.websockets_open;
  const rows = [["long-polls", now.polls_held], ["event streams", now.streams_open], ["WebSockets", sockets]];
  const most = Math.max(1, ...rows.map(([, n]) => n));
  fill("waiters", [
    ...rows.map(([name, n]) => [name, count(n), n / most]),
    ["polls woken by changes", perSecond(smooth((p) => p.polls.woken ?? 0))],
    ["events sent", perSecond(smooth((p) => p.stream_events))],
  ]);
  at("waiters-note").textContent = `limits.waiters_max is ${count(sample.setting.waiters_max)}; ` +
    `${percent(share(now.waits_held, sample.setting.waiters_max))} in use.`;
}
function showConnections(sample, now) {
  const open = now.connections_open, sockets = now.websockets_open;
  const rest = Math.max(0, open - now.polls_held - now.streams_open - sockets - now.tunnels_open);
  const row = (name, n) => [name, count(n), share(n, open)];
  const slowest = quantile((p) => p.request_duration, .99);
  const refused = smooth((p) => p.connections_refused);
  fill("connections", [
    row("held polls", now.polls_held), row("streams", now.streams_open + sockets),
    now.tunnels_open > 0 ? row("tunnelled to the application", now.tunnels_open) : null,
    row("idle or busy", rest),
    now.http2_connections > 0 ? row("over HTTP/2", now.http2_connections) : null,
    now.http2_connections > 0 ? ["HTTP/2 requests in progress", count(now.http2_streams_open)] : null,
    ["responses", perSecond(smooth((p) => total(p.requests)))],
    refused > 0 ? ["closed at the limit", perSecond(refused), null, "trouble"] : null,
  ]);
  at("connections-note").textContent = `limits.connections_max is ${count(sample.setting.connections_max)}` + (slowest === null ? "." :
    `; 99 % of the responses within ${latency(slowest)}.`);
}
function showHot(sample) {
  const all = sample.hot.reduce((sum, { samples }) => sum + samples, 0);
  fill("hot", sample.hot.map(({ key, samples }) =>
    [key, count(samples), share(samples, sample.hot[0].samples)]));
  at("hot-note").textContent = all === 0 ? "No key was read often enough to be noticed." : "Sampled reads: one read in 64 is sampled.";
}
/** The open files beside their limit: connections beyond it are refused. */
function openFiles(process) {
  if (!process?.open_fds) return null;
  const used = process.max_fds ? share(process.open_fds, process.max_fds) : null;
  const text = process.max_fds ? `${count(process.open_fds)} of ${count(process.max_fds)}` : count(process.open_fds);
  return ["open files", text, used, used > .8 ? "trouble full" : ""];
}
function showProcess(sample, now) {
  const cpu = smooth((p) => p.process?.cpu_seconds ?? 0);
  const trouble = (name, of) => {
    const n = rateOf(of, points.length - 1, WINDOW);
    return n > 0 ? [name, perSecond(n), null, "trouble"] : null;
  };
  fill("process", [
    ["CPU", percent(cpu), share(cpu, sample.loops), cpu > .9 * sample.loops ? "full" : ""],
    openFiles(now.process),
    now.process && now.waits_held >= 1000
      ? ["memory for each waiter", bytes(Math.round(now.process.resident_bytes / now.waits_held))] : null,
    trouble("requests refused", (p) => total(p.bad_requests)),
    trouble("clients too slow", (p) => total(p.timeouts)),
    trouble("events delayed", (p) => p.stream_postponed),
  ]);
  at("process-note").textContent = `100 % is one core; ${some(sample.loops, "loop")}.`;
}

/** A table of names with texts: `[name, text, class]` in each row. */
function texts(id, rows) {
  at(id).replaceChildren(...rows.filter(Boolean).map(([name, text, kind = ""]) => element("tr", { className: kind },
    element("th", { scope: "row", textContent: name }), element("td", { textContent: text }))));
}
function showConfig({ config, setting, generation }) {
  const { file, reloaded, error, needs_restart: waiting } = config;
  const room = setting.clients_max, isShort = room < setting.connections_max;
  // Without the marks below a line of the file.
  const why = error?.split("\n").filter((line) => !/^[\s|^]*$/.test(line)).join("\n");
  const when = reloaded && dateTime.format(new Date(reloaded * 1000));
  texts("config", [
    ["file", file ?? "none: flags and environment variables"],
    ["generation", generation === 1 ? "1, that of the start" : count(generation)],
    ["last reload", error ? `refused ${when}: ${why}` : reloaded ? `applied ${when}` : "none", error ? "trouble" : ""],
    waiting.length > 0 ? ["needs a restart", waiting.join(", "), "trouble"] : null,
    ["connections", `limits.connections_max is ${count(setting.connections_max)}; the limit on open files leaves room for ${count(room)}`, isShort ? "trouble" : ""],
    ["memory", setting.memory_max === null ? "no limit of a control group" : `at most ${bytes(setting.memory_max)}, the limit of the control group`],
  ]);
}

/** The watched keys that begin with the prefix, the most watched first. */
async function showWatched() {
  const prefix = at("prefix").value;
  const query = new URLSearchParams({ prefix, limit: KEYS_SHOWN });
  const answer = await ask(`/-/watched?${query}`, "watched-note");
  if (!answer) return;
  const { keys, total: all, loops } = answer;
  const kinds = [["polls", "poll"], ["streams", "stream"], ["websockets", "WebSocket"]];
  fill("watched", keys.map((key) => [key.key, count(key.watchers), share(key.watchers, keys[0].watchers)]));
  for (const [index, row] of [...at("watched").children].entries())
    row.title = kinds.map(([name, one]) => some(keys[index][name], one)).join(", ");
  at("watched-note").textContent = `${some(all.keys, "key")} with ${some(all.watchers, "watcher")}` +
    (keys.length < all.keys ? `; the first ${keys.length} are shown.` : ".") +
    (loops.answered < loops.asked ? " Not every event loop has responded, so there may be more." : "");
}
/** What a poll of the path gets, and why. */
async function showExplained() {
  const query = new URLSearchParams({ target: at("prefix").value });
  const answer = await ask(`/-/explain?${query}`, "watched-note");
  texts("explained", (answer?.topics ?? []).map(({ name, says }) => [name, says.join("; ")]));
}
async function ask(target, note) {
  try {
    const response = await fetch(target, { signal: AbortSignal.timeout(SILENCE_MS) });
    if (response.ok) return await response.json();
    at(note).textContent = (await response.text()).trim();
  } catch {
    at(note).textContent = "The server does not respond.";
  }
  return null;
}
at("search").addEventListener("submit", (event) => {
  event.preventDefault();
  showWatched();
});
at("explain").addEventListener("click", showExplained);
at("watched").addEventListener("click", (event) => {
  const key = event.target.closest("tr")?.querySelector("th").title;
  if (!key) return;
  at("prefix").value = key;
  showExplained();
});

let latest = null;
function show() {
  const sample = latest, now = points.at(-1);
  const seconds = now.at / 1000, rateNow = smooth((p) => total(p.polls));
  const place = [...new Set([sample.setting.host, location.host].filter(Boolean))].join(" · ");
  at("facts").textContent = `${place} · version ${sample.version} · up ${span(seconds)} · ` +
    (now.store ? "embedded store" : some(sample.servers.length, serverName(sample)));
  document.title = `${count(now.waits_held)} waiting · ${place} · Dwell`;
  number(at("polls-number"), rate(rateNow));
  const most = withRange(() => drawStack(at("polls-chart"), GROUPS.map((group) => ({
    color: group.color, values: curve((index) => rateOf(ofGroup(group), index)),
  }))));
  number(at("responses-number"), rate(smooth((p) => total(p.requests))));
  at("responses-most").textContent = `${few.format(withRange(() => drawStack(at("responses-chart"), STATUSES.map((status) => ({
    color: status.color, values: curve((index) => rateOf((p) => p.requests[status.name] ?? 0, index)),
  })))))}/s`;
  for (const status of STATUSES) {
    status.value.textContent = perSecond(smooth((p) => p.requests[status.name] ?? 0));
    status.item.hidden = !(now.requests[status.name] > 0);
  }
  at("polls-chart").setAttribute("aria-label", `Polls in each of the last ${points.length - 1} seconds; now ${rate(rateNow)}`);
  at("polls-most").textContent = `${few.format(most)}/s`;
  for (const group of GROUPS) {
    const current = smooth(ofGroup(group));
    group.value.textContent = perSecond(current);
    group.item.hidden = group.of === null && current === 0;
  }
  for (const figure of FIGURES) {
    const [value, detail] = figure.show(now, sample);
    number(figure.number, value);
    figure.detail.textContent = figure.detail.title = detail;
    withRange(() => drawSpark(figure.spark, curve(figure.curve), figure.most));
  }
  showWaiters(sample, now);
  showConnections(sample, now);
  showCache(sample, now);
  showHot(sample);
  showUpstream(sample, now);
  showProcess(sample, now);
  showPlaces(now);
  showConfig(sample);
  showEvents(sample.events);
  const down = (servers) => servers.filter((server) => server.state === "down").length;
  const [caches, upstreams] = [down(sample.servers), down(sample.upstreams)];
  if (sample.draining) state("warned", "draining: the server is about to end");
  else if (caches > 0) state("warned", `${caches} of ${some(sample.servers.length, serverName(sample))} down`);
  else if (upstreams > 0) state("warned", `${upstreams} of ${some(sample.upstreams.length, "upstream")} down`);
  else state("live", "live");
}
function take(sample) {
  const isOther = latest !== null && latest.started !== sample.started;
  const begins = isOther || (points.length > 0 && sample.numbers.at < points.at(-1).at);
  if (begins) [points, coarse, eventsShown] = [[], [], -1];
  if (points.at(-1)?.at !== sample.numbers.at) points.push(sample.numbers);
  points = points.slice(-POINTS_MAX);
  for (const point of coarse.length === 0 ? points : [points.at(-1)])
    if (point.at - (coarse.at(-1)?.at ?? -Infinity) >= COARSE * 1000) coarse.push(point);
  coarse = coarse.slice(-COARSE_MAX);
  latest = sample;
  if (begins) recall();
  show();
}

// The stream: while somebody looks, and again after it broke.
let stream = null, silence = 0, retry = 0, failures = 0, paused = false;
function state(kind, text) {
  if (at("state-text").textContent !== text) at("state-text").textContent = text;
  at("state").className = `state ${kind}`;
  at("main").classList.toggle("stale", kind === "lost" || kind === "paused");
}
function close() {
  stream?.close();
  stream = null;
  clearTimeout(silence);
  clearTimeout(retry);
}
function heard() {
  failures = 0;
  clearTimeout(silence);
  silence = setTimeout(lost, SILENCE_MS);
}
function lost() {
  close();
  failures += 1;
  const delay = Math.min(8000, 500 * 2 ** failures) * (.75 + Math.random() / 2);
  state("lost", "no answer from the server; trying again");
  retry = setTimeout(open, delay);
}
function open() {
  close();
  if (paused || document.hidden) return;
  stream = new EventSource("/-/dashboard/events");
  silence = setTimeout(lost, SILENCE_MS);
  stream.addEventListener("history", (event) => {
    heard();
    recall();
    points = JSON.parse(event.data);
  });
  stream.addEventListener("message", (event) => {
    heard();
    take(JSON.parse(event.data));
  });
  stream.addEventListener("error", lost);
}
at("range").addEventListener("click", () => {
  isHour = !isHour;
  at("range").textContent = isHour ? "Last 2 min" : "Last hour";
  at("range").setAttribute("aria-pressed", String(isHour));
  for (const place of document.querySelectorAll(".begin"))
    place.textContent = isHour ? "1 h ago" : "2 min ago";
  if (latest) show();
});
at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").textContent = paused ? "Resume" : "Pause";
  at("pause").setAttribute("aria-pressed", String(paused));
  if (paused) {
    close();
    state("paused", "paused");
  } else {
    open();
  }
});
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("online", open);
open();
