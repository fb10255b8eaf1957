//go:build cgo && linux

package dwell

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// WebSocket is a connection that [Upgrade] has made of a request. It has no goroutine while nothing
// happens on it. Its methods may be called from anywhere.
type WebSocket struct {
	// Data is the program's own.
	Data any

	mailbox mailbox
	handler *WebSocketHandler
	// stream is the connection of HTTP/2 that it is on a stream of.
	stream *conn
}

func typeName(v any) string { return fmt.Sprintf("%T", v) }

// Upgrade makes a WebSocket of a request that asks for one. Where the request does not, or comes
// from a page of another site, it is answered and an error is returned; either way the handler is
// to return.
func Upgrade(w http.ResponseWriter, r *http.Request, h *WebSocketHandler) (*WebSocket, error) {
	rw := underlying(w)
	if rw == nil {
		return nil, errors.ErrUnsupported
	}
	rw.mu.Lock()
	defer rw.mu.Unlock()
	if rw.hijacked.Load() {
		return nil, http.ErrHijacked
	}
	if rw.isDecided {
		return nil, errors.New("dwell: answer was begun before Upgrade")
	}
	if rw.e.isFramed() && !rw.e.connects {
		rw.writeHeaderLocked(http.StatusNotImplemented)
		return nil, errOneStream
	}
	fields := ""
	if protocol := chooseSubprotocol(r, h); protocol != "" {
		fields = "Sec-WebSocket-Protocol:" + protocol + "\n"
	}
	for name, values := range rw.header {
		for _, value := range values {
			if isToken(name) && !strings.ContainsAny(value, "\r\n") {
				fields += name + ":" + value + "\n"
			}
		}
	}
	flags := uint32(0)
	if h.AnyOrigin {
		flags |= upgradeAnyOrigin
	}
	if h.Plain {
		flags |= upgradePlain
	}
	s := &WebSocket{handler: h}
	e := rw.e
	e.mu.Lock()
	if e.gone || e.finished {
		e.mu.Unlock()
		return nil, errClientGone
	}
	e.finished = true
	e.upgrading = s
	e.socket = make(chan uint64, 1)
	e.mu.Unlock()
	if e.isFramed() {
		s.stream = e.conn
		s.stream.enters()
	} else {
		e.conn.leaves()
	}
	head := e.head[:e.word(1)]
	e.send(order{op: opUpgrade, flags: flags}, fields, []byte(head))
	e.waits()
	opened := <-e.socket
	rw.hijacked.Store(true)
	if opened == 0 {
		if e.isFramed() {
			s.stream.exits()
		} else {
			e.conn.set(http.StateClosed)
		}
		return nil, errors.New("dwell: handshake was refused")
	}
	if !e.isFramed() {
		e.conn.set(http.StateHijacked)
	}
	return s, nil
}

// underlying finds our writer behind those of middleware.
func underlying(w http.ResponseWriter) *response {
	for {
		switch at := w.(type) {
		case *response:
			return at
		case interface{ Unwrap() http.ResponseWriter }:
			w = at.Unwrap()
		default:
			return nil
		}
	}
}

func chooseSubprotocol(r *http.Request, h *WebSocketHandler) string {
	for _, spoken := range h.Subprotocols {
		for _, line := range r.Header["Sec-Websocket-Protocol"] {
			for offered := range strings.SplitSeq(line, ",") {
				if strings.TrimSpace(offered) == spoken {
					return spoken
				}
			}
		}
	}
	return ""
}

// upgraded is called by the loop when the handshake is done.
func (e *exchange) upgraded(handle uint64) {
	s := e.upgrading
	s.mailbox.loop, s.mailbox.handle = e.loop, handle
	e.loop.sockets.put(s, handle)
	s.mailbox.post(&event{kind: kindWebSocketOpened}, s.handle)
	e.socket <- handle
}

func (s *WebSocket) id() uint64 { return s.mailbox.handle }

// tell is called by the loop with what has happened.
func (s *WebSocket) tell(ev *event) {
	if ev.kind == kindWebSocketClosed {
		s.mailbox.loop.sockets.remove(s.mailbox.handle)
		s.stream.exits()
	}
	s.mailbox.post(ev, s.handle)
}

// handle calls the program's handler.
func (s *WebSocket) handle(l letter) {
	h := s.handler
	switch l.kind {
	case kindWebSocketOpened:
		if h.OnOpen != nil {
			h.OnOpen(s)
		}
	case kindWebSocketMessage:
		if h.OnMessage != nil {
			h.OnMessage(s, l.detail == 1, l.data)
		}
	case kindWebSocketClosed:
		if h.OnClose != nil {
			h.OnClose(s, int(l.detail), string(l.data))
		}
	}
}

// Send sends a message; text must be UTF-8. While [Options].SendBuffer is on its way to the client
// it waits. A client that does not take that within the server's WriteTimeout, or 30 seconds where
// there is none, is cut off, and the error is [ErrBehind]. It cannot wait with [Options].Inline, and
// is TrySend there.
func (s *WebSocket) Send(isText bool, message []byte) error {
	return s.send(isText, message, true)
}

// TrySend is [WebSocket.Send] for what goes to many, and must not be held up by one: while too much
// is on its way it sends nothing, and the error is [ErrBehind].
func (s *WebSocket) TrySend(isText bool, message []byte) error {
	return s.send(isText, message, false)
}

func (s *WebSocket) send(isText bool, message []byte, mayWait bool) error {
	flags := uint32(0)
	if isText {
		if !utf8.Valid(message) {
			return errors.New("dwell: text is not UTF-8")
		}
		flags = 1
	}
	return s.mailbox.write(order{op: opSend, flags: flags}, message, mayWait)
}

// Ping sends a ping of at most 125 bytes, unless the client is behind.
func (s *WebSocket) Ping(payload []byte) error {
	return s.mailbox.order(order{op: opPing}, payload)
}

// Close closes the connection in order, with a code (0 for none) and a reason.
func (s *WebSocket) Close(code int, reason string) error {
	return s.mailbox.order(order{op: opClose, status: uint16(code)}, []byte(reason))
}
