//go:build cgo && linux

package dwell

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fileOf makes a file of zeros and returns its name.
func fileOf(t *testing.T, size int64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.bin")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
	return name
}

// Clients that leave while a file is sent to them cost no descriptor, wherever they leave.
func TestAbortedDownloadsLeakNoDescriptor(t *testing.T) {
	for _, options := range []Options{{}, {Inline: true}} {
		noLeaks(t)
		name := fileOf(t, 8<<20)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/late" {
				<-r.Context().Done()
			}
			http.ServeFile(w, r, name)
		})}
		s := start(t, false, options, srv)
		s.exchange("HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		before := descriptors()
		for i := range 60 {
			c := s.dial()
			c.SetLinger(0)
			path := "/file"
			if i%3 == 0 && !options.Inline {
				path = "/late"
			}
			io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
			if i%3 == 1 {
				io.ReadFull(c, make([]byte, 100<<10))
			}
			c.Close()
		}
		eventually(t, "as many descriptors as before the downloads", func() bool {
			return descriptors() <= before
		})
	}
}

// The three ways in which a file is not given to the engine.
func TestDescriptorOfAFileThatIsNotSent(t *testing.T) {
	for _, c := range []struct {
		why  string
		e    *exchange
		want error
	}{
		{"client is gone", &exchange{gone: true}, errClientGone},
		{"deadline has passed", &exchange{inFlight: 1, writeDeadline: time.Unix(1, 0)},
			os.ErrDeadlineExceeded},
		{"loop has ended", &exchange{}, errClientGone},
	} {
		c.e.loop = &loop{core: &core{}, engine: &engine{}, closed: true}
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := dupDescriptor(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.e.sendFile(fd, 0, 10); err != c.want {
			t.Errorf("%s: %v instead of %v", c.why, err, c.want)
		}
		var stat syscall.Stat_t
		if err := syscall.Fstat(fd, &stat); err != syscall.EBADF {
			t.Errorf("%s: the descriptor is still open: %v", c.why, err)
		}
	}
}

func TestReadFromCountsLimitedReaderDown(t *testing.T) {
	name := fileOf(t, 1000)
	for _, isStd := range []bool{true, false} {
		s := start(t, isStd, Options{}, &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/octet-stream")
				w.Header().Set("Content-Length", "10")
				file, err := os.Open(name)
				if err != nil {
					t.Error(err)
					return
				}
				defer file.Close()
				w.(http.Flusher).Flush()
				limited := &io.LimitedReader{R: file, N: 10}
				for _, want := range []int64{10, 0} {
					if n, err := io.Copy(w, limited); n != want || err != nil || limited.N != 0 {
						t.Errorf("std %v: copied %d, %v, and %d are left", isStd, n, err, limited.N)
					}
				}
				if at, _ := file.Seek(0, io.SeekCurrent); at != 10 {
					t.Errorf("std %v: the file is at %d", isStd, at)
				}
			}),
		})
		answer := s.exchange(get11)
		if !strings.HasSuffix(answer, "\r\n\r\n"+strings.Repeat("\x00", 10)+"<open>") {
			t.Errorf("std %v: %q", isStd, answer)
		}
	}
}

// What programs hang on their requests goes when the handler has returned, although the connection
// stays and nobody uses its place again.
func TestFinishedRequestsAreForgotten(t *testing.T) {
	noLeaks(t)
	for _, options := range []Options{{}, {Inline: true}} {
		const requests = 200
		var freed, came atomic.Int32
		leave := make(chan struct{})
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			kept := &keptBody{ReadCloser: r.Body}
			runtime.AddCleanup(kept, func(n int32) { freed.Add(n) }, 1)
			r.Body = kept
			came.Add(1)
			if !options.Inline {
				<-leave
			}
			switch r.URL.Path {
			case "/abort":
				panic(http.ErrAbortHandler)
			case "/hijack":
				if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
					conn.Close()
				}
			default:
				io.WriteString(w, "hello")
			}
		})}
		s := start(t, false, options, srv)
		for i := range requests {
			path := []string{"/", "/", "/abort", "/hijack"}[i%4]
			io.WriteString(s.dial(), "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
		}
		eventually(t, "every handler runs", func() bool { return came.Load() == requests })
		close(leave)
		eventually(t, "every request is freed", func() bool {
			runtime.GC()
			return freed.Load() == requests
		})
	}
}

type keptBody struct{ io.ReadCloser }
