//go:build !cgo || !linux

package dwell

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

// Serve returns an [*UnsupportedError]: let net/http serve, by the method of the [http.Server].
func (s *Server) Serve(l net.Listener) error {
	return &UnsupportedError{"anything without cgo and Linux"}
}

// identities are those that a server serves with, which are none here.
type identities struct{}

// ServeTLS returns an [*UnsupportedError]: let net/http serve, by the method of the [http.Server].
func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	if _, err := s.certificates(certFile, keyFile); err != nil {
		return err
	}
	return s.Serve(l)
}

// ReloadTLS has nothing to read.
func (s *Server) ReloadTLS() error { return nil }

// WebSocket is a connection of [Upgrade], which there are none of here.
type WebSocket struct {
	// Data is the program's own.
	Data any
}

// Send fails.
func (s *WebSocket) Send(isText bool, message []byte) error { return errors.ErrUnsupported }

// TrySend fails.
func (s *WebSocket) TrySend(isText bool, message []byte) error { return errors.ErrUnsupported }

// Ping fails.
func (s *WebSocket) Ping(payload []byte) error { return errors.ErrUnsupported }

// Close fails.
func (s *WebSocket) Close(code int, reason string) error { return errors.ErrUnsupported }

// Upgrade returns [errors.ErrUnsupported] and has answered nothing: let a WebSocket library serve,
// over the goroutine that the connection has anyway.
func Upgrade(w http.ResponseWriter, r *http.Request, h *WebSocketHandler) (*WebSocket, error) {
	return nil, errors.ErrUnsupported
}

// Stream is a connection of [SetReadHandler], which calls its handler from a goroutine here.
type Stream struct {
	// Data is the program's own.
	Data any

	conn    net.Conn
	handler *StreamHandler
	once    sync.Once
}

// SetReadHandler has h called with what comes on a connection, on a goroutine of its own.
func SetReadHandler(conn net.Conn, buffered *bufio.Reader, h *StreamHandler) (*Stream, error) {
	s := &Stream{conn: conn, handler: h}
	var source io.Reader = conn
	if buffered != nil {
		source = buffered
	}
	go s.read(source)
	return s, nil
}

func (s *Stream) read(source io.Reader) {
	for {
		data := make([]byte, 16<<10)
		n, err := source.Read(data)
		if n > 0 && s.handler.OnData != nil {
			s.handler.OnData(s, data[:n])
		}
		if err == nil {
			continue
		}
		isOrderly := err == io.EOF || errors.Is(err, net.ErrClosed)
		if err == io.EOF && s.handler.OnPeerClosed != nil {
			s.handler.OnPeerClosed(s)
		} else {
			s.Close()
		}
		if s.handler.OnClose != nil {
			s.handler.OnClose(s, isOrderly)
		}
		return
	}
}

// Write sends bytes.
func (s *Stream) Write(p []byte) (int, error) { return s.conn.Write(p) }

// Close closes the stream.
func (s *Stream) Close() error {
	err := net.ErrClosed
	s.once.Do(func() { err = s.conn.Close() })
	return err
}

// LocalAddr is our address.
func (s *Stream) LocalAddr() net.Addr { return s.conn.LocalAddr() }

// RemoteAddr is the peer's address.
func (s *Stream) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }
