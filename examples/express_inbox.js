// An Express application behind Dwell: an inbox per person.
//
//     node examples/express_inbox.js PORT MEMCACHED
//
// `POST /send/NAME` adds a message. `/poll/inbox/NAME` is a poll that found no value.

const express = require("express");
const memjs = require("memjs");

const [port, memcached] = process.argv.slice(2);
const cache = memjs.Client.create(memcached);
const inboxes = new Map();

// Stores what a poll of this inbox gets, and returns it.
async function store(name) {
  const value = JSON.stringify(inboxes.get(name) ?? []);
  await cache.set(`/poll/inbox/${name}`, value, { expires: 0 });
  return value;
}

const app = express();
app.use(express.text({ type: () => true }));

app.get("/poll/inbox/:name", async (request, response) => {
  response.type("json").send(await store(request.params.name));
});

app.post("/send/:name", async (request, response) => {
  const { name } = request.params;
  inboxes.set(name, [...(inboxes.get(name) ?? []), request.body]);
  await store(name);
  response.json({ sent: true });
});

app.listen(Number(port), "127.0.0.1");
