package dwell

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func cpu() time.Duration {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Clients that leave at every awkward moment end other servers of this kind.
func TestClientsThatLeave(t *testing.T) {
	noLeaks(t)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "hello")
	})
	requests := []string{"", "G", "GET / HTTP/1.1\r\nHo", get11, get11 + get11 + "GE",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc"}
	for round := range 300 {
		c := s.dial()
		io.WriteString(c, requests[round%len(requests)])
		switch round / len(requests) % 3 {
		case 0:
			c.Close()
		case 1:
			c.CloseWrite()
		case 2:
			c.SetLinger(0)
			c.Close()
		}
	}
	if answer := s.exchange(get11); !strings.HasSuffix(answer, "hello<open>") {
		t.Fatal(answer)
	}
}

func TestStalledHeadCostsNothingAndTimesOut(t *testing.T) {
	noLeaks(t)
	srv := &http.Server{Handler: http.HandlerFunc(hello), ReadHeaderTimeout: 300 * time.Millisecond}
	s := start(t, false, Options{}, srv)
	c := s.dial()
	io.WriteString(c, "GET / HTTP/1.1\r\nHo")
	before := cpu()
	rest, _ := io.ReadAll(c)
	if spent := cpu() - before; spent > 100*time.Millisecond {
		t.Errorf("a stalled head costs %v of CPU", spent)
	}
	if len(rest) > 0 && !strings.HasPrefix(string(rest), "HTTP/1.1 408") {
		t.Errorf("%q", rest)
	}
}

func TestIdleTimeout(t *testing.T) {
	noLeaks(t)
	srv := &http.Server{Handler: http.HandlerFunc(hello), IdleTimeout: time.Second}
	s := start(t, false, Options{}, srv)
	c := s.dial()
	get(t, c, bufio.NewReader(c), "/")
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
}

func TestUnreadUploadIsHeldBack(t *testing.T) {
	noLeaks(t)
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { <-release })
	c := s.dial()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	chunk := make([]byte, 1<<20)
	sent := 0
	for {
		n, err := c.Write(chunk)
		sent += n
		if err != nil {
			break
		}
	}
	runtime.ReadMemStats(&after)
	close(release)
	if sent > 32<<20 || int64(after.HeapAlloc)-int64(before.HeapAlloc) > 8<<20 {
		t.Errorf("%d bytes were taken, the heap grew by %d", sent, after.HeapAlloc-before.HeapAlloc)
	}
}

func TestClientThatDoesNotReadHoldsTheHandlerBack(t *testing.T) {
	for _, options := range []Options{{}, {Inline: true}} {
		t.Run(fmt.Sprint(options.Inline), func(t *testing.T) {
			noLeaks(t)
			var written atomic.Int64
			ended := make(chan struct{})
			s := start(t, false, options, &http.Server{Handler: http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/long" {
						io.WriteString(w, "short")
						return
					}
					defer close(ended)
					chunk := make([]byte, 64<<10)
					for range 1 << 14 {
						n, err := w.Write(chunk)
						written.Add(int64(n))
						if err != nil {
							return
						}
					}
				})})
			c := s.dial()
			io.WriteString(c, "GET /long HTTP/1.1\r\nHost: h\r\n\r\n")
			before := int64(-1)
			eventually(t, "the handler is held back", func() bool {
				now := written.Load()
				held := now == before && now > 0
				before = now
				time.Sleep(100 * time.Millisecond)
				return held
			})
			if before > 64<<20 {
				t.Errorf("%d bytes are on their way", before)
			}
			other := s.dial()
			if _, body := get(t, other, bufio.NewReader(other), "/"); body != "short" {
				t.Errorf("others get %q", body)
			}
			c.SetLinger(0)
			c.Close()
			<-ended
		})
	}
}

