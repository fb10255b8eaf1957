//go:build cgo && linux

package dwell

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// h2c are protocols that include HTTP/2 without TLS.
func h2c(http1 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	p.SetHTTP1(http1)
	return p
}

// framedClient speaks HTTP/2 alone, and over one connection.
func framedClient(t *testing.T) *http.Client {
	transport := &http.Transport{Protocols: h2c(false)}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// eitherH2C runs a test with net/http and with this package, both with HTTP/2 without TLS.
func eitherH2C(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, s *server, c *http.Client)) {
	for _, isStd := range []bool{true, false} {
		t.Run(map[bool]string{true: "std", false: "dwell"}[isStd], func(t *testing.T) {
			srv := &http.Server{Handler: handler}
			if isStd {
				srv.Protocols = h2c(true)
			}
			s := start(t, isStd, Options{H2C: true}, srv)
			test(t, s, framedClient(t))
		})
	}
}

// framedHandlers are what the same requests are put to on both servers.
var framedHandlers = map[string]http.HandlerFunc{
	"/request": func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, r.Host, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Close)
		fmt.Fprintln(w, r.ContentLength, r.TransferEncoding, len(body), err, r.TLS == nil)
		for _, h := range []http.Header{r.Header, r.Trailer} {
			for _, name := range slices.Sorted(maps.Keys(h)) {
				fmt.Fprintln(w, name, h[name])
			}
		}
	},
	"/empty":  func(w http.ResponseWriter, r *http.Request) {},
	"/none":   func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) },
	"/same":   func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(304) },
	"/status": func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", 418) },
	"/fields": func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Two"] = []string{"one", "two"}
		h.Set("Connection", "keep-alive")
		h.Set("Transfer-Encoding", "chunked")
		h.Set("Content-Type", "text/plain")
		io.WriteString(w, "fields")
	},
	"/long": func(w http.ResponseWriter, r *http.Request) {
		for i := range 3000 {
			fmt.Fprintf(w, "line %d\n", i)
		}
	},
	"/length": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5000")
		w.Write(bytes.Repeat([]byte("l"), 5000))
	},
	"/flush": func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		io.WriteString(w, "<html>flushed")
		http.NewResponseController(w).Flush()
	},
	"/trailers": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Announced")
		io.WriteString(w, "body")
		w.Header().Set("X-Announced", "1")
		w.Header().Set(http.TrailerPrefix+"X-Later", "2")
	},
	"/json": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(201)
		io.WriteString(w, `{"a":1}`)
	},
	"/encoded": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write([]byte{0x1f, 0x8b, 0})
	},
	"/file": func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "testdata/page.txt") },
	"/write-after-204": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(204)
		_, err := io.WriteString(w, "body")
		w.Header().Set("X-Error", fmt.Sprint(err))
	},
	"/unread": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "unread") },
	"/hijack": func(w http.ResponseWriter, r *http.Request) {
		_, _, err := http.NewResponseController(w).Hijack()
		fmt.Fprintln(w, errors.Is(err, http.ErrNotSupported))
	},
}

func route(w http.ResponseWriter, r *http.Request) {
	if handler := framedHandlers[r.URL.Path]; handler != nil {
		handler(w, r)
		return
	}
	framedHandlers["/request"](w, r)
}

