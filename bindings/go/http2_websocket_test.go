//go:build cgo && linux

package dwell

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// rawStreams sends frames of HTTP/2 by hand, to do what the client of net/http does not: extended
// CONNECT, and resets at a time of its own.
type rawStreams struct {
	t *testing.T
	net.Conn
	last uint32
	came map[uint32]*rawStream
	// connects is set when the server announces extended CONNECT.
	connects bool
}

// rawStream is what has come on a stream.
type rawStream struct {
	fields, data []byte
	hasEnded     bool
	reset        int
}

func newRawStreams(t *testing.T, addr string) *rawStreams {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	r := &rawStreams{t: t, Conn: conn, came: map[uint32]*rawStream{}}
	io.WriteString(r, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	// A wide window for streams, and for all.
	r.frame(4, 0, 0, []byte{0, 4, 0x40, 0, 0, 0})
	r.frame(8, 0, 0, []byte{0x40, 0, 0, 0})
	return r
}

func (r *rawStreams) frame(kind, flags byte, stream uint32, payload []byte) {
	r.t.Helper()
	head := []byte{0, byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[5:], stream)
	if _, err := r.Write(append(head, payload...)); err != nil {
		r.t.Fatal(err)
	}
}

// ask begins a request, with these fields.
func (r *rawStreams) ask(ends bool, fields ...string) uint32 {
	r.t.Helper()
	if r.last++; r.last > 1 {
		r.last++
	}
	r.came[r.last] = &rawStream{reset: -1}
	var block []byte
	for i := 0; i < len(fields); i += 2 {
		name, value := fields[i], fields[i+1]
		block = append(append(block, 0, byte(len(name))), name...)
		block = append(append(block, byte(len(value))), value...)
	}
	flags := byte(4)
	if ends {
		flags |= 1
	}
	r.frame(1, flags, r.last, block)
	return r.last
}

func (r *rawStreams) get(path string) uint32 {
	r.t.Helper()
	return r.ask(true, ":method", "GET", ":scheme", "http", ":path", path, ":authority", "a")
}

func (r *rawStreams) reset(stream uint32) { r.frame(3, 0, stream, []byte{0, 0, 0, 8}) }

// until reads until a condition holds of a stream.
func (r *rawStreams) until(stream uint32, condition func(s *rawStream) bool) *rawStream {
	r.t.Helper()
	for !condition(r.came[stream]) {
		var head [9]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			r.t.Fatal(err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(r, payload); err != nil {
			r.t.Fatal(err)
		}
		kind, flags := head[3], head[4]
		if kind == 4 && flags == 0 {
			r.connects = bytes.Contains(payload, []byte{0, 8, 0, 0, 0, 1})
			r.frame(4, 1, 0, nil)
		}
		s := r.came[binary.BigEndian.Uint32(head[5:])]
		if s == nil {
			continue
		}
		switch kind {
		case 0:
			s.data = append(s.data, payload...)
		case 1:
			s.fields = payload
		case 3:
			s.reset = int(binary.BigEndian.Uint32(payload))
		}
		s.hasEnded = s.hasEnded || kind <= 1 && flags&1 != 0
	}
	return r.came[stream]
}

// answered waits for the head of an answer, or for a reset.
func (r *rawStreams) answered(stream uint32) *rawStream {
	r.t.Helper()
	return r.until(stream, func(s *rawStream) bool { return s.fields != nil || s.reset >= 0 })
}

// has tells whether an answer has this status; those of 200 and 404 have numbers of their own.
func (s *rawStream) has(status int) bool {
	switch status {
	case 200:
		return s.fields[0] == 0x88
	case 404:
		return s.fields[0] == 0x8d
	}
	return bytes.Contains(s.fields[:6], []byte(fmt.Sprint(status)))
}

// streamSocket is a WebSocket on a stream (RFC 8441).
type streamSocket struct {
	*rawStreams
	stream uint32
	used   int
}

// open asks for a WebSocket; the answer may be a refusal.
func (r *rawStreams) open(path string, fields ...string) *streamSocket {
	r.t.Helper()
	pseudo := []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", path,
		":authority", "a", "sec-websocket-version", "13"}
	s := &streamSocket{r, r.ask(false, append(pseudo, fields...)...), 0}
	r.answered(s.stream)
	return s
}

// say sends a frame whose mask is zero.
func (s *streamSocket) say(opcode byte, payload string) {
	s.t.Helper()
	frame := []byte{0x80 | opcode, 0xfe, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(frame[2:], uint16(len(payload)))
	if len(payload) < 126 {
		frame = []byte{0x80 | opcode, 0x80 | byte(len(payload)), 0, 0, 0, 0}
	}
	s.frame(0, 0, s.stream, append(frame, payload...))
}

func (s *streamSocket) expect(opcode byte, payload string) {
	s.t.Helper()
	want := []byte{0x80 | opcode, byte(len(payload))}
	if len(payload) >= 126 {
		want = []byte{0x80 | opcode, 126, byte(len(payload) >> 8), byte(len(payload))}
	}
	want = append(want, payload...)
	end := s.used + len(want)
	got := s.until(s.stream, func(c *rawStream) bool { return len(c.data) >= end }).data[s.used:end]
	s.used = end
	if !bytes.Equal(got, want) {
		s.t.Fatalf("got %.100q, not %.100q", got, want)
	}
}

func TestWebSocketsOnStreams(t *testing.T) {
	closed := make(chan string, 10)
	sockets := &WebSocketHandler{
		OnOpen:    func(s *WebSocket) { s.Send(true, []byte("welcome")) },
		OnMessage: func(s *WebSocket, isText bool, m []byte) { s.Send(isText, m) },
		OnClose: func(s *WebSocket, code int, reason string) {
			closed <- fmt.Sprint(code, " ", reason)
		},
		Subprotocols: []string{"chat"},
		Plain:        true,
	}
	route := http.NewServeMux()
	route.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Header.Get(":protocol") != "websocket" ||
			r.ProtoMajor != 2 || r.Header["Upgrade"] != nil || r.Header["Connection"] != nil ||
			r.Header["Sec-Websocket-Key"] != nil || r.URL.Query().Get("x") != "1" {
			t.Errorf("%v %v %v", r.Method, r.URL, r.Header)
		}
		w.Header().Set("X-Own", "1")
		if _, err := Upgrade(w, r, sockets); err != nil {
			t.Error(err)
		}
	})
	route.HandleFunc("/plain", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "plain") })
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprint("inline ", inline), func(t *testing.T) {
			options := Options{H2C: true, H2WebSockets: true, Inline: inline}
			s := start(t, false, options, &http.Server{Handler: route})
			r := newRawStreams(t, s.addr)
			var all []*streamSocket
			for range 20 {
				one := r.open("/socket?x=1", "sec-websocket-protocol", "other, chat")
				fields := r.came[one.stream].fields
				if !r.connects || !r.came[one.stream].has(200) || !bytes.Contains(fields, []byte("x-own")) ||
					bytes.Contains(fields, []byte("upgrade")) {
					t.Fatalf("%q", fields)
				}
				one.expect(1, "welcome")
				all = append(all, one)
			}
			// As much as a stream has a window for.
			long := strings.Repeat("x", 15_000)
			for i, one := range all {
				one.say(1, fmt.Sprint(long, i))
				one.expect(1, fmt.Sprint(long, i))
			}
			answer := r.get("/plain")
			r.until(answer, func(s *rawStream) bool { return s.hasEnded })
			if body := string(r.came[answer].data); body != "plain" {
				t.Errorf("%q", body)
			}
			all[0].say(8, "\x0f\xa1bye")
			all[0].expect(8, "\x0f\xa1")
			if got := <-closed; got != "4001 bye" {
				t.Error(got)
			}
			r.reset(all[1].stream)
			if got := <-closed; got != "1006 " {
				t.Error(got)
			}
			all[2].say(1, "here")
			all[2].expect(1, "here")
			// Its side ends without a close frame.
			r.frame(0, 1, all[2].stream, nil)
			if got := <-closed; got != "1006 " {
				t.Error(got)
			}
			r.Close()
			for range all[3:] {
				<-closed
			}
		})
	}
}

