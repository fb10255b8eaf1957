//go:build cgo && linux

package dwell

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"runtime"
	"sync"
	"syscall"
)

// Stream is a connection that [SetReadHandler] has taken over. Its methods may be called from
// anywhere.
type Stream struct {
	// Data is the program's own.
	Data any

	mailbox       mailbox
	handler       *StreamHandler
	local, remote net.Addr
}

// streams are the loops of what is no server's.
var streams = sync.OnceValues(func() (*core, error) {
	c := &core{Server: &http.Server{}, Options: Options{Pollers: runtime.GOMAXPROCS(0)}}
	limits := c.limits(c.Pollers)
	for range c.Pollers {
		l, err := newLoop(c, limits)
		if err != nil {
			return nil, err
		}
		c.loops = append(c.loops, l)
	}
	return c, nil
})

// SetReadHandler takes over a connection, such as one that was hijacked, and has h called with what
// comes on it, with no goroutine while nothing does. buffered, which may be nil, is a reader of the
// connection that may hold bytes of it. The connection is of no use to the caller any more.
func SetReadHandler(conn net.Conn, buffered *bufio.Reader, h *StreamHandler) (*Stream, error) {
	source, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	c, err := streams()
	if err != nil {
		return nil, err
	}
	fd, err := dupDescriptor(source)
	if err != nil {
		return nil, err
	}
	s := &Stream{handler: h, local: conn.LocalAddr(), remote: conn.RemoteAddr()}
	var input []byte
	if buffered != nil {
		input, _ = buffered.Peek(buffered.Buffered())
	}
	conn.Close()
	l := c.pick()
	adopted := false
	isTaken := l.callAndWait(func() {
		var handle uint64
		if handle, adopted = l.engine.adoptStream(fd, input); adopted {
			s.mailbox.loop, s.mailbox.handle = l, handle
			l.streams.put(s, handle)
		}
	})
	if !isTaken {
		syscall.Close(fd)
	}
	if !adopted {
		return nil, errNoSocket
	}
	return s, nil
}

func (s *Stream) id() uint64 { return s.mailbox.handle }

// tell is called by the loop with what has happened.
func (s *Stream) tell(ev *event) {
	if ev.kind == kindStreamClosed {
		s.mailbox.loop.streams.remove(s.mailbox.handle)
	}
	s.mailbox.post(ev, s.handle)
}

// handle calls the program's handler.
func (s *Stream) handle(l letter) {
	h := s.handler
	switch l.kind {
	case kindStreamData:
		if h.OnData != nil {
			h.OnData(s, l.data)
		}
	case kindStreamPeerClosed:
		if h.OnPeerClosed != nil {
			h.OnPeerClosed(s)
		} else {
			s.Close()
		}
	case kindStreamClosed:
		if h.OnClose != nil {
			h.OnClose(s, l.detail == 0)
		}
	}
}

// Write sends bytes, which are copied. While 256 KiB are on their way to the peer it waits; a peer
// that does not take them within 30 seconds is cut off, and the error is [ErrBehind].
func (s *Stream) Write(p []byte) (int, error) {
	if err := s.mailbox.write(order{op: opWrite}, p, true); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close closes the stream when what was written is out.
func (s *Stream) Close() error {
	return s.mailbox.order(order{op: opClose}, nil)
}

// LocalAddr is our address.
func (s *Stream) LocalAddr() net.Addr { return s.local }

// RemoteAddr is the peer's address.
func (s *Stream) RemoteAddr() net.Addr { return s.remote }