// told is all that a client is told by an answer.
func told(t *testing.T, c *http.Client, req *http.Request) string {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Sprintf("error %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	// The seconds differ.
	resp.Header["Date"] = []string{fmt.Sprint(len(resp.Header["Date"]))}
	return fmt.Sprintf("%s %s %d %v %v\n%v\n%v\n%s", resp.Proto, resp.Status, resp.ContentLength,
		resp.Uncompressed, err, resp.Header, resp.Trailer, body)
}

// TestHTTP2IsThatOfNetHTTP puts the same requests to both, and compares all that comes back.
func TestHTTP2IsThatOfNetHTTP(t *testing.T) {
	noLeaks(t)
	std := start(t, true, Options{}, &http.Server{Handler: http.HandlerFunc(route), Protocols: h2c(true)})
	own := start(t, false, Options{H2C: true}, &http.Server{Handler: http.HandlerFunc(route)})
	c := framedClient(t)
	make := func(addr, method, target string, body io.Reader, change func(*http.Request)) *http.Request {
		req, err := http.NewRequest(method, "http://"+addr+target, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "example.org:8"
		if change != nil {
			change(req)
		}
		return req
	}
	trailers := func(req *http.Request) {
		req.Trailer = http.Header{"X-Sum": nil}
		req.Body = &endingBody{strings.NewReader("with trailers"), func() { req.Trailer.Set("X-Sum", "7") }}
		req.ContentLength = -1
	}
	fields := func(req *http.Request) {
		req.Header = http.Header{"X-Two": {"1", "2"}, "Cookie": {"a=1; b=2"}, "Accept": {"*/*"}, "Pragma": {"no-cache"}}
	}
	cases := []struct {
		method, target, body string
		change               func(*http.Request)
	}{
		{"GET", "/request?a=b&c=%20", "", fields},
		{"GET", "/a%2Fb/%C3%BC//c/../d", "", nil},
		{"OPTIONS", "/request", "", nil},
		{"PATCH", "/request", "short", nil},
		{"POST", "/request", strings.Repeat("long ", 100_000), nil},
		{"PUT", "/request", "x", func(r *http.Request) { r.ContentLength = -1 }},
		{"POST", "/request", "", trailers},
		{"POST", "/request", "expecting", func(r *http.Request) { r.Header.Set("Expect", "100-continue") }},
		{"POST", "/unread", strings.Repeat("u", 2_000_000), nil},
	}
	for path := range framedHandlers {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			cases = append(cases, struct {
				method, target, body string
				change               func(*http.Request)
			}{method, path, "", nil})
		}
	}
	for _, one := range cases {
		t.Run(one.method+one.target, func(t *testing.T) {
			var answers [2]string
			for i, s := range []*server{std, own} {
				var body io.Reader
				if one.body != "" {
					body = strings.NewReader(one.body)
				}
				answers[i] = told(t, c, make(s.addr, one.method, one.target, body, one.change))
			}
			if answers[0] != answers[1] {
				t.Errorf("net/http:\n%.2000s\nthis package:\n%.2000s", answers[0], answers[1])
			}
			if !strings.HasPrefix(answers[1], "HTTP/2.0 ") {
				t.Errorf("not of HTTP/2: %.200s", answers[1])
			}
		})
	}
}

// endingBody calls a function when it is read to its end.
type endingBody struct {
	io.Reader
	ended func()
}

func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.ended()
	}
	return n, err
}

func (b *endingBody) Close() error { return nil }

func TestHTTP2HasNoPusherAndNoUpgrade(t *testing.T) {
	noLeaks(t)
	s := start(t, false, Options{H2C: true}, &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if _, is := w.(http.Pusher); is {
				t.Error("it is a Pusher")
			}
			if _, err := Upgrade(w, r, &WebSocketHandler{}); !errors.Is(err, http.ErrNotSupported) {
				t.Error(err)
			}
		})})
	resp, err := framedClient(t).Get("http://" + s.addr)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotImplemented {
		t.Error(resp.Status)
	}
}

func TestHTTP2IsOffByDefault(t *testing.T) {
	noLeaks(t)
	s := serve(t, hello)
	if resp, err := framedClient(t).Get("http://" + s.addr); err == nil {
		resp.Body.Close()
		t.Error("it is served")
	}
	// What a program asks of net/http is done as well.
	asked := start(t, false, Options{}, &http.Server{Handler: http.HandlerFunc(hello), Protocols: h2c(true)})
	for _, c := range []*http.Client{framedClient(t), {Transport: &http.Transport{DisableKeepAlives: true}}} {
		resp, err := c.Get("http://" + asked.addr)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
}

func TestHTTP2StreamsWaitSideBySide(t *testing.T) {
	noLeaks(t)
	entered, gate := make(chan bool, 200), make(chan bool, 200)
	handler := func(w http.ResponseWriter, r *http.Request) {
		entered <- true
		<-gate
		io.WriteString(w, r.URL.Path+" "+r.RemoteAddr)
	}
	eitherH2C(t, handler, func(t *testing.T, s *server, c *http.Client) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		remotes := map[string]bool{}
		for i := range 100 {
			wg.Go(func() {
				resp, err := c.Get(fmt.Sprintf("http://%s/%d", s.addr, i))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				path, remote, _ := strings.Cut(string(body), " ")
				if path != fmt.Sprintf("/%d", i) || err != nil {
					t.Errorf("%q %v", body, err)
				}
				mu.Lock()
				remotes[remote] = true
				mu.Unlock()
			})
		}
		for range 100 {
			<-entered
		}
		for range 100 {
			gate <- true
		}
		wg.Wait()
		if len(remotes) != 1 {
			t.Errorf("%d connections", len(remotes))
		}
	})
}

