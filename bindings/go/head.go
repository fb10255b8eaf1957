//go:build cgo && linux

package dwell

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// The fields that the framing of an answer depends on, in the order in which they are added.
const (
	contentLength = iota
	contentType
	connection
	transferEncoding
	specials
)

var specialNames = [specials]string{"Content-Length", "Content-Type", "Connection", "Transfer-Encoding"}

// snapshot is a header as it was when its handler decided on the status: what is changed from then
// on comes too late.
type snapshot struct {
	// fields are the lines of the header.
	fields   []byte
	specials [specials]special
	// trailers are the names of what is announced to come behind the body.
	trailers                          []string
	hasTrailers, hasDate, hasEncoding bool
}

// special is a field of a snapshot that the framing depends on.
type special struct {
	// value is the first one.
	value string
	// isSet tells that it is there, if only to keep it from being added.
	isSet bool
	// start and end are where its lines are.
	start, end int
}

// take fills a snapshot.
func (s *snapshot) take(h http.Header) {
	var room [16]string
	names := room[:0]
	for name, values := range h {
		switch name {
		case "Date":
			s.hasDate = true
		case "Content-Encoding":
			s.hasEncoding = len(values) > 0 && values[0] != ""
		case "Trailer":
			s.announce(values)
		default:
			if strings.HasPrefix(name, http.TrailerPrefix) {
				s.hasTrailers = true
				continue
			}
			if i := slices.Index(specialNames[:], name); i >= 0 {
				s.specials[i].isSet = true
				if len(values) > 0 {
					s.specials[i].value = values[0]
				}
			}
		}
		if len(values) > 0 && isToken(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		start := len(s.fields)
		s.fields = appendFields(s.fields, name, h[name])
		if i := slices.Index(specialNames[:], name); i >= 0 {
			s.specials[i].start, s.specials[i].end = start, len(s.fields)
		}
	}
}

// announce notes which fields come behind the body.
func (s *snapshot) announce(lines []string) {
	for _, line := range lines {
		s.hasTrailers = true
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			switch name {
			case "", "Transfer-Encoding", "Content-Length", "Trailer":
			default:
				s.trailers = append(s.trailers, name)
			}
		}
	}
}

// drop forgets a special field.
func (s *snapshot) drop(i int) {
	s.fields = slices.Delete(s.fields, s.specials[i].start, s.specials[i].end)
	size := s.specials[i].end - s.specials[i].start
	for j := range s.specials {
		if s.specials[j].start > s.specials[i].start {
			s.specials[j].start -= size
			s.specials[j].end -= size
		}
	}
	s.specials[i] = special{}
}

// framing is what is added to a header and left out of it.
type framing struct {
	// added are the values of special fields, skipped tells which lines of a handler's are left out.
	added   [specials]string
	skipped [specials]bool
}

// appendHead decides how the answer is framed and writes its head; p is what the body begins with,
// and all of it if the handler has returned.
func (w *response) appendHead(out []byte, p []byte) []byte {
	s := w.sent
	isNew := w.req.ProtoAtLeast(1, 1)
	f := w.frameBody(p, isNew)
	out = appendStatusLine(out, w.status, isNew)
	// What is left out lies between what is copied.
	at := 0
	for at < len(s.fields) {
		next := special{start: len(s.fields), end: len(s.fields)}
		for i, each := range s.specials {
			if f.skipped[i] && each.end > each.start && each.start >= at && each.start < next.start {
				next = each
			}
		}
		out = append(out, s.fields[at:next.start]...)
		at = next.end
	}
	if !s.hasDate {
		out = appendField(out, "Date", date())
	}
	for i, value := range f.added {
		if value != "" {
			out = appendField(out, specialNames[i], value)
		}
	}
	return append(out, "\r\n"...)
}

