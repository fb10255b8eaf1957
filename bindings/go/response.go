//go:build cgo && linux

package dwell

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// response is the http.ResponseWriter of an exchange, with net/http's behaviour: what it adds to a
// head, when it does, and what it refuses.
type response struct {
	e   *exchange
	req *http.Request

	header http.Header
	// sent is the header as it was when the handler decided on the status.
	sent       http.Header
	wasHeader  bool
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
	trailers   []string
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
	out []byte
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
)

var buffersPool = sync.Pool{New: func() any {
	return &buffers{body: make([]byte, 0, heldBackBytes), out: make([]byte, 0, outBytes)}
}}

func newResponse(e *exchange) *response {
	return &response{e: e, length: -1, buffers: buffersPool.Get().(*buffers)}
}

// release gives the buffers back; nothing is written any more.
func (w *response) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isDone = true
	if b := w.buffers; b != nil {
		w.buffers = nil
		if cap(b.out) <= keptBytes {
			b.body, b.out = b.body[:0], b.out[:0]
			buffersPool.Put(b)
		}
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
	text := strconv.Itoa(status) + " " + http.StatusText(status) + reason
	head := "HTTP/1.1 " + text + "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	w.e.write(writeFinish|writeClose, []byte(head), []byte(text))
	w.release()
}

// Header returns the header that will be sent.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	w.wasHeader = true
	if w.isDecided && !w.isBegun && w.sent == nil {
		// What is changed from now on comes too late.
		w.sent = w.header.Clone()
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
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if status >= 100 && status <= 199 && status != http.StatusSwitchingProtocols {
		w.inform(status)
		return
	}
	w.isDecided = true
	w.status = status
	if w.wasHeader {
		w.sent = w.header.Clone()
	}
	if text := first(w.sent, "Content-Length"); text != "" {
		length, err := strconv.ParseInt(text, 10, 64)
		if err == nil && length >= 0 {
			w.length = length
		} else {
			w.logf("http: invalid Content-Length of %q", text)
			delete(w.sent, "Content-Length")
		}
	}
}

