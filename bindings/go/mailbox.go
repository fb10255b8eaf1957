//go:build cgo && linux

package dwell

import (
	"net/http"
	"runtime"
	"sync"
	"time"
)

// mailbox has events of one connection handled in order, on a goroutine that there is only while
// there are some. While there are none it is small: there are as many as connections.
type mailbox struct {
	loop   *loop
	handle uint64

	mu sync.Mutex
	// busy is nil while nothing is to be handled and nobody waits.
	busy *busy
	// sent counts the bytes that were written, out those of them that are known to have gone out;
	// both begin anew at their end.
	sent, out uint32
}

// busy is what a mailbox needs only at times.
type busy struct {
	letters []letter
	bytes   int
	// changed is closed when those who wait to write are to look again.
	changed chan struct{}
	// runs tells that a goroutine handles letters, paused that no more are read meanwhile.
	runs, paused bool
	// gone is set for good when the connection is.
	gone bool
}

// letter is something that has happened.
type letter struct {
	kind, detail uint32
	data         []byte
}

// unhandledBytes is how much may wait to be handled before no more is read.
const unhandledBytes = 256 << 10

// post is called by the loop with what has happened.
func (m *mailbox) post(ev *event, handle func(letter)) {
	l := letter{uint32(ev.kind), uint32(ev.detail), append([]byte(nil), m.loop.engine.bytes(ev)...)}
	m.mu.Lock()
	switch l.kind {
	case kindWritable:
		// A mark that comes behind a later one says nothing new.
		if l.detail != 0 && int32(l.detail-m.out) > 0 {
			m.out = l.detail
			m.broadcastLocked()
		}
		m.mu.Unlock()
		return
	case kindWebSocketClosed, kindStreamClosed:
		m.busyLocked().gone = true
		m.broadcastLocked()
	}
	b := m.busyLocked()
	b.letters = append(b.letters, l)
	b.bytes += len(l.data)
	starts := !b.runs
	b.runs = true
	pauses := b.bytes > unhandledBytes && !b.paused && !b.gone
	if pauses {
		m.pauseLocked(true)
	}
	m.mu.Unlock()
	if pauses {
		m.loop.kick()
	}
	if !starts {
		return
	}
	if m.loop.Inline {
		m.run(handle)
	} else {
		m.loop.spawned++
		go m.run(handle)
	}
}

// pauseLocked queues the order in the same hold of the lock in which it is decided on: a pause that
// came behind the end of it would be for good.
func (m *mailbox) pauseLocked(paused bool) {
	op := uint16(opResume)
	if paused {
		op = opPause
	}
	m.busy.paused = paused
	m.loop.enqueue(order{op: op, handle: m.handle}, "")
}

func (m *mailbox) busyLocked() *busy {
	if m.busy == nil {
		m.busy = &busy{}
	}
	return m.busy
}

// restLocked lets go of what is not needed any more.
func (m *mailbox) restLocked() {
	if b := m.busy; b != nil && !b.runs && !b.gone && b.changed == nil {
		m.busy = nil
	}
}

func (m *mailbox) broadcastLocked() {
	if m.busy != nil && m.busy.changed != nil {
		close(m.busy.changed)
		m.busy.changed = nil
		m.restLocked()
	}
}

// run handles what there is.
func (m *mailbox) run(handle func(letter)) {
	for {
		m.mu.Lock()
		b := m.busyLocked()
		letters := b.letters
		b.letters, b.bytes = nil, 0
		resumes := b.paused && len(letters) == 0
		if resumes {
			m.pauseLocked(false)
		}
		if len(letters) == 0 {
			b.runs = false
			m.restLocked()
			m.mu.Unlock()
			if resumes {
				m.loop.kick()
			}
			return
		}
		m.mu.Unlock()
		for _, l := range letters {
			m.guarded(handle, l)
		}
	}
}

// guarded keeps a panic of a handler to its own connection.
func (m *mailbox) guarded(handle func(letter), l letter) {
	returned := false
	defer func() {
		if returned {
			return
		}
		err := recover()
		if err == nil {
			// runtime.Goexit ends this goroutine: the rest is for another.
			go m.run(handle)
		} else if err != http.ErrAbortHandler {
			stack := make([]byte, 64<<10)
			stack = stack[:runtime.Stack(stack, false)]
			logTo(m.loop.Server, "dwell: panic in a handler: %v\n%s", err, stack)
		}
		m.loop.send(order{op: opAbort, handle: m.handle}, "")
	}()
	handle(l)
	returned = true
}

// takeTimeout is how long a client is given to take what is on its way before whoever writes to it
// gives up, where the server has no WriteTimeout.
const takeTimeout = 30 * time.Second

// frameBytes is what a message takes besides its bytes.
const frameBytes = 10

// write sends an order with bytes. While too many are on their way it waits, or fails with
// [ErrBehind] where it may not: a loop has to be free for the news that they have gone out.
func (m *mailbox) write(o order, data []byte, mayWait bool) error {
	m.mu.Lock()
	window := uint32(m.loop.sendBuffer())
	for m.sent-m.out >= window && !m.goneLocked() {
		if !mayWait || m.loop.Inline {
			m.mu.Unlock()
			return ErrBehind
		}
		if !m.waitLocked() {
			m.mu.Unlock()
			m.loop.send(order{op: opAbort, handle: m.handle}, "")
			return ErrBehind
		}
	}
	if m.goneLocked() {
		m.mu.Unlock()
		return errClientGone
	}
	m.sent += uint32(min(len(data), sendBufferMax)) + frameBytes
	if m.sent == 0 {
		// That is no mark.
		m.sent = 1
	}
	// Whoever has to wait later waits for the last mark, so that all beyond the half is marked.
	if m.sent-m.out > window/2 {
		o.flags |= writeNotify
		o.argument = uint64(m.sent)
	}
	o.handle = m.handle
	m.loop.enqueue(o, "", data)
	m.mu.Unlock()
	m.loop.kick()
	return nil
}

// waitLocked waits until something has gone out; false when the client does not take it.
func (m *mailbox) waitLocked() bool {
	b := m.busyLocked()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	changed := b.changed
	m.mu.Unlock()
	defer m.mu.Lock()
	timer := time.NewTimer(firstOf(m.loop.WriteTimeout, takeTimeout))
	defer timer.Stop()
	select {
	case <-changed:
		return true
	case <-timer.C:
		return false
	}
}

func (m *mailbox) goneLocked() bool { return m.busy != nil && m.busy.gone }

// order sends an order without waiting.
func (m *mailbox) order(o order, data []byte) error {
	m.mu.Lock()
	gone := m.goneLocked()
	m.mu.Unlock()
	if gone {
		return errClientGone
	}
	o.handle = m.handle
	m.loop.send(o, "", data)
	return nil
}
