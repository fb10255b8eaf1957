// Runs the tests with a WebSocket where Node has one only on demand.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";

const folder = new URL(".", import.meta.url);
const files = readdirSync(folder).filter((name) => name.endsWith(".test.js"));
const [major] = process.versions.node.split(".").map(Number);
const options = major === 20 || major === 21 ? ["--experimental-websocket", "--no-warnings"] : [];
const run = [...options, "--test", ...files.map((name) => new URL(name, folder).pathname)];
process.exit(spawnSync(process.execPath, run, { stdio: "inherit" }).status ?? 1);
