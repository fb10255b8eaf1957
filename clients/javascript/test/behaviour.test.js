// What the client does when things go wrong, against a server that does what a test says.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Dwell, DwellError } from "../dwell.js";
import { Heard, scripted, until } from "./support.js";

const open = [];
after(() => open.forEach((end) => end()));
const QUICK = { base: 10, max: 50 };

async function serve(answer) {
  const server = await scripted(answer);
  open.push(server.stop);
  return server;
}
function client(server, options) {
  const dwell = new Dwell(server.base, { backoff: QUICK, onerror: () => {}, ...options });
  open.push(() => dwell.close());
  return dwell;
}
const value = (response, text, cursor) => response.writeHead(200, { "Poll-Cursor": cursor }).end(text);
/** Holds a poll for ever. */
const hold = () => {};

test("503 says when to come back", async () => {
  const states = [], heard = new Heard();
  const server = await serve((request, response, count) =>
    (count === 1 ? response.writeHead(503, { "Retry-After": "1" }).end() : value(response, "at last", "c")));
  client(server, { transports: ["poll"], onstate: (state) => states.push(state) }).watch("a", heard.listener);
  assert.equal((await heard.next()).value, "at last");
  const [first, second] = server.requests;
  assert.ok(second.at - first.at >= 1000, `${second.at - first.at} ms`);
  const { retryIn } = states.find(({ state }) => state === "waiting");
  assert.ok(retryIn >= 1000 && retryIn <= 1250, String(retryIn));
});

test("pauses are random and grow up to a limit", async () => {
  const pauses = [];
  const server = await serve((request, response) => response.writeHead(500).end());
  client(server, {
    transports: ["poll"],
    backoff: { base: 1, max: 16 },
    onstate: ({ retryIn }) => retryIn !== undefined && pauses.push(retryIn),
  }).watch("a", () => {});
  await until(() => pauses.length >= 20, "20 failures");
  pauses.forEach((pause, index) => assert.ok(pause <= Math.min(16, 2 ** index), `${index}: ${pause}`));
  assert.ok(new Set(pauses.slice(5)).size > 3, String(pauses));
});

test("a transport that is blocked gives way to the next", async () => {
  const heard = new Heard(), failures = [];
  // As a proxy that knows neither WebSocket, which the server here refuses, nor streams.
  const server = await serve((request, response, count) => {
    if (request.headers.accept === "text/event-stream") response.writeHead(502).end();
    else if (request.url.searchParams.has("since")) hold();
    else value(response, `after ${count} requests`, "c");
  });
  client(server, { onerror: (error) => failures.push(error.message) }).watch("a", heard.listener);
  assert.equal((await heard.next()).transport, "poll");
  assert.ok(failures.includes("status 502"), String(failures));
  await until(() => server.requests.at(-1).url.searchParams.get("since") === "c", "it goes on from there");
});

test("a stream that is gathered on the way is given up", async () => {
  const heard = new Heard();
  const server = await serve((request, response) => {
    if (request.headers.accept !== "text/event-stream") value(response, "by poll", "c");
    else response.writeHead(200, { "Content-Type": "text/event-stream" }).flushHeaders();
  });
  client(server, { transports: ["sse", "poll"], connectTimeout: 100 }).watch("a", heard.listener);
  assert.equal((await heard.next()).transport, "poll");
});

test("a stream that breaks is taken up by its cursor, by any transport", async () => {
  const heard = new Heard();
  const server = await serve((request, response) => {
    const since = request.url.searchParams.get("since");
    if (request.headers.accept !== "text/event-stream") {
      if (since === "c1") value(response, "two", "c2");
    } else if (since === null) {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write("retry: 1\n\nid: c1\ndata: one\n\n", () => response.destroy());
    } else {
      response.writeHead(500).end();
    }
  });
  client(server, { transports: ["sse", "poll"] }).watch("a", heard.listener);
  const { value: one, cursor } = await heard.next();
  assert.deepEqual([one, cursor], ["one", "c1"]);
  const { value: two, transport } = await heard.next();
  assert.deepEqual([two, transport], ["two", "poll"]);
});

test("events come as the standard has them", async () => {
  const heard = new Heard();
  const server = await serve((request, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8" });
    const text = ":\r\nretry: 5\r\n\r\nevent: b\nid: .c1\ndata: ä\ndata:  two\ndata\n\nevent: b\nid: .c2\n\n" +
      "event: a\nid: c3.c1\ndata: x\n\nevent: delete\nid: c3.\ndata: b\n\n";
    // A byte at a time is what the whole is.
    const bytes = [...Buffer.from(text)];
    const write = () => bytes.length && response.write(Buffer.from([bytes.shift()]), write);
    write();
  });
  const dwell = client(server, { transports: ["sse"] });
  dwell.watch("a", heard.listener);
  dwell.watch("b", heard.listener);
  const told = [await heard.next(), await heard.next(), await heard.next()];
  assert.deepEqual(told.map(({ key, value, cursor }) => [key, value, cursor]),
    [["b", "ä\n two\n", "c1"], ["a", "x", "c3"], ["b", null, null]]);
  assert.deepEqual(server.requests[0].url.searchParams.getAll("k"), ["a", "b"]);
});

