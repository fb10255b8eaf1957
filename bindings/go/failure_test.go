//go:build cgo && linux

package dwell

import (
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// breakLoop has the next turn of the loop fail that serves w: its descriptor is no poller any more.
func breakLoop(t *testing.T, w http.ResponseWriter) {
	null, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer syscall.Close(null)
	l := underlying(w).e.loop
	if err := syscall.Dup3(null, l.engine.fileno(), syscall.O_CLOEXEC); err != nil {
		t.Error(err)
	}
}

func TestLoopThatFails(t *testing.T) {
	noLeaks(t)
	var logged lockedBuffer
	reading, closed := make(chan struct{}), make(chan int, 1)
	told := make(chan error, 3)
	sockets := &WebSocketHandler{OnClose: func(s *WebSocket, code int, reason string) { closed <- code }}
	mux := http.NewServeMux()
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) { Upgrade(w, r, sockets) })
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		close(reading)
		_, err := r.Body.Read(make([]byte, 1))
		told <- err
		<-r.Context().Done()
		told <- r.Context().Err()
		_, err = w.Write(make([]byte, 1<<20))
		told <- err
	})
	mux.HandleFunc("/break", func(w http.ResponseWriter, r *http.Request) { breakLoop(t, w) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: mux, ErrorLog: log.New(&logged, "", 0)}
	done := make(chan error, 1)
	go func() { done <- (&Server{Server: srv, Options: Options{Pollers: 1}}).Serve(l) }()
	s := &server{t: t, addr: l.Addr().String(), srv: srv}

	socket := s.dial()
	io.WriteString(socket, handshake)
	if n, err := socket.Read(make([]byte, 4096)); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	waiting, breaking := s.dial(), s.dial()
	io.WriteString(waiting, "POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n")
	<-reading
	// The second one makes a turn due.
	request := "GET /break HTTP/1.1\r\nHost: h\r\n\r\n"
	io.WriteString(breaking, request+request)
	for _, want := range []string{"unexpected EOF", "context canceled", "dwell: client is gone"} {
		if err := <-told; err == nil || err.Error() != want {
			t.Errorf("handler was told %v, not %s", err, want)
		}
	}
	if code := <-closed; code != closedAbnormally {
		t.Errorf("WebSocket closed with %d", code)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "event loop has failed") {
		t.Errorf("Serve returned %v", err)
	}
	if rest, _ := io.ReadAll(waiting); len(rest) > 0 {
		t.Errorf("client that waited was sent %q", rest)
	}
	if text := logged.String(); !strings.Contains(text, "event loop has failed") {
		t.Errorf("logged %q", text)
	}
	srv.Close()
}
