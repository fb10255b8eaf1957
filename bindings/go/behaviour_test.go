package dwell

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// behaviours are what handlers and clients rely on: each is asked of net/http and of this package
// in the same run, and has to be the same, byte for byte but for the date.
var behaviours = []struct {
	name    string
	request string
	handler http.HandlerFunc
}{
	{"implicit 200", get11, func(w http.ResponseWriter, r *http.Request) {}},
	{"header snapshot", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("A", "1")
		w.WriteHeader(201)
		w.Header().Set("A", "2")
		w.Header().Set("B", "2")
	}},
	{"header after write", get11, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "x")
		w.Header().Set("B", "2")
	}},
	{"length of two writes", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("one"))
		io.WriteString(w, "two")
	}},
	{"chunked when long", get11, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("x", 5000))
	}},
	{"sniffs html", get11, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "<html>")
	}},
	{"sniffs none when told", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		io.WriteString(w, "<html>")
	}},
	{"sniffs none when encoded", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "x")
	}},
	{"order of Write, WriteString and Copy", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("a"))
		io.WriteString(w, "b")
		io.Copy(w, strings.NewReader("c"))
		w.(http.Flusher).Flush()
		io.Copy(w, strings.NewReader("d"))
		w.Write([]byte("e"))
	}},
	{"length too long", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		io.WriteString(w, "abc")
		if _, err := io.WriteString(w, "d"); err != http.ErrContentLength {
			panic(err)
		}
	}},
	{"length too short", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "abc")
	}},
	{"HEAD", "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "abc")
	}},
	{"HEAD with a length", "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
	}},
	{"204", get11, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(204)
		if _, err := io.WriteString(w, "x"); err != http.ErrBodyNotAllowed {
			panic(err)
		}
	}},
	{"304", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Etag", `"1"`)
		w.WriteHeader(304)
	}},
	{"103 and then 200", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>")
		w.WriteHeader(103)
		w.Header().Del("Link")
		io.WriteString(w, "final")
	}},
	{"HTTP/1.0", "GET / HTTP/1.0\r\nHost: h\r\n\r\n", hello},
	{"HTTP/1.0 keep-alive", "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n", hello},
	{"HTTP/1.0 long", "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat("x", 5000)) }},
	{"close asked for by the client", "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", hello},
	{"close asked for by the handler", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		io.WriteString(w, "x")
	}},
	{"unknown method", "FOOBAR / HTTP/1.1\r\nHost: h\r\n\r\n", echo},
	{"lower-case method", "get / HTTP/1.1\r\nHost: h\r\n\r\n", echo},
	{"absolute form", "GET http://a.example/x?y=1 HTTP/1.1\r\nHost: b\r\n\r\n", echo},
	{"escapes in the target", "GET /a%20b//c?d=%2f&e HTTP/1.1\r\nHost: h\r\n\r\n", echo},
	{"double slash", "GET //a/b HTTP/1.1\r\nHost: h\r\n\r\n", echo},
	{"empty query", "GET /a? HTTP/1.1\r\nHost: h\r\n\r\n", echo},
	{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", echo},
	{"pipelined", get11 + get11, hello},
	{"chunked, then another", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"3\r\nabc\r\n0\r\n\r\n" + get11, echo},
	{"length, then another", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc" + get11, echo},
	{"unread body, then another", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc" + get11, hello},
	{"long unread body", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc", hello},
	{"100-continue read", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		b := make([]byte, 1)
		go r.Body.Read(b)
		time.Sleep(50 * time.Millisecond)
		io.WriteString(w, "early")
	}},
	{"100-continue unread", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n", hello},
	{"request trailers", "POST / HTTP/1.1\r\nHost: h\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.Trailer, r.TransferEncoding, r.ContentLength)
		io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, r.Trailer)
	}},
	{"declared trailers", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "abc")
		w.Header().Set("X-Sum", "7")
	}},
	{"undeclared trailers", get11, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "abc")
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Sum", "7")
	}},
	{"no date", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		io.WriteString(w, "x")
	}},
	{"line ends in values", get11, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X", "a\r\nInjected: 1")
		io.WriteString(w, "x")
	}},
	{"fields of a request", "GET / HTTP/1.1\r\nhost: h\r\nx-a-b: 1\r\nX-A-B: 2\r\ncookie: c\r\nPragma: no-cache\r\n\r\n",
		func(w http.ResponseWriter, r *http.Request) { r.Header.Write(w) }},
	{"panic", get11, func(w http.ResponseWriter, r *http.Request) { panic("on purpose") }},
	{"abort", get11, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }},
	{"abort in the middle", get11, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "part")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}},
	{"write after hijack", get11, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		if _, err := io.WriteString(w, "x"); err != http.ErrHijacked {
			panic(err)
		}
		rw.WriteString("raw")
		rw.Flush()
	}},
	{"hijack with what came early", get11 + "early", func(w http.ResponseWriter, r *http.Request) {
		c, rw, _ := w.(http.Hijacker).Hijack()
		defer c.Close()
		early := make([]byte, 5)
		io.ReadFull(rw, early)
		fmt.Fprintf(rw, "got %s", early)
		rw.Flush()
	}},
	{"controller", get11, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := errors.Join(rc.EnableFullDuplex(), rc.SetReadDeadline(time.Time{}),
			rc.SetWriteDeadline(time.Now().Add(time.Hour)), rc.Flush()); err != nil {
			panic(err)
		}
		io.WriteString(w, "x")
	}},
	{"write deadline", get11, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.SetWriteDeadline(time.Now().Add(-time.Second))
		io.WriteString(w, "x")
	}},
	{"file", get11, func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "testdata/page.txt")
	}},
	{"part of a file", "GET / HTTP/1.1\r\nHost: h\r\nRange: bytes=2-5\r\n\r\n", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "testdata/page.txt")
	}},
	{"copy of a file", get11, func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open("testdata/page.txt")
		if err != nil {
			panic(err)
		}
		defer f.Close()
		w.Header().Set("Content-Length", "4")
		w.Header().Set("Content-Type", "text/plain")
		io.CopyN(w, f, 2)
		io.CopyN(w, f, 2)
	}},
	{"unknown status", get11, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(599) }},
	{"unknown expectation", "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", echo},
}

