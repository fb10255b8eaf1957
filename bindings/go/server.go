package dwell

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// Options says how a [Server] works beyond what [http.Server] says. The zero value is good.
type Options struct {
	// Pollers is the number of event loops; GOMAXPROCS if it is 0.
	Pollers int

	// Inline runs handlers on the loops themselves, without a goroutine for each request. It is
	// for handlers that do not wait: one that does holds up everybody on its loop. Reading a body
	// that has not come yet, and writing to a client that does not read, are no such waits.
	Inline bool

	// MaxConns is the number of connections held at once; more are closed as they come. 0 is a
	// million for each loop.
	MaxConns int

	// BufferSize is how many bytes of a request's body are read before the handler asks for them,
	// and behind what it has asked for; 16 KiB if it is 0.
	BufferSize int

	// H2C serves HTTP/2 without TLS to clients that begin with it (prior knowledge), beside HTTP/1.1.
	// Protocols of the [http.Server] with UnencryptedHTTP2 do the same.
	H2C bool

	// H2 offers HTTP/2 to clients under TLS, beside HTTP/1.1 (ALPN). The HTTP2 of the [http.Server] is
	// not used.
	H2 bool

	// H2WebSockets lets clients open WebSockets on streams of HTTP/2 (RFC 8441), for handlers that
	// call [Upgrade]. Such a request has the method CONNECT, and the header ":protocol", as in
	// net/http. A browser that may do so does, and the handlers of other WebSocket libraries, which
	// hijack a connection, fail then; so it is off by default, as in net/http.
	H2WebSockets bool

	// SendBuffer is how many bytes of messages may be on their way to the client of a [WebSocket]
	// before Send waits, and TrySend fails; one message may go beyond it. 256 KiB if it is 0, and
	// 512 MiB at most.
	SendBuffer int
}

// Server is an [http.Server] that serves on event loops. Shutdown and Close of the http.Server in it
// do the same as its own; SetKeepAlivesEnabled of that can turn keep-alives off, and not on again.
type Server struct {
	*http.Server
	Options
	keepAlives atomic.Int32
	identities identities
}

// Serve serves the clients of l with the handler and by the settings of srv, until srv is shut
// down or l fails. It always returns an error, [http.ErrServerClosed] after Shutdown or Close, and an
// [*UnsupportedError] at once where event loops cannot serve.
func Serve(l net.Listener, srv *http.Server) error {
	return (&Server{Server: srv}).Serve(l)
}

// ListenAndServe listens on the TCP address addr and serves with handler, or
// [http.DefaultServeMux] if that is nil.
func ListenAndServe(addr string, handler http.Handler) error {
	srv := &Server{Server: &http.Server{Addr: addr, Handler: handler}}
	return srv.ListenAndServe()
}

// ListenAndServe listens on the TCP address s.Addr and serves, as [Serve].
func (s *Server) ListenAndServe() error {
	addr := s.Addr
	if addr == "" {
		addr = ":http"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return s.Serve(l)
}

// Shutdown closes the listeners, lets every request in flight be answered, and returns when nothing
// is left or ctx is done. Serve returns [http.ErrServerClosed] at once.
func (s *Server) Shutdown(ctx context.Context) error { return s.Server.Shutdown(ctx) }

// Close closes the listeners and all connections.
func (s *Server) Close() error { return s.Server.Close() }

// RegisterOnShutdown has f called, on a goroutine of its own, when a Shutdown begins. It is for
// connections that were hijacked or upgraded, which Shutdown neither closes nor waits for.
func (s *Server) RegisterOnShutdown(f func()) { s.Server.RegisterOnShutdown(f) }

// SetKeepAlivesEnabled says whether connections are kept for further requests. What is idle when
// they are not any more is closed with its next answer, or its timeout.
func (s *Server) SetKeepAlivesEnabled(v bool) {
	if v {
		s.keepAlives.Store(keepAlivesOn)
	} else {
		s.keepAlives.Store(keepAlivesOff)
	}
	s.Server.SetKeepAlivesEnabled(v)
}

// What SetKeepAlivesEnabled of a [Server] has said. If it has said nothing, what that of its
// [http.Server] has said holds.
const (
	keepAlivesOn = 1 + iota
	keepAlivesOff
)

// UnsupportedError is what Serve returns for something that is not served on event loops. Its
// listener is as it was, so that net/http can serve it instead, by the method of the
// [http.Server]. It is an [errors.ErrUnsupported].
type UnsupportedError struct {
	// What is not served.
	What string
}

func (e *UnsupportedError) Error() string {
	return "dwell: " + e.What + " is not served on event loops"
}

func (e *UnsupportedError) Unwrap() error { return errors.ErrUnsupported }

var saidOnce sync.Map

// say logs what is worth to be known once.
func say(srv *http.Server, format string, args ...any) {
	if _, said := saidOnce.LoadOrStore(fmt.Sprintf(format, args...), true); !said {
		logTo(srv, format, args...)
	}
}

func logTo(srv *http.Server, format string, args ...any) {
	if srv.ErrorLog != nil {
		srv.ErrorLog.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}
