/** What a watched key has; the parameter of `Dwell` says of which kind it is. */
export type Format = "text" | "json" | "bytes";

export type Transport = "websocket" | "sse" | "poll";

export interface Info {
  /** The key, as it was watched. */
  key: string;
  /** Names the content: the same for the same bytes on every server and transport. */
  cursor: string | null;
  transport: Transport;
}

/** `null` when the key has been deleted or has expired. */
export type Listener<V> = (value: V | null, info: Info) => void;

export type State =
  | { state: "idle"; transport: null }
  | { state: "connecting" | "live"; transport: Transport }
  /** After a failure; `retryIn` is in milliseconds. */
  | { state: "waiting"; transport: Transport; retryIn: number };

type Pairs = Record<string, string>;
type Source<T> = T | (() => T | Promise<T>);

export interface Options {
  /** In the order in which they are tried. Default: `["websocket", "sse", "poll"]`. */
  transports?: Transport[];
  /** What values are. Default: `"text"`. */
  format?: Format;
  /** Fields of every request. WebSocket cannot send any, so it is not used then. */
  headers?: Source<Pairs>;
  /** Added to the query of every request, for example a token. */
  query?: Source<Pairs>;
  /** As for `fetch`. */
  credentials?: RequestCredentials;
  /** Where `publish` sends values, if not to where they are read. */
  publishUrl?: string | URL;
  /** How long a poll may be held. Units: seconds. Default: 25. */
  waitSeconds?: number;
  /** For a connection and the first words on it. Units: milliseconds. Default: 10,000. */
  connectTimeout?: number;
  /** After which a silent stream counts as dead. Units: milliseconds. Default: 60,000. */
  silenceTimeout?: number;
  /** Pauses after failures: at random up to `base`, doubled with each, up to `max`. */
  backoff?: { base?: number; max?: number };
  /** How long a transport that failed is left alone at first. Units: milliseconds. */
  setAside?: number;
  /** Larger values are refused. Default: 8 MiB. */
  valueBytesMax?: number;
  /** After how many milliseconds a hidden page lets go. Default: `Infinity`, never. */
  pauseWhenHidden?: number;
  /** Whether the tabs of one origin share a connection, or the name of those that do. */
  share?: boolean | string;
  /** Ends everything. */
  signal?: AbortSignal;
  /** Failures, which are dealt with, and what listeners throw. */
  onerror?: (error: unknown) => void;
  onstate?: (state: State) => void;
  /** In the place of the platform's own. */
  fetch?: typeof fetch;
  WebSocket?: typeof WebSocket;
}

export class DwellError extends Error {
  /** Of the answer; 0 where there was none. */
  readonly status: number;
  /** What the answer's `Retry-After` says, in milliseconds. */
  readonly retryAfter: number | null;
}

/** Watches keys of one server. `V` is what values are: `string`, unless `format` says otherwise. */
export class Dwell<V = string> {
  constructor(url: string | URL, options?: Options);
  /**
   * Calls `listener` with the value of a key, and with every newer one. Returns the function that
   * ends it. `since` is the cursor of a value that is known already.
   */
  watch(
    key: string,
    listener: Listener<V>,
    options?: { signal?: AbortSignal; since?: string | null },
  ): () => void;
  /**
   * Stores a value, or deletes the key with `null`, where the server lets this client; resolves to
   * the cursor. Units: `ttl` is in seconds.
   */
  publish(
    key: string,
    value: V | null,
    options?: { ttl?: number; signal?: AbortSignal },
  ): Promise<string | null>;
  /** Ends every watch and the connection. */
  close(): void;
}

export default Dwell;
