// The client against the real server, over each transport.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Dwell } from "../dwell.js";
import { Heard, Server, until } from "./support.js";

const TRANSPORTS = ["poll", "sse", ...(globalThis.WebSocket ? ["websocket"] : [])];
const open = [];
after(() => open.forEach((dwell) => dwell.close()));
function client(server, options) {
  const dwell = new Dwell(server.url(), { ...QUICK, ...options });
  open.push(dwell);
  return dwell;
}
const QUICK = { backoff: { base: 20, max: 200 }, onerror: () => {} };

describe("over each transport", { concurrency: true }, () => {
  let server;
  before(async () => { server = await Server.start(); });
  after(() => server.stop());

  for (const transport of TRANSPORTS) {
    const open = (options) => client(server, { transports: [transport], ...options });

    test(`${transport}: the value, each newer one, and the end of it`, async () => {
      const key = `${transport}-one`, heard = new Heard(), dwell = open();
      await server.set(key, "first");
      dwell.watch(key, heard.listener);
      const first = await heard.next();
      assert.equal(first.value, "first");
      assert.equal(first.transport, transport);
      assert.match(first.cursor, /^[\w-]{11}$/);
      await server.set(key, "second");
      assert.equal((await heard.next()).value, "second");
      await server.set(key, "");
      assert.equal((await heard.next()).value, "");
      await server.delete(key);
      const deleted = await heard.next();
      assert.deepEqual([deleted.value, deleted.cursor], [null, null]);
      await server.set(key, "first");
      const again = await heard.next();
      assert.deepEqual([again.value, again.cursor], ["first", first.cursor]);
      dwell.close();
    });

    test(`${transport}: nobody is told what it has`, async () => {
      const key = `${transport}-since`, heard = new Heard();
      await server.set(key, "known");
      const first = open();
      first.watch(key, heard.listener);
      const { cursor } = await heard.next();
      first.close();
      const later = new Heard(), second = open();
      second.watch(key, later.listener, { since: cursor });
      await server.set(key, "news");
      // Had the value been told once more, it would have come before.
      assert.equal((await later.next()).value, "news");
      second.close();
    });

    test(`${transport}: several keys`, async () => {
      const heard = { a: new Heard(), b: new Heard(), late: new Heard() }, dwell = open();
      const keyOf = (name) => `${transport}-many-${name}`;
      await server.set(keyOf("a"), "a1");
      await server.set(keyOf("late"), "late1");
      dwell.watch(keyOf("a"), heard.a.listener);
      const stop = dwell.watch(keyOf("b"), heard.b.listener);
      assert.equal((await heard.a.next()).value, "a1");
      await server.set(keyOf("b"), "b1");
      assert.equal((await heard.b.next()).value, "b1");
      dwell.watch(keyOf("late"), heard.late.listener);
      assert.equal((await heard.late.next()).value, "late1");
      stop();
      await server.set(keyOf("b"), "b2");
      await server.set(keyOf("a"), "a2");
      assert.equal((await heard.a.next()).value, "a2");
      await server.delete(keyOf("late"));
      assert.equal((await heard.late.next()).value, null);
      assert.deepEqual([heard.a.all.length, heard.b.all.length, heard.late.all.length], [2, 1, 2]);
      dwell.close();
    });

    test(`${transport}: a name that no path can carry`, async () => {
      const heard = new Heard(), dwell = open(), name = `${transport}-größe?`;
      await server.set(name, "1 m");
      dwell.watch(name, heard.listener);
      assert.equal((await heard.next()).value, "1 m");
      dwell.close();
    });

    test(`${transport}: values as JSON, and what is none`, async () => {
      const key = `${transport}-json`, heard = new Heard(), failures = [];
      const dwell = open({ format: "json", onerror: (error) => failures.push(error) });
      await server.set(key, '{"score":[1,0]}');
      dwell.watch(key, heard.listener);
      assert.deepEqual((await heard.next()).value, { score: [1, 0] });
      await server.set(key, "{");
      await until(() => failures.length > 0, "an error");
      assert.ok(failures[0] instanceof SyntaxError, String(failures[0]));
      await server.set(key, "2");
      assert.equal((await heard.next()).value, 2);
      dwell.close();
    });
  }

  test("bytes come as they are stored", async () => {
    const heard = new Heard();
    const dwell = client(server, { format: "bytes" });
    const bytes = Uint8Array.from([0xff, 0, 13, 10, 0xc3]);
    await server.set("raw", bytes);
    dwell.watch("raw", heard.listener);
    assert.deepEqual([...(await heard.next()).value], [...bytes]);
    dwell.close();
  });

  test("a second watch of a key is told what is known", async () => {
    const [one, two] = [new Heard(), new Heard()];
    const dwell = client(server);
    await server.set("twice", "value");
    const stop = dwell.watch("twice", one.listener);
    await one.next();
    dwell.watch("twice", two.listener);
    assert.equal((await two.next()).value, "value");
    stop();
    await server.set("twice", "other");
    assert.equal((await two.next()).value, "other");
    assert.equal(one.all.length, 1);
    dwell.close();
  });
});

