//go:build cgo && linux

package dwell

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// loop is one engine and the goroutine that polls it.
//
// The engine is for one goroutine at a time: its owner. The poller waits for the engine's
// descriptor in the runtime's own poller, so that no thread is held by a loop with nothing to do,
// and owns the engine while it hands out what a turn has told. Handlers queue their orders; one
// that finds the engine free owns it for as long as it takes to give it what is queued, so that
// nobody need be woken. Whoever comes while another owns it leaves word, and the owner looks again.
type loop struct {
	*core
	engine *engine
	file   *os.File
	raw    syscall.RawConn

	state atomic.Int32

	mu    sync.Mutex
	queue []byte
	spare []byte
	calls []func()
	// finished are the exchanges that end with what is queued.
	finished []uint64
	closed   bool

	// The rest is the owner's.
	count, next int
	spawned     int
	exchanges   table[*exchange]
	workers     workers
	conns       map[uint64]*conn
	// clients are those that are asked for a certificate, by their connections.
	clients    map[uint64]*client
	sockets    table[*WebSocket]
	streams    table[*Stream]
	timer      *time.Timer
	timerAt    time.Time
	timerFired atomic.Bool
	done       chan struct{}
}

// The states of a loop's engine.
const (
	free  = 0
	owned = 1
	// again is owned, and the owner has something to look at before it lets go.
	again = 2
)

const (
	queueBytesKept = 1 << 20
	finishedKept   = 4096
)

// poller is a goroutine that polls a loop, until a handler that it runs inline has to wait.
type poller struct {
	*loop
	owns bool
	// isBrief is one that only does what there is to do, in the place of the one that waits.
	isBrief bool
}

func newLoop(c *core, l limits) (*loop, error) {
	e, err := newEngine(l)
	if err != nil {
		return nil, err
	}
	fd, err := dup(e.fileno())
	if err != nil {
		e.free()
		return nil, err
	}
	syscall.SetNonblock(fd, true)
	file := os.NewFile(uintptr(fd), "dwell")
	raw, err := file.SyscallConn()
	if err != nil {
		e.free()
		file.Close()
		return nil, err
	}
	lp := &loop{
		core: c, engine: e, file: file, raw: raw,
		conns: map[uint64]*conn{}, clients: map[uint64]*client{},
		done: make(chan struct{}),
	}
	lp.timer = time.AfterFunc(time.Hour, lp.timeout)
	lp.timer.Stop()
	go (&poller{loop: lp}).poll()
	return lp, nil
}

// acquire makes the caller the owner, or leaves word with the owner there is.
func (l *loop) acquire() bool {
	for {
		switch l.state.Load() {
		case free:
			if l.state.CompareAndSwap(free, owned) {
				return true
			}
		case owned:
			if l.state.CompareAndSwap(owned, again) {
				return false
			}
		default:
			return false
		}
	}
}

// release lets go; false where somebody has left word, and the caller still owns it.
func (l *loop) release() bool {
	if l.state.CompareAndSwap(owned, free) {
		return true
	}
	l.state.Store(owned)
	return false
}

// poll waits for something to happen and hands it out, for ever.
func (p *poller) poll() {
	for {
		err := p.raw.Read(p.gatherSome)
		if err != nil {
			close(p.done)
			return
		}
		if !p.dispatch() {
			return
		}
		if p.spawned > 0 {
			// They give their answers to the turn that follows, all at once.
			p.spawned = 0
			runtime.Gosched()
		}
	}
}

// gatherSome takes turns until one tells something; false when there is nothing.
func (p *poller) gatherSome(uintptr) bool {
	if !p.owns && !p.acquire() {
		return false
	}
	p.owns = true
	for {
		p.gather()
		if p.engine.ptr == nil {
			p.state.Store(free)
			p.owns = false
			return false
		}
		if p.count > 0 {
			return true
		}
		if p.engine.waitMillis() == 0 {
			continue
		}
		p.schedule(p.engine.waitMillis())
		if p.release() {
			p.owns = false
			return false
		}
	}
}

