//go:build cgo && linux

package dwell

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// exchange is a request in flight: what the loop tells of it, and what its handler waits for.
type exchange struct {
	loop   *loop
	handle uint64
	conn   *conn
	client *client
	head   string
	table  int
	flags  uint32
	inline atomic.Pointer[poller]
	// answer, request and url are here so that one piece of memory is enough.
	answer  response
	request http.Request
	url     url.URL

	mu      sync.Mutex
	changed chan struct{}
	// upload is nil where no body follows.
	upload    *upload
	bodyEnded bool
	// inFlight is what was written since the engine last told that all is out.
	inFlight int
	gone     bool
	finished bool
	// connects is set for a request that asks for a WebSocket on its stream.
	connects bool
	// isLast is set when the order that ends the exchange was sent.
	isLast bool
	// detached is what a hijack has brought: a descriptor and bytes.
	detached                    chan detached
	socket                      chan uint64
	upgrading                   *WebSocket
	canceled                    error
	done                        chan struct{}
	afterFuncs                  map[*func()]struct{}
	closeNotify                 chan bool
	readDeadline, writeDeadline time.Time
}

// upload is what has come of a request's body.
type upload struct {
	// unread is what was not read of it, from start on.
	unread []byte
	start  int
	// received and granted count its bytes.
	received, granted int64
	trailer           string
}

type detached struct {
	fd    int
	input []byte
}

func (e *exchange) id() uint64 { return e.handle }

var (
	errClientGone = errors.New("dwell: client is gone")
	closedChannel = make(chan struct{})
)

func init() { close(closedChannel) }

// newExchange takes a request out of the batch: one string for all that it says.
func (l *loop) newExchange(ev *event) *exchange {
	l.active.Add(1)
	e := &exchange{
		loop:   l,
		handle: uint64(ev.handle),
		head:   string(l.engine.bytes(ev)),
		table:  int(ev.detail),
	}
	e.flags = e.word(0)
	if e.flags&flagBodyFollows == 0 {
		e.bodyEnded = true
	} else {
		e.upload = &upload{}
		if e.flags&flagExpectsContinue == 0 {
			e.upload.granted = int64(l.bodyCredit())
		}
	}
	if len(l.conns) > 0 {
		e.conn = l.conns[uint64(ev.other)]
	}
	if len(l.clients) > 0 {
		if c := l.clients[uint64(ev.other)]; c != nil && c.isBegun {
			e.client = c
		}
	}
	if d := l.ReadTimeout; d > 0 {
		e.readDeadline = time.Now().Add(d)
	}
	if d := l.WriteTimeout; d > 0 {
		e.writeDeadline = time.Now().Add(d)
	}
	return e
}

func (c *core) bodyCredit() int {
	if c.BufferSize > 0 {
		return c.BufferSize
	}
	return 16 << 10
}

// word returns a number of the table behind the head.
func (e *exchange) word(place int) uint32 {
	at := e.table + 4*place
	s := e.head[at : at+4]
	return binary.NativeEndian.Uint32([]byte{s[0], s[1], s[2], s[3]})
}

func (e *exchange) span(place int) string {
	start := e.word(place)
	return e.head[start : start+e.word(place+1)]
}

// tell is called by the loop with what happened to the exchange.
func (e *exchange) tell(ev *event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch ev.kind {
	case kindBody:
		u := e.upload
		if u.start == len(u.unread) {
			u.unread, u.start = u.unread[:0], 0
		}
		u.unread = append(u.unread, e.loop.engine.bytes(ev)...)
		u.received += int64(ev.length)
	case kindBodyEnd:
		e.bodyEnded = true
		e.upload.trailer = string(e.loop.engine.bytes(ev))
	case kindWritable:
		e.inFlight = 0
	case kindPeerClosed:
		e.cancelLocked(context.Canceled)
		if e.closeNotify != nil {
			select {
			case e.closeNotify <- true:
			default:
			}
		}
	case kindGone, kindUpgradeRefused:
		e.goneLocked()
	case kindDetached:
		fd := e.loop.engine.takeDescriptor(e.handle)
		input := append([]byte(nil), e.loop.engine.bytes(ev)...)
		e.detached <- detached{fd, input}
	}
	e.broadcastLocked()
}

func (e *exchange) goneLocked() {
	e.gone = true
	e.cancelLocked(context.Canceled)
	if e.closeNotify != nil {
		select {
		case e.closeNotify <- true:
		default:
		}
	}
	if e.detached != nil {
		select {
		case e.detached <- detached{fd: -1}:
		default:
		}
	}
	if e.socket != nil {
		select {
		case e.socket <- 0:
		default:
		}
	}
}

