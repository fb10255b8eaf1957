// The session with memjs, which speaks the binary protocol.
const memjs = require("memjs");

const client = memjs.Client.create(process.argv[2], { retries: 0, timeout: 5 });
const show = (value) => {
  if (Buffer.isBuffer(value)) return value.length > 100 ? `${value.length} bytes` : `${value}`;
  if (value && typeof value === "object" && "value" in value) return show(value.value);
  return JSON.stringify(value);
};
const call = async (name, ...words) => {
  let text;
  try {
    text = show(await client[name](...words));
  } catch (error) {
    text = `error ${error.message || error}`;
  }
  console.log(`${name} ${words[0]}: ${text}`);
};

(async () => {
  await call("flush");
  await call("set", "k", "value", { expires: 0 });
  await call("get", "k");
  await call("get", "none");
  await call("add", "k", "other", { expires: 0 });
  await call("add", "fresh", "other", { expires: 0 });
  await call("replace", "k", "new", { expires: 0 });
  await call("replace", "none", "new", { expires: 0 });
  await call("append", "k", "er");
  await call("prepend", "k", "re");
  await call("append", "none", "er");
  await call("get", "k");
  await call("increment", "n", 1, { initial: 41, expires: 0 });
  await call("increment", "n", 1, { initial: 41, expires: 0 });
  await call("decrement", "n", 100, { initial: 41, expires: 0 });
  await call("touch", "k", 100);
  await call("set", "long", "y".repeat(1000000), { expires: 0 });
  await call("get", "long");
  await call("delete", "k");
  await call("delete", "k");
  await call("set", "big", "z".repeat(1048576), { expires: 0 });
  client.quit();
})();