describe("connections", () => {
  let server;
  before(async () => { server = await Server.start(); });
  after(() => server.stop());

  test("one for all keys, and none when nothing is watched", async () => {
    const heard = new Heard(), ended = new AbortController();
    const dwell = client(server, { transports: ["sse"] });
    for (const name of ["a", "b", "c"]) {
      await server.set(name, name);
      dwell.watch(name, heard.listener, { signal: ended.signal });
    }
    for (const _ of "abc") await heard.next();
    // The server may not have noticed yet that the connections for fewer keys are gone.
    await server.awaitMetric("dwell_streams_open", 1);
    await server.awaitMetric("dwell_waits_held", 3);
    ended.abort();
    await server.awaitMetric("dwell_streams_open", 0);
    dwell.watch("a", heard.listener);
    assert.equal((await heard.next()).value, "a");
    dwell.close();
    await server.awaitMetric("dwell_waits_held", 0);
  });

  for (const transport of TRANSPORTS) {
    test(`${transport}: a watch that follows another at once keeps the connection`, async () => {
      const [one, two] = [new Heard(), new Heard()];
      const requests = [];
      const { WebSocket } = globalThis;
      const dwell = client(server, {
        transports: [transport],
        fetch: (url, ...rest) => requests.push(url) && fetch(url, ...rest),
        WebSocket: WebSocket && class extends WebSocket {
          constructor(...rest) {
            requests.push(rest[0]);
            super(...rest);
          }
        },
      });
      await server.set("replaced", "value");
      const stop = dwell.watch("replaced", one.listener);
      await one.next();
      await server.awaitMetric("dwell_waits_held", 1);
      const before = requests.length;
      stop();
      dwell.watch("replaced", two.listener);
      assert.equal((await two.next()).value, "value");
      assert.equal(requests.length, before);
      await server.set("replaced", "other");
      assert.equal((await two.next()).value, "other");
      assert.equal(one.all.length, 1);
      dwell.close();
      await server.awaitMetric("dwell_waits_held", 0);
    });

    test(`${transport}: a watch beside one that has the value from elsewhere`, async () => {
      const [one, two, three] = [new Heard(), new Heard(), new Heard()];
      await server.set("rendered", "value");
      const first = client(server, { transports: [transport] });
      first.watch("rendered", one.listener);
      const { cursor } = await one.next();
      first.close();
      await server.awaitMetric("dwell_waits_held", 0);
      const dwell = client(server, { transports: [transport] });
      dwell.watch("rendered", two.listener, { since: cursor });
      await server.awaitMetric("dwell_waits_held", 1);
      dwell.watch("rendered", three.listener);
      assert.equal((await three.next()).value, "value");
      await server.set("rendered", "other");
      // The one that had the value hears the next one only.
      assert.equal((await two.next()).value, "other");
      assert.equal((await three.next()).value, "other");
      dwell.close();
      await server.awaitMetric("dwell_waits_held", 0);
    });

    test(`${transport}: a value that is gone is told to each that had it, from wherever`, async () => {
      const [none, one, two, three] = [new Heard(), new Heard(), new Heard(), new Heard()];
      const key = `${transport}-gone`, dwell = client(server, { transports: [transport] });
      const since = "CCCCCCCCCCA";
      // Nothing is there: this one has had nothing, and the other two had a value from elsewhere.
      dwell.watch(key, none.listener);
      await server.awaitMetric("dwell_waits_held", 1);
      dwell.watch(key, one.listener, { since });
      dwell.watch(key, two.listener, { since: "BBBBBBBBBBA" });
      assert.equal((await one.next()).value, null);
      assert.equal((await two.next()).value, null);
      // It is known by now.
      dwell.watch(key, three.listener, { since });
      assert.equal((await three.next()).value, null);
      assert.deepEqual(none.all, []);
      await server.set(key, "value");
      const all = [none, one, two, three];
      for (const heard of all) assert.equal((await heard.next()).value, "value");
      await server.delete(key);
      for (const heard of all) assert.equal((await heard.next()).value, null);
      assert.deepEqual(all.map((heard) => heard.all.length), [2, 3, 3, 3]);
      dwell.close();
      await server.awaitMetric("dwell_waits_held", 0);
    });
  }

  test("more keys than one connection takes", async () => {
    const heard = new Heard(), ended = new AbortController();
    const dwell = client(server, { transports: ["sse"], signal: ended.signal });
    const names = Array.from({ length: 100 }, (_, index) => `n${index}`);
    for (const name of names) {
      await server.set(name, name);
      dwell.watch(name, heard.listener);
    }
    for (const _ of names) await heard.next();
    assert.deepEqual(heard.all.map(({ value }) => value).sort(), [...names].sort());
    await server.awaitMetric("dwell_streams_open", 2);
    ended.abort();
    await server.awaitMetric("dwell_streams_open", 0);
  });

  for (const transport of TRANSPORTS) {
    test(`${transport}: a server that is started anew`, async () => {
      const heard = new Heard(), states = [];
      const onstate = ({ state }) => states.push(state);
      const dwell = client(server, { transports: [transport], onstate });
      await server.set("again", "before");
      dwell.watch("again", heard.listener);
      await heard.next();
      await server.stop();
      await until(() => states.includes("waiting"), "it waits");
      await server.restart();
      await server.set("again", "after");
      // The store has begun empty, which may be told before.
      const next = await heard.next();
      if (next.value === null) assert.equal((await heard.next()).value, "after");
      else assert.equal(next.value, "after");
      dwell.close();
    });
  }

  test("whatever happens, every client ends on the newest value and hears none twice", async () => {
    const watchers = TRANSPORTS.map((transport) => {
      const heard = new Heard();
      const dwell = client(server, { transports: [transport] });
      for (const name of ["x", "y"]) dwell.watch(name, heard.listener);
      return { transport, heard, dwell };
    });
    // Knuth's constants: the same choices in every run.
    let random = 1;
    const choose = (count) => {
      random = (Math.imul(random, 1664525) + 1013904223) >>> 0;
      return Math.floor((random / 2 ** 32) * count);
    };
    for (let step = 0; step < 60; step += 1) {
      const name = "xy"[choose(2)];
      if (choose(25) === 0) await server.restart();
      else if (choose(6) === 0) await server.set(name, "").then(() => server.delete(name));
      else await server.set(name, `value ${choose(4)}`);
    }
    await server.set("x", "the end of x");
    await server.set("y", "the end of y");
    for (const { transport, heard, dwell } of watchers) {
      for (const name of ["x", "y"]) {
        const of = () => heard.all.filter(({ key }) => key === name);
        await until(() => of().at(-1)?.value === `the end of ${name}`, `${transport} ends on the newest`);
        of().reduce((before, now) => {
          assert.notEqual(before.cursor, now.cursor, `${transport} told twice of ${now.value}`);
          return now;
        });
      }
      dwell.close();
    }
  });
});

test("values are published by one and told to the other", async () => {
  const token = "0123456789abcdef0123456789abcdef";
  const server = await Server.start(`
[publish]
token = "${token}"
[[route]]
prefix = "/live/"
publish = true
`);
  after(() => server.stop());
  const live = { url: () => server.url().replace("/poll/", "/live/") }, heard = new Heard();
  const reader = client(live, { format: "json" });
  const headers = () => ({ Authorization: `Bearer ${token}` });
  const writer = client(live, { format: "json", headers });
  reader.watch("score", heard.listener);
  const cursor = await writer.publish("score", { home: 1 });
  const told = await heard.next();
  assert.deepEqual([told.value, told.cursor], [{ home: 1 }, cursor]);
  await writer.publish("score", null);
  assert.equal((await heard.next()).value, null);
  await assert.rejects(reader.publish("score", 1), ({ status }) => status === 401);
});
