// Program main answers as the engine's `echo` example does, on Go's net/http.
package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
)

func answer(response http.ResponseWriter, request *http.Request) {
	if request.URL.Path != "/" {
		http.Error(response, "not found", http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	response.Write(body)
}

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Handler:        http.HandlerFunc(answer),
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       log.New(&strings.Builder{}, "", 0),
	}
	log.Fatal(server.Serve(listener))
}
