//go:build cgo && linux

package dwell

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Serve serves the clients of l, as the function [Serve] does.
func (s *Server) Serve(l net.Listener) error {
	return s.serve(l, nil)
}

// serve serves the clients of l, under TLS where there is an identity.
func (s *Server) serve(l net.Listener, id *identity) error {
	raw, err := s.rawListener(l)
	if err != nil {
		return err
	}
	b := &bridge{Listener: l, raw: raw, server: s, identity: id, closed: make(chan struct{}), cut: make(chan struct{}),
		isIdle: make(chan struct{})}
	keepFromHooks(s.Server)
	err = s.Server.Serve(b)
	b.end()
	return err
}

// rawListener returns how to accept from l, or why that cannot be done.
func (s *Server) rawListener(l net.Listener) (syscall.RawConn, error) {
	if p := s.Protocols; p != nil && !p.HTTP1() {
		return nil, &UnsupportedError{"Protocols without HTTP/1"}
	}
	switch l := l.(type) {
	case *net.TCPListener:
		return l.SyscallConn()
	case *net.UnixListener:
		return l.SyscallConn()
	default:
		return nil, &UnsupportedError{"a listener that is neither of TCP nor a unix socket, but " + typeName(l)}
	}
}

// bridge is the listener that net/http has. By it Shutdown and Close of an http.Server reach the
// loops: they close it, and what else they do reaches the connections that it hands out, which are
// stand-ins.
type bridge struct {
	net.Listener
	raw    syscall.RawConn
	server *Server
	// identity is that of the server under TLS; nil without it.
	identity *identity

	mu      sync.Mutex
	core    *core
	failed  error
	isEnded bool
	closed  chan struct{}
	once    sync.Once
	// accepting has clients accepted once.
	accepting sync.Once
	// handed counts what Accept has returned.
	handed int
	// cut is closed when net/http has closed the stand-in that it waits for.
	cut chan struct{}
	// isIdle is closed when it is clear whether net/http keeps connections alive.
	isIdle chan struct{}
	// keepsNone is set when net/http keeps no connections alive.
	keepsNone atomic.Bool
}

// Accept is called by net/http: first when it begins to serve, and then once more for each thing
// that it was given.
func (b *bridge) Accept() (net.Conn, error) {
	b.mu.Lock()
	if b.core == nil && b.failed == nil {
		if err := b.start(); err != nil {
			b.failed = err
		}
	}
	failed := b.failed
	handed, core := b.handed, b.core
	b.handed++
	b.mu.Unlock()
	if failed != nil {
		return nil, failed
	}
	switch {
	case b.server.DisableGeneralOptionsHandler:
		b.accepting.Do(func() { go b.accept(core) })
	case handed == 0:
		return b.idleStandIn(), nil
	case handed == 1:
		return b.activeStandIn(), nil
	}
	<-b.closed
	b.mu.Lock()
	defer b.mu.Unlock()
	return nil, b.failed
}

// start makes the loops.
func (b *bridge) start() error {
	core, err := newCore(b.server, b.Listener, b)
	if err != nil {
		return err
	}
	core.base = context.Background()
	if base := b.server.BaseContext; base != nil {
		core.base = base(b.Listener)
	}
	b.core = core
	return nil
}

// accept takes clients from the listener and gives them to the loops: the first one as anybody
// would, so that it ends when the listener is closed, and those that wait behind it directly.
func (b *bridge) accept(core *core) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			if temporary, ok := err.(interface{ Temporary() bool }); ok && temporary.Temporary() {
				logTo(core.Server, "http: Accept error: %v; retrying in 100ms", err)
				select {
				case <-time.After(100 * time.Millisecond):
					continue
				case <-b.closed:
				}
			}
			b.fail(err)
			return
		}
		give(core, takeOver(c)...)
		b.raw.Control(func(fd uintptr) {
			// What fails here fails in Accept, too.
			waiting, _ := acceptSome(int(fd))
			give(core, waiting...)
		})
	}
}

// give distributes clients among the loops.
func give(core *core, clients ...accepted) {
	for _, a := range clients {
		l := core.pick()
		if !l.call(func() { l.adopt(a) }) {
			syscall.Close(a.fd)
		}
	}
}

// takeOver takes the descriptor of a client out of net's hands.
func takeOver(c net.Conn) []accepted {
	defer c.Close()
	source, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	fd, err := dupDescriptor(source)
	if err != nil {
		return nil
	}
	return []accepted{{fd, c.RemoteAddr().String()}}
}