func (e *exchange) broadcastLocked() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// waits is called by whoever is about to wait for the loop: one that runs the handler has to leave
// polling to another.
func (e *exchange) waits() {
	if p := e.inline.Swap(nil); p != nil {
		p.handOver()
	}
}

// waitLocked waits until something has happened, or the deadline has passed.
func (e *exchange) waitLocked(deadline time.Time) error {
	var expired <-chan time.Time
	if !deadline.IsZero() {
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		timer := time.NewTimer(left)
		defer timer.Stop()
		expired = timer.C
	}
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	changed := e.changed
	e.mu.Unlock()
	e.waits()
	var err error
	select {
	case <-changed:
	case <-expired:
		err = os.ErrDeadlineExceeded
	}
	e.mu.Lock()
	return err
}

// send queues an order; on a loop that runs the handler it is given to the turn that follows.
func (e *exchange) send(o order, fields string, parts ...[]byte) {
	o.handle = e.handle
	e.loop.enqueue(o, fields, parts...)
	e.kick()
}

// sendLast queues the order that ends the exchange, which the loop forgets as it takes it.
func (e *exchange) sendLast(o order, fields string, parts ...[]byte) {
	o.handle = e.handle
	e.isLast = true
	e.loop.enqueueLast(o, fields, parts...)
	e.kick()
}

func (e *exchange) kick() {
	if e.inline.Load() == nil {
		e.loop.kick()
	}
}

// windowBytes is how much of an answer may be on its way before its handler waits.
const windowBytes = 256 << 10

// window is how much of this answer may be on its way before its handler waits.
func (e *exchange) window() int {
	if e.isFramed() {
		return framedWindowBytes
	}
	return windowBytes
}

// write sends bytes of the answer as they are, and waits while too many are on their way.
func (e *exchange) write(flags uint32, parts ...[]byte) error {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	isLast := flags&writeFinish != 0
	if err := e.admit(size, isLast); err != nil {
		return err
	}
	o := order{op: opWrite, flags: flags}
	if isLast {
		e.sendLast(o, "", parts...)
	} else {
		e.send(o, "", parts...)
	}
	return nil
}

// admit waits while too many bytes are on their way, and counts those that follow.
func (e *exchange) admit(size int, isLast bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for asked := false; ; asked = !asked {
		if e.gone || e.finished {
			return errClientGone
		}
		if !e.writeDeadline.IsZero() && !time.Now().Before(e.writeDeadline) {
			return os.ErrDeadlineExceeded
		}
		if e.inFlight == 0 || e.inFlight+size <= e.window() {
			break
		}
		if !asked {
			e.notifyLocked()
		} else if err := e.waitLocked(e.writeDeadline); err != nil {
			return err
		}
	}
	if isLast {
		e.finished = true
	} else {
		e.inFlight += size
	}
	return nil
}

