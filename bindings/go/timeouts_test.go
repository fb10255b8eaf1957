//go:build cgo && linux

package dwell

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// closes checks that a server of either kind closes the connection of a client that sends a
// request, of which it reads no answer, and nothing else.
func closes(t *testing.T, request string, makeServer func() *http.Server) {
	for _, isStd := range []bool{true, false} {
		t.Run(fmt.Sprintf("isStd=%v", isStd), func(t *testing.T) {
			noLeaks(t)
			closed := make(chan struct{})
			srv := makeServer()
			srv.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					close(closed)
				}
			}
			c := start(t, isStd, Options{}, srv).dial()
			c.SetReadBuffer(2 << 10)
			io.WriteString(c, request)
			select {
			case <-closed:
			case <-time.After(patience):
				t.Error("connection is open")
			}
		})
	}
}

// The answer is short enough to be given whole before its client has taken any of it.
func TestWriteTimeoutOfAnswerThatIsNotRead(t *testing.T) {
	const size = 250 << 10
	requests := ""
	for range 40 {
		requests += get11
	}
	closes(t, requests, func() *http.Server {
		return &http.Server{WriteTimeout: 200 * time.Millisecond, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(size))
				w.Write(make([]byte, size))
			})}
	})
}

func TestReadTimeoutOfBodyThatNobodyReads(t *testing.T) {
	const request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nabc"
	closes(t, request, func() *http.Server {
		return &http.Server{ReadTimeout: 200 * time.Millisecond, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })}
	})
}

func TestReadHeaderTimeoutOfSilentClient(t *testing.T) {
	closes(t, "", func() *http.Server {
		return &http.Server{ReadHeaderTimeout: 200 * time.Millisecond}
	})
}

// A deadline that a handler has moved is longer than the server's.
func TestMovedDeadlines(t *testing.T) {
	noLeaks(t)
	// Longer than a busy machine needs to come to the handler.
	const timeout = time.Second
	waiting, read := make(chan struct{}), make(chan string, 1)
	srv := &http.Server{ReadTimeout: timeout, WriteTimeout: timeout, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			rc.SetReadDeadline(time.Time{})
			rc.SetWriteDeadline(time.Time{})
			close(waiting)
			b, err := io.ReadAll(r.Body)
			read <- fmt.Sprint(string(b), err)
		})}
	c := start(t, false, Options{}, srv).dial()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n")
	<-waiting
	// Longer than the engine would wait.
	time.Sleep(timeout + timeout/2)
	io.WriteString(c, "abc")
	if got := <-read; got != "abc<nil>" {
		t.Error(got)
	}
}

// Shutdown does not wait for ever for those who have begun a request and never go on.
func TestShutdownWithHalfAHead(t *testing.T) {
	noLeaks(t)
	srv := &http.Server{Handler: http.NotFoundHandler()}
	s := start(t, false, Options{}, srv)
	c := s.dial()
	io.WriteString(c, get11+"GET / HT")
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
