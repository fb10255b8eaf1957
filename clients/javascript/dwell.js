/**
 * A client for Dwell: the newest value of a key, over WebSocket, server-sent events or long-polls.
 *
 * Below are, in this order: `Dwell`, which an application uses; `Tabs`, which lets one tab do the
 * work of all; `Line`, one connection that is kept up; and the three transports. A cursor names
 * the content of a value, on every transport and every server, so whatever connects next says what
 * is known already and misses nothing.
 */

/** Keys that one connection follows. */
const KEYS_PER_CONNECTION = 64;
/** Keys of all tabs together. */
const KEYS_MAX = 512;
/** Tabs whose keys one of them follows. */
const TABS_MAX = 64;

/** A cursor of no value: whoever names it is sent what there is, and told if there is nothing. */
const NOTHING = "AAAAAAAAAAA";

const DEFAULTS = {
  transports: ["websocket", "sse", "poll"],
  format: "text",
  waitSeconds: 25,
  connectTimeout: 10_000,
  /** A stream that is silent for longer is dead: the server says something every 25 seconds. */
  silenceTimeout: 60_000,
  backoff: { base: 500, max: 30_000 },
  /** For how long a transport that failed is left alone, at first. */
  setAside: 60_000,
  valueBytesMax: 8 * 1024 * 1024,
  pauseWhenHidden: Infinity,
  share: true,
};

/** What went wrong, with the `status` of the answer where there was one. */
export class DwellError extends Error {
  constructor(message, { status = 0, retryAfter = null, cause } = {}) {
    super(message, { cause });
    this.name = "DwellError";
    this.status = status;
    /** Milliseconds, from the answer's `Retry-After`. */
    this.retryAfter = retryAfter;
  }
}

export class Dwell {
  #settings;
  #watches = new Map();
  /** Keys whose value is asked for although its cursor is known. */
  #renewed = new Set();
  #source = null;
  #leave = [];
  #hiddenTimer;
  #hiddenAt = Date.now();
  #paused = false;
  #scheduled = false;
  #closed = false;

  constructor(url, options = {}) {
    for (const name of Object.keys(options)) {
      if (!(name in DEFAULTS) && !OPTIONS.has(name)) throw new TypeError(`no such option: ${name}`);
    }
    const settings = { ...DEFAULTS, ...options, backoff: { ...DEFAULTS.backoff, ...options.backoff } };
    settings.url = new URL(url, globalThis.location?.href);
    for (const transport of settings.transports) {
      if (!(transport in TRANSPORTS)) throw new TypeError(`no such transport: ${transport}`);
    }
    settings.usable = settings.transports.filter((name) => TRANSPORTS[name].isUsable(settings));
    if (settings.usable.length === 0) throw new TypeError("none of the transports can be used here");
    this.#settings = settings;
    this.#begin();
    this.#listen(globalThis, "online", () => this.#source?.wake(true));
    this.#listen(globalThis.document, "visibilitychange", () => this.#visibility());
    // A page that is kept without running, to be shown again by "back", must not lead the others.
    for (const [target, event] of [[globalThis, "pagehide"], [globalThis.document, "freeze"]]) {
      this.#listen(target, event, () => this.#end());
    }
    for (const [target, event] of [[globalThis, "pageshow"], [globalThis.document, "resume"]]) {
      this.#listen(target, event, () => this.#begin());
    }
    settings.signal?.addEventListener("abort", () => this.close(), { once: true });
    if (settings.signal?.aborted) this.close();
  }

