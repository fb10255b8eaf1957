// What the README and the page of the book show works as it stands there.
import assert from "node:assert/strict";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { scripted, until } from "./support.js";

const README = new URL("../README.md", import.meta.url);
const PAGE = new URL("../../../docs/javascript.md", import.meta.url);
const CLIENT = new URL("../dwell.js", import.meta.url).href;

/** A server with values, which takes publications. */
async function serve() {
  const values = { "/poll/alice": "hello", "/poll/score": '{"home":1}', "/poll/inbox": "empty",
    "/poll/home": "1", "/poll/away": "0" };
  const server = await scripted((request, response) => {
    const { pathname, searchParams } = request.url;
    if (request.method === "PUT") {
      server.published.push(request.headers.authorization + pathname + request.url.search);
      response.writeHead(204, { "Poll-Cursor": "c" }).end();
    } else if (!searchParams.has("since") && !searchParams.has("k")) {
      response.writeHead(200, { "Poll-Cursor": "c" }).end(values[pathname]);
    } else if (!searchParams.get("since")?.includes("c.c") && searchParams.has("k")) {
      const both = searchParams.getAll("k").map((key) => [key, { v: values[`/poll/${key}`], c: "c" }]);
      response.writeHead(200, { "Poll-Cursor": "c.c" });
      response.end(JSON.stringify({ cursor: "c.c", values: Object.fromEntries(both) }));
    }
  });
  server.published = [];
  return server;
}

/** Runs the examples of a text as one program against a server; what it logs, and its clients. */
async function run(context, blocks, server, imported, exported) {
  const code = `${imported}\nconst token = () => "abc";\n${blocks.join("\n")}\nexport { ${exported} };`
    .replaceAll('"dwell-client"', JSON.stringify(CLIENT))
    .replaceAll("https://example.org/poll/", server.base);
  const file = path.join(await mkdtemp(path.join(tmpdir(), "dwell-readme-")), "readme.mjs");
  await writeFile(file, code);
  const logged = [];
  context.mock.method(console, "log", (...words) => logged.push(words.join(" ")));
  context.mock.method(console, "warn", () => {});
  return { logged, ...await import(pathToFileURL(file)) };
}

async function blocksOf(page) {
  return [...(await readFile(page, "utf8")).matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code);
}

test("the examples of the README", async (context) => {
  const blocks = await blocksOf(README);
  assert.equal(blocks.length, 4);
  const server = await serve();
  const { logged, dwell, stop, account } = await run(context, blocks, server, "", "dwell, stop, account");
  await until(() => logged.includes("hello"), "the value");
  await until(() => logged.some((line) => line.startsWith('{"home":1} c ')), "value and cursor");
  assert.deepEqual(server.published, ["Bearer abc/poll/score?ttl=60"]);
  stop();
  dwell.close();
  account.close();
  server.stop();
});

test("the examples of the book", async (context) => {
  // The programs, which have names, are run by the tests of the book.
  const blocks = (await blocksOf(PAGE)).filter((code) => !/^\/\/ \S+\.mjs\n/.test(code));
  assert.equal(blocks.length, 3);
  const server = await serve();
  const imported = 'import { Dwell } from "dwell-client";';
  const { logged, teams, account } = await run(context, blocks, server, imported, "teams, account");
  await until(() => ["home 1", "away 0"].every((line) => logged.includes(line)), "both values");
  await until(() => logged.includes("inbox empty"), "the value behind a token");
  assert.deepEqual(server.published, ["Bearer abc/poll/score?ttl=60"]);
  teams.close();
  account.close();
  server.stop();
});

test("the book has every option", async () => {
  const types = await readFile(new URL("../dwell.d.ts", import.meta.url), "utf8");
  const options = /export interface Options \{(.*?)^\}/ms.exec(types)[1];
  const [, table] = (await readFile(PAGE, "utf8")).split("\n## Options\n");
  const cells = [...table.matchAll(/^\| (`.*?) \|/gm)].map(([, cell]) => cell);
  const described = cells.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name));
  const declared = [...options.matchAll(/^  (\w+)\?:/gm)].map(([, name]) => name);
  assert.deepEqual(described.sort(), declared.sort());
});
