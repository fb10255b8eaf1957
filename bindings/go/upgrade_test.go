//go:build cgo && linux

package dwell

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
)

const handshake = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Protocol: a, b\r\n\r\n"

func TestWebSocket(t *testing.T) {
	for _, options := range []Options{{}, {Inline: true}} {
		t.Run(fmt.Sprint(options.Inline), func(t *testing.T) {
			noLeaks(t)
			told := make(chan string, 10)
			handler := &WebSocketHandler{
				Subprotocols: []string{"b"},
				OnOpen:       func(s *WebSocket) { told <- "open" },
				OnMessage: func(s *WebSocket, isText bool, message []byte) {
					told <- fmt.Sprint("message ", isText, " ", string(message))
					s.Send(isText, message)
					s.Close(1000, "enough")
				},
				OnClose: func(s *WebSocket, code int, reason string) {
					told <- fmt.Sprint("close ", code, " ", reason)
				},
			}
			s := start(t, false, options, &http.Server{Handler: http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					if _, err := Upgrade(w, r, handler); err != nil {
						told <- err.Error()
					}
				})})
			c := s.dial()
			io.WriteString(c, handshake)
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != 101 || resp.Header.Get("Sec-Websocket-Protocol") != "b" {
				t.Fatal(resp, err)
			}
			io.WriteString(c, "\x81\x82\x00\x00\x00\x00hi")
			frames := make([]byte, 4+2+2+6)
			if _, err := io.ReadFull(r, frames); err != nil || string(frames[:4]) != "\x81\x02hi" {
				t.Fatalf("%q %v", frames, err)
			}
			io.WriteString(c, "\x88\x82\x00\x00\x00\x00\x03\xe8")
			for _, want := range []string{"open", "message true hi", "close 1000 "} {
				if got := <-told; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			if answer := s.exchange(get11); status(answer) != "400" {
				t.Error(answer)
			}
			if got := <-told; got != "dwell: handshake was refused" {
				t.Error(got)
			}
		})
	}
}

func TestSetReadHandler(t *testing.T) {
	// The loops of streams stay.
	streams()
	noLeaks(t)
	closed := make(chan bool, 1)
	handler := &StreamHandler{
		OnData:  func(s *Stream, data []byte) { s.Write(append([]byte("echo "), data...)) },
		OnClose: func(s *Stream, isOrderly bool) { closed <- isOrderly },
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := SetReadHandler(c, rw.Reader, handler); err != nil {
			t.Error(err)
		}
	})
	c := s.dial()
	io.WriteString(c, get11+"early")
	answer := make([]byte, len("echo early"))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "echo early" {
		t.Fatalf("%q %v", answer, err)
	}
	io.WriteString(c, "late")
	if _, err := io.ReadFull(c, answer[:9]); err != nil || string(answer[:9]) != "echo late" {
		t.Fatalf("%q %v", answer, err)
	}
	c.CloseWrite()
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
		t.Fatal(rest, err)
	}
	if !<-closed {
		t.Error("not closed in order")
	}
}