  /**
   * Calls `listener(value, info)` with the value of a key and with every newer one, with `null`
   * when the key is deleted. Returns the function that ends it.
   */
  watch(name, listener, { signal, since = null } = {}) {
    if (this.#closed || signal?.aborted) return () => {};
    let watch = this.#watches.get(name);
    if (!watch) {
      if (this.#watches.size >= KEYS_MAX) this.#forget();
      if (this.#watches.size >= KEYS_MAX) throw new RangeError(`keys exceed ${KEYS_MAX}`);
      watch = { cursor: since, raw: undefined, transport: null, listeners: new Set() };
      this.#watches.set(name, watch);
      this.#changed();
    } else if (watch.raw === undefined && watch.cursor !== since) {
      // The others have the value from elsewhere, and it was never sent here.
      watch.cursor = NOTHING;
      this.#renewed.add(name);
      this.#changed();
    }
    // The same function may listen twice, and each is ended by itself.
    const entry = { listener, since };
    watch.listeners.add(entry);
    if (watch.raw !== undefined && (watch.raw !== null || since !== null)) {
      queueMicrotask(() => watch.listeners.has(entry) && this.#call(name, watch, entry));
    }
    const stop = () => {
      signal?.removeEventListener("abort", stop);
      if (watch.listeners.delete(entry) && watch.listeners.size === 0) this.#changed();
    };
    signal?.addEventListener("abort", stop, { once: true });
    return stop;
  }

  /** Stores a value, where the server lets this client; returns its cursor. */
  async publish(name, value, { ttl, signal } = {}) {
    const url = new URL(this.#settings.publishUrl ?? this.#settings.url, this.#settings.url);
    if (!isPath(name)) throw new TypeError(`no key that can be published: ${name}`);
    url.pathname += name;
    await addQuery(url, this.#settings);
    if (ttl !== undefined) url.searchParams.set("ttl", String(ttl));
    const text = this.#settings.format === "json" ? JSON.stringify(value) : value;
    const body = value === null ? undefined : text;
    const response = await request(this.#settings, url, {
      method: value === null ? "DELETE" : "PUT", body, signal,
    });
    if (!response.ok) throw await refusal(response);
    await response.body?.cancel();
    return response.headers.get("Poll-Cursor");
  }

  /** Ends every watch and the connection. */
  close() {
    if (this.#closed) return;
    this.#closed = true;
    this.#watches.clear();
    clearTimeout(this.#hiddenTimer);
    for (const leave of this.#leave) leave();
    this.#end();
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.close();
  }

  #begin() {
    if (this.#source) return;
    const settings = this.#settings;
    const told = {
      wanted: () => this.#wanted(),
      news: (name, raw, cursor, transport) => this.#news(name, raw, cursor, transport),
      state: (state) => this.#tell(settings.onstate, state),
      error: (error) => this.#failed(error),
    };
    const { document, navigator, BroadcastChannel } = globalThis;
    const canShare = settings.share && document && navigator?.locks && BroadcastChannel;
    this.#source = canShare ? new Tabs(settings, told) : new Hub(settings, told);
    if (this.#watches.size > 0) this.#changed();
  }

  #end() {
    this.#source?.close();
    this.#source = null;
  }

  #changed() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    // Keys that are watched in one go are asked for in one go.
    queueMicrotask(() => {
      this.#scheduled = false;
      if (this.#closed) return;
      this.#forget();
      this.#source?.want(this.#wanted());
      for (const name of this.#renewed) this.#source?.renew(name, NOTHING);
      this.#renewed.clear();
    });
  }

  /** Drops the keys without a listener: not at once, as the next one often follows. */
  #forget() {
    for (const [name, { listeners }] of this.#watches) {
      if (listeners.size === 0) this.#watches.delete(name);
    }
  }

  /** The keys, with the cursors of what is known of them now. */
  #wanted() {
    const wanted = [...this.#watches].map(([name, { cursor }]) => [name, cursor]);
    return new Map(this.#paused ? [] : wanted);
  }

  #news(name, raw, cursor, transport) {
    const watch = this.#watches.get(name);
    // Nobody is told twice of the same content.
    if (!watch || (watch.cursor === cursor && (cursor !== null || watch.raw === null))) return;
    // Nor that a value is gone that it has not had.
    const isNone = raw === null && watch.raw == null;
    Object.assign(watch, { raw, cursor, transport });
    for (const entry of [...watch.listeners]) {
      if (!isNone || entry.since !== null) this.#call(name, watch, entry);
    }
  }

  #call(name, { raw, cursor, transport }, entry) {
    const { listener, since } = entry;
    entry.since = null;
    if (cursor !== null && cursor === since) return;
    try {
      listener(raw === null ? null : decode(raw, this.#settings.format), { key: name, cursor, transport });
    } catch (error) {
      this.#failed(error);
    }
  }

  #failed(error) {
    if (this.#settings.onerror) this.#tell(this.#settings.onerror, error);
  }

  #tell(listener, what) {
    try {
      listener?.(what);
    } catch (error) {
      // An error of the application's own listener is not ours to swallow.
      queueMicrotask(() => { throw error; });
    }
  }

  #visibility() {
    clearTimeout(this.#hiddenTimer);
    if (!globalThis.document.hidden) {
      const wasPaused = this.#paused;
      this.#paused = false;
      if (wasPaused) this.#changed();
      // Whether a WebSocket has died meanwhile nobody tells.
      this.#source?.wake(Date.now() - this.#hiddenAt > this.#settings.silenceTimeout);
      return;
    }
    this.#hiddenAt = Date.now();
    if (this.#settings.pauseWhenHidden < Infinity) {
      this.#hiddenTimer = setTimeout(() => {
        this.#paused = true;
        this.#changed();
      }, this.#settings.pauseWhenHidden);
    }
  }

  #listen(target, event, listener) {
    if (!target?.addEventListener) return;
    target.addEventListener(event, listener);
    this.#leave.push(() => target.removeEventListener(event, listener));
  }
}

const OPTIONS = new Set([
  "publishUrl", "headers", "query", "credentials", "fetch", "WebSocket", "signal", "onerror", "onstate",
]);

/**
 * One tab leads: it follows the keys of all and tells what it hears. Who holds the lock leads; when
 * its tab is closed the browser gives the lock to the next. A tab also holds a lock of its own, by
 * which the leader sees that it has gone.
 */
class Tabs {
  #settings;
  #told;
  #name;
  #id = crypto.randomUUID();
  #channel;
  #ended = new AbortController();
  #isHere = false;
  /** The leader's: what each tab wants, what is known, and its connections. */
  #tabs = new Map();
  #known = new Map();
  #hub = null;

  constructor(settings, told) {
    this.#settings = settings;
    this.#told = told;
    this.#name = `dwell ${settings.share === true ? "" : settings.share} ${settings.url}`;
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = ({ data }) => this.#heard(data);
    const until = (begin) => () => new Promise((done) => {
      this.#ended.signal.addEventListener("abort", done, { once: true });
      begin();
    });
    this.#lock(`${this.#name} ${this.#id}`, until(() => {
      // Before that a leader would take this tab for one that has gone.
      this.#isHere = true;
      this.#announce();
      this.#lock(this.#name, until(() => this.#lead()));
    }));
  }

  want() {
    this.#announce();
  }

  /** Nothing more to do: a leader renews what it does not know. */
  renew() {}

  wake(isDoubtful) {
    if (this.#hub) this.#hub.wake(isDoubtful);
    else this.#say({ type: "wake", what: [isDoubtful] });
  }

  close() {
    this.#ended.abort();
    this.#hub?.close();
    this.#channel.close();
  }

  #lock(name, held) {
    const ended = this.#ended.signal;
    // It can only be refused because we end.
    navigator.locks.request(name, { signal: ended }, held).catch(() => {});
  }

  #say(message) {
    this.#channel.postMessage({ from: this.#id, ...message });
  }

  #announce() {
    if (this.#ended.signal.aborted) return;
    const wanted = this.#told.wanted();
    if (this.#hub) this.#wants(this.#id, wanted);
    else if (this.#isHere) this.#say({ type: "want", wanted });
  }

  #lead() {
    const tell = (type) => (...what) => {
      this.#told[type](...what);
      if (!this.#ended.signal.aborted) this.#say({ type, what });
    };
    const news = tell("news");
    this.#hub = new Hub(this.#settings, {
      news: (name, raw, cursor, transport) => {
        this.#known.set(name, { raw, cursor, transport });
        news(name, raw, cursor, transport);
      },
      state: tell("state"),
      error: (error) => {
        this.#told.error(error);
        this.#say({ type: "error", what: [{ message: error.message, status: error.status }] });
      },
    });
    this.#announce();
    this.#say({ type: "who" });
  }

  #heard({ type, from, wanted, what }) {
    if (type === "who") this.#announce();
    else if (type === "wake") this.#hub?.wake(...what);
    else if (type === "want") this.#hub && this.#wants(from, wanted);
    else if (this.#hub) return;
    else if (type === "error") this.#told.error(new DwellError(what[0].message, what[0]));
    else this.#told[type](...what);
  }

  #wants(tab, wanted) {
    if (!this.#tabs.has(tab)) {
      if (this.#tabs.size >= TABS_MAX) return this.#told.error(new DwellError(`tabs exceed ${TABS_MAX}`));
      if (tab !== this.#id) this.#lock(`${this.#name} ${tab}`, () => this.#wants(tab, null));
    }
    if (wanted) this.#tabs.set(tab, wanted);
    else this.#tabs.delete(tab);
    const all = new Map();
    for (const wants of this.#tabs.values()) {
      for (const [name, cursor] of wants) {
        if (all.size >= KEYS_MAX && !all.has(name)) continue;
        // Where tabs know different values the newest is asked for, and told to all.
        all.set(name, all.has(name) && all.get(name) !== cursor ? NOTHING : cursor);
      }
    }
    for (const name of this.#known.keys()) if (!all.has(name)) this.#known.delete(name);
    this.#hub.want(all);
    for (const [name, cursor] of wanted ?? []) {
      const known = this.#known.get(name);
      if (!known) this.#hub.renew(name, cursor);
      if (!known || (known.cursor === cursor && cursor !== null)) continue;
      const what = [name, known.raw, known.cursor, known.transport];
      if (tab === this.#id) this.#told.news(...what);
      else this.#say({ type: "news", what });
    }
  }
}

/** Spreads keys over connections. */
class Hub {
  #settings;
  #told;
  #lines = [];

  constructor(settings, told) {
    this.#settings = settings;
    this.#told = told;
  }

  want(wanted) {
    const missing = new Map(wanted);
    for (const line of this.#lines) line.keep(missing);
    for (const [name, cursor] of missing) {
      let line = this.#lines.find((line) => line.keys.size < KEYS_PER_CONNECTION);
      if (!line) this.#lines.push(line = new Line(this.#settings, this.#told));
      line.keys.set(name, cursor);
      line.added.push(name);
    }
    for (const line of this.#lines) line.settle();
    this.#lines = this.#lines.filter((line) => line.keys.size > 0);
    if (this.#lines.length === 0) this.#told.state({ state: "idle", transport: null });
  }

  wake(isDoubtful) {
    for (const line of this.#lines) line.wake(isDoubtful);
  }

  /** Asks anew for a value that is not known here, unless it is the one with this cursor. */
  renew(name, cursor) {
    const line = this.#lines.find(({ keys }) => keys.has(name));
    if (line && line.keys.get(name) !== cursor) line.renew(name);
  }

  close() {
    for (const line of this.#lines) line.close();
  }
}

/** Why an attempt ends that has not failed. */
const AGAIN = Symbol("again");

/** One connection, made anew whenever it ends. */
class Line {
  /** Names with the cursors of what is known of them, in the order in which they are asked for. */
  keys = new Map();
  added = [];
  #removed = [];
  #settings;
  #told;
  #attempt = new AbortController();
  #ended = new AbortController();
  #aside = new Map();
  #failures = 0;
  #running = false;
  #state = {};
  #proven = new Set();
  #endPause = () => {};
  /** Set by a transport that can be told of other keys while it lasts. */
  resubscribe = null;
  heardAt = 0;

  constructor(settings, told) {
    this.#settings = settings;
    this.#told = told;
  }

  /** Drops the keys that are not wanted any more, and takes the others out of `wanted`. */
  keep(wanted) {
    for (const name of [...this.keys.keys()]) {
      if (!wanted.delete(name)) {
        this.keys.delete(name);
        this.#removed.push(name);
      }
    }
  }

  /** Lets the connection follow the keys as they are now. */
  settle() {
    const { added } = this, removed = this.#removed;
    this.added = [];
    this.#removed = [];
    if (this.keys.size === 0) return this.close();
    if (!this.#running) {
      this.#running = true;
      this.#run();
    } else if (added.length + removed.length > 0) {
      if (this.resubscribe) this.resubscribe(added, removed);
      else this.#attempt.abort(AGAIN);
    }
  }

  /** The network or the user is back: what waits tries now, and a doubtful connection is left. */
  wake(isDoubtful) {
    this.#endPause();
    if (isDoubtful) this.#attempt.abort(AGAIN);
  }

  /** Asks for the value of a key although it is known here that it has not changed. */
  renew(name) {
    this.keys.set(name, NOTHING);
    this.#attempt.abort(AGAIN);
  }

  close() {
    this.#ended.abort();
    this.#attempt.abort(AGAIN);
    this.#endPause();
  }

  get ended() {
    return this.#ended.signal.aborted;
  }

  /** What was heard of a key. */
  news(name, raw, cursor, transport) {
    if (this.ended || !this.keys.has(name)) return;
    this.keys.set(name, cursor);
    this.#told.news(name, raw, cursor, transport);
  }

  /** The transport has shown that it works. */
  works(transport) {
    this.heardAt = Date.now();
    this.#failures = 0;
    this.#aside.delete(transport);
    this.#proven.add(transport);
    this.#tell({ state: "live", transport });
  }

  error(error) {
    this.#told.error(error);
  }

  #tell(state) {
    const { state: before, transport } = this.#state;
    if (state.state === before && state.transport === transport && before !== "waiting") return;
    this.#state = state;
    this.#told.state(state);
  }

  async #run() {
    while (!this.ended) {
      const transport = this.#pick();
      this.#attempt = new AbortController();
      if (this.#state.state !== "live") this.#tell({ state: "connecting", transport });
      let pause = 0;
      try {
        pause = await TRANSPORTS[transport].run(this, this.#settings, this.#attempt.signal);
      } catch (error) {
        if (this.#attempt.signal.reason !== AGAIN) pause = this.#failed(transport, error);
      }
      this.resubscribe = null;
      // Whatever is left of the attempt, such as the body of an answer, ends with it.
      this.#attempt.abort(AGAIN);
      if (pause > 0 && !this.ended) await this.#pause(pause);
    }
  }

  /** The first transport that is not left alone. */
  #pick() {
    const now = Date.now(), { usable } = this.#settings;
    return usable.find((name) => !(this.#aside.get(name)?.until > now)) ?? usable.at(-1);
  }

  /** Returns how long to pause: at random, so that clients that failed together do not return so. */
  #failed(transport, error) {
    const { status = 0, retryAfter = null } = error;
    // That a key has no value is told to whoever watches it.
    if (status !== 404) this.#told.error(error);
    this.#setAside(transport, status);
    if (status > 0 && status < 500) {
      for (const name of this.keys.keys()) {
        if (status === 404) this.news(name, null, null, transport);
        else this.keys.set(name, null);
      }
    }
    const { base, max } = this.#settings.backoff;
    const most = Math.min(max, base * 2 ** Math.min(this.#failures, 20));
    this.#failures += 1;
    const pause = retryAfter === null
      ? Math.random() * (status === 404 ? Math.min(most, 5000) : most)
      : Math.min(retryAfter, 3_600_000) * (1 + Math.random() / 4);
    this.#tell({ state: "waiting", transport, retryIn: Math.round(pause) });
    return Math.max(1, pause);
  }

  /** Leaves a transport alone for a while, if it may be at fault for what happened. */
  #setAside(transport, status) {
    const isAnswer = [401, 403, 404, 429, 503].includes(status);
    const isLast = transport === this.#settings.usable.at(-1);
    // One that has worked is given the time of a restart.
    const isTrusted = this.#proven.has(transport) && this.#failures < 2;
    if (isLast && status === 0) {
      // Not the transport is at fault but the way to the server.
      this.#aside.clear();
    } else if (!isAnswer && !isLast && !isTrusted) {
      const times = (this.#aside.get(transport)?.times ?? 0) + 1;
      const until = Date.now() + Math.min(this.#settings.setAside * 2 ** (times - 1), 600_000);
      this.#aside.set(transport, { times, until });
    }
  }

  #pause(milliseconds) {
    return new Promise((done) => {
      const timer = setTimeout(done, milliseconds);
      this.#endPause = () => {
        clearTimeout(timer);
        done();
      };
    });
  }
}

/** One request for the next value. */
async function poll(line, settings, signal) {
  const names = [...line.keys.keys()];
  const url = await target(settings, line.keys);
  url.searchParams.set("wait", String(settings.waitSeconds));
  const began = Date.now();
  // A held poll may take a sixteenth longer than it asked for.
  const timeout = settings.waitSeconds * 1000 * 17 / 16 + settings.connectTimeout;
  const response = await request(settings, url, { signal, timeout });
  const cursor = response.headers.get("Poll-Cursor");
  const isNews = response.status === 200 && cursor !== null;
  if (!isNews && response.status !== 204 && response.status !== 304) throw await refusal(response);
  if (isNews) {
    checkSize(Number(response.headers.get("Content-Length") ?? 0), settings);
    if (!asksByName(names)) {
      const raw = settings.format === "bytes"
        ? new Uint8Array(await response.arrayBuffer()) : await response.text();
      signal.throwIfAborted();
      checkSize(raw.length, settings);
      line.works("poll");
      line.news(names[0], raw, cursor, "poll");
    } else {
      const { values } = await response.json();
      signal.throwIfAborted();
      line.works("poll");
      for (const [name, value] of Object.entries(values)) {
        line.news(name, value && rawOf(value), value && value.c, "poll");
      }
    }
    return 0;
  }
  line.works("poll");
  // A cursor that is new and without a value is that of an empty one.
  if (!asksByName(names) && cursor && cursor !== line.keys.get(names[0])) {
    line.news(names[0], "", cursor, "poll");
  }
  // What does not hold polls must not be asked without a rest.
  return Date.now() - began < 500 ? 500 + Math.random() * 1000 : 0;
}

/** A stream of server-sent events, by `fetch`, which can send fields and tell a status. */
async function sse(line, settings, signal) {
  const names = [...line.keys.keys()];
  const url = await target(settings, line.keys);
  const timeout = settings.connectTimeout;
  const headers = { Accept: "text/event-stream" };
  const response = await request(settings, url, { signal, timeout, headers });
  const isStream = response.headers.get("Content-Type")?.startsWith("text/event-stream");
  if (!response.ok || !isStream) throw await refusal(response, "not a stream of events");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "", retry = 1000, event = { data: [], type: "" }, hasWorked = false;
  const dispatch = () => {
    const { data, type, id } = event;
    event = { data: [], type: "" };
    if (data.length === 0) return;
    const text = data.join("\n");
    const name = !asksByName(names) ? names[0] : type === "delete" ? text : type;
    const cursors = (id ?? "").split(".");
    const cursor = asksByName(names) ? cursors[names.indexOf(name)] : id;
    if (type === "delete") line.news(name, null, null, "sse");
    else line.news(name, text, cursor ?? null, "sse");
  };
  for (;;) {
    // A proxy that gathers the stream is found out by the first words, which come at once.
    const limit = hasWorked ? settings.silenceTimeout : settings.connectTimeout;
    const { value, done } = await within(reader.read(), limit, signal);
    if (done) break;
    if (!hasWorked) line.works("sse");
    line.heardAt = Date.now();
    hasWorked = true;
    const lines = (buffer + value).split("\n");
    buffer = lines.pop();
    for (const text of lines.map((text) => text.replace(/\r$/, ""))) {
      const [, field, content] = /^([^:]*):? ?(.*)$/s.exec(text);
      if (text === "") dispatch();
      else if (field === "data") event.data.push(content);
      else if (field === "event") event.type = content;
      else if (field === "id") event.id = content;
      else if (field === "retry" && /^\d+$/.test(content)) retry = Number(content);
    }
    checkSize(buffer.length + event.data.reduce((sum, text) => sum + text.length, 0), settings);
  }
  if (!hasWorked) throw new DwellError("the stream ended before it began");
  return Math.min(retry, settings.backoff.max);
}

/** A WebSocket, which can be told of other keys while it lasts. */
async function websocket(line, settings, signal) {
  const url = await target(settings, line.keys, true);
  url.protocol = url.protocol.replace("http", "ws");
  signal.throwIfAborted();
  const socket = new (settings.WebSocket ?? globalThis.WebSocket)(url, "dwell.v1");
  const only = asksByName([...line.keys.keys()], true) ? null : [...line.keys.keys()][0];
  let isOpen = false, failure = null;
  // Not every platform closes what could not be opened.
  const closed = new Promise((done) => {
    socket.onclose = done;
    socket.onerror = () => done({ code: 1006 });
  });
  const opened = new Promise((done) => { socket.onopen = done; });
  socket.onmessage = ({ data }) => {
    line.heardAt = Date.now();
    try {
      checkSize(data.length, settings);
      const { k: name = only, c: cursor, error, ...value } = JSON.parse(data);
      if (error !== undefined) line.error(new DwellError(name ? `${name}: ${error}` : error));
      else if (cursor === null) line.news(name, null, null, "websocket");
      else if (cursor !== undefined && line.keys.get(name) !== cursor) {
        line.news(name, rawOf(value), cursor, "websocket");
      }
    } catch (error) {
      failure = error;
      socket.close(3000);
    }
  };
  const give = () => socket.close();
  signal.addEventListener("abort", give, { once: true });
  try {
    await within(Promise.race([opened, closed]), settings.connectTimeout, signal);
    isOpen = socket.readyState === 1;
    if (!isOpen) throw new DwellError("no WebSocket can be opened");
    line.works("websocket");
    const began = Date.now();
    const send = (message) => socket.readyState === 1 && socket.send(JSON.stringify(message));
    if (only === null) {
      line.resubscribe = (added, removed) => {
        if (removed.length > 0) send({ unsubscribe: removed });
        const known = added.filter((name) => line.keys.get(name) !== null);
        const since = Object.fromEntries(known.map((name) => [name, line.keys.get(name)]));
        if (added.length > 0) send({ subscribe: added, since });
      };
    }
    const { code } = await closed;
    if (failure) throw failure;
    const isRefused = [1002, 1003, 1007, 1008].includes(code);
    if (isRefused || (code !== 1001 && Date.now() - began < 2000)) {
      throw new DwellError(`closed with ${code}`);
    }
    // The server ends or the way was lost; it was not refused.
    return Math.random() * settings.backoff.base * 2;
  } finally {
    signal.removeEventListener("abort", give);
    socket.onmessage = null;
    socket.close();
  }
}

const always = () => true;
const TRANSPORTS = {
  websocket: {
    run: websocket,
    // It cannot send fields of its own.
    isUsable: (settings) => !settings.headers && Boolean(settings.WebSocket ?? globalThis.WebSocket),
  },
  // Events are text.
  sse: { run: sse, isUsable: (settings) => settings.format !== "bytes" },
  poll: { run: poll, isUsable: always },
};

/** Whether the keys are named in the query: where there are several, or a path cannot carry it. */
const asksByName = (names, mayChange = false) =>
  names.length > 1 || (names[0] !== "" && (mayChange || !isPath(names[0])));
// What URLs do not change, and what is no folder.
const isPath = (name) => /^[\w.~!$&'()*+,;=:@/-]*$/.test(name) && !/(^|\/)\.\.?(\/|$)/.test(name);

/** The address of a request for keys, which says what is known of them. */
async function target(settings, keys, mayChange = false) {
  const url = new URL(settings.url);
  const names = [...keys.keys()];
  if (asksByName(names, mayChange)) for (const name of names) url.searchParams.append("k", name);
  else url.pathname += names[0];
  const cursors = [...keys.values()].map((cursor) => cursor ?? "");
  if (cursors.some((cursor) => cursor !== "")) url.searchParams.set("since", cursors.join("."));
  await addQuery(url, settings);
  return url;
}

async function addQuery(url, { query }) {
  const pairs = await (typeof query === "function" ? query() : query);
  for (const [name, value] of Object.entries(pairs ?? {})) url.searchParams.set(name, value);
}

async function request(settings, url, { method = "GET", body, headers, signal, timeout }) {
  const own = await (typeof settings.headers === "function" ? settings.headers() : settings.headers);
  const answer = (settings.fetch ?? fetch)(url, {
    method, body, signal, headers: { ...own, ...headers },
    credentials: settings.credentials, cache: "no-store",
  });
  return timeout ? within(answer, timeout, signal) : answer;
}

/** The error that an answer is. */
async function refusal(response, otherwise = "no cursor in the answer") {
  const retryAfter = secondsOf(response.headers.get("Retry-After"));
  await response.body?.cancel().catch(() => {});
  const { status } = response;
  const message = response.ok ? otherwise : `status ${status}`;
  return new DwellError(message, { status, retryAfter });
}

/** Milliseconds of a `Retry-After`, which has seconds or a date. */
function secondsOf(text) {
  if (text === null) return null;
  const milliseconds = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isNaN(milliseconds) ? null : Math.max(0, milliseconds);
}

/** A promise with a deadline, given up with its signal. */
function within(promise, milliseconds, signal) {
  return new Promise((done, failed) => {
    const late = () => failed(new DwellError(`no answer within ${milliseconds} ms`));
    const given = () => failed(signal.reason);
    const timer = setTimeout(late, milliseconds);
    if (signal?.aborted) given();
    signal?.addEventListener("abort", given, { once: true });
    promise.then(done, failed).finally(() => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", given);
    });
  });
}

function checkSize(bytes, { valueBytesMax }) {
  if (bytes > valueBytesMax) throw new DwellError(`value exceeds ${valueBytesMax} bytes: ${bytes}`);
}

const rawOf = ({ v, b64 }) =>
  (b64 === undefined ? v : Uint8Array.from(atob(b64), (character) => character.charCodeAt(0)));

/** A value as the application wants it. */
function decode(raw, format) {
  if (format === "bytes") return typeof raw === "string" ? new TextEncoder().encode(raw) : raw;
  const text = typeof raw === "string" ? raw : new TextDecoder().decode(raw);
  return format === "json" ? JSON.parse(text) : text;
}

export default Dwell;
