//go:build cgo && linux

package dwell

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// response is the http.ResponseWriter of an exchange, with net/http's behaviour: what it adds to a
// head, when it does, and what it refuses.
type response struct {
	e   *exchange
	req *http.Request

	header http.Header
	// sent is nil until the handler has decided on the status.
	sent       *snapshot
	status     int
	isDecided  bool
	isBegun    bool
	isDone     bool
	isHEAD     bool
	chunking   bool
	closeAfter bool
	// wantsClose says that the client, or the version it speaks, closes after the answer.
	wantsClose bool
	length     int64
	written    int64
	failed     error
	hijacked   atomic.Bool
	mu         sync.Mutex
	buffers    *buffers
}

// buffers are what an answer is put together in; they go from answer to answer.
type buffers struct {
	// body is what is held back of the body until its size is known or too large.
	body []byte
	// out is what is ready to be sent.
	out  []byte
	sent snapshot
}

const (
	// heldBackBytes is how much of a body is held back: one that ends before is given its length.
	heldBackBytes = 2048
	// outBytes is how much is gathered before it is sent.
	outBytes = 8 << 10
	// unreadBytes is how much of a body that a handler left unread is read for the sake of the
	// connection.
	unreadBytes = 256 << 10
	keptBytes   = 64 << 10
	fieldBytes  = 512
)

var buffersPool = sync.Pool{New: func() any {
	return &buffers{
		body: make([]byte, 0, heldBackBytes),
		out:  make([]byte, 0, outBytes),
		sent: snapshot{fields: make([]byte, 0, fieldBytes)},
	}
}}

// open makes the answer of an exchange of w.
func (w *response) open(e *exchange) {
	w.e, w.length, w.buffers = e, -1, buffersPool.Get().(*buffers)
}

// release gives the buffers back; nothing is written any more.
func (w *response) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.releaseLocked()
}

func (w *response) releaseLocked() {
	w.isDone = true
	b := w.buffers
	if b == nil {
		return
	}
	w.buffers, w.sent = nil, nil
	if cap(b.out) <= keptBytes && cap(b.sent.fields) <= keptBytes {
		b.body, b.out = b.body[:0], b.out[:0]
		b.sent = snapshot{fields: b.sent.fields[:0]}
		buffersPool.Put(b)
	}
}

// prepare makes the request; false where the client was told what is wrong with it.
func (w *response) prepare() bool {
	req, err := w.e.newRequest()
	if err != nil {
		w.refuse(400, "")
		return false
	}
	w.req = req
	w.isHEAD = req.Method == "HEAD"
	w.wantsClose = req.Close
	if w.e.isFramed() {
		return true
	}
	if expect := req.Header.Get("Expect"); expect != "" && w.e.flags&flagExpectsContinue == 0 {
		w.header = http.Header{"Connection": {"close"}}
		w.WriteHeader(http.StatusExpectationFailed)
		w.finish()
		return false
	}
	return true
}

// refuse answers what is no request for a handler.
func (w *response) refuse(status int, reason string) {
	text := statusText(status) + reason
	if w.e.isFramed() {
		w.refuseFramed(status, text)
		w.release()
		return
	}
	head := "HTTP/1.1 " + text + "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	w.e.write(writeFinish|writeClose, []byte(head), []byte(text))
	w.release()
}

// Header returns the header that will be sent.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader decides on the status, or sends an informational answer.
func (w *response) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeaderLocked(status)
}

func (w *response) writeHeaderLocked(status int) {
	if w.hijacked.Load() {
		w.logf("http: response.WriteHeader on hijacked connection from %s", caller())
		return
	}
	if w.isDecided {
		w.logf("http: superfluous response.WriteHeader call from %s", caller())
		return
	}
	if w.isDone {
		return
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if status >= 100 && status <= 199 && status != http.StatusSwitchingProtocols {
		w.inform(status)
		return
	}
	w.isDecided = true
	w.status = status
	w.sent = &w.buffers.sent
	w.sent.take(w.header)
	if text := w.sent.specials[contentLength].value; text != "" {
		length, err := strconv.ParseInt(text, 10, 64)
		if err == nil && length >= 0 {
			w.length = length
		} else {
			w.logf("http: invalid Content-Length of %q", text)
			w.sent.drop(contentLength)
		}
	}
}

// inform sends an informational answer.
func (w *response) inform(status int) {
	if w.req.ProtoAtLeast(1, 1) {
		header := w.header.Clone()
		delete(header, "Content-Length")
		delete(header, "Transfer-Encoding")
		if w.e.isFramed() {
			w.informFramed(status, header)
			return
		}
		out := appendHeader(appendStatusLine(nil, status, true), header)
		w.e.write(0, append(out, "\r\n"...))
	}
}

// Write writes a piece of the body.
func (w *response) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return writePiece(w, p, true)
}

// WriteString is Write for a string.
func (w *response) WriteString(s string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return writePiece(w, s, false)
}

