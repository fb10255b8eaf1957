// Starts the program that is given, and follows a key of it with the client that is given, over each
// transport in turn that every supported Node has.
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const net = require("node:net");

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

async function set(port, key, value) {
  const stream = net.connect(port, "127.0.0.1");
  stream.write(`set ${key} 0 0 ${value.length}\r\n${value}\r\n`);
  const [answer] = await once(stream, "data");
  stream.destroy();
  if (answer.toString() !== "STORED\r\n") throw new Error(answer);
}

function follow(Dwell, url, key, transport, store) {
  const dwell = new Dwell(url, { transports: [transport] });
  return new Promise((resolve) => {
    dwell.watch(key, (value) => {
      if (value === "0:0") set(store, `/poll/${key}`, "1:0");
      if (value === "1:0") resolve(dwell.close());
    });
  });
}

async function main() {
  const { Dwell } = await import(process.argv[3]);
  const [listen, store] = [await freePort(), await freePort()];
  const program = spawn(
    process.argv[2],
    ["serve", `--listen=127.0.0.1:${listen}`, `--store=127.0.0.1:${store}`, "--admin=off"],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  try {
    for await (const line of program.stderr) if (line.includes("started: ")) break;
    for (const transport of ["sse", "poll"]) {
      const key = `score-${transport}`;
      await set(store, `/poll/${key}`, "0:0");
      await follow(Dwell, `http://127.0.0.1:${listen}/poll/`, key, transport, store);
      console.log(`${process.argv[3]} followed over ${transport}`);
    }
  } finally {
    program.kill();
  }
}

main();