// accepted is a client that was accepted.
type accepted struct {
	fd     int
	remote string
}

// acceptBatch bounds what is accepted before the loops are told.
const acceptBatch = 64

func acceptSome(fd int) (taken []accepted, err error) {
	for len(taken) < acceptBatch {
		nfd, sa, err := syscall.Accept4(fd, syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
		switch err {
		case nil:
			taken = append(taken, accepted{nfd, addressText(sa)})
		case syscall.EAGAIN:
			return taken, nil
		case syscall.EINTR, syscall.ECONNABORTED:
		default:
			return taken, os.NewSyscallError("accept4", err)
		}
	}
	return taken, nil
}

func addressText(sa syscall.Sockaddr) string {
	switch sa := sa.(type) {
	case *syscall.SockaddrInet4:
		return net.JoinHostPort(net.IP(sa.Addr[:]).String(), strconv.Itoa(sa.Port))
	case *syscall.SockaddrInet6:
		return net.JoinHostPort(net.IP(sa.Addr[:]).String(), strconv.Itoa(sa.Port))
	}
	return ""
}

// adopt gives a client to the engine.
func (l *loop) adopt(a accepted) {
	if l.engine.ptr == nil {
		syscall.Close(a.fd)
		return
	}
	var handle uint64
	var ok bool
	if id := l.bridge.identity; id != nil {
		handle, ok = l.engine.adoptTLS(a.fd, id)
	} else {
		handle, ok = l.engine.adopt(a.fd)
	}
	if ok {
		if l.verification() != nil {
			l.clients[handle] = &client{handle: handle, remote: a.remote, done: make(chan struct{})}
		}
		l.opened(handle, a.remote)
	}
}

// Close is called by net/http when it is shut down or closed.
func (b *bridge) Close() error {
	b.mu.Lock()
	if b.core != nil && b.failed == nil {
		b.core.ending.Store(true)
		b.failed = net.ErrClosed
	}
	b.mu.Unlock()
	err := b.Listener.Close()
	b.once.Do(func() { close(b.closed) })
	return err
}

// fail ends serving with an error of the listener.
func (b *bridge) fail(err error) {
	b.mu.Lock()
	if b.failed == nil {
		b.failed = err
	}
	b.mu.Unlock()
	b.once.Do(func() { close(b.closed) })
}

// end lets the loops go when nothing is left on them. Serve returns before that, as it does in
// net/http.
func (b *bridge) end() {
	b.mu.Lock()
	core := b.core
	isEnded := b.isEnded
	b.isEnded = true
	b.mu.Unlock()
	if core == nil || isEnded {
		return
	}
	// Where the listener has failed, who is connected is served on.
	if core.ending.Load() {
		core.drain()
	}
	go func() {
		b.wait()
		core.free()
	}()
}

// connections is how many connections the loops have.
func (c *core) connections() int {
	sum := 0
	for _, l := range c.loops {
		l.callAndWait(func() {
			if l.engine.ptr != nil {
				s := l.engine.statistics()
				sum += int(s.connections)
			}
		})
	}
	return sum
}

// hooks are those of a program, by its server: net/http is given others, which know a stand-in.
type hooks struct {
	connState   func(net.Conn, http.ConnState)
	connContext func(context.Context, net.Conn) context.Context
}

var (
	hooksMu sync.Mutex
	hooked  = map[*http.Server]hooks{}
)

// keepFromHooks keeps stand-ins from the hooks of a program.
func keepFromHooks(srv *http.Server) {
	hooksMu.Lock()
	defer hooksMu.Unlock()
	if _, done := hooked[srv]; done {
		return
	}
	h := hooks{srv.ConnState, srv.ConnContext}
	if h.connState == nil && h.connContext == nil {
		return
	}
	hooked[srv] = h
	if h.connState != nil {
		srv.ConnState = func(c net.Conn, state http.ConnState) {
			if _, is := c.(*standIn); !is {
				h.connState(c, state)
			}
		}
	}
	if h.connContext != nil {
		srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			if _, is := c.(*standIn); is {
				return ctx
			}
			return h.connContext(ctx, c)
		}
	}
}

func hooksOf(srv *http.Server) (func(net.Conn, http.ConnState), func(context.Context, net.Conn) context.Context) {
	hooksMu.Lock()
	defer hooksMu.Unlock()
	if h, ok := hooked[srv]; ok {
		return h.connState, h.connContext
	}
	return srv.ConnState, srv.ConnContext
}

var errHijacked = errors.New("dwell: connection was hijacked")