func TestHTTP2ResetCancelsTheContext(t *testing.T) {
	noLeaks(t)
	entered, left := make(chan bool, 2), make(chan error, 2)
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			entered <- true
			<-r.Context().Done()
			left <- r.Context().Err()
			return
		}
		io.WriteString(w, "ok")
	}
	eitherH2C(t, handler, func(t *testing.T, s *server, c *http.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+s.addr+"/wait", nil)
			_, err := c.Do(req)
			done <- err
		}()
		<-entered
		cancel()
		if err := <-left; err != context.Canceled {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		// The connection goes on.
		resp, err := c.Get("http://" + s.addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	})
}

func TestHTTP2DuplexAndFlow(t *testing.T) {
	noLeaks(t)
	handler := func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		buffer := make([]byte, 64<<10)
		for {
			n, err := r.Body.Read(buffer)
			if _, writeErr := w.Write(buffer[:n]); writeErr != nil {
				t.Error(writeErr)
				return
			}
			http.NewResponseController(w).Flush()
			if err != nil {
				if err != io.EOF {
					t.Error(err)
				}
				return
			}
		}
	}
	eitherH2C(t, handler, func(t *testing.T, s *server, c *http.Client) {
		reader, writer := io.Pipe()
		req, _ := http.NewRequest("POST", "http://"+s.addr, reader)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for _, piece := range []string{"one", "two", strings.Repeat("big", 500_000)} {
			go io.WriteString(writer, piece)
			got := make([]byte, len(piece))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != piece {
				t.Fatalf("%v, %.20q", err, got)
			}
		}
		writer.Close()
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
			t.Errorf("%q %v", rest, err)
		}
	})
}

// A client that takes nothing of a large answer holds up its handler, and nobody else on the
// connection; when it takes the rest, all of it comes.
func TestHTTP2WriterWaitsForTheWindow(t *testing.T) {
	noLeaks(t)
	const size = 32 << 20
	written := make(chan int, 1000)
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/big" {
			for range size / (64 << 10) {
				n, err := w.Write(make([]byte, 64<<10))
				if err != nil {
					t.Error(err)
				}
				written <- n
			}
			return
		}
		io.WriteString(w, "ok")
	}
	eitherH2C(t, handler, func(t *testing.T, s *server, c *http.Client) {
		resp, err := c.Get("http://" + s.addr + "/big")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for range 10 {
			small, err := c.Get("http://" + s.addr + "/small")
			if err != nil {
				t.Fatal(err)
			}
			small.Body.Close()
		}
		if len(written) > 500 {
			t.Errorf("nothing stops the writer: %d pieces", len(written))
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		for range size / (64 << 10) {
			<-written
		}
	})
}

func TestHTTP2FilesAreSentWhole(t *testing.T) {
	noLeaks(t)
	path := filepath.Join(t.TempDir(), "big")
	content := bytes.Repeat([]byte("a line of a big file\n"), 200_000)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	handler := func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }
	eitherH2C(t, handler, func(t *testing.T, s *server, c *http.Client) {
		resp, err := c.Get("http://" + s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Equal(body, content) {
			t.Errorf("%v, %d bytes", err, len(body))
		}
	})
}

func TestHTTP2DeadlinesOfAHandler(t *testing.T) {
	noLeaks(t)
	results := make(chan error, 2)
	handler := func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.URL.Path == "/read" {
			control.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			_, err := io.ReadAll(r.Body)
			results <- err
			return
		}
		control.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				results <- err
				return
			}
		}
	}
	eitherH2C(t, handler, func(t *testing.T, s *server, c *http.Client) {
		reader, writer := io.Pipe()
		defer writer.Close()
		go func() {
			resp, err := c.Post("http://"+s.addr+"/read", "text/plain", reader)
			if err == nil {
				resp.Body.Close()
			}
		}()
		if err := <-results; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		resp, err := c.Get("http://" + s.addr + "/write")
		if err == nil {
			defer resp.Body.Close()
		}
		if err := <-results; err == nil {
			t.Error("no error of the write")
		}
	})
}

func TestHTTP2PanicsEndTheStream(t *testing.T) {
	noLeaks(t)
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/before":
			panic(http.ErrAbortHandler)
		case "/within":
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, r.RemoteAddr)
	}
	eitherH2C(t, handler, func(t *testing.T, s *server, c *http.Client) {
		read := func(path string) (string, error) {
			resp, err := c.Get("http://" + s.addr + path)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return string(body), err
		}
		first, _ := read("/")
		for _, path := range []string{"/before", "/within"} {
			if _, err := read(path); err == nil || !strings.Contains(err.Error(), "INTERNAL_ERROR") {
				t.Errorf("%s: %v", path, err)
			}
		}
		if again, err := read("/"); again != first || err != nil {
			t.Errorf("another connection: %q, %q, %v", first, again, err)
		}
	})
}

