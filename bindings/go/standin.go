//go:build cgo && linux

package dwell

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// standIn is a connection that net/http serves on behalf of all that the loops have: what a program
// has its http.Server do shows in what becomes of it. The requests on it are for OPTIONS *, which
// net/http answers by itself.
type standIn struct {
	net.Conn
	addr net.Addr
	once sync.Once
	// closed is called once when net/http closes it.
	closed func()
}

// newStandIn returns a stand-in and its client's end.
func (b *bridge) newStandIn(closed func()) (*standIn, net.Conn) {
	served, client := net.Pipe()
	return &standIn{Conn: served, addr: b.Addr(), closed: closed}, client
}

// idleStandIn is a connection that waits for its next request. It is closed when the server is told
// to keep no connections alive.
func (b *bridge) idleStandIn() net.Conn {
	s, client := b.newStandIn(func() {
		select {
		case <-b.closed:
		default:
			b.keepsNone.Store(true)
		}
	})
	go func() {
		io.WriteString(client, "OPTIONS * HTTP/1.1\r\nHost: dwell\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err == nil && resp.Close {
			b.keepsNone.Store(true)
		}
		close(b.isIdle)
		<-b.closed
		client.Close()
	}()
	return s
}

// activeStandIn is a connection whose request is in flight for as long as there is one on the
// loops, so that a Shutdown waits for it. A Close of the server closes it, and with it everything.
func (b *bridge) activeStandIn() net.Conn {
	s, client := b.newStandIn(func() {
		close(b.cut)
		for _, l := range b.core.loops {
			l.call(func() {
				if l.engine.ptr != nil {
					l.engine.closeAll()
				}
			})
		}
	})
	go func() {
		defer client.Close()
		<-b.isIdle
		io.WriteString(client, "OPTIONS * HTTP/1.1\r\nHost: dwell\r\nContent-Length: 2\r\n"+
			"Connection: close\r\n\r\n")
		// Once the handler has this, a Shutdown waits, which would have dropped the request before.
		io.WriteString(client, ".")
		b.accepting.Do(func() { go b.accept(b.core) })
		<-b.closed
		b.wait()
		io.WriteString(client, ".")
		io.Copy(io.Discard, client)
	}()
	return s
}

// wait waits until the loops have nothing any more, or net/http has closed what stands for them.
func (b *bridge) wait() {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if b.core.active.Load() == 0 && b.core.connections() == 0 {
			return
		}
		select {
		case <-b.cut:
			return
		case <-time.After(pause):
		}
	}
}

// Close is called by net/http.
func (s *standIn) Close() error {
	s.once.Do(s.closed)
	return s.Conn.Close()
}

func (s *standIn) LocalAddr() net.Addr  { return s.addr }
func (s *standIn) RemoteAddr() net.Addr { return s.addr }

// The timeouts of a server are for its clients. A deadline that has passed is how net/http ends a
// read.

func (s *standIn) SetReadDeadline(t time.Time) error {
	if t.After(time.Now()) {
		t = time.Time{}
	}
	return s.Conn.SetReadDeadline(t)
}

func (s *standIn) SetWriteDeadline(time.Time) error { return nil }
func (s *standIn) SetDeadline(t time.Time) error    { return s.SetReadDeadline(t) }
