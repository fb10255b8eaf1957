package dwell

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestHello(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, r.Method+" "+r.URL.Path+" "+string(body))
	})}
	done := make(chan error, 1)
	go func() { done <- Serve(l, srv) }()
	for range 3 {
		resp, err := http.Post("http://"+l.Addr().String()+"/a", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != "POST /a body" {
			t.Fatalf("%q", got)
		}
		if resp.ContentLength != 12 {
			t.Fatal(resp.Header)
		}
	}
	srv.Shutdown(t.Context())
	if err := <-done; err != http.ErrServerClosed {
		t.Fatal(err)
	}
}
