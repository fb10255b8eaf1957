// What the README shows works as it stands there.
import assert from "node:assert/strict";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { scripted, until } from "./support.js";

test("the examples of the README", async (context) => {
  const values = { "/poll/alice": "hello", "/poll/score": '{"home":1}' };
  const published = [];
  const server = await scripted((request, response) => {
    const { pathname, searchParams } = request.url;
    if (request.method === "PUT") {
      published.push(request.headers.authorization + pathname + request.url.search);
      response.writeHead(204, { "Poll-Cursor": "c" }).end();
    } else if (!searchParams.has("since") && !searchParams.has("k")) {
      response.writeHead(200, { "Poll-Cursor": "c" }).end(values[pathname]);
    } else if (!searchParams.get("since")?.includes("c.c") && searchParams.has("k")) {
      const both = searchParams.getAll("k").map((key) => [key, { v: values[`/poll/${key}`], c: "c" }]);
      response.writeHead(200, { "Poll-Cursor": "c.c" });
      response.end(JSON.stringify({ cursor: "c.c", values: Object.fromEntries(both) }));
    }
  });
  const readme = await readFile(new URL("../README.md", import.meta.url), "utf8");
  const blocks = [...readme.matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code);
  assert.equal(blocks.length, 4);
  const client = new URL("../dwell.js", import.meta.url).href;
  const code = `const token = () => "abc";\n${blocks.join("\n")}\nexport { dwell, stop, account };`
    .replaceAll('"dwell-client"', JSON.stringify(client))
    .replaceAll("https://example.org/poll/", server.base);
  const file = path.join(await mkdtemp(path.join(tmpdir(), "dwell-readme-")), "readme.mjs");
  await writeFile(file, code);
  const logged = [];
  context.mock.method(console, "log", (...words) => logged.push(words.join(" ")));
  context.mock.method(console, "warn", () => {});
  const { dwell, stop, account } = await import(pathToFileURL(file));
  await until(() => logged.includes("hello"), "the value");
  await until(() => logged.some((line) => line.startsWith('{"home":1} c ')), "value and cursor");
  assert.deepEqual(published, ["Bearer abc/poll/score?ttl=60"]);
  stop();
  dwell.close();
  account.close();
  server.stop();
});
