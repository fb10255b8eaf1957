package dwell

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
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

	// SendBuffer is how many bytes of messages may be on their way to the client of a [WebSocket]
	// before Send waits, and TrySend fails; one message may go beyond it. 256 KiB if it is 0, and
	// 512 MiB at most.
	SendBuffer int
}

// Server is an [http.Server] that serves on event loops. Its Shutdown, Close, RegisterOnShutdown
// and SetKeepAlivesEnabled are those of the http.Server in it.
type Server struct {
	*http.Server
	Options
}

// Serve serves the clients of l with the handler and by the settings of srv, until srv is shut
// down or l fails. It always returns an error, [http.ErrServerClosed] after Shutdown or Close.
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

// ListenAndServeTLS is that of net/http: TLS connections have a goroutine each.
func (s *Server) ListenAndServeTLS(certFile, keyFile string) error {
	s.fallBack("TLS is not served on event loops yet")
	return s.Server.ListenAndServeTLS(certFile, keyFile)
}

// ServeTLS is that of net/http: TLS connections have a goroutine each.
func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	s.fallBack("TLS is not served on event loops yet")
	return s.Server.ServeTLS(l, certFile, keyFile)
}

// fallBack says why net/http serves.
func (s *Server) fallBack(reason string) {
	say(s.Server, "dwell: net/http serves, with a goroutine for each connection: %s", reason)
}

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