// run takes turns in the place of the poller, which waits, until nothing is left to do. The caller
// owns the engine.
func (l *loop) run() {
	(&poller{loop: l, owns: true, isBrief: true}).run()
}

// run takes turns until nothing is left to do.
func (p *poller) run() {
	for p.gatherSome(0) {
		if !p.dispatch() {
			return
		}
		if p.spawned > 0 {
			p.spawned = 0
			runtime.Gosched()
		}
	}
}

// take takes what was queued, and forgets the exchanges that end with it: what their programs hang
// on a request would live on with them.
func (l *loop) take() ([]byte, []func()) {
	l.mu.Lock()
	queue, calls := l.queue, l.calls
	l.queue, l.calls = l.spare[:0], nil
	l.spare = nil
	for _, handle := range l.finished {
		l.exchanges.remove(handle)
	}
	l.finished = l.finished[:0]
	if cap(l.finished) > finishedKept {
		l.finished = nil
	}
	l.mu.Unlock()
	return queue, calls
}

// put gives the memory of a queue back.
func (l *loop) put(queue []byte) {
	if cap(queue) <= queueBytesKept {
		l.mu.Lock()
		l.spare = queue[:0]
		l.mu.Unlock()
	}
}

// gather gives the engine what is queued and takes a turn.
func (l *loop) gather() {
	l.count, l.next = 0, 0
	if l.engine.ptr == nil {
		return
	}
	// Whoever has left word before this is looked after by it.
	l.state.Store(owned)
	queue, calls := l.take()
	if calls != nil {
		l.engine.submit(queue)
		for _, call := range calls {
			call()
		}
		l.put(queue)
		queue = nil
		if l.engine.ptr == nil {
			return
		}
	}
	count, err := l.engine.turn(queue)
	if queue != nil {
		l.put(queue)
	}
	if err != nil {
		l.fail(err)
		return
	}
	l.count = count
}

// fail ends a loop whose engine is of no use any more: all who wait for it are told, and so is
// Serve.
func (l *loop) fail(err error) {
	l.engine.free()
	l.mu.Lock()
	l.closed = true
	l.queue = nil
	calls := l.calls
	l.calls = nil
	l.mu.Unlock()
	for _, call := range calls {
		call()
	}
	for _, e := range l.exchanges {
		if e != nil {
			e.tell(&event{kind: kindGone})
		}
	}
	for _, s := range l.sockets {
		if s != nil {
			s.tell(&event{kind: kindWebSocketClosed, detail: closedAbnormally})
		}
	}
	for _, s := range l.streams {
		if s != nil {
			s.tell(&event{kind: kindStreamClosed, detail: 1})
		}
	}
	for _, c := range l.conns {
		c.closed()
	}
	clear(l.conns)
	clear(l.clients)
	logTo(l.Server, "%v", err)
	if l.bridge != nil {
		l.bridge.fail(err)
	}
}

// closedAbnormally is the close code of a WebSocket that has ended without a close frame.
const closedAbnormally = 1006

// kick makes sure that what is queued is given to the engine soon.
func (l *loop) kick() {
	if !l.acquire() {
		return
	}
	l.mu.Lock()
	isPlain := len(l.calls) == 0 && !l.closed
	l.mu.Unlock()
	if isPlain {
		queue, calls := l.take()
		wait := l.engine.submit(queue)
		l.put(queue)
		if len(calls) > 0 {
			l.mu.Lock()
			l.calls = append(calls, l.calls...)
			l.mu.Unlock()
			wait = 0
		}
		if wait != 0 {
			l.schedule(wait)
			if l.release() {
				return
			}
		}
	}
	go l.run()
}

// send queues an order, and has it given to the engine.
func (l *loop) send(o order, fields string, parts ...[]byte) {
	l.enqueue(o, fields, parts...)
	l.kick()
}

// enqueue queues an order.
func (l *loop) enqueue(o order, fields string, parts ...[]byte) {
	l.mu.Lock()
	if !l.closed {
		l.queue = appendOrder(l.queue, o, fields, parts...)
	}
	l.mu.Unlock()
}