func TestOtherAnswersToAWebSocketOnAStream(t *testing.T) {
	hijacked := make(chan error, 1)
	route := http.NewServeMux()
	route.HandleFunc("/hijack", func(w http.ResponseWriter, r *http.Request) {
		_, _, err := w.(http.Hijacker).Hijack()
		hijacked <- err
		w.WriteHeader(http.StatusNotImplemented)
	})
	route.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {})
	route.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		// It ends, as its client has gone, and does not wait for a window.
		for range 100 {
			w.Write(make([]byte, 8192))
		}
	})
	route.HandleFunc("/no", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", 403) })
	route.HandleFunc("/origin", func(w http.ResponseWriter, r *http.Request) {
		if _, err := Upgrade(w, r, &WebSocketHandler{}); err == nil {
			t.Error("it was upgraded")
		}
	})
	s := start(t, false, Options{H2C: true, H2WebSockets: true}, &http.Server{Handler: route})
	r := newRawStreams(t, s.addr)
	for path, status := range map[string]int{
		"/hijack": 501, "/ok": 501, "/long": 501, "/no": 403, "/origin": 403, "/none": 404,
	} {
		one := r.open(path, "origin", "https://elsewhere.example")
		if !r.came[one.stream].has(status) {
			t.Errorf("%s: %q", path, r.came[one.stream].fields)
		}
	}
	if err := <-hijacked; !errors.Is(err, http.ErrNotSupported) {
		t.Error(err)
	}
}

func TestWebSocketsOnStreamsAreOffByDefault(t *testing.T) {
	for _, isStd := range []bool{true, false} {
		srv := &http.Server{Handler: http.NotFoundHandler()}
		if isStd {
			srv.Protocols = h2c(true)
		}
		s := start(t, isStd, Options{H2C: true}, srv)
		r := newRawStreams(t, s.addr)
		r.answered(r.get("/"))
		if r.connects {
			t.Errorf("std %v: it is announced", isStd)
		}
	}
}

func TestHandlersOfResetStreamsCountUntilTheyReturn(t *testing.T) {
	const most, refused = 128, 7
	begun, returned, gate := make(chan bool, most), make(chan bool, 2*most), make(chan bool)
	s := start(t, false, Options{H2C: true, Pollers: 1}, &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { returned <- true }()
			begun <- true
			<-gate
			io.WriteString(w, "too late for most")
		}),
	})
	r := newRawStreams(t, s.addr)
	for range most {
		stream := r.get("/")
		<-begun
		r.reset(stream)
	}
	if s := r.answered(r.get("/")); s.reset != refused {
		t.Fatalf("%q, reset by %d", s.fields, s.reset)
	}
	if len(begun) > 0 {
		t.Error("a handler has begun beyond the bound")
	}
	close(gate)
	for range most {
		<-returned
	}
	// What they have to tell the loop may be on its way.
	for range 20 {
		if r.answered(r.get("/")).fields != nil {
			return
		}
	}
	t.Error("they count though they have returned")
}
