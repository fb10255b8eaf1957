// Package dwell serves ordinary net/http handlers on an event loop: an idle connection is an entry
// in a table, with no goroutine, no Go object and no buffer.
//
// A program changes one line:
//
//	l, err := net.Listen("tcp", "127.0.0.1:8080")
//	...
//	err = dwell.Serve(l, &http.Server{Handler: mux}) // was: srv.Serve(l)
//
// The [http.Server] keeps its meaning: its timeouts, hooks and error log are honoured, and its
// Shutdown and Close end what was begun here. A handler runs on a goroutine of its own for as long
// as its request is in flight; [Options] has the other ways.
//
// [ServeTLS] serves under TLS.
//
// Where cgo or the platform is missing, and for listeners that are not plain TCP or unix sockets,
// such as those of crypto/tls, Serve returns an [*UnsupportedError] at once, and net/http can serve
// instead.
package dwell
