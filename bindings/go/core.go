//go:build cgo && linux

package dwell

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// core is what serves the clients of one listener.
type core struct {
	*http.Server
	Options
	base     context.Context
	addr     net.Addr
	loops    []*loop
	accepted atomic.Uint64
	active   atomic.Int64
	server   *Server
	// connState and connContext are the hooks as the program has set them.
	connState   func(net.Conn, http.ConnState)
	connContext func(context.Context, net.Conn) context.Context
	bridge      *bridge
	ending      atomic.Bool
	wg          sync.WaitGroup
}

func newCore(s *Server, l net.Listener, b *bridge) (*core, error) {
	c := &core{Server: s.Server, Options: s.Options, addr: l.Addr(), bridge: b, server: s}
	c.connState, c.connContext = hooksOf(s.Server)
	pollers := c.Pollers
	if pollers <= 0 {
		pollers = runtime.GOMAXPROCS(0)
	}
	limits := c.limits(pollers)
	for range pollers {
		lp, err := newLoop(c, limits)
		if err != nil {
			c.free()
			return nil, err
		}
		c.loops = append(c.loops, lp)
	}
	return c, nil
}

func (c *core) limits(pollers int) limits {
	conns := c.MaxConns
	if conns <= 0 {
		conns = 1_000_000 * pollers
	}
	credit := c.BufferSize
	if credit <= 0 {
		credit = 16 << 10
	}
	return limits{
		headBytes:          c.headBytes(),
		connections:        (conns + pollers - 1) / pollers,
		bodyCredit:         credit,
		firstMillis:        millis(firstOf(c.ReadHeaderTimeout, c.ReadTimeout)),
		headerMillis:       millis(firstOf(c.ReadHeaderTimeout, c.ReadTimeout)),
		idleMillis:         millis(firstOf(c.IdleTimeout, c.ReadTimeout)),
		bodyMillis:         millis(c.ReadTimeout),
		writeMillis:        millis(c.WriteTimeout),
		outputBytes:        max(4<<20, 2*c.sendBuffer()),
		reportsConnections: c.connState != nil || c.connContext != nil || c.verifiesClients(),
		reportsHandshakes:  c.verifiesClients(),
		h2c:                c.speaksH2C(),
		http2:              c.H2,
		webSocketStreams:   c.H2WebSockets,
	}
}

// speaksH2C tells whether HTTP/2 is served without TLS.
func (c *core) speaksH2C() bool {
	return c.H2C || (c.Protocols != nil && c.Protocols.UnencryptedHTTP2())
}

// verifiesClients tells whether clients are asked for a certificate.
func (c *core) verifiesClients() bool {
	return c.bridge != nil && c.bridge.identity != nil && c.bridge.identity.verification != nil
}

// sendBuffer is how much may be on its way to a client before messages for it wait.
func (c *core) sendBuffer() int {
	if c.SendBuffer <= 0 {
		return windowBytes
	}
	return min(c.SendBuffer, sendBufferMax)
}

const sendBufferMax = 512 << 20

// headBytes is the longest head that is taken: as in net/http, what MaxHeaderBytes says and a
// little more, as far as the library goes.
func (c *core) headBytes() int {
	asked := c.MaxHeaderBytes
	if asked <= 0 {
		asked = http.DefaultMaxHeaderBytes
	} else if asked > headBytesMax {
		say(c.Server, "dwell: MaxHeaderBytes is %d, but heads of more than %d bytes are refused",
			asked, headBytesMax)
	}
	return min(asked+4096, headBytesMax)
}

// headBytesMax is the longest head that the library parses.
const headBytesMax = 65535

func firstOf(a, b time.Duration) time.Duration {
	if a != 0 {
		return a
	}
	return b
}

func millis(d time.Duration) uint64 {
	if d <= 0 {
		return forever
	}
	return uint64((d + time.Millisecond - 1) / time.Millisecond)
}

func (c *core) keepsAlive() bool {
	if c.ending.Load() {
		return false
	}
	switch c.server.keepAlives.Load() {
	case keepAlivesOn:
		return true
	case keepAlivesOff:
		return false
	}
	return !c.bridge.keepsNone.Load()
}

// pick returns the loop for a client.
func (c *core) pick() *loop {
	return c.loops[c.accepted.Add(1)%uint64(len(c.loops))]
}

// drain lets every connection end with the answer that is owed on it.
func (c *core) drain() {
	for _, l := range c.loops {
		l.call(l.engine.drain)
	}
}

// free ends every loop; nothing may be in flight.
func (c *core) free() {
	for _, l := range c.loops {
		l.callAndWait(func() {
			l.engine.closeAll()
			l.mu.Lock()
			l.closed = true
			l.mu.Unlock()
		})
		l.end()
	}
}

// end closes what is left and frees the engine.
func (l *loop) end() {
	freed := make(chan struct{})
	go func() {
		// Events of what was closed are still to be handed out.
		for !l.acquire() {
			runtime.Gosched()
		}
		p := &poller{loop: l, owns: true}
		for range 2 {
			l.gather()
			p.dispatch()
		}
		l.timer.Stop()
		l.engine.free()
		l.release()
		close(freed)
	}()
	<-freed
	l.workers.end()
	l.file.Close()
	<-l.done
}

// conn is what the program's hooks know of a connection.
type conn struct {
	loop   *loop
	handle uint64
	remote string
	local  net.Addr
	ctx    context.Context
	mu     sync.Mutex
	state  http.ConnState
	// streams counts those of HTTP/2 on which a handler runs.
	streams atomic.Int64
	// leaving is set while a handler takes the connection over, which ends it for the engine.
	leaving atomic.Bool
}

// opened makes a conn where the program has hooks that want one.
func (l *loop) opened(handle uint64, remote string) *conn {
	if l.connState == nil && l.connContext == nil {
		return nil
	}
	c := &conn{loop: l, handle: handle, remote: remote, local: l.addr, ctx: l.base}
	if text := l.engine.localAddress(handle); text != "" {
		if addr, err := net.ResolveTCPAddr("tcp", text); err == nil {
			c.local = addr
		}
	}
	l.conns[handle] = c
	if l.connContext != nil {
		c.ctx = l.connContext(context.WithValue(l.base, http.ServerContextKey, l.Server), c)
		if c.ctx == nil {
			panic("ConnContext returned nil")
		}
	}
	c.set(http.StateNew)
	return c
}

// set tells the program of a new state.
func (c *conn) set(state http.ConnState) {
	if c == nil {
		return
	}
	c.mu.Lock()
	if c.state == http.StateClosed || c.state == http.StateHijacked {
		c.mu.Unlock()
		return
	}
	c.state = state
	c.mu.Unlock()
	if hook := c.loop.connState; hook != nil {
		hook(c, state)
	}
}

func (c *conn) closed() {
	if !c.leaving.Load() {
		c.set(http.StateClosed)
	}
}

// leaves is called before the connection is taken over.
func (c *conn) leaves() {
	if c != nil {
		c.leaving.Store(true)
	}
}

// The methods of net.Conn, for hooks. Bytes are the server's to read and write.

func (c *conn) Read([]byte) (int, error)  { return 0, net.ErrClosed }
func (c *conn) Write([]byte) (int, error) { return 0, net.ErrClosed }
func (c *conn) Close() error {
	c.loop.send(order{op: opAbort, handle: c.handle}, "")
	return nil
}
func (c *conn) LocalAddr() net.Addr              { return c.local }
func (c *conn) RemoteAddr() net.Addr             { return address(c.remote) }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// address is a TCP address as text.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }
