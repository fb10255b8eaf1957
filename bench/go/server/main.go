// Command server answers every request with 13 bytes, by one of the contenders.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"

	"dwell"

	gorilla "github.com/gorilla/websocket"
	"github.com/lesismal/nbio/nbhttp"
	nbiows "github.com/lesismal/nbio/nbhttp/websocket"
)

func main() {
	kind := flag.String("type", "dwell", "std, dwell, inline or nbio")
	address := flag.String("listen", "127.0.0.1:0", "where to listen")
	secure := flag.String("secure", "", "where to listen under TLS as well")
	cert := flag.String("cert", "", "file with the certificate")
	key := flag.String("key", "", "file with its key")
	flag.Parse()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		// Not everybody would count it.
		w.Header().Set("Content-Length", "13")
		io.WriteString(w, "Hello, world!")
	})
	mux.HandleFunc("/ws", sockets[*kind])
	mux.HandleFunc("/collect", collect)
	if *secure != "" {
		go func() { log.Fatal(serveTLS(*kind, *secure, *cert, *key, mux)) }()
	}
	log.Fatal(serve(*kind, *address, mux))
}

// collect tells what a process holds after the garbage is gone.
func collect(w http.ResponseWriter, r *http.Request) {
	debug.FreeOSMemory()
	var held runtime.MemStats
	runtime.ReadMemStats(&held)
	said := fmt.Sprintf(`{"goroutines": %d, "objects": %d}`, runtime.NumGoroutine(), held.HeapObjects)
	w.Header().Set("Content-Length", strconv.Itoa(len(said)))
	io.WriteString(w, said)
}

func serve(kind, address string, mux http.Handler) error {
	if kind == "nbio" {
		return serveNbio(address, mux)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	srv := &http.Server{Handler: mux}
	switch kind {
	case "std":
		return srv.Serve(l)
	case "dwell":
		return dwell.Serve(l, srv)
	case "inline":
		s := dwell.Server{Server: srv, Options: dwell.Options{Inline: true}}
		return s.Serve(l)
	}
	return fmt.Errorf("no contender is called %q", kind)
}

// serveTLS speaks HTTP/1.1 under TLS, as the clients of the bench do.
func serveTLS(kind, address, cert, key string, mux http.Handler) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: mux}
	switch kind {
	case "std":
		return srv.ServeTLS(l, cert, key)
	case "dwell":
		return dwell.ServeTLS(l, srv, cert, key)
	case "inline":
		s := dwell.Server{Server: srv, Options: dwell.Options{Inline: true}}
		return s.ServeTLS(l, cert, key)
	}
	return fmt.Errorf("no contender is called %q under TLS", kind)
}

// serveNbio listens by itself.
func serveNbio(address string, mux http.Handler) error {
	engine := nbhttp.NewEngine(nbhttp.Config{
		Network: "tcp", Addrs: []string{address}, Handler: mux, NPoller: runtime.GOMAXPROCS(0),
	})
	if err := engine.Start(); err != nil {
		return err
	}
	fmt.Println(address)
	select {}
}

// sockets send every message back, each in its contender's own way.
var sockets = map[string]http.HandlerFunc{
	"std": func(w http.ResponseWriter, r *http.Request) {
		upgrader := gorilla.Upgrader{}
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		for {
			kind, message, err := c.ReadMessage()
			if err != nil || c.WriteMessage(kind, message) != nil {
				c.Close()
				return
			}
		}
	},
	"dwell":  upgradeDwell,
	"inline": upgradeDwell,
	"nbio": func(w http.ResponseWriter, r *http.Request) {
		upgrader := nbiows.NewUpgrader()
		upgrader.OnMessage(func(c *nbiows.Conn, kind nbiows.MessageType, message []byte) {
			c.WriteMessage(kind, message)
		})
		upgrader.Upgrade(w, r, nil)
	},
}

var echo = &dwell.WebSocketHandler{
	OnMessage: func(s *dwell.WebSocket, isText bool, message []byte) { s.Send(isText, message) },
}

func upgradeDwell(w http.ResponseWriter, r *http.Request) { dwell.Upgrade(w, r, echo) }
