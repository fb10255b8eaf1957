//go:build cgo && linux

package dwell

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// A handler that ends its goroutine ends its connection, and nobody else's.
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	for _, isInline := range []bool{false, true} {
		t.Run(fmt.Sprintf("Inline=%v", isInline), func(t *testing.T) {
			noLeaks(t)
			closed := make(chan struct{})
			socket := &WebSocketHandler{
				OnMessage: func(*WebSocket, bool, []byte) { runtime.Goexit() },
				OnClose:   func(*WebSocket, int, string) { close(closed) },
			}
			handler := func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/exit":
					runtime.Goexit()
				case "/ws":
					Upgrade(w, r, socket)
				}
			}
			s := start(t, false, Options{Pollers: 1, Inline: isInline},
				&http.Server{Handler: http.HandlerFunc(handler)})
			c := s.dial()
			io.WriteString(c, "GET /exit HTTP/1.1\r\nHost: h\r\n\r\n")
			if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
				t.Errorf("read %q and %v", got, err)
			}
			io.WriteString(s.dial(), handshake+helloFrame)
			<-closed
			c = s.dial()
			get(t, c, bufio.NewReader(c), "/")
		})
	}
}

// What has come of a body while the connection is on its way to its handler is not lost.
func TestHijackWhileBodyComes(t *testing.T) {
	noLeaks(t)
	const body = "0123456789"
	got := make(chan string, 1)
	held, release := make(chan struct{}), make(chan struct{})
	loops := make(chan *loop, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		l := w.(*response).e.loop
		go l.call(func() {
			close(held)
			<-release
		})
		<-held
		loops <- l
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		b := make([]byte, len(body))
		n, _ := io.ReadFull(rw, b)
		got <- string(b[:n])
	})
	c := s.dial()
	io.WriteString(c, fmt.Sprintf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", len(body)))
	l := <-loops
	// The order to hand the connection out has been given before the body comes.
	eventually(t, "Hijack waits", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) > 0
	})
	io.WriteString(c, body)
	close(release)
	if got := <-got; got != body {
		t.Errorf("read %q", got)
	}
}
