// Servers for the tests: the real one, and one that answers as a test says.
import { once } from "node:events";
import { spawn } from "node:child_process";
import { mkdtemp, writeFile } from "node:fs/promises";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

const BINARY = process.env.DWELL_BIN ?? new URL("../../../target/debug/dwell", import.meta.url).pathname;
const DEADLINE_MS = 30_000;

// Below the range from which the kernel takes ports for outgoing connections.
let place = process.pid * 7919 + 4001;
async function freePort() {
  for (;;) {
    const port = 12_000 + (place++ % 18_000);
    const probe = net.createServer();
    const isFree = await new Promise((done) => {
      probe.once("error", () => done(false)).listen(port, "127.0.0.1", () => done(true));
    });
    if (isFree) await new Promise((done) => probe.close(done));
    if (isFree) return port;
  }
}

/** Asks again and again until the answer is true, and returns it. */
export async function until(condition, what) {
  const ends = Date.now() + DEADLINE_MS;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > ends) throw new Error(`not within ${DEADLINE_MS} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 5));
  }
}

/** `dwell serve` on its embedded store. */
export class Server {
  #child = null;

  static async start(extra = "") {
    const server = new Server();
    [server.port, server.storePort, server.adminPort] = [await freePort(), await freePort(), await freePort()];
    const folder = await mkdtemp(path.join(tmpdir(), "dwell-client-"));
    server.config = path.join(folder, "dwell.toml");
    await writeFile(server.config, `
[server]
listen = "127.0.0.1:${server.port}"
admin = "127.0.0.1:${server.adminPort}"
pollers = 1
[store]
listen = "127.0.0.1:${server.storePort}"
${extra}`);
    await server.restart();
    return server;
  }

  url(at = this.port) {
    return `http://127.0.0.1:${at}/poll/`;
  }

  async restart() {
    await this.stop();
    this.#child = spawn(BINARY, ["serve", "--config", this.config], { stdio: "ignore" });
    const child = this.#child;
    await until(async () => {
      if (child.exitCode !== null) throw new Error(`dwell ended with ${child.exitCode}`);
      return (await Promise.all([this.port, this.storePort, this.adminPort].map(accepts))).every(Boolean);
    }, "dwell listens");
  }

  async stop() {
    if (this.#child === null || this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill("SIGKILL");
    await once(this.#child, "exit");
  }

  /** Sets a key by the memcached protocol. */
  async set(key, value, seconds = 0) {
    const bytes = Buffer.from(value);
    const head = `set /poll/${key} 0 ${seconds} ${bytes.length}\r\n`;
    await this.#store(Buffer.concat([Buffer.from(head), bytes, Buffer.from("\r\n")]), "STORED");
  }

  async delete(key) {
    await this.#store(`delete /poll/${key}\r\n`, "DELETED");
  }

  async #store(command, expected) {
    const socket = net.connect(this.storePort, "127.0.0.1");
    socket.write(command);
    const [answer] = await once(socket, "data");
    socket.destroy();
    if (!String(answer).startsWith(expected)) throw new Error(String(answer));
  }

  async metric(name) {
    const response = await fetch(`http://127.0.0.1:${this.adminPort}/-/metrics`);
    const line = (await response.text()).split("\n").find((line) => line.startsWith(`${name} `));
    return Number(line.split(" ")[1]);
  }

  async awaitMetric(name, value) {
    await until(async () => (await this.metric(name)) === value, `${name} is ${value}`);
  }
}

async function accepts(port) {
  const socket = net.connect(port, "127.0.0.1");
  const result = await Promise.race([
    once(socket, "connect").then(() => true), once(socket, "error").then(() => false),
  ]).catch(() => false);
  socket.destroy();
  return result;
}

/** A server that answers as `answer(request, response)` does; it remembers what it was asked. */
export async function scripted(answer) {
  const server = http.createServer((request, response) => {
    request.url = new URL(request.url, "http://here");
    request.at = Date.now();
    server.requests.push(request);
    answer(request, response, server.requests.length);
  });
  server.requests = [];
  server.on("upgrade", (request, socket) => socket.destroy());
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  server.base = `http://127.0.0.1:${server.address().port}/poll/`;
  server.stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return server;
}

/** What a listener was called with, one after another. */
export class Heard {
  all = [];
  #taken = 0;

  listener = (value, info) => {
    this.all.push({ value, ...info });
  };

  /** The next value that has come or comes. */
  async next() {
    await until(() => this.all.length > this.#taken, "another value");
    return this.all[this.#taken++];
  }
}