// enqueueLast queues the order that ends an exchange.
func (l *loop) enqueueLast(o order, fields string, parts ...[]byte) {
	l.mu.Lock()
	if !l.closed {
		l.queue = appendOrder(l.queue, o, fields, parts...)
		l.finished = append(l.finished, o.handle)
	}
	l.mu.Unlock()
}

// call has f run by the owner, after what was queued before; false when the loop has ended.
func (l *loop) call(f func()) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	l.calls = append(l.calls, f)
	l.mu.Unlock()
	l.kick()
	return true
}

// callAndWait has f run by the owner and waits for it; false when the loop has ended.
func (l *loop) callAndWait(f func()) bool {
	done := make(chan struct{})
	if !l.call(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// schedule has a turn taken not later than in so many milliseconds; never where they are negative.
func (l *loop) schedule(millis int64) {
	if millis < 0 {
		return
	}
	if l.timerFired.Swap(false) {
		l.timerAt = time.Time{}
	}
	at := time.Now().Add(time.Duration(millis) * time.Millisecond)
	if l.timerAt.IsZero() || at.Before(l.timerAt) {
		l.timerAt = at
		l.timer.Reset(time.Duration(millis) * time.Millisecond)
	}
}

func (l *loop) timeout() {
	l.timerFired.Store(true)
	if l.acquire() {
		l.run()
	}
}

// dispatch hands out what the last turn has told; false when another poller has taken over, as one
// does where a handler ends this goroutine by runtime.Goexit.
func (p *poller) dispatch() bool {
	hasReturned := false
	defer func() {
		if !hasReturned && p.owns {
			p.handOver()
		}
	}()
	owns := p.dispatchAll()
	hasReturned = true
	return owns
}

func (p *poller) dispatchAll() bool {
	for p.next < p.count {
		ev := p.engine.event(p.next)
		p.next++
		if !p.handle(ev) {
			return false
		}
	}
	return true
}

// handle hands out one event.
func (p *poller) handle(ev *event) bool {
	handle := uint64(ev.handle)
	switch ev.kind {
	case kindRequest:
		e := p.newExchange(ev)
		p.exchanges.put(e, e.handle)
		if p.Inline {
			return p.serveInline(e)
		}
		p.spawned++
		p.workers.serve(e)
	case kindBody, kindBodyEnd, kindWritable, kindPeerClosed, kindGone, kindDetached,
		kindUpgradeRefused:
		if e := p.exchanges.get(handle); e != nil {
			e.tell(ev)
			switch ev.kind {
			case kindGone, kindDetached, kindUpgradeRefused:
				p.exchanges.remove(handle)
			}
		} else if s := p.sockets.get(handle); s != nil {
			s.tell(ev)
		} else if s := p.streams.get(handle); s != nil {
			s.tell(ev)
		}
	case kindWebSocketOpened:
		if e := p.exchanges.get(uint64(ev.other)); e != nil && e.upgrading != nil {
			e.upgraded(handle)
			p.exchanges.remove(e.handle)
		}
	case kindWebSocketMessage, kindWebSocketClosed:
		if s := p.sockets.get(handle); s != nil {
			s.tell(ev)
		}
	case kindStreamData, kindStreamPeerClosed, kindStreamClosed:
		if s := p.streams.get(handle); s != nil {
			s.tell(ev)
		}
	case kindSecured:
		p.secured(handle)
	case kindClosed:
		delete(p.clients, handle)
		if c := p.conns[handle]; c != nil {
			delete(p.conns, handle)
			c.closed()
		}
	}
	return true
}

// serveInline runs a handler on the poller; false when the handler had to wait, so that another
// poller has taken over.
func (p *poller) serveInline(e *exchange) (owns bool) {
	e.inline.Store(p)
	defer func() {
		owns = e.inline.Swap(nil) != nil
		p.owns = owns
	}()
	e.serve()
	return
}

// handOver lets another poller go on, as the handler that this one runs has to wait.
func (p *poller) handOver() {
	next := &poller{loop: p.loop, owns: true, isBrief: p.isBrief}
	go func() {
		if !next.dispatch() {
			return
		}
		if next.isBrief {
			next.run()
		} else {
			next.poll()
		}
	}()
}