test("an answer of the application's own takes the cursor back", async () => {
  const heard = new Heard(), failures = [];
  const server = await serve((request, response, count) => {
    if (count === 1) value(response, "one", "c1");
    else if (count === 2) response.writeHead(404).end("gone");
    else if (count === 3) response.writeHead(403).end();
    else value(response, "one", "c1");
  });
  client(server, { transports: ["poll"], onerror: ({ status }) => failures.push(status) })
    .watch("a", heard.listener);
  assert.equal((await heard.next()).value, "one");
  assert.equal((await heard.next()).value, null);
  assert.equal((await heard.next()).value, "one");
  const sinces = server.requests.slice(0, 4).map(({ url }) => url.searchParams.get("since"));
  assert.deepEqual(sinces, [null, "c1", null, null]);
  assert.deepEqual(failures, [403]);
});

test("a server that does not hold polls is not flooded", async () => {
  const server = await serve((request, response) => response.writeHead(204, { "Poll-Cursor": "c" }).end());
  client(server, { transports: ["poll"] }).watch("a", () => {});
  await until(() => server.requests.length >= 3, "three polls");
  const [, second, third] = server.requests;
  assert.ok(third.at - second.at >= 450, `${third.at - second.at} ms`);
});

test("fields and query are asked for with every request", async () => {
  let count = 0;
  const server = await serve((request, response) => value(response, "v", `c${request.headers.authorization}`));
  client(server, {
    headers: async () => ({ Authorization: `Bearer ${count++}` }),
    query: { token: "a b" },
    transports: ["websocket", "poll"],
  }).watch("a", () => {});
  await until(() => server.requests.length >= 2, "two polls");
  const [first, second] = server.requests;
  assert.deepEqual([first, second].map(({ headers }) => headers.authorization), ["Bearer 0", "Bearer 1"]);
  assert.equal(first.url.search, "?token=a+b&wait=25");
});

test("values are published, and deleted", async () => {
  const server = await serve((request, response) => {
    if (request.headers.authorization !== "Bearer t") return response.writeHead(401).end();
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk)).on("end", () => {
      request.body = Buffer.concat(chunks).toString();
      response.writeHead(204, { "Poll-Cursor": "c" }).end();
    });
  });
  const dwell = client(server, { headers: { Authorization: "Bearer t" }, format: "json" });
  assert.equal(await dwell.publish("inbox:7", { unread: 1 }, { ttl: 60 }), "c");
  await dwell.publish("inbox:7", null);
  assert.deepEqual(server.requests.map(({ method, url, body }) => [method, url.pathname + url.search, body]), [
    ["PUT", "/poll/inbox:7?ttl=60", '{"unread":1}'], ["DELETE", "/poll/inbox:7", ""],
  ]);
  await assert.rejects(client(server).publish("a", "b"), (error) => error instanceof DwellError && error.status === 401);
  await assert.rejects(dwell.publish("../a", 1), TypeError);
});

test("too large a value is refused", async () => {
  const failures = [];
  const server = await serve((request, response) => value(response, "x".repeat(101), "c"));
  client(server, { transports: ["poll"], valueBytesMax: 100, onerror: ({ message }) => failures.push(message) })
    .watch("a", () => assert.fail("told"));
  await until(() => failures.length > 0, "an error");
  assert.equal(failures[0], "value exceeds 100 bytes: 101");
});

test("what a listener throws is told, and the others are called", async () => {
  const heard = new Heard(), failures = [];
  const server = await serve((request, response, count) => count === 1 && value(response, "v", "c"));
  const dwell = client(server, { transports: ["poll"], onerror: (error) => failures.push(error.message) });
  dwell.watch("a", () => { throw new Error("a bug"); });
  dwell.watch("a", heard.listener);
  await heard.next();
  assert.deepEqual(failures, ["a bug"]);
});

test("mistakes are found at once", () => {
  assert.throws(() => new Dwell("http://h/", { retries: 1 }), /no such option: retries/);
  assert.throws(() => new Dwell("http://h/", { transports: ["pigeon"] }), /no such transport: pigeon/);
  assert.throws(() => new Dwell("http://h/", { transports: ["sse"], format: "bytes" }), /none of the transports/);
  assert.throws(() => new Dwell("not a url"), TypeError);
  const dwell = new Dwell("http://h/", { signal: AbortSignal.abort() });
  dwell.watch("a", assert.fail)();
});
