//go:build cgo && linux

package dwell

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"strings"
)

// body is the body of a request, as its handler reads it.
type body struct {
	e      *exchange
	req    *http.Request
	closed bool
	failed error
}

var errBodyCutOff = io.ErrUnexpectedEOF

// Read reads what has come, or waits for more.
func (b *body) Read(p []byte) (int, error) {
	e := b.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.closed || e.finished {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.failed != nil {
		return 0, b.failed
	}
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if left := e.upload.unread[e.upload.start:]; len(left) > 0 {
			n := copy(p, left)
			e.upload.start += n
			b.grantLocked()
			return n, nil
		}
		if e.bodyEnded {
			b.takeTrailer()
			b.failed = io.EOF
			return 0, io.EOF
		}
		if e.gone {
			return 0, errBodyCutOff
		}
		b.grantLocked()
		if err := e.waitLocked(e.readDeadline); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				b.failed = err
			}
			return 0, err
		}
		if b.closed || e.finished {
			return 0, http.ErrBodyReadAfterClose
		}
	}
}

// grantLocked lets more of the body come when less than half of the buffer is on its way.
func (b *body) grantLocked() {
	e, u := b.e, b.e.upload
	credit := int64(e.loop.bodyCredit())
	buffered := int64(len(u.unread) - u.start)
	ahead := u.granted - u.received + buffered
	if e.bodyEnded || ahead > credit/2 {
		return
	}
	more := credit - ahead
	u.granted += more
	e.send(order{op: opGrant, argument: uint64(more)}, "")
}

// Close ends reading. What was not read is read by the engine, up to a bound.
func (b *body) Close() error {
	b.e.mu.Lock()
	b.closed = true
	b.e.broadcastLocked()
	b.e.mu.Unlock()
	return nil
}

// takeTrailer gives the request what came behind its body.
func (b *body) takeTrailer() {
	for line := range strings.SplitSeq(b.e.upload.trailer, "\n") {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		key := textproto.CanonicalMIMEHeaderKey(name)
		if _, isAnnounced := b.req.Trailer[key]; !isAnnounced && b.e.isFramed() {
			// As in net/http, which is stricter with HTTP/2.
			continue
		}
		if b.req.Trailer == nil {
			b.req.Trailer = http.Header{}
		}
		b.req.Trailer[key] = append(b.req.Trailer[key], value)
	}
	b.e.upload.trailer = ""
}