// sendFile sends a part of a file as it is. It owns the descriptor, until the engine does.
func (e *exchange) sendFile(fd int, offset, length int64) error {
	isOurs := true
	defer func() {
		if isOurs {
			syscall.Close(fd)
		}
	}()
	e.mu.Lock()
	for asked := false; e.inFlight > 0 && !e.gone; asked = !asked {
		if !asked {
			e.notifyLocked()
		} else if err := e.waitLocked(e.writeDeadline); err != nil {
			e.mu.Unlock()
			return err
		}
	}
	if e.gone {
		e.mu.Unlock()
		return errClientGone
	}
	e.inFlight = windowBytes
	e.mu.Unlock()
	e.waits()
	ok := false
	if !e.loop.callAndWait(func() {
		isOurs = false
		ok = e.loop.engine.writeFile(e.handle, writeNotify, fd, offset, length)
	}) || !ok {
		return errClientGone
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.inFlight > 0 && !e.gone {
		if err := e.waitLocked(e.writeDeadline); err != nil {
			return err
		}
	}
	if e.gone {
		return errClientGone
	}
	return nil
}

// notifyLocked asks to be told when all is out. It unlocks meanwhile, so that whoever is about to
// wait looks again first: the news may be there.
func (e *exchange) notifyLocked() {
	e.mu.Unlock()
	e.send(order{op: opWrite, flags: writeNotify}, "")
	e.mu.Lock()
}

// abort closes the connection without an answer, or in the middle of one; of HTTP/2, the stream.
func (e *exchange) abort() {
	e.mu.Lock()
	was := e.finished || e.gone
	e.finished = true
	e.mu.Unlock()
	if !was {
		e.sendLast(order{op: opClose}, "")
		if !e.isFramed() {
			e.conn.set(http.StateClosed)
		}
	}
}

// serve runs the handler. It is the whole life of a request's goroutine.
func (e *exchange) serve() {
	defer e.loop.active.Add(-1)
	w := &e.answer
	w.open(e)
	hasReturned := false
	defer func() {
		err := recover()
		if err != nil && err != http.ErrAbortHandler {
			const size = 64 << 10
			stack := make([]byte, size)
			stack = stack[:runtime.Stack(stack, false)]
			logTo(e.loop.Server, "http: panic serving %v: %v\n%s", e.span(6), err, stack)
		}
		if !hasReturned {
			w.release()
			if !w.hijacked.Load() {
				e.abort()
			}
		}
		e.mu.Lock()
		e.finished = true
		if e.upload != nil {
			e.upload.unread = nil
		}
		e.cancelLocked(context.Canceled)
		e.broadcastLocked()
		e.mu.Unlock()
		e.tellDone()
	}()
	if !e.isTrusted() {
		// Nothing of the request is handed over, and nothing is answered.
		return
	}
	if e.isFramed() {
		e.conn.enters()
		defer e.conn.exits()
	} else {
		e.conn.set(http.StateActive)
	}
	if !w.prepare() {
		hasReturned = true
		return
	}
	handler := e.loop.Handler
	if handler == nil {
		handler = http.DefaultServeMux
	}
	req := w.req
	if req.RequestURI == "*" && req.Method == "OPTIONS" && !e.loop.DisableGeneralOptionsHandler {
		handler = generalOptions{}
	}
	handler.ServeHTTP(w, req)
	e.mu.Lock()
	e.cancelLocked(context.Canceled)
	e.mu.Unlock()
	w.finish()
	hasReturned = true
}

// generalOptions answers OPTIONS *, which asks about the server as a whole.
type generalOptions struct{}

func (generalOptions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "0")
	if r.ContentLength != 0 {
		io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 4<<10))
	}
}

// requestContext is the context of a request. It is done when its client has left, and when its
// handler has returned.
type requestContext exchange

func (c *requestContext) Deadline() (time.Time, bool) { return c.parent().Deadline() }

func (c *requestContext) parent() context.Context {
	if c.conn != nil {
		return c.conn.ctx
	}
	return c.loop.base
}

func (c *requestContext) Done() <-chan struct{} {
	e := (*exchange)(c)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done == nil {
		if e.canceled != nil {
			e.done = closedChannel
		} else {
			e.done = make(chan struct{})
			if parent := c.parent(); parent.Done() != nil {
				stop := context.AfterFunc(parent, func() {
					e.mu.Lock()
					e.cancelLocked(parent.Err())
					e.mu.Unlock()
				})
				f := func() { stop() }
				e.afterLocked(&f)
			}
		}
	}
	return e.done
}

func (c *requestContext) Err() error {
	e := (*exchange)(c)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.canceled == nil {
		return c.parent().Err()
	}
	return e.canceled
}

func (c *requestContext) Value(key any) any {
	switch key {
	case http.ServerContextKey:
		return c.loop.Server
	case http.LocalAddrContextKey:
		return c.localAddr()
	}
	return c.parent().Value(key)
}

func (c *requestContext) localAddr() net.Addr {
	if c.conn != nil {
		return c.conn.local
	}
	if tcp, ok := c.loop.addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		text := ""
		(*exchange)(c).waits()
		c.loop.callAndWait(func() { text = c.loop.engine.localAddress(c.handle) })
		if addr, err := net.ResolveTCPAddr("tcp", text); err == nil && text != "" {
			return addr
		}
	}
	return c.loop.addr
}

// AfterFunc lets package context hear of the end without a goroutine that waits for it.
func (c *requestContext) AfterFunc(f func()) (stop func() bool) {
	e := (*exchange)(c)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.canceled != nil {
		go f()
		return func() bool { return false }
	}
	entry := &f
	e.afterLocked(entry)
	return func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		_, was := e.afterFuncs[entry]
		delete(e.afterFuncs, entry)
		return was
	}
}

func (e *exchange) afterLocked(f *func()) {
	if e.afterFuncs == nil {
		e.afterFuncs = map[*func()]struct{}{}
	}
	e.afterFuncs[f] = struct{}{}
}

func (e *exchange) cancelLocked(err error) {
	if e.canceled != nil {
		return
	}
	e.canceled = err
	if e.done != nil {
		close(e.done)
	}
	for f := range e.afterFuncs {
		go (*f)()
	}
	e.afterFuncs = nil
}
