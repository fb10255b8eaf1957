//go:build cgo && linux

package dwell

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
)

// mailbox has events of one connection handled in order, on a goroutine that there is only while
// there are some. While there are none it is small: there are as many as connections.
type mailbox struct {
	loop   *loop
	handle uint64

	mu sync.Mutex
	// busy is nil while nothing is to be handled and nobody waits.
	busy *busy
	// inFlight is what was written since the engine last told that all is out.
	inFlight int32
	runs     bool
	paused   bool
	gone     bool
}

// busy is what a mailbox needs only at times.
type busy struct {
	letters []letter
	bytes   int
	// changed is closed when those who wait to write are to look again.
	changed chan struct{}
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
		m.inFlight = 0
		m.broadcastLocked()
		m.mu.Unlock()
		return
	case kindWebSocketClosed, kindStreamClosed:
		m.gone = true
		m.broadcastLocked()
	}
	b := m.busyLocked()
	b.letters = append(b.letters, l)
	b.bytes += len(l.data)
	starts := !m.runs
	m.runs = true
	pauses := b.bytes > unhandledBytes && !m.paused && !m.gone
	m.paused = m.paused || pauses
	m.mu.Unlock()
	if pauses {
		m.loop.send(order{op: opPause, handle: m.handle}, "")
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

func (m *mailbox) busyLocked() *busy {
	if m.busy == nil {
		m.busy = &busy{}
	}
	return m.busy
}

// restLocked lets go of what is not needed any more.
func (m *mailbox) restLocked() {
	if !m.runs && m.busy != nil && m.busy.changed == nil {
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
		resumes := m.paused && len(letters) == 0
		if resumes {
			m.paused = false
		}
		if len(letters) == 0 {
			m.runs = false
			m.restLocked()
			m.mu.Unlock()
			if resumes {
				m.loop.send(order{op: opResume, handle: m.handle}, "")
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
		if err := recover(); err != nil && err != http.ErrAbortHandler {
			stack := make([]byte, 64<<10)
			stack = stack[:runtime.Stack(stack, false)]
			logTo(m.loop.Server, "dwell: panic in a handler: %v\n%s", err, stack)
		}
		m.loop.send(order{op: opAbort, handle: m.handle}, "")
	}()
	handle(l)
	returned = true
}

// wroteMost is as much as a mailbox counts.
const wroteMost = 1 << 30

// write sends an order with bytes, and waits while too many are on their way. It does not wait on
// a loop, which has to be free for the news that they have gone out.
func (m *mailbox) write(o order, data []byte) error {
	m.mu.Lock()
	for m.inFlight > windowBytes && !m.gone && !m.loop.Inline {
		b := m.busyLocked()
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		m.mu.Unlock()
		<-changed
		m.mu.Lock()
	}
	if m.gone {
		m.mu.Unlock()
		return fmt.Errorf("dwell: %w", errClientGone)
	}
	m.mu.Unlock()
	o.handle = m.handle
	m.loop.send(o, "", data)
	return nil
}

// countLocked counts bytes that are about to be written.
func (m *mailbox) countLocked(bytes int) {
	m.inFlight = int32(min(int(m.inFlight)+bytes, wroteMost))
}
