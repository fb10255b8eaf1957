package dwell

import "errors"

// ErrBehind is the error of what is sent to a client that does not take what was sent before.
var ErrBehind = errors.New("dwell: client is behind")

// WebSocketHandler is told what happens on WebSockets. One serves for any number of them; its
// functions, any of which may be nil, are called one at a time for each connection, on a goroutine
// that there is only while they run, or on the loop where [Options].Inline is set.
type WebSocketHandler struct {
	// OnOpen is called when the handshake is done, before anything else.
	OnOpen func(*WebSocket)
	// OnMessage is called with each message, which is the handler's to keep.
	OnMessage func(s *WebSocket, isText bool, message []byte)
	// OnClose is called once, last, with the close code (1006 where the peer gave none).
	OnClose func(s *WebSocket, code int, reason string)

	// AnyOrigin lets pages of any site connect, not only those of the same host.
	AnyOrigin bool
	// Plain turns compression off.
	Plain bool
	// Subprotocols are those that are spoken, the preferred one first.
	Subprotocols []string
}

// StreamHandler is told what happens on streams that [SetReadHandler] has taken over; as
// [WebSocketHandler].
type StreamHandler struct {
	// OnData is called with what has come, which is the handler's to keep.
	OnData func(s *Stream, data []byte)
	// OnPeerClosed is called when the peer sends no more; the stream is closed if it is nil.
	OnPeerClosed func(*Stream)
	// OnClose is called once, last; isOrderly tells whether all that was written went out.
	OnClose func(s *Stream, isOrderly bool)
}