func TestContextEndsWithClientAndHandler(t *testing.T) {
	noLeaks(t)
	type key struct{}
	contexts := make(chan context.Context, 1)
	left := make(chan error, 1)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			contexts <- r.Context()
			if r.URL.Path == "/wait" {
				child, cancel := context.WithCancel(r.Context())
				defer cancel()
				<-child.Done()
				left <- child.Err()
			}
		}),
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), key{}, "base")
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, http.LocalAddrContextKey, c.LocalAddr())
		},
	}
	s := start(t, false, Options{}, srv)
	c := s.dial()
	get(t, c, bufio.NewReader(c), "/")
	ctx := <-contexts
	<-ctx.Done()
	if ctx.Err() != context.Canceled || ctx.Value(key{}) != "base" ||
		ctx.Value(http.ServerContextKey) != srv ||
		ctx.Value(http.LocalAddrContextKey).(net.Addr).String() != s.addr {
		t.Errorf("%v %v", ctx.Err(), ctx)
	}
	io.WriteString(c, "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
	<-contexts
	c.Close()
	if err := <-left; err != context.Canceled {
		t.Error(err)
	}
}

func TestShutdownWaitsForRequestsInFlight(t *testing.T) {
	noLeaks(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			close(arrived)
			<-release
		}
		io.WriteString(w, "done")
	})
	idle := s.dial()
	get(t, idle, bufio.NewReader(idle), "/")
	c := s.dial()
	io.WriteString(c, "GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
	<-arrived
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.srv.Shutdown(short); err != context.DeadlineExceeded {
		t.Errorf("Shutdown returned %v before its request was answered", err)
	}
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("idle connection: %v", err)
	}
	close(release)
	answer, _ := io.ReadAll(c)
	if !strings.HasSuffix(string(answer), "done") || !strings.Contains(string(answer), "Connection: close") {
		t.Errorf("%q", answer)
	}
	if err := s.srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestShutdownUnderLoad(t *testing.T) {
	noLeaks(t)
	s := serve(t, hello)
	var group sync.WaitGroup
	var served atomic.Int64
	for range 16 {
		group.Go(func() {
			for {
				c, err := net.Dial("tcp", s.addr)
				if err != nil {
					return
				}
				r := bufio.NewReader(c)
				for {
					io.WriteString(c, get11)
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						break
					}
					body, err := io.ReadAll(resp.Body)
					if err != nil || string(body) != "hello" {
						t.Errorf("%q %v", body, err)
					}
					served.Add(1)
				}
				c.Close()
			}
		})
	}
	eventually(t, "many are served", func() bool { return served.Load() > 500 })
	if err := s.srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	group.Wait()
}

func TestHijackRaces(t *testing.T) {
	noLeaks(t)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
		rw.Flush()
		io.Copy(c, rw)
		c.Close()
	})
	for round := range 200 {
		c := s.dial()
		io.WriteString(c, get11+"early")
		if round%3 == 0 {
			c.Close()
			continue
		}
		r := bufio.NewReader(c)
		http.ReadResponse(r, nil)
		c.CloseWrite()
		if rest, _ := io.ReadAll(r); string(rest) != "early" {
			t.Fatalf("%q", rest)
		}
		c.Close()
	}
}

func TestReverseProxy(t *testing.T) {
	noLeaks(t)
	backend := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		body, _ := io.ReadAll(r.Body)
		w.Write(bytes.ToUpper(body))
		w.(http.Flusher).Flush()
		w.Header().Set("X-Sum", fmt.Sprint(len(body)))
	})
	target, _ := url.Parse(backend.url())
	proxy := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	proxy.Transport = transport
	s := start(t, false, Options{}, &http.Server{Handler: proxy})
	for _, size := range []int{0, 10, 3 << 20} {
		body := strings.Repeat("a", size)
		resp, err := http.Post(s.url(), "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != strings.ToUpper(body) || resp.Trailer.Get("X-Sum") != fmt.Sprint(size) {
			t.Errorf("%d bytes: %d bytes, %v, %v", size, len(got), err, resp.Trailer)
		}
	}
}

func TestConnState(t *testing.T) {
	noLeaks(t)
	var mu sync.Mutex
	var states []http.ConnState
	srv := &http.Server{Handler: http.HandlerFunc(hello), ConnState: func(c net.Conn, s http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, s)
	}}
	s := start(t, false, Options{}, srv)
	c := s.dial()
	get(t, c, bufio.NewReader(c), "/")
	c.Close()
	eventually(t, "new, active, idle and closed are told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprint(states) == "[new active idle closed]"
	})
}