func TestHTTP2ShutdownLetsStreamsFinish(t *testing.T) {
	noLeaks(t)
	entered, gate := make(chan bool, 10), make(chan bool, 10)
	handler := func(w http.ResponseWriter, r *http.Request) {
		entered <- true
		<-gate
		io.WriteString(w, "finished")
	}
	eitherH2C(t, handler, func(t *testing.T, s *server, c *http.Client) {
		bodies := make(chan string, 10)
		for range 10 {
			go func() {
				resp, err := c.Get("http://" + s.addr)
				if err != nil {
					bodies <- err.Error()
					return
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				bodies <- string(body)
			}()
		}
		for range 10 {
			<-entered
		}
		done := make(chan error)
		go func() { done <- s.srv.Shutdown(t.Context()) }()
		if err := <-s.done; err != http.ErrServerClosed {
			t.Error(err)
		}
		s.done <- http.ErrServerClosed
		for range 10 {
			gate <- true
		}
		for range 10 {
			if body := <-bodies; body != "finished" {
				t.Error(body)
			}
		}
		c.CloseIdleConnections()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The hooks of a program see one connection: active while there is a stream, idle behind the last.
func TestHTTP2StatesOfAConnection(t *testing.T) {
	noLeaks(t)
	entered, gate := make(chan bool, 10), make(chan bool)
	handler := func(w http.ResponseWriter, r *http.Request) {
		entered <- true
		<-gate
		io.WriteString(w, fmt.Sprint(r.Context().Value(connKey{})))
	}
	states := make(chan http.ConnState, 20)
	srv := &http.Server{
		Handler:   http.HandlerFunc(handler),
		Protocols: h2c(true),
		ConnState: func(_ net.Conn, state http.ConnState) { states <- state },
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, "of the hook")
		},
	}
	s := start(t, false, Options{}, srv)
	c := framedClient(t)
	bodies := make(chan string, 3)
	ask := func() {
		resp, err := c.Get("http://" + s.addr)
		if err != nil {
			bodies <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		bodies <- string(body)
	}
	go ask()
	<-entered
	gate <- true
	seen := []http.ConnState{<-states, <-states, <-states}
	for range 2 {
		go ask()
		<-entered
	}
	close(gate)
	seen = append(seen, <-states, <-states)
	for range 3 {
		if body := <-bodies; body != "of the hook" {
			t.Error(body)
		}
	}
	// The client closes what it takes for idle, which it may do some time after the bodies are here.
	eventually(t, "the connection is closed", func() bool {
		c.CloseIdleConnections()
		return len(states) > 0
	})
	seen = append(seen, <-states)
	want := []http.ConnState{http.StateNew, http.StateActive, http.StateIdle,
		http.StateActive, http.StateIdle, http.StateClosed}
	if !slices.Equal(seen, want) {
		t.Errorf("%v, not %v", seen, want)
	}
}

type connKey struct{}

func TestHTTP2UnderTLS(t *testing.T) {
	noLeaks(t)
	p := ecdsaPair(t)
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintln(w, r.Proto, r.TLS.NegotiatedProtocol, r.TLS.Version == tls.VersionTLS13, len(body), err)
	}
	for _, offers := range []bool{true, false} {
		srv := &Server{Server: &http.Server{Handler: http.HandlerFunc(handler)}, Options: Options{H2: offers}}
		s := startTLS(t, p, srv)
		c := p.client(t, &tls.Config{})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				resp, err := c.Post("https://"+s.addr, "text/plain", bytes.NewReader(make([]byte, 100_000)))
				want := "HTTP/2.0 h2 true 100000 <nil>\n"
				if !offers {
					want = "HTTP/1.1 http/1.1 true 100000 <nil>\n"
				}
				if got := read(t, resp, err); got != want {
					t.Errorf("%q, not %q", got, want)
				}
			})
		}
		wg.Wait()
	}
}

func TestHTTP2IsNotForClientsThatAreVerified(t *testing.T) {
	p := ecdsaPair(t)
	config := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}
	srv := &Server{Server: &http.Server{TLSConfig: config}, Options: Options{H2: true}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var unsupported *UnsupportedError
	if err := srv.ServeTLS(l, p.certFile, p.keyFile); !errors.As(err, &unsupported) || unsupported.What != "HTTP/2 with TLSConfig.ClientAuth" {
		t.Error(err)
	}
}
