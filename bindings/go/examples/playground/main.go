// Command playground serves a few endpoints by net/http or by dwell: /, /sse, /file, and echoes:
// /ws by WebSocket callbacks, /ws/plain by those without compression, /raw by a stream that was
// taken over from HTTP.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"dwell"
)

func main() {
	kind := flag.String("type", "dwell", "std or dwell")
	address := flag.String("listen", "127.0.0.1:1826", "where to listen")
	flag.Parse()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from %s\n", *kind)
	})
	mux.HandleFunc("/sse", events)
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "main.go")
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) { upgrade(w, r, echo) })
	mux.HandleFunc("/ws/plain", func(w http.ResponseWriter, r *http.Request) { upgrade(w, r, plain) })
	mux.HandleFunc("/raw", raw)
	l, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("http://%s", l.Addr())
	srv := &http.Server{Handler: mux}
	if *kind == "std" {
		log.Fatal(srv.Serve(l))
	}
	log.Fatal(dwell.Serve(l, srv))
}

// events sends the time as server-sent events until the client leaves.
func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			fmt.Fprintf(w, "data: %s\n\n", now.Format(time.TimeOnly))
			if http.NewResponseController(w).Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

var (
	echo = &dwell.WebSocketHandler{
		OnMessage: func(s *dwell.WebSocket, isText bool, message []byte) { s.Send(isText, message) },
	}
	// plain does the same without compression, for pages of any site.
	plain = &dwell.WebSocketHandler{Plain: true, AnyOrigin: true, OnMessage: echo.OnMessage}
)

func upgrade(w http.ResponseWriter, r *http.Request, h *dwell.WebSocketHandler) {
	if _, err := dwell.Upgrade(w, r, h); err != nil {
		log.Print(err)
	}
}

// raw leaves HTTP and sends back whatever comes.
func raw(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		log.Print(err)
		return
	}
	buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	buffered.Flush()
	_, err = dwell.SetReadHandler(conn, buffered.Reader, &dwell.StreamHandler{
		OnData: func(s *dwell.Stream, data []byte) { s.Write(data) },
	})
	if err != nil {
		conn.Close()
	}
}
