//go:build cgo && linux

package dwell

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// On a stream of HTTP/2 the loop frames an answer: it is given the status, the fields, and the body
// as it is, where a connection of HTTP/1.1 is given the bytes that go out.

// isFramed tells whether a request came on a stream of HTTP/2.
func (e *exchange) isFramed() bool { return e.flags&flagHTTP2 != 0 }

// tellDone tells the loop that a handler has returned whose stream ended before: until then it counts
// among the requests that the client may have.
func (e *exchange) tellDone() {
	if e.isFramed() && !e.isLast {
		e.send(order{op: opDone}, "")
	}
}

// errOneStream is what a handler gets that wants the connection of a stream, which is not its own.
var errOneStream = fmt.Errorf("dwell: a stream of HTTP/2 has no connection of its own: %w",
	http.ErrNotSupported)

// framedWindowBytes is how much of an answer may be on its way on a stream before its handler waits:
// a client may have many streams, and take nothing on any of them.
const framedWindowBytes = 32 << 10

// unknownLength is the size of a body that is not known when its answer begins.
const unknownLength = 1<<64 - 1

// head is the beginning of an answer on a stream.
type head struct {
	order
	fields string
}

// framedHead makes the head of an answer; p is what the body begins with, and all of it if the
// handler has returned.
func (w *response) framedHead(p []byte) head {
	s := w.sent
	if w.length == -1 && w.isDone && hasBody(w.status) && (!w.isHEAD || len(p) > 0) {
		w.length, w.written = int64(len(p)), int64(len(p))
	}
	isSniffed := len(p) > 0 && hasBody(w.status) && !s.specials[contentType].isSet && !s.hasEncoding
	fields := s.fields
	if isSniffed {
		fields = appendField(fields, "Content-Type", http.DetectContentType(p))
	}
	h := head{order{op: opBegin, status: uint16(w.status), argument: unknownLength}, string(fields)}
	if w.length != -1 {
		h.argument = uint64(w.length)
	}
	return h
}

// beginFramed sends the head of an answer, where the body or what follows it is still to come.
func (w *response) beginFramed(p []byte) {
	h := w.framedHead(p)
	w.failed = w.e.order(h.order, h.fields)
}

// finishFramed sends what is left when the handler has returned.
func (w *response) finishFramed() {
	b := w.buffers
	if isWhole := !w.isBegun && !w.isHEAD && !w.sent.hasTrailers &&
		(!hasBody(w.status) || w.length == -1 || w.length == int64(len(b.body))); isWhole {
		h := w.framedHead(b.body)
		h.op, h.argument = opAnswer, 0
		w.e.last(h.order, h.fields, b.body)
		return
	}
	w.emitHeld()
	if w.failed != nil {
		w.e.abort()
		return
	}
	fields := ""
	if w.sent.hasTrailers && !w.isHEAD {
		fields = string(appendHeader(nil, w.trailers()))
	}
	w.e.last(order{op: opWrite, flags: writeFinish}, fields, b.out)
}

// refuseFramed answers what is no request for a handler.
func (w *response) refuseFramed(status int, text string) {
	fields := "Content-Type: text/plain; charset=utf-8\r\n"
	w.e.last(order{op: opAnswer, status: uint16(status)}, fields, []byte(text))
}

// informFramed sends an informational answer.
func (w *response) informFramed(status int, header http.Header) {
	fields := string(appendHeader(nil, header))
	w.e.order(order{op: opInformational, status: uint16(status)}, fields)
}

// order sends an order that is no piece of the body.
func (e *exchange) order(o order, fields string) error {
	e.mu.Lock()
	isOver := e.gone || e.finished
	e.mu.Unlock()
	if isOver {
		return errClientGone
	}
	e.send(o, fields)
	return nil
}

// last sends the order that ends the exchange, once the client has taken enough of what is before
// it.
func (e *exchange) last(o order, fields string, body []byte) {
	if err := e.admit(len(body), true); err != nil {
		e.abort()
		return
	}
	e.sendLast(o, fields, body)
}

// prepareFramed makes a request of HTTP/2 as net/http does: what HTTP/1.1 says by fields, it says
// otherwise. It tells whether the request asks for a WebSocket on its stream, which the loop writes
// as the upgrade that it would be in HTTP/1.1: no client can send that on a stream.
func prepareFramed(req *http.Request) bool {
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/2.0", 2, 0
	req.TransferEncoding = nil
	if expect := req.Header["Expect"]; len(expect) > 0 && hasToken(strings.Join(expect, ","), "100-continue") {
		delete(req.Header, "Expect")
	}
	protocol, connects := req.Header["Upgrade"]
	if connects {
		req.Method = http.MethodConnect
		req.Header[":protocol"] = protocol
		delete(req.Header, "Upgrade")
		delete(req.Header, "Connection")
		delete(req.Header, "Sec-Websocket-Key")
	}
	return connects
}

// enters and leaves tell the program of the state of a connection by its streams: it is active while
// there is one.

func (c *conn) enters() {
	if c != nil && c.streams.Add(1) == 1 {
		c.set(http.StateActive)
	}
}

func (c *conn) exits() {
	if c != nil && c.streams.Add(-1) == 0 {
		c.set(http.StateIdle)
	}
}

// statusText is the first line of an answer that is not a handler's.
func statusText(status int) string {
	return strconv.Itoa(status) + " " + http.StatusText(status)
}