// frameBody decides on the fields of an answer that say where its body ends and whether its
// connection goes on.
func (w *response) frameBody(p []byte, isNew bool) (f framing) {
	s := w.sent
	te := s.specials[transferEncoding].value
	keepsAlive := w.e.loop.keepsAlive()
	if w.isDone && !s.hasTrailers && te == "" && hasBody(w.status) &&
		!s.specials[contentLength].isSet && (!w.isHEAD || len(p) > 0) {
		w.length = int64(len(p))
		w.written = w.length
		f.added[contentLength] = strconv.Itoa(len(p))
	}
	w.decideToClose(&f, isNew, keepsAlive)
	switch {
	case !hasBody(w.status):
		f.skipped[contentLength], f.skipped[transferEncoding] = true, true
		f.skipped[contentType] = w.status == http.StatusNotModified
	case !s.specials[contentType].isSet && !s.hasEncoding && te == "" && len(p) > 0:
		f.added[contentType] = http.DetectContentType(p)
	}
	hasLength := w.length != -1
	if hasLength && te != "" && te != "identity" {
		w.logf("http: WriteHeader called with both Transfer-Encoding of %q and a Content-Length of %d",
			te, w.length)
		f.skipped[contentLength] = true
		hasLength = false
	}
	switch {
	case w.isHEAD || !hasBody(w.status) || hasLength:
		f.skipped[transferEncoding] = true
	case !isNew || te == "identity":
		w.closeAfter = true
		f.skipped[transferEncoding] = true
	default:
		w.chunking = true
		f.added[transferEncoding] = "chunked"
		f.skipped[transferEncoding] = te == "chunked"
		f.skipped[contentLength] = true
	}
	asked := s.specials[connection].value
	switches := w.status == http.StatusSwitchingProtocols && hasToken(asked, "upgrade")
	if w.closeAfter && !switches && (!keepsAlive || !hasToken(asked, "close")) {
		f.skipped[connection] = true
		if isNew {
			f.added[connection] = "close"
		}
	}
	return f
}

// decideToClose decides whether the connection is closed after the answer, but for what the body
// may ask for.
func (w *response) decideToClose(f *framing, isNew, keepsAlive bool) {
	asked := w.sent.specials[connection]
	wants10 := !isNew && w.e.flags&flagKeepAlive != 0
	switch {
	case wants10 && keepsAlive && (w.isHEAD || w.length != -1 || !hasBody(w.status)):
		if !asked.isSet {
			f.added[connection] = "keep-alive"
		}
	case !isNew || w.wantsClose:
		w.closeAfter = true
	}
	if asked.value == "close" || !keepsAlive {
		w.closeAfter = true
	}
	if w.leavesBody() {
		w.closeAfter = true
		f.skipped[connection] = true
		f.added[connection] = "close"
	}
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
	if e.flags&flagExpectsContinue != 0 && e.upload.granted == 0 {
		return true
	}
	if !e.readDeadline.IsZero() && !time.Now().Before(e.readDeadline) {
		return true
	}
	return w.req.ContentLength-e.upload.received > unreadBytes
}

// appendTrailers writes what comes behind the body.
func (w *response) appendTrailers(out []byte) []byte {
	return append(appendHeader(out, w.trailers()), "\r\n"...)
}

// trailers are the fields that come behind the body.
func (w *response) trailers() http.Header {
	trailers := http.Header{}
	for name, values := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			trailers[name] = values
		}
	}
	for _, name := range w.sent.trailers {
		for _, value := range w.header[name] {
			trailers.Add(name, value)
		}
	}
	return trailers
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

// appendFields writes a field line for each value; line ends in values become spaces.
func appendFields(out []byte, name string, values []string) []byte {
	for _, value := range values {
		start := len(out) + len(name) + len(": ")
		out = appendField(out, name, strings.Trim(value, " \t\r\n"))
		for i := start; i < len(out)-len("\r\n"); i++ {
			if out[i] == '\r' || out[i] == '\n' {
				out[i] = ' '
			}
		}
	}
	return out
}

func appendField(out []byte, name, value string) []byte {
	out = append(out, name...)
	out = append(out, ": "...)
	out = append(out, value...)
	return append(out, "\r\n"...)
}

// appendHeader writes fields in the order of their names; what is no name is left out.
func appendHeader(out []byte, h http.Header) []byte {
	names := make([]string, 0, len(h))
	for name := range h {
		if isToken(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		out = appendFields(out, name, h[name])
	}
	return out
}

// isToken tells whether a name may be that of a field.
func isToken(name string) bool {
	for i := range len(name) {
		if !tokenBytes[name[i]] {
			return false
		}
	}
	return name != ""
}

// tokenBytes are the bytes of tokens.
//
// Source: RFC 9110 section 5.6.2.
var tokenBytes = func() (is [256]bool) {
	for c := range is {
		is[c] = c > ' ' && c < 0x7f && !strings.ContainsRune("\"(),/:;<=>?@[\\]{}", rune(c))
	}
	return is
}()

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