// inform sends an informational answer.
func (w *response) inform(status int) {
	if w.req.ProtoAtLeast(1, 1) {
		out := appendStatusLine(nil, status, true)
		out = appendHeader(out, w.header, func(name string) bool {
			return name == "Content-Length" || name == "Transfer-Encoding"
		})
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
		w.buffers.out = w.appendHead(w.buffers.out, p)
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
			n := min(len(p), windowBytes/4)
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
	w.emitHeld()
	if w.chunking {
		w.buffers.out = w.appendTrailers(append(w.buffers.out, "0\r\n"...))
	}
	isShort := !w.isHEAD && w.length != -1 && hasBody(w.status) && w.length != w.written
	flags := uint32(writeFinish)
	if w.closeAfter || isShort || w.failed != nil {
		flags |= writeClose
	}
	if w.req.MultipartForm != nil {
		w.req.MultipartForm.RemoveAll()
	}
	if flags&writeClose == 0 {
		w.e.conn.set(http.StateIdle)
	}
	if err := w.e.write(flags, w.buffers.out); err != nil {
		w.e.abort()
	}
	b := w.buffers
	w.buffers = nil
	if cap(b.out) <= keptBytes {
		b.body, b.out = b.body[:0], b.out[:0]
		buffersPool.Put(b)
	}
}

// appendHead decides how the answer is framed and writes its head; p is what the body begins with,
// and all of it if the handler has returned.
func (w *response) appendHead(out []byte, p []byte) []byte {
	h := w.sent
	if h == nil {
		h = w.header
	}
	var skip []string
	var contentLength, contentType, connection, transferEncoding string
	te := first(h, "Transfer-Encoding")
	_, hasDate := h["Date"]
	hasTrailers := w.declareTrailers(h)
	isNew := w.req.ProtoAtLeast(1, 1)
	keepsAlive := w.e.loop.keepsAlive()
	if w.isDone && !hasTrailers && te == "" && hasBody(w.status) && first(h, "Content-Length") == "" &&
		!has(h, "Content-Length") && (!w.isHEAD || len(p) > 0) {
		w.length = int64(len(p))
		w.written = w.length
		contentLength = strconv.Itoa(len(p))
	}
	hasLength := w.length != -1
	wants10 := !isNew && w.e.flags&flagKeepAlive != 0
	switch {
	case wants10 && keepsAlive && (w.isHEAD || hasLength || !hasBody(w.status)):
		if !has(h, "Connection") {
			connection = "keep-alive"
		}
	case !isNew || w.wantsClose:
		w.closeAfter = true
	}
	if first(h, "Connection") == "close" || !keepsAlive {
		w.closeAfter = true
	}
	if w.leavesBody() {
		w.closeAfter = true
		skip = append(skip, "Connection")
		connection = "close"
	}
	switch {
	case !hasBody(w.status):
		skip = append(skip, "Content-Length", "Transfer-Encoding")
		if w.status == http.StatusNotModified {
			skip = append(skip, "Content-Type")
		}
	case !has(h, "Content-Type") && first(h, "Content-Encoding") == "" && te == "" && len(p) > 0:
		contentType = http.DetectContentType(p)
	}
	if hasLength && te != "" && te != "identity" {
		w.logf("http: WriteHeader called with both Transfer-Encoding of %q and a Content-Length of %d",
			te, w.length)
		skip = append(skip, "Content-Length")
		hasLength = false
	}
	switch {
	case w.isHEAD || !hasBody(w.status) || hasLength:
		skip = append(skip, "Transfer-Encoding")
	case !isNew:
		w.closeAfter = true
		skip = append(skip, "Transfer-Encoding")
	case te == "identity":
		w.closeAfter = true
		skip = append(skip, "Transfer-Encoding")
	default:
		w.chunking = true
		transferEncoding = "chunked"
		if te == "chunked" {
			skip = append(skip, "Transfer-Encoding")
		}
		skip = append(skip, "Content-Length")
	}
	switches := w.status == http.StatusSwitchingProtocols &&
		hasToken(first(h, "Connection"), "upgrade")
	if w.closeAfter && !switches && (!keepsAlive || !hasToken(first(h, "Connection"), "close")) {
		skip = append(skip, "Connection")
		if isNew {
			connection = "close"
		}
	}
	out = appendStatusLine(out, w.status, isNew)
	if len(h) > 0 {
		out = appendHeader(out, h, func(name string) bool {
			return slices.Contains(skip, name) || strings.HasPrefix(name, http.TrailerPrefix)
		})
	}
	if !hasDate {
		out = append(out, "Date: "...)
		out = append(out, date()...)
		out = append(out, "\r\n"...)
	}
	out = appendField(out, "Content-Length", contentLength)
	out = appendField(out, "Content-Type", contentType)
	out = appendField(out, "Connection", connection)
	out = appendField(out, "Transfer-Encoding", transferEncoding)
	return append(out, "\r\n"...)
}

func appendField(out []byte, name, value string) []byte {
	if value == "" {
		return out
	}
	out = append(out, name...)
	out = append(out, ": "...)
	out = append(out, value...)
	return append(out, "\r\n"...)
}

// leavesBody tells whether so much of the request's body is unread that the connection is closed,
// or whether its client waits to be told to send it.
func (w *response) leavesBody() bool {
	e := w.e
	if e.flags&flagBodyFollows == 0 {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bodyEnded {
		return false
	}
	if e.flags&flagExpectsContinue != 0 && e.granted == 0 {
		return true
	}
	if !e.readDeadline.IsZero() && !time.Now().Before(e.readDeadline) {
		return true
	}
	return w.req.ContentLength-e.received > unreadBytes
}

// declareTrailers notes which fields come behind the body; true if there are any.
func (w *response) declareTrailers(h http.Header) bool {
	hasAny := false
	for _, line := range h["Trailer"] {
		hasAny = true
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			switch name {
			case "", "Transfer-Encoding", "Content-Length", "Trailer":
			default:
				w.trailers = append(w.trailers, name)
			}
		}
	}
	if hasAny {
		return true
	}
	for name := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

func (w *response) appendTrailers(out []byte) []byte {
	trailers := http.Header{}
	for name, values := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			trailers[name] = values
		}
	}
	for _, name := range w.trailers {
		for _, value := range w.header[name] {
			trailers.Add(name, value)
		}
	}
	if len(trailers) > 0 {
		out = appendHeader(out, trailers, nil)
	}
	return append(out, "\r\n"...)
}

// appendStatusLine writes the first line of an answer.
func appendStatusLine(out []byte, status int, isNew bool) []byte {
	if status == http.StatusOK && isNew {
		return append(out, "HTTP/1.1 200 OK\r\n"...)
	}
	version := "HTTP/1.0 "
	if isNew {
		version = "HTTP/1.1 "
	}
	out = append(out, version...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, ' ')
	if text := http.StatusText(status); text != "" {
		out = append(out, text...)
	} else {
		out = append(out, "status code "...)
		out = strconv.AppendInt(out, int64(status), 10)
	}
	return append(out, "\r\n"...)
}

