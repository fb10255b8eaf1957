// What type checkers must accept, and must not.
import Standard, { Dwell, DwellError, type Info, type State } from "../dwell.js";

const text = new Dwell("https://example.org/poll/", {
  transports: ["sse", "poll"],
  headers: async () => ({ Authorization: "Bearer abc" }),
  backoff: { base: 100 },
  share: "mine",
  onstate: (state: State) => {
    if (state.state === "waiting") console.log(state.retryIn.toFixed());
  },
  onerror: (error) => {
    if (error instanceof DwellError) console.log(error.status + (error.retryAfter ?? 0));
  },
});
const stop: () => void = text.watch("alice", (value: string | null, info: Info) => {
  console.log(value?.toUpperCase(), info.cursor, info.transport);
});
stop();

const scores = new Standard<{ home: number }>(new URL("https://example.org/poll/"), { format: "json" });
scores.watch("score", (value) => value?.home.toFixed(), { signal: new AbortController().signal });
const cursor: Promise<string | null> = scores.publish("score", { home: 1 }, { ttl: 60 });
void cursor;
scores.close();

// @ts-expect-error: no such transport
new Dwell("/poll/", { transports: ["carrier-pigeon"] });
// @ts-expect-error: no such option
new Dwell("/poll/", { retries: 3 });
// @ts-expect-error: a value may be null
text.watch("alice", (value: string) => value);
// @ts-expect-error: not what this one's values are
void scores.publish("score", "1:0");
