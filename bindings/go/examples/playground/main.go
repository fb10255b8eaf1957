// Command playground serves a page to try everything on, by dwell or, to compare, by net/http:
//
//	go run . -type dwell -listen 127.0.0.1:1826
//
// The page is at /, server-sent events at /sse, a file at /file, what the process holds at
// /-/runtime, and a WebSocket that sends everything back in four styles; see sockets.go.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"dwell"
)

// page is the one of the engine's example of this name, a test sees to that.
//
//go:embed page.html
var page string

func main() {
	kind := flag.String("type", "dwell", "std or dwell")
	address := flag.String("listen", "127.0.0.1:1826", "where to listen")
	file := flag.String("file", source(), "what /file serves")
	flag.Parse()
	if *kind != "std" && *kind != "dwell" {
		fmt.Fprintln(os.Stderr, "-type is std or dwell")
		os.Exit(2)
	}
	l, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("open http://%s/\n", l.Addr())
	srv := &http.Server{Handler: routes(*kind, *file)}
	if *kind == "std" {
		log.Fatal(srv.Serve(l))
	}
	log.Fatal(dwell.Serve(l, srv))
}

func routes(kind, file string) http.Handler {
	server := "dwell: event loops"
	if kind == "std" {
		server = "net/http: a goroutine a connection"
	}
	overview := strings.ReplaceAll(withCards(page), "{{server}}", server)
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, overview)
	})
	mux.HandleFunc("/sse", events)
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, file)
	})
	mux.HandleFunc("/-/runtime", held)
	for _, s := range styles {
		if kind == "std" {
			mux.HandleFunc(s.path, s.std)
		} else {
			mux.HandleFunc(s.path, s.handler)
		}
	}
	return mux
}

// withCards puts the styles of this package where the page has those of the engine.
func withCards(page string) string {
	before, rest, _ := strings.Cut(page, `  <section class="card" data-socket=`)
	_, after, _ := strings.Cut(rest, `  <section class="card">`)
	var cards strings.Builder
	for _, s := range styles {
		fmt.Fprintf(&cards, "  <section class=\"card\" data-socket=\"%s\">\n    <h2>WebSocket, %s</h2>\n"+
			"    <p><code>%s</code> %s</p>\n  </section>\n", s.path, s.title, s.path, s.text)
	}
	return before + cards.String() + `  <section class="card">` + after
}

// source is the page where it was built.
func source() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "page.html")
}

// events sends an event a second until the client leaves.
func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	controller := http.NewResponseController(w)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for number := 1; controller.Flush() == nil; number++ {
		select {
		case <-ticker.C:
			fmt.Fprintf(w, "id: %d\ndata: second %d\n\n", number, number)
		case <-r.Context().Done():
			return
		}
	}
}

// held tells what the process holds.
func held(w http.ResponseWriter, r *http.Request) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	descriptors, _ := os.ReadDir("/proc/self/fd")
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintf(w, "goroutines         %10d\n", runtime.NumGoroutine())
	fmt.Fprintf(w, "descriptors        %10d\n", len(descriptors))
	fmt.Fprintf(w, "Go objects         %10d\n", memory.HeapObjects)
	fmt.Fprintf(w, "Go heap, KiB       %10d\n", memory.HeapAlloc/1024)
	fmt.Fprintf(w, "Go stacks, KiB     %10d\n", memory.StackInuse/1024)
}
