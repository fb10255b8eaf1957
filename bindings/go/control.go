//go:build cgo && linux

package dwell

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// CloseNotify returns a channel that is sent a value when the client leaves.
func (w *response) CloseNotify() <-chan bool {
	if w.isDone {
		panic("net/http: CloseNotify called after ServeHTTP finished")
	}
	e := w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closeNotify == nil {
		e.closeNotify = make(chan bool, 1)
		if e.canceled != nil {
			e.closeNotify <- true
		}
	}
	return e.closeNotify
}

// SetReadDeadline bounds the reading of the body.
func (w *response) SetReadDeadline(t time.Time) error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.e.readDeadline = t
	w.e.broadcastLocked()
	return nil
}

// SetWriteDeadline bounds the writing of the answer.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.e.writeDeadline = t
	w.e.broadcastLocked()
	return nil
}

// EnableFullDuplex does nothing: a body may always be read while the answer is written.
func (w *response) EnableFullDuplex() error { return nil }

// Hijack gives the connection to the handler.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.isDone {
		panic("net/http: Hijack called after ServeHTTP finished")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hijacked.Load() {
		return nil, nil, http.ErrHijacked
	}
	if w.e.isFramed() {
		return nil, nil, errOneStream
	}
	if w.isDecided {
		w.emitHeld()
		w.flushOut(nil)
	}
	conn, input, err := w.e.detach()
	if err != nil {
		return nil, nil, err
	}
	w.hijacked.Store(true)
	// What came early is in the reader, as if it had been read from the connection.
	reader := bufio.NewReaderSize(io.MultiReader(&prefix{input}, conn), max(4096, len(input)))
	if len(input) > 0 {
		reader.Peek(len(input))
	}
	return conn, bufio.NewReadWriter(reader, bufio.NewWriter(conn)), nil
}

// prefix gives its bytes once.
type prefix struct{ rest []byte }

func (p *prefix) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

var errNoSocket = errors.New("dwell: connection has failed")
