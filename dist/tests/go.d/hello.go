// Prints the port of its listener, and serves on an event loop, or by net/http where that is
// impossible.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"dwell.example/dwell"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	by := "the event loop"
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello from "+by)
	})
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: handler}
	err = dwell.Serve(listener, server)
	var unsupported *dwell.UnsupportedError
	if errors.As(err, &unsupported) {
		by = "net/http"
		err = server.Serve(listener)
	}
	log.Fatal(err)
}