// appendHeader writes fields in the order of their names. What is no name is left out, and line
// ends in values become spaces.
func appendHeader(out []byte, h http.Header, skip func(string) bool) []byte {
	var room [16]string
	names := room[:0]
	for name, values := range h {
		if len(values) > 0 && (skip == nil || !skip(name)) && isToken(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range h[name] {
			out = append(out, name...)
			out = append(out, ": "...)
			start := len(out)
			out = append(out, strings.Trim(value, " \t\r\n")...)
			for i := start; i < len(out); i++ {
				if out[i] == '\r' || out[i] == '\n' {
					out[i] = ' '
				}
			}
			out = append(out, "\r\n"...)
		}
	}
	return out
}

func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return name != ""
}

func first(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func has(h http.Header, name string) bool {
	_, ok := h[name]
	return ok
}

// dateText is the date of the present second.
var dateText atomic.Pointer[datedText]

type datedText struct {
	second int64
	text   string
}

func date() string {
	now := time.Now()
	d := dateText.Load()
	if d == nil || d.second != now.Unix() {
		d = &datedText{now.Unix(), now.UTC().Format(http.TimeFormat)}
		dateText.Store(d)
	}
	return d.text
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

// ReadFrom copies src into the body; a part of a file is copied by the system.
func (w *response) ReadFrom(src io.Reader) (int64, error) {
	if n, ok, err := w.sendFile(src); ok {
		return n, err
	}
	return io.Copy(plainWriter{w}, src)
}

// plainWriter hides ReadFrom, which io.Copy would call again.
type plainWriter struct{ io.Writer }

// sendFile has the system copy a file; false where it cannot be.
func (w *response) sendFile(src io.Reader) (int64, bool, error) {
	limit := int64(-1)
	if limited, ok := src.(*io.LimitedReader); ok {
		src, limit = limited.R, limited.N
	}
	file, ok := src.(*os.File)
	if !ok {
		return 0, false, nil
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, false, nil
	}
	offset, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, false, nil
	}
	size := info.Size() - offset
	if limit >= 0 {
		size = min(size, limit)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if size <= 0 || w.length == -1 || !w.isDecided || w.isDone || w.isHEAD || w.failed != nil ||
		w.hijacked.Load() || !hasBody(w.status) || w.written+size > w.length ||
		first(w.sent, "Content-Type") == "" {
		return 0, false, nil
	}
	fd, err := dupDescriptor(file)
	if err != nil {
		return 0, false, nil
	}
	w.emitHeld()
	w.flushOut(nil)
	if w.failed == nil {
		w.failed = w.e.sendFile(fd, offset, size)
	}
	if w.failed != nil {
		return 0, true, w.failed
	}
	w.written += size
	file.Seek(offset+size, io.SeekStart)
	if limited, ok := src.(*io.LimitedReader); ok {
		limited.N -= size
	}
	return size, true, nil
}

// CloseNotify returns a channel that is sent a value when the client leaves.
func (w *response) CloseNotify() <-chan bool {
	if w.isDone {
		panic("net/http: CloseNotify called after ServeHTTP finished")
	}
	e := w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closeNotify == nil {
		e.closeNotify = make(chan bool, 1)
		if e.canceled != nil {
			e.closeNotify <- true
		}
	}
	return e.closeNotify
}

// SetReadDeadline bounds the reading of the body.
func (w *response) SetReadDeadline(t time.Time) error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.e.readDeadline = t
	w.e.broadcastLocked()
	return nil
}

// SetWriteDeadline bounds the writing of the answer.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.e.writeDeadline = t
	w.e.broadcastLocked()
	return nil
}

// EnableFullDuplex does nothing: a body may always be read while the answer is written.
func (w *response) EnableFullDuplex() error { return nil }

// Hijack gives the connection to the handler.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.isDone {
		panic("net/http: Hijack called after ServeHTTP finished")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hijacked.Load() {
		return nil, nil, http.ErrHijacked
	}
	if w.isDecided {
		w.emitHeld()
		w.flushOut(nil)
	}
	conn, input, err := w.e.detach()
	if err != nil {
		return nil, nil, err
	}
	w.hijacked.Store(true)
	// What came early is in the reader, as if it had been read from the connection.
	reader := bufio.NewReaderSize(io.MultiReader(&prefix{input}, conn), max(4096, len(input)))
	if len(input) > 0 {
		reader.Peek(len(input))
	}
	return conn, bufio.NewReadWriter(reader, bufio.NewWriter(conn)), nil
}

// prefix gives its bytes once.
type prefix struct{ rest []byte }

func (p *prefix) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

var errNoSocket = errors.New("dwell: connection has failed")