// writePiece holds back what is short. A long piece goes out as one chunk where it is direct.
func writePiece[T []byte | string](w *response, p T, isDirect bool) (int, error) {
	if err := w.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	if w.failed != nil {
		return 0, w.failed
	}
	size := len(p)
	b := w.buffers
	for len(p) > heldBackBytes-len(b.body) && w.failed == nil {
		if len(b.body) == 0 && isDirect {
			w.emit([]byte(p))
			p = p[len(p):]
			break
		}
		room := heldBackBytes - len(b.body)
		b.body = append(b.body, p[:room]...)
		p = p[room:]
		w.emitHeld()
	}
	b.body = append(b.body, p...)
	return size, w.failed
}

// emitHeld sends what was held back, and the head before it.
func (w *response) emitHeld() {
	held := w.buffers.body
	w.buffers.body = held[:0]
	w.emit(held)
}

// emit sends bytes of the body, framed, and the head before them.
func (w *response) emit(p []byte) {
	if !w.isBegun {
		w.isBegun = true
		if w.e.isFramed() {
			w.beginFramed(p)
		} else {
			w.buffers.out = w.appendHead(w.buffers.out, p)
		}
	}
	w.frame(p)
}

// admit says whether a piece of the body may be written.
func (w *response) admit(size int) error {
	if w.hijacked.Load() {
		if size > 0 {
			w.logf("http: response.Write on hijacked connection from %s", caller())
		}
		return http.ErrHijacked
	}
	if w.isDone {
		return errClientGone
	}
	if !w.isDecided {
		w.writeHeaderLocked(http.StatusOK)
	}
	if size == 0 {
		return nil
	}
	if !hasBody(w.status) {
		return http.ErrBodyNotAllowed
	}
	w.written += int64(size)
	if w.length != -1 && w.written > w.length {
		return http.ErrContentLength
	}
	return nil
}

// hasBody tells whether an answer of this status has a body.
func hasBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// frame sends bytes of the body as a chunk, or as they are.
func (w *response) frame(p []byte) {
	if len(p) == 0 || w.isHEAD || w.failed != nil {
		return
	}
	b := w.buffers
	if w.chunking {
		b.out = strconv.AppendInt(b.out, int64(len(p)), 16)
		b.out = append(b.out, "\r\n"...)
	}
	for len(b.out)+len(p) > outBytes {
		// A large piece is not copied together with what is before it.
		if len(b.out) == 0 || len(p) > outBytes {
			n := min(len(p), w.e.window()/4)
			w.flushOut(p[:n])
			p = p[n:]
		} else {
			w.flushOut(nil)
		}
		if w.failed != nil {
			return
		}
	}
	b.out = append(b.out, p...)
	if w.chunking {
		b.out = append(b.out, "\r\n"...)
	}
}

// flushOut sends what is ready, and more behind it.
func (w *response) flushOut(more []byte) {
	b := w.buffers
	if w.failed == nil && len(b.out)+len(more) > 0 {
		w.failed = w.e.write(0, b.out, more)
	}
	b.out = b.out[:0]
}

// Flush sends what was written so far.
func (w *response) Flush() { w.FlushError() }

// FlushError sends what was written so far.
func (w *response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hijacked.Load() {
		return http.ErrHijacked
	}
	if w.isDone {
		return errClientGone
	}
	if !w.isDecided {
		w.writeHeaderLocked(http.StatusOK)
	}
	w.emitHeld()
	w.flushOut(nil)
	return w.failed
}

// finish sends what is left when the handler has returned.
func (w *response) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hijacked.Load() {
		return
	}
	if !w.isDecided {
		w.writeHeaderLocked(http.StatusOK)
	}
	w.isDone = true
	if w.req.MultipartForm != nil {
		defer w.req.MultipartForm.RemoveAll()
	}
	defer w.releaseLocked()
	if w.e.isFramed() {
		w.finishFramed()
		return
	}
	w.emitHeld()
	if w.chunking {
		w.buffers.out = w.appendTrailers(append(w.buffers.out, "0\r\n"...))
	}
	isShort := !w.isHEAD && w.length != -1 && hasBody(w.status) && w.length != w.written
	flags := uint32(writeFinish)
	if w.closeAfter || isShort || w.failed != nil {
		flags |= writeClose
	}
	if flags&writeClose == 0 {
		w.e.conn.set(http.StateIdle)
	}
	if err := w.e.write(flags, w.buffers.out); err != nil {
		w.e.abort()
	}
}

func (w *response) logf(format string, args ...any) {
	logTo(w.e.loop.Server, format, args...)
}

// caller is who called the method of a response, for the log.
func caller() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "dwell.") {
			file := frame.File[strings.LastIndexByte(frame.File, '/')+1:]
			return fmt.Sprintf("%s (%s:%d)", frame.Function, file, frame.Line)
		}
		if !more {
			return "nobody"
		}
	}
}