func TestConnStateThatPanics(t *testing.T) {
	noLeaks(t)
	for _, state := range []http.ConnState{http.StateActive, http.StateIdle} {
		t.Run(state.String(), func(t *testing.T) {
			var panics atomic.Int32
			srv := &http.Server{
				Handler:  http.HandlerFunc(hello),
				ErrorLog: log.New(io.Discard, "", 0),
				ConnState: func(_ net.Conn, s http.ConnState) {
					if s == state && panics.Add(1) == 1 {
						panic("as the test wants it")
					}
				},
			}
			s := start(t, false, Options{}, srv)
			c := s.dial()
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
			// It was the one connection that was lost.
			c = s.dial()
			get(t, c, bufio.NewReader(c), "/")
		})
	}
}

func TestWhatIsNotServedIsAnError(t *testing.T) {
	noLeaks(t)
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	http2 := &http.Server{Protocols: new(http.Protocols)}
	http2.Protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: http.HandlerFunc(hello)}
	other := struct{ net.Listener }{l}
	for want, err := range map[string]error{
		"Protocols without HTTP/1": Serve(l, http2),
		"a listener that is neither of TCP nor a unix socket, but struct { net.Listener }": Serve(other, srv),
	} {
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || unsupported.What != want {
			t.Errorf("%v, not %q", err, want)
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v is no errors.ErrUnsupported", err)
		}
	}
	// The listener is as it was.
	done := make(chan error)
	go func() { done <- srv.Serve(other) }()
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	srv.Shutdown(t.Context())
	if err := <-done; err != http.ErrServerClosed {
		t.Error(err)
	}
}

// SetKeepAlivesEnabled of the http.Server is seen before and while it serves, that of the Server
// also when it turns them on again.
func TestSetKeepAlivesEnabled(t *testing.T) {
	noLeaks(t)
	srv := &Server{Server: &http.Server{Handler: http.HandlerFunc(hello)}}
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	done := make(chan error)
	go func() { done <- srv.Serve(l) }()
	s := &server{t: t, addr: l.Addr().String()}
	keeps := func() bool {
		c := s.dial()
		io.WriteString(c, get11)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return !resp.Close
	}
	if !keeps() {
		t.Error("keep-alives are off at first")
	}
	srv.Server.SetKeepAlivesEnabled(false)
	eventually(t, "keep-alives are off", func() bool { return !keeps() })
	srv.SetKeepAlivesEnabled(true)
	if !keeps() {
		t.Error("keep-alives are not on again")
	}
	srv.SetKeepAlivesEnabled(false)
	if keeps() {
		t.Error("keep-alives are not off again")
	}
	told := make(chan struct{})
	srv.RegisterOnShutdown(func() { close(told) })
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	<-told
	if err := <-done; err != http.ErrServerClosed {
		t.Error(err)
	}

	off := &http.Server{Handler: http.HandlerFunc(hello)}
	off.SetKeepAlivesEnabled(false)
	s = start(t, false, Options{}, off)
	if keeps() {
		t.Error("keep-alives that were off before are on")
	}
}

func TestListenerThatFails(t *testing.T) {
	noLeaks(t)
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	done := make(chan error)
	go func() { done <- Serve(l, &http.Server{Handler: http.HandlerFunc(hello)}) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get(t, c, bufio.NewReader(c), "/")
	l.Close()
	if err := <-done; err == nil || err == http.ErrServerClosed {
		t.Error(err)
	}
}

// A file that follows a body that is on its way is not waited for twice.
func TestFileBehindBody(t *testing.T) {
	noLeaks(t)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open("testdata/page.txt")
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Error(err)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", strconv.FormatInt(3000+info.Size(), 10))
		w.Write(make([]byte, 3000))
		io.Copy(w, f)
	})
	c := s.dial()
	r := bufio.NewReader(c)
	for range 500 {
		if _, body := get(t, c, r, "/"); len(body) <= 3000 {
			t.Fatalf("%d bytes", len(body))
		}
	}
}

// What is too long to be written at once, and comes behind something, is waited for.
func TestTrailerThatFillsTheWindow(t *testing.T) {
	noLeaks(t)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write(make([]byte, 100<<10))
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"Long", strings.Repeat("x", 300<<10))
	})
	answer := s.exchangeUntilSilentFor(get11, 2*time.Second)
	if !strings.HasSuffix(answer, "x\r\n\r\n<open>") {
		t.Errorf("%d bytes, ending in %q", len(answer), answer[max(0, len(answer)-20):])
	}
}
