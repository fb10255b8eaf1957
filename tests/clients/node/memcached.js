// The session with 3rd-Eden's `memcached`, which speaks the text protocol.
const Memcached = require("memcached");

const client = new Memcached(process.argv[2], { retries: 0, timeout: 5000 });
const call = (name, ...words) =>
  new Promise((resolve) => {
    client[name](...words, (error, result) => {
      const text = error ? `error ${error.message || error}` : JSON.stringify(result);
      console.log(`${name} ${words.slice(0, 1)}: ${text}`);
      resolve(result);
    });
  });

(async () => {
  await call("flush");
  await call("set", "k", "value", 0);
  await call("get", "k");
  await call("get", "none");
  await call("add", "k", "other", 0);
  await call("replace", "k", "new", 0);
  await call("append", "k", "er");
  await call("prepend", "k", "re");
  await call("getMulti", ["k", "none"]);
  await call("set", "n", "41", 0);
  await call("incr", "n", 1);
  await call("decr", "n", 100);
  const { cas } = await new Promise((resolve) => client.gets("k", (_, found) => resolve(found)));
  await call("cas", "k", "by cas", cas, 0);
  await call("cas", "k", "too late", cas, 0);
  await call("touch", "k", 100);
  await call("set", "short", "x", -1);
  await call("get", "short");
  await call("set", "long", "y".repeat(1000000), 0);
  await new Promise((resolve) =>
    client.get("long", (_, found) => resolve(console.log(`long: ${found.length}`))),
  );
  await call("del", "k");
  await call("del", "k");
  const names = await new Promise((resolve) =>
    client.stats((_, servers) => resolve(Object.keys(servers[0]).filter((n) => n !== "server"))),
  );
  console.log(`stats: ${["cmd_get", "curr_items", "evictions"].every((n) => names.includes(n))}`);
  await call("set", "big", "z".repeat(1048576), 0);
  client.end();
  // A refused value leaves a timer of the client behind.
  process.exit(0);
})();