const get11 = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

func hello(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }

// echo tells all that a handler sees of a request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%q %q %q %q %q %q %v %q %v", r.Method, r.RequestURI, r.URL, r.URL.Path, r.Host,
		r.Proto, r.ContentLength, body, err)
}

func TestBehaviour(t *testing.T) {
	for _, b := range behaviours {
		for _, options := range []Options{{}, {Inline: true}} {
			t.Run(fmt.Sprintf("%s/%v", b.name, options.Inline), func(t *testing.T) {
				noLeaks(t)
				std := start(t, true, Options{}, &http.Server{Handler: b.handler})
				ours := start(t, false, options, &http.Server{Handler: b.handler})
				var want, got string
				// A busy machine may be silent in the middle of an answer: then it gets more time.
				for _, silence := range []time.Duration{silence, 2 * time.Second, patience / 2} {
					want, got = exchangeWithBoth(std, ours, b.request, silence)
					if strings.HasPrefix(b.name, "100-continue") {
						// net/http waits on for the body that its client was not asked for.
						want = strings.Replace(want, "<open>", "<closed>", 1)
					}
					if got == want {
						break
					}
				}
				if got != want {
					t.Errorf("differs from net/http\n got: %.600q\nwant: %.600q", got, want)
				}
				wantLog, gotLog := firstLine(std.log.String()), firstLine(ours.log.String())
				if (wantLog == "") != (gotLog == "") {
					t.Errorf("logs %q, net/http %q", gotLog, wantLog)
				}
			})
		}
	}
}

// exchangeWithBoth returns the answers of two servers, without their dates.
func exchangeWithBoth(std, ours *server, request string, silence time.Duration) (string, string) {
	want := make(chan string)
	go func() { want <- undated(std.exchangeUntilSilentFor(request, silence)) }()
	got := undated(ours.exchangeUntilSilentFor(request, silence))
	return <-want, got
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// refusals are what both refuse; net/http says a little more in its text.
func TestRefusals(t *testing.T) {
	noLeaks(t)
	for _, request := range []string{
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nX : 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nX: \x00\r\n\r\n",
		"GET / HTTP/3.0\r\nHost: h\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +2\r\n\r\nab",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 3<<20) + "\r\n\r\n",
		"nonsense\r\n\r\n",
	} {
		std := start(t, true, Options{}, &http.Server{Handler: http.HandlerFunc(hello)})
		ours := start(t, false, Options{}, &http.Server{Handler: http.HandlerFunc(hello)})
		want := std.exchangeUntilSilentFor(request, 2*time.Second)
		got := ours.exchangeUntilSilentFor(request, 2*time.Second)
		if status(got) != status(want) && !strings.HasSuffix(want, "<reset>") {
			t.Errorf("%.60q: status %q, net/http %q", request, status(got), status(want))
		}
		if strings.HasSuffix(got, "<open>") {
			t.Errorf("%.60q: left open", request)
		}
	}
}

var tooMuch = 1 << 20

func TestMaxHeaderBytes(t *testing.T) {
	noLeaks(t)
	for _, asked := range []int{0, 1000} {
		for _, size := range []int{900, 4900, 5300, 60000} {
			request := "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX: " +
				strings.Repeat("x", size) + "\r\n\r\n"
			std := start(t, true, Options{}, &http.Server{Handler: http.HandlerFunc(hello), MaxHeaderBytes: asked})
			ours := start(t, false, Options{}, &http.Server{Handler: http.HandlerFunc(hello), MaxHeaderBytes: asked})
			want, got := status(std.exchange(request)), status(ours.exchange(request))
			if got != want {
				t.Errorf("field of %d bytes, MaxHeaderBytes %d: %s, net/http %s", size, asked, got, want)
			}
			if log := ours.log.String(); log != "" {
				t.Errorf("MaxHeaderBytes %d: logged %q", asked, log)
			}
		}
	}
	// It is said once in a process, however often this test is run.
	tooMuch++
	larger := start(t, false, Options{}, &http.Server{Handler: http.HandlerFunc(hello), MaxHeaderBytes: tooMuch})
	larger.exchange(get11)
	if log := larger.log.String(); !strings.Contains(log, "more than 65535 bytes are refused") {
		t.Errorf("logged %q", log)
	}
}

func status(answer string) string {
	line := firstLine(answer)
	if len(line) < 12 {
		return line
	}
	return line[9:12]
}
