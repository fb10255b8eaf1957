//go:build cgo && linux

package dwell

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// onceOpen serves WebSockets without compression, each of which is handed to act, and sends the
// error that act returns. The client has small buffers, so that it is soon behind.
func onceOpen(t *testing.T, options Options, srv *http.Server, act func(*WebSocket) error) (*server, <-chan error) {
	t.Helper()
	told := make(chan error, 1)
	handler := &WebSocketHandler{Plain: true, OnMessage: func(s *WebSocket, isText bool, message []byte) {
		told <- act(s)
	}}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Upgrade(w, r, handler) })
	return start(t, false, options, srv), told
}

// helloFrame is a message of a client.
const helloFrame = "\x81\x82\x00\x00\x00\x00hi"

// readBinary reads a frame of a binary message that is longer than 125 bytes.
func readBinary(r io.Reader) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(header[2:]))
	if header[1] == 127 {
		var rest [6]byte
		if _, err := io.ReadFull(r, rest[:]); err != nil {
			return nil, err
		}
		length = int(binary.BigEndian.Uint32(rest[2:]))
	}
	payload := make([]byte, length)
	_, err := io.ReadFull(r, payload)
	return payload, err
}

func TestSendToClientThatNeverReads(t *testing.T) {
	noLeaks(t)
	const message, room = 64 << 10, 128 << 10
	sent := 0
	srv := &http.Server{WriteTimeout: 500 * time.Millisecond}
	s, told := onceOpen(t, Options{SendBuffer: room}, srv, func(s *WebSocket) error {
		for {
			if err := s.Send(false, make([]byte, message)); err != nil {
				return err
			}
			sent += message
		}
	})
	c := s.dial()
	c.SetReadBuffer(4 << 10)
	io.WriteString(c, handshake+helloFrame)
	if err := <-told; !errors.Is(err, ErrBehind) {
		t.Errorf("Send returned %v", err)
	}
	// What the system's buffers hold cannot be more than this.
	if sent > room+16<<20 {
		t.Errorf("%d bytes were sent", sent)
	}
}

func TestSendWaitsForClient(t *testing.T) {
	noLeaks(t)
	const count, message = 300, 100 << 10
	s, told := onceOpen(t, Options{SendBuffer: 1}, &http.Server{}, func(s *WebSocket) error {
		for i := range count {
			m := make([]byte, message)
			m[0], m[1] = byte(i>>8), byte(i)
			if err := s.Send(false, m); err != nil {
				return err
			}
		}
		return nil
	})
	c := s.dial()
	io.WriteString(c, handshake+helloFrame)
	r := bufio.NewReader(c)
	http.ReadResponse(r, nil)
	for i := range count {
		m, err := readBinary(r)
		if err != nil || len(m) != message || int(m[0])<<8|int(m[1]) != i {
			t.Fatalf("message %d: %d bytes, %v", i, len(m), err)
		}
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
}

func TestTrySend(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprint(inline), func(t *testing.T) { trySend(t, inline) })
	}
}

func trySend(t *testing.T, inline bool) {
	noLeaks(t)
	const message = 100 << 10
	var socket *WebSocket
	sent := 0
	options := Options{SendBuffer: 3 * message, Inline: inline}
	s, told := onceOpen(t, options, &http.Server{}, func(s *WebSocket) error {
		socket = s
		send := s.TrySend
		if inline {
			// On a loop it cannot wait either.
			send = s.Send
		}
		for {
			if err := send(false, make([]byte, message)); err != nil {
				return err
			}
			sent++
		}
	})
	c := s.dial()
	io.WriteString(c, handshake+helloFrame)
	if err := <-told; !errors.Is(err, ErrBehind) {
		t.Fatalf("TrySend returned %v", err)
	}
	// What was sent comes, and then there is room again.
	r := bufio.NewReader(c)
	http.ReadResponse(r, nil)
	for range sent {
		if _, err := readBinary(r); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "room again", func() bool { return socket.TrySend(false, make([]byte, 200)) == nil })
	if m, err := readBinary(r); err != nil || len(m) != 200 {
		t.Fatal(len(m), err)
	}
}
