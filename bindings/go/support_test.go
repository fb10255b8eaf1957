package dwell

import (
	"bufio"
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long what is sure to come is waited for: only a failure takes so long.
const patience = 30 * time.Second

// silence is how long nothing comes before a connection is said to be open and quiet.
const silence = 150 * time.Millisecond

// server is one that serves for a test, by net/http or by this package.
type server struct {
	t    *testing.T
	addr string
	srv  *http.Server
	done chan error
	log  lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start serves with a server that is shut down when the test ends.
func start(t *testing.T, isStd bool, options Options, srv *http.Server) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, addr: l.Addr().String(), srv: srv, done: make(chan error, 1)}
	srv.ErrorLog = log.New(&s.log, "", 0)
	go func() {
		if isStd {
			s.done <- srv.Serve(l)
		} else {
			s.done <- (&Server{Server: srv, Options: options}).Serve(l)
		}
	}()
	t.Cleanup(s.stop)
	return s
}

func (s *server) stop() {
	s.srv.Close()
	if err := <-s.done; err != http.ErrServerClosed {
		s.t.Errorf("Serve returned %v", err)
	}
}

// serve serves with a handler, by this package.
func serve(t *testing.T, handler http.HandlerFunc) *server {
	t.Helper()
	return start(t, false, Options{}, &http.Server{Handler: handler})
}

func (s *server) url() string { return "http://" + s.addr }

// dial opens a connection that is closed when the test ends.
func (s *server) dial() *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	s.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// exchange sends bytes and returns all that comes until the connection is closed, or until nothing
// has come for a while after something has.
func (s *server) exchange(request string) string {
	s.t.Helper()
	return s.exchangeUntilSilentFor(request, silence)
}

func (s *server) exchangeUntilSilentFor(request string, silence time.Duration) string {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	go io.WriteString(c, request)
	var answer []byte
	buffer := make([]byte, 64<<10)
	for {
		wait := patience
		if len(answer) > 0 {
			wait = silence
			if bytes.Contains(answer, []byte("Connection: close")) {
				// net/http takes half a second until it closes for good.
				wait = 10 * silence
			}
		}
		c.SetReadDeadline(time.Now().Add(wait))
		n, err := c.Read(buffer)
		answer = append(answer, buffer[:n]...)
		if err == io.EOF {
			return string(answer) + "<closed>"
		}
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				return string(answer) + "<open>"
			}
			return string(answer) + "<reset>"
		}
	}
}

var dateLine = regexp.MustCompile(`Date: [^\r]*`)

func undated(answer string) string { return dateLine.ReplaceAllString(answer, "Date: now") }

// get sends a request on a connection and returns its answer and body.
func get(t *testing.T, c net.Conn, r *bufio.Reader, path string) (*http.Response, string) {
	t.Helper()
	io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// eventually waits for something that other goroutines bring about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

func descriptors() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// ours counts the goroutines of this package and of tests' handlers, but for the loops of streams,
// which stay.
func ours() int {
	buffer := make([]byte, 1<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]
	count := 0
	for stack := range strings.SplitSeq(string(buffer), "\n\n") {
		if strings.Contains(stack, "dwell.(*") && !strings.Contains(stack, "dwell.newLoop") &&
			!strings.Contains(stack, "testing.tRunner") {
			count++
		}
	}
	return count
}

// noLeaks fails the test if it leaves descriptors or goroutines behind. It is called first.
func noLeaks(t *testing.T) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	before, goroutines := descriptors(), runtime.NumGoroutine()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		eventually(t, "as many descriptors as before", func() bool { return descriptors() <= before })
		eventually(t, "as many goroutines as before", func() bool {
			return runtime.NumGoroutine() <= goroutines
		})
	})
}
